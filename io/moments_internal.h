/** @file Sums over pixels, and the mean and standard deviation they give: exact, in whatever order they are
 * added. Private to io. */
#ifndef DDP_MOMENTS_INTERNAL_H_
#define DDP_MOMENTS_INTERNAL_H_

#include <stddef.h>
#include <stdint.h>

/** Of one channel; begins as zeros. */
typedef struct ddp_moments {
    uint64_t count, sum, squares;
} ddp_moments_t;

/** Add `n` values, channels last; `n` is a multiple of the channels. `moments` is [channels]. */
void ddp_moments_add(ddp_moments_t *moments, size_t channels, const unsigned char *pixels, size_t n);

/** Mean and (population) standard deviation, pixels counted 0 .. 1; exactly 0 if all pixels are equal. */
void ddp_moments_get(const ddp_moments_t *moments, double *mean_p, double *std_p);

/**
 * Mean and (population) standard deviation of each channel of `n` float32 values, channels last; added up in
 * their order, in double precision, the deviations in a second pass.
 * @return index of the first value that is not finite, or `n`; then mean and std, [channels], are written
 */
size_t ddp_moments_floats(const float *pixels, size_t channels, size_t n, double *mean, double *std);

#endif
