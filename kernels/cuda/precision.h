/** @file How the inputs of products are rounded (ddp_precision_t), for .cu files. Private. */
#ifndef DDP_CUDA_PRECISION_H_
#define DDP_CUDA_PRECISION_H_

#include "kernels/cuda/launch.h"
#include "kernels/ops.h"

/** To 10 bits of fraction, the nearest, ties to even; what is not finite stays so. */
static __device__ inline float ddp_round_tf32(float x)
{
    const uint32_t bits = __float_as_uint(x);

    if ((bits & 0x7f800000U) == 0x7f800000U) {
        return x;
    }
    return __uint_as_float((bits + 0xfffU + (bits >> 13 & 1U)) & ~0x1fffU);
}

/** Branches on a value that is the same in the whole grid. */
static __device__ inline float ddp_round(ddp_precision_t precision, float x)
{
    switch (precision) {
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

/* Run a statement with the constant P, for kernels that are templates of the precision. */
#define DDP_WITH_ONE_PRECISION(precision, ...)                                                               \
    case precision: {                                                                                        \
        constexpr ddp_precision_t P = precision;                                                             \
        __VA_ARGS__;                                                                                         \
        break;                                                                                               \
    }
#define DDP_WITH_PRECISION(precision, ...)                                                                   \
    switch (precision) {                                                                                     \
        DDP_WITH_ONE_PRECISION(DDP_PRECISION_FLOAT32, __VA_ARGS__)                                           \
        DDP_WITH_ONE_PRECISION(DDP_PRECISION_BF16, __VA_ARGS__)                                              \
        DDP_WITH_ONE_PRECISION(DDP_PRECISION_TF32, __VA_ARGS__)                                              \
        DDP_WITH_ONE_PRECISION(DDP_PRECISION_FP16, __VA_ARGS__)                                              \
    }

#endif
