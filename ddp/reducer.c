#include "ddp/reducer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/convert.h"
#include "base/error.h"
#include "base/fault.h"
#include "ddp/reducer_internal.h"

static ddp_status_t check_tensors(const ddp_tensor_desc_t *tensors, size_t n)
{
    ddp_status_t status  = DDP_OK;
    bool         trained = false;

    for (size_t i = 0; i < n; i++) {
        DDP_REQUIRE(tensors[i].name != NULL && tensors[i].ndim >= 1 && tensors[i].ndim <= DDP_MAX_DIMS,
                    DDP_ERR_INVALID_ARG, "tensor %zu was not laid out by ddp_layout_make()", i);
        trained = trained || (tensors[i].role == DDP_TENSOR_PARAMETER && !tensors[i].frozen);
    }
    DDP_REQUIRE(trained, DDP_ERR_INVALID_ARG, "nothing is left to train: all parameters are frozen");
out:
    return status;
}

static ddp_status_t check_params(const ddp_reducer_params_t *params)
{
    ddp_status_t status = DDP_OK;

    DDP_REQUIRE(params != NULL && params->struct_size == sizeof(*params), DDP_ERR_INVALID_ARG,
                "reducer parameters were not made with DDP_REDUCER_PARAMS_INIT");
    DDP_REQUIRE(params->comm != NULL && params->compute != NULL, DDP_ERR_INVALID_ARG,
                "a reducer needs a communicator and a stream");
    DDP_REQUIRE(params->n_tensors > 0 && params->tensors != NULL, DDP_ERR_INVALID_ARG,
                "a reducer needs at least one tensor");
    DDP_REQUIRE(params->micro_batches >= (size_t)ddp_comm_size(params->comm), DDP_ERR_INVALID_ARG,
                "%zu micro-batches for %d ranks: at least one each is needed", params->micro_batches,
                ddp_comm_size(params->comm));
    DDP_REQUIRE(params->bucket_cap_bytes > 0, DDP_ERR_INVALID_ARG, "bucket cap is 0 bytes");
    DDP_TRY(ddp_optim_check(&params->optim));
    DDP_TRY(check_tensors(params->tensors, params->n_tensors));
out:
    return status;
}

/* What must be equal of a tensor; unused entries of `shape` need not. */
static void describe(const ddp_tensor_desc_t *tensor, char *text, size_t capacity)
{
    int used = snprintf(text, capacity, "'%.64s' [", tensor->name);

    for (size_t i = 0; i < tensor->ndim; i++) {
        used += snprintf(text + used, capacity - (size_t)used, "%s%zu", i > 0 ? "," : "", tensor->shape[i]);
    }
    used += snprintf(text + used, capacity - (size_t)used, "] at %zu", tensor->offset);
    if (tensor->role == DDP_TENSOR_AVERAGE) {
        snprintf(text + used, capacity - (size_t)used, ", a running average with momentum %g",
                 (double)tensor->momentum);
    } else {
        snprintf(text + used, capacity - (size_t)used, "%s%s", tensor->no_decay ? ", no decay" : "",
                 tensor->frozen ? ", frozen" : "");
    }
}

/* Everything that must be equal on all ranks, as named text; a difference is reported by its name. */
static ddp_status_t check_equal(const ddp_reducer_params_t *params)
{
    enum { OPTIONS = 4, TEXT = 256 };
    ddp_status_t status = DDP_OK;
    const size_t n      = params->n_tensors + OPTIONS;
    ddp_field_t *fields = calloc(n, sizeof(*fields));
    char(*text)[TEXT]   = calloc(2 * n, sizeof(*text));
    size_t f            = 0;

    if (fields == NULL || text == NULL) {
        status =
            ddp_comm_agree(params->comm, ddp_fail(DDP_ERR_NO_MEMORY, "no memory to compare %zu tensors", n));
        goto out;
    }
    fields[f] = (ddp_field_t){"number of tensors", text[f]};
    snprintf(text[f++], TEXT, "%zu", params->n_tensors);
    fields[f] = (ddp_field_t){"micro-batches", text[f]};
    snprintf(text[f++], TEXT, "%zu", params->micro_batches);
    fields[f] = (ddp_field_t){"buckets and reduction", text[f]};
    snprintf(
        text[f++], TEXT, "cap %zu, tail %zu, reduction %d, average %d, nonfinite %d, clip %a, checksum %llu",
        params->bucket_cap_bytes, params->tail_bucket_bytes, (int)params->reduction, (int)params->average,
        (int)params->nonfinite, (double)params->clip_norm, (unsigned long long)params->checksum_every);
    fields[f] = (ddp_field_t){"optimizer", text[f]};
    snprintf(text[f++], TEXT, "kind %d, betas %a %a, eps %a, momentum %a, nesterov %d, decay %a",
             (int)params->optim.kind, (double)params->optim.beta1, (double)params->optim.beta2,
             (double)params->optim.eps, (double)params->optim.momentum, (int)params->optim.nesterov,
             (double)params->optim.weight_decay);
    for (size_t i = 0; i < params->n_tensors; i++, f++) {
        const ddp_tensor_desc_t *tensor = &params->tensors[i];

        snprintf(text[n + i], TEXT, "tensor %zu", i);
        fields[f] = (ddp_field_t){text[n + i], text[f]};
        describe(tensor, text[f], TEXT);
    }
    DDP_TRY(ddp_comm_check_equal(params->comm, fields, n));
out:
    free(fields);
    free(text);
    return status;
}

/* Copy the descriptions and find the layout order; refuse what ddp_layout_make() would not have made. */
static ddp_status_t copy_tensors(ddp_reducer_t *r, const ddp_reducer_params_t *params)
{
    ddp_status_t status = DDP_OK;
    const size_t n      = params->n_tensors;

    r->tensors   = calloc(n, sizeof(*r->tensors));
    r->bucket_of = calloc(n, sizeof(*r->bucket_of));
    r->order     = calloc(n, sizeof(*r->order));
    r->used      = calloc(n, 1);
    r->is_ready  = calloc(n, 1);
    r->used_any  = calloc(n, 1);
    r->steps     = calloc(n, sizeof(*r->steps));
    DDP_REQUIRE(r->tensors != NULL && r->bucket_of != NULL && r->order != NULL && r->used != NULL &&
                    r->is_ready != NULL && r->used_any != NULL && r->steps != NULL,
                DDP_ERR_NO_MEMORY, "no memory for %zu tensors", n);
    for (size_t i = 0; i < n; i++) {
        r->tensors[i]      = params->tensors[i];
        r->tensors[i].name = strdup(params->tensors[i].name);
        DDP_REQUIRE(r->tensors[i].name != NULL, DDP_ERR_NO_MEMORY, "no memory for %zu tensors", n);
    }
    for (size_t p = 0; p < n; p++) {
        const size_t i = n - 1 - p;

        r->order[p] = i;
        DDP_REQUIRE(r->tensors[i].count > 0 && r->tensors[i].offset == r->total, DDP_ERR_INVALID_ARG,
                    "tensor '%s' is not where ddp_layout_make() puts it", r->tensors[i].name);
        r->total += ddp_block_round(r->tensors[i].count);
    }
out:
    return status;
}

/* This rank's slice of each bucket, and which tensors lie in it. */
static ddp_status_t make_slices(ddp_reducer_t *r)
{
    ddp_status_t status = DDP_OK;
    size_t       used   = 0;

    r->segments = calloc(r->params.n_tensors, sizeof(*r->segments));
    DDP_REQUIRE(r->segments != NULL, DDP_ERR_NO_MEMORY, "no memory for slices");
    for (size_t b = 0; b < r->n_buckets; b++) {
        ddp_bucket_t *bucket = &r->buckets[b];
        size_t        first;
        size_t        end;

        ddp_partition(bucket->range.count / DDP_BLOCK, (size_t)r->local_size, (size_t)r->local_rank, &first,
                      &bucket->slice_blocks);
        bucket->slice_offset = bucket->range.offset + first * DDP_BLOCK;
        end                  = bucket->slice_offset + bucket->slice_blocks * DDP_BLOCK;
        bucket->segments     = r->segments + used;
        for (size_t p = bucket->range.first; p < bucket->range.first + bucket->range.n; p++) {
            const ddp_tensor_desc_t *tensor = &r->tensors[r->order[p]];
            const size_t             stop   = tensor->offset + ddp_block_round(tensor->count);
            const size_t low  = tensor->offset > bucket->slice_offset ? tensor->offset : bucket->slice_offset;
            const size_t high = stop < end ? stop : end;

            r->bucket_of[r->order[p]] = b;
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

static ddp_status_t make_buckets(ddp_reducer_t *r)
{
    ddp_status_t        status = DDP_OK;
    const size_t        n      = r->params.n_tensors;
    size_t             *padded = calloc(n, sizeof(*padded));
    ddp_bucket_range_t *ranges = calloc(n, sizeof(*ranges));

    DDP_REQUIRE(padded != NULL && ranges != NULL, DDP_ERR_NO_MEMORY, "no memory for a bucket plan");
    for (size_t p = 0; p < n; p++) {
        padded[p] = ddp_block_round(r->tensors[r->order[p]].count);
    }
    r->n_buckets =
        ddp_bucket_plan(padded, n, r->params.bucket_cap_bytes, r->params.tail_bucket_bytes, ranges);
    r->buckets = calloc(r->n_buckets, sizeof(*r->buckets));
    DDP_REQUIRE(r->buckets != NULL, DDP_ERR_NO_MEMORY, "no memory for %zu buckets", r->n_buckets);
    for (size_t b = 0; b < r->n_buckets; b++) {
        r->buckets[b].range = ranges[b];
    }
    DDP_TRY(make_slices(r));
out:
    free(padded);
    free(ranges);
    return status;
}

/* Room for the plan of any number of present micro-batches: a short batch has no more nodes than a full one.
 */
static ddp_status_t make_tables(ddp_reducer_t *r)
{
    ddp_status_t status = DDP_OK;
    const size_t local  = (size_t)r->local_size * DDP_MAX_NODES;
    const size_t all    = local + (size_t)r->machines * 2 * DDP_MAX_NODES;

    r->arenas         = calloc((size_t)r->local_size, sizeof(*r->arenas));
    r->sources        = calloc(local, sizeof(*r->sources));
    r->source_scale   = calloc(local, sizeof(*r->source_scale));
    r->source_pointer = calloc(all, sizeof(*r->source_pointer));
    r->node_level     = calloc(all, sizeof(*r->node_level));
    r->node_index     = calloc(all, sizeof(*r->node_index));
    r->machine_nodes  = calloc((size_t)r->machines, sizeof(*r->machine_nodes));
    r->local          = calloc(2 * DDP_MAX_NODES, sizeof(*r->local));
    r->across.op      = calloc(2 * all, sizeof(*r->across.op));
    DDP_REQUIRE(r->arenas != NULL && r->sources != NULL && r->source_scale != NULL &&
                    r->source_pointer != NULL && r->node_level != NULL && r->node_index != NULL &&
                    r->machine_nodes != NULL && r->local != NULL && r->across.op != NULL,
                DDP_ERR_NO_MEMORY, "no memory for the reduction plan");
    for (size_t i = 0; i < 2 * DDP_MAX_NODES; i++) {
        r->local[i].op = calloc(2 * local, sizeof(*r->local[i].op));
        DDP_REQUIRE(r->local[i].op != NULL, DDP_ERR_NO_MEMORY, "no memory for the reduction plan");
    }
    r->sums_bytes    = DDP_SUMS_HEAD + r->params.micro_batches * sizeof(ddp_leaf_t) + r->params.n_tensors;
    r->sums_send     = calloc(1, r->sums_bytes);
    r->sums_received = calloc((size_t)r->machines, r->sums_bytes);
    r->sums_requests = calloc(2 * (size_t)r->machines, sizeof(*r->sums_requests));
    r->sums_peer     = calloc(2 * (size_t)r->machines, sizeof(*r->sums_peer));
    DDP_REQUIRE(r->sums_send != NULL && r->sums_received != NULL && r->sums_requests != NULL &&
                    r->sums_peer != NULL,
                DDP_ERR_NO_MEMORY, "no memory for the sums of a step");
out:
    return status;
}

static ddp_status_t make_local_parts(ddp_reducer_t *r, const ddp_reducer_params_t *params)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(copy_tensors(r, params));
    r->params.tensors = r->tensors;
    DDP_TRY(make_buckets(r));
    DDP_TRY(make_tables(r));
    DDP_TRY(ddp_stream_create(r->device, "reduce", &r->reduce));
    DDP_TRY(ddp_event_create(r->device, &r->compute_point));
    DDP_TRY(ddp_event_create(r->device, &r->reduce_point));
    DDP_TRY(ddp_fault("reducer_parts", r->rank));
out:
    return status;
}

ddp_status_t ddp_reducer_create(const ddp_reducer_params_t *params, ddp_reducer_t **reducer_p)
{
    ddp_status_t   status = DDP_OK;
    ddp_reducer_t *r      = NULL;
    ddp_comm_t    *comm   = params != NULL ? params->comm : NULL;

    DDP_REQUIRE(comm != NULL, DDP_ERR_INVALID_ARG, "a reducer needs a communicator");
    DDP_TRY(ddp_comm_agree(comm, check_params(params)));
    DDP_TRY(check_equal(params));
    r = calloc(1, sizeof(*r));
    DDP_TRY(
        ddp_comm_agree(comm, r != NULL ? DDP_OK : ddp_fail(DDP_ERR_NO_MEMORY, "no memory for a reducer")));
    r->params                      = *params;
    r->optim_no_decay              = params->optim;
    r->optim_no_decay.weight_decay = 0;
    r->comm                        = comm;
    r->compute                     = params->compute;
    r->device                      = ddp_stream_device(params->compute);
    r->isa                         = ddp_device_isa(r->device);
    r->rank                        = ddp_comm_rank(comm);
    r->size                        = ddp_comm_size(comm);
    r->local_rank                  = ddp_comm_local_rank(comm);
    r->local_size                  = ddp_comm_local_size(comm);
    r->machine                     = ddp_comm_machine(comm);
    r->machines                    = ddp_comm_machines(comm);
    r->two_phase                   = ddp_reducer_is_two_phase(params);
    DDP_TRY(ddp_comm_agree(comm, make_local_parts(r, params)));
    DDP_TRY(ddp_comm_agree(comm, ddp_reducer_plan_memory(r)));
    DDP_TRY(ddp_comm_agree(comm, ddp_reducer_plan_sources(r, params->micro_batches)));
    DDP_TRY(ddp_comm_agree(comm, ddp_reducer_wire_create(r)));
    *reducer_p = r;
    r          = NULL;
out:
    ddp_reducer_destroy(&r);
    return status;
}

void ddp_reducer_destroy(ddp_reducer_t **reducer_p)
{
    ddp_reducer_t *r = reducer_p != NULL ? *reducer_p : NULL;

    if (r == NULL) {
        return;
    }
    ddp_stream_destroy(&r->wire);
    ddp_stream_destroy(&r->reduce);
    ddp_event_destroy(&r->compute_point);
    ddp_event_destroy(&r->reduce_point);
    ddp_reducer_wire_destroy(r);
    for (size_t i = 0; r->tensors != NULL && i < r->params.n_tensors; i++) {
        free((char *)r->tensors[i].name);
    }
    for (size_t i = 0; r->local != NULL && i < 2 * DDP_MAX_NODES; i++) {
        free(r->local[i].op);
    }
    if (r->state == DDP_REDUCER_IDLE || r->machines == 1) {
        free(r->sums_send);
        free(r->sums_received);
        free(r->sums_requests);
    } else { /* the step has failed: MPI may still read and write all that messages are about */
        ddp_comm_keep_memory(r->comm);
    }
    free(r->sums_peer);
    free(r->tensors);
    free(r->bucket_of);
    free(r->order);
    free(r->used);
    free(r->is_ready);
    free(r->used_any);
    free(r->steps);
    free(r->buckets);
    free(r->segments);
    free(r->arenas);
    free(r->sources);
    free(r->source_scale);
    free(r->source_pointer);
    free(r->node_level);
    free(r->node_index);
    free(r->machine_nodes);
    free(r->local);
    free(r->across.op);
    free(r);
    *reducer_p = NULL;
}

float *ddp_reducer_values(ddp_reducer_t *reducer)
{
    return reducer->values;
}

float *ddp_reducer_slot(ddp_reducer_t *reducer, size_t slot)
{
    return slot < ddp_optim_slots(&reducer->params.optim) ? reducer->slots[slot] : NULL;
}

uint64_t ddp_reducer_tensor_steps(const ddp_reducer_t *reducer, size_t i)
{
    return reducer->steps[i];
}

ddp_status_t ddp_reducer_publish(ddp_reducer_t *reducer)
{
    return ddp_comm_barrier(reducer->comm);
}

ddp_status_t ddp_reducer_restore(ddp_reducer_t *r, uint64_t step, const uint64_t *steps)
{
    ddp_status_t status = DDP_OK;

    DDP_REQUIRE(r->step == 0, DDP_ERR_STATE, "a checkpoint is restored before the first step");
    memcpy(r->steps, steps, r->params.n_tensors * sizeof(*steps));
    r->step                     = step;
    r->broken_of[r->local_rank] = DDP_NO_TENSOR;
    /* the flags of this rank say that all up to this step is done */
    ddp_comm_flag_set(r->comm, &r->forward_flag[r->local_rank], step);
    ddp_comm_flag_set(r->comm, &r->summed_flag[r->local_rank], step);
    ddp_comm_flag_set(r->comm, &r->done_flag[r->local_rank], step);
    for (size_t b = 0; b < r->n_buckets; b++) {
        ddp_comm_flag_set(r->comm, &r->ready_flag[(size_t)r->local_rank * r->n_buckets + b], step);
    }
    if (r->local_rank == 0) {
        ddp_comm_flag_set(r->comm, r->sums_flag, step);
    }
    DDP_TRY(ddp_reducer_publish(r));
out:
    return status;
}

size_t ddp_reducer_buckets(const ddp_reducer_t *reducer, ddp_bucket_info_t *buckets, size_t capacity)
{
    for (size_t b = 0; b < reducer->n_buckets && b < capacity; b++) {
        const ddp_bucket_range_t *range = &reducer->buckets[b].range;

        buckets[b] = (ddp_bucket_info_t){range->offset, range->count, range->n};
    }
    return reducer->n_buckets;
}

void ddp_reducer_range(const ddp_reducer_t *reducer, size_t *first_p, size_t *count_p)
{
    ddp_partition(reducer->params.micro_batches, (size_t)reducer->size, (size_t)reducer->rank, first_p,
                  count_p);
}
