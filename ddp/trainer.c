#include "ddp/trainer.h"

#include <stdlib.h>

#include "base/convert.h"
#include "base/error.h"
#include "ddp/trainer_times_internal.h"
#include "kernels/ranges.h"
#include "nn/params.h"
#include "nn/tape.h"

struct ddp_trainer {
    ddp_trainer_params_t params;
    ddp_tape_t          *tape;    /* owned */
    ddp_reducer_t       *reducer; /* owned */
    uint8_t             *used;    /* owned, [tensors] */
    uint64_t             step;
    bool                 has_rounded;
    ddp_trainer_times_t  times;
};

static ddp_status_t on_ready(void *reducer, size_t tensor)
{
    return ddp_reducer_ready(reducer, tensor);
}

static ddp_status_t make_tape(ddp_trainer_t *t)
{
    ddp_status_t      status = DDP_OK;
    ddp_tape_params_t params = DDP_TAPE_PARAMS_INIT;

    t->used = calloc(ddp_params_count(t->params.params), 1);
    DDP_REQUIRE(t->used != NULL, DDP_ERR_NO_MEMORY, "no memory for a trainer");
    params.stream = t->params.reducer.compute;
    params.params = t->params.params;
    DDP_TRY(ddp_tape_create(&params, &t->tape));
out:
    return status;
}

static ddp_status_t open_rounded(ddp_trainer_t *t)
{
    return ddp_rounded_open(ddp_stream_device(t->params.reducer.compute), ddp_reducer_values(t->reducer),
                            ddp_params_total(t->params.params), t->params.rounded);
}

static ddp_status_t make_times(ddp_trainer_t *t)
{
    size_t first = 0;
    size_t count = 0;

    ddp_reducer_range(t->reducer, &first, &count);
    return ddp_trainer_times_open(&t->times, t->params.reducer.compute, count);
}

static ddp_status_t check_params(const ddp_trainer_params_t *params)
{
    ddp_status_t status = DDP_OK;

    DDP_REQUIRE(params->params != NULL && ddp_params_total(params->params) > 0, DDP_ERR_INVALID_ARG,
                "a trainer needs a finished list of parameters");
    DDP_REQUIRE(params->reducer.compute != NULL, DDP_ERR_INVALID_ARG, "a trainer needs a stream");
    DDP_REQUIRE(params->forward != NULL, DDP_ERR_INVALID_ARG, "a trainer needs a forward function");
out:
    return status;
}

ddp_status_t ddp_trainer_create(const ddp_trainer_params_t *params, ddp_trainer_t **trainer_p)
{
    ddp_status_t   status = DDP_OK;
    ddp_trainer_t *t      = NULL;
    ddp_comm_t    *comm   = NULL;

    DDP_REQUIRE(params != NULL && params->struct_size == sizeof(*params) && params->reducer.comm != NULL,
                DDP_ERR_INVALID_ARG,
                "trainer parameters were not made with DDP_TRAINER_PARAMS_INIT, or lack a communicator");
    comm = params->reducer.comm;
    DDP_TRY(ddp_comm_agree(comm, check_params(params)));
    t = calloc(1, sizeof(*t));
    DDP_TRY(
        ddp_comm_agree(comm, t != NULL ? DDP_OK : ddp_fail(DDP_ERR_NO_MEMORY, "no memory for a trainer")));
    t->params                   = *params;
    t->params.reducer.tensors   = ddp_params_descs(params->params);
    t->params.reducer.n_tensors = ddp_params_count(params->params);
    DDP_TRY(ddp_comm_agree(comm, make_tape(t)));
    DDP_TRY(ddp_reducer_create(&t->params.reducer, &t->reducer));
    DDP_TRY(ddp_comm_agree(comm, make_times(t)));
    DDP_TRY(ddp_comm_agree(comm, open_rounded(t)));
    t->has_rounded = true;
    ddp_tape_set_ready(t->tape, on_ready, t->reducer);
    DDP_TRY(ddp_comm_agree(comm, ddp_trainer_initialize(t->reducer, params->params, params->reducer.compute,
                                                        params->seed, ddp_comm_rank(comm))));
    DDP_TRY(ddp_reducer_publish(t->reducer));
    *trainer_p = t;
    t          = NULL;
out:
    ddp_trainer_destroy(&t);
    return status;
}

void ddp_trainer_destroy(ddp_trainer_t **trainer_p)
{
    ddp_trainer_t *t = trainer_p != NULL ? *trainer_p : NULL;

    if (t == NULL) {
        return;
    }
    ddp_reducer_destroy(&t->reducer);
    if (t->has_rounded) {
        ddp_rounded_close(ddp_stream_device(t->params.reducer.compute));
    }
    ddp_tape_destroy(&t->tape);
    free(t->used);
    ddp_trainer_times_close(&t->times);
    free(t);
    *trainer_p = NULL;
}

static ddp_status_t forward(ddp_trainer_t *t, const ddp_micro_t *micro)
{
    ddp_status_t     status = DDP_OK;
    ddp_tape_begin_t begin  = {
         .training = true, .seed = t->params.seed, .step = t->step, .first_row = micro->first_row};
    ddp_loss_stats_t *stats = NULL;
    float            *grads = NULL;

    DDP_TRY(ddp_trainer_times_forward(&t->times));
    DDP_TRY(ddp_reducer_micro_begin(t->reducer, micro->micro_batch, &grads, &begin.accumulate_grads));
    ddp_params_bind(t->params.params, NULL, grads);
    DDP_TRY(ddp_tape_begin(t->tape, &begin));
    DDP_TRY(t->params.forward(t->params.ctx, t->tape, micro, &stats));
    ddp_tape_used(t->tape, t->used);
    DDP_TRY(ddp_reducer_forward_done(t->reducer, stats, t->used));
out:
    return status;
}

static ddp_status_t backward(ddp_trainer_t *t)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(ddp_trainer_times_backward(&t->times));
    DDP_TRY(ddp_tape_backward(t->tape));
    DDP_TRY(ddp_trainer_times_end(&t->times));
    DDP_TRY(ddp_reducer_micro_end(t->reducer));
out:
    return status;
}

static ddp_status_t micro_step(ddp_trainer_t *t, const ddp_micro_t *micro)
{
    ddp_status_t status;

    ddp_range_open("forward", (int64_t)micro->micro_batch);
    status = forward(t, micro);
    ddp_range_close();
    if (status == DDP_OK) {
        ddp_range_open("backward", (int64_t)micro->micro_batch);
        status = backward(t);
        ddp_range_close();
    }
    return status;
}

ddp_status_t ddp_trainer_round(ddp_trainer_t *t)
{
    return ddp_rounded_take(t->params.reducer.compute);
}

ddp_status_t ddp_trainer_step(ddp_trainer_t *t, const ddp_step_t *step, ddp_step_result_t *result_p)
{
    ddp_status_t status = DDP_OK;
    ddp_micro_t  micro  = {.step = t->step};
    size_t       first;
    size_t       count;

    DDP_TRY(ddp_reducer_step_begin(t->reducer, step));
    DDP_TRY(ddp_trainer_round(t));
    ddp_tape_set_loss_scale(t->tape, ddp_reducer_loss_scale(t->reducer).scale);
    DDP_TRY(ddp_trainer_times_begin(&t->times));
    ddp_reducer_range(t->reducer, &first, &count);
    for (size_t v = 0; v < first + count; v++) {
        const size_t before = micro.first_row + micro.n;

        micro.micro_batch = v;
        ddp_partition(step->samples, t->params.reducer.micro_batches, v, &micro.first_row, &micro.n);
        if (step->part_samples != NULL) {
            micro.first_row = before;
            micro.n         = step->part_samples[v];
        }
        if (v >= first && micro.n > 0) {
            DDP_TRY(micro_step(t, &micro));
        }
    }
    DDP_TRY(ddp_reducer_step_end(t->reducer, result_p));
    DDP_TRY(ddp_trainer_times_read(&t->times));
    t->step++;
out:
    ddp_rounded_drop(ddp_stream_device(t->params.reducer.compute)); /* parameters have changed */
    return status;
}

void ddp_trainer_set_step(ddp_trainer_t *trainer, uint64_t step)
{
    trainer->step = step;
}

ddp_status_t ddp_trainer_await_times(ddp_trainer_t *trainer)
{
    return ddp_trainer_times_await(&trainer->times);
}

ddp_phase_times_t ddp_trainer_take_phases(ddp_trainer_t *trainer)
{
    const ddp_phase_times_t phases = trainer->times.phases;

    trainer->times.phases = (ddp_phase_times_t){.steps = 0};
    return phases;
}

size_t ddp_trainer_times(const ddp_trainer_t *trainer, int64_t *begin_ns_p, ddp_micro_times_t *times,
                         size_t capacity)
{
    *begin_ns_p = trainer->times.begin_ns;
    for (size_t i = 0; i < trainer->times.n && i < capacity; i++) {
        times[i] = trainer->times.times[i];
    }
    return trainer->times.n;
}

ddp_reducer_t *ddp_trainer_reducer(ddp_trainer_t *trainer)
{
    return trainer->reducer;
}

ddp_tape_t *ddp_trainer_tape(ddp_trainer_t *trainer)
{
    return trainer->tape;
}
