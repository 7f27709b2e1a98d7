/** @file What products round their inputs to, by arithmetic in float64: nothing of it is shared with kernels.
 */
#ifndef DDP_TESTS_CUDA_ROUNDING_H_
#define DDP_TESTS_CUDA_ROUNDING_H_

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernels/ops.h"

/** Significant bits, the leading one with them. */
static inline int rounding_bits(ddp_precision_t precision)
{
    switch (precision) {
    case DDP_PRECISION_BF16:
        return 8;
    case DDP_PRECISION_FP16:
    case DDP_PRECISION_TF32:
        return 11;
    case DDP_PRECISION_FLOAT32:
        break;
    }
    return 24;
}

/** `x` in units of the last place that the precision has for it. */
static inline double rounding_scaled(ddp_precision_t precision, double x, int *exponent_p)
{
    int exponent;

    (void)frexp(x, &exponent);
    if (precision == DDP_PRECISION_FP16 && exponent < -13) {
        exponent = -13; /* below 2^-14 its numbers are 2^-24 apart */
    }
    *exponent_p = exponent - rounding_bits(precision);
    return ldexp(x, -*exponent_p);
}

/** The nearest number, of two the even one; in half precision what is beyond 65519 is infinite. */
static inline double rounding_nearest(ddp_precision_t precision, double x)
{
    int          exponent;
    const double rounded =
        precision == DDP_PRECISION_FLOAT32 ? x : nearbyint(rounding_scaled(precision, x, &exponent));

    if (precision == DDP_PRECISION_FLOAT32) {
        return x;
    }
    x = ldexp(rounded, exponent);
    return precision == DDP_PRECISION_FP16 && fabs(x) > 65504.0 ? copysign(INFINITY, x) : x;
}

/** Whether two numbers are as near. */
static inline bool rounding_is_tie(ddp_precision_t precision, double x)
{
    int    exponent;
    double scaled;

    if (precision == DDP_PRECISION_FLOAT32) {
        return false;
    }
    scaled = rounding_scaled(precision, x, &exponent);
    return scaled - floor(scaled) == 0.5;
}

/** The value of a number of bfloat16 or half precision from its bits, none of them infinite. */
static inline double rounding_of_bits(ddp_precision_t precision, uint16_t bits)
{
    const int    fraction_bits = rounding_bits(precision) - 1;
    const int    exponent      = (bits & 0x7fff) >> fraction_bits;
    const int    fraction      = bits & ((1 << fraction_bits) - 1);
    const int    bias          = (1 << (14 - fraction_bits)) - 1;
    const double value         = exponent == 0
                                     ? ldexp(fraction, 1 - bias - fraction_bits)
                                     : ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);

    return (bits & 0x8000) != 0 ? -value : value;
}

#endif
