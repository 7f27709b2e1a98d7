/**
 * @file The flat layout of parameters, gradients and moments: one float32 buffer each, made of whole blocks.
 *
 * Every tensor begins at a block border and is padded with zeros to the next one, so blocks never span
 * tensors and element-wise kernels run whole blocks without a tail. Tensors lie in the order in which their
 * gradients become ready: the reverse of registration. Buckets are ranges of whole tensors, slices ranges of
 * whole blocks.
 */
#ifndef DDP_LAYOUT_H_
#define DDP_LAYOUT_H_

#include <stdbool.h>
#include <stddef.h>

#include "base/export.h"
#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Floats in a block. Sums over elements are taken per block, then over blocks in order. */
#define DDP_BLOCK    256
#define DDP_MAX_DIMS 4

/**
 * What a step does to a tensor. PARAMETER: the optimizer's update. AVERAGE: a running average, as the mean
 * and variance of batch normalisation; its "gradient" is a micro-batch's own statistic, and value = (1 -
 * momentum) * value + momentum * (sum over micro-batches) / (micro-batches with samples). It has no moments
 * and no decay, and is no part of the gradient's norm.
 */
typedef enum ddp_tensor_role { DDP_TENSOR_PARAMETER = 0, DDP_TENSOR_AVERAGE = 1 } ddp_tensor_role_t;

/** One tensor, float32, C order. All zeros but for name, ndim and shape: a parameter as any other. */
typedef struct ddp_tensor_desc {
    const char       *name; /* state_dict name, unique; borrowed */
    size_t            ndim; /* 1 .. DDP_MAX_DIMS */
    size_t            shape[DDP_MAX_DIMS];
    size_t            count;  /* product of shape, > 0 */
    size_t            offset; /* floats from the start of a flat buffer; a multiple of DDP_BLOCK */
    ddp_tensor_role_t role;
    float             momentum; /* AVERAGE: weight of the new value, 0 .. 1 */
    bool              no_decay; /* PARAMETER: weight decay is 0 */
    bool              frozen;   /* PARAMETER: it has no gradient, and no step changes it */
} ddp_tensor_desc_t;

/** `count` rounded up to whole blocks. */
static inline size_t ddp_block_round(size_t count)
{
    return (count + DDP_BLOCK - 1) / DDP_BLOCK * DDP_BLOCK;
}

/**
 * Fill `count` and `offset` of `n` tensors given in registration order, last tensor first.
 * @param [out] total_p  floats of a flat buffer, a multiple of DDP_BLOCK
 * @return DDP_ERR_INVALID_ARG: no tensor, ndim, a dimension, role or momentum out of range, a name twice, or
 * more than memory can hold
 */
DDP_API ddp_status_t ddp_layout_make(ddp_tensor_desc_t *tensors, size_t n, size_t *total_p) DDP_NODISCARD;

#ifdef __cplusplus
}
#endif

#endif
