/* Flags, the bell, waiting without burning a core, and watching those one waits for. */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "ddp/comm_state_internal.h"

#define SPIN_NS         INT64_C(2000)
#define YIELD_NS        INT64_C(80000)
#define SLEEP_LOCAL_NS  INT64_C(1000000)
#define SLEEP_REMOTE_NS INT64_C(100000) /* messages ring no bell */
#define LOOK_NS         (10 * DDP_NS_PER_MS)
#define SETTLE_NS       (20 * DDP_NS_PER_MS)   /* what a rank did before it ended is seen by then */
#define SETTLE_CHAIN_NS (500 * DDP_NS_PER_MS)  /* so is what the ranks between did about it */
#define STOPPED_NS      (1000 * DDP_NS_PER_MS) /* a rank that waits looks around more often */
#define WATCH_NONE      (-1)
#define WATCH_BY_KILL   (-2)

static void pause_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

static long futex(_Atomic uint32_t *word, int op, uint32_t value, const struct timespec *limit)
{
    return syscall(SYS_futex, word, op, value, limit, NULL, 0); /* not _PRIVATE: processes share the word */
}

void ddp_comm_progressed(ddp_comm_t *comm)
{
    ddp_seat_t *seat;

    if (comm->hall == NULL) {
        return;
    }
    seat = ddp_comm_seat(comm, comm->rank);
    /* only this rank writes it: no read-modify-write across cores is needed */
    atomic_store_explicit(&seat->progress, atomic_load_explicit(&seat->progress, memory_order_relaxed) + 1,
                          memory_order_relaxed);
    ddp_comm_publish_wait(comm, -1);
}

void ddp_comm_at(ddp_comm_t *comm, uint64_t step, ddp_stage_t phase, uint32_t bucket)
{
    ddp_seat_t *seat;

    if (comm->hall == NULL) {
        return;
    }
    seat = ddp_comm_seat(comm, comm->rank);
    atomic_store_explicit(&seat->step, step, memory_order_relaxed);
    atomic_store_explicit(&seat->place, (uint64_t)phase << 32 | bucket, memory_order_relaxed);
    ddp_comm_progressed(comm);
}

/*
 * No wake-up is lost: a sleeper has read the bell before it polled its flag (bell_seen), counts itself among
 * the sleepers and then sleeps only while the bell still has that value. The setter stores the flag, rings,
 * and then reads the number of sleepers. Bell and sleepers are sequentially consistent, so either the setter
 * sees the sleeper and wakes it, or the sleeper's futex call sees the new bell and returns at once.
 */
void ddp_comm_flag_set(ddp_comm_t *comm, ddp_flag_t *flag, uint64_t value)
{
    ddp_hall_t *hall = comm->hall;

    atomic_store_explicit(&flag->value, value, memory_order_release);
    ddp_comm_progressed(comm);
    if (comm->local_size == 1) {
        return; /* nobody else listens */
    }
    atomic_fetch_add_explicit(&hall->bell, 1, memory_order_seq_cst);
    if (atomic_load_explicit(&hall->sleepers, memory_order_seq_cst) > 0) {
        futex(&hall->bell, FUTEX_WAKE, INT_MAX, NULL);
    }
}

void ddp_comm_waiting(ddp_comm_t *comm, ddp_wait_t wait)
{
    comm->wait = wait;
}

void ddp_comm_publish_wait(ddp_comm_t *comm, int rank)
{
    if (comm->hall == NULL || (rank == -1 && !comm->is_published)) {
        return;
    }
    atomic_store_explicit(&ddp_comm_seat(comm, comm->rank)->waits_for, rank, memory_order_relaxed);
    comm->is_published = rank != -1;
}

void ddp_comm_publish_failure(ddp_comm_t *comm, int rank)
{
    if (comm->hall != NULL) {
        ddp_comm_publish_wait(comm, rank);
        atomic_store_explicit(&ddp_comm_seat(comm, comm->rank)->gave_up, 1, memory_order_release);
    }
}

void ddp_comm_watch_open(ddp_comm_t *comm)
{
    for (int r = 0; r < comm->size; r++) {
        const ddp_member_t *member = &comm->members[r];

        comm->pidfd[r] = WATCH_NONE;
        if (r == comm->rank || member->place != comm->members[comm->rank].place) {
            continue;
        }
        comm->pidfd[r] = (int)syscall(SYS_pidfd_open, (pid_t)member->pid, 0);
        if (comm->pidfd[r] < 0) {
            comm->pidfd[r] =
                errno == ENOSYS || errno == EPERM || errno == EMFILE ? WATCH_BY_KILL : WATCH_NONE;
        }
    }
}

void ddp_comm_watch_close(ddp_comm_t *comm)
{
    for (int r = 0; comm->pidfd != NULL && r < comm->size; r++) {
        if (comm->pidfd[r] >= 0) {
            close(comm->pidfd[r]);
        }
    }
}

bool ddp_comm_has_ended(const ddp_comm_t *comm, int rank)
{
    struct pollfd ask = {comm->pidfd[rank], POLLIN, 0};

    if (ask.fd >= 0) {
        return poll(&ask, 1, 0) == 1;
    }
    return ask.fd == WATCH_BY_KILL && kill((pid_t)comm->members[rank].pid, 0) != 0 && errno == ESRCH;
}

void ddp_comm_run_start(ddp_comm_t *comm)
{
    comm->run++;
    comm->run_start_ns = ddp_clock_ns();
    comm->waited_ns    = 0;
}

typedef struct chain {
    uint64_t moves; /* sum of progress counters */
    int      end;   /* who holds up the rest; the first rank if they wait for each other */
    bool     has_ended;
} chain_t;

/** What a rank says of itself, or is known of one of another machine. */
typedef struct sign {
    uint64_t progress;
    int      waits_for;
    bool     has_ended; /* and is no victim of another rank */
} sign_t;

/* @return false: nothing is known of it but its end */
static bool read_sign(const ddp_comm_t *comm, int rank, sign_t *sign)
{
    const bool is_over = ddp_comm_has_ended(comm, rank);

    *sign = (sign_t){0, -1, is_over};
    if (comm->hall != NULL && ddp_comm_is_local(comm, rank)) {
        ddp_seat_t *seat = ddp_comm_seat(comm, rank);

        sign->has_ended = is_over && !atomic_load_explicit(&seat->gave_up, memory_order_acquire);
        sign->progress  = atomic_load_explicit(&seat->progress, memory_order_relaxed);
        sign->waits_for = atomic_load_explicit(&seat->waits_for, memory_order_relaxed);
        return true;
    }
    if (comm->far != NULL) {
        const ddp_far_t *far = &comm->far[rank];

        sign->has_ended = is_over || atomic_load_explicit(&far->life, memory_order_relaxed) == DDP_LIFE_ENDED;
        sign->progress  = atomic_load_explicit(&far->progress, memory_order_relaxed);
        sign->waits_for = atomic_load_explicit(&far->waits_for, memory_order_relaxed);
        return true;
    }
    return false;
}

/* Rank 1 may wait for rank 2, which waits for rank 3: then it is rank 3 that matters. */
static chain_t follow(const ddp_comm_t *comm, int rank)
{
    chain_t chain = {0, rank, false};

    if (comm->hall != NULL) {
        chain.moves = atomic_load_explicit(&ddp_comm_seat(comm, comm->rank)->progress, memory_order_relaxed);
    }
    for (int hop = 0; hop < comm->size; hop++) {
        sign_t     sign;
        const bool is_known = read_sign(comm, chain.end, &sign);

        chain.has_ended = sign.has_ended;
        if (chain.has_ended || !is_known) {
            return chain;
        }
        chain.moves += sign.progress;
        if (sign.waits_for < 0 || sign.waits_for >= comm->size) {
            return chain;
        }
        if (sign.waits_for == comm->rank) {
            break;
        }
        chain.end = sign.waits_for;
    }
    chain.end = rank; /* a circle */
    return chain;
}

ddp_sight_t ddp_comm_look(ddp_comm_t *comm, int rank, int64_t now_ns, int64_t limit_ns, int *culprit_p)
{
    ddp_watch_t *watch = comm->watch != NULL ? &comm->watch[rank] : NULL;
    chain_t      chain;

    *culprit_p = rank;
    if (watch == NULL) { /* the communicator is being made */
        return now_ns - comm->run_start_ns > limit_ns ? DDP_SIGHT_LATE : DDP_SIGHT_FINE;
    }
    chain = follow(comm, rank);
    if (watch->run != comm->run) {
        *watch = (ddp_watch_t){comm->run, chain.moves, comm->run_start_ns, 0, comm->run_start_ns};
    }
    if (now_ns - watch->seen_ns > STOPPED_NS) { /* this process was stopped, as the others may have been */
        watch->moved_ns += now_ns - watch->seen_ns;
    }
    watch->seen_ns = now_ns;
    if (watch->moves != chain.moves) {
        watch->moves    = chain.moves;
        watch->moved_ns = now_ns;
        watch->ended_ns = 0;
    }
    *culprit_p = chain.end;
    if (chain.has_ended) {
        watch->ended_ns = watch->ended_ns != 0 ? watch->ended_ns : now_ns;
        /* what it did last may not have been looked at yet: it may have ended because all was done */
        if (now_ns - watch->ended_ns >= (chain.end == rank ? SETTLE_NS : SETTLE_CHAIN_NS)) {
            return DDP_SIGHT_ENDED;
        }
        return DDP_SIGHT_FINE;
    }
    return now_ns - watch->moved_ns > limit_ns ? DDP_SIGHT_LATE : DDP_SIGHT_FINE;
}

/* "its gradients of bucket 2, step 17" */
static const char *describe(const ddp_wait_t *wait, char *text, size_t size)
{
    if (wait->bucket == (size_t)-1) {
        snprintf(text, size, "%s, step %llu", wait->what, (unsigned long long)wait->step);
    } else {
        snprintf(text, size, "%s of bucket %zu, step %llu", wait->what, wait->bucket,
                 (unsigned long long)wait->step);
    }
    return text;
}

static ddp_status_t complain(ddp_comm_t *comm, ddp_sight_t sight, int culprit)
{
    char name[DDP_NAME_SIZE], owner[DDP_NAME_SIZE + 4] = "its", state[96], what[128];

    if (sight == DDP_SIGHT_ENDED) {
        snprintf(state, sizeof(state), "has ended (pid %d)", (int)comm->members[culprit].pid);
    } else {
        snprintf(state, sizeof(state), "made no progress for %g s", (double)comm->timeout_ms / 1000.0);
    }
    if (culprit != comm->wait.rank) {
        snprintf(owner, sizeof(owner), "rank %d's", comm->wait.rank);
    }
    ddp_comm_publish_failure(comm, comm->wait.rank);
    return ddp_fail(sight == DDP_SIGHT_ENDED ? DDP_ERR_REMOTE : DDP_ERR_TIMEOUT, "%s %s: waiting for %s %s",
                    ddp_comm_name(comm, culprit, name, sizeof(name)), state, owner,
                    describe(&comm->wait, what, sizeof(what)));
}

static void warn_if_slow(ddp_comm_t *comm, int64_t waited_ns)
{
    char name[DDP_NAME_SIZE], what[128];

    if (waited_ns < comm->timeout_ms * DDP_NS_PER_MS / 2 || comm->warned_run == comm->run ||
        comm->watch[comm->wait.rank].moved_ns <= comm->run_start_ns) {
        return;
    }
    comm->warned_run = comm->run;
    ddp_log(DDP_LOG_WARN, "%s is slow but moving: waited %lld s for its %s",
            ddp_comm_name(comm, comm->wait.rank, name, sizeof(name)),
            (long long)(waited_ns / (1000 * DDP_NS_PER_MS)), describe(&comm->wait, what, sizeof(what)));
}

/* A collective: any rank may have ended, and which one holds up the rest cannot be seen. */
static ddp_status_t look_at_all(ddp_comm_t *comm, int64_t waited_ns, int64_t now, int64_t limit)
{
    char what[128];

    for (int r = 0; r < comm->size; r++) {
        int culprit = r;

        if (r != comm->rank && ddp_comm_look(comm, r, now, INT64_MAX, &culprit) == DDP_SIGHT_ENDED) {
            comm->wait.rank = r;
            return complain(comm, DDP_SIGHT_ENDED, culprit);
        }
    }
    if (waited_ns <= limit) {
        return DDP_OK;
    }
    return ddp_fail(DDP_ERR_TIMEOUT, "no progress for %g s, and no rank here is behind: waiting for the %s",
                    (double)comm->timeout_ms / 1000.0, describe(&comm->wait, what, sizeof(what)));
}

/* Whoever reads where this rank is learns what it waits for. */
static void publish_bucket(ddp_comm_t *comm)
{
    _Atomic uint64_t *place = &ddp_comm_seat(comm, comm->rank)->place;
    const uint64_t    phase = atomic_load_explicit(place, memory_order_relaxed) >> 32;

    atomic_store_explicit(place, phase << 32 | (uint32_t)comm->wait.bucket, memory_order_relaxed);
}

static ddp_status_t look_around(ddp_comm_t *comm, int64_t waited_ns)
{
    const int64_t now     = ddp_clock_ns();
    const int64_t limit   = comm->timeout_ms * DDP_NS_PER_MS;
    int           culprit = -1;
    ddp_sight_t   sight;

    if (now - comm->looked_ns < LOOK_NS) {
        return DDP_OK;
    }
    comm->looked_ns = now;
    if (comm->wait.rank == DDP_WAIT_ALL) {
        ddp_comm_publish_wait(comm, DDP_WAIT_ALL);
        return look_at_all(comm, waited_ns, now, limit);
    }
    if (comm->wait.rank < 0) { /* nobody said what for */
        return waited_ns <= limit
                   ? DDP_OK
                   : ddp_fail(DDP_ERR_TIMEOUT, "waited %g s", (double)comm->timeout_ms / 1000.0);
    }
    ddp_comm_publish_wait(comm, comm->wait.rank);
    publish_bucket(comm);
    sight = ddp_comm_look(comm, comm->wait.rank, now, limit, &culprit);
    if (sight != DDP_SIGHT_FINE) {
        return complain(comm, sight, culprit);
    }
    warn_if_slow(comm, waited_ns);
    return DDP_OK;
}

static void sleep_on_bell(ddp_comm_t *comm)
{
    const bool      is_local = comm->wait.rank == -1 || ddp_comm_is_local(comm, comm->wait.rank);
    struct timespec limit    = {0, is_local ? SLEEP_LOCAL_NS : SLEEP_REMOTE_NS};

    atomic_fetch_add_explicit(&comm->hall->sleepers, 1, memory_order_seq_cst);
    futex(&comm->hall->bell, FUTEX_WAIT, comm->bell_seen, &limit);
    atomic_fetch_sub_explicit(&comm->hall->sleepers, 1, memory_order_seq_cst);
}

ddp_status_t ddp_comm_idle(void *comm_p, int64_t waited_ns)
{
    ddp_comm_t  *comm   = comm_p;
    ddp_status_t status = DDP_OK;

    if (waited_ns == 0 || waited_ns < comm->waited_ns) {
        ddp_comm_run_start(comm);
        comm->run_start_ns -= waited_ns;
    }
    comm->waited_ns = waited_ns;
    if (waited_ns < SPIN_NS && comm->may_spin) {
        for (int i = 0; i < 16; i++) {
            pause_cpu();
        }
    } else if (waited_ns < YIELD_NS) {
        sched_yield();
    } else {
        sleep_on_bell(comm);
    }
    if (waited_ns >= SLEEP_LOCAL_NS) {
        status = look_around(comm, waited_ns);
    }
    /* before the caller polls again, see ddp_comm_flag_set() */
    comm->bell_seen = atomic_load_explicit(&comm->hall->bell, memory_order_seq_cst);
    return status;
}

ddp_status_t ddp_comm_wait_flag(ddp_comm_t *comm, const ddp_flag_t *flag, uint64_t value, ddp_wait_t wait)
{
    int64_t      start  = 0;
    ddp_status_t status = DDP_OK;

    while (!ddp_comm_flag_reached(flag, value)) {
        const int64_t now = ddp_clock_ns();

        if (comm->device != NULL) {
            ddp_device_progress(comm->device);
        }
        start = start == 0 ? now : start;
        ddp_comm_waiting(comm, wait);
        DDP_TRY(ddp_comm_idle(comm, now - start));
    }
    ddp_comm_publish_wait(comm, -1);
out:
    return status;
}

static void on_moved(void *comm)
{
    ddp_comm_progressed(comm);
}

void ddp_comm_attach(ddp_comm_t *comm, ddp_device_t *device)
{
    comm->device = device;
    ddp_device_set_idle(device, ddp_comm_idle, comm);
    ddp_device_set_moved(device, on_moved, comm);
}
