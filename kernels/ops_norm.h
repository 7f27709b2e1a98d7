/**
 * @file Operations of residual networks: batch normalisation and global average pooling. What kernels/ops.h
 * says of every operation holds here too.
 */
#ifndef DDP_OPS_NORM_H_
#define DDP_OPS_NORM_H_

#include "kernels/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * y = act((x - mean) * rstd * gamma + beta + residual) for each column, rstd = 1 / sqrt(variance + eps);
 * Ioffe and Szegedy 2015, arXiv 1502.03167. Mean and (biased) variance are those of the column, taken chunk
 * by chunk and put together as Chan, Golub and LeVeque 1979; or those given as running_mean and running_var.
 */
typedef struct ddp_batch_norm_args {
    const float *x;                          /* [rows, c]; images [n, h, w, c] have n * h * w rows */
    size_t       rows, c;                    /* rows > 1 unless the statistics are given */
    const float *gamma, *beta;               /* [c] */
    float        eps;                        /* >= 0 */
    const float *residual;                   /* [rows, c] or NULL */
    ddp_act_t    act;                        /* NONE or RELU */
    float       *y;                          /* [rows, c]; may be x */
    const float *running_mean, *running_var; /* [c]: evaluation; or both NULL */
    float       *mean, *rstd;                /* [c], what y was made with, for backward; or both NULL */
    float       *mean_sum, *var_sum; /* [c] (+)= mean and unbiased variance (rows - 1), as PyTorch's running
                                        averages take them; or both NULL */
    bool accumulate_mean, accumulate_var;
} ddp_batch_norm_args_t;
DDP_API ddp_status_t ddp_op_batch_norm(ddp_stream_t *stream, const ddp_batch_norm_args_t *args) DDP_NODISCARD;

/**
 * The gradients, with mean and variance as functions of x. g below is dy, or 0 where RELU gave 0. Any of dx,
 * dresidual, dgamma and dbeta may be NULL.
 */
typedef struct ddp_batch_norm_backward_args {
    const float *x, *dy; /* [rows, c] */
    size_t       rows, c;
    const float *gamma, *beta; /* [c] */
    const float *mean, *rstd;  /* [c], as forward left them */
    ddp_act_t    act;
    const float *y;              /* RELU with a residual: forward's result; else not read */
    float       *dx;             /* [rows, c]; may be dy */
    float       *dresidual;      /* [rows, c] (+)= g; may be dy, but not dx */
    float       *dgamma, *dbeta; /* [c] */
    bool         accumulate_dx, accumulate_dresidual, accumulate_dgamma, accumulate_dbeta;
} ddp_batch_norm_backward_args_t;
DDP_API ddp_status_t ddp_op_batch_norm_backward(ddp_stream_t                         *stream,
                                                const ddp_batch_norm_backward_args_t *args) DDP_NODISCARD;

/** y[n, c] = mean over the pixels of x[n, pixels, c]. */
typedef struct ddp_global_avg_pool_args {
    const float *x;
    size_t       n, pixels, c; /* pixels > 0 */
    float       *y;
} ddp_global_avg_pool_args_t;
DDP_API ddp_status_t ddp_op_global_avg_pool(ddp_stream_t                     *stream,
                                            const ddp_global_avg_pool_args_t *args) DDP_NODISCARD;

/** dx[n, pixels, c] (+)= dy[n, c] / pixels. */
typedef struct ddp_global_avg_pool_backward_args {
    const float *dy;
    size_t       n, pixels, c;
    float       *dx;
    bool         accumulate;
} ddp_global_avg_pool_backward_args_t;
DDP_API ddp_status_t ddp_op_global_avg_pool_backward(
    ddp_stream_t *stream, const ddp_global_avg_pool_backward_args_t *args) DDP_NODISCARD;

#ifdef __cplusplus
}
#endif

#endif
