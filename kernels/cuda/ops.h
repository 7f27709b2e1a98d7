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
/** Scratch is taken in advance: a step allocates nothing. */
size_t ddp_cuda_kernel_scratch_bytes(const ddp_device_t *device, size_t vocab);

extern const ddp_op_table_t ddp_cuda_ops;

#ifdef __cplusplus
}
#endif

#endif
