/* Steps made here and now, by one rank in a process of its own. */
#include <ftw.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "launcher/child.h"
#include "launcher/launch.h"
#include "launcher/plan.h"
#include "launcher/start.h"

#define MAX_WORDS (2 * DDP_OPTIONS_MAX_SETS + 40)
#define LINE      400

/* No evaluations and saves in between, and no schedule, which may need more steps than these. Small buckets
 * tell finely when gradients are ready. */
static const char *const settings[] = {
    "train.mode=ddp",         "train.log_every=1",        "train.eval_every=4294967295",
    "train.sample_tokens=0",  "data.test_samples=1",      "checkpoint.every_epochs=0",
    "ddp.bucket_cap_mb=1",    "checkpoint.every_steps=0", "ddp.trace_buckets=true",
    "schedule.kind=constant", "schedule.warmup_steps=0",
};

typedef struct command {
    const char *word[MAX_WORDS];
    size_t      n;
    char        program[DDP_PLAN_PATH], steps[40];
} command_t;

static void add(command_t *command, const char *word)
{
    if (command->n + 1 < MAX_WORDS) {
        command->word[command->n++] = word;
    }
}

static void add_set(command_t *command, const char *assignment)
{
    add(command, "--set");
    add(command, assignment);
}

static void make_command(const ddp_plan_options_t *options, const char *folder, command_t *command)
{
    add(command, command->program);
    if (options->run.file != NULL) {
        add(command, options->run.file);
    }
    for (size_t i = 0; i < options->run.n_sets; i++) {
        add_set(command, options->run.set[i]);
    }
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
        add_set(command, settings[i]);
    }
    (void)snprintf(command->steps, sizeof(command->steps), "train.steps=%" PRIu64, options->steps);
    add_set(command, command->steps);
    add(command, "--log");
    add(command, "warn");
    add(command, "--out");
    add(command, folder);
    command->word[command->n] = NULL;
}

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *where)
{
    (void)info;
    (void)type;
    (void)where;
    (void)remove(path);
    return 0;
}

/* @return DDP_ERR_REMOTE: it did not come to its end */
static ddp_status_t run_steps(const ddp_plan_options_t *options, const char *folder)
{
    ddp_status_t    status      = DDP_OK;
    char          **environment = ddp_child_environment(ddp_launch_read().is_managed, true);
    command_t      *command     = calloc(1, sizeof(*command));
    ddp_child_end_t end         = DDP_CHILD_EXITED;
    int             code        = 0;
    ssize_t         length      = 0;
    char            log[DDP_PLAN_PATH + 16];
    char            metrics[DDP_PLAN_PATH + 16];
    char            why[LINE];
    ddp_child_t     child = {.log = log, .progress = metrics, .timeout_s = options->timeout_s};

    DDP_REQUIRE(environment != NULL && command != NULL, DDP_ERR_NO_MEMORY, "no memory for a run");
    length = readlink("/proc/self/exe", command->program, sizeof(command->program) - 1);
    DDP_REQUIRE(length > 0, DDP_ERR_SYSTEM, "this program is not found through /proc/self/exe");
    (void)snprintf(log, sizeof(log), "%s.log", folder);
    (void)snprintf(metrics, sizeof(metrics), "%s/metrics.jsonl", folder);
    make_command(options, folder, command);
    child.argv        = (char *const *)(uintptr_t)command->word; /* execvpe() does not write to it */
    child.environment = environment;
    DDP_TRY(ddp_child_run(&child, &end, &code));
    DDP_REQUIRE(end != DDP_CHILD_INTERRUPTED, DDP_ERR_REMOTE, "stopped by signal %d (%s)", code,
                strsignal(code));
    ddp_child_last_line(log, why, sizeof(why));
    DDP_REQUIRE(end != DDP_CHILD_STUCK, DDP_ERR_REMOTE, "no new step in %g s (--timeout): %s",
                options->timeout_s, why);
    DDP_REQUIRE(end != DDP_CHILD_KILLED, DDP_ERR_REMOTE, "the run was ended by signal %d (%s): %s", code,
                strsignal(code), why);
    DDP_REQUIRE(code == EXIT_SUCCESS, DDP_ERR_REMOTE, "the run ended with %d: %s", code, why);
out:
    free(command);
    ddp_child_free_environment(environment);
    return status;
}

ddp_status_t ddp_plan_measure(const ddp_plan_options_t *options, ddp_plan_run_t *run_p)
{
    ddp_status_t status  = DDP_OK;
    const char  *parent  = getenv("TMPDIR");
    bool         is_made = false;
    char         place[DDP_PLAN_PATH - 16];
    char         folder[DDP_PLAN_PATH];
    ddp_config_t config;

    *run_p = (ddp_plan_run_t){0};
    ddp_config_defaults(&config);
    DDP_TRY(ddp_start_read_config(&options->run, &config));
    (void)snprintf(place, sizeof(place), "%.3900s/ddptrain-plan.XXXXXX",
                   parent != NULL && parent[0] != '\0' ? parent : "/tmp");
    DDP_REQUIRE(mkdtemp(place) != NULL, DDP_ERR_IO, "'%s' cannot be made (TMPDIR is another place)", place);
    is_made = true;
    (void)snprintf(folder, sizeof(folder), "%s/run", place);
    ddp_log(DDP_LOG_INFO, "makes %" PRIu64 " steps with one rank (--steps, --from)", options->steps);
    DDP_TRY(run_steps(options, folder));
    DDP_TRY(ddp_plan_read(folder, run_p));
    run_p->source[0] = '\0';
    run_p->cap_bytes = config.ddp.bucket_cap_mb * 1048576.0;
out:
    if (is_made) {
        (void)nftw(place, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    }
    return status;
}
