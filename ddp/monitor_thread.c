/* The monitor's thread: looks, judges, and ends the process. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "ddp/monitor_internal.h"

#define TICK_MS      100
#define LISTENER_MS  200                    /* of ranks that speak for nobody */
#define TAKE_OVER_NS (3000 * DDP_NS_PER_MS) /* a thread that has not run for so long is not waited for */
#define SPEECH_NS    (3000 * DDP_NS_PER_MS) /* a rank that may say why it fails has said it by then */
#define OTHERS_NS    (500 * DDP_NS_PER_MS)  /* and usually by then: the end of others makes mpirun talk */
#define LINGER_NS    (300 * DDP_NS_PER_MS)  /* for the verdict to reach other machines */

void ddp_monitor_tell_machine(ddp_monitor_t *monitor, const ddp_verdict_t *verdict)
{
    uint32_t nothing = DDP_TOLD_NOTHING;

    if (atomic_compare_exchange_strong(&monitor->board->told, &nothing, DDP_TOLD_SOON)) {
        monitor->board->verdict = *verdict;
        atomic_store_explicit(&monitor->board->told, DDP_TOLD, memory_order_release);
    }
}

/* A lower rank speaks unless it has ended, or its thread does not run. */
static bool is_lowest_that_runs(ddp_monitor_t *monitor)
{
    for (int r = monitor->first; r < monitor->comm->rank; r++) {
        const ddp_seat_t *seat = ddp_comm_seat(monitor->comm, r);

        if (atomic_load_explicit(&seat->life, memory_order_acquire) == DDP_LIFE_DONE ||
            ddp_comm_has_ended(monitor->comm, r) ||
            monitor->now_ns - monitor->view[r].beat_ns > TAKE_OVER_NS) {
            continue;
        }
        return false;
    }
    return true;
}

static void judge(ddp_monitor_t *monitor)
{
    const ddp_court_t court = {monitor->view, monitor->comm->machine_of, monitor->size, monitor->now_ns,
                               monitor->comm->timeout_ms * DDP_NS_PER_MS};
    ddp_verdict_t     verdict;
    char              text[DDP_VERDICT_TEXT_SIZE];

    if (!ddp_monitor_judge(&court, &verdict)) {
        return;
    }
    if (verdict.kind != DDP_FAULT_FAILED) {
        ddp_verdict_text(monitor->comm, &verdict, text, sizeof(text));
        monitor->params.say(monitor->params.ctx, &verdict, text);
    }
    ddp_monitor_tell_machine(monitor, &verdict);
}

static void become_speaker(ddp_monitor_t *monitor)
{
    monitor->is_speaker = true;
    for (int r = 0; r < monitor->size; r++) {
        monitor->view[r].heard_ns = monitor->now_ns;
    }
}

static void check_launcher(ddp_monitor_t *monitor)
{
    ddp_seat_t *seat = ddp_comm_seat(monitor->comm, monitor->comm->rank);
    int32_t     runs = DDP_LIFE_RUNS;

    if (monitor->launcher > 0 && getppid() != monitor->launcher) {
        (void)atomic_compare_exchange_strong(&seat->life, &runs, DDP_LIFE_ORPHAN);
    }
}

static void look(ddp_monitor_t *monitor)
{
    ddp_seat_t *seat   = ddp_comm_seat(monitor->comm, monitor->comm->rank);
    bool        speaks = false;

    ddp_monitor_follow(monitor);
    speaks = is_lowest_that_runs(monitor);
    atomic_fetch_add_explicit(&seat->beat, 1, memory_order_relaxed);
    check_launcher(monitor);
    if (speaks && !monitor->is_speaker) {
        become_speaker(monitor);
    }
    monitor->is_speaker = speaks;
    if (speaks) {
        (void)ddp_monitor_look_here(monitor);
        judge(monitor);
    }
}

/* What may wake the thread: the main thread, and the end of ranks that are not known to have ended. */
static size_t gather_polls(ddp_monitor_t *monitor)
{
    size_t n = 0;

    monitor->poll[n++] = (struct pollfd){monitor->wake, POLLIN, 0};
    for (int r = monitor->first; r < monitor->first + monitor->count; r++) {
        const int32_t life =
            atomic_load_explicit(&ddp_comm_seat(monitor->comm, r)->life, memory_order_relaxed);

        if (monitor->comm->pidfd[r] >= 0 && monitor->view[r].life != DDP_LIFE_ENDED &&
            life == DDP_LIFE_RUNS && (monitor->is_speaker || r < monitor->comm->rank)) {
            monitor->poll[n++] = (struct pollfd){monitor->comm->pidfd[r], POLLIN, 0};
        }
    }
    return n;
}

static void sleep_a_tick(ddp_monitor_t *monitor)
{
    const size_t n = gather_polls(monitor);
    uint64_t     count;

    (void)poll(monitor->poll, n, monitor->is_speaker ? TICK_MS : LISTENER_MS);
    if ((monitor->poll[0].revents & POLLIN) != 0 && read(monitor->wake, &count, sizeof(count)) < 0) {
        return; /* another time */
    }
}

/* A stopped process cannot end itself, and what stops it may not let a launcher's signals through. */
static void end_stopped(const ddp_monitor_t *monitor)
{
    for (int r = monitor->first; r < monitor->first + monitor->count; r++) {
        if (monitor->view[r].life == DDP_LIFE_STOPPED && monitor->comm->pidfd[r] >= 0) {
            (void)syscall(SYS_pidfd_send_signal, monitor->comm->pidfd[r], SIGKILL, NULL, 0);
        }
    }
}

static void nap_until(int64_t end_ns, const ddp_monitor_t *monitor)
{
    while (ddp_clock_ns() < end_ns && atomic_load(&monitor->is_ending) == 0) {
        usleep(10000);
    }
}

/* The verdict is there. The main thread may end the process meanwhile, in its own way. */
static void end_process(ddp_monitor_t *monitor)
{
    const ddp_verdict_t *verdict = &monitor->board->verdict;
    const int64_t        now     = ddp_clock_ns();

    if (verdict->kind == DDP_FAULT_FAILED) {
        nap_until(now + (verdict->rank == monitor->comm->rank ? SPEECH_NS : OTHERS_NS), monitor);
    } else if (monitor->is_speaker) {
        nap_until(now + LINGER_NS, monitor);
    }
    if (monitor->is_speaker) {
        end_stopped(monitor);
    }
    if (atomic_load(&monitor->is_ending) == 0) {
        monitor->params.leave(monitor->params.ctx);
    }
}

void *ddp_monitor_watch(void *monitor_p)
{
    ddp_monitor_t *monitor = monitor_p;

    while (atomic_load(&monitor->is_ending) == 0) {
        monitor->now_ns = ddp_clock_ns();
        look(monitor);
        if (ddp_monitor_is_told(monitor)) {
            end_process(monitor);
            break;
        }
        sleep_a_tick(monitor);
    }
    return NULL;
}
