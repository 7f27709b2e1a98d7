#include "launcher/start.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/call.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/interface.h"
#include "base/log.h"
#include "base/watchdog.h"
#include "launcher/siblings.h"

/* Starting and ending MPI takes seconds by itself on a busy machine. */
#define MPI_EXTRA_MS 10000
/* All ranks wait for the same one: who sees it stopped speaks, else the first, else the lowest of each host,
 * and its exit ends the job before it is another one's turn. */
#define TURN_US 3000000U
/* The other ranks see no progress from a time before the disk was asked. */
#define OTHERS_SHARE 0.8
#define ABORT_S      5

ddp_status_t ddp_start_read_config(const ddp_options_t *options, ddp_config_t *config)
{
    ddp_status_t status = DDP_OK;

    if (options->file != NULL) {
        DDP_TRY(ddp_config_load(config, options->file));
    }
    if (options->base != NULL) {
        DDP_TRY(ddp_config_load_text(config, "the checkpoint's configuration", options->base));
    }
    for (size_t i = 0; i < options->n_sets; i++) {
        DDP_TRY(ddp_config_set(config, options->set[i]));
    }
    DDP_TRY(ddp_options_apply(options, config));
out:
    return status;
}

/* A thread that the kernel does not let go of (uninterruptible sleep) keeps this process in the list, and
 * mpirun, which waits for its end, would wait for the disk. It does not after MPI_Abort. Any thread. */
static void leave_disk(const ddp_run_t *run, int code)
{
    int is_up = 0;

    (void)alarm(ABORT_S); /* should that hang too */
    if (run->launch.is_managed && MPI_Initialized(&is_up) == MPI_SUCCESS && is_up != 0) {
        (void)MPI_Abort(MPI_COMM_WORLD, code);
    }
    _exit(code);
}

/* On the watchdog's thread: MPI hangs, so this process leaves without it. */
static void leave_mpi(const ddp_run_t *run, const char *what, int limit_ms)
{
    const ddp_siblings_t seen       = ddp_siblings_look();
    char                 why[160]   = "a rank did not come, or its host is not reached";
    char                 host[64]   = "this host";
    const bool           is_witness = seen.stopped_rank >= 0 && seen.is_lowest;

    (void)gethostname(host, sizeof(host) - 1);
    if (seen.stopped_rank >= 0) {
        snprintf(why, sizeof(why), "rank %ld on %s is stopped (pid %d, SIGSTOP)", seen.stopped_rank, host,
                 (int)seen.stopped_pid);
    }
    usleep(TURN_US * (is_witness ? 0U : run->launch.is_first ? 1U : seen.is_lowest ? 2U : 3U));
    ddp_log(DDP_LOG_ERROR, "%s took more than %g s (ddp.timeout_s and 10 s): %s", what, limit_ms / 1e3, why);
    if (seen.is_lowest) { /* one of each host, and not one that is stopped */
        ddp_launch_end_launcher_later();
    }
}

/* The same where the disk does not answer. */
static void leave(void *ctx, const char *what, int limit_ms)
{
    ddp_run_t *run = ctx;

    if (!run->is_disk) {
        leave_mpi(run, what, limit_ms);
        _exit(EXIT_FAILURE);
    }
    if (ddp_monitor_may_speak(run->watch.monitor, true) &&
        (run->spoken == NULL || atomic_exchange(run->spoken, 1) == 0)) {
        ddp_log(DDP_LOG_ERROR, "%s took more than %g s: the disk does not answer", what, limit_ms / 1e3);
    }
    leave_disk(run, EXIT_FAILURE);
}

void ddp_run_leave(const ddp_run_t *run, int code)
{
    if (run->is_disk) {
        leave_disk(run, code);
    }
    _exit(code);
}

void ddp_run_watch_disk(ddp_run_t *run, const char *what)
{
    const double most  = run->config.checkpoint.timeout_s;
    const double other = run->config.ddp.timeout_s * OTHERS_SHARE;

    if (run->watchdog != NULL && ddp_comm_rank(run->comm) == 0) {
        run->is_disk = true;
        ddp_watchdog_arm(run->watchdog, what,
                         (int)((ddp_comm_size(run->comm) > 1 && other < most ? other : most) * 1e3));
    }
}

void ddp_run_watch_end(ddp_run_t *run)
{
    if (run->watchdog != NULL && ddp_comm_rank(run->comm) == 0) {
        ddp_watchdog_disarm(run->watchdog);
        run->is_disk = false;
    }
}

/* One process without mpirun needs no daemon of Open MPI beside it, which would be left behind, and has been
 * seen to fill the memory, when the process is killed. Such processes would all have the same folder for
 * temporary files, which one takes away while another makes it; they need none. */
static void stay_alone(const ddp_launch_t *launch)
{
    if (!launch->is_managed && launch->tasks <= 1) {
        (void)setenv("OMPI_MCA_ess_singleton_isolated", "1", 0);
        (void)setenv("OMPI_MCA_orte_create_session_dirs", "0", 0);
    }
}

/* Before MPI_Init. Open MPI means to leave out libfabric's own TCP, but before 4.1.5 it does not know its
 * newer name, net, and takes that before its own TCP between machines. It goes over an interface of its own
 * choice, and libfabric before 1.19 reads nothing more from a connection once a large message comes for which
 * no receive is posted yet: ranks then wait for each other for ever. */
static void avoid_net(void)
{
    (void)setenv("FI_PROVIDER", "^net", 0);
}

/* Before MPI_Init. Where an interface is missing MPI keeps its own choice, so that all ranks hear of it. */
static ddp_status_t choose_interfaces(const char *list)
{
    char         names[DDP_CONFIG_TEXT_SIZE + 1];
    ddp_status_t status = DDP_OK;

    if (list[0] == '\0') {
        return DDP_OK;
    }
    DDP_TRY(ddp_interfaces_check(list));
    DDP_TRY(ddp_interfaces_names(list, names, sizeof(names)));
    (void)setenv("OMPI_MCA_btl_tcp_if_include", names + 1, 0); /* an address alone would be none to it */
    (void)setenv("NCCL_SOCKET_IFNAME", names, 0);
out:
    return status;
}

static ddp_status_t start_mpi(ddp_run_t *run, int *argc, char ***argv, ddp_watchdog_t *watchdog)
{
    ddp_status_t status   = DDP_OK;
    int          provided = MPI_THREAD_SINGLE;

    if (ddp_launch_is_doubtful(&run->launch) && run->launch.is_first) {
        ddp_log(
            DDP_LOG_WARN,
            "srun with PMI instead of PMIx: should MPI_Init fail now, start with srun --mpi=pmix, or with "
            "mpirun inside the allocation");
    }
    avoid_net();
    ddp_watchdog_arm(watchdog, "MPI_Init", run->watchdog_ms);
    DDP_TRY_MPI(MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &provided));
    ddp_watchdog_disarm(watchdog);
    DDP_REQUIRE(provided >= MPI_THREAD_FUNNELED, DDP_ERR_MPI,
                "this MPI gives no MPI_THREAD_FUNNELED: loader threads could not run beside it");
out:
    return status;
}

int ddp_start(ddp_run_t *run, const ddp_options_t *options, ddp_status_t early, ddp_body_fn_t *body, int argc,
              char **argv)
{
    ddp_watchdog_t *watchdog     = NULL;
    bool            may_finalize = true;
    int             code         = EXIT_SUCCESS;
    ddp_status_t    status;

    run->launch  = ddp_launch_read();
    run->options = options;
    run->argc    = argc;
    run->argv    = argv;
    ddp_config_defaults(&run->config);
    ddp_log_set_level(options->log);
    if (early == DDP_OK) {
        early = ddp_start_read_config(options, &run->config);
    }
    if (early == DDP_OK) {
        early = choose_interfaces(run->config.ddp.interfaces);
    }
    if (early == DDP_OK) {
        early = ddp_launch_check_early(&run->launch);
    }
    if (early != DDP_OK && !run->launch.is_managed) {
        if (run->launch.is_first) {
            ddp_log(DDP_LOG_ERROR, "%s", ddp_error_line());
        }
        return early == DDP_ERR_CONFIG ? 2 : EXIT_FAILURE;
    }
    stay_alone(&run->launch);
    run->watchdog_ms = (int)(run->config.ddp.timeout_s * 1000) + MPI_EXTRA_MS;
    if (ddp_watchdog_create(leave, run, &watchdog) != DDP_OK ||
        start_mpi(run, &argc, &argv, watchdog) != DDP_OK) {
        ddp_log(DDP_LOG_ERROR, "%s", ddp_error_line());
        _exit(EXIT_FAILURE);
    }
    run->watchdog = watchdog;
    run->start_ns = ddp_clock_ns();
    status        = body(run, early);
    if (status != DDP_OK) {
        code = ddp_run_fail(run, status, &may_finalize);
    } else if (run->stop.is_stopped) {
        code = DDP_EXIT_STOPPED;
    } else {
        code = run->exit_code;
    }
    if (run->checkpoints.is_held) {
        leave_disk(run, code);
    }
    if (!may_finalize) {
        _exit(code); /* a peer is gone or does not answer: MPI_Finalize would wait for it */
    }
    ddp_watchdog_arm(watchdog, "MPI_Finalize", run->watchdog_ms);
    ddp_watch_at(run, 0, DDP_STAGE_SHUTDOWN);
    ddp_run_teardown(run);
    MPI_Finalize();
    ddp_run_part(run);
    ddp_watchdog_destroy(&watchdog);
    return code;
}
