/* `ddptrain supervise`: run, look, decide, again. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "io/checkpoint.h"
#include "io/metrics.h"
#include "launcher/child.h"
#include "launcher/launch.h"
#include "launcher/stop.h"
#include "launcher/supervise.h"

#define PATH_SIZE   4096
#define REST_NS     (50 * DDP_NS_PER_MS)
#define FOLDER_S    10.0 /* for ranks of the last run on other hosts to end */
#define MOST_NAMES  10000
#define SIGNAL_AT   128
#define MOST_SIGNAL 64
#define NAME_SIZE   16 /* TASK_COMM_LEN */

typedef struct supervise {
    ddp_supervise_options_t options;
    ddp_supervise_line_t    line;
    ddp_supervise_place_t   place;
    ddp_supervise_past_t    past;
    ddp_supervise_hosts_t   hosts;
    ddp_supervise_host_t   *last_host; /* that failed; in `hosts`, or NULL */
    uint64_t                ranks;     /* asked for; 0: mpirun's choice, or not known */
    uint64_t                per_host;  /* 0: no limit */
    const char             *file;      /* the hostfile, or NULL */
    long                    restarted; /* how often the job had been started again when this process began */
    char                    out[PATH_SIZE];    /* added to the command; "" */
    char                    folder[PATH_SIZE]; /* of the run; "": not known */
    char                    history[PATH_SIZE];
    char                    copy[PATH_SIZE]; /* of the hostfile, without the hosts that are left out; "" */
    ddp_supervise_change_t  change;
    char                   *list; /* owned: change.hosts */
} supervise_t;

static double now_s(void)
{
    return (double)ddp_clock_ns() / 1e9;
}

static double draw(void)
{
    uint32_t bits = 0;

    if (getrandom(&bits, sizeof(bits), GRND_NONBLOCK) != (ssize_t)sizeof(bits)) {
        bits = (uint32_t)ddp_clock_ns() * 2654435761u;
    }
    return (double)bits / 4294967296.0;
}

/* Seconds, or less if a stop is asked for meanwhile. */
static void rest(double seconds)
{
    const double          end  = now_s() + seconds;
    const struct timespec step = {0, REST_NS};

    while (ddp_supervise_asked() == 0 && now_s() < end) {
        (void)nanosleep(&step, NULL);
    }
}

/* ---- Before the first run ---- */

/* ddptrain alone would take the next free name in runs/, and a restart another one. */
static ddp_status_t name_folder(supervise_t *supervise)
{
    ddp_status_t status = DDP_OK;

    for (int i = 1; i <= MOST_NAMES; i++) {
        (void)snprintf(supervise->out, sizeof(supervise->out),
                       i == 1 ? "runs/supervised" : "runs/supervised-%d", i);
        if (access(supervise->out, F_OK) != 0) {
            ddp_log(DDP_LOG_INFO, "supervise: the command has no --out: the run goes to %s", supervise->out);
            goto out;
        }
    }
    status = ddp_fail(DDP_ERR_CONFIG, "'runs/supervised' and its numbers are taken: give ddptrain an --out");
out:
    return status;
}

/* Which folder a restart goes on with must be certain before the first start. */
static ddp_status_t settle_folder(supervise_t *supervise)
{
    ddp_status_t                status  = DDP_OK;
    const ddp_supervise_line_t *line    = &supervise->line;
    const char                 *folder  = supervise->options.folder;
    const bool                  is_auto = line->resume != NULL && strcmp(line->resume, "auto") == 0;

    if (line->program >= 0 && line->out == NULL && !is_auto) {
        DDP_TRY(name_folder(supervise));
        supervise->change.out = supervise->out;
    }
    if (line->out != NULL || supervise->out[0] != '\0') {
        DDP_REQUIRE(folder == NULL, DDP_ERR_CONFIG,
                    "--run is for commands that do not show ddptrain's --out");
        folder = line->out != NULL ? line->out : supervise->out;
        /* the first start refuses it with status 1, and a second one, a restart, would go on with it */
        DDP_REQUIRE(is_auto || supervise->restarted > 0 || !ddp_run_folder_exists(folder), DDP_ERR_CONFIG,
                    "--out '%s' exists: add --resume auto to go on with it, or choose another", folder);
    }
    if (folder == NULL) {
        ddp_log(DDP_LOG_WARN, "supervise: %s, so checkpoints cannot be watched; restarts are counted instead",
                line->program < 0 ? "ddptrain's --out is not in this command, and there is no --run"
                                  : "the command has no --out");
    }
    DDP_REQUIRE(folder == NULL || strlen(folder) + 32 < sizeof(supervise->folder), DDP_ERR_CONFIG,
                "'%.80s...': path too long", folder);
    (void)snprintf(supervise->folder, sizeof(supervise->folder), "%s", folder != NULL ? folder : "");
    for (size_t n = strlen(supervise->folder); n > 1 && supervise->folder[n - 1] == '/'; n--) {
        supervise->folder[n - 1] = '\0';
    }
    supervise->place.is_seen = folder != NULL;
out:
    return status;
}

static ddp_status_t settle_history(supervise_t *supervise)
{
    ddp_status_t status = DDP_OK;
    const char  *path   = supervise->options.history;

    DDP_REQUIRE(path == NULL || strlen(path) < sizeof(supervise->history), DDP_ERR_CONFIG,
                "--history '%.80s...': path too long", path);
    if (path != NULL || supervise->folder[0] == '\0') {
        (void)snprintf(supervise->history, sizeof(supervise->history), "%s",
                       path != NULL ? path : "supervise.jsonl");
    } else { /* not inside: the folder must not be there before the run */
        (void)snprintf(supervise->history, sizeof(supervise->history), "%.*s.supervise.jsonl",
                       (int)sizeof(supervise->folder) - 32, supervise->folder);
    }
out:
    return status;
}

/* Hosts and numbers of ranks, as far as the command tells them. */
static ddp_status_t settle_hosts(supervise_t *supervise)
{
    ddp_status_t                status = DDP_OK;
    const ddp_supervise_line_t *line   = &supervise->line;
    const char                 *given  = supervise->options.hostfile;

    DDP_REQUIRE(given == NULL || line->kind == DDP_SUPERVISE_MPIRUN, DDP_ERR_CONFIG,
                "--hostfile is for mpirun, and the command begins with '%.80s'", line->argv[0]);
    DDP_REQUIRE(given == NULL || (line->hostfile < 0 && line->hosts < 0), DDP_ERR_CONFIG,
                "--hostfile: mpirun has its hosts already");
    if (line->kind != DDP_SUPERVISE_MPIRUN) {
        return DDP_OK;
    }
    if (line->unknown != NULL) {
        DDP_REQUIRE(given == NULL, DDP_ERR_CONFIG,
                    "--hostfile: '%.80s' of mpirun is not understood here: give "
                    "mpirun the hostfile",
                    line->unknown);
        ddp_log(DDP_LOG_INFO, "supervise: '%s' of mpirun is not understood: all hosts stay", line->unknown);
        return DDP_OK;
    }
    if (line->ranks >= 0) {
        supervise->ranks = strtoull(line->argv[line->ranks], NULL, 10);
    }
    if (line->per_host >= 0) {
        supervise->per_host = strtoull(line->argv[line->per_host], NULL, 10);
    }
    supervise->file = given != NULL ? given : line->hostfile >= 0 ? line->argv[line->hostfile] : NULL;
    supervise->change.hostfile = given;
    if (line->hosts >= 0) { /* it chooses among those of a file */
        DDP_TRY(ddp_supervise_hosts_parse(line->argv[line->hosts], &supervise->hosts));
    } else if (supervise->file != NULL) {
        DDP_TRY(ddp_supervise_hosts_read(supervise->file, &supervise->hosts));
    }
out:
    return status;
}

static int64_t newest_step(const supervise_t *supervise)
{
    char      path[PATH_SIZE + 16];
    uint64_t *steps = NULL;
    size_t    n     = 0;
    int64_t   step  = -1;

    (void)snprintf(path, sizeof(path), "%s/checkpoints", supervise->folder);
    if (supervise->folder[0] != '\0' && ddp_checkpoint_list(path, &steps, &n) == DDP_OK && n > 0) {
        step = (int64_t)steps[0];
    }
    free(steps);
    ddp_error_clear();
    return step;
}

static long env_count(const char *name)
{
    const char *text = getenv(name);

    return text != NULL ? strtol(text, NULL, 10) : 0;
}

static ddp_status_t prepare(supervise_t *supervise)
{
    ddp_status_t       status = DDP_OK;
    const ddp_launch_t launch = ddp_launch_read();
    const long         job    = env_count("SLURM_RESTART_COUNT");
    const long         own    = env_count("DDPTRAIN_RESTART_COUNT");

    DDP_REQUIRE(launch.ranks <= 1 && !(launch.is_step && launch.tasks > 1), DDP_ERR_CONFIG,
                "supervise starts mpirun or srun itself: start it once, without them");
    supervise->restarted = job > own ? job : own;
    DDP_TRY(ddp_supervise_line_read(supervise->options.argc, supervise->options.argv, &supervise->line));
    supervise->place.in_slurm   = getenv("SLURM_JOB_ID") != NULL;
    supervise->place.is_limited = supervise->line.is_limited;
    DDP_TRY(settle_hosts(supervise));
    DDP_TRY(settle_folder(supervise));
    DDP_TRY(settle_history(supervise));
    supervise->past.restart_s = calloc(supervise->options.max_restarts + 1, sizeof(double));
    DDP_REQUIRE(supervise->past.restart_s != NULL, DDP_ERR_NO_MEMORY, "no memory");
    supervise->past.step = newest_step(supervise);
out:
    return status;
}

/* ---- Between two runs ---- */

static uint64_t ranks_now(const supervise_t *supervise)
{
    return supervise->change.ranks > 0 ? supervise->change.ranks : supervise->ranks;
}

/* The hostfile and the list of hosts for the next run; the user's file is never written. */
static ddp_status_t write_hosts(supervise_t *supervise)
{
    ddp_status_t status = DDP_OK;
    const char  *folder = getenv("TMPDIR");
    int          fd     = -1;

    if (supervise->file != NULL) {
        if (supervise->copy[0] != '\0') {
            (void)unlink(supervise->copy);
        }
        (void)snprintf(supervise->copy, sizeof(supervise->copy), "%.4000s/ddptrain-hosts.XXXXXX",
                       folder != NULL && folder[0] != '\0' ? folder : "/tmp");
        fd = mkstemp(supervise->copy);
        DDP_REQUIRE(fd >= 0, DDP_ERR_IO, "'%s': %s", supervise->copy, ddp_errno_text(errno));
        DDP_TRY(ddp_supervise_hosts_write(&supervise->hosts, supervise->file, fd));
        supervise->change.hostfile = supervise->copy;
    }
    if (supervise->line.hosts >= 0) {
        char *list = ddp_supervise_hosts_list(&supervise->hosts, supervise->line.argv[supervise->line.hosts]);

        DDP_REQUIRE(list != NULL, DDP_ERR_NO_MEMORY, "no memory for hosts");
        free(supervise->list);
        supervise->list         = list;
        supervise->change.hosts = list;
    }
    supervise->change.ranks =
        ddp_supervise_hosts_ranks(&supervise->hosts, supervise->ranks, supervise->per_host);
out:
    if (fd >= 0) {
        (void)close(fd);
    }
    return status;
}

/* Leave a host out if enough is left. */
static ddp_status_t drop(supervise_t *supervise, ddp_supervise_host_t *host)
{
    ddp_status_t status = DDP_OK;
    uint64_t     ranks  = 0;

    host->is_dropped = true;
    ranks            = ddp_supervise_hosts_ranks(&supervise->hosts, supervise->ranks, supervise->per_host);
    if (ddp_supervise_hosts_left(&supervise->hosts) == 0 ||
        (supervise->ranks > 0 && ranks < supervise->options.min_ranks)) {
        host->is_dropped = false;
        ddp_log(DDP_LOG_WARN,
                "supervise: %s has failed twice, but without it %" PRIu64 " ranks would be left", host->name,
                ranks);
        goto out;
    }
    DDP_TRY(write_hosts(supervise));
    supervise->past.idle = 0; /* it is another job now */
    if (ranks > 0) {
        ddp_log(DDP_LOG_WARN, "supervise: %s has failed twice and is left out: %" PRIu64 " ranks from now on",
                host->name, ranks);
    } else {
        ddp_log(DDP_LOG_WARN, "supervise: %s has failed twice and is left out", host->name);
    }
out:
    return status;
}

/* Whose fault was it? Where mpirun does not say which host it could not reach, the one that failed last. */
static ddp_status_t blame(supervise_t *supervise, const ddp_supervise_clue_t *clue, bool is_progress)
{
    ddp_supervise_host_t *host   = ddp_supervise_hosts_find(&supervise->hosts, clue->host);
    const double          now    = now_s();
    ddp_status_t          status = DDP_OK;

    if (clue->host[0] == '\0' && clue->is_unstarted && !is_progress) {
        host = supervise->last_host;
    }
    if (host != NULL && !host->is_dropped) {
        const bool is_second = host->failed_s >= 0 && now - host->failed_s < supervise->options.window_s;

        host->failed_s       = now;
        supervise->last_host = host;
        status               = is_second ? drop(supervise, host) : DDP_OK;
    }
    return status;
}

/* Ranks on other hosts may take a moment longer; the lock on the folder tells when they are gone. */
static void await_folder(const supervise_t *supervise)
{
    const double end = now_s() + FOLDER_S;
    int          fd  = -1;

    if (supervise->folder[0] == '\0' || !ddp_run_folder_exists(supervise->folder)) {
        return;
    }
    while (ddp_run_folder_lock(supervise->folder, &fd) == DDP_ERR_STATE && now_s() < end &&
           ddp_supervise_asked() == 0) {
        rest(0.1);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    ddp_error_clear();
}

/* ---- The runs ---- */

/* As the kernel calls a process that runs it. @return `name`, NULL: not known */
static const char *ranks_name(const ddp_supervise_line_t *line, char *name)
{
    const char *path  = line->program >= 0 ? line->argv[line->program] : NULL;
    const char *slash = path != NULL ? strrchr(path, '/') : NULL;

    if (path == NULL) {
        return NULL;
    }
    (void)snprintf(name, NAME_SIZE, "%s", slash != NULL ? slash + 1 : path);
    return name;
}

static ddp_status_t run_once(supervise_t *supervise, ddp_supervise_end_t *end)
{
    ddp_status_t status      = DDP_OK;
    char       **argv        = NULL;
    char       **environment = ddp_child_environment(ddp_launch_read().is_managed, false);
    char         count[64];
    char         name[NAME_SIZE];

    DDP_REQUIRE(environment != NULL, DDP_ERR_NO_MEMORY, "no memory for an environment");
    (void)snprintf(count, sizeof(count), "DDPTRAIN_RESTART_COUNT=%" PRIu64,
                   (uint64_t)supervise->restarted + supervise->past.restarts);
    DDP_TRY(ddp_child_environment_add(&environment, count));
    DDP_TRY(ddp_supervise_words(&supervise->line, &supervise->change, &argv));
    DDP_TRY(ddp_supervise_run(argv, environment, supervise->line.kind, ranks_name(&supervise->line, name),
                              supervise->options.alone_s, end));
out:
    ddp_supervise_words_free(argv);
    ddp_child_free_environment(environment);
    return status;
}

/* "ended with 137 after 12.0 s (ddptrain: rank 3 on ...)" */
static void tell_end(const ddp_supervise_end_t *end, char *text, size_t size)
{
    char why[DDP_SUPERVISE_LINE + 8] = "";

    if (end->clue.line[0] != '\0') {
        (void)snprintf(why, sizeof(why), " (%s)", end->clue.line);
    } else if (end->code > SIGNAL_AT && end->code <= SIGNAL_AT + MOST_SIGNAL) {
        (void)snprintf(why, sizeof(why), " (signal %d)", end->code - SIGNAL_AT);
    }
    (void)snprintf(text, size, "ended with %d after %.1f s%s", end->code, end->seconds, why);
}

static void tell(const supervise_t *supervise, const ddp_supervise_end_t *end, ddp_supervise_next_t next,
                 int64_t step, double wait, const char *reason)
{
    char text[DDP_SUPERVISE_LINE + 64];
    char where[48] = "";

    tell_end(end, text, sizeof(text));
    if (next == DDP_SUPERVISE_GIVE_UP) {
        ddp_log(DDP_LOG_ERROR, "supervise: gives up: %s; the last run %s", reason, text);
    } else if (next == DDP_SUPERVISE_DONE && end->code != 0) {
        ddp_log(DDP_LOG_INFO, "supervise: no restart: %s; the run ended with %d", reason, end->code);
    } else if (next == DDP_SUPERVISE_RESTART) {
        if (step >= 0) {
            (void)snprintf(where, sizeof(where), " after step %" PRId64, step);
        }
        ddp_log(DDP_LOG_WARN, "supervise: %s; restart %" PRIu64 "%s in %.1f s", text,
                supervise->past.restarts, where, wait);
    }
}

/* What a process that is told to stop between two runs ends with: the state is saved as far as it ever was.
 */
static int code_between_runs(void)
{
    const int asked = ddp_supervise_asked();

    return asked == SIGINT || asked == SIGHUP ? SIGNAL_AT + asked : DDP_EXIT_STOPPED;
}

static ddp_status_t supervise_all(supervise_t *supervise, int *code_p)
{
    static const char *const nexts[] = {"restart", "done", "give up"};
    ddp_status_t             status  = DDP_OK;
    ddp_supervise_next_t     next    = DDP_SUPERVISE_RESTART;
    ddp_supervise_end_t      end;
    char                     reason[DDP_SUPERVISE_REASON];
    double                   wait = 0;

    for (uint64_t attempt = 0; next == DDP_SUPERVISE_RESTART; attempt++) {
        int64_t step = -1;

        DDP_TRY(run_once(supervise, &end));
        step = newest_step(supervise);
        next = ddp_supervise_decide(&supervise->options, &supervise->place, &supervise->past, &end, now_s(),
                                    step, draw(), &wait, reason);
        *code_p = end.code;
        ddp_supervise_record(supervise->history, &(ddp_supervise_record_t){.attempt = attempt,
                                                                           .end     = &end,
                                                                           .step    = step,
                                                                           .ranks   = ranks_now(supervise),
                                                                           .hosts   = &supervise->hosts,
                                                                           .next    = nexts[next],
                                                                           .reason  = reason,
                                                                           .wait_s  = wait});
        tell(supervise, &end, next, step, wait, reason);
        if (next == DDP_SUPERVISE_RESTART) {
            DDP_TRY(blame(supervise, &end.clue, supervise->past.failures == 1));
            rest(wait);
            await_folder(supervise);
            if (ddp_supervise_asked() != 0) {
                ddp_log(DDP_LOG_INFO, "supervise: no restart: was asked to stop by %s",
                        ddp_supervise_signal_name(ddp_supervise_asked()));
                *code_p = code_between_runs();
                break;
            }
        }
    }
out:
    return status;
}

int ddp_supervise_command(int argc, char **argv)
{
    static supervise_t supervise; /* large */
    ddp_status_t       status = ddp_supervise_options_parse(argc, argv, &supervise.options);
    int                code   = EXIT_FAILURE;

    if (status == DDP_OK && supervise.options.help) {
        if (ddp_launch_read().is_first) {
            ddp_supervise_help(stdout);
        }
        return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
    }
    ddp_log_set_level(supervise.options.log);
    ddp_supervise_catch_signals();
    if (status == DDP_OK) {
        status = prepare(&supervise);
    }
    if (status == DDP_OK) {
        status = supervise_all(&supervise, &code);
    }
    if (status != DDP_OK && ddp_launch_read().is_first) {
        ddp_log(DDP_LOG_ERROR, "%s", ddp_error_line());
    }
    if (supervise.copy[0] != '\0') {
        (void)unlink(supervise.copy);
    }
    ddp_supervise_hosts_free(&supervise.hosts);
    free(supervise.past.restart_s);
    free(supervise.list);
    return status == DDP_OK ? code : status == DDP_ERR_CONFIG ? 2 : EXIT_FAILURE;
}
