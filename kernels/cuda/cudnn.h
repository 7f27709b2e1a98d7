/**
 * @file Convolution and attention by cuDNN, for devices that have it. Operations of the CUDA device ask first
 * whether cuDNN takes a case, and run their plain kernel where it does not. Private.
 *
 * cuDNN is asked through its graph API: the first call for a shape, precision and device builds a plan
 * (seconds), later ones find it. Whether there is a plan and how much scratch it needs is known without
 * running anything. Arguments were checked by kernels/ops*.c. Thread: owner of the device.
 */
#ifndef DDP_CUDA_CUDNN_H_
#define DDP_CUDA_CUDNN_H_

#include "kernels/ops.h"
#include "kernels/ops_seq.h"

#ifdef __cplusplus
extern "C" {
#endif

/** @return why this device does without cuDNN, one line without a full stop; NULL: it has it. The text lives
 * as long as the device. */
const char *ddp_cudnn_absent(const ddp_device_t *device);

/**
 * Whether cuDNN computes this attention, forward and backward: bfloat16 or float16 products, no dropout, a
 * size of heads and a length for which it has plans. Of `args` only the extents, precision and dropout are
 * read. False, with nothing recorded, is "use the plain kernel".
 */
bool ddp_cudnn_takes_attention(const ddp_device_t *device, const ddp_attention_args_t *args);
/** Scratch that forward and backward take from the device, bytes (the larger); 0 for what it does not take.
 */
size_t ddp_cudnn_attention_scratch_bytes(const ddp_device_t *device, const ddp_attention_args_t *args);
/** As ddp_op_attention() and its gradient, for what ddp_cudnn_takes_attention() took; log_sum has the same
 * meaning as in the plain kernel, so the two may be mixed. @return DDP_ERR_UNSUPPORTED: not taken */
ddp_status_t ddp_cudnn_attention(ddp_stream_t *stream, const ddp_attention_args_t *args) DDP_NODISCARD;
ddp_status_t ddp_cudnn_attention_backward(ddp_stream_t                        *stream,
                                          const ddp_attention_backward_args_t *args) DDP_NODISCARD;

/** Whether cuDNN computes this (filled) convolution, forward and both gradients. */
bool ddp_cudnn_takes_conv2d(const ddp_device_t *device, const ddp_conv2d_shape_t *shape);
/** What `scratch` of the operations must hold, bytes (the largest of the three); 0 for what it does not take.
 */
size_t ddp_cudnn_conv2d_scratch_bytes(const ddp_device_t *device, const ddp_conv2d_shape_t *shape);
/** As ddp_op_conv2d() and its gradients, for what ddp_cudnn_takes_conv2d() took. The gradient of the bias is
 * not computed: `db` is not read. @return DDP_ERR_UNSUPPORTED: not taken */
ddp_status_t ddp_cudnn_conv2d(ddp_stream_t *stream, const ddp_conv2d_args_t *args) DDP_NODISCARD;
ddp_status_t ddp_cudnn_conv2d_backward(ddp_stream_t                     *stream,
                                       const ddp_conv2d_backward_args_t *args) DDP_NODISCARD;

#ifdef __cplusplus
}
#endif

#endif
