/** @file Argument checks of the operations: done once here, never in a kernel. Private. */
#ifndef DDP_OPS_INTERNAL_H_
#define DDP_OPS_INTERNAL_H_

#include "kernels/ops.h"

/* Each: DDP_OK, or DDP_ERR_INVALID_ARG with the operation and what is wrong. */
ddp_status_t ddp_check_gemm(const ddp_gemm_args_t *args);
ddp_status_t ddp_check_conv2d_shape(const ddp_conv2d_shape_t *shape);
ddp_status_t ddp_check_conv2d(const ddp_conv2d_args_t *args);
ddp_status_t ddp_check_conv2d_backward(const ddp_conv2d_backward_args_t *args);
ddp_status_t ddp_check_pool2d(const ddp_pool2d_args_t *args);
ddp_status_t ddp_check_pool2d_backward(const ddp_pool2d_backward_args_t *args);
ddp_status_t ddp_check_cross_entropy(const ddp_cross_entropy_args_t *args);
ddp_status_t ddp_check_mse(const ddp_mse_args_t *args);
ddp_status_t ddp_check_dropout(const ddp_dropout_args_t *args);
ddp_status_t ddp_check_uniform(const ddp_uniform_args_t *args);
/** A key's place is for cuda. */
ddp_status_t ddp_check_place(const char *op, ddp_stream_t *stream, const ddp_rng_key_t *key);
/** A stream and arguments were given. */
ddp_status_t ddp_check_call(const char *op, const ddp_stream_t *stream, const void *args);
/** The product of four extents fits in memory as floats. */
ddp_status_t ddp_check_volume(const char *op, size_t a, size_t b, size_t c, size_t d);
/** An activation that exists. */
ddp_status_t ddp_check_act(const char *op, ddp_act_t act);
/** A precision that exists. */
ddp_status_t ddp_check_precision(const char *op, ddp_precision_t precision);
/** `count` elements exist at `memory`, named `what` in the line. */
ddp_status_t ddp_check_operand(const char *op, const char *what, const void *memory, size_t count);

#endif
