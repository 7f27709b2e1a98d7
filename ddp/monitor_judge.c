/* Who is at fault: a pure function of what is known of all ranks. */
#include <signal.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "ddp/monitor_internal.h"

/* How it ended is known by then. Not longer: mpirun ends the others within some tenths of a second. */
#define SETTLE_NS (20 * DDP_NS_PER_MS)
/* At the very end a machine closes its port, and not all of its ranks may have said that they are done. */
#define LAST_NS (2000 * DDP_NS_PER_MS)
/* Who is ended by its launcher is not the cause: that is known by then, or not known here. */
#define SENT_NS (3000 * DDP_NS_PER_MS)
/* A rank gave up because of another one: by then it is known whether that has ended, */
#define SURE_NS (2000 * DDP_NS_PER_MS)
/* and by then what else is the matter with it. */
#define GAVE_UP_NS (3000 * DDP_NS_PER_MS)

static double seconds(int64_t ns)
{
    return (double)ns / 1e9;
}

ddp_verdict_t ddp_monitor_blame(const ddp_court_t *court, ddp_fault_kind_t kind, int rank)
{
    const ddp_view_t *view    = &court->view[rank];
    const int64_t     since   = kind == DDP_FAULT_SILENT ? view->heard_ns : view->moved_ns;
    const bool        is_told = kind == DDP_FAULT_ENDED && view->wait_status != DDP_EXIT_UNKNOWN;
    ddp_verdict_t     verdict = {.kind             = kind,
                                 .rank             = rank,
                                 .other            = -1,
                                 .step             = view->step,
                                 .phase            = view->phase,
                                 .bucket           = view->bucket,
                                 .code             = -1,
                                 .is_out_of_memory = kind == DDP_FAULT_ENDED && view->is_out_of_memory,
                                 .seconds          = seconds(court->now_ns - since)};

    if (is_told && WIFSIGNALED(view->wait_status)) {
        verdict.signal = WTERMSIG(view->wait_status);
    } else if (is_told && WIFEXITED(view->wait_status)) {
        verdict.code = WEXITSTATUS(view->wait_status);
    }
    return verdict;
}

/* The one that has been so longest, the lowest among equals; -1: none, or not for `least_ns`. */
static int first_of(const ddp_court_t *court, ddp_life_t life, int64_t least_ns)
{
    int found = -1;

    for (int r = 0; r < court->size; r++) {
        const ddp_view_t *view = &court->view[r];

        const bool    is_last = view->is_inferred && view->phase == DDP_STAGE_SHUTDOWN;
        const int64_t least   = life != DDP_LIFE_ENDED ? least_ns
                                : view->is_sent_away   ? SENT_NS
                                : is_last              ? LAST_NS
                                                       : least_ns;

        if (view->life == life && court->now_ns - view->life_ns >= least &&
            (found < 0 || view->life_ns < court->view[found].life_ns)) {
            found = r;
        }
    }
    return found;
}

static bool is_working(const ddp_view_t *view)
{
    return view->life == DDP_LIFE_RUNS || view->life == DDP_LIFE_STOPPED;
}

/* Of whom nothing had been heard for `least_ns` at `when_ns`; -1: none. */
static int first_silent(const ddp_court_t *court, int64_t when_ns, int64_t least_ns)
{
    for (int r = 0; r < court->size; r++) {
        const ddp_view_t *view = &court->view[r];

        if (is_working(view) && when_ns - view->heard_ns > least_ns) {
            return r;
        }
    }
    return -1;
}

/* A launcher ends ranks where it has found that a host is gone, those of its own host first. */
static bool is_ending(const ddp_court_t *court)
{
    for (int r = 0; r < court->size; r++) {
        if (court->view[r].is_sent_away && court->view[r].life != DDP_LIFE_DONE) {
            return true;
        }
    }
    return false;
}

/* Whose silence may have made rank `rank` end: the launcher, or MPI in it, missed somebody; -1: nobody's. */
static int silence_before(const ddp_court_t *court, int rank)
{
    const ddp_view_t *view   = &court->view[rank];
    const bool        is_own = view->wait_status != DDP_EXIT_UNKNOWN && WIFSIGNALED(view->wait_status) &&
                        WTERMSIG(view->wait_status) != SIGTERM && !view->is_sent_away;

    return is_own || court->is_drowsy ? -1 : first_silent(court, view->life_ns, court->deaf_ns);
}

/* Whoever is heard of a few times a second cannot be missed sooner, whatever the limit. */
static int64_t silence_limit(const ddp_court_t *court)
{
    return is_ending(court) || court->limit_ns < court->deaf_ns ? court->deaf_ns : court->limit_ns;
}

static bool is_late(const ddp_court_t *court, int rank)
{
    return court->now_ns - court->view[rank].moved_ns > court->limit_ns;
}

static int first_stopped(const ddp_court_t *court)
{
    for (int r = 0; r < court->size; r++) {
        if (court->view[r].life == DDP_LIFE_STOPPED && is_late(court, r)) {
            return r;
        }
    }
    return -1;
}

/* Who holds up rank `rank`, at the end of the chain of waits; *is_circle_p: it is one of a circle. */
static int chain_end(const ddp_court_t *court, int rank, bool *is_circle_p)
{
    int end = rank;

    *is_circle_p = false;
    for (int hop = 0; hop <= court->size; hop++) {
        const ddp_view_t *view = &court->view[end];

        if (view->waits_for < 0 || (view->life != DDP_LIFE_RUNS && view->life != DDP_LIFE_GAVE_UP)) {
            return end;
        }
        end = view->waits_for;
    }
    *is_circle_p = true;
    return end;
}

/* In a collective of the device nobody knows who is behind: a rank that waits for nobody. */
static int first_idle(const ddp_court_t *court)
{
    for (int r = 0; r < court->size; r++) {
        if (court->view[r].life == DDP_LIFE_RUNS && court->view[r].waits_for == -1 && is_late(court, r)) {
            return r;
        }
    }
    return -1;
}

/* Rank `rank` waits; is_sure: it has given up doing so. */
static bool judge_wait(const ddp_court_t *court, int rank, bool is_sure, ddp_verdict_t *verdict_p)
{
    bool              is_circle  = false;
    const bool        is_for_all = court->view[rank].waits_for == DDP_WAIT_ALL;
    const int         end        = is_for_all ? first_idle(court) : chain_end(court, rank, &is_circle);
    const ddp_view_t *view       = end >= 0 ? &court->view[end] : NULL;

    if (is_circle) {
        *verdict_p       = ddp_monitor_blame(court, DDP_FAULT_CIRCLE, end);
        verdict_p->other = view->waits_for;
        return is_sure || is_late(court, end);
    }
    if (view == NULL || end == rank || !is_working(view)) {
        return false;
    }
    if (view->life == DDP_LIFE_STOPPED && (is_sure || is_late(court, end))) {
        *verdict_p = ddp_monitor_blame(court, DDP_FAULT_STOPPED, end);
        return true;
    }
    if (is_sure && court->now_ns - view->heard_ns > court->limit_ns / 2) {
        *verdict_p = ddp_monitor_blame(court, DDP_FAULT_SILENT, end);
        return true;
    }
    *verdict_p = ddp_monitor_blame(court, DDP_FAULT_STUCK, end);
    return is_late(court, end);
}

/* Who has given up has waited to the end of the limit, and sees it some milliseconds before the judge does.
 */
static void fill_limit(const ddp_court_t *court, ddp_verdict_t *verdict)
{
    const double limit = seconds(court->limit_ns);

    verdict->seconds = verdict->seconds < limit ? limit : verdict->seconds;
}

static bool judge_waits(const ddp_court_t *court, ddp_verdict_t *verdict_p)
{
    for (int r = 0; r < court->size; r++) {
        const ddp_view_t *view    = &court->view[r];
        const bool        is_sure = view->life == DDP_LIFE_GAVE_UP && court->now_ns - view->life_ns > SURE_NS;

        if (view->waits_for != -1 && (is_sure || (is_working(view) && is_late(court, r))) &&
            judge_wait(court, r, is_sure, verdict_p)) {
            fill_limit(court, verdict_p);
            return true;
        }
    }
    return false;
}

static void look_at_machine(const ddp_court_t *court, ddp_verdict_t *verdict)
{
    const int machine = court->machine_of[verdict->rank];
    int       ended   = 0;

    for (int r = 0; r < court->size; r++) {
        if (court->machine_of[r] != machine) {
            continue;
        }
        if (court->view[r].life != DDP_LIFE_ENDED) {
            return;
        }
        ended++;
    }
    verdict->is_whole_machine = ended > 1;
}

bool ddp_monitor_judge(const ddp_court_t *court, ddp_verdict_t *verdict_p)
{
    int rank = first_of(court, DDP_LIFE_FAILED, 0);

    if (rank >= 0) {
        *verdict_p = ddp_monitor_blame(court, DDP_FAULT_FAILED, rank);
        return true;
    }
    rank = first_of(court, DDP_LIFE_ORPHAN, 0);
    if (rank >= 0) {
        *verdict_p = ddp_monitor_blame(court, DDP_FAULT_LAUNCHER, rank);
        return true;
    }
    rank = first_of(court, DDP_LIFE_ENDED, SETTLE_NS);
    if (rank >= 0 && silence_before(court, rank) < 0) {
        *verdict_p = ddp_monitor_blame(court, DDP_FAULT_ENDED, rank);
        look_at_machine(court, verdict_p);
        return true;
    }
    if (court->is_drowsy) {
        return false;
    }
    rank = rank >= 0 ? silence_before(court, rank) : first_silent(court, court->now_ns, silence_limit(court));
    if (rank >= 0) {
        *verdict_p = ddp_monitor_blame(court, DDP_FAULT_SILENT, rank);
        return true;
    }
    rank = first_stopped(court);
    if (rank >= 0) {
        *verdict_p = ddp_monitor_blame(court, DDP_FAULT_STOPPED, rank);
        return true;
    }
    if (judge_waits(court, verdict_p)) {
        return true;
    }
    rank = first_of(court, DDP_LIFE_GAVE_UP, GAVE_UP_NS); /* let it say what it knows */
    if (rank >= 0) {
        *verdict_p = ddp_monitor_blame(court, DDP_FAULT_FAILED, rank);
        return true;
    }
    return false;
}
