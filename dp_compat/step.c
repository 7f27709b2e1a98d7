/* A step: rounds of micro-batches on all devices, and the reducer of device 0, to which everything comes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/convert.h"
#include "dp_compat/dp_internal.h"
#include "kernels/optim.h"

static bool is_average(const ddp_dp_t *dp, size_t tensor)
{
    return ddp_params_descs(dp->params.params)[tensor].role == DDP_TENSOR_AVERAGE;
}

/* With several devices running averages are not the reducer's: see sum_averages(). */
static void forget_averages(const ddp_dp_t *dp, uint8_t *used)
{
    for (size_t i = 0; dp->n > 1 && i < dp->n_tensors; i++) {
        used[i] = is_average(dp, i) ? 0 : used[i];
    }
}

/* dst = scale * src, whole blocks; src may be dst */
typedef struct scale_args {
    float       *dst;
    const float *src;
    float        scale;
    size_t       blocks;
    ddp_isa_t    isa;
} scale_args_t;

static ddp_status_t scale_work(void *args)
{
    static const int32_t     push_first[1] = {0};
    const scale_args_t      *a             = args;
    const ddp_tree_program_t program       = {push_first, 1, &a->src, &a->scale};

    ddp_tree_sum(a->isa, &program, a->dst, a->blocks);
    return DDP_OK;
}

static ddp_status_t submit_scale(const ddp_replica_t *first, float *dst, const float *src, float scale,
                                 size_t count)
{
    scale_args_t args = {dst, src, scale, ddp_block_round(count) / DDP_BLOCK, ddp_device_isa(first->device)};
    ddp_status_t status = DDP_OK;

    if (first->dp->is_cuda) {
        if (dst != src) {
            DDP_TRY(ddp_stream_copy(first->stream, dst, src, count * sizeof(float)));
        }
        DDP_TRY(ddp_op_scale(first->stream, scale, dst, count));
        goto out;
    }
    status = ddp_stream_submit(first->stream, "mean of a replica", scale_work, &args, sizeof(args));
out:
    return status;
}

/* Backward of device 0 writes where the reducer wants it. */
static ddp_status_t on_ready(void *dp_p, size_t tensor)
{
    ddp_dp_t      *dp     = dp_p;
    ddp_replica_t *first  = &dp->replica[0];
    ddp_status_t   status = DDP_OK;

    if (first->used[tensor] == 0) {
        return DDP_OK;
    }
    if (first->scale != 1.0F && !is_average(dp, tensor)) {
        float *grad = ddp_params_grad(first->params, tensor);

        DDP_TRY(submit_scale(first, grad, grad, first->scale, ddp_params_descs(first->params)[tensor].count));
    }
    DDP_TRY(ddp_reducer_ready(dp->reducer, tensor));
out:
    return status;
}

/* In torch.nn.DataParallel buffers of the other replicas are dropped after forward: what counts is the
 * statistic of device 0, and where a step has several rounds their mean. It is taken out of the gradient
 * arena before the reducer sees it. */
static ddp_status_t sum_averages(ddp_dp_t *dp)
{
    ddp_replica_t *first  = &dp->replica[0];
    ddp_status_t   status = DDP_OK;

    for (size_t i = 0; i < dp->n_tensors; i++) {
        const size_t count = ddp_params_descs(first->params)[i].count;
        const float *grad  = ddp_params_grad(first->params, i);

        if (dp->average[i] == NULL || first->used[i] == 0) {
            continue;
        }
        if (dp->average_parts[i]++ == 0) {
            DDP_TRY(ddp_stream_copy(first->stream, dp->average[i], grad, count * sizeof(float)));
        } else {
            DDP_TRY(ddp_op_axpy(first->stream, 1.0F, grad, dp->average[i], count));
        }
    }
out:
    return status;
}

static bool is_finite(const float *x, size_t count)
{
    size_t i = 0;

    while (i < count && isfinite(x[i])) {
        i++;
    }
    return i == count;
}

/* value = the running average of tensor i after the mean of the sums in `sum`; whole blocks, host memory. */
static void average(const ddp_dp_t *dp, size_t i, const float *sum, float *value)
{
    static const int32_t     push_first[1] = {0};
    const ddp_tensor_desc_t *desc          = &ddp_params_descs(dp->params.params)[i];
    const ddp_tree_program_t program       = {push_first, 1, &sum, NULL};

    (void)ddp_tree_average(ddp_device_isa(dp->replica[0].device), &program, value, desc->momentum,
                           dp->average_parts[i], NULL, ddp_block_round(desc->count) / DDP_BLOCK);
}

/* The same of a GPU's: they are small, so the host does it. */
static ddp_status_t average_there(ddp_dp_t *dp, size_t i, bool *is_finite_p)
{
    const ddp_replica_t *first  = &dp->replica[0];
    const size_t         count  = ddp_params_descs(first->params)[i].count;
    const size_t         room   = ddp_block_round(count);
    float               *value  = ddp_params_value(first->params, i);
    float               *host   = dp->h_average;
    ddp_status_t         status = DDP_OK;

    memset(host, 0, 2 * room * sizeof(*host)); /* whole blocks are averaged */
    DDP_TRY(ddp_stream_read(first->stream, host, value, count * sizeof(*host)));
    DDP_TRY(ddp_stream_read(first->stream, host + room, dp->average[i], count * sizeof(*host)));
    *is_finite_p = is_finite(host + room, count);
    if (*is_finite_p) {
        average(dp, i, host + room, host);
        DDP_TRY(ddp_stream_copy(first->stream, value, host, count * sizeof(*host)));
        DDP_TRY(ddp_stream_synchronize(first->stream, -1));
    }
out:
    return status;
}

/* As the reducer would; where it would skip a step for a statistic that is not finite, that one is left
 * alone. */
static ddp_status_t update_averages(ddp_dp_t *dp)
{
    ddp_replica_t *first  = &dp->replica[0];
    ddp_status_t   status = DDP_OK;

    for (size_t i = 0; i < dp->n_tensors; i++) {
        const ddp_tensor_desc_t *desc   = &ddp_params_descs(first->params)[i];
        bool                     is_sum = false; /* a number */

        if (dp->average[i] == NULL || dp->average_parts[i] == 0) {
            continue;
        }
        if (dp->is_cuda) {
            DDP_TRY(average_there(dp, i, &is_sum));
        } else {
            is_sum = is_finite(dp->average[i], desc->count);
            if (is_sum) {
                average(dp, i, dp->average[i], ddp_params_value(first->params, i));
            }
        }
        if (!is_sum) {
            DDP_REQUIRE(dp->params.reducer.nonfinite == DDP_NONFINITE_SKIP, DDP_ERR_NOT_FINITE,
                        "running average '%s' is not finite at step %llu; lower optimizer.lr, set "
                        "optimizer.clip_norm, or train.nonfinite skip",
                        desc->name, (unsigned long long)dp->step + 1);
        }
    }
out:
    return status;
}

/* Sums of the loss of the replica's micro-batch, for the reducer: in memory of device 0. */
static ddp_status_t give_stats(ddp_dp_t *dp, const ddp_replica_t *replica)
{
    const size_t            v      = replica->micro.micro_batch;
    const ddp_loss_stats_t *stats  = &dp->stats[v];
    ddp_status_t            status = DDP_OK;

    if (dp->is_cuda) {
        ddp_loss_stats_t *there = (ddp_loss_stats_t *)dp->leaf_stats.memory + v;

        DDP_TRY(ddp_stream_copy(dp->replica[0].stream, there, stats, sizeof(*stats)));
        stats = there;
    }
    DDP_TRY(ddp_reducer_forward_done(dp->reducer, stats, replica->used));
out:
    return status;
}

static ddp_status_t first_forward_job(ddp_replica_t *first)
{
    ddp_dp_t    *dp     = first->dp;
    ddp_status_t status = DDP_OK;
    float       *grads  = NULL;

    DDP_TRY(ddp_reducer_micro_begin(dp->reducer, first->micro.micro_batch, &grads, &first->accumulates));
    ddp_params_bind(first->params, NULL, grads);
    DDP_TRY(ddp_dp_forward_job(first));
    if (dp->has_averages) {
        DDP_TRY(sum_averages(dp));
    }
    forget_averages(dp, first->used);
out:
    return status;
}

static ddp_status_t first_backward_job(ddp_replica_t *first)
{
    ddp_dp_t    *dp     = first->dp;
    ddp_status_t status = DDP_OK;

    ddp_tape_set_ready(first->tape, on_ready, dp);
    DDP_TRY(give_stats(dp, first));
    DDP_TRY(ddp_dp_backward_job(first));
    DDP_TRY(ddp_reducer_micro_end(dp->reducer));
out:
    return status;
}

/* A tensor's gradient into the arena of its micro-batch. */
static ddp_status_t collect(ddp_dp_t *dp, const ddp_replica_t *replica, size_t tensor, float *grads,
                            bool accumulate)
{
    const ddp_replica_t     *first  = &dp->replica[0];
    const ddp_tensor_desc_t *desc   = &ddp_params_descs(first->params)[tensor];
    const float             *from   = replica->grads + desc->offset;
    float                   *to     = grads + desc->offset;
    ddp_status_t             status = DDP_OK;

    if (accumulate && dp->is_cuda) {
        DDP_TRY(ddp_stream_copy(first->stream, dp->staging.memory, from, desc->count * sizeof(float)));
        DDP_TRY(ddp_op_axpy(first->stream, 1.0F, dp->staging.memory, to, desc->count));
    } else if (accumulate) {
        DDP_TRY(ddp_op_axpy(first->stream, 1.0F, from, to, desc->count));
    } else if (replica->scale != 1.0F) {
        DDP_TRY(submit_scale(first, to, from, replica->scale, desc->count));
    } else {
        DDP_TRY(ddp_stream_copy(first->stream, to, from, desc->count * sizeof(float)));
    }
    DDP_TRY(ddp_reducer_ready(dp->reducer, tensor));
out:
    return status;
}

/* What the other device's micro-batch gave, to the reducer. */
static ddp_status_t reduce(ddp_dp_t *dp, ddp_replica_t *replica)
{
    ddp_status_t   status     = DDP_OK;
    ddp_replica_t *first      = &dp->replica[0];
    float         *grads      = NULL;
    bool           accumulate = false;

    forget_averages(dp, replica->used);
    DDP_TRY(ddp_reducer_micro_begin(dp->reducer, replica->micro.micro_batch, &grads, &accumulate));
    DDP_TRY(give_stats(dp, replica));
    for (size_t i = dp->n_tensors; i-- > 0;) { /* in the order in which backward has them ready */
        if (replica->used[i] != 0) {
            DDP_TRY(collect(dp, replica, i, grads, accumulate));
            first->received_bytes[DDP_DP_REDUCE] += ddp_params_descs(first->params)[i].count * sizeof(float);
            replica->reduced_bytes += ddp_params_descs(first->params)[i].count * sizeof(float);
            ddp_dp_progressed(first);
        }
    }
    DDP_TRY(ddp_reducer_micro_end(dp->reducer));
out:
    return status;
}

static ddp_status_t reduce_all(ddp_dp_t *dp)
{
    ddp_replica_t *first  = &dp->replica[0];
    ddp_status_t   status = DDP_OK;
    const int64_t  start  = ddp_dp_enter(first, DDP_DP_REDUCE);

    for (size_t k = 1; k < dp->n_busy; k++) {
        DDP_TRY(reduce(dp, &dp->replica[k]));
    }
    DDP_TRY(ddp_stream_synchronize(first->stream, -1)); /* replicas write their gradients again */
    ddp_dp_leave(first, DDP_DP_REDUCE, start);
out:
    return status;
}

#define SHAPE_TEXT_SIZE 96

/* "[16, 10]" */
static const char *shape_text(const ddp_tensor_t *tensor, char text[SHAPE_TEXT_SIZE])
{
    int used = snprintf(text, SHAPE_TEXT_SIZE, "[");

    for (size_t i = 0; i < tensor->ndim; i++) {
        used += snprintf(text + used, SHAPE_TEXT_SIZE - (size_t)used, "%s%zu", i > 0 ? ", " : "",
                         tensor->shape[i]);
    }
    snprintf(text + used, SHAPE_TEXT_SIZE - (size_t)used, "]");
    return text;
}

static ddp_status_t check_shapes(const ddp_dp_t *dp)
{
    char                a[SHAPE_TEXT_SIZE], b[SHAPE_TEXT_SIZE];
    const ddp_tensor_t *first  = dp->replica[0].output;
    ddp_status_t        status = DDP_OK;

    for (size_t k = 0; k < dp->n_busy; k++) {
        const ddp_replica_t *replica = &dp->replica[k];
        const ddp_tensor_t  *y       = replica->output;

        DDP_REQUIRE(y->shape[0] == replica->micro.n, DDP_ERR_INVALID_ARG,
                    "%s: forward gave an output %s of %zu samples; its first dimension is the samples",
                    replica->name, shape_text(y, a), replica->micro.n);
        DDP_REQUIRE(y->ndim == first->ndim &&
                        memcmp(y->shape + 1, first->shape + 1, (y->ndim - 1) * sizeof(y->shape[0])) == 0,
                    DDP_ERR_INVALID_ARG, "%s gives an output %s, %s %s: only the first dimension may differ",
                    replica->name, shape_text(y, a), dp->replica[0].name, shape_text(first, b));
    }
out:
    return status;
}

static ddp_status_t run_round(ddp_dp_t *dp)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(ddp_dp_on_all(dp, first_forward_job, ddp_dp_forward_job));
    if (!ddp_dp_is_inside(dp)) {
        DDP_TRY(check_shapes(dp));
        DDP_TRY(ddp_dp_on_output(dp, ddp_dp_loss_job));
    }
    DDP_TRY(ddp_dp_on_all(dp, first_backward_job, ddp_dp_backward_job));
    if (dp->n_busy > 1) {
        DDP_TRY(reduce_all(dp));
    }
out:
    return status;
}

/* Whose samples micro-batch v has, in the step's sizes. */
static void find_micro(const ddp_dp_t *dp, const ddp_step_t *step, size_t v, ddp_micro_t *micro)
{
    *micro = (ddp_micro_t){.step = dp->step, .micro_batch = v};
    if (v >= dp->params.reducer.micro_batches) {
        return;
    }
    if (step->part_samples == NULL) {
        ddp_partition(step->samples, dp->params.reducer.micro_batches, v, &micro->first_row, &micro->n);
        return;
    }
    for (size_t u = 0; u < v; u++) {
        micro->first_row += step->part_samples[u];
    }
    micro->n = step->part_samples[v];
}

/* Deal a round's micro-batches to the devices. Those with samples come first. */
static ddp_status_t deal(ddp_dp_t *dp, const ddp_step_t *step)
{
    ddp_replica_t *first  = &dp->replica[0];
    ddp_status_t   status = DDP_OK;
    const int64_t  start  = ddp_dp_enter(first, DDP_DP_SCATTER);

    dp->n_busy = 0;
    for (size_t k = 0; k < dp->n; k++) {
        ddp_replica_t *replica = &dp->replica[k];

        find_micro(dp, step, dp->round * dp->n + k, &replica->micro);
        if (replica->micro.n == 0) {
            break;
        }
        DDP_TRY(ddp_dp_fetch(replica, dp->params.fetch, dp->params.ctx));
        dp->n_busy++;
    }
    if (dp->n_busy > 0) {
        ddp_dp_leave(first, DDP_DP_SCATTER, start);
    }
out:
    return status;
}

static ddp_status_t run_step(ddp_dp_t *dp, const ddp_step_t *step, ddp_step_result_t *result_p)
{
    const size_t      V      = dp->params.reducer.micro_batches;
    ddp_status_t      status = DDP_OK;
    ddp_step_result_t result;
    int64_t           start;

    if (dp->is_cuda) { /* other devices copy the parameters: their streams do not wait for updates by
                          themselves */
        DDP_TRY(ddp_reducer_finish(dp->reducer));
    }
    DDP_TRY(ddp_reducer_step_begin(dp->reducer, step));
    dp->loss_scale = ddp_reducer_loss_scale(dp->reducer).scale;
    memset(dp->average_parts, 0, dp->n_tensors * sizeof(*dp->average_parts));
    for (dp->round = 0; dp->round * dp->n < V; dp->round++) {
        dp->replicates = dp->round == 0;
        DDP_TRY(deal(dp, step));
        if (dp->n_busy == 0) {
            break;
        }
        DDP_TRY(run_round(dp));
    }
    dp->rounds = dp->round;
    start      = ddp_dp_enter(&dp->replica[0], DDP_DP_OPTIMIZER);
    DDP_TRY(ddp_reducer_step_end(dp->reducer, &result));
    if (dp->has_averages && !result.skipped) {
        DDP_TRY(update_averages(dp));
    }
    ddp_dp_report_end(dp, start, result.comm_ns);
    *result_p = result;
out:
    return status;
}

ddp_status_t ddp_dp_step(ddp_dp_t *dp, const ddp_step_t *step, ddp_step_result_t *result_p)
{
    ddp_status_t status = DDP_OK;

    DDP_REQUIRE(dp->failed == DDP_OK, DDP_ERR_STATE, "an earlier step has failed: there is no further one");
    ddp_dp_report_begin(dp);
    atomic_store(&dp->step_now, dp->step);
    atomic_store(&dp->is_working, true);
    status = run_step(dp, step, result_p);
    atomic_store(&dp->is_working, false);
    dp->failed = status;
    if (status == DDP_OK) { /* else somebody who hangs may still read it */
        dp->step++;
    }
out:
    return status;
}

void ddp_dp_set_step(ddp_dp_t *dp, uint64_t step)
{
    dp->step = step;
}
