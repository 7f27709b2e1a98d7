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
#include "tests/kernels/kernel_fixture.h"

/** Each instruction set in float32 and in bfloat16; the last mode is AVX-512 in bfloat16 without the
 * instruction. */
#define MODES 7

static inline ddp_isa_t mode_isa(int mode)
{
    return mode < MODES - 1 ? (ddp_isa_t)(mode / 2) : DDP_ISA_AVX512;
}

/** A stream of a device for `mode`; NULL if this processor lacks its set. */
static inline ddp_stream_t *mode_open(int mode, ddp_precision_t *precision_p)
{
    const bool    emulate = mode == MODES - 1;
    ddp_stream_t *stream  = NULL;

    *precision_p = emulate || mode % 2 == 1 ? DDP_PRECISION_BF16 : DDP_PRECISION_FLOAT32;
    if (emulate) {
        setenv("DDP_BF16", "emulate", 1);
    }
    if ((int)mode_isa(mode) < fixture_isas()) {
        stream = fixture_open((int)mode_isa(mode));
    }
    unsetenv("DDP_BF16");
    return stream;
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
