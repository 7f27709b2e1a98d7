#include <fcntl.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/call.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/watchdog.h"
#include "launcher/commands.h"
#include "launcher/run.h"

/* --help and its like need no MPI. */
static int say_text(const ddp_options_t *options, bool is_first)
{
    if (!is_first) {
        return EXIT_SUCCESS;
    }
    if (options->help) {
        ddp_options_help(stdout);
    } else if (options->help_config) {
        ddp_config_help(stdout);
    } else {
        printf("ddptrain %s\n", DDP_VERSION);
    }
    if (fflush(stdout) != 0) {
        ddp_log(DDP_LOG_ERROR, "stdout: cannot be written");
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}

static ddp_status_t read_config(const ddp_options_t *options, ddp_config_t *config)
{
    ddp_status_t status = DDP_OK;

    if (options->file != NULL) {
        DDP_TRY(ddp_config_load(config, options->file));
    }
    for (size_t i = 0; i < options->n_sets; i++) {
        DDP_TRY(ddp_config_set(config, options->set[i]));
    }
out:
    return status;
}

/* Starting and ending MPI takes seconds by itself on a busy machine. */
#define MPI_EXTRA_MS 10000
/* All ranks wait for the same one: the first speaks, and its exit ends the job before the others do. */
#define OTHERS_DELAY_US 3000000

/* On the watchdog's thread: MPI hangs, so this process leaves without it. */
static void leave(void *ctx, const char *what, int limit_ms)
{
    const ddp_launch_t *launch = ctx;

    usleep(launch->is_first ? 0 : OTHERS_DELAY_US);
    ddp_log(
        DDP_LOG_ERROR,
        "%s took more than %g s (ddp.timeout_s and 10 s): a rank did not come, or its host is not reached",
        what, limit_ms / 1e3);
    _exit(EXIT_FAILURE);
}

static ddp_status_t start_mpi(int *argc, char ***argv, ddp_watchdog_t *watchdog, int timeout_ms)
{
    ddp_status_t status   = DDP_OK;
    int          provided = MPI_THREAD_SINGLE;

    ddp_watchdog_arm(watchdog, "MPI_Init", timeout_ms);
    DDP_TRY_MPI(MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &provided));
    ddp_watchdog_disarm(watchdog);
    DDP_REQUIRE(provided >= MPI_THREAD_FUNNELED, DDP_ERR_MPI,
                "this MPI gives no MPI_THREAD_FUNNELED: loader threads could not run beside it");
out:
    return status;
}

/* A closed stream must not lend its number to the next file or socket: what is printed would end up in it.
 * For reading only, so that writing to it still fails. A pipe without a reader must not end a training. */
static void settle_streams(void)
{
    int fd;

    do {
        fd = open("/dev/null", O_RDONLY);
    } while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0) {
        (void)close(fd);
    }
    (void)signal(SIGPIPE, SIG_IGN);
}

/* Everything between MPI_Init and MPI_Finalize. @return exit status */
static int train(ddp_run_t *run, ddp_status_t early, bool *may_finalize_p)
{
    ddp_status_t status = ddp_run_prepare(run, early);

    if (status == DDP_OK) {
        status = run->options->dry_run ? ddp_run_dry(run) : ddp_run_setup(run);
    }
    if (status == DDP_OK && !run->options->dry_run) {
        status = ddp_run_train(run);
    }
    return status == DDP_OK ? EXIT_SUCCESS : ddp_run_fail(run, status, may_finalize_p);
}

int main(int argc, char **argv)
{
    static ddp_run_t     run; /* large */
    const ddp_command_t *command = argc > 1 ? ddp_command_find(argv[1]) : NULL;
    ddp_options_t        options;
    ddp_watchdog_t      *watchdog = NULL;
    ddp_status_t         early;
    bool                 may_finalize = true;
    int                  timeout_ms;
    int                  code;

    if (command != NULL && command->run != NULL) {
        settle_streams();
        return command->run(argc - 1, argv + 1);
    }
    run.launch = ddp_launch_read();
    ddp_config_defaults(&run.config);
    early = ddp_options_parse(argc, argv, &options);
    if (early == DDP_OK && (options.help || options.help_config || options.version)) {
        return say_text(&options, run.launch.is_first);
    }
    settle_streams();
    ddp_log_set_level(options.log);
    if (early == DDP_OK) {
        early = read_config(&options, &run.config);
    }
    if (early != DDP_OK && !run.launch.is_managed) {
        ddp_log(DDP_LOG_ERROR, "%s", ddp_error_line());
        return 2;
    }

    run.options = &options;
    run.argc    = argc;
    run.argv    = argv;
    timeout_ms  = (int)(run.config.ddp.timeout_s * 1000) + MPI_EXTRA_MS;
    if (ddp_watchdog_create(leave, &run.launch, &watchdog) != DDP_OK ||
        start_mpi(&argc, &argv, watchdog, timeout_ms) != DDP_OK) {
        ddp_log(DDP_LOG_ERROR, "%s", ddp_error_line());
        _exit(EXIT_FAILURE);
    }
    run.watchdog    = watchdog;
    run.watchdog_ms = timeout_ms;
    run.start_ns    = ddp_clock_ns();
    code            = train(&run, early, &may_finalize);
    if (!may_finalize) {
        _exit(code); /* a peer is gone or does not answer: MPI_Finalize would wait for it */
    }
    ddp_watchdog_arm(watchdog, "MPI_Finalize", timeout_ms);
    ddp_run_teardown(&run);
    MPI_Finalize();
    ddp_watchdog_destroy(&watchdog);
    return code;
}
