#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/call.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
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

static ddp_status_t start_mpi(int *argc, char ***argv)
{
    ddp_status_t status   = DDP_OK;
    int          provided = MPI_THREAD_SINGLE;

    DDP_TRY_MPI(MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &provided));
    DDP_REQUIRE(provided >= MPI_THREAD_FUNNELED, DDP_ERR_MPI,
                "this MPI gives no MPI_THREAD_FUNNELED: loader threads could not run beside it");
out:
    return status;
}

int main(int argc, char **argv)
{
    static ddp_run_t run; /* large */
    ddp_options_t    options;
    ddp_status_t     early;
    ddp_status_t     status;
    bool             may_finalize = true;
    int              code         = EXIT_SUCCESS;

    run.launch = ddp_launch_read();
    ddp_config_defaults(&run.config);
    early = ddp_options_parse(argc, argv, &options);
    if (early == DDP_OK && (options.help || options.help_config || options.version)) {
        return say_text(&options, run.launch.is_first);
    }
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
    status      = start_mpi(&argc, &argv);
    if (status != DDP_OK) {
        ddp_log(DDP_LOG_ERROR, "%s", ddp_error_line());
        return EXIT_FAILURE;
    }
    run.start_ns = ddp_clock_ns();
    status       = ddp_run_prepare(&run, early);
    if (status == DDP_OK) {
        status = options.dry_run ? ddp_run_dry(&run) : ddp_run_setup(&run);
    }
    if (status == DDP_OK && !options.dry_run) {
        status = ddp_run_train(&run);
    }
    if (status != DDP_OK) {
        code = ddp_run_fail(&run, status, &may_finalize);
    }
    if (!may_finalize) {
        /* a peer is gone or does not answer: MPI_Finalize would wait for it */
        _exit(code);
    }
    ddp_run_teardown(&run);
    MPI_Finalize();
    return code;
}
