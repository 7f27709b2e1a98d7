/**
 * @file Sum of squares of one block of DDP_BLOCK floats, with the bits of kernels/cpu/sumsq.h: lane i of
 * eight sums elements i, i + 8, ... in float64, and the lanes are added pairwise. CUDA C; private.
 */
#ifndef DDP_CUDA_SUMSQ_H_
#define DDP_CUDA_SUMSQ_H_

#include "kernels/cuda/launch.h"
#include "kernels/layout.h"

#define DDP_SUMSQ_LANES 8

/** One lane's part of the block at x, of which there are `count` elements, zeros behind. The square of a
 * float32 is exact, so that an FMA is the same. */
static __device__ inline double sumsq_lane(const float *x, size_t lane, size_t count)
{
    double sum = 0.0;

    for (size_t i = lane; i < DDP_BLOCK && i < count; i += DDP_SUMSQ_LANES) {
        sum += (double)x[i] * (double)x[i];
    }
    return sum;
}

/** The lanes together. */
static __device__ inline double sumsq_finish(const double *lane)
{
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

#endif
