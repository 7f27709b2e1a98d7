#include "ddp/monitor.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/thread.h"
#include "ddp/monitor_internal.h"

/* Longer than the judge takes to find out whom a rank has given up on. */
#define ANSWER_MS 4000
#define LEAVE_NS  (3000 * DDP_NS_PER_MS)

static ddp_status_t check_params(const ddp_monitor_params_t *params)
{
    ddp_status_t status = DDP_OK;

    DDP_REQUIRE(params->say != NULL && params->leave != NULL, DDP_ERR_INVALID_ARG,
                "a monitor needs to be told how to speak and how to leave");
out:
    return status;
}

/* What needs memory or the kernel, on this rank alone. */
static ddp_status_t make_parts(ddp_monitor_t *monitor)
{
    ddp_status_t  status = DDP_OK;
    const size_t  size   = (size_t)monitor->size;
    const int64_t now    = ddp_clock_ns();

    monitor->polls = 1 + (size_t)monitor->count + ddp_monitor_net_polls(monitor);
    monitor->view  = calloc(size, sizeof(*monitor->view));
    monitor->poll  = calloc(monitor->polls, sizeof(*monitor->poll));
    DDP_REQUIRE(monitor->view != NULL && monitor->poll != NULL, DDP_ERR_NO_MEMORY,
                "no memory for a monitor of %zu ranks", size);
    monitor->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    DDP_REQUIRE(monitor->wake >= 0, DDP_ERR_SYSTEM, "eventfd: %s", ddp_errno_text(errno));
    for (int r = 0; r < monitor->size; r++) {
        monitor->view[r] =
            (ddp_view_t){.moved_ns  = now,
                         .beat_ns   = now,
                         .heard_ns  = now,
                         .life_ns   = now,
                         .life      = ddp_comm_is_local(monitor->comm, r) ? DDP_LIFE_RUNS : DDP_LIFE_UNKNOWN,
                         .waits_for = -1,
                         .wait_status = DDP_EXIT_UNKNOWN,
                         .bucket      = DDP_NO_BUCKET};
    }
    ddp_oom_open(&monitor->oom, "");
    DDP_TRY(ddp_fault("monitor", monitor->comm->rank));
out:
    return status;
}

static ddp_status_t start_thread(ddp_monitor_t *monitor)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(ddp_thread_start(ddp_monitor_watch, monitor, &monitor->thread));
    monitor->has_thread = true;
out:
    return status;
}

static ddp_status_t make_board(ddp_monitor_t *monitor)
{
    ddp_status_t status = DDP_OK;
    void        *memory = NULL;

    DDP_TRY(ddp_comm_shared(monitor->comm, "the monitor",
                            sizeof(ddp_board_t) + (size_t)monitor->size * sizeof(ddp_far_t), &memory));
    monitor->board = memory;
out:
    return status;
}

static void wake_thread(ddp_monitor_t *monitor)
{
    const uint64_t one = 1;

    if (write(monitor->wake, &one, sizeof(one)) < 0) {
        return; /* it wakes by itself soon */
    }
}

ddp_status_t ddp_monitor_create(const ddp_monitor_params_t *params, ddp_monitor_t **monitor_p)
{
    ddp_status_t   status  = DDP_OK;
    ddp_monitor_t *monitor = NULL;

    DDP_REQUIRE(params != NULL && params->struct_size == sizeof(*params) && params->comm != NULL,
                DDP_ERR_INVALID_ARG,
                "monitor parameters were not made with DDP_MONITOR_PARAMS_INIT, or lack a communicator");
    DDP_TRY(ddp_comm_agree(params->comm, check_params(params)));
    monitor = calloc(1, sizeof(*monitor));
    if (monitor == NULL) {
        status = ddp_fail(DDP_ERR_NO_MEMORY, "no memory for a monitor");
    }
    DDP_TRY(ddp_comm_agree(params->comm, status));
    monitor->params            = *params;
    monitor->params.interfaces = NULL;
    monitor->comm              = params->comm;
    monitor->size              = params->comm->size;
    monitor->first             = params->comm->rank - params->comm->local_rank;
    monitor->count             = params->comm->local_size;
    monitor->wake              = -1;
    monitor->oom.kmsg          = -1;
    monitor->launcher          = params->is_managed ? getppid() : 0;
    DDP_TRY(ddp_comm_agree(params->comm, make_parts(monitor)));
    DDP_TRY(ddp_comm_agree(params->comm, make_board(monitor)));
    DDP_TRY(ddp_monitor_net_open(monitor, params->interfaces));
    DDP_TRY(ddp_comm_agree(params->comm, start_thread(monitor)));
    *monitor_p = monitor;
    monitor    = NULL;
out:
    ddp_monitor_destroy(&monitor);
    return status;
}

void ddp_monitor_destroy(ddp_monitor_t **monitor_p)
{
    ddp_monitor_t *monitor = monitor_p != NULL ? *monitor_p : NULL;

    if (monitor == NULL) {
        return;
    }
    *monitor_p = NULL;
    if (monitor->has_thread) {
        atomic_store(&ddp_comm_seat(monitor->comm, monitor->comm->rank)->life, DDP_LIFE_DONE);
        atomic_store(&monitor->is_ending, 1);
        wake_thread(monitor);
        (void)pthread_join(monitor->thread, NULL); /* fails only for a thread that is not there */
    }
    ddp_monitor_net_close(monitor);
    ddp_oom_close(&monitor->oom);
    if (monitor->wake >= 0) {
        close(monitor->wake);
    }
    free(monitor->view);
    free(monitor->poll);
    free(monitor);
}

void ddp_monitor_at(ddp_monitor_t *monitor, uint64_t step, ddp_stage_t phase, uint32_t bucket)
{
    if (monitor != NULL) {
        ddp_comm_at(monitor->comm, step, phase, bucket);
    }
}

void ddp_monitor_await(const ddp_monitor_t *monitor, int limit_ms)
{
    const int64_t end = ddp_clock_ns() + limit_ms * DDP_NS_PER_MS;

    while (monitor != NULL && !ddp_monitor_is_told(monitor) && ddp_clock_ns() < end) {
        usleep(5000);
    }
}

bool ddp_monitor_may_speak(ddp_monitor_t *monitor, bool is_cause)
{
    ddp_seat_t *seat;

    if (monitor == NULL) {
        return true;
    }
    seat = ddp_comm_seat(monitor->comm, monitor->comm->rank);
    atomic_store(&seat->life, is_cause ? DDP_LIFE_FAILED : DDP_LIFE_GAVE_UP);
    wake_thread(monitor);
    ddp_monitor_await(monitor, ANSWER_MS);
    if (ddp_monitor_is_told(monitor) && (monitor->board->verdict.kind != DDP_FAULT_FAILED ||
                                         monitor->board->verdict.rank != monitor->comm->rank)) {
        /* the monitor ends the process: not before mpirun, which has begun to end us, has read what was said
         */
        for (const int64_t end = ddp_clock_ns() + LEAVE_NS; ddp_clock_ns() < end;) {
            usleep(5000); /* signals break off a longer one */
        }
        return false;
    }
    return true;
}

void ddp_monitor_shares(const ddp_monitor_t *monitor, ddp_shares_t *all)
{
    for (int r = 0; r < monitor->size; r++) {
        all[r] = (ddp_shares_t){0};
        if (ddp_comm_is_local(monitor->comm, r)) {
            ddp_monitor_read_shares(&ddp_comm_seat(monitor->comm, r)->shares, &all[r]);
        } else {
            ddp_monitor_read_shares(&monitor->board->far[r].shares, &all[r]);
        }
    }
}

void ddp_monitor_count(ddp_monitor_t *monitor, const ddp_shares_t *sum)
{
    ddp_seat_t *seat;

    if (monitor == NULL) {
        return;
    }
    seat = ddp_comm_seat(monitor->comm, monitor->comm->rank);
    ddp_monitor_write_shares(&seat->shares, sum);
}
