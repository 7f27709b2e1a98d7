#include "ddp/reducer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/convert.h"
#include "base/error.h"
#include "base/fault.h"
#include "ddp/reducer_path_internal.h"

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
    enum { OPTIONS = 5, TEXT = 256 };
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
    snprintf(text[f++], TEXT,
             "cap %zu, tail %zu, reduction %d, average %d, nonfinite %d, clip %a, checksum %llu, "
             "loss scale %u",
             params->bucket_cap_bytes, params->tail_bucket_bytes, (int)params->reduction,
             (int)params->average, (int)params->nonfinite, (double)params->clip_norm,
             (unsigned long long)params->checksum_every, (unsigned)params->loss_scale_every);
    fields[f] = (ddp_field_t){"devices and the way between them", text[f]};
    snprintf(text[f++], TEXT, "device %s, backend %d, wire %d, exchange %d, shard %d",
             ddp_device_kind(ddp_stream_device(params->compute)) == DDP_DEVICE_CUDA ? "cuda" : "cpu",
             (int)params->backend, (int)params->wire, (int)params->exchange, (int)params->shard);
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
        for (size_t p = ranges[b].first; p < ranges[b].first + ranges[b].n; p++) {
            r->bucket_of[r->order[p]] = b;
        }
    }
out:
    free(padded);
    free(ranges);
    return status;
}

static ddp_status_t make_shared_parts(ddp_reducer_t *r, const ddp_reducer_params_t *params)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(copy_tensors(r, params));
    r->params.tensors = r->tensors;
    DDP_TRY(make_buckets(r));
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
    r->rank                        = ddp_comm_rank(comm);
    r->size                        = ddp_comm_size(comm);
    r->local_rank                  = ddp_comm_local_rank(comm);
    r->local_size                  = ddp_comm_local_size(comm);
    r->machine                     = ddp_comm_machine(comm);
    r->machines                    = ddp_comm_machines(comm);
    r->two_phase                   = ddp_reducer_is_two_phase(params);
    r->loss_scale.scale            = params->loss_scale_every > 0 ? DDP_LOSS_SCALE_FIRST : 1.0F;
    DDP_TRY(ddp_reducer_choose(&r->params, &r->path));
    DDP_TRY(ddp_comm_agree(comm, make_shared_parts(r, params)));
    DDP_TRY(r->path->create(r));
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
    if (r->path != NULL) {
        r->path->destroy(r);
    }
    for (size_t i = 0; r->tensors != NULL && i < r->params.n_tensors; i++) {
        free((char *)r->tensors[i].name);
    }
    free(r->tensors);
    free(r->bucket_of);
    free(r->order);
    free(r->used);
    free(r->is_ready);
    free(r->used_any);
    free(r->steps);
    free(r->buckets);
    free(r);
    *reducer_p = NULL;
}

float *ddp_reducer_values(ddp_reducer_t *reducer)
{
    return reducer->device_values != NULL ? reducer->device_values : reducer->values;
}

float *ddp_reducer_slot(ddp_reducer_t *reducer, size_t slot)
{
    size_t whole = reducer->total;

    if (slot >= ddp_optim_slots(&reducer->params.optim) || reducer->device_values != NULL) {
        return NULL;
    }
    if (ddp_reducer_holder(reducer, (int)slot, 0, &whole) != DDP_REDUCER_EVERYBODY ||
        whole < reducer->total) {
        return NULL;
    }
    return reducer->slots[slot];
}

uint64_t ddp_reducer_tensor_steps(const ddp_reducer_t *reducer, size_t i)
{
    return reducer->steps[i];
}

ddp_status_t ddp_reducer_publish(ddp_reducer_t *reducer)
{
    return reducer->path->publish(reducer);
}

ddp_status_t ddp_reducer_restore(ddp_reducer_t *r, uint64_t step, const uint64_t *steps)
{
    ddp_status_t status = DDP_OK;

    DDP_REQUIRE(r->step == 0, DDP_ERR_STATE, "a checkpoint is restored before the first step");
    memcpy(r->steps, steps, r->params.n_tensors * sizeof(*steps));
    r->step = step;
    DDP_TRY(r->path->restore(r));
    DDP_TRY(ddp_reducer_publish(r));
out:
    return status;
}

bool ddp_reducer_link(const ddp_reducer_t *reducer, ddp_link_t *link_p)
{
    if (!reducer->host.has_link) {
        return false;
    }
    *link_p = reducer->host.link;
    return true;
}

size_t ddp_reducer_buckets(const ddp_reducer_t *reducer, ddp_bucket_info_t *buckets, size_t capacity)
{
    for (size_t b = 0; b < reducer->n_buckets && b < capacity; b++) {
        const ddp_bucket_range_t *range = &reducer->buckets[b].range;

        buckets[b] = (ddp_bucket_info_t){range->offset, range->count, range->n, DDP_EXCHANGE_AUTO};
        if (reducer->buckets[b].exchange != NULL) {
            buckets[b].exchange = ddp_exchange_kind(reducer->buckets[b].exchange);
        }
    }
    return reducer->n_buckets;
}

void ddp_reducer_range(const ddp_reducer_t *reducer, size_t *first_p, size_t *count_p)
{
    ddp_partition(reducer->params.micro_batches, (size_t)reducer->size, (size_t)reducer->rank, first_p,
                  count_p);
}
