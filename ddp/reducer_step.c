/* The protocol of a step, the same for all paths: which arena, which bucket is complete. */
#include <string.h>

#include "base/clock.h"
#include "base/convert.h"
#include "base/error.h"
#include "ddp/reducer_path_internal.h"
#include "kernels/ranges.h"

static ddp_status_t launch(ddp_reducer_t *r, size_t b)
{
    ddp_status_t status;

    ddp_range_open("bucket", (int64_t)b);
    status = r->path->launch(r, b);
    ddp_range_close();
    return status;
}

/* All gradients of the bucket are there for this micro-batch: merge subtrees; after the last one the bucket
 * is final. */
static ddp_status_t complete_bucket(ddp_reducer_t *r, size_t b)
{
    ddp_status_t status = DDP_OK;

    for (size_t i = 0; i < r->n_merges; i++) {
        DDP_TRY(r->path->merge(r, b, r->merges[i]));
    }
    if (r->leaves_left == 1) {
        ddp_comm_at(r->comm, r->step, DDP_STAGE_BACKWARD, (uint32_t)b);
        DDP_TRY(launch(r, b));
    }
out:
    return status;
}

static ddp_status_t advance(ddp_reducer_t *r)
{
    ddp_status_t status = DDP_OK;

    while (r->next_bucket < r->n_buckets && r->buckets[r->next_bucket].pending == 0) {
        DDP_TRY(complete_bucket(r, r->next_bucket));
        r->next_bucket++;
    }
out:
    return status;
}

/* A rank without samples in this step still takes part: its flags say so at once. */
static ddp_status_t launch_nothing(ddp_reducer_t *r)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(r->path->sums(r));
    for (size_t b = 0; b < r->n_buckets; b++) {
        DDP_TRY(launch(r, b));
    }
    DDP_TRY(r->path->end(r));
out:
    return status;
}

static ddp_status_t count_present(const ddp_reducer_t *r, const ddp_step_t *step, size_t *present_p)
{
    ddp_status_t status  = DDP_OK;
    const size_t V       = r->params.micro_batches;
    size_t       present = step->samples < V ? step->samples : V;

    if (step->part_samples != NULL) {
        for (present = 0; present < V && step->part_samples[present] > 0; present++) {
        }
        for (size_t v = present; v < V; v++) {
            DDP_REQUIRE(step->part_samples[v] == 0, DDP_ERR_INVALID_ARG,
                        "micro-batch %zu has samples after the empty micro-batch %zu", v, present);
        }
    }
    DDP_REQUIRE(present > 0, DDP_ERR_INVALID_ARG, "a step needs at least one sample");
    *present_p = present;
out:
    return status;
}

ddp_status_t ddp_reducer_step_begin(ddp_reducer_t *r, const ddp_step_t *step)
{
    ddp_status_t status  = DDP_OK;
    size_t       present = 0;

    DDP_REQUIRE(r->state == DDP_REDUCER_IDLE, DDP_ERR_STATE, "step_begin inside a step");
    DDP_TRY(count_present(r, step, &present));
    ddp_comm_at(r->comm, r->step + 1, DDP_STAGE_FORWARD, DDP_NO_BUCKET);
    DDP_TRY(r->path->step_begin(r, present));
    r->step++;
    r->state           = DDP_REDUCER_STEP;
    r->stack           = (ddp_stack_t){.depth = 0};
    r->sums.lr         = step->lr;
    r->sums.request    = step->request;
    r->wants_norm      = step->grad_norm;
    r->comm_ns         = 0;
    r->hidden_comm_ns  = 0;
    r->begin_ns        = ddp_clock_ns();
    r->backward_end_ns = r->begin_ns;
    ddp_partition(r->params.micro_batches, (size_t)r->size, (size_t)r->rank, &r->first_leaf, &r->n_leaves);
    r->leaf        = r->first_leaf;
    r->leaves_left = r->first_leaf >= present                ? 0
                     : r->first_leaf + r->n_leaves > present ? present - r->first_leaf
                                                             : r->n_leaves;
    if (r->leaves_left == 0) {
        DDP_TRY(launch_nothing(r));
    }
out:
    return status;
}

ddp_status_t ddp_reducer_micro_begin(ddp_reducer_t *r, size_t micro_batch, float **grads_p,
                                     bool *accumulate_p)
{
    ddp_status_t status = DDP_OK;
    uint32_t     arena  = 0;

    DDP_REQUIRE(r->state == DDP_REDUCER_STEP, DDP_ERR_STATE,
                "micro_begin outside of a step, or inside a micro-batch");
    DDP_REQUIRE(r->leaves_left > 0 && micro_batch == r->leaf, DDP_ERR_STATE,
                "micro-batch %zu is not the next of this rank: its range is %zu to %zu, %zu are left",
                micro_batch, r->first_leaf, r->first_leaf + r->n_leaves - 1, r->leaves_left);
    r->n_merges   = 0;
    r->accumulate = r->params.reduction == DDP_REDUCTION_FAST && micro_batch != r->first_leaf;
    if (r->params.reduction == DDP_REDUCTION_EXACT) {
        arena = ddp_stack_push(&r->stack, r->present, micro_batch, r->merges, &r->n_merges);
    }
    r->grads       = r->grads_base + arena * r->total;
    r->next_bucket = 0;
    for (size_t b = 0; b < r->n_buckets; b++) {
        r->buckets[b].pending = r->buckets[b].range.n;
    }
    memset(r->is_ready, 0, r->params.n_tensors);
    r->state = DDP_REDUCER_FORWARD;
    ddp_comm_at(r->comm, r->step, DDP_STAGE_FORWARD, DDP_NO_BUCKET);
    *grads_p      = r->grads;
    *accumulate_p = r->accumulate;
out:
    return status;
}

static void mark_ready(ddp_reducer_t *r, size_t tensor)
{
    r->is_ready[tensor] = 1;
    r->buckets[r->bucket_of[tensor]].pending--;
}

/* A frozen tensor's gradient is never written, so it stays the zeros that the memory began with. */
static ddp_status_t check_used(const ddp_reducer_t *r, const uint8_t *used)
{
    ddp_status_t status = DDP_OK;

    for (size_t i = 0; i < r->params.n_tensors; i++) {
        DDP_REQUIRE(!r->tensors[i].frozen || !used[i], DDP_ERR_STATE,
                    "'%s' is frozen, but declared used: it has no gradient", r->tensors[i].name);
    }
out:
    return status;
}

ddp_status_t ddp_reducer_forward_done(ddp_reducer_t *r, const ddp_loss_stats_t *stats, const uint8_t *used)
{
    ddp_status_t status = DDP_OK;

    DDP_REQUIRE(r->state == DDP_REDUCER_FORWARD, DDP_ERR_STATE, "forward_done without micro_begin");
    DDP_TRY(check_used(r, used));
    r->state = DDP_REDUCER_BACKWARD;
    ddp_comm_at(r->comm, r->step, DDP_STAGE_BACKWARD, DDP_NO_BUCKET);
    for (size_t i = 0; i < r->params.n_tensors; i++) {
        r->used[i] = used[i] != 0;
    }
    DDP_TRY(r->path->forward_done(r, stats));
    for (size_t i = 0; i < r->params.n_tensors; i++) {
        if (r->used[i]) {
            continue;
        }
        if (!r->accumulate && !r->tensors[i].frozen) { /* counts as a gradient of zeros */
            DDP_TRY(ddp_op_fill(r->compute, r->grads + r->tensors[i].offset, r->tensors[i].count, 0.0F));
        }
        mark_ready(r, i);
    }
    if (r->leaves_left == 1) {
        DDP_TRY(r->path->sums(r));
    }
    DDP_TRY(advance(r));
out:
    return status;
}

ddp_status_t ddp_reducer_ready(ddp_reducer_t *r, size_t tensor)
{
    ddp_status_t status = DDP_OK;

    DDP_REQUIRE(r->state == DDP_REDUCER_BACKWARD, DDP_ERR_STATE, "ready without forward_done");
    DDP_REQUIRE(tensor < r->params.n_tensors, DDP_ERR_INVALID_ARG, "tensor %zu of %zu", tensor,
                r->params.n_tensors);
    DDP_REQUIRE(r->used[tensor], DDP_ERR_STATE, "gradient of '%s' is ready, but forward did not use it",
                r->tensors[tensor].name);
    DDP_REQUIRE(!r->is_ready[tensor], DDP_ERR_STATE, "gradient of '%s' is ready twice",
                r->tensors[tensor].name);
    ddp_comm_progressed(r->comm); /* a bucket may take longer than the timeout, a tensor should not */
    mark_ready(r, tensor);
    DDP_TRY(advance(r));
out:
    return status;
}

ddp_status_t ddp_reducer_micro_end(ddp_reducer_t *r)
{
    ddp_status_t status = DDP_OK;

    DDP_REQUIRE(r->state == DDP_REDUCER_BACKWARD, DDP_ERR_STATE, "micro_end without forward_done");
    for (size_t i = 0; i < r->params.n_tensors; i++) {
        DDP_REQUIRE(r->is_ready[i], DDP_ERR_STATE, "gradient of '%s' never became ready: forward used it",
                    r->tensors[i].name);
    }
    r->state = DDP_REDUCER_STEP;
    r->leaf++;
    r->leaves_left--;
    if (r->leaves_left == 0) {
        DDP_TRY(r->path->end(r));
    }
out:
    return status;
}

ddp_status_t ddp_reducer_step_end(ddp_reducer_t *r, ddp_step_result_t *result_p)
{
    ddp_status_t status = DDP_OK;

    DDP_REQUIRE(r->state == DDP_REDUCER_STEP && r->leaves_left == 0, DDP_ERR_STATE,
                "step_end before the last micro-batch: %zu are left", r->leaves_left);
    ddp_comm_at(r->comm, r->step, DDP_STAGE_REDUCE, DDP_NO_BUCKET);
    DDP_TRY(r->path->wait(r));
    r->state = DDP_REDUCER_IDLE;
    DDP_TRY(ddp_reducer_check_sums(r));
    for (size_t i = 0; i < r->params.n_tensors; i++) {
        r->steps[i] += r->sums.update && r->used_any[i] ? 1 : 0;
    }
    *result_p = (ddp_step_result_t){
        .loss            = r->sums.weight > 0 ? r->sums.loss / r->sums.weight : 0,
        .weight          = r->sums.weight,
        .correct         = r->sums.correct,
        .counted         = r->sums.counted,
        .grad_norm       = r->sums.grad_norm,
        .skipped         = !r->sums.update,
        .not_finite      = ddp_reducer_not_finite(r),
        .request         = r->sums.request,
        .comm_ns         = r->comm_ns,
        .exposed_comm_ns = r->end_ns > r->backward_end_ns ? r->end_ns - r->backward_end_ns : 0,
        .exposed_work_ns = r->comm_ns - r->hidden_comm_ns,
        .slowest_rank    = r->slowest_rank,
        .spread_ns       = r->spread_ns,
        .loss_scale      = r->loss_scale.scale,
        .wire_overflows  = r->wire_overflows,
    };
    ddp_reducer_adapt_scale(r);
    if (r->params.checksum_every > 0 && r->step % r->params.checksum_every == 0) {
        DDP_TRY(ddp_reducer_finish(r));
        DDP_TRY(ddp_reducer_check_replicas(r));
    }
out:
    return status;
}

size_t ddp_reducer_bucket_times(ddp_reducer_t *r, ddp_bucket_times_t *times, size_t capacity)
{
    if (capacity > 0 && r->path->times != NULL) {
        ddp_ignore(r->path->times(r), "old times are all there is then");
    }
    for (size_t b = 0; b < r->n_buckets && b < capacity; b++) {
        const ddp_bucket_t *bucket = &r->buckets[b];

        times[b] = (ddp_bucket_times_t){.ready_ns    = bucket->ready_ns - r->begin_ns,
                                        .launched_ns = bucket->launched_ns - r->begin_ns,
                                        .done_ns     = bucket->done_ns - r->begin_ns};
    }
    return r->n_buckets;
}

ddp_status_t ddp_reducer_finish(ddp_reducer_t *r)
{
    ddp_status_t status = DDP_OK;

    DDP_REQUIRE(r->state == DDP_REDUCER_IDLE, DDP_ERR_STATE, "finish inside a step");
    DDP_TRY(r->path->finish(r));
out:
    return status;
}

void ddp_reducer_traffic(const ddp_reducer_t *r, uint64_t *from)
{
    memset(from, 0, (size_t)r->size * sizeof(*from));
    r->path->traffic(r, from);
}

ddp_status_t ddp_reducer_grad_norm(ddp_reducer_t *r, double *norm_p)
{
    ddp_status_t status = DDP_OK;

    DDP_REQUIRE(r->step > 0, DDP_ERR_STATE, "there is no gradient norm before the first step");
    DDP_TRY(ddp_reducer_finish(r));
    DDP_TRY(r->path->grad_norm(r, norm_p));
out:
    return status;
}
