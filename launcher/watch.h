/** @file A run's monitor (ddp/monitor.h): when it is there, what it says, and what it writes about ranks. */
#ifndef DDP_WATCH_H_
#define DDP_WATCH_H_

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "ddp/monitor.h"

struct ddp_run;

#define DDP_WATCH_HINT_SIZE 512

/** Of a run. All zero: there is none. */
typedef struct ddp_watch_run {
    ddp_monitor_t  *monitor; /* owned; NULL: ddp.monitor is false, or this process is alone */
    pthread_mutex_t lock;    /* guards `hint` */
    char            hint[DDP_WATCH_HINT_SIZE]; /* how to go on when the run is lost; "": not at all */

    ddp_shares_t  mine;   /* this rank's, over all steps */
    ddp_shares_t *before; /* owned, [ranks], rank 0: at the last event */
    ddp_shares_t *now;    /* owned, [ranks] */
    double (*step_ms)[3]; /* owned, [ranks]: compute, wait, comm */
    int      slowest;     /* of the last events */
    uint64_t times;       /* that it was much slower in a row */
    uint64_t since;       /* step */
    bool     is_warned;
} ddp_watch_run_t;

/** From now on faults of ranks end the run. Collective. */
ddp_status_t ddp_watch_start(struct ddp_run *run) DDP_NODISCARD;
/** Local; after MPI_Finalize, or where the process goes on alone. In any state. */
void ddp_watch_end(struct ddp_run *run);
/** Where this rank is. @param [in] step  the step, or those done; from 1 */
void ddp_watch_at(struct ddp_run *run, uint64_t step, ddp_stage_t phase);
/** For the line that ends a run that is lost: it can be gone on with. @param [in] path  the newest file, or
 * "" */
void ddp_watch_saved(struct ddp_run *run, const char *path);
/** "; go on with ..." or "". Any thread. */
void ddp_watch_hint(struct ddp_run *run, char *text, size_t size);
/** After step `done`: count it, and on rank 0 every ddp.straggler_every steps write an event.
 * @param [in] wait_ns, busy_ns, step_ns  waiting for samples, forward and backward with it, the whole step */
void ddp_watch_step(struct ddp_run *run, uint64_t done, int64_t wait_ns, int64_t busy_ns, int64_t step_ns);

#endif
