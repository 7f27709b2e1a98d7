#include "base/watchdog.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"

/* Naps between looks; who wakes later than this after one has been suspended meanwhile, with all it watches.
 */
#define NS_PER_S INT64_C(1000000000)
#define NAP_NS   (200 * DDP_NS_PER_MS)
#define LATE_NS  (500 * DDP_NS_PER_MS)

struct ddp_watchdog {
    ddp_watchdog_fn_t *expired;
    void              *ctx; /* borrowed */
    pthread_t          thread;
    pthread_mutex_t    lock;    /* guards the fields below */
    pthread_cond_t     changed; /* on the monotonic clock */
    const char        *what;    /* NULL: not armed */
    int                limit_ms;
    int64_t            deadline_ns;
    uint64_t           arms; /* so far */
    bool               is_calling;
    bool               is_ending;
};

/* The lock is held, but not during the call. */
static void call_expired(ddp_watchdog_t *watchdog)
{
    const char *what     = watchdog->what;
    const int   limit_ms = watchdog->limit_ms;

    watchdog->what       = NULL;
    watchdog->is_calling = true;
    pthread_mutex_unlock(&watchdog->lock);
    watchdog->expired(watchdog->ctx, what, limit_ms);
    pthread_mutex_lock(&watchdog->lock);
    watchdog->is_calling = false;
    pthread_cond_broadcast(&watchdog->changed);
}

/* Until the deadline at most. Time in which the process was suspended does not count. */
static void nap(ddp_watchdog_t *watchdog)
{
    const uint64_t        arms = watchdog->arms;
    const int64_t         soon = ddp_clock_ns() + NAP_NS;
    const int64_t         end  = soon < watchdog->deadline_ns ? soon : watchdog->deadline_ns;
    const struct timespec wake = {end / NS_PER_S, end % NS_PER_S};
    int64_t               late;

    pthread_cond_timedwait(&watchdog->changed, &watchdog->lock, &wake);
    late = ddp_clock_ns() - end;
    if (late > LATE_NS && arms == watchdog->arms) {
        watchdog->deadline_ns += late;
    }
}

static void *watch(void *watchdog_p)
{
    ddp_watchdog_t *watchdog = watchdog_p;

    pthread_mutex_lock(&watchdog->lock);
    while (!watchdog->is_ending) {
        if (watchdog->what == NULL) {
            pthread_cond_wait(&watchdog->changed, &watchdog->lock);
        } else if (ddp_clock_ns() >= watchdog->deadline_ns) {
            call_expired(watchdog);
        } else {
            nap(watchdog);
        }
    }
    pthread_mutex_unlock(&watchdog->lock);
    return NULL;
}

ddp_status_t ddp_watchdog_create(ddp_watchdog_fn_t *expired, void *ctx, ddp_watchdog_t **watchdog_p)
{
    pthread_condattr_t clock;
    ddp_status_t       status   = DDP_OK;
    ddp_watchdog_t    *watchdog = calloc(1, sizeof(*watchdog));

    DDP_REQUIRE(watchdog != NULL, DDP_ERR_NO_MEMORY, "no memory for a watchdog");
    watchdog->expired = expired;
    watchdog->ctx     = ctx;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&watchdog->changed, &clock);
    pthread_condattr_destroy(&clock);
    pthread_mutex_init(&watchdog->lock, NULL);
    status = ddp_thread_start(watch, watchdog, &watchdog->thread);
    if (status != DDP_OK) {
        pthread_mutex_destroy(&watchdog->lock);
        pthread_cond_destroy(&watchdog->changed);
        goto out;
    }
    *watchdog_p = watchdog;
    watchdog    = NULL;
out:
    free(watchdog);
    return status;
}

void ddp_watchdog_destroy(ddp_watchdog_t **watchdog_p)
{
    ddp_watchdog_t *watchdog = watchdog_p != NULL ? *watchdog_p : NULL;

    if (watchdog == NULL) {
        return;
    }
    *watchdog_p = NULL;
    pthread_mutex_lock(&watchdog->lock);
    watchdog->is_ending = true;
    pthread_cond_broadcast(&watchdog->changed);
    pthread_mutex_unlock(&watchdog->lock);
    pthread_join(watchdog->thread, NULL);
    pthread_mutex_destroy(&watchdog->lock);
    pthread_cond_destroy(&watchdog->changed);
    free(watchdog);
}

void ddp_watchdog_arm(ddp_watchdog_t *watchdog, const char *what, int limit_ms)
{
    pthread_mutex_lock(&watchdog->lock);
    watchdog->what        = what;
    watchdog->limit_ms    = limit_ms;
    watchdog->deadline_ns = ddp_clock_ns() + limit_ms * DDP_NS_PER_MS;
    watchdog->arms++;
    pthread_cond_broadcast(&watchdog->changed);
    pthread_mutex_unlock(&watchdog->lock);
}

void ddp_watchdog_disarm(ddp_watchdog_t *watchdog)
{
    pthread_mutex_lock(&watchdog->lock);
    watchdog->what = NULL;
    while (watchdog->is_calling) {
        pthread_cond_wait(&watchdog->changed, &watchdog->lock);
    }
    pthread_mutex_unlock(&watchdog->lock);
}
