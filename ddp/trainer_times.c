#include "ddp/trainer_times_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"

static ddp_status_t create_events(ddp_trainer_clock_t *clock, ddp_step_times_t *step)
{
    ddp_device_t *device = ddp_stream_device(clock->compute);
    ddp_status_t  status = DDP_OK;

    step->points = calloc(clock->capacity * DDP_MICRO_POINTS, sizeof(*step->points));
    DDP_REQUIRE(step->points != NULL, DDP_ERR_NO_MEMORY, "no memory for the times of a step");
    DDP_TRY(ddp_event_create_timed(device, &step->begin));
    for (size_t i = 0; i < clock->capacity * DDP_MICRO_POINTS; i++) {
        DDP_TRY(ddp_event_create_timed(device, &step->points[i]));
    }
out:
    return status;
}

ddp_status_t ddp_trainer_clock_create(ddp_trainer_clock_t *clock, ddp_stream_t *compute, size_t capacity)
{
    ddp_status_t status = DDP_OK;

    clock->compute    = compute;
    clock->capacity   = capacity;
    clock->has_events = ddp_device_kind(ddp_stream_device(compute)) != DDP_DEVICE_CPU;
    for (size_t s = 0; s < 2; s++) {
        clock->step[s].micro = calloc(capacity > 0 ? capacity : 1, sizeof(*clock->step[s].micro));
        DDP_REQUIRE(clock->step[s].micro != NULL, DDP_ERR_NO_MEMORY, "no memory for a trainer");
        if (clock->has_events && capacity > 0) {
            DDP_TRY(create_events(clock, &clock->step[s]));
        }
    }
out:
    return status;
}

void ddp_trainer_clock_destroy(ddp_trainer_clock_t *clock)
{
    for (size_t s = 0; s < 2; s++) {
        ddp_step_times_t *step = &clock->step[s];

        for (size_t i = 0; step->points != NULL && i < clock->capacity * DDP_MICRO_POINTS; i++) {
            ddp_event_destroy(&step->points[i]);
        }
        ddp_event_destroy(&step->begin);
        free(step->points);
        free(step->micro);
    }
    memset(clock, 0, sizeof(*clock));
}

ddp_status_t ddp_trainer_clock_begin(ddp_trainer_clock_t *clock)
{
    ddp_step_times_t *step   = &clock->step[1 - clock->now];
    ddp_status_t      status = DDP_OK;

    clock->now     = 1 - clock->now;
    step->begin_ns = ddp_clock_ns();
    step->n        = 0;
    if (step->begin != NULL) {
        DDP_TRY(ddp_event_record(step->begin, clock->compute));
    }
out:
    return status;
}

static int64_t *place(ddp_micro_times_t *micro, ddp_micro_point_t point)
{
    return point == DDP_MICRO_FORWARD    ? &micro->forward_ns
           : point == DDP_MICRO_BACKWARD ? &micro->backward_ns
                                         : &micro->end_ns;
}

ddp_status_t ddp_trainer_clock_mark(ddp_trainer_clock_t *clock, ddp_micro_point_t point)
{
    ddp_step_times_t *step   = &clock->step[clock->now];
    ddp_status_t      status = DDP_OK;

    if (clock->has_events) {
        DDP_TRY(ddp_event_record(step->points[step->n * DDP_MICRO_POINTS + point], clock->compute));
    } else {
        *place(&step->micro[step->n], point) = ddp_clock_ns() - step->begin_ns;
    }
    step->n += point == DDP_MICRO_END ? 1 : 0;
out:
    return status;
}

ddp_status_t ddp_trainer_clock_end(ddp_trainer_clock_t *clock)
{
    ddp_step_times_t *step   = &clock->step[1 - clock->now];
    ddp_status_t      status = DDP_OK;

    clock->read = clock->has_events ? 1 - clock->now : clock->now;
    for (size_t i = 0; clock->has_events && i < step->n; i++) {
        for (size_t p = 0; p < DDP_MICRO_POINTS; p++) {
            DDP_TRY(ddp_event_elapsed(step->begin, step->points[i * DDP_MICRO_POINTS + p],
                                      place(&step->micro[i], (ddp_micro_point_t)p)));
        }
    }
out:
    return status;
}
