/** @file Softmax cross-entropy of rows on the CUDA device, for the loss of given logits and for a head that
 * makes them part by part: both give the same bits. Private. */
#ifndef DDP_CUDA_ENTROPY_H_
#define DDP_CUDA_ENTROPY_H_

#include "kernels/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/** What a row adds to ddp_loss_stats_t. */
typedef struct ddp_cuda_row_loss {
    double   loss;
    float    weight;
    uint16_t correct, counted;
} ddp_cuda_row_loss_t;

typedef struct ddp_cuda_entropy_args {
    const float         *logits;  /* rows `pitch` floats apart */
    float               *dlogits; /* as logits, and may be them; or NULL */
    size_t               rows, classes, pitch;
    const int32_t       *labels;  /* [rows]; one that is wrong counts as ignored */
    const float         *weights; /* [rows] or NULL */
    int32_t              ignore_index;
    float                grad_scale; /* dlogits come multiplied by it */
    ddp_cuda_row_loss_t *row;        /* [rows] */
} ddp_cuda_entropy_args_t;
ddp_status_t ddp_cuda_entropy(ddp_stream_t *stream, const ddp_cuda_entropy_args_t *args) DDP_NODISCARD;

/** stats = the sums over rows, in float64 and in one order. */
ddp_status_t ddp_cuda_sum_losses(ddp_stream_t *stream, const ddp_cuda_row_loss_t *row, size_t rows,
                                 ddp_loss_stats_t *stats) DDP_NODISCARD;

#ifdef __cplusplus
}
#endif

#endif
