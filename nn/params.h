/** @file The parameters of a model: names, shapes, initial distribution, and where they lie in the flat
 * arenas. */
#ifndef DDP_PARAMS_H_
#define DDP_PARAMS_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/allocator.h"
#include "base/export.h"
#include "base/status.h"
#include "kernels/device.h"
#include "kernels/layout.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ddp_params ddp_params_t;

/** How a parameter begins. UNIFORM: in [-bound, bound), bound = 1 / sqrt(fan_in): PyTorch's default of Linear
 * and Conv2d (kaiming-uniform with a = sqrt(5) for the weight, and the same bound for the bias). NORMAL: mean
 * 0, standard deviation `std`. */
typedef enum ddp_init_kind {
    DDP_INIT_ZERO    = 0,
    DDP_INIT_ONE     = 1,
    DDP_INIT_UNIFORM = 2,
    DDP_INIT_NORMAL  = 3
} ddp_init_kind_t;
typedef struct ddp_init {
    ddp_init_kind_t kind;
    size_t          fan_in; /* UNIFORM */
    float           std;    /* NORMAL, > 0 */
} ddp_init_t;

/** An empty list. */
DDP_API ddp_status_t ddp_params_create(ddp_params_t **params_p) DDP_NODISCARD;
/** Frees the list and memory taken by ddp_params_allocate(). Accepts NULL. */
DDP_API void ddp_params_destroy(ddp_params_t **params_p);

/**
 * Register a parameter; only before ddp_params_finish().
 * @param [in]  name     copied; unique; as in a PyTorch state_dict ("conv1.weight")
 * @param [in]  ndim     1 .. DDP_MAX_DIMS
 * @param [out] index_p  0, 1, ... in registration order: the parameter's handle
 */
DDP_API ddp_status_t ddp_params_add(ddp_params_t *params, const char *name, size_t ndim, const size_t *shape,
                                    ddp_init_t init, size_t *index_p) DDP_NODISCARD;

/**
 * Register a running average (kernels/layout.h), as batch normalisation's "bn1.running_mean". It lies among
 * the parameters and has a place in the gradient arenas, where forward writes the micro-batch's own
 * statistic; it is not counted by ddp_params_elements().
 * @param [in] momentum  weight of a step's statistic, 0 .. 1; others as ddp_params_add()
 */
DDP_API ddp_status_t ddp_params_add_average(ddp_params_t *params, const char *name, size_t ndim,
                                            const size_t *shape, ddp_init_t init, float momentum,
                                            size_t *index_p) DDP_NODISCARD;

/** Weight decay only for tensors of two dimensions and more: none for biases and the weights of norms. */
DDP_API void ddp_params_decay_matrices(ddp_params_t *params);

/**
 * Freeze the parameters whose name matches `pattern`, as the shell matches file names ("conv1.*"): they get
 * no gradient, and no step changes them. Before a tape is made. Running averages go on, as in PyTorch.
 * @param [out] count_p  parameters that match; 0 is no error here
 * @return DDP_ERR_INVALID_ARG: `pattern` is empty
 */
DDP_API ddp_status_t ddp_params_freeze(ddp_params_t *params, const char *pattern,
                                       size_t *count_p) DDP_NODISCARD;

/** Has this parameter a gradient? No: it is frozen, or a running average. */
DDP_API bool ddp_params_is_trained(const ddp_params_t *params, size_t index);

/** Close the list and lay it out (kernels/layout.h). */
DDP_API ddp_status_t ddp_params_finish(ddp_params_t *params) DDP_NODISCARD;

/** A second list of the same tensors, for a replica: finished, frozen as the first, bound to nothing.
 * @return DDP_ERR_STATE: `params` is not finished */
DDP_API ddp_status_t ddp_params_clone(const ddp_params_t *params, ddp_params_t **clone_p) DDP_NODISCARD;

/** Number of tensors; their descriptions in registration order; floats of a flat arena (padding included). */
DDP_API size_t                   ddp_params_count(const ddp_params_t *params);
DDP_API const ddp_tensor_desc_t *ddp_params_descs(const ddp_params_t *params);
DDP_API size_t                   ddp_params_total(const ddp_params_t *params);
/** Sum of the parameters' counts: what a user calls the number of parameters (no padding, no averages). */
DDP_API size_t ddp_params_elements(const ddp_params_t *params);

/**
 * Say where values and gradients are: flat device buffers of ddp_params_total() floats, borrowed. `values`
 * may be NULL to keep the old one; likewise `grads`. Cheap: the gradient base changes for every micro-batch.
 */
DDP_API void ddp_params_bind(ddp_params_t *params, float *values, float *grads);
/** Own values and gradients from `allocator` (borrowed), bound: for use without ddp's reducer. */
DDP_API ddp_status_t ddp_params_allocate(ddp_params_t          *params,
                                         const ddp_allocator_t *allocator) DDP_NODISCARD;
DDP_API float       *ddp_params_value(const ddp_params_t *params, size_t index);
DDP_API float       *ddp_params_grad(const ddp_params_t *params, size_t index);

/** Write the initial values, a pure function of (seed, registration index, element). In stream order. */
DDP_API ddp_status_t ddp_params_initialize(ddp_params_t *params, ddp_stream_t *stream,
                                           uint64_t seed) DDP_NODISCARD;
/** The same of one tensor, and not where it is bound. @param [out] value  memory of the stream's device,
 * ddp_block_round(count) floats; the padding becomes 0 */
DDP_API ddp_status_t ddp_params_draw(const ddp_params_t *params, ddp_stream_t *stream, uint64_t seed,
                                     size_t index, float *value) DDP_NODISCARD;

#ifdef __cplusplus
}
#endif

#endif
