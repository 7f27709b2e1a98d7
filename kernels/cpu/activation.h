/**
 * @file Activations of one vector: value and derivative, for the element-wise kernels and for epilogues.
 * Private.
 *
 * Both GELUs are written as relu(x) - t * q(t), t = |x|, with the lower tail q(t) = Phi(-t) or
 * sigmoid(-2 z(t)) computed as such: nothing cancels, so that small values keep their relative accuracy. A
 * NaN stays a NaN.
 */
#ifndef DDP_ACTIVATION_H_
#define DDP_ACTIVATION_H_

#include "kernels/cpu/vec.h"
#include "kernels/ops.h"

/* Beyond this |x| both tails are below float32's smallest normal number. */
#define DDP_GELU_TAIL 14.0F

/* 0 for x <= 0, else x */
DDP_INLINE vf_t vrelu(vf_t x)
{
    return vselect(x <= vset1(0.0F), vset1(0.0F), x);
}

/*
 * Phi(-t) for 0 <= t <= 14, and the normal density through *density. Phi(-t) = exp(-t^2 / 2) * r(u),
 * u = (t - 3) / (t + 3): r is smooth; least-squares fit of degree 9 reweighted to equal ripple, 8e-9 relative
 * before rounding.
 */
DDP_INLINE vf_t vnormal_tail(vf_t t, vf_t *density)
{
    vf_t e = vexp(vset1(-0.5F) * t * t);
    vf_t u = (t - vset1(3.0F)) / (t + vset1(3.0F));
    vf_t r = vset1(5.3671894e-5F);

    r        = r * u + vset1(1.15543793e-4F);
    r        = r * u + vset1(-3.39484919e-4F);
    r        = r * u + vset1(-9.83758480e-4F);
    r        = r * u + vset1(2.90455623e-3F);
    r        = r * u + vset1(6.13207044e-3F);
    r        = r * u + vset1(-4.62132916e-2F);
    r        = r * u + vset1(1.23225033e-1F);
    r        = r * u + vset1(-2.06402615e-1F);
    r        = r * u + vset1(1.21513948e-1F);
    *density = e * vset1(0.398942280F);
    return e * r;
}

/* sigmoid(-2 z) for 0 <= t <= 14, z = sqrt(2 / pi) (t + 0.044715 t^3), and d(2 z)/dt through *slope */
DDP_INLINE vf_t vtanh_tail(vf_t t, vf_t *slope)
{
    vf_t t2 = t * t;
    vf_t e  = vexp(vset1(-1.59576912F) * t * (vset1(1.0F) + vset1(0.044715F) * t2));

    *slope = vset1(1.59576912F) * (vset1(1.0F) + vset1(0.134145F) * t2);
    return e / (vset1(1.0F) + e);
}

/* act(x) */
DDP_INLINE vf_t vact(ddp_act_t act, vf_t x)
{
    vf_t t = vmin(vabs(x), vset1(DDP_GELU_TAIL));
    vf_t unused;

    switch (act) {
    case DDP_ACT_RELU:
        return vrelu(x);
    case DDP_ACT_GELU:
        return vrelu(x) - t * vnormal_tail(t, &unused);
    case DDP_ACT_GELU_TANH:
        return vrelu(x) - t * vtanh_tail(t, &unused);
    case DDP_ACT_NONE:
        break;
    }
    return x;
}

/* dy * act'(.); saved is act(x) for RELU, x for the GELUs */
DDP_INLINE vf_t vact_backward(ddp_act_t act, vf_t saved, vf_t dy)
{
    const vf_t one = vset1(1.0F);
    vf_t       t   = vmin(vabs(saved), vset1(DDP_GELU_TAIL));
    vf_t       tail;
    vf_t       rate; /* |x| times the derivative of the upper tail */

    if (act == DDP_ACT_NONE) {
        return dy;
    }
    if (act == DDP_ACT_RELU) {
        return vselect(saved <= vset1(0.0F), vset1(0.0F), dy);
    }
    if (act == DDP_ACT_GELU) {
        tail = vnormal_tail(t, &rate);
        rate = rate * t;
    } else {
        tail = vtanh_tail(t, &rate);
        rate = rate * tail * (one - tail) * t;
    }
    tail = vselect(saved > vset1(0.0F), one - tail, tail) + vcopysign(rate, saved);
    return dy * vselect(saved == saved, tail, saved);
}

#endif
