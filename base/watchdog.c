#include "base/watchdog.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

#include "base/call.h"
#include "base/error.h"

struct ddp_watchdog {
    ddp_watchdog_fn_t *expired;
    void              *ctx; /* borrowed */
    pthread_t          thread;
    pthread_mutex_t    lock;    /* guards the fields below */
    pthread_cond_t     changed; /* on the monotonic clock */
    const char        *what;    /* NULL: not armed */
    int                limit_ms;
    struct timespec    deadline;
    bool               is_calling;
    bool               is_ending;
};

static bool is_past(const struct timespec *deadline)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec > deadline->tv_sec ||
           (now.tv_sec == deadline->tv_sec && now.tv_nsec >= deadline->tv_nsec);
}

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

static void *watch(void *watchdog_p)
{
    ddp_watchdog_t *watchdog = watchdog_p;

    pthread_mutex_lock(&watchdog->lock);
    while (!watchdog->is_ending) {
        if (watchdog->what == NULL) {
            pthread_cond_wait(&watchdog->changed, &watchdog->lock);
        } else if (is_past(&watchdog->deadline)) {
            call_expired(watchdog);
        } else {
            pthread_cond_timedwait(&watchdog->changed, &watchdog->lock, &watchdog->deadline);
        }
    }
    pthread_mutex_unlock(&watchdog->lock);
    return NULL;
}

/* Signals are for the program's own threads. */
static ddp_status_t start_thread(ddp_watchdog_t *watchdog)
{
    sigset_t     all, before;
    ddp_status_t status = DDP_OK;
    int          code   = 0;

    sigfillset(&all);
    DDP_TRY_PTHREAD(pthread_sigmask(SIG_SETMASK, &all, &before));
    code = pthread_create(&watchdog->thread, NULL, watch, watchdog);
    DDP_TRY_PTHREAD(pthread_sigmask(SIG_SETMASK, &before, NULL));
    DDP_TRY(ddp_from_pthread(code, "pthread_create()"));
out:
    return status;
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
    status = start_thread(watchdog);
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
    watchdog->what     = what;
    watchdog->limit_ms = limit_ms;
    clock_gettime(CLOCK_MONOTONIC, &watchdog->deadline);
    watchdog->deadline.tv_sec += limit_ms / 1000;
    watchdog->deadline.tv_nsec += (long)(limit_ms % 1000) * 1000000;
    if (watchdog->deadline.tv_nsec >= 1000000000) {
        watchdog->deadline.tv_nsec -= 1000000000;
        watchdog->deadline.tv_sec++;
    }
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
