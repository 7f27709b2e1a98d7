/**
 * @file Pieces of the direct convolution: strided products on register blocks, and the forms that image and
 * weights take for them. Private.
 *
 * "vector side": the channels that lie in vectors (output channels in forward and in the weight gradient,
 * input channels in the data gradient); there packed forms are padded to whole vectors. The other side is
 * broadcast and may have any length.
 */
#ifndef DDP_CONV_INTERNAL_H_
#define DDP_CONV_INTERNAL_H_

#include <stdbool.h>
#include <stddef.h>

#include "kernels/cpu/vec.h"
#include "kernels/ops.h"

#define CONV_VECTORS 2 /* of a register block's columns */
#if VL == 16
#define CONV_ROWS 14
#else
#define CONV_ROWS 6
#endif

/**
 * For each repeat r: c[i][j] (+)= sum over segments s, steps k of a[i, s, k] * b[s, k][j], then bias and
 * relu. All distances are in floats.
 */
typedef struct ddp_conv_product {
    size_t       m, n, k, segments, repeats;
    const float *a;
    size_t       a_row, a_step, a_segment, a_repeat;
    const float *b; /* readable in whole vectors, up to n rounded up */
    size_t       b_step, b_segment;
    float       *c; /* nothing outside [m][n] is touched */
    size_t       c_row, c_repeat;
    const float *bias; /* [n] or NULL; not with accumulate */
    bool         accumulate, relu;
} ddp_conv_product_t;

void DDP_ISA_NAME(conv_product)(const ddp_conv_product_t *product);

DDP_INLINE size_t conv_round(size_t channels)
{
    return (channels + VL - 1) / VL * VL;
}

/** An image [h, w, c] copied into the middle of zeros: `before` and `after` rows and columns, channels at
 * distance `pitch` >= c. */
typedef struct ddp_conv_frame {
    size_t h, w, c, pitch;
    size_t top, left, bottom, right;
} ddp_conv_frame_t;

DDP_INLINE size_t conv_frame_row(const ddp_conv_frame_t *f)
{
    return (f->left + f->w + f->right) * f->pitch;
}

DDP_INLINE size_t conv_frame_floats(const ddp_conv_frame_t *f)
{
    return (f->top + f->h + f->bottom) * conv_frame_row(f);
}

void DDP_ISA_NAME(conv_frame_copy)(const ddp_conv_frame_t *frame, const float *image, float *framed);
/** Zeros around the image only: once, before any number of copies. */
void DDP_ISA_NAME(conv_frame_clear)(const ddp_conv_frame_t *frame, float *framed);

/** w [out_c][in_c][h][w] -> [h][w][in_c][out_c rounded up]: forward. */
void DDP_ISA_NAME(conv_pack_forward)(const ddp_conv2d_shape_t *shape, const float *w, float *packed);
/** The way back, for gradients: dw (+)= packed. */
void DDP_ISA_NAME(conv_unpack)(const ddp_conv2d_shape_t *shape, const float *packed, float *dw,
                               bool accumulate);

/**
 * Taps of one axis that reach the same input positions. With stride s, input position i gets something from
 * tap r only if (i + pad - r) % s == 0; so the taps fall into s classes, and each is a convolution of
 * stride 1.
 */
typedef struct ddp_conv_class {
    size_t taps;
    size_t first;  /* smallest input position of the class; then every stride-th */
    size_t count;  /* input positions */
    size_t origin; /* frame position of dy under the last tap, at input position `first` */
} ddp_conv_class_t;

DDP_INLINE ddp_conv_class_t conv_class(size_t which, size_t in, size_t kernel, size_t stride, size_t pad,
                                       size_t before)
{
    ddp_conv_class_t c;

    c.taps  = kernel > which ? (kernel - which + stride - 1) / stride : 0;
    c.first = (which + stride - pad % stride) % stride;
    c.count = c.first < in ? (in - c.first + stride - 1) / stride : 0;
    /* dy position under tap `which` is (first + pad - which) / stride; the last tap is taps - 1 before that
     */
    c.origin = before + (c.first + pad - which) / stride + 1 - c.taps;
    return c;
}

/** Weights of class (row, column): [taps][taps][out_c][in_c rounded up], both axes turned round. @return
 * floats written */
size_t DDP_ISA_NAME(conv_pack_class)(const ddp_conv2d_shape_t *shape, size_t row, size_t column,
                                     const float *w, float *packed);

#endif
