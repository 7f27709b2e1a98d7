/** @file Floats as 16-bit numbers and back, around cuDNN. Private to kernels/cuda. */
#ifndef DDP_CUDA_CUDNN_CAST_H_
#define DDP_CUDA_CUDNN_CAST_H_

#include "kernels/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/** y[i] (+)= x[i]; x of `precision`, BF16 or FP16. */
ddp_status_t ddp_cudnn_widen(ddp_stream_t *stream, ddp_precision_t precision, const uint16_t *x, size_t count,
                             float *y, bool accumulate) DDP_NODISCARD;
/** y[i] = x[i], rounded to `precision`, BF16 or FP16, and kept as a float. */
ddp_status_t ddp_cudnn_round(ddp_stream_t *stream, ddp_precision_t precision, const float *x, size_t count,
                             float *y) DDP_NODISCARD;

#ifdef __cplusplus
}
#endif

#endif
