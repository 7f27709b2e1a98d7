/** @file Pixels to floats. Private to io. */
#ifndef DDP_NORMALISE_INTERNAL_H_
#define DDP_NORMALISE_INTERNAL_H_

#include <stddef.h>

/** Pixels of each channel that one table serves. */
#define DDP_NORMALISE_RUN 64

/**
 * x[i] = pixels[i] * scale[i % period] + offset[i % period], rounded after each operation on every machine.
 * @param [in] period  a multiple of DDP_NORMALISE_RUN
 */
void ddp_normalise(const unsigned char *pixels, size_t n, const float *scale, const float *offset,
                   size_t period, float *x);

/** The same of float32. */
void ddp_normalise_floats(const float *pixels, size_t n, const float *scale, const float *offset,
                          size_t period, float *x);

#endif
