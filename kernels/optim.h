/**
 * @file Reduction in tree order, optimizer update rules, and the two fused: what one owner does with its
 * slice of a bucket.
 *
 * All ranges are whole blocks (DDP_BLOCK floats), so there is no tail. These are plain functions that run at
 * once on the calling thread: the communicator's work on the comm stream calls them.
 */
#ifndef DDP_OPTIM_H_
#define DDP_OPTIM_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/export.h"
#include "base/status.h"
#include "kernels/device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ddp_optim_kind { DDP_OPTIM_SGD = 0, DDP_OPTIM_ADAMW = 1 } ddp_optim_kind_t;

/**
 * Hyper-parameters as PyTorch's SGD and AdamW name them. float64, because 1 - beta2 is taken before rounding:
 * a float32 0.999 would make it wrong by 1.3e-5.
 */
typedef struct ddp_optim_config {
    ddp_optim_kind_t kind;
    double           beta1, beta2, eps; /* adamw */
    double           momentum;          /* sgd; 0: no momentum slot */
    bool             nesterov;          /* sgd, with momentum > 0 */
    double weight_decay; /* adamw: decoupled (Loshchilov and Hutter 2019, arXiv 1711.05101); sgd: added to the
                            gradient */
} ddp_optim_config_t;
#define DDP_OPTIM_CONFIG_ADAMW                                                                               \
    {                                                                                                        \
        .kind = DDP_OPTIM_ADAMW, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01             \
    }

/** Number of moment buffers: adamw 2 ("exp_avg", "exp_avg_sq"), sgd 1 with momentum ("momentum_buffer"), else
 * 0. */
DDP_API size_t ddp_optim_slots(const ddp_optim_config_t *config);
/** @return PyTorch's name of a slot, static memory. */
DDP_API const char *ddp_optim_slot_name(const ddp_optim_config_t *config, size_t slot);
/** @return DDP_ERR_INVALID_ARG with the value that is out of range. */
DDP_API ddp_status_t ddp_optim_check(const ddp_optim_config_t *config) DDP_NODISCARD;

/** Deepest stack a program needs. */
#define DDP_TREE_MAX_DEPTH 32

/**
 * A sum of sources in a fixed order, as a postfix program: op[i] >= 0 pushes source op[i], op[i] ==
 * DDP_TREE_ADD replaces the two topmost x, y (y on top) by x + y. One value is left at the end.
 */
#define DDP_TREE_ADD (-1)
typedef struct ddp_tree_program {
    const int32_t      *op; /* [length] */
    size_t              length;
    const float *const *source; /* [sources], each the start of the range for this rank's slice */
    const float        *scale;  /* [sources], multiplies each source as it is read; NULL: all 1 */
} ddp_tree_program_t;

/** dst[i] = value of the program at i, i < blocks * DDP_BLOCK. dst may be one of the sources. An empty
 * program gives 0. */
DDP_API void ddp_tree_sum(ddp_isa_t isa, const ddp_tree_program_t *program, float *dst, size_t blocks);

/** As ddp_tree_sum(), and sumsq[b] = sum of squares of block b of the result, accumulated in float64. */
DDP_API void ddp_tree_sum_sumsq(ddp_isa_t isa, const ddp_tree_program_t *program, float *dst, double *sumsq,
                                size_t blocks);

/** One parameter update on one range: everything that is the same for all its elements. */
typedef struct ddp_update {
    const ddp_optim_config_t *config;
    float                     lr;
    float    grad_scale; /* g = grad_scale * value of the program: 1 / global weight, times the clip factor */
    uint64_t step;       /* of this parameter, from 1: AdamW's bias correction, SGD's first step */
    float   *param;
    float   *slot[2]; /* exp_avg, exp_avg_sq; or momentum_buffer, NULL */
    double  *sumsq;   /* [blocks] = as ddp_tree_sum_sumsq() of the program, or NULL */
} ddp_update_t;

/**
 * param, slot = update(param, slot, g) with g from the program, one pass over memory.
 * AdamW as torch.optim.AdamW: p *= 1 - lr * wd; m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2;
 * p -= lr / (1 - b1^step) * m / (sqrt(v) / sqrt(1 - b2^step) + eps). SGD as torch.optim.SGD (first step:
 * buffer = g).
 * @return true: all values of the program are finite. false: some are not, and so are now param and slot
 */
DDP_API bool ddp_tree_update(ddp_isa_t isa, const ddp_tree_program_t *program, const ddp_update_t *update,
                             size_t blocks);

/**
 * A running average, one pass over memory: value = (1 - momentum) * value + momentum * (program / parts), as
 * torch.nn.BatchNorm2d updates running_mean with the mean of `parts` statistics.
 * @param [in]  momentum  0 .. 1
 * @param [in]  parts     statistics in the sum, > 0
 * @param [out] sumsq     as in ddp_update_t, or NULL
 * @return true: all values of the program are finite
 */
DDP_API bool ddp_tree_average(ddp_isa_t isa, const ddp_tree_program_t *program, float *value, float momentum,
                              size_t parts, double *sumsq, size_t blocks);

/** dst[i] += src[i]: merging two subtrees. dst is the left one. */
DDP_API void ddp_block_add(ddp_isa_t isa, float *dst, const float *src, size_t blocks);

/**
 * Build the program that sums leaves [0, leaves) of the fixed tree from nodes that tile them.
 *
 * Node (level, index) covers leaves [index << level, (index + 1) << level); its sum is left + right, or the
 * left alone where the right one is empty. A node that is present must be complete or reach to the end.
 * @param [in]  level, index  [nodes], in order of their leaves, disjoint; leaves not covered are absent
 * (skipped)
 * @param [out] op            [2 * nodes], room for the program
 * @return DDP_ERR_INVALID_ARG: nodes overlap, are out of order or out of range
 */
DDP_API ddp_status_t ddp_tree_program_make(size_t leaves, const uint32_t *level, const uint32_t *index,
                                           size_t nodes, int32_t *op, size_t *length_p) DDP_NODISCARD;

/**
 * The largest nodes that tile leaves [first, first + count): the open subtrees of a rank.
 * @param [out] level, index  [2 * 64] at most
 * @return number of nodes, 0 for an empty range
 */
DDP_API size_t ddp_tree_nodes(size_t leaves, size_t first, size_t count, uint32_t *level, uint32_t *index);

#ifdef __cplusplus
}
#endif

#endif
