/* The runs: which there are, their command lines, and what becomes of them. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "launcher/child.h"
#include "launcher/compare.h"
#include "launcher/launch.h"

#define MAX_WORDS   (2 * DDP_OPTIONS_MAX_SETS + 64)
#define WORD        128
#define BUDGET_S    60.0
#define PROBE_STEPS 3 /* measured, after the warm-up */
#define LEAST_STEPS 8
#define MOST_STEPS  300

typedef enum starter { STARTER_NONE, STARTER_MPIRUN, STARTER_SRUN } starter_t;

typedef struct runner {
    ddp_compare_t *compare;
    ddp_launch_t   launch;
    starter_t      starter;
    bool           in_slurm;
    uint64_t       steps;
    char           program[DDP_COMPARE_PATH];
} runner_t;

/* A command line that grows; texts that are made for it live in `text`. */
typedef struct command {
    char  *word[MAX_WORDS];
    size_t n;
    char   text[48][WORD + DDP_COMPARE_PATH];
    size_t n_texts;
} command_t;

static void add(command_t *command, const char *word)
{
    if (command->n + 1 < MAX_WORDS) {
        command->word[command->n++] = (char *)(uintptr_t)word; /* execvpe() does not write to it */
    }
}

static void add_made(command_t *command, const char *fmt, ...) DDP_PRINTF(2, 3);
static void add_made(command_t *command, const char *fmt, ...)
{
    const size_t most = sizeof(command->text) / sizeof(command->text[0]);
    va_list      args;

    if (command->n_texts < most) {
        char *text = command->text[command->n_texts++];

        va_start(args, fmt);
        (void)vsnprintf(text, sizeof(command->text[0]), fmt, args);
        va_end(args);
        add(command, text);
    }
}

static void add_set(command_t *command, const char *assignment)
{
    add(command, "--set");
    add(command, assignment);
}

/* How processes are started: mpirun knows an allocation of Slurm as well. */
static void add_starter(const runner_t *runner, command_t *command, size_t ranks)
{
    if (runner->starter == STARTER_SRUN) {
        add(command, "srun");
        add(command, "--mpi=pmix");
        add(command, "--kill-on-bad-exit=1");
        add_made(command, "--ntasks=%zu", ranks);
        return;
    }
    add(command, "mpirun");
    add(command, "-np");
    add_made(command, "%zu", ranks);
    if (!runner->in_slurm) { /* there the allocation says where ranks go */
        add(command, "--bind-to");
        add(command, "none");
        if (ranks > runner->compare->cores) {
            add(command, "--oversubscribe");
        }
    }
}

static void add_devices(command_t *command, size_t devices)
{
    char   list[WORD + DDP_COMPARE_PATH];
    size_t used = 0;

    for (size_t d = 0; d < devices && used < sizeof(list); d++) {
        used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%zu", d > 0 ? "," : "", d);
    }
    add_set(command, "train.mode=dp");
    add(command, "--set");
    add_made(command, "dp.devices=[%s]", list);
}

/* What all runs of a comparison have in common: equal data, no evaluations and saves in between, and no
 * schedule, which may need more steps than these. */
static void add_settings(const runner_t *runner, command_t *command, uint64_t steps)
{
    static const char *const settings[] = {
        "train.log_every=1",   "train.eval_every=4294967295", "train.sample_tokens=0",
        "data.test_samples=1", "checkpoint.every_epochs=0",   "checkpoint.every_steps=0",
        "train.trace=true",    "schedule.kind=constant",      "schedule.warmup_steps=0",
    };
    const ddp_compare_t *compare = runner->compare;

    for (size_t i = 0; i < compare->options.run.n_sets; i++) {
        add_set(command, compare->options.run.set[i]);
    }
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
        add_set(command, settings[i]);
    }
    add(command, "--set");
    add_made(command, "train.steps=%" PRIu64, steps);
    add(command, "--set");
    add_made(command, "train.micro_batch=%" PRIu64, compare->config.train.micro_batch);
}

static void make_command(const runner_t *runner, const ddp_compare_result_t *result, uint64_t steps,
                         const char *folder, command_t *command)
{
    if (result->way == DDP_COMPARE_DDP) {
        add_starter(runner, command, result->devices);
    }
    add(command, runner->program);
    if (runner->compare->options.run.file != NULL) {
        add(command, runner->compare->options.run.file);
    }
    add_settings(runner, command, steps);
    if (result->way == DDP_COMPARE_DP) {
        add_devices(command, result->devices);
    } else {
        add_set(command, "train.mode=ddp");
    }
    add(command, "--log"); /* so that what the log ends with says why a run failed */
    add(command, "warn");
    add(command, "--out");
    add(command, folder);
    command->word[command->n] = NULL;
}

/* A run that did not come to its end: what became of it, in its result and in a line. */
static void tell_failure(const runner_t *runner, ddp_child_end_t end, int code, const char *log,
                         ddp_compare_result_t *result)
{
    char line[DDP_COMPARE_LINE - 120];
    char name[64];

    ddp_child_last_line(log, line, sizeof(line));
    (void)ddp_compare_result_text(result, name, sizeof(name));
    switch (end) {
    case DDP_CHILD_INTERRUPTED:
        (void)snprintf(result->error, sizeof(result->error), "stopped by signal %d (%s)", code,
                       strsignal(code));
        break;
    case DDP_CHILD_STUCK:
        (void)snprintf(result->error, sizeof(result->error), "no new step in %g s (--timeout): %s",
                       runner->compare->options.timeout_s, line);
        break;
    case DDP_CHILD_KILLED:
        (void)snprintf(result->error, sizeof(result->error), "ended by signal %d (%s): %s", code,
                       strsignal(code), line);
        break;
    case DDP_CHILD_EXITED:
        (void)snprintf(result->error, sizeof(result->error), "exit status %d: %s", code, line);
        break;
    }
    ddp_log(DDP_LOG_WARN, "%s: %s", name, result->error);
}

/* One run to its end. What fails is noted in the result.
 * @return DDP_ERR_STATE: stopped by a signal; others: nothing can be run */
static ddp_status_t run(const runner_t *runner, ddp_compare_result_t *result, uint64_t steps,
                        const char *folder)
{
    ddp_status_t    status      = DDP_OK;
    const bool      is_alone    = result->way != DDP_COMPARE_DDP;
    char          **environment = ddp_child_environment(runner->launch.is_managed, is_alone);
    command_t      *command     = calloc(1, sizeof(*command));
    ddp_child_end_t end         = DDP_CHILD_EXITED;
    int             code        = 0;
    char            log[DDP_COMPARE_PATH + 16];
    char            metrics[DDP_COMPARE_PATH + 16];
    ddp_child_t child = {.log = log, .progress = metrics, .timeout_s = runner->compare->options.timeout_s};

    DDP_REQUIRE(environment != NULL && command != NULL, DDP_ERR_NO_MEMORY, "no memory for a run");
    (void)snprintf(log, sizeof(log), "%s.log", folder);
    (void)snprintf(metrics, sizeof(metrics), "%s/metrics.jsonl", folder);
    make_command(runner, result, steps, folder, command);
    child.argv        = command->word;
    child.environment = environment;
    DDP_TRY(ddp_child_run(&child, &end, &code));
    if (end != DDP_CHILD_EXITED || code != EXIT_SUCCESS) {
        tell_failure(runner, end, code, log, result);
        DDP_REQUIRE(end != DDP_CHILD_INTERRUPTED, DDP_ERR_STATE, "stopped by signal %d (%s)", code,
                    strsignal(code));
        goto out;
    }
    if (ddp_compare_read(folder, runner->compare->options.warmup, runner->compare, result) != DDP_OK) {
        (void)snprintf(result->error, sizeof(result->error), "%s", ddp_error_line());
        ddp_log(DDP_LOG_WARN, "%s", ddp_error_line());
        ddp_error_clear();
    }
out:
    free(command);
    ddp_child_free_environment(environment);
    return status;
}

/* One run of a round. */
static ddp_status_t run_round(const runner_t *runner, ddp_compare_result_t *result, size_t round)
{
    ddp_status_t  status = DDP_OK;
    const size_t  before = result->step.n;
    const int64_t start  = ddp_clock_ns();
    char          folder[DDP_COMPARE_PATH];
    char          name[64];
    int           length;

    if (result->error[0] != '\0') {
        goto out; /* it would fail again */
    }
    length = snprintf(folder, sizeof(folder), "%s/runs/%s-%zu-round-%zu", runner->compare->folder,
                      ddp_compare_way_key(result->way), result->devices, round + 1);
    DDP_REQUIRE(length > 0 && (size_t)length < sizeof(folder), DDP_ERR_IO, "'%s': path too long",
                runner->compare->folder);
    DDP_TRY(run(runner, result, runner->steps, folder));
    if (result->error[0] == '\0') {
        ddp_compare_series_t steps = {.value = result->step.value + before, .n = result->step.n - before};

        result->rounds++;
        (void)ddp_compare_result_text(result, name, sizeof(name));
        ddp_log(DDP_LOG_INFO, "round %zu of %" PRIu64 ", %s: step %.3f ms (median of %zu), run %.1f s",
                round + 1, runner->compare->options.rounds, name, ddp_compare_spread(&steps).median, steps.n,
                (double)(ddp_clock_ns() - start) / 1e9);
    }
out:
    return status;
}

static double share(const runner_t *runner, size_t devices)
{
    const size_t cores = devices < runner->compare->cores ? devices : runner->compare->cores;

    return 1.0 / (double)cores;
}

/* A short run of one device tells how many steps fit into the time that is meant for all. */
static ddp_status_t choose_steps(runner_t *runner)
{
    ddp_status_t         status  = DDP_OK;
    ddp_compare_t       *compare = runner->compare;
    const int64_t        start   = ddp_clock_ns();
    const double         rounds  = (double)compare->options.rounds;
    double               parts   = 1; /* time of all runs of a round, in units of the run on one device */
    ddp_compare_result_t probe   = {.way = DDP_COMPARE_ONE, .devices = 1};
    char                 folder[DDP_COMPARE_PATH + 16];
    double               start_s;
    double               step_s;
    double               fits;

    (void)snprintf(folder, sizeof(folder), "%s/runs/probe", compare->folder);
    DDP_TRY(run(runner, &probe, compare->options.warmup + PROBE_STEPS, folder));
    DDP_REQUIRE(probe.error[0] == '\0' && probe.step.n > 0, DDP_ERR_REMOTE, "one device: %s", probe.error);
    step_s = ddp_compare_spread(&probe.step).median / 1e3;
    start_s =
        (double)(ddp_clock_ns() - start) / 1e9 - step_s * (double)(compare->options.warmup + PROBE_STEPS);
    for (size_t i = 0; i < compare->options.n_counts; i++) {
        parts += 2 * share(runner, compare->options.counts[i]);
    }
    fits = (BUDGET_S / rounds - start_s * (double)(1 + 2 * compare->options.n_counts)) / (parts * step_s);
    fits = fits < LEAST_STEPS ? LEAST_STEPS : fits > MOST_STEPS ? MOST_STEPS : floor(fits);
    runner->steps = (uint64_t)fits + compare->options.warmup;
    ddp_log(DDP_LOG_INFO,
            "%" PRIu64 " steps a run, %" PRIu64 " of them warm-up; about %.0f s in all (--steps)",
            runner->steps, compare->options.warmup,
            rounds * (start_s * (double)(1 + 2 * compare->options.n_counts) +
                      parts * step_s * (double)runner->steps));
out:
    ddp_compare_drop(&probe);
    return status;
}

/* Where ranks come from. */
static void find_starter(runner_t *runner)
{
    runner->in_slurm      = getenv("SLURM_JOB_ID") != NULL;
    runner->compare->room = runner->in_slurm ? 0 : runner->compare->cores;
    if (ddp_child_is_program("mpirun")) {
        runner->starter = STARTER_MPIRUN;
    } else if (runner->in_slurm && ddp_child_is_program("srun")) {
        runner->starter = STARTER_SRUN;
    } else {
        ddp_compare_note(runner->compare, "mpirun is not in PATH, so DDP could not be measured");
    }
    if (runner->launch.is_step) {
        ddp_log(DDP_LOG_WARN,
                "started by srun: a step may have no room for DDP's ranks; start compare in the "
                "batch script itself");
    }
}

static ddp_status_t plan(runner_t *runner)
{
    ddp_compare_t               *compare = runner->compare;
    const ddp_compare_options_t *options = &compare->options;
    ddp_compare_result_t        *result  = ddp_compare_new(compare, DDP_COMPARE_ONE, 1);
    char                         line[DDP_COMPARE_LINE];

    for (size_t i = 0; i < options->n_counts && result != NULL; i++) {
        result = ddp_compare_new(compare, DDP_COMPARE_DP, options->counts[i]);
        result = result != NULL ? ddp_compare_new(compare, DDP_COMPARE_DDP, options->counts[i]) : NULL;
        if (result != NULL && runner->starter == STARTER_NONE) {
            (void)snprintf(result->error, sizeof(result->error), "mpirun is not in PATH");
        }
        if (compare->room > 0 && options->counts[i] > compare->room) {
            (void)snprintf(line, sizeof(line),
                           "%zu devices, but this machine has %zu core%s for them: times of more devices "
                           "than cores say little",
                           options->counts[i], compare->cores, compare->cores > 1 ? "s" : "");
            ddp_compare_note(compare, "%s", line);
            ddp_log(DDP_LOG_WARN, "%s", line);
        }
    }
    return result != NULL
               ? DDP_OK
               : ddp_fail(DDP_ERR_INVALID_ARG, "more than %d numbers of devices", DDP_COMPARE_MAX_COUNTS);
}

ddp_status_t ddp_compare_runs(ddp_compare_t *compare)
{
    ddp_status_t  status = DDP_OK;
    const int64_t start  = ddp_clock_ns();
    runner_t      runner = {.compare = compare, .launch = ddp_launch_read(), .steps = compare->options.steps};
    char          folder[DDP_COMPARE_PATH + 8];
    ssize_t       length;

    length = readlink("/proc/self/exe", runner.program, sizeof(runner.program) - 1);
    DDP_REQUIRE(length > 0, DDP_ERR_SYSTEM, "this program is not found through /proc/self/exe");
    (void)snprintf(folder, sizeof(folder), "%s/runs", compare->folder);
    DDP_REQUIRE(mkdir(folder, 0777) == 0, DDP_ERR_IO, "'%s': cannot be made", folder);
    find_starter(&runner);
    DDP_TRY(plan(&runner));
    if (runner.steps == 0) {
        DDP_TRY(choose_steps(&runner));
        compare->options.steps = runner.steps;
    }
    for (size_t round = 0; round < compare->options.rounds; round++) {
        for (size_t i = 0; i < compare->n_results; i++) {
            /* the second of two ways may find the machine warmer: each is it in turn */
            const size_t swapped = i > 0 && round % 2 == 1 ? (i % 2 == 1 ? i + 1 : i - 1) : i;

            DDP_TRY(run_round(&runner, &compare->results[swapped], round));
        }
    }
out:
    compare->seconds = (double)(ddp_clock_ns() - start) / 1e9;
    return status;
}
