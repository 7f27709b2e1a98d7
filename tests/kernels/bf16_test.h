/**
 * @file bfloat16 in kernel tests: rounding by arithmetic in float64, and what a loop test counts through.
 *
 * Of inputs that are bfloat16 numbers already, a product in bfloat16 is what it is in float32: so a test of
 * float32 tests both.
 */
#ifndef DDP_BF16_TEST_H_
#define DDP_BF16_TEST_H_

#include <math.h>
#include <stddef.h>
#include <stdlib.h>

#include "kernels/ops.h"

/** Each instruction set in float32 and in bfloat16; the last mode is AVX-512 in bfloat16 without the
 * instruction. */
#define MODES 7

static inline ddp_isa_t mode_isa(int mode)
{
    return mode < MODES - 1 ? (ddp_isa_t)(mode / 2) : DDP_ISA_AVX512;
}

/** Before a device is made; ends with mode_end(). */
static inline ddp_precision_t mode_begin(int mode)
{
    if (mode == MODES - 1) {
        setenv("DDP_BF16", "emulate", 1);
        return DDP_PRECISION_BF16;
    }
    return mode % 2 == 0 ? DDP_PRECISION_FLOAT32 : DDP_PRECISION_BF16;
}

static inline void mode_end(void)
{
    unsetenv("DDP_BF16");
}

/** The nearest number with 8 significant bits, of two the even one; below 2^-126: 0. */
static inline float bf16_nearest(float x)
{
    int          exponent;
    const double part = frexp((double)x, &exponent);

    if (x - x != 0.0F) {
        return x;
    }
    if (fabs((double)x) < 0x1p-126) {
        return copysignf(0.0F, x);
    }
    return (float)ldexp(nearbyint(ldexp(part, 8)), exponent - 8);
}

static inline void bf16_nearest_all(float *x, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        x[i] = bf16_nearest(x[i]);
    }
}

#endif
