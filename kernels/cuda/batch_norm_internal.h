/** @file What both directions of batch normalisation share, for .cu files. Private. */
#ifndef DDP_CUDA_BATCH_NORM_INTERNAL_H_
#define DDP_CUDA_BATCH_NORM_INTERNAL_H_

#include "kernels/cuda/pack.h"

/** Before residual and activation. Not x * scale + shift: with a large mean that cancels. Backward finds with
 * the same expression where RELU gave 0, so how it is rounded is fixed. */
static __device__ inline float bn_value(float x, float mean, float scale, float beta)
{
    return fmaf(x - mean, scale, beta);
}

/**
 * A walk over packs of a matrix whose rows are `across` packs: all threads of the grid in strides, each
 * knowing its column without a division a step. for (bn_walk w(across, packs); w.is_inside(); w.next())
 */
struct bn_walk {
    size_t at;     /* pack */
    size_t column; /* pack in its row */
    size_t packs, across, step, step_column;

    __device__ bn_walk(size_t across_, size_t packs_)
        : at(blockIdx.x * (size_t)blockDim.x + threadIdx.x), column(at % across_), packs(packs_),
          across(across_), step(gridDim.x * (size_t)blockDim.x), step_column(step % across_)
    {
    }
    __device__ bool is_inside() const
    {
        return at < packs;
    }
    __device__ void next()
    {
        at += step;
        column += step_column;
        column -= column >= across ? across : 0;
    }
};

#endif
