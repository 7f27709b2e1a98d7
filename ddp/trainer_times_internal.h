/** @file When the micro-batches of a step ran: by the host's clock, or by events of a device that works by
 * itself. Private to ddp/trainer*.c. */
#ifndef DDP_TRAINER_TIMES_INTERNAL_H_
#define DDP_TRAINER_TIMES_INTERNAL_H_

#include "ddp/trainer.h"

/** What a micro-batch passes, in this order. */
typedef enum ddp_micro_point {
    DDP_MICRO_FORWARD,
    DDP_MICRO_BACKWARD,
    DDP_MICRO_END,
    DDP_MICRO_POINTS
} ddp_micro_point_t;

/** One step. The host runs ahead of a device, so there are two: one is read while the next is recorded. */
typedef struct ddp_step_times {
    int64_t            begin_ns; /* clock */
    ddp_micro_times_t *micro;    /* owned, [capacity] */
    size_t             n;
    ddp_event_t       *begin;  /* owned, as the next; NULL: the host's clock is enough */
    ddp_event_t      **points; /* [capacity, DDP_MICRO_POINTS] */
} ddp_step_times_t;

typedef struct ddp_trainer_clock {
    ddp_stream_t    *compute; /* borrowed */
    size_t           capacity;
    bool             has_events;
    ddp_step_times_t step[2];
    size_t           now;  /* the running step's */
    size_t           read; /* whose times are known */
} ddp_trainer_clock_t;

ddp_status_t ddp_trainer_clock_create(ddp_trainer_clock_t *clock, ddp_stream_t *compute,
                                      size_t capacity) DDP_NODISCARD;
void         ddp_trainer_clock_destroy(ddp_trainer_clock_t *clock);
/** A step begins, on the compute stream too. */
ddp_status_t ddp_trainer_clock_begin(ddp_trainer_clock_t *clock) DDP_NODISCARD;
/** The next micro-batch comes to a point; DDP_MICRO_END is its last. */
ddp_status_t ddp_trainer_clock_mark(ddp_trainer_clock_t *clock, ddp_micro_point_t point) DDP_NODISCARD;
/** The sums of this step were there, so that the step before has run: with events, its times are read now. */
ddp_status_t ddp_trainer_clock_end(ddp_trainer_clock_t *clock) DDP_NODISCARD;

#endif
