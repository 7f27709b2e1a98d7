/**
 * @file Pieces of Winograd's convolution, F(m x m, 3x3) with m = 2 or 4: transforms of tiles and weights.
 * Private.
 *
 * A tile of m x m results comes from n x n inputs, n = m + 2:  Y = At [(G w Gt) . (Bt x B)] A, with the
 * matrices of Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2015 (arXiv 1509.09308).
 * The sum over channels turns the product in the middle into n * n matrix products. Backward uses the exact
 * transposes: M = A dY At serves both gradients; dX is the sum of B V Bt over overlapping tiles, dW = Gt U G.
 *
 * Transformed values lie in n * n planes [tile][channel]; channels are padded to whole vectors, with zeros.
 */
#ifndef DDP_CONV_WINOGRAD_INTERNAL_H_
#define DDP_CONV_WINOGRAD_INTERNAL_H_

#include "kernels/cpu/conv_internal.h"

/** A row of tiles: where it lies in an image or a part of one, and in the planes. Distances in floats. */
typedef struct ddp_winograd_row {
    size_t m;     /* 2 or 4 */
    size_t tiles; /* next to each other */
    size_t pitch; /* channels, whole vectors: from pixel to pixel, and from tile to tile in a plane */
    size_t line;  /* from line to line of the image */
    size_t plane; /* from plane to plane */
} ddp_winograd_row_t;

/** Bt x B of n lines of pixels, tiles * m + 2 wide. */
void DDP_ISA_NAME(winograd_input)(const ddp_winograd_row_t *row, const float *x, float *planes);
/** Adds B V Bt to n lines. */
void DDP_ISA_NAME(winograd_input_grad)(const ddp_winograd_row_t *row, const float *planes, float *dx);
/** A dY At of m lines, tiles * m wide. */
void DDP_ISA_NAME(winograd_output_grad)(const ddp_winograd_row_t *row, const float *dy, float *planes);

/** Where results go: an image without padding, of which a tile may have only a part. */
typedef struct ddp_winograd_target {
    float       *y;
    size_t       lines, width, c; /* [lines][width][c] of the image are left from y on */
    const float *bias;            /* [c] or NULL */
    bool         relu;
} ddp_winograd_target_t;
/** At M A, then bias and relu. `row->line` is not used. */
void DDP_ISA_NAME(winograd_output)(const ddp_winograd_row_t *row, const float *planes,
                                   const ddp_winograd_target_t *target);

/** Floats from plane to plane of `floats`: never a multiple of 4096 bytes, which would put all planes into
 * one set of the cache. */
DDP_INLINE size_t winograd_plane(size_t floats)
{
    const size_t padded = (floats + 15) / 16 * 16 + 16;

    return padded % 1024 == 0 ? padded + 16 : padded;
}

/** G w Gt: planes [in_c][out_c rounded up], or with `transposed` [out_c][in_c rounded up]. */
void DDP_ISA_NAME(winograd_weights)(const ddp_conv2d_shape_t *shape, size_t m, bool transposed,
                                    const float *w, float *planes);
/** dw (+)= Gt U G of planes [in_c][out_c rounded up]. */
void DDP_ISA_NAME(winograd_weights_grad)(const ddp_conv2d_shape_t *shape, size_t m, const float *planes,
                                         float *dw, bool accumulate);

size_t DDP_ISA_NAME(conv_winograd_scratch_floats)(const ddp_conv2d_shape_t *shape);
/** n > 0 */
void DDP_ISA_NAME(conv_winograd)(const ddp_conv2d_args_t *args);
/** dx and dw, in this order; n > 0. */
void DDP_ISA_NAME(conv_winograd_backward)(const ddp_conv2d_backward_args_t *args);

#endif
