/**
 * @file Activations of one value: for the element-wise kernels and for epilogues; for .cu files. Private.
 *
 * Both GELUs are relu(x) - t q(t), t = |x|, with the lower tail q(t) = Phi(-t) or sigmoid(-2 z(t)) computed
 * as such, as on the cpu (kernels/cpu/activation.h): nothing cancels. A NaN stays a NaN.
 */
#ifndef DDP_CUDA_ACTIVATION_H_
#define DDP_CUDA_ACTIVATION_H_

#include "kernels/cuda/launch.h"
#include "kernels/ops.h"

/* Beyond this |x| both tails are below float32's smallest normal number. */
#define DDP_CUDA_GELU_TAIL 14.0F

static __device__ inline float ddp_relu(float x)
{
    return x <= 0.0F ? 0.0F : x;
}

/* Phi(-t) = erfc(t / sqrt(2)) / 2 */
static __device__ inline float ddp_normal_tail(float t)
{
    return 0.5F * erfcf(0.707106781F * t);
}

/* sigmoid(-2 z), z = sqrt(2 / pi) (t + 0.044715 t^3) */
static __device__ inline float ddp_tanh_tail(float t)
{
    const float e = expf(-1.59576912F * t * (1.0F + 0.044715F * t * t));

    return e / (1.0F + e);
}

/** act(x) */
static __device__ inline float ddp_act(ddp_act_t act, float x)
{
    const float t = fminf(fabsf(x), DDP_CUDA_GELU_TAIL);

    switch (act) {
    case DDP_ACT_RELU:
        return ddp_relu(x);
    case DDP_ACT_GELU:
        return ddp_relu(x) - t * ddp_normal_tail(t);
    case DDP_ACT_GELU_TANH:
        return ddp_relu(x) - t * ddp_tanh_tail(t);
    case DDP_ACT_NONE:
        break;
    }
    return x;
}

/** act'(.) of what was saved: act(x) for RELU, x for the GELUs; nothing for NONE. */
static __device__ inline float ddp_act_slope(ddp_act_t act, float saved)
{
    const float t    = fminf(fabsf(saved), DDP_CUDA_GELU_TAIL);
    float       tail = 0.0F;
    float       rate = 0.0F; /* |x| times the derivative of the upper tail */

    switch (act) {
    case DDP_ACT_NONE:
        return 1.0F;
    case DDP_ACT_RELU:
        return saved <= 0.0F ? 0.0F : 1.0F;
    case DDP_ACT_GELU:
        tail = ddp_normal_tail(t);
        rate = t * 0.398942280F * expf(-0.5F * t * t);
        break;
    case DDP_ACT_GELU_TANH:
        tail = ddp_tanh_tail(t);
        rate = t * tail * (1.0F - tail) * 1.59576912F * (1.0F + 0.134145F * t * t);
        break;
    }
    if (saved != saved) {
        return saved;
    }
    return (saved > 0.0F ? 1.0F - tail : tail) + copysignf(rate, saved);
}

#endif
