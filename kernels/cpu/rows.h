/**
 * @file Sums, maxima and exponentials of one row, for losses, norms and attention. Private.
 *
 * A row may end within a vector; nothing behind it is touched. Sums run in float32 over at most SUM_VECTORS
 * vectors and go on in float64, always in the same order.
 */
#ifndef DDP_ROWS_H_
#define DDP_ROWS_H_

#include <stdbool.h>

#include "kernels/cpu/vec.h"
#include "kernels/ops.h"

/* Vectors summed in float32 before the sum goes on in float64. */
#define SUM_VECTORS 16

typedef struct loss_sums {
    double loss, weight, correct, counted;
} loss_sums_t;

static inline void sums_store(const loss_sums_t *sums, ddp_loss_stats_t *stats)
{
    stats->loss    = (float)sums->loss;
    stats->weight  = (float)sums->weight;
    stats->correct = (float)sums->correct;
    stats->counted = (float)sums->counted;
}

/* Every label is a class or `ignored`, or the line names the row that is not. */
ddp_status_t DDP_ISA_NAME(labels_check)(const int32_t *labels, size_t rows, size_t classes, int32_t ignored);

/*
 * log(x) of a positive normal number. x = m * 2^e with m in [sqrt(1/2), sqrt(2)); log m = 2 atanh(s),
 * s = (m - 1) / (m + 1), |s| < 0.172, by its series to s^21. The C library's differs between its versions,
 * and ranks on unlike machines would.
 */
static inline double natural_log(double x)
{
    union {
        double   value;
        uint64_t bits;
    } u = {.value = x};
    /* 0x3fe6a09e667f3bcd is sqrt(1/2) */
    const int64_t e = (int64_t)(u.bits - 0x3fe6a09e667f3bcdULL) >> 52;
    double        s;
    double        s2;
    double        p = 1.0 / 21.0;

    u.bits -= (uint64_t)e << 52;
    s  = (u.value - 1.0) / (u.value + 1.0);
    s2 = s * s;
    for (int k = 19; k >= 1; k -= 2) {
        p = p * s2 + 1.0 / k;
    }
    return (double)e * 0.6931471805599453 + 2.0 * s * p;
}

/* The first n elements at p, n >= 1: at most one vector, 0 in the other lanes. */
DDP_INLINE vf_t vload_some(const float *p, size_t n)
{
    return n >= VL ? vload(p) : vload_masked(p, vmask_first(n));
}

DDP_INLINE void vstore_some(float *p, vf_t x, size_t n)
{
    if (n >= VL) {
        vstore(p, x);
    } else {
        vstore_masked(p, x, vmask_first(n));
    }
}

/* x with 0 in all lanes but the first n */
DDP_INLINE vf_t vkeep_some(vf_t x, size_t n)
{
    float lane[VL];

    if (n >= VL) {
        return x;
    }
    vstore(lane, x);
    return vload_masked(lane, vmask_first(n));
}

/* Largest value and whether there is a NaN. */
static inline float row_max(const float *x, size_t n, bool *has_nan)
{
    vf_t   lanes = vset1(-INFINITY);
    vi_t   nan   = vset1i(0);
    size_t j     = 0;
    float  largest;

    for (; j + VL <= n; j += VL) {
        const vf_t v = vload(x + j);

        lanes = vmax(v, lanes);
        nan |= v != v;
    }
    if (j < n && n >= VL) { /* the last vector once more: it changes nothing to see an element twice */
        const vf_t v = vload(x + n - VL);

        lanes = vmax(v, lanes);
        nan |= v != v;
        j = n;
    }
    largest  = vhmax(lanes);
    *has_nan = vany(nan);
    for (; j < n; j++) {
        largest  = x[j] > largest ? x[j] : largest;
        *has_nan = *has_nan || isnan(x[j]);
    }
    return largest;
}

static inline size_t first_equal(const float *x, size_t n, float value)
{
    size_t j = 0;

    while (j < n && x[j] != value) {
        j++;
    }
    return j;
}

/* Sum of exp(x - largest), in a fixed order; the terms to `e` if it is not NULL. */
static inline double row_exp(const float *x, size_t n, float largest, float *e)
{
    const vf_t top   = vset1(largest);
    double     total = 0.0;

    for (size_t first = 0; first < n; first += SUM_VECTORS * VL) {
        const size_t last = n - first < SUM_VECTORS * VL ? n : first + SUM_VECTORS * VL;
        vf_t         sum  = vset1(0.0F);
        size_t       j    = first;

        for (; j + VL <= last; j += VL) {
            const vf_t term = vexp(vload(x + j) - top);

            sum += term;
            if (e != NULL) {
                vstore(e + j, term);
            }
        }
        if (j < last) {
            const vmask_t tail     = vmask_first(last - j);
            float         lane[VL] = {0};

            vstore_masked(lane, vexp(vload_masked(x + j, tail) - top), tail);
            sum += vload(lane);
            if (e != NULL) {
                vstore_masked(e + j, vload(lane), tail);
            }
        }
        total += (double)vsum(sum);
    }
    return total;
}

#endif
