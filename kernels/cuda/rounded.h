/** @file What gemm_lt.c asks of parameters that stay rounded (kernels/rounded.h). Private to kernels/cuda. */
#ifndef DDP_CUDA_ROUNDED_H_
#define DDP_CUDA_ROUNDED_H_

#include "kernels/cuda/device.h"
#include "kernels/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Part of ddp_cuda_device_t; zero: none. */
typedef struct ddp_cuda_rounded {
    const float    *values; /* borrowed, [count] */
    size_t          count;
    ddp_precision_t precision;
    uint16_t       *memory; /* owned, [count] */
    ddp_stream_t   *stream; /* whose work may read it; NULL: nobody's, the values have changed */
} ddp_cuda_rounded_t;

/**
 * @param [in] x  a matrix of `rows` rows, `ld` elements apart
 * @return where it lies rounded to `precision`, 16-byte aligned, its rows `columns` apart; NULL: it is no
 * parameter, or not kept so
 */
const uint16_t *ddp_cuda_rounded_find(const ddp_stream_t *stream, ddp_precision_t precision, const float *x,
                                      size_t rows, size_t columns, size_t ld);

ddp_status_t ddp_cuda_rounded_open(ddp_device_t *device, const float *values, size_t count,
                                   ddp_precision_t precision) DDP_NODISCARD;
void         ddp_cuda_rounded_close(ddp_device_t *device);
ddp_status_t ddp_cuda_rounded_take(ddp_stream_t *stream) DDP_NODISCARD;
void         ddp_cuda_rounded_drop(ddp_device_t *device);

#ifdef __cplusplus
}
#endif

#endif
