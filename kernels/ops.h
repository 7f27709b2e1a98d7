/**
 * @file Compute operations. Each takes a stream and one argument struct, which is copied; pointers are device
 * memory, borrowed until the work is done. All floats are float32. Matrices are row-major, images NHWC.
 *
 * Every operation: blocking no; thread: owner of the device; a zero-sized operand is a no-op (a sum over
 * nothing is 0, so with k = 0 gemm gives beta * C + bias). Errors: DDP_ERR_INVALID_ARG (nothing was run) or
 * an earlier error of the stream. Where `accumulate` is true the result is added to what is there, else it
 * replaces it (what was there is not read). For one instruction set the result depends on the arguments
 * alone, not on the address, the stream or earlier calls.
 */
#ifndef DDP_OPS_H_
#define DDP_OPS_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/export.h"
#include "base/status.h"
#include "kernels/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Activations. GELU is x * Phi(x) (erf), GELU_TANH its tanh form; Hendrycks and Gimpel 2016, arXiv
 * 1606.08415. */
typedef enum ddp_act {
    DDP_ACT_NONE      = 0,
    DDP_ACT_RELU      = 1,
    DDP_ACT_GELU      = 2,
    DDP_ACT_GELU_TANH = 3,
} ddp_act_t;

/**
 * How the inputs of matrix products (attention's and the convolution's are such) are rounded before they are
 * multiplied. BF16, FP16: to bfloat16 or IEEE half precision, TF32: to 10 bits of fraction; the nearest, ties
 * to even. Sums, and all that is no product, stay float32. The cpu has no TF32 and no FP16:
 * DDP_ERR_UNSUPPORTED.
 */
typedef enum ddp_precision {
    DDP_PRECISION_FLOAT32 = 0,
    DDP_PRECISION_BF16    = 1,
    DDP_PRECISION_TF32    = 2,
    DDP_PRECISION_FP16    = 3,
} ddp_precision_t;

/** C = act(alpha * op(A) op(B) + beta * C + bias + add). op(A) is [m, k], op(B) [k, n], C [m, n]. At most one
 * of A, B is transposed. */
typedef struct ddp_gemm_args {
    bool         transpose_a; /* A is stored [k, m] */
    bool         transpose_b; /* B is stored [n, k] */
    size_t       m, n, k;
    float        alpha, beta; /* beta 0: C is not read */
    const float *a;
    size_t       lda; /* floats from row to row, as stored */
    const float *b;
    size_t       ldb;
    float       *c;
    size_t       ldc;
    const float *bias;           /* [n], added to every row; or NULL */
    const float *add;            /* [m, ldc], not C; or NULL */
    ddp_act_t    act;            /* applied last */
    float       *pre_activation; /* [m, ldc], what act was applied to; or NULL */

    ddp_precision_t precision;
} ddp_gemm_args_t;
DDP_API ddp_status_t ddp_op_gemm(ddp_stream_t *stream, const ddp_gemm_args_t *args) DDP_NODISCARD;

/** db[n] (+)= sum over m of dy[m, n]: the gradient of a bias. */
typedef struct ddp_bias_grad_args {
    const float *dy;
    size_t       m, n;
    float       *db;
    bool         accumulate;
} ddp_bias_grad_args_t;
DDP_API ddp_status_t ddp_op_bias_grad(ddp_stream_t *stream, const ddp_bias_grad_args_t *args) DDP_NODISCARD;

/** y[i] = act(x[i]); x may be y. */
typedef struct ddp_act_args {
    ddp_act_t    act;
    const float *x;
    float       *y;
    size_t       count;
} ddp_act_args_t;
DDP_API ddp_status_t ddp_op_act(ddp_stream_t *stream, const ddp_act_args_t *args) DDP_NODISCARD;

/** dx[i] (+)= dy[i] * act'(.). `saved` is the result y for RELU, the input x for the GELUs. dx may be dy (no
 * accumulate). */
typedef struct ddp_act_backward_args {
    ddp_act_t    act;
    const float *saved;
    const float *dy;
    float       *dx;
    size_t       count;
    bool         accumulate;
} ddp_act_backward_args_t;
DDP_API ddp_status_t ddp_op_act_backward(ddp_stream_t                  *stream,
                                         const ddp_act_backward_args_t *args) DDP_NODISCARD;

/**
 * How a 2-d convolution is computed. Winograd's F(2x2, 3x3) and F(4x4, 3x3) need 2.25 and 4 times fewer
 * multiplications than direct; with F(4x4) results differ by about 10 times as much in the last bits. Either
 * needs a kernel of 3x3, stride 1 and at least 16 channels on both sides; other shapes are direct whatever is
 * asked for, and so is bfloat16. AUTO: F(4x4) where it saves at least half of the multiplications (small
 * images fill no tile).
 */
typedef enum ddp_conv_algo {
    DDP_CONV_AUTO      = 0,
    DDP_CONV_DIRECT    = 1,
    DDP_CONV_WINOGRAD2 = 2,
    DDP_CONV_WINOGRAD4 = 3
} ddp_conv_algo_t;

/** Geometry of a 2-d convolution. Weights are PyTorch's [out, in, kernel_h, kernel_w]. */
typedef struct ddp_conv2d_shape {
    size_t n, in_h, in_w, in_c;
    size_t out_c, kernel_h, kernel_w;
    size_t stride, pad;  /* both axes */
    size_t out_h, out_w; /* filled by ddp_conv2d_shape_fill() */

    ddp_conv_algo_t algo; /* the same in forward and backward is usual, not needed */
    ddp_precision_t precision;
} ddp_conv2d_shape_t;
/** Compute out_h, out_w = floor((in + 2 pad - kernel) / stride) + 1. @return DDP_ERR_INVALID_ARG: zero or
 * kernel > padded image */
DDP_API ddp_status_t ddp_conv2d_shape_fill(ddp_conv2d_shape_t *shape) DDP_NODISCARD;
/** @return what the operations use for this (filled) shape, never AUTO. Depends on the shape without n, not
 * on the device. */
DDP_API ddp_conv_algo_t ddp_conv2d_algo(const ddp_conv2d_shape_t *shape);
/** Scratch that forward and both backward operations need, bytes (the largest of them). */
DDP_API size_t ddp_conv2d_scratch_bytes(const ddp_device_t *device, const ddp_conv2d_shape_t *shape);

/** y[n, out_h, out_w, out_c] = act(conv(x[n, in_h, in_w, in_c], w) + bias); act: NONE or RELU. */
typedef struct ddp_conv2d_args {
    ddp_conv2d_shape_t shape;
    const float       *x;
    const float       *w;
    const float       *bias; /* [out_c] or NULL */
    ddp_act_t          act;
    float             *y;
    void              *scratch;
} ddp_conv2d_args_t;
DDP_API ddp_status_t ddp_op_conv2d(ddp_stream_t *stream, const ddp_conv2d_args_t *args) DDP_NODISCARD;

/** Any of dx, dw, db may be NULL. dy is not changed. The gradients are those of conv(x, w) + bias. */
typedef struct ddp_conv2d_backward_args {
    ddp_conv2d_shape_t shape;
    const float       *x;
    const float       *w;
    const float       *dy;
    float             *dx;                           /* [n, in_h, in_w, in_c] */
    float             *dw;                           /* [out_c, in_c, kernel_h, kernel_w] */
    float             *db;                           /* [out_c] */
    bool               accumulate_dx, accumulate_dw; /* accumulate_dw is for dw and db */
    void              *scratch;
} ddp_conv2d_backward_args_t;
DDP_API ddp_status_t ddp_op_conv2d_backward(ddp_stream_t                     *stream,
                                            const ddp_conv2d_backward_args_t *args) DDP_NODISCARD;

/** Pooling over windows of kernel x kernel. Average counts padding as PyTorch's default does
 * (count_include_pad). */
typedef struct ddp_pool2d_args {
    bool         is_max;
    size_t       n, in_h, in_w, c;
    size_t       kernel, stride, pad; /* pad <= kernel / 2 */
    size_t       out_h, out_w;        /* floor((in + 2 pad - kernel) / stride) + 1 */
    const float *x;
    float       *y;     /* [n, out_h, out_w, c] */
    uint8_t     *index; /* max: [n, out_h, out_w, c], position in the window (row-major) of the first largest;
                           kernel <= 15 */
} ddp_pool2d_args_t;
DDP_API ddp_status_t ddp_op_pool2d(ddp_stream_t *stream, const ddp_pool2d_args_t *args) DDP_NODISCARD;

/** dx (+)= the gradient; geometry and `index` as in forward; args.x and args.y are not read. */
typedef struct ddp_pool2d_backward_args {
    ddp_pool2d_args_t forward;
    const float      *dy;
    float            *dx;
    bool              accumulate;
} ddp_pool2d_backward_args_t;
DDP_API ddp_status_t ddp_op_pool2d_backward(ddp_stream_t                     *stream,
                                            const ddp_pool2d_backward_args_t *args) DDP_NODISCARD;

/** [n, h, w, c] -> [n, c, h, w] (flatten in PyTorch's order), or back if `inverse`. accumulate adds to y. */
typedef struct ddp_permute_args {
    const float *x;
    float       *y;
    size_t       n, h, w, c;
    bool         inverse, accumulate;
} ddp_permute_args_t;
DDP_API ddp_status_t ddp_op_nhwc_to_nchw(ddp_stream_t *stream, const ddp_permute_args_t *args) DDP_NODISCARD;

/** What a loss leaves for one micro-batch: sums, not means. One block of device memory, four floats. */
typedef struct ddp_loss_stats {
    float loss;    /* sum over samples of weight * loss */
    float weight;  /* sum of the weights of samples that count */
    float correct; /* number of samples that count and whose largest logit (first of equals) is the label; 0
                      for mse */
    float counted; /* number of samples that count */
} ddp_loss_stats_t;

/**
 * Softmax cross-entropy of rows: loss_i = -w_i * log softmax(logits_i)[label_i], summed; rows whose label is
 * `ignore_index` count nothing. dlogits_i = w_i * (softmax_i - onehot_i): the gradient of the SUM.
 */
typedef struct ddp_cross_entropy_args {
    const float   *logits;     /* [rows, classes] */
    const int32_t *labels;     /* [rows], in [0, classes) or ignore_index: anything else fails the stream
                                  (DDP_ERR_INVALID_ARG) */
    const float      *weights; /* [rows] or NULL: all 1 */
    size_t            rows, classes;
    int32_t           ignore_index;
    float            *dlogits; /* [rows, classes], may be logits, or NULL */
    ddp_loss_stats_t *stats;   /* replaced */
} ddp_cross_entropy_args_t;
DDP_API ddp_status_t ddp_op_cross_entropy(ddp_stream_t                   *stream,
                                          const ddp_cross_entropy_args_t *args) DDP_NODISCARD;

/** Mean squared error: loss_i = w_i * mean over j of (y_ij - t_ij)^2, summed over rows; dy is the gradient of
 * the SUM. */
typedef struct ddp_mse_args {
    const float      *y;       /* [rows, width] */
    const float      *target;  /* [rows, width] */
    const float      *weights; /* [rows] or NULL */
    size_t            rows, width;
    float            *dy; /* [rows, width] or NULL */
    ddp_loss_stats_t *stats;
} ddp_mse_args_t;
DDP_API ddp_status_t ddp_op_mse(ddp_stream_t *stream, const ddp_mse_args_t *args) DDP_NODISCARD;

/** y[i] = value. */
DDP_API ddp_status_t ddp_op_fill(ddp_stream_t *stream, float *y, size_t count, float value) DDP_NODISCARD;
/** y[i] += alpha * x[i]. */
DDP_API ddp_status_t ddp_op_axpy(ddp_stream_t *stream, float alpha, const float *x, float *y,
                                 size_t count) DDP_NODISCARD;
/** y[i] *= alpha. */
DDP_API ddp_status_t ddp_op_scale(ddp_stream_t *stream, float alpha, float *y, size_t count) DDP_NODISCARD;
/** Sum of squares, per DDP_BLOCK in float64, then blocks in order: *sum_p. */
DDP_API ddp_status_t ddp_op_sumsq(ddp_stream_t *stream, const float *x, size_t count,
                                  double *sum_p) DDP_NODISCARD;

/** Where in a training a micro-batch is, in memory of a device: work that reads it there is the same for all
 * micro-batches. */
typedef struct ddp_rng_place {
    uint64_t step, first_row;
} ddp_rng_place_t;

/** Who draws a random number: counter-based, so that nothing depends on the rank. Philox 4x32-10, Salmon et
 * al. 2011. */
typedef struct ddp_rng_key {
    uint64_t               seed;
    uint64_t               step;
    uint32_t               layer;
    const ddp_rng_place_t *place; /* cuda, device, or NULL: is read when the work runs, and added to `step`
                                     and to the operation's first_row. Of dropouts only */
} ddp_rng_key_t;

/**
 * Inverted dropout: y = keep ? x / (1 - p) : 0, for rows first_row .. first_row + rows - 1 of the global
 * batch. Element (row, j) is kept where the random number of (seed, step, layer, row, j) is >= p. The same
 * call on dy gives dx. x may be y.
 */
typedef struct ddp_dropout_args {
    const float  *x;
    float        *y;
    size_t        rows, width;
    uint64_t      first_row;
    float         p; /* 0 <= p < 1 */
    ddp_rng_key_t key;
    bool          accumulate;
} ddp_dropout_args_t;
DDP_API ddp_status_t ddp_op_dropout(ddp_stream_t *stream, const ddp_dropout_args_t *args) DDP_NODISCARD;

/** y[i] uniform in [low, high), a pure function of (key, i); for initial weights and drawn data. */
typedef struct ddp_uniform_args {
    float        *y;
    size_t        count;
    float         low, high;
    ddp_rng_key_t key;
} ddp_uniform_args_t;
DDP_API ddp_status_t ddp_op_uniform(ddp_stream_t *stream, const ddp_uniform_args_t *args) DDP_NODISCARD;

/** Four 32-bit random numbers of counter `counter` (Philox 4x32-10; key = low and high half of `key`). Host,
 * pure. */
DDP_API void ddp_philox(uint64_t key, const uint32_t counter[4], uint32_t random[4]);

#ifdef __cplusplus
}
#endif

#endif
