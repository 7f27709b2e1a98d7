/* One micro-batch on one device: the jobs of a round. */
#include <string.h>
#include <time.h>

#include "base/convert.h"
#include "base/fault.h"
#include "dp_compat/dp_internal.h"
#include "kernels/ranges.h"

ddp_status_t ddp_dp_fetch(ddp_replica_t *replica, ddp_dp_fetch_fn_t *fetch, void *ctx)
{
    ddp_status_t status = DDP_OK;

    memset(replica->fetched, 0, sizeof(replica->fetched));
    DDP_TRY(fetch(ctx, &replica->micro, replica->fetched));
    for (size_t i = 0; i < replica->dp->params.n_inputs; i++) {
        DDP_REQUIRE(replica->fetched[i].data != NULL && replica->fetched[i].row_bytes > 0,
                    DDP_ERR_INVALID_ARG, "fetch said nothing about input %zu", i);
    }
    ddp_dp_progressed(&replica->dp->replica[0]);
out:
    return status;
}

/* Parameters and running averages, from device 0, whose update is done. */
static ddp_status_t replicate(ddp_replica_t *replica)
{
    const ddp_dp_t *dp     = replica->dp;
    const size_t    bytes  = ddp_params_total(replica->params) * sizeof(float);
    ddp_status_t    status = DDP_OK;
    int64_t         start;

    if (replica->index == 0 || !dp->replicates) {
        return DDP_OK;
    }
    start = ddp_dp_enter(replica, DDP_DP_REPLICATE);
    DDP_TRY(ddp_stream_copy(replica->stream, replica->values, dp->replica[0].values, bytes));
    DDP_TRY(ddp_stream_synchronize(replica->stream, -1));
    replica->received_bytes[DDP_DP_REPLICATE] += dp->evaluates ? 0 : bytes; /* reports are of steps */
    ddp_dp_leave(replica, DDP_DP_REPLICATE, start);
out:
    return status;
}

/* Device 0 reads its samples where they are, if it can. */
static bool reads_host(const ddp_replica_t *replica)
{
    return replica->index == 0 && ddp_device_is_host_memory(replica->device);
}

static ddp_status_t scatter_one(ddp_replica_t *replica, size_t i)
{
    const ddp_dp_input_t *from   = &replica->fetched[i];
    ddp_status_t          status = DDP_OK;
    size_t                bytes  = 0;

    if (reads_host(replica)) {
        replica->inputs[i] = from->data;
        return DDP_OK;
    }
    DDP_TRY(ddp_mul_size(replica->micro.n, from->row_bytes, "samples of a micro-batch", &bytes));
    DDP_TRY(ddp_dp_buffer_need(replica, &replica->input[i], "samples", bytes));
    DDP_TRY(ddp_stream_copy(replica->stream, replica->input[i].memory, from->data, bytes));
    replica->inputs[i] = replica->input[i].memory;
    replica->received_bytes[DDP_DP_SCATTER] += replica->dp->evaluates ? 0 : bytes;
out:
    return status;
}

static ddp_status_t scatter(ddp_replica_t *replica)
{
    const ddp_dp_t *dp     = replica->dp;
    const bool      all    = dp->evaluates || ddp_dp_is_inside(dp);
    ddp_status_t    status = DDP_OK;
    const int64_t   start  = ddp_dp_enter(replica, DDP_DP_SCATTER);

    for (size_t i = 0; i < dp->params.n_inputs; i++) {
        replica->inputs[i] = NULL;
        if (all || !replica->fetched[i].is_target) {
            DDP_TRY(scatter_one(replica, i));
        }
    }
    DDP_TRY(ddp_stream_synchronize(replica->stream, -1));
    ddp_dp_leave(replica, DDP_DP_SCATTER, start);
out:
    return status;
}

/* What a forward sees does not depend on the number of devices. */
static void hide_targets(const ddp_replica_t *replica, const void **inputs)
{
    for (size_t i = 0; i < replica->dp->params.n_inputs; i++) {
        const bool is_hidden =
            replica->dp->params.loss_at == DDP_DP_LOSS_OUTSIDE && replica->fetched[i].is_target;

        inputs[i] = is_hidden ? NULL : replica->inputs[i];
    }
}

/* And a loss sees what is where it is taken. */
static void hide_samples(const ddp_replica_t *replica, const void *const *from, const void **inputs)
{
    for (size_t i = 0; i < replica->dp->params.n_inputs; i++) {
        const bool is_hidden =
            replica->dp->params.loss_at == DDP_DP_LOSS_OUTSIDE && !replica->fetched[i].is_target;

        inputs[i] = is_hidden ? NULL : from[i];
    }
}

static ddp_status_t plant(const ddp_replica_t *replica)
{
    if (ddp_fault("dp_hang", replica->id) != DDP_OK) {
        struct timespec pause = {1, 0};

        for (;;) {
            nanosleep(&pause, NULL);
        }
    }
    return ddp_fault("dp_forward", replica->id);
}

static ddp_status_t take_loss(ddp_replica_t *replica)
{
    const ddp_dp_t *dp = replica->dp;
    const void     *inputs[DDP_DP_MAX_INPUTS];
    ddp_status_t    status = DDP_OK;

    hide_samples(replica, replica->inputs, inputs);
    replica->stats = NULL;
    DDP_TRY(dp->params.loss(dp->params.ctx, replica->tape, &replica->micro, inputs, replica->output,
                            &replica->stats));
    DDP_REQUIRE(replica->stats != NULL, DDP_ERR_INVALID_ARG, "loss gave no sums");
out:
    return status;
}

static ddp_status_t run_forward(ddp_replica_t *replica, const ddp_tape_begin_t *begin)
{
    const ddp_dp_t *dp = replica->dp;
    const void     *inputs[DDP_DP_MAX_INPUTS];
    ddp_status_t    status = DDP_OK;

    hide_targets(replica, inputs);
    replica->output = NULL;
    DDP_TRY(ddp_tape_begin(replica->tape, begin));
    DDP_TRY(plant(replica));
    DDP_TRY(dp->params.forward(dp->params.ctx, replica->tape, &replica->micro, inputs, &replica->output));
    DDP_REQUIRE(replica->output != NULL, DDP_ERR_INVALID_ARG, "forward gave no output");
out:
    return status;
}

/* INSIDE_MEAN: sums become a mean of weight 1, and the gradient is divided likewise when it is collected. */
static void make_mean(ddp_replica_t *replica, ddp_loss_stats_t *stats)
{
    replica->scale = 1.0F;
    if (replica->dp->params.loss_at != DDP_DP_LOSS_INSIDE_MEAN) {
        return;
    }
    replica->scale = stats->weight > 0 ? 1.0F / stats->weight : 0.0F;
    stats->loss *= replica->scale;
    stats->weight = stats->weight > 0 ? 1.0F : 0.0F;
}

static ddp_status_t train_forward(ddp_replica_t *replica)
{
    const ddp_dp_t        *dp     = replica->dp;
    const ddp_tape_begin_t begin  = {.training         = true,
                                     .seed             = dp->params.seed,
                                     .step             = dp->step,
                                     .first_row        = replica->micro.first_row,
                                     .accumulate_grads = replica->accumulates};
    ddp_loss_stats_t      *stats  = &dp->stats[replica->micro.micro_batch];
    ddp_status_t           status = DDP_OK;
    int64_t                start;

    DDP_TRY(replicate(replica));
    DDP_TRY(scatter(replica));
    start = ddp_dp_enter(replica, DDP_DP_FORWARD);
    ddp_tape_set_loss_scale(replica->tape, dp->loss_scale);
    DDP_TRY(run_forward(replica, &begin));
    DDP_TRY(ddp_stream_synchronize(replica->stream, -1));
    ddp_dp_leave(replica, DDP_DP_FORWARD, start);
    if (ddp_dp_is_inside(dp)) {
        start = ddp_dp_enter(replica, DDP_DP_LOSS);
        DDP_TRY(take_loss(replica));
        DDP_TRY(ddp_stream_read(replica->stream, stats, replica->stats, sizeof(*stats)));
        make_mean(replica, stats);
        ddp_dp_leave(replica, DDP_DP_LOSS, start);
    }
    ddp_tape_used(replica->tape, replica->used);
out:
    return status;
}

ddp_status_t ddp_dp_forward_job(ddp_replica_t *replica)
{
    ddp_status_t status;

    ddp_range_open("forward", (int64_t)replica->micro.micro_batch);
    status = train_forward(replica);
    ddp_range_close();
    return status;
}

ddp_status_t ddp_dp_evaluate_job(ddp_replica_t *replica)
{
    const ddp_tape_begin_t begin  = {.training = false};
    ddp_status_t           status = DDP_OK;

    DDP_TRY(replicate(replica));
    DDP_TRY(scatter(replica));
    (void)ddp_dp_enter(replica, DDP_DP_FORWARD);
    DDP_TRY(run_forward(replica, &begin));
    (void)ddp_dp_enter(replica, DDP_DP_LOSS);
    DDP_TRY(take_loss(replica));
    DDP_TRY(ddp_stream_read(replica->stream, &replica->sums, replica->stats, sizeof(replica->sums)));
out:
    return status;
}

/* On the output device: the targets of all micro-batches of the round. */
static ddp_status_t collect_targets(ddp_replica_t *output, size_t n)
{
    ddp_dp_t    *dp     = output->dp;
    ddp_status_t status = DDP_OK;

    for (size_t i = 0; i < dp->params.n_inputs; i++) {
        size_t bytes = 0;
        size_t at    = 0;

        if (!dp->replica[0].fetched[i].is_target) {
            continue;
        }
        for (size_t k = 0; k < n; k++) {
            bytes += dp->replica[k].micro.n * dp->replica[k].fetched[i].row_bytes;
        }
        if (!reads_host(output)) {
            DDP_TRY(ddp_dp_buffer_need(output, &output->target[i], "targets", bytes));
        }
        for (size_t k = 0; k < n; k++) {
            ddp_replica_t *replica = &dp->replica[k];
            const size_t   part    = replica->micro.n * replica->fetched[i].row_bytes;

            replica->loss_inputs[i] = replica->fetched[i].data;
            if (!reads_host(output)) {
                char *to = (char *)output->target[i].memory + at;

                DDP_TRY(ddp_stream_copy(output->stream, to, replica->fetched[i].data, part));
                replica->loss_inputs[i] = to;
            }
            at += part;
        }
        output->received_bytes[DDP_DP_SCATTER] += reads_host(output) ? 0 : bytes;
    }
    DDP_TRY(ddp_stream_synchronize(output->stream, -1));
out:
    return status;
}

static ddp_status_t gather(ddp_replica_t *output, size_t n)
{
    ddp_dp_t    *dp     = output->dp;
    ddp_status_t status = DDP_OK;
    size_t       total  = 0;
    size_t       at     = 0;

    for (size_t k = 0; k < n; k++) {
        total += dp->replica[k].output->count;
    }
    DDP_TRY(ddp_dp_buffer_need(output, &output->gathered_memory, "gathered outputs", total * sizeof(float)));
    for (size_t k = 0; k < n; k++) {
        ddp_replica_t *replica = &dp->replica[k];
        const size_t   bytes   = replica->output->count * sizeof(float);

        replica->gathered = (float *)output->gathered_memory.memory + at;
        DDP_TRY(ddp_stream_copy(output->stream, replica->gathered, replica->output->data, bytes));
        at += replica->output->count;
        if (replica != output) {
            output->received_bytes[DDP_DP_GATHER] += bytes;
            replica->gathered_bytes += bytes;
        }
    }
    DDP_TRY(ddp_stream_synchronize(output->stream, -1));
out:
    return status;
}

/* Parameters of a loss would have no gradient anywhere. */
static ddp_status_t check_no_parameters(const ddp_replica_t *output, const ddp_tape_t *tape)
{
    ddp_status_t status = DDP_OK;

    ddp_tape_used(tape, output->loss_used);
    for (size_t i = 0; i < output->dp->n_tensors; i++) {
        DDP_REQUIRE(output->loss_used[i] == 0, DDP_ERR_INVALID_ARG,
                    "the loss uses parameter '%s'; with the loss outside of the replicas only forward may",
                    ddp_params_descs(output->params)[i].name);
    }
out:
    return status;
}

/* Of replica's part of the gathered output, and its gradient. */
static ddp_status_t outer_loss(ddp_replica_t *output, ddp_replica_t *replica)
{
    const ddp_dp_t        *dp    = output->dp;
    ddp_tape_t            *tape  = output->loss_tapes[replica->index];
    const ddp_tape_begin_t begin = {
        .training = true, .seed = dp->params.seed, .step = dp->step, .first_row = replica->micro.first_row};
    ddp_tensor_t *y = NULL;
    const void   *inputs[DDP_DP_MAX_INPUTS];
    ddp_status_t  status = DDP_OK;

    hide_samples(replica, replica->loss_inputs, inputs);
    replica->stats = NULL;
    ddp_tape_set_loss_scale(tape, dp->loss_scale);
    DDP_TRY(ddp_tape_begin(tape, &begin));
    DDP_TRY(ddp_tape_variable(tape, replica->gathered, replica->output->ndim, replica->output->shape, &y));
    DDP_TRY(dp->params.loss(dp->params.ctx, tape, &replica->micro, inputs, y, &replica->stats));
    DDP_REQUIRE(replica->stats != NULL, DDP_ERR_INVALID_ARG, "loss gave no sums");
    DDP_TRY(check_no_parameters(output, tape));
    DDP_TRY(ddp_tape_backward(tape));
    DDP_REQUIRE(y->grad != NULL, DDP_ERR_INVALID_ARG, "the loss does not depend on the output");
    replica->loss_grad = y->grad;
    replica->scale     = 1.0F;
out:
    return status;
}

ddp_status_t ddp_dp_loss_job(ddp_replica_t *output)
{
    ddp_dp_t    *dp     = output->dp;
    const size_t n      = dp->n_busy;
    ddp_status_t status = DDP_OK;
    int64_t      start  = ddp_dp_enter(output, DDP_DP_GATHER);

    DDP_TRY(gather(output, n));
    DDP_TRY(collect_targets(output, n));
    ddp_dp_leave(output, DDP_DP_GATHER, start);
    start = ddp_dp_enter(output, DDP_DP_LOSS);
    for (size_t k = 0; k < n; k++) {
        DDP_TRY(outer_loss(output, &dp->replica[k]));
    }
    for (size_t k = 0; k < n; k++) {
        DDP_TRY(ddp_stream_read(output->stream, &dp->stats[dp->replica[k].micro.micro_batch],
                                dp->replica[k].stats, sizeof(*dp->stats)));
    }
    ddp_dp_leave(output, DDP_DP_LOSS, start);
out:
    return status;
}

/* The gradient of the output comes back from where the loss was taken. */
static ddp_status_t fetch_gradient(ddp_replica_t *replica, const float **grad_p)
{
    const size_t  bytes  = replica->output->count * sizeof(float);
    ddp_status_t  status = DDP_OK;
    const int64_t start  = ddp_dp_enter(replica, DDP_DP_LOSS);

    *grad_p = replica->loss_grad;
    if (replica->index != replica->dp->output) {
        DDP_TRY(ddp_dp_buffer_need(replica, &replica->output_grad, "the gradient of the output", bytes));
        DDP_TRY(ddp_stream_copy(replica->stream, replica->output_grad.memory, replica->loss_grad, bytes));
        DDP_TRY(ddp_stream_synchronize(replica->stream, -1));
        replica->received_bytes[DDP_DP_LOSS] += bytes;
        *grad_p = replica->output_grad.memory;
    }
    ddp_dp_leave(replica, DDP_DP_LOSS, start);
out:
    return status;
}

ddp_status_t ddp_dp_backward_job(ddp_replica_t *replica)
{
    ddp_status_t status = DDP_OK;
    const float *grad   = NULL;
    int64_t      start;

    ddp_range_open("backward", (int64_t)replica->micro.micro_batch);
    if (!ddp_dp_is_inside(replica->dp)) {
        DDP_TRY(fetch_gradient(replica, &grad));
    }
    start = ddp_dp_enter(replica, DDP_DP_BACKWARD);
    if (grad != NULL) {
        DDP_TRY(ddp_tape_backward_from(replica->tape, replica->output, grad));
    } else {
        DDP_TRY(ddp_tape_backward(replica->tape));
    }
    DDP_TRY(ddp_stream_synchronize(replica->stream, -1));
    ddp_dp_leave(replica, DDP_DP_BACKWARD, start);
out:
    ddp_range_close();
    return status;
}
