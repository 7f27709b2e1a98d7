/** @file A convolution with all its buffers between guards, and what a plain loop in float64 gives for it. */
#ifndef DDP_CONV_LAYER_H_
#define DDP_CONV_LAYER_H_

#include "tests/kernels/kernel_fixture.h"

/* n, height, width, channels in and out, kernel height and width, stride, padding */
#define SHAPE(N, H, W, C, O, KH, KW, S, P)                                                                   \
    {                                                                                                        \
        .n = (N), .in_h = (H), .in_w = (W), .in_c = (C), .out_c = (O), .kernel_h = (KH), .kernel_w = (KW),   \
        .stride = (S), .pad = (P)                                                                            \
    }

typedef struct layer {
    ddp_conv2d_shape_t s;
    size_t             x_count, w_count, y_count;
    float             *x, *w, *bias, *y, *dy, *dx, *dw, *db;
    float             *scratch;
    double            *y_want, *dx_want, *dw_want, *db_want;
    double y_size, dx_size, dw_size, db_size; /* sum of magnitudes of the largest element: for bounds */
} layer_t;

/** Random operands, with bf16 such that need no rounding; results NaN, wanted results 0. */
void layer_open(layer_t *layer, ddp_stream_t *stream, ddp_conv2d_shape_t shape);
void layer_close(layer_t *layer);

/** Add what the loop gives to the wanted results. */
void layer_plain_loop(layer_t *layer, bool bias);

ddp_conv2d_args_t          layer_forward(const layer_t *layer);
ddp_conv2d_backward_args_t layer_backward(const layer_t *layer);
/** Both, and wait. */
void layer_run(ddp_stream_t *stream, const layer_t *layer);

/**
 * Each of `count` results is within 1e-7 * (size + 8) of what is wanted; says which is not. Sums of `size`
 * products of numbers in [-1, 1]: rounding is at most size * eps * their magnitude; with random signs far
 * less, so a wrong tap is seen.
 */
bool layer_close_enough(const char *what, const float *got, const double *want, size_t count, double size);

/** Multiples of 1/8: differences of the loss are exact. */
void layer_make_coarse(layer_t *layer);
/** sum(y * dy) after a forward pass. */
double layer_loss(ddp_stream_t *stream, const layer_t *layer);

#endif
