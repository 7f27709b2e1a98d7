/**
 * @file Sum of squares of one block, the same bits with every instruction set. Private.
 *
 * A square of a float32 is exact in float64, so that FMA or not is the same; eight running sums, lane i
 * taking elements i, i + 8, ..., are added pairwise at the end.
 */
#ifndef DDP_SUMSQ_H_
#define DDP_SUMSQ_H_

#include "kernels/cpu/vec.h"
#include "kernels/layout.h"

#define DDP_SUMSQ_LANES 8

DDP_INLINE double block_sumsq(const float *x)
{
    typedef double lanes_t __attribute__((vector_size(DDP_SUMSQ_LANES * 8)));
    typedef float  eight_t __attribute__((vector_size(DDP_SUMSQ_LANES * 4), aligned(4), may_alias));
    lanes_t        sum = {0};

    for (size_t i = 0; i < DDP_BLOCK; i += DDP_SUMSQ_LANES) {
        const lanes_t v = __builtin_convertvector(*(const eight_t *)(x + i), lanes_t);

        sum += v * v;
    }
    return ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7]));
}

#endif
