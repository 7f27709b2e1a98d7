/* A program for tests that kill ranks: comm_victim <mode> [<how> <rank>]. Whoever has to wait for the victim
 * tells what it heard, and after how many milliseconds. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "ddp/comm.h"
#include "ddp/comm_internal.h"

#define TIMEOUT_MS 2000

static void tell(const ddp_comm_t *comm, int64_t start_ns, ddp_status_t status)
{
    fprintf(stderr, "victim[%d] after %d ms: %s\n", ddp_comm_rank(comm),
            (int)((ddp_clock_ns() - start_ns) / DDP_NS_PER_MS), status == DDP_OK ? "fine" : ddp_error_line());
}

static void suffer(const char *how)
{
    if (strcmp(how, "exit") == 0) {
        exit(3);
    }
    if (strcmp(how, "kill") == 0) {
        raise(SIGKILL);
    }
    if (strcmp(how, "stop") == 0) {
        raise(SIGSTOP);
    }
    sleep(30); /* absent */
    exit(1);
}

static ddp_status_t make_comm(ddp_comm_t **comm_p)
{
    ddp_comm_params_t params = DDP_COMM_PARAMS_INIT;

    params.parent     = MPI_COMM_WORLD;
    params.timeout_ms = TIMEOUT_MS;
    return ddp_comm_create(&params, comm_p);
}

static ddp_status_t make_flags(ddp_comm_t *comm, ddp_flag_t **flags_p)
{
    void        *memory = NULL;
    ddp_status_t status =
        ddp_comm_shared(comm, "flags", (size_t)ddp_comm_local_size(comm) * sizeof(ddp_flag_t), &memory);

    *flags_p = memory;
    return status;
}

/* `culprit` ends or sleeps; all others wait for it, rank r + 1 by way of rank r where there is a flag to wait
 * for. */
static ddp_status_t wait_for(ddp_comm_t *comm, const char *mode, const char *how, int culprit)
{
    const ddp_wait_t wait   = {culprit, "gradients", 17, 2};
    ddp_flag_t      *flags  = NULL;
    ddp_status_t     status = DDP_OK;
    int64_t          start;

    DDP_TRY(make_flags(comm, &flags));
    DDP_TRY(ddp_comm_barrier(comm));
    if (ddp_comm_rank(comm) == culprit) {
        usleep(100000); /* the others are asleep by then */
        suffer(how);
    }
    start  = ddp_clock_ns();
    status = strcmp(mode, "barrier") == 0 ? ddp_comm_barrier(comm)
                                          : ddp_comm_wait_flag(comm, &flags[culprit], 1, wait);
    tell(comm, start, status);
out:
    return status;
}

/* Rank 1 sets its flag and is gone before the others look. */
static ddp_status_t leave_early(ddp_comm_t *comm)
{
    const ddp_wait_t wait   = {1, "gradients", 17, 2};
    ddp_flag_t      *flags  = NULL;
    ddp_status_t     status = DDP_OK;

    DDP_TRY(make_flags(comm, &flags));
    DDP_TRY(ddp_comm_barrier(comm));
    if (ddp_comm_rank(comm) == 1) {
        ddp_comm_flag_set(comm, &flags[1], 1);
        exit(3);
    }
    usleep(200000);
    status = ddp_comm_wait_flag(comm, &flags[1], 1, wait);
    tell(comm, ddp_clock_ns(), status);
out:
    return status;
}

/* Makes and frees shared memory until somebody is killed. */
static ddp_status_t make_windows(void)
{
    ddp_status_t status = DDP_OK;

    fprintf(stderr, "pid %d\n", (int)getpid());
    for (int round = 0; round < 2000 && status == DDP_OK; round++) {
        ddp_comm_t *comm   = NULL;
        void       *memory = NULL;

        status = make_comm(&comm);
        for (int w = 0; w < 3 && status == DDP_OK; w++) {
            status = ddp_comm_shared_each(comm, "a test", 300000, &memory);
        }
        if (status == DDP_OK) {
            status = ddp_comm_allreduce_sum(comm, memory, 1000);
        }
        ddp_comm_destroy(&comm);
    }
    return status;
}

static ddp_status_t share(ddp_comm_t *comm)
{
    void         *memory = NULL;
    const int64_t start  = ddp_clock_ns();
    ddp_status_t  status = ddp_comm_shared(comm, "gradients", (size_t)8 << 20, &memory);

    tell(comm, start, status);
    if (status == DDP_OK) {
        memset(memory, 1, (size_t)8 << 20);
    }
    return status;
}

int main(int argc, char **argv)
{
    const char  *mode     = argc > 1 ? argv[1] : "";
    int          provided = 0;
    ddp_comm_t  *comm     = NULL;
    ddp_status_t status   = DDP_OK;

    signal(SIGTERM, SIG_IGN); /* mpirun sends it as soon as one rank is gone; the line must come first */
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    if (strcmp(mode, "asleep") == 0) {
        sleep(60); /* it is there, but makes no communicator */
        _exit(0);
    }
    if (strcmp(mode, "windows") == 0) {
        status = make_windows();
        _exit(status == DDP_OK ? 0 : 1);
    }
    DDP_TRY(make_comm(&comm));
    if (strcmp(mode, "early") == 0) {
        DDP_TRY(leave_early(comm));
        _exit(0);
    } else if (strcmp(mode, "share") == 0) {
        DDP_TRY(share(comm));
    } else if (argc > 3) {
        DDP_TRY(wait_for(comm, mode, argv[2], (int)strtol(argv[3], NULL, 10)));
    }
    ddp_comm_destroy(&comm);
    MPI_Finalize();
out:
    if (status != DDP_OK) {
        fprintf(stderr, "victim: %s\n", ddp_error_line());
        _exit(1); /* MPI_Finalize would wait for those that are gone */
    }
    return 0;
}
