/* The monitor's thread: looks, judges, and ends the process. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "ddp/monitor_internal.h"

#define LEAST_NS    (2 * DDP_NS_PER_MS)
#define NEWS_MS     20
#define TICK_MS     100
#define LISTENER_MS 200                    /* of ranks that speak for nobody */
#define SPEECH_NS   (3000 * DDP_NS_PER_MS) /* a rank that may say why it fails has said it by then */
#define OTHERS_NS   (500 * DDP_NS_PER_MS)  /* and usually by then: the end of others makes mpirun talk */
/* For the verdict to reach other machines, and the line mpirun, before that talks of ranks that end. */
#define LINGER_NS (300 * DDP_NS_PER_MS)

#define LINGER_DEPUTY_NS (1000 * DDP_NS_PER_MS) /* others come one after another, if machine 0 is lost */
#define GAP_NS           (1500 * DDP_NS_PER_MS) /* this thread did not run: what it did not see did not happen */
#define GRACE_NS         (3000 * DDP_NS_PER_MS) /* after that, to hear what the others think of it */

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
    const int64_t most = ddp_monitor_take_over_ns(monitor->comm->timeout_ms * DDP_NS_PER_MS);

    for (int r = monitor->first; r < monitor->comm->rank; r++) {
        const ddp_seat_t *seat = ddp_comm_seat(monitor->comm, r);

        if (atomic_load_explicit(&seat->life, memory_order_acquire) == DDP_LIFE_DONE ||
            ddp_comm_has_ended(monitor->comm, r) || monitor->now_ns - monitor->view[r].beat_ns > most) {
            continue;
        }
        return false;
    }
    return true;
}

static void judge(ddp_monitor_t *monitor)
{
    const ddp_court_t court = {monitor->view,
                               monitor->comm->machine_of,
                               monitor->size,
                               monitor->now_ns,
                               monitor->comm->timeout_ms * DDP_NS_PER_MS,
                               ddp_monitor_deaf_ns(monitor->size),
                               monitor->now_ns < monitor->grace_ns};
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
    if (monitor->net.is_used) {
        ddp_monitor_net_begin(monitor);
    }
    for (int r = 0; r < monitor->size; r++) {
        monitor->view[r].heard_ns = monitor->now_ns;
    }
}

static void check_launcher(ddp_monitor_t *monitor)
{
    ddp_seat_t *seat = ddp_comm_seat(monitor->comm, monitor->comm->rank);
    int32_t     runs = DDP_LIFE_RUNS;

    if (monitor->params.is_sent_away != NULL && monitor->params.is_sent_away(monitor->params.ctx)) {
        atomic_store_explicit(&seat->is_sent_away, 1, memory_order_relaxed);
    }
    if (monitor->launcher > 0 && getppid() != monitor->launcher) {
        (void)atomic_compare_exchange_strong(&seat->life, &runs, DDP_LIFE_ORPHAN);
    }
}

/* For the machine. */
static void look_and_tell(ddp_monitor_t *monitor)
{
    bool is_new = ddp_monitor_look_here(monitor);

    if (monitor->net.is_used) {
        is_new = ddp_monitor_net_hear(monitor) || is_new;
    }
    if ((!monitor->net.is_used || monitor->net.is_root) && !ddp_monitor_is_told(monitor)) {
        judge(monitor);
    }
    if (monitor->net.is_used) {
        ddp_monitor_net_tell(monitor, is_new);
    }
    monitor->is_new = is_new;
}

/* The process was stopped, or the machine is overloaded: nobody else is late because of that. */
static void forgive(ddp_monitor_t *monitor)
{
    const int64_t now   = ddp_clock_ns();
    const int64_t gap   = monitor->now_ns != 0 ? now - monitor->now_ns - LISTENER_MS * DDP_NS_PER_MS : 0;
    const int64_t limit = monitor->comm->timeout_ms * DDP_NS_PER_MS;

    if (gap < GAP_NS) {
        return;
    }
    for (int r = 0; r < monitor->size; r++) {
        monitor->view[r].moved_ns += gap;
        monitor->view[r].beat_ns += gap;
        monitor->view[r].heard_ns += gap;
        monitor->view[r].life_ns += gap;
    }
    for (int m = 0; monitor->net.is_used && m < monitor->comm->machines; m++) {
        monitor->net.closed_ns[m] += monitor->net.closed_ns[m] != 0 ? gap : 0;
    }
    monitor->net.alone_ns += gap;
    monitor->net.parent.heard_ns += gap;
    if (gap > limit / 2) {
        monitor->grace_ns = now + GRACE_NS;
    }
    if (gap > limit) { /* others have judged meanwhile, if they were not stopped too */
        monitor->left_ns = now + GRACE_NS;
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
    } else if (!speaks && monitor->is_speaker && monitor->net.is_used) {
        ddp_monitor_net_leave(monitor);
    }
    monitor->is_speaker = speaks;
    if (speaks) {
        look_and_tell(monitor);
    } else if (monitor->net.is_used) {
        ddp_monitor_net_refuse(monitor);
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
    if (monitor->net.is_used) {
        n += ddp_monitor_net_poll(monitor, monitor->poll + n);
    }
    return n;
}

static void sleep_a_tick(ddp_monitor_t *monitor)
{
    const size_t  n       = gather_polls(monitor);
    const int64_t lasting = ddp_clock_ns() - monitor->woken_ns;
    uint64_t      count;

    if (lasting < LEAST_NS) { /* whoever knocks at the port can not make it spin */
        usleep((useconds_t)((LEAST_NS - lasting) / 1000));
    }
    (void)poll(monitor->poll, n, monitor->is_new ? NEWS_MS : monitor->is_speaker ? TICK_MS : LISTENER_MS);
    if ((monitor->poll[0].revents & POLLIN) != 0 && read(monitor->wake, &count, sizeof(count)) < 0) {
        return; /* another time */
    }
    monitor->woken_ns = ddp_clock_ns();
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

/* @return false: the main thread ends the process meanwhile, in its own way, which is for it to do if a rank
 * says itself why it fails. Any other line that was printed holds, also when the work is over by then. */
static bool nap(int64_t ns, ddp_monitor_t *monitor)
{
    const int64_t end_ns  = ddp_clock_ns() + ns;
    const bool    may_end = monitor->board->verdict.kind == DDP_FAULT_FAILED;

    while (ddp_clock_ns() < end_ns && !(may_end && atomic_load(&monitor->is_ending) != 0)) {
        if (monitor->is_speaker && monitor->net.is_used) {
            ddp_monitor_net_verdict(monitor);
        }
        usleep(10000);
    }
    return !(may_end && atomic_load(&monitor->is_ending) != 0);
}

/* The verdict is there. */
static void end_process(ddp_monitor_t *monitor)
{
    const ddp_verdict_t *verdict = &monitor->board->verdict;
    bool                 leaves  = false;

    if (verdict->kind == DDP_FAULT_FAILED) {
        leaves = nap(verdict->rank == monitor->comm->rank ? SPEECH_NS : OTHERS_NS, monitor);
    } else {
        leaves =
            nap(monitor->is_speaker && monitor->comm->machine != 0 ? LINGER_DEPUTY_NS : LINGER_NS, monitor);
    }
    if (monitor->is_speaker) {
        end_stopped(monitor);
    }
    if (leaves) {
        monitor->params.leave(monitor->params.ctx, verdict, monitor->is_speaker);
    }
}

void *ddp_monitor_watch(void *monitor_p)
{
    ddp_monitor_t *monitor = monitor_p;

    (void)pthread_setname_np(pthread_self(), "monitor"); /* for people who look at threads */
    while (atomic_load(&monitor->is_ending) == 0) {
        forgive(monitor);
        monitor->now_ns = ddp_clock_ns();
        look(monitor);
        if (ddp_monitor_is_told(monitor)) {
            end_process(monitor);
            break;
        }
        sleep_a_tick(monitor);
    }
    if (monitor->is_speaker && monitor->net.is_used) {
        monitor->now_ns = ddp_clock_ns();
        (void)ddp_monitor_look_here(monitor);
        ddp_monitor_net_leave(monitor);
    }
    return NULL;
}
