/**
 * @file Sums and largest values over the threads of a warp or block, in one order whatever the schedule; for
 * .cu files. Private.
 *
 * Every thread of the warp (the block) takes part and gets the result. Blocks have whole warps and one
 * dimension, or the threads of a warp next to each other in x.
 */
#ifndef DDP_CUDA_REDUCE_H_
#define DDP_CUDA_REDUCE_H_

#include "kernels/cuda/launch.h"

#define DDP_CUDA_WARP 32
#define DDP_CUDA_FULL 0xffffffffU

/** Over groups of `width` lanes next to each other; a power of two. */
template <class T> static __device__ inline T ddp_warp_sum(T value, int width = DDP_CUDA_WARP)
{
    for (int by = width / 2; by > 0; by /= 2) {
        value += __shfl_xor_sync(DDP_CUDA_FULL, value, by);
    }
    return value;
}

/** NaNs are passed over, as fmaxf() does. */
static __device__ inline float ddp_warp_max(float value, int width = DDP_CUDA_WARP)
{
    for (int by = width / 2; by > 0; by /= 2) {
        value = fmaxf(value, __shfl_xor_sync(DDP_CUDA_FULL, value, by));
    }
    return value;
}

/** @param [in,out] part  shared, room for one value a warp; free again when all threads have come to the next
 * barrier of the block */
template <class T> static __device__ inline T ddp_block_sum(T value, T *part)
{
    const unsigned lane  = threadIdx.x % DDP_CUDA_WARP;
    const unsigned warps = blockDim.x / DDP_CUDA_WARP;

    value = ddp_warp_sum(value);
    __syncthreads(); /* an earlier call's result may still be read */
    if (lane == 0) {
        part[threadIdx.x / DDP_CUDA_WARP] = value;
    }
    __syncthreads();
    return ddp_warp_sum(lane < warps ? part[lane] : (T)0);
}

/** As ddp_block_sum(), of a `part` that nobody reads any more: there has been a barrier since. */
static __device__ inline float ddp_block_max(float value, float *part)
{
    const unsigned lane  = threadIdx.x % DDP_CUDA_WARP;
    const unsigned warps = blockDim.x / DDP_CUDA_WARP;

    value = ddp_warp_max(value);
    if (lane == 0) {
        part[threadIdx.x / DDP_CUDA_WARP] = value;
    }
    __syncthreads();
    return ddp_warp_max(lane < warps ? part[lane] : -INFINITY);
}

#endif
