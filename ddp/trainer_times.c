#include "ddp/trainer_times_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"

/* Points of a micro-batch. */
enum { FORWARD, BACKWARD, END, POINTS };

static ddp_status_t open_set(ddp_trainer_times_t *t, ddp_trainer_times_set_t *set)
{
    ddp_status_t  status = DDP_OK;
    ddp_device_t *device = ddp_stream_device(t->compute);

    set->point = calloc(POINTS * t->capacity, sizeof(ddp_event_t *));
    DDP_REQUIRE(set->point != NULL, DDP_ERR_NO_MEMORY, "no memory for times of %zu micro-batches",
                t->capacity);
    DDP_TRY(ddp_event_create_timed(device, &set->begin));
    for (size_t i = 0; i < POINTS * t->capacity; i++) {
        DDP_TRY(ddp_event_create_timed(device, &set->point[i]));
    }
out:
    return status;
}

ddp_status_t ddp_trainer_times_open(ddp_trainer_times_t *t, ddp_stream_t *compute, size_t micro_batches)
{
    ddp_status_t status = DDP_OK;

    t->compute  = compute;
    t->capacity = micro_batches > 0 ? micro_batches : 1;
    t->times    = calloc(t->capacity, sizeof(*t->times));
    DDP_REQUIRE(t->times != NULL, DDP_ERR_NO_MEMORY, "no memory for times of %zu micro-batches", t->capacity);
    DDP_TRY(ddp_event_create_timed(ddp_stream_device(compute), &t->anchor));
    DDP_TRY(open_set(t, &t->set[0]));
    DDP_TRY(open_set(t, &t->set[1]));
out:
    return status;
}

void ddp_trainer_times_close(ddp_trainer_times_t *t)
{
    for (int s = 0; s < 2; s++) {
        ddp_trainer_times_set_t *set = &t->set[s];

        ddp_event_destroy(&set->begin);
        for (size_t i = 0; set->point != NULL && i < POINTS * t->capacity; i++) {
            ddp_event_destroy(&set->point[i]);
        }
        free(set->point);
    }
    ddp_event_destroy(&t->anchor);
    free(t->times);
    memset(t, 0, sizeof(*t));
}

ddp_status_t ddp_trainer_times_begin(ddp_trainer_times_t *t)
{
    ddp_trainer_times_set_t *set = NULL;

    t->has_begun    = true;
    t->now          = 1 - t->now;
    set             = &t->set[t->now];
    set->n          = 0;
    set->is_pending = true;
    return ddp_event_record(set->begin, t->compute);
}

ddp_status_t ddp_trainer_times_forward(ddp_trainer_times_t *t)
{
    ddp_trainer_times_set_t *set = &t->set[t->now];

    return ddp_event_record(set->point[POINTS * set->n + FORWARD], t->compute);
}

ddp_status_t ddp_trainer_times_backward(ddp_trainer_times_t *t)
{
    ddp_trainer_times_set_t *set = &t->set[t->now];

    return ddp_event_record(set->point[POINTS * set->n + BACKWARD], t->compute);
}

ddp_status_t ddp_trainer_times_end(ddp_trainer_times_t *t)
{
    ddp_trainer_times_set_t *set = &t->set[t->now];

    return ddp_event_record(set->point[POINTS * set->n++ + END], t->compute);
}

static ddp_event_t *last_point(const ddp_trainer_times_set_t *set)
{
    return set->n > 0 ? set->point[POINTS * (set->n - 1) + END] : set->begin;
}

/* All of its points are reached. */
static ddp_status_t read_set(ddp_trainer_times_t *t, ddp_trainer_times_set_t *set)
{
    ddp_status_t status = DDP_OK;

    t->n        = 0;
    t->begin_ns = 0;
    for (size_t i = 0; i < set->n; i++) {
        ddp_event_t *const *point = &set->point[POINTS * i];
        ddp_micro_times_t  *times = &t->times[i];

        DDP_TRY(ddp_event_elapsed(set->begin, point[FORWARD], &times->forward_ns));
        DDP_TRY(ddp_event_elapsed(set->begin, point[BACKWARD], &times->backward_ns));
        DDP_TRY(ddp_event_elapsed(set->begin, point[END], &times->end_ns));
        t->phases.forward_ns += times->backward_ns - times->forward_ns;
        t->phases.backward_ns += times->end_ns - times->backward_ns;
    }
    t->n = set->n;
    t->phases.steps++;
    set->is_pending = false;
out:
    return status;
}

/* @param [in] timeout_ms  as ddp_event_synchronize() */
static ddp_status_t read_pending(ddp_trainer_times_t *t, ddp_trainer_times_set_t *set, int timeout_ms)
{
    ddp_status_t status = DDP_OK;

    if (set->is_pending) {
        DDP_TRY(ddp_event_synchronize(last_point(set), timeout_ms));
        DDP_TRY(read_set(t, set));
    }
out:
    return status;
}

ddp_status_t ddp_trainer_times_read(ddp_trainer_times_t *t)
{
    ddp_status_t status = DDP_OK;

    /* the sums of this step are known, so the step before is over */
    DDP_TRY(read_pending(t, &t->set[1 - t->now], -1));
    status = read_pending(t, &t->set[t->now], 0);
    status = status == DDP_IN_PROGRESS ? DDP_OK : status;
out:
    return status;
}

/* A pair of host's clock and event, at a moment when the stream has nothing left to do. */
ddp_status_t ddp_trainer_times_await(ddp_trainer_times_t *t)
{
    ddp_status_t status = DDP_OK;
    int64_t      now_ns = 0;
    int64_t      passed = 0;

    DDP_REQUIRE(t->has_begun, DDP_ERR_STATE, "there are no times before the first step");
    DDP_TRY(read_pending(t, &t->set[1 - t->now], -1));
    DDP_TRY(read_pending(t, &t->set[t->now], -1));
    DDP_TRY(ddp_event_record(t->anchor, t->compute));
    DDP_TRY(ddp_event_synchronize(t->anchor, -1));
    now_ns = ddp_clock_ns();
    DDP_TRY(ddp_event_elapsed(t->set[t->now].begin, t->anchor, &passed));
    t->begin_ns = now_ns - passed;
out:
    return status;
}
