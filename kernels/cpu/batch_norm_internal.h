/**
 * @file What both directions of batch normalisation share: how rows and channels are walked. Private.
 *
 * Rows are taken in chunks that stay in the L1 cache; in a chunk, BN_WIDE vectors are in work at a time: so
 * many channels of one row, or fewer channels of several rows. Which sum an element goes to depends on the
 * shape alone.
 */
#ifndef DDP_BATCH_NORM_INTERNAL_H_
#define DDP_BATCH_NORM_INTERNAL_H_

#include <stdbool.h>

#include "kernels/cpu/activation.h"
#include "kernels/cpu/rows.h"

#define BN_WIDE 4
/* Floats of a chunk, and of what is done between two looks at the clock. */
#define BN_CHUNK    6144
#define BN_PROGRESS 65536

DDP_INLINE size_t bn_chunk_rows(size_t channels)
{
    return channels > BN_CHUNK / 8 ? 8 : BN_CHUNK / channels;
}

/* Vectors of a group of channels when `left` are left: 4, 2 or 1. */
DDP_INLINE size_t bn_group(size_t left)
{
    return left >= 4 * VL ? 4 : left >= 2 * VL ? 2 : 1;
}

/* BN_FOR_GROUP(left, run, ...) calls run(vectors, whole, ...) with both known to the compiler; `whole`: no
 * vector ends behind the last channel. */
#define BN_FOR_GROUP(left, run, ...)                                                                         \
    do {                                                                                                     \
        if ((left) >= 4 * VL) {                                                                              \
            run(4, true, __VA_ARGS__);                                                                       \
        } else if ((left) >= 2 * VL) {                                                                       \
            run(2, true, __VA_ARGS__);                                                                       \
        } else if ((left) >= VL) {                                                                           \
            run(1, true, __VA_ARGS__);                                                                       \
        } else {                                                                                             \
            run(1, false, __VA_ARGS__);                                                                      \
        }                                                                                                    \
    } while (0)

DDP_INLINE vf_t bn_load(const bool whole, const float *p, size_t left)
{
    return whole ? vload(p) : vload_masked(p, vmask_first(left));
}

DDP_INLINE void bn_store(const bool whole, float *p, vf_t x, size_t left)
{
    if (whole) {
        vstore(p, x);
    } else {
        vstore_masked(p, x, vmask_first(left));
    }
}

/* Before residual and activation. Not x * scale + shift: with a large mean that cancels. Backward finds with
 * the same expression where RELU gave 0. */
DDP_INLINE vf_t bn_value(vf_t x, vf_t mean, vf_t scale, vf_t beta)
{
    return (x - mean) * scale + beta;
}

#endif
