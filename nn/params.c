#include "nn/params.h"

#include <fnmatch.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/convert.h"
#include "base/error.h"
#include "base/progressed.h"
#include "kernels/ops_seq.h"

/** What a parameter has beside its description. */
typedef struct entry {
    char      *name; /* owned; the description borrows it */
    ddp_init_t init;
} entry_t;

struct ddp_params {
    ddp_tensor_desc_t     *descs;   /* owned, [capacity] */
    entry_t               *entries; /* owned, [capacity] */
    size_t                 count, capacity;
    size_t                 total; /* floats of a flat buffer; 0 until the list is finished */
    size_t                 elements;
    float                 *values, *grads; /* bound */
    const ddp_allocator_t *allocator;      /* borrowed; where the owned buffers go back to */
    void                  *owned_values, *owned_grads;
};

ddp_status_t ddp_params_create(ddp_params_t **params_p)
{
    ddp_status_t  status = DDP_OK;
    ddp_params_t *params = calloc(1, sizeof(*params));

    DDP_REQUIRE(params != NULL, DDP_ERR_NO_MEMORY, "no memory for a parameter list");
    *params_p = params;
out:
    return status;
}

void ddp_params_destroy(ddp_params_t **params_p)
{
    ddp_params_t *params = *params_p;

    if (params == NULL) {
        return;
    }
    if (params->allocator != NULL) {
        params->allocator->release(params->allocator->ctx, params->owned_grads);
        params->allocator->release(params->allocator->ctx, params->owned_values);
    }
    for (size_t i = 0; i < params->count; i++) {
        free(params->entries[i].name);
    }
    free(params->entries);
    free(params->descs);
    free(params);
    *params_p = NULL;
}

static ddp_status_t grow(ddp_params_t *params)
{
    ddp_status_t       status   = DDP_OK;
    size_t             capacity = params->capacity == 0 ? 32 : 2 * params->capacity;
    ddp_tensor_desc_t *descs    = NULL;
    entry_t           *entries  = NULL;

    if (params->count < params->capacity) {
        return DDP_OK;
    }
    descs = realloc(params->descs, capacity * sizeof(*descs));
    DDP_REQUIRE(descs != NULL, DDP_ERR_NO_MEMORY, "no memory for %zu parameter descriptions", capacity);
    params->descs = descs;
    entries       = realloc(params->entries, capacity * sizeof(*entries));
    DDP_REQUIRE(entries != NULL, DDP_ERR_NO_MEMORY, "no memory for %zu parameter descriptions", capacity);
    params->entries  = entries;
    params->capacity = capacity;
out:
    return status;
}

static ddp_status_t check_new(const ddp_params_t *params, const char *name, size_t ndim, const size_t *shape,
                              ddp_init_t init, size_t *count_p)
{
    ddp_status_t status = DDP_OK;

    DDP_REQUIRE(params->total == 0, DDP_ERR_STATE, "parameter '%s': the list is finished already",
                name != NULL ? name : "");
    DDP_REQUIRE(name != NULL && name[0] != '\0', DDP_ERR_INVALID_ARG, "a parameter needs a name");
    DDP_REQUIRE(ndim >= 1 && ndim <= DDP_MAX_DIMS, DDP_ERR_INVALID_ARG,
                "parameter '%s': %zu dimensions, not 1 .. %d", name, ndim, DDP_MAX_DIMS);
    *count_p = 1;
    for (size_t i = 0; i < ndim; i++) {
        DDP_REQUIRE(shape[i] > 0, DDP_ERR_INVALID_ARG, "parameter '%s': dimension %zu is 0", name, i);
        DDP_TRY(ddp_mul_size(*count_p, shape[i], name, count_p));
    }
    for (size_t i = 0; i < params->count; i++) {
        DDP_REQUIRE(strcmp(params->descs[i].name, name) != 0, DDP_ERR_INVALID_ARG,
                    "parameter '%s' is registered twice", name);
    }
    DDP_REQUIRE(init.kind >= DDP_INIT_ZERO && init.kind <= DDP_INIT_NORMAL, DDP_ERR_INVALID_ARG,
                "parameter '%s': initial distribution %d is not known", name, (int)init.kind);
    DDP_REQUIRE(init.kind != DDP_INIT_UNIFORM || init.fan_in > 0, DDP_ERR_INVALID_ARG,
                "parameter '%s': a uniform start needs a fan_in > 0", name);
    DDP_REQUIRE(init.kind != DDP_INIT_NORMAL || init.std > 0.0F, DDP_ERR_INVALID_ARG,
                "parameter '%s': a normal start needs a standard deviation > 0", name);
out:
    return status;
}

ddp_status_t ddp_params_add(ddp_params_t *params, const char *name, size_t ndim, const size_t *shape,
                            ddp_init_t init, size_t *index_p)
{
    ddp_status_t       status = DDP_OK;
    ddp_tensor_desc_t *desc   = NULL;
    char              *copy   = NULL;
    size_t             count  = 0;

    DDP_TRY(check_new(params, name, ndim, shape, init, &count));
    DDP_TRY(grow(params));
    copy = strdup(name);
    DDP_REQUIRE(copy != NULL, DDP_ERR_NO_MEMORY, "no memory for the name of parameter '%s'", name);
    desc = &params->descs[params->count];
    memset(desc, 0, sizeof(*desc));
    desc->name  = copy;
    desc->ndim  = ndim;
    desc->count = count;
    memcpy(desc->shape, shape, ndim * sizeof(*shape));
    params->entries[params->count] = (entry_t){.name = copy, .init = init};
    params->elements += count;
    *index_p = params->count++;
out:
    return status;
}

ddp_status_t ddp_params_add_average(ddp_params_t *params, const char *name, size_t ndim, const size_t *shape,
                                    ddp_init_t init, float momentum, size_t *index_p)
{
    ddp_status_t status = DDP_OK;
    size_t       index  = 0;

    DDP_REQUIRE(momentum >= 0.0F && momentum <= 1.0F, DDP_ERR_INVALID_ARG,
                "running average '%s': momentum %g is not in [0, 1]", name != NULL ? name : "",
                (double)momentum);
    DDP_TRY(ddp_params_add(params, name, ndim, shape, init, &index));
    params->descs[index].role     = DDP_TENSOR_AVERAGE;
    params->descs[index].momentum = momentum;
    params->elements -= params->descs[index].count;
    *index_p = index;
out:
    return status;
}

void ddp_params_decay_matrices(ddp_params_t *params)
{
    for (size_t i = 0; i < params->count; i++) {
        params->descs[i].no_decay = params->descs[i].ndim < 2;
    }
}

ddp_status_t ddp_params_freeze(ddp_params_t *params, const char *pattern, size_t *count_p)
{
    ddp_status_t status = DDP_OK;
    size_t       found  = 0;

    DDP_REQUIRE(pattern != NULL && pattern[0] != '\0', DDP_ERR_INVALID_ARG,
                "an empty pattern freezes nothing");
    for (size_t i = 0; i < params->count; i++) {
        if (params->descs[i].role == DDP_TENSOR_PARAMETER &&
            fnmatch(pattern, params->descs[i].name, 0) == 0) {
            params->descs[i].frozen = true;
            found++;
        }
    }
    *count_p = found;
out:
    return status;
}

bool ddp_params_is_trained(const ddp_params_t *params, size_t index)
{
    return params->descs[index].role == DDP_TENSOR_PARAMETER && !params->descs[index].frozen;
}

ddp_status_t ddp_params_finish(ddp_params_t *params)
{
    ddp_status_t status = DDP_OK;

    DDP_REQUIRE(params->total == 0, DDP_ERR_STATE, "the parameter list is finished already");
    DDP_TRY(ddp_layout_make(params->descs, params->count, &params->total));
out:
    return status;
}

static ddp_status_t clone_one(const ddp_params_t *params, size_t index, ddp_params_t *clone)
{
    ddp_status_t             status = DDP_OK;
    const ddp_tensor_desc_t *desc   = &params->descs[index];
    const ddp_init_t         init   = params->entries[index].init;
    size_t                   same   = 0;

    if (desc->role == DDP_TENSOR_AVERAGE) {
        DDP_TRY(
            ddp_params_add_average(clone, desc->name, desc->ndim, desc->shape, init, desc->momentum, &same));
    } else {
        DDP_TRY(ddp_params_add(clone, desc->name, desc->ndim, desc->shape, init, &same));
    }
    clone->descs[same].no_decay = desc->no_decay;
    clone->descs[same].frozen   = desc->frozen;
out:
    return status;
}

ddp_status_t ddp_params_clone(const ddp_params_t *params, ddp_params_t **clone_p)
{
    ddp_status_t  status = DDP_OK;
    ddp_params_t *clone  = NULL;

    DDP_REQUIRE(params->total > 0, DDP_ERR_STATE, "finish the parameter list before cloning it");
    DDP_TRY(ddp_params_create(&clone));
    for (size_t i = 0; i < params->count; i++) {
        DDP_TRY(clone_one(params, i, clone));
    }
    DDP_TRY(ddp_params_finish(clone));
    *clone_p = clone;
    clone    = NULL;
out:
    ddp_params_destroy(&clone);
    return status;
}

size_t ddp_params_count(const ddp_params_t *params)
{
    return params->count;
}

const ddp_tensor_desc_t *ddp_params_descs(const ddp_params_t *params)
{
    return params->descs;
}

size_t ddp_params_total(const ddp_params_t *params)
{
    return params->total;
}

size_t ddp_params_elements(const ddp_params_t *params)
{
    return params->elements;
}

void ddp_params_bind(ddp_params_t *params, float *values, float *grads)
{
    params->values = values != NULL ? values : params->values;
    params->grads  = grads != NULL ? grads : params->grads;
}

ddp_status_t ddp_params_allocate(ddp_params_t *params, const ddp_allocator_t *allocator)
{
    ddp_status_t status = DDP_OK;
    void        *values = NULL;
    void        *grads  = NULL;
    const size_t bytes  = params->total * sizeof(float);

    DDP_REQUIRE(params->total > 0, DDP_ERR_STATE, "finish the parameter list before allocating it");
    DDP_REQUIRE(params->allocator == NULL, DDP_ERR_STATE, "the parameters are allocated already");
    DDP_TRY(allocator->acquire(allocator->ctx, "parameters", bytes, &values));
    DDP_TRY(allocator->acquire(allocator->ctx, "gradients", bytes, &grads));
    params->allocator    = allocator;
    params->owned_values = values;
    params->owned_grads  = grads;
    ddp_params_bind(params, values, grads);
    values = NULL;
out:
    if (values != NULL) {
        allocator->release(allocator->ctx, values);
    }
    return status;
}

float *ddp_params_value(const ddp_params_t *params, size_t index)
{
    return params->values == NULL ? NULL : params->values + params->descs[index].offset;
}

float *ddp_params_grad(const ddp_params_t *params, size_t index)
{
    return params->grads == NULL ? NULL : params->grads + params->descs[index].offset;
}

ddp_status_t ddp_params_draw(const ddp_params_t *params, ddp_stream_t *stream, uint64_t seed, size_t index,
                             float *value)
{
    ddp_status_t             status  = DDP_OK;
    const ddp_tensor_desc_t *desc    = &params->descs[index];
    const ddp_init_t         init    = params->entries[index].init;
    const size_t             padding = ddp_block_round(desc->count) - desc->count;
    const ddp_rng_key_t      key     = {.seed  = seed,
                                        .step  = UINT64_MAX, /* never reached: no dropout draws the same */
                                        .layer = (uint32_t)index};
    ddp_uniform_args_t       uniform = {.y = value, .count = desc->count, .key = key};
    const ddp_normal_args_t  normal  = {.y = value, .count = desc->count, .std = init.std, .key = key};

    ddp_progressed();
    DDP_TRY(ddp_op_fill(stream, value + desc->count, padding, 0.0F));
    if (init.kind == DDP_INIT_NORMAL) {
        return ddp_op_normal(stream, &normal);
    }
    if (init.kind != DDP_INIT_UNIFORM) {
        return ddp_op_fill(stream, value, desc->count, init.kind == DDP_INIT_ONE ? 1.0F : 0.0F);
    }
    uniform.high = (float)(1.0 / sqrt((double)init.fan_in));
    uniform.low  = -uniform.high;
    DDP_TRY(ddp_op_uniform(stream, &uniform));
out:
    return status;
}

ddp_status_t ddp_params_initialize(ddp_params_t *params, ddp_stream_t *stream, uint64_t seed)
{
    ddp_status_t status = DDP_OK;

    DDP_REQUIRE(params->total > 0, DDP_ERR_STATE, "finish the parameter list before initialising it");
    DDP_REQUIRE(params->values != NULL, DDP_ERR_STATE, "no memory is bound for the parameters' values");
    for (size_t i = 0; i < params->count; i++) {
        DDP_TRY(ddp_params_draw(params, stream, seed, i, ddp_params_value(params, i)));
    }
out:
    return status;
}
