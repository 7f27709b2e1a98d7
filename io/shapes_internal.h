/** @file The drawn data set: ten figures, 28 x 28 grey pixels, made from the seed. Private to io. */
#ifndef DDP_SHAPES_INTERNAL_H_
#define DDP_SHAPES_INTERNAL_H_

#include <stddef.h>
#include <stdint.h>

#define DDP_SHAPES_SIDE    28
#define DDP_SHAPES_PIXELS  (DDP_SHAPES_SIDE * DDP_SHAPES_SIDE)
#define DDP_SHAPES_CLASSES 10
#define DDP_SHAPES_TRAIN   20000
#define DDP_SHAPES_TEST    4000

/**
 * Draw sample `index`: a pure function of (seed, split, index), the same bits on every machine (no libm, no
 * fused multiply-add). Labels take turns, so that classes are balanced. Place, size, slant, line width,
 * contrast, which of figure and ground is brighter, and noise are drawn.
 * @param [in]  split   ddp_split_t
 * @param [out] pixels  [DDP_SHAPES_PIXELS]
 * @return the label: disc, ring, square, frame, triangle, plus, cross, level stripes, upright stripes,
 * checker
 */
int32_t ddp_shapes_draw(uint64_t seed, uint32_t split, uint64_t index, unsigned char *pixels);

#endif
