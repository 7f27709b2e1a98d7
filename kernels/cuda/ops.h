/** @file Operations of the CUDA device: ddp_cuda_<op>(), one for each of DDP_OP_LIST. Arguments were checked
 * by kernels/ops*.c. Private. */
#ifndef DDP_CUDA_OPS_H_
#define DDP_CUDA_OPS_H_

#include "kernels/backend_internal.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DDP_CUDA_DECLARE(op, args_t)                                                                         \
    ddp_status_t ddp_cuda_##op(ddp_stream_t *stream, const args_t *args) DDP_NODISCARD;
DDP_OP_LIST(DDP_CUDA_DECLARE)
#undef DDP_CUDA_DECLARE

ddp_status_t ddp_cuda_fill(ddp_stream_t *stream, float *y, size_t count, float value) DDP_NODISCARD;
ddp_status_t ddp_cuda_axpy(ddp_stream_t *stream, float alpha, const float *x, float *y,
                           size_t count) DDP_NODISCARD;
ddp_status_t ddp_cuda_scale(ddp_stream_t *stream, float alpha, float *y, size_t count) DDP_NODISCARD;
ddp_status_t ddp_cuda_sumsq(ddp_stream_t *stream, const float *x, size_t count, double *sum_p) DDP_NODISCARD;
size_t       ddp_cuda_conv2d_scratch_bytes(const ddp_device_t *device, const ddp_conv2d_shape_t *shape);
size_t       ddp_cuda_kernel_scratch_bytes(const ddp_device_t *device, size_t vocab);

/** Scratch of an operation, bytes: what it takes of the stream's, or more; not less than with fewer rows. */
ddp_scratch_t ddp_cuda_op_scratch(const ddp_device_t *device, ddp_op_id_t id, const void *args);
/** Of DDP_CUDA_SCRATCH_PRODUCT. */
size_t ddp_cuda_gemm_scratch(const ddp_gemm_args_t *args);
/** Of all products of a head, the same. */
size_t        ddp_cuda_head_product_scratch(const ddp_head_args_t *head);
ddp_scratch_t ddp_cuda_head_cross_entropy_scratch(const ddp_head_cross_entropy_args_t *args);
/** Of DDP_CUDA_SCRATCH_OP. */
size_t ddp_cuda_bias_grad_scratch(const ddp_bias_grad_args_t *args);
size_t ddp_cuda_conv2d_backward_scratch(const ddp_conv2d_backward_args_t *args);
size_t ddp_cuda_cross_entropy_scratch(const ddp_cross_entropy_args_t *args);
size_t ddp_cuda_mse_scratch(const ddp_mse_args_t *args);
size_t ddp_cuda_embedding_backward_scratch(const ddp_embedding_backward_args_t *args);
size_t ddp_cuda_layer_norm_backward_scratch(const ddp_layer_norm_backward_args_t *args);
size_t ddp_cuda_batch_norm_scratch(const ddp_batch_norm_args_t *args);
size_t ddp_cuda_batch_norm_backward_scratch(const ddp_batch_norm_backward_args_t *args);

extern const ddp_op_table_t ddp_cuda_ops;

#ifdef __cplusplus
}
#endif

#endif
