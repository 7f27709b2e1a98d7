/** @file How a kernel rounds the inputs of its products (DDP_PRECISION_*); for .cu files. Private. */
#ifndef DDP_CUDA_ROUND_H_
#define DDP_CUDA_ROUND_H_

#include "kernels/cuda/launch.h"
#include "kernels/ops.h"

/** To 10 bits of fraction, the nearest, ties to even. */
static __device__ inline float ddp_round_tf32(float x)
{
    const unsigned bits = __float_as_uint(x);

    if ((bits & 0x7f800000U) == 0x7f800000U) { /* infinite or no number */
        return x;
    }
    return __uint_as_float((bits + 0x0fffU + ((bits >> 13) & 1U)) & ~0x1fffU);
}

/** The nearest number that `P` has, ties to even; in half precision what is too large becomes infinite. */
template <ddp_precision_t P> static __device__ inline float ddp_round(float x)
{
    switch (P) {
    case DDP_PRECISION_BF16:
        return __bfloat162float(__float2bfloat16_rn(x));
    case DDP_PRECISION_FP16:
        return __half2float(__float2half_rn(x));
    case DDP_PRECISION_TF32:
        return ddp_round_tf32(x);
    case DDP_PRECISION_FLOAT32:
        break;
    }
    return x;
}

#endif
