/* Threads of the replicas, handing jobs over, and seeing that one of them hangs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/thread.h"
#include "dp_compat/dp_internal.h"

#define SPIN_NS       INT64_C(100000) /* to be woken costs some 50 us */
#define SPINS         64              /* between two looks at the clock */
#define LEAST_SLICE   DDP_NS_PER_MS
#define LARGEST_SLICE (100 * DDP_NS_PER_MS)
#define NAMED_AT_MOST 6
#define NS_PER_S      INT64_C(1000000000)

static void pause_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

/* Brief, as the next job usually comes at once. @return whether `state` has become something else */
static bool spin_while(const ddp_replica_t *replica, _Atomic int *state, int value)
{
    const int64_t start = ddp_clock_ns();

    while (atomic_load_explicit(state, memory_order_acquire) == value) {
        if (!replica->dp->may_spin || ddp_clock_ns() - start > SPIN_NS) {
            return false;
        }
        for (int i = 0; i < SPINS; i++) {
            pause_cpu();
        }
    }
    return true;
}

/* On the thread that ran the job. */
static void note_end(ddp_replica_t *replica, ddp_status_t status)
{
    replica->status  = status;
    replica->line[0] = '\0';
    if (status != DDP_OK) {
        snprintf(replica->line, sizeof(replica->line), "%s", ddp_error_line());
    }
}

static void change_state(ddp_replica_t *replica, int state, pthread_cond_t *who)
{
    pthread_mutex_lock(&replica->lock);
    atomic_store_explicit(&replica->state, state, memory_order_release);
    pthread_cond_signal(who);
    pthread_mutex_unlock(&replica->lock);
}

static bool is_idle(int state)
{
    return state == DDP_DP_JOB_NONE || state == DDP_DP_JOB_DONE;
}

static void *work(void *replica_p)
{
    ddp_replica_t *replica = replica_p;
    ddp_status_t   status;

    for (;;) {
        int state = atomic_load_explicit(&replica->state, memory_order_acquire);

        if (is_idle(state) && !spin_while(replica, &replica->state, state)) {
            pthread_mutex_lock(&replica->lock);
            while (is_idle(atomic_load_explicit(&replica->state, memory_order_acquire))) {
                pthread_cond_wait(&replica->posted, &replica->lock);
            }
            pthread_mutex_unlock(&replica->lock);
        }
        if (atomic_load_explicit(&replica->state, memory_order_acquire) == DDP_DP_JOB_END) {
            return NULL;
        }
        status = replica->job(replica);
        pthread_mutex_lock(&replica->lock);
        if (!replica->is_hung) {
            note_end(replica, status);
            atomic_store_explicit(&replica->state, DDP_DP_JOB_DONE, memory_order_release);
        } else { /* it was given up long ago, and that is its status */
            atomic_store_explicit(&replica->state, DDP_DP_JOB_END, memory_order_release);
        }
        pthread_cond_signal(&replica->done);
        pthread_mutex_unlock(&replica->lock);
    }
}

static void make_monotonic(pthread_cond_t *condition)
{
    pthread_condattr_t clock;

    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &clock);
    pthread_condattr_destroy(&clock);
}

ddp_status_t ddp_dp_thread_start(ddp_replica_t *replica)
{
    ddp_status_t status = DDP_OK;
    cpu_set_t    cpus;

    atomic_store(&replica->state, DDP_DP_JOB_NONE);
    pthread_mutex_init(&replica->lock, NULL);
    make_monotonic(&replica->posted);
    make_monotonic(&replica->done);
    status = ddp_fault("dp_thread", replica->id);
    if (status == DDP_OK) {
        status = ddp_thread_start(work, replica, &replica->thread);
    }
    if (status != DDP_OK) {
        pthread_cond_destroy(&replica->done);
        pthread_cond_destroy(&replica->posted);
        pthread_mutex_destroy(&replica->lock);
        ddp_error_prefix("%s cannot start", replica->name);
        return status;
    }
    replica->has_thread = true;
    if (replica->core >= 0) { /* a wish: without it only speed is lost */
        CPU_ZERO(&cpus);
        CPU_SET((size_t)replica->core, &cpus);
        (void)pthread_setaffinity_np(replica->thread, sizeof(cpus), &cpus);
    }
    return DDP_OK;
}

void ddp_dp_thread_stop(ddp_replica_t *replica)
{
    if (!replica->has_thread) {
        return;
    }
    replica->has_thread = false;
    if (replica->is_hung) { /* it ends by itself, should it ever come back */
        pthread_detach(replica->thread);
        return;
    }
    change_state(replica, DDP_DP_JOB_END, &replica->posted);
    pthread_join(replica->thread, NULL);
    pthread_cond_destroy(&replica->done);
    pthread_cond_destroy(&replica->posted);
    pthread_mutex_destroy(&replica->lock);
}

static void post(ddp_replica_t *replica, ddp_dp_job_fn_t *job)
{
    replica->job = job;
    change_state(replica, DDP_DP_JOB_POSTED, &replica->posted);
}

static struct timespec in_a_while(int64_t ns)
{
    struct timespec at;

    clock_gettime(CLOCK_MONOTONIC, &at);
    ns += at.tv_nsec;
    at.tv_sec += (time_t)(ns / NS_PER_S);
    at.tv_nsec = (long)(ns % NS_PER_S);
    return at;
}

/* How often somebody looks whether there was progress. */
static int64_t slice_of(const ddp_dp_t *dp)
{
    const int64_t slice = dp->params.timeout_ms * DDP_NS_PER_MS / 8;

    return slice < LEAST_SLICE ? LEAST_SLICE : slice > LARGEST_SLICE ? LARGEST_SLICE : slice;
}

/** For how long somebody has got nothing done. */
typedef struct silence {
    uint64_t moves;
    int64_t  looked_ns; /* 0: not looked yet */
    int64_t  silent_ns;
} silence_t;

/* A process that was stopped for a while was not silent: between two looks count a slice or two, no more.
 * @return whether it has lasted for too long */
static bool look(const ddp_dp_t *dp, silence_t *silence, _Atomic uint64_t *moved)
{
    const uint64_t moves  = atomic_load_explicit(moved, memory_order_relaxed);
    const int64_t  now    = ddp_clock_ns();
    const int64_t  passed = now - silence->looked_ns;

    if (silence->looked_ns == 0 || moves != silence->moves) {
        silence->silent_ns = 0;
    } else {
        silence->silent_ns += passed < 2 * slice_of(dp) ? passed : 2 * slice_of(dp);
    }
    silence->moves     = moves;
    silence->looked_ns = now;
    return silence->silent_ns > dp->params.timeout_ms * DDP_NS_PER_MS;
}

static void describe_hang(const ddp_replica_t *replica, char *line, size_t size)
{
    const ddp_dp_t      *dp    = replica->dp;
    const ddp_dp_phase_t phase = (ddp_dp_phase_t)atomic_load(&replica->phase);

    snprintf(line, size, "%s made no progress for %g s in %s of step %llu", replica->name,
             (double)dp->params.timeout_ms / 1000.0, ddp_dp_phase_name(phase),
             (unsigned long long)atomic_load(&dp->step_now) + 1);
}

/* The lock is held. */
static void give_up(ddp_replica_t *replica)
{
    replica->is_hung = true;
    replica->status  = DDP_ERR_TIMEOUT;
    describe_hang(replica, replica->line, sizeof(replica->line));
}

static void wait_on_condition(ddp_replica_t *replica)
{
    silence_t       silence = {0, 0, 0};
    struct timespec until;

    pthread_mutex_lock(&replica->lock);
    while (atomic_load_explicit(&replica->state, memory_order_acquire) == DDP_DP_JOB_POSTED) {
        if (look(replica->dp, &silence, &replica->moved)) {
            give_up(replica);
            break;
        }
        until = in_a_while(slice_of(replica->dp));
        pthread_cond_timedwait(&replica->done, &replica->lock, &until);
    }
    pthread_mutex_unlock(&replica->lock);
}

static void wait_for(ddp_replica_t *replica)
{
    ddp_dp_t *dp = replica->dp;

    atomic_store(&dp->is_waiting, true);
    if (!spin_while(replica, &replica->state, DDP_DP_JOB_POSTED)) {
        wait_on_condition(replica);
    }
    ddp_dp_progressed(&dp->replica[0]);
    atomic_store(&dp->is_waiting, false);
}

/* "device 1: ...", but for a line that names its device already. */
static size_t append(char *text, size_t used, size_t room, const ddp_replica_t *replica)
{
    const size_t length = strlen(replica->name);
    const bool   named  = strncmp(replica->line, replica->name, length) == 0;
    const char  *mark   = used > 0 ? "; " : "";
    int          n      = 0;

    if (named) {
        n = snprintf(text + used, room, "%s%s", mark, replica->line);
    } else {
        n = snprintf(text + used, room, "%s%s: %s", mark, replica->name, replica->line);
    }
    return used + ((size_t)n < room ? (size_t)n : room - 1);
}

static ddp_status_t blame(ddp_dp_t *dp, size_t first, size_t n)
{
    char         text[DDP_ERROR_LINE_SIZE] = "";
    size_t       failed                    = 0;
    size_t       named                     = 0;
    size_t       used                      = 0;
    ddp_status_t worst                     = DDP_OK;

    for (size_t k = first; k < first + n; k++) {
        const ddp_status_t status = dp->replica[k].status;

        failed += status != DDP_OK ? 1 : 0;
        worst = worst == DDP_OK || status == DDP_ERR_TIMEOUT ? (status != DDP_OK ? status : worst) : worst;
    }
    for (size_t k = first; k < first + n && failed > 0; k++) {
        const ddp_replica_t *replica = &dp->replica[k];
        const size_t         share = (sizeof(text) - 40) / (failed < NAMED_AT_MOST ? failed : NAMED_AT_MOST);
        char                 more[40];

        if (replica->status == DDP_OK) {
            continue;
        }
        if (named < NAMED_AT_MOST) {
            used = append(text, used, share, replica);
        } else if (named == NAMED_AT_MOST) {
            snprintf(more, sizeof(more), "; and %zu more", failed - named);
            snprintf(text + used, sizeof(text) - used, "%s", more);
        }
        named++;
    }
    return failed == 0 ? DDP_OK : ddp_fail(worst, "%s", text);
}

ddp_status_t ddp_dp_on_all(ddp_dp_t *dp, ddp_dp_job_fn_t *first_job, ddp_dp_job_fn_t *job)
{
    for (size_t k = 1; k < dp->n_busy; k++) {
        post(&dp->replica[k], job);
    }
    note_end(&dp->replica[0], first_job(&dp->replica[0]));
    for (size_t k = 1; k < dp->n_busy; k++) {
        wait_for(&dp->replica[k]);
    }
    return blame(dp, 0, dp->n_busy);
}

void ddp_dp_run(ddp_replica_t *replica, ddp_dp_job_fn_t *job)
{
    if (replica->index == 0) {
        note_end(replica, job(replica));
    } else if (replica->has_thread && !replica->is_hung) {
        post(replica, job);
        wait_for(replica);
    }
}

ddp_status_t ddp_dp_on_output(ddp_dp_t *dp, ddp_dp_job_fn_t *job)
{
    ddp_dp_run(&dp->replica[dp->output], job);
    return blame(dp, dp->output, 1);
}

/* Device 0's thread is the caller's, so that nobody can return from it: somebody else has to say so. */
static void expire(ddp_dp_t *dp)
{
    char line[DDP_ERROR_LINE_SIZE];

    describe_hang(&dp->replica[0], line, sizeof(line));
    if (dp->params.hung != NULL) {
        dp->params.hung(dp->params.ctx, line);
        return;
    }
    ddp_log(DDP_LOG_ERROR, "%s", line);
    _Exit(EXIT_FAILURE);
}

static void *watch(void *dp_p)
{
    ddp_dp_t       *dp      = dp_p;
    silence_t       silence = {0, 0, 0};
    bool            is_over = false;
    struct timespec until;

    pthread_mutex_lock(&dp->lock);
    while (!dp->is_ending) {
        if (is_over || !atomic_load(&dp->is_working) || atomic_load(&dp->is_waiting)) {
            silence.looked_ns = 0;
        } else if (look(dp, &silence, &dp->replica[0].moved)) {
            is_over = true;
            pthread_mutex_unlock(&dp->lock);
            expire(dp);
            pthread_mutex_lock(&dp->lock);
            continue;
        }
        until = in_a_while(slice_of(dp));
        pthread_cond_timedwait(&dp->ending, &dp->lock, &until);
    }
    pthread_mutex_unlock(&dp->lock);
    return NULL;
}

ddp_status_t ddp_dp_watcher_start(ddp_dp_t *dp)
{
    ddp_status_t status = DDP_OK;

    pthread_mutex_init(&dp->lock, NULL);
    make_monotonic(&dp->ending);
    status = ddp_thread_start(watch, dp, &dp->watcher);
    if (status != DDP_OK) {
        pthread_cond_destroy(&dp->ending);
        pthread_mutex_destroy(&dp->lock);
        ddp_error_prefix("the watch of %s cannot start", dp->replica[0].name);
        return status;
    }
    dp->has_watcher = true;
    return DDP_OK;
}

void ddp_dp_watcher_stop(ddp_dp_t *dp)
{
    if (!dp->has_watcher) {
        return;
    }
    pthread_mutex_lock(&dp->lock);
    dp->is_ending = true;
    pthread_cond_signal(&dp->ending);
    pthread_mutex_unlock(&dp->lock);
    pthread_join(dp->watcher, NULL);
    pthread_cond_destroy(&dp->ending);
    pthread_mutex_destroy(&dp->lock);
    dp->has_watcher = false;
}
