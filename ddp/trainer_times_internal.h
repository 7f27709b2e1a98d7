/**
 * @file When a rank's micro-batches ran, by timed events on the compute stream. Nothing in a step waits for
 * them: two sets in turn, and a step's is read once it is known to be over, at the latest when the next
 * step's set is wanted again. Private.
 */
#ifndef DDP_TRAINER_TIMES_INTERNAL_H_
#define DDP_TRAINER_TIMES_INTERNAL_H_

#include "ddp/trainer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ddp_trainer_times_set {
    ddp_event_t  *begin; /* owned */
    ddp_event_t **point; /* owned, [3 * capacity]: forward, backward and end of each micro-batch */
    size_t        n;     /* micro-batches */
    bool          is_pending;
} ddp_trainer_times_set_t;

typedef struct ddp_trainer_times {
    ddp_stream_t           *compute; /* borrowed */
    size_t                  capacity;
    ddp_trainer_times_set_t set[2];
    int                     now; /* the set of the last step */
    bool                    has_begun;
    ddp_event_t            *anchor; /* owned */

    /* of the last step that was read */
    int64_t            begin_ns; /* the clock; 0: not known */
    ddp_micro_times_t *times;    /* owned, [capacity] */
    size_t             n;
    ddp_phase_times_t  phases; /* steps that were read and not taken */
} ddp_trainer_times_t;

/** @param [in] micro_batches  of this rank, at most in a step */
ddp_status_t ddp_trainer_times_open(ddp_trainer_times_t *t, ddp_stream_t *compute,
                                    size_t micro_batches) DDP_NODISCARD;
/** Accepts what was opened in part, or is zero. */
void ddp_trainer_times_close(ddp_trainer_times_t *t);

/** Where the compute stream is now. */
ddp_status_t ddp_trainer_times_begin(ddp_trainer_times_t *t) DDP_NODISCARD;
ddp_status_t ddp_trainer_times_forward(ddp_trainer_times_t *t) DDP_NODISCARD;
ddp_status_t ddp_trainer_times_backward(ddp_trainer_times_t *t) DDP_NODISCARD;
ddp_status_t ddp_trainer_times_end(ddp_trainer_times_t *t) DDP_NODISCARD;
/** Read what is over. */
ddp_status_t ddp_trainer_times_read(ddp_trainer_times_t *t) DDP_NODISCARD;
/** Wait for the last step's, read it, and find its begin on the clock. */
ddp_status_t ddp_trainer_times_await(ddp_trainer_times_t *t) DDP_NODISCARD;

#ifdef __cplusplus
}
#endif

#endif
