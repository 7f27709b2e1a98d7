/** @file Convolutions by plain kernels, for any shape: what the device does without cuDNN, or where that does
 * not take a case. Sums have one order, so the bits depend on the arguments alone. Private to kernels/cuda.
 */
#ifndef DDP_CUDA_CONV_PLAIN_H_
#define DDP_CUDA_CONV_PLAIN_H_

#include "kernels/cuda/device.h"
#include "kernels/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/** DDP_ERR_UNSUPPORTED: more elements than the kernels count, 2^31 pixels or weights of a channel. */
ddp_status_t ddp_cuda_conv2d_plain(ddp_stream_t *stream, const ddp_conv2d_args_t *args) DDP_NODISCARD;
/** dx and dw; `db` is not read. */
ddp_status_t ddp_cuda_conv2d_backward_plain(ddp_stream_t                     *stream,
                                            const ddp_conv2d_backward_args_t *args) DDP_NODISCARD;
/** What `scratch` must hold for it, bytes. */
size_t ddp_cuda_conv2d_plain_scratch_bytes(const ddp_conv2d_shape_t *shape);

#ifdef __cplusplus
}
#endif

#endif
