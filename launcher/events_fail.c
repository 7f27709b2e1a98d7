/* Why a run fails: written by the rank that says so, on a thread of its own, since the disk may be what
 * fails. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "launcher/events_internal.h"

#define LIMIT_NS INT64_C(500000000)
#define NS_PER_S INT64_C(1000000000)

typedef struct note {
    cJSON          *event;   /* owned by the thread */
    bool            is_done; /* guarded by lock */
    pthread_mutex_t lock;
    pthread_cond_t  done;
    char            folder[DDP_RUN_FOLDER_SIZE];
} note_t;

static void *write_note(void *ctx)
{
    note_t *note = ctx;

    ddp_ignore(ddp_metrics_append(note->folder, note->event), "the line is on stderr already");
    pthread_mutex_lock(&note->lock);
    note->is_done = true;
    pthread_cond_signal(&note->done);
    pthread_mutex_unlock(&note->lock);
    return NULL;
}

/* @return false: it still writes, and needs the note */
static bool wait_for(note_t *note)
{
    struct timespec until;
    int64_t         ns;
    int             error = 0;
    bool            is_done;

    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    ns = until.tv_nsec + LIMIT_NS;
    until.tv_sec += (time_t)(ns / NS_PER_S);
    until.tv_nsec = (long)(ns % NS_PER_S);
    pthread_mutex_lock(&note->lock);
    while (!note->is_done && error == 0) {
        error = pthread_cond_timedwait(&note->done, &note->lock, &until);
    }
    is_done = note->is_done;
    pthread_mutex_unlock(&note->lock);
    return is_done;
}

void ddp_event_fail(const ddp_run_t *run, const char *line)
{
    note_t            *note = NULL;
    pthread_condattr_t attributes;
    pthread_t          thread;

    /* elsewhere the same path may be the folder of another run */
    if (run->folder[0] == '\0' || ddp_comm_machine(run->comm) != 0) {
        return;
    }
    note = calloc(1, sizeof(*note));
    if (note == NULL) {
        return;
    }
    memcpy(note->folder, run->folder, sizeof(note->folder));
    note->event = ddp_metrics_event("fail");
    (void)cJSON_AddStringToObject(note->event, "error", line);
    ddp_events_time(note->event);
    (void)pthread_mutex_init(&note->lock, NULL);
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC); /* the time of day may be set meanwhile */
    (void)pthread_cond_init(&note->done, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    if (pthread_create(&thread, NULL, write_note, note) != 0) {
        cJSON_Delete(note->event);
    } else {
        (void)pthread_detach(thread);
        if (!wait_for(note)) {
            return;
        }
    }
    (void)pthread_mutex_destroy(&note->lock);
    (void)pthread_cond_destroy(&note->done);
    free(note);
}
