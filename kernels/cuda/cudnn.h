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
 * Whether cuDNN computes this attention, forward and backward: bfloat16 or float16 products, no dropout,
 * heads of a multiple of 8 and a length for which it has plans. Of `args` the extents, precision, dropout and
 * the alignment of log_sum (16 bytes) are read. False is no error: use the plain kernel.
 */
bool ddp_cudnn_takes_attention(const ddp_device_t *device, const ddp_attention_args_t *args);
/** Scratch that forward and backward take of the stream, bytes (the larger); 0 for what is not taken. */
size_t ddp_cudnn_attention_scratch_bytes(const ddp_device_t *device, const ddp_attention_args_t *args);
/** As ddp_op_attention() and its gradient, for what ddp_cudnn_takes_attention() took; log_sum has the same
 * meaning as in the plain kernel, so the two may be mixed. y and dqkv are numbers of 16 bits in floats.
 * @return DDP_ERR_UNSUPPORTED: not taken. DDP_ERR_DEVICE: cuDNN failed */
ddp_status_t ddp_cudnn_attention(ddp_stream_t *stream, const ddp_attention_args_t *args) DDP_NODISCARD;
ddp_status_t ddp_cudnn_attention_backward(ddp_stream_t                        *stream,
                                          const ddp_attention_backward_args_t *args) DDP_NODISCARD;

/** Whether cuDNN computes this (filled) convolution, forward and both gradients. */
bool ddp_cudnn_takes_conv2d(const ddp_device_t *device, const ddp_conv2d_shape_t *shape);
/** What `scratch` of the operations must hold, bytes; 0 for what is not taken. */
size_t ddp_cudnn_conv2d_scratch_bytes(const ddp_device_t *device, const ddp_conv2d_shape_t *shape);
/** As ddp_op_conv2d() and its gradients, for what ddp_cudnn_takes_conv2d() took. The gradient of the bias is
 * not computed: `db` is not read. @return DDP_ERR_UNSUPPORTED: not taken, or an address that is no multiple
 * of 16; nothing was run, use the plain kernel. DDP_ERR_DEVICE: cuDNN failed */
ddp_status_t ddp_cudnn_conv2d(ddp_stream_t *stream, const ddp_conv2d_args_t *args) DDP_NODISCARD;
ddp_status_t ddp_cudnn_conv2d_backward(ddp_stream_t                     *stream,
                                       const ddp_conv2d_backward_args_t *args) DDP_NODISCARD;

#ifdef __cplusplus
}
#endif

#endif
