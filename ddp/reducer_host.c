/* The `host` path: set-up, and what is submitted to which stream. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/convert.h"
#include "base/error.h"
#include "ddp/reducer_path_internal.h"

/* This rank's slice of each bucket, and which tensors lie in it. */
static ddp_status_t make_slices(ddp_reducer_t *r)
{
    ddp_status_t status = DDP_OK;
    size_t       used   = 0;

    r->host.segments = calloc(r->params.n_tensors, sizeof(*r->host.segments));
    DDP_REQUIRE(r->host.segments != NULL, DDP_ERR_NO_MEMORY, "no memory for slices");
    for (size_t b = 0; b < r->n_buckets; b++) {
        ddp_bucket_t *bucket = &r->buckets[b];
        size_t        first;
        size_t        end;

        ddp_partition(bucket->range.count / DDP_BLOCK, (size_t)r->local_size, (size_t)r->local_rank, &first,
                      &bucket->slice_blocks);
        bucket->slice_offset = bucket->range.offset + first * DDP_BLOCK;
        end                  = bucket->slice_offset + bucket->slice_blocks * DDP_BLOCK;
        bucket->segments     = r->host.segments + used;
        for (size_t p = bucket->range.first; p < bucket->range.first + bucket->range.n; p++) {
            const ddp_tensor_desc_t *tensor = &r->tensors[r->order[p]];
            const size_t             stop   = tensor->offset + ddp_block_round(tensor->count);
            const size_t low  = tensor->offset > bucket->slice_offset ? tensor->offset : bucket->slice_offset;
            const size_t high = stop < end ? stop : end;

            if (low < high) {
                bucket->segments[bucket->n_segments++] =
                    (ddp_segment_t){r->order[p], low, (high - low) / DDP_BLOCK};
            }
        }
        used += bucket->n_segments;
    }
out:
    return status;
}

/* Room for the plan of any number of present micro-batches: a short batch has no more nodes than a full one.
 */
static ddp_status_t make_tables(ddp_reducer_t *r)
{
    ddp_status_t status = DDP_OK;
    const size_t local  = (size_t)r->local_size * DDP_MAX_NODES;
    const size_t all    = local + (size_t)r->machines * 2 * DDP_MAX_NODES;

    r->host.arenas         = calloc((size_t)r->local_size, sizeof(*r->host.arenas));
    r->host.sources        = calloc(local, sizeof(*r->host.sources));
    r->host.source_scale   = calloc(local, sizeof(*r->host.source_scale));
    r->host.source_pointer = calloc(all, sizeof(*r->host.source_pointer));
    r->host.node_level     = calloc(all, sizeof(*r->host.node_level));
    r->host.node_index     = calloc(all, sizeof(*r->host.node_index));
    r->host.machine_nodes  = calloc((size_t)r->machines, sizeof(*r->host.machine_nodes));
    r->host.local          = calloc(2 * DDP_MAX_NODES, sizeof(*r->host.local));
    r->host.across.op      = calloc(2 * all, sizeof(*r->host.across.op));
    DDP_REQUIRE(r->host.arenas != NULL && r->host.sources != NULL && r->host.source_scale != NULL &&
                    r->host.source_pointer != NULL && r->host.node_level != NULL &&
                    r->host.node_index != NULL && r->host.machine_nodes != NULL && r->host.local != NULL &&
                    r->host.across.op != NULL,
                DDP_ERR_NO_MEMORY, "no memory for the reduction plan");
    for (size_t i = 0; i < 2 * DDP_MAX_NODES; i++) {
        r->host.local[i].op = calloc(2 * local, sizeof(*r->host.local[i].op));
        DDP_REQUIRE(r->host.local[i].op != NULL, DDP_ERR_NO_MEMORY, "no memory for the reduction plan");
    }
    r->host.sums_bytes =
        sizeof(ddp_sums_head_t) + r->params.micro_batches * sizeof(ddp_leaf_t) + r->params.n_tensors;
    r->host.sums_send     = calloc(1, r->host.sums_bytes);
    r->host.sums_received = calloc((size_t)r->machines, r->host.sums_bytes);
    r->host.sums_requests = calloc(2 * (size_t)r->machines, sizeof(*r->host.sums_requests));
    r->host.sums_peer     = calloc(2 * (size_t)r->machines, sizeof(*r->host.sums_peer));
    DDP_REQUIRE(r->host.sums_send != NULL && r->host.sums_received != NULL && r->host.sums_requests != NULL &&
                    r->host.sums_peer != NULL,
                DDP_ERR_NO_MEMORY, "no memory for the sums of a step");
out:
    return status;
}

static ddp_status_t make_parts(ddp_reducer_t *r)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(make_slices(r));
    DDP_TRY(make_tables(r));
    DDP_TRY(ddp_stream_create(r->device, "reduce", &r->host.reduce));
    DDP_TRY(ddp_event_create(r->device, &r->host.compute_point));
    DDP_TRY(ddp_event_create(r->device, &r->host.reduce_point));
out:
    return status;
}

static ddp_status_t host_create(ddp_reducer_t *r)
{
    ddp_status_t status = DDP_OK;

    r->host.isa = ddp_device_isa(r->device);
    DDP_TRY(ddp_comm_agree(r->comm, make_parts(r)));
    DDP_TRY(ddp_comm_agree(r->comm, ddp_reducer_plan_memory(r)));
    DDP_TRY(ddp_comm_agree(r->comm, ddp_reducer_plan_sources(r, r->params.micro_batches)));
    DDP_TRY(ddp_reducer_wire_measure(r));
    DDP_TRY(ddp_comm_agree(r->comm, ddp_reducer_wire_create(r)));
    r->grads_base = r->host.arenas[r->local_rank];
out:
    return status;
}

static void host_destroy(ddp_reducer_t *r)
{
    ddp_host_path_t *host = &r->host;

    ddp_stream_destroy(&host->wire);
    ddp_stream_destroy(&host->reduce);
    ddp_event_destroy(&host->compute_point);
    ddp_event_destroy(&host->reduce_point);
    ddp_reducer_wire_destroy(r);
    for (size_t i = 0; host->local != NULL && i < 2 * DDP_MAX_NODES; i++) {
        free(host->local[i].op);
    }
    if (r->state == DDP_REDUCER_IDLE || r->machines == 1) {
        free(host->sums_send);
        free(host->sums_received);
        free(host->sums_requests);
    } else { /* the step has failed: MPI may still read and write all that messages are about */
        ddp_comm_keep_memory(r->comm);
    }
    free(host->sums_peer);
    free(host->segments);
    free(host->arenas);
    free(host->sources);
    free(host->source_scale);
    free(host->source_pointer);
    free(host->node_level);
    free(host->node_index);
    free(host->machine_nodes);
    free(host->local);
    free(host->across.op);
}

static ddp_status_t host_publish(ddp_reducer_t *r)
{
    return ddp_comm_barrier(r->comm);
}

/* The flags of this rank say that all up to this step is done. */
static ddp_status_t host_restore(ddp_reducer_t *r)
{
    ddp_host_path_t *host = &r->host;

    host->broken_of[r->local_rank] = DDP_NO_TENSOR;
    ddp_comm_flag_set(r->comm, &host->forward_flag[r->local_rank], r->step);
    ddp_comm_flag_set(r->comm, &host->summed_flag[r->local_rank], r->step);
    ddp_comm_flag_set(r->comm, &host->done_flag[r->local_rank], r->step);
    for (size_t b = 0; b < r->n_buckets; b++) {
        ddp_comm_flag_set(r->comm, &host->ready_flag[(size_t)r->local_rank * r->n_buckets + b], r->step);
    }
    if (r->local_rank == 0) {
        ddp_comm_flag_set(r->comm, host->sums_flag, r->step);
    }
    return DDP_OK;
}

static ddp_status_t host_finish(ddp_reducer_t *r)
{
    ddp_status_t status = DDP_OK;
    const int    first  = ddp_comm_machine_first(r->comm, r->machine);

    for (int local = 0; local < r->local_size; local++) {
        const ddp_wait_t wait = {first + local, "updated parameters", r->step, (size_t)-1};

        DDP_TRY(ddp_comm_wait_flag(r->comm, &r->host.done_flag[local], r->step, wait));
    }
    DDP_TRY(ddp_reducer_check_updates(r));
out:
    return status;
}

static ddp_status_t host_step_begin(ddp_reducer_t *r, size_t present)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(host_finish(r));
    DDP_TRY(ddp_reducer_plan_sources(r, present));
    r->host.sums_stage = 0;
    r->host.broken     = DDP_NO_TENSOR;
    memset(r->host.used_rank + (size_t)r->local_rank * r->params.n_tensors, 0, r->params.n_tensors);
out:
    return status;
}

void ddp_reducer_host_note_used(ddp_reducer_t *r)
{
    uint8_t *mine = r->host.used_rank + (size_t)r->local_rank * r->params.n_tensors;

    for (size_t i = 0; i < r->params.n_tensors; i++) {
        mine[i] |= r->used[i];
    }
}

/* On the compute stream: the next micro-batch may use the same memory for its sums. */
static ddp_status_t host_forward_done(ddp_reducer_t *r, const ddp_loss_stats_t *stats)
{
    const ddp_leaf_args_t args = {r, r->leaf, stats};

    ddp_reducer_host_note_used(r);
    return ddp_stream_submit(r->compute, "loss of a micro-batch", ddp_reducer_leaf_work, &args, sizeof(args));
}

/* Later work of `stream` runs after what is on `before` now. */
static ddp_status_t order(ddp_stream_t *stream, ddp_stream_t *before, ddp_event_t *point)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(ddp_event_record(point, before));
    DDP_TRY(ddp_stream_wait_event(stream, point));
out:
    return status;
}

ddp_status_t ddp_reducer_host_submit_sums(ddp_reducer_t *r)
{
    return ddp_stream_submit(r->host.reduce, "sums", ddp_reducer_sums_work, &r, sizeof(r));
}

static ddp_status_t host_sums(ddp_reducer_t *r)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(order(r->host.reduce, r->compute, r->host.compute_point));
    DDP_TRY(ddp_reducer_host_submit_sums(r));
out:
    return status;
}

typedef struct merge_args {
    float       *dst;
    const float *src;
    size_t       blocks;
    ddp_isa_t    isa;
} merge_args_t;

static ddp_status_t merge_work(void *args)
{
    const merge_args_t *a = args;

    ddp_block_add(a->isa, a->dst, a->src, a->blocks);
    return DDP_OK;
}

static ddp_status_t host_merge(ddp_reducer_t *r, size_t b, ddp_merge_t arenas)
{
    const ddp_bucket_range_t *range = &r->buckets[b].range;
    const merge_args_t        args  = {r->grads_base + arenas.left * r->total + range->offset,
                                       r->grads_base + arenas.right * r->total + range->offset,
                                       range->count / DDP_BLOCK, r->host.isa};

    return ddp_stream_submit(r->compute, "merge subtrees", merge_work, &args, sizeof(args));
}

void ddp_reducer_host_ready(ddp_reducer_t *r, size_t b)
{
    r->buckets[b].ready_ns          = ddp_clock_ns();
    r->host.final_ns[r->local_rank] = r->buckets[b].ready_ns;
}

void ddp_reducer_host_backward_end(ddp_reducer_t *r)
{
    r->backward_end_ns = ddp_clock_ns();
    r->hidden_comm_ns  = ddp_reducer_comm_until(r, r->backward_end_ns);
}

/* In the order of the compute stream: what it did before is done. */
static ddp_status_t ready_work(void *args)
{
    const ddp_bucket_args_t *a = args;

    ddp_reducer_host_ready(a->reducer, a->bucket);
    return DDP_OK;
}

static ddp_status_t backward_end_work(void *args)
{
    ddp_reducer_host_backward_end(*(ddp_reducer_t **)args);
    return DDP_OK;
}

ddp_status_t ddp_reducer_host_submit_bucket(ddp_reducer_t *r, size_t b)
{
    ddp_status_t            status = DDP_OK;
    const ddp_bucket_args_t args   = {r, b};

    r->buckets[b].announced = false;
    DDP_TRY(ddp_stream_submit(r->host.reduce, "reduce bucket", ddp_reducer_bucket_work, &args, sizeof(args)));
    if (r->machines > 1) {
        DDP_TRY(order(r->host.wire, r->host.reduce, r->host.reduce_point));
        DDP_TRY(
            ddp_stream_submit(r->host.wire, "exchange bucket", ddp_reducer_wire_work, &args, sizeof(args)));
    }
out:
    return status;
}

static ddp_status_t host_launch(ddp_reducer_t *r, size_t b)
{
    ddp_status_t            status = DDP_OK;
    const ddp_bucket_args_t args   = {r, b};

    DDP_TRY(ddp_stream_submit(r->compute, "bucket is ready", ready_work, &args, sizeof(args)));
    DDP_TRY(order(r->host.reduce, r->compute, r->host.compute_point));
    DDP_TRY(ddp_reducer_host_submit_bucket(r, b));
out:
    return status;
}

ddp_status_t ddp_reducer_host_submit_end(ddp_reducer_t *r)
{
    ddp_stream_t *last = r->machines > 1 ? r->host.wire : r->host.reduce;

    return ddp_stream_submit(last, "end of step", ddp_reducer_end_work, &r, sizeof(r));
}

static ddp_status_t host_end(ddp_reducer_t *r)
{
    ddp_status_t status = DDP_OK;

    if (r->leaf > r->first_leaf) { /* else there was no backward */
        DDP_TRY(ddp_stream_submit(r->compute, "end of backward", backward_end_work, &r, sizeof(r)));
    }
    DDP_TRY(ddp_reducer_host_submit_end(r));
out:
    return status;
}

ddp_status_t ddp_reducer_host_wait_reduced(ddp_reducer_t *r)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(ddp_stream_synchronize(r->host.reduce, -1));
    if (r->host.wire != NULL) {
        DDP_TRY(ddp_stream_synchronize(r->host.wire, -1));
    }
out:
    return status;
}

static ddp_status_t host_wait(ddp_reducer_t *r)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(ddp_stream_synchronize(r->compute, -1));
    DDP_TRY(ddp_reducer_host_wait_reduced(r));
out:
    return status;
}

static void host_traffic(const ddp_reducer_t *r, uint64_t *from)
{
    const uint64_t block_bytes = DDP_BLOCK * sizeof(float);

    for (size_t b = 0; b < r->n_buckets; b++) {
        const ddp_bucket_t *bucket = &r->buckets[b];

        for (size_t s = 0; s < r->host.n_sources; s++) {
            from[r->host.sources[s].rank] +=
                r->host.sources[s].rank == r->rank ? 0 : bucket->slice_blocks * block_bytes;
        }
        if (bucket->exchange != NULL) {
            ddp_exchange_traffic(bucket->exchange, r->host.machine_nodes, from);
        }
    }
}

const ddp_reducer_path_t ddp_reducer_host_path = {
    .name         = "host",
    .create       = host_create,
    .destroy      = host_destroy,
    .publish      = host_publish,
    .restore      = host_restore,
    .step_begin   = host_step_begin,
    .forward_done = host_forward_done,
    .sums         = host_sums,
    .merge        = host_merge,
    .launch       = host_launch,
    .end          = host_end,
    .wait         = host_wait,
    .finish       = host_finish,
    .grad_norm    = ddp_reducer_host_norm,
    .traffic      = host_traffic,
};
