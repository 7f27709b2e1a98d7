/**
 * @file The ways of the CUDA device to compute a product (ddp_op_gemm()). Private to kernels/cuda.
 *
 * DDP_CUDA_GEMM=cublaslt or =plain asks for one; else it is cuBLASLt, and the plain kernel where that
 * library, or an algorithm of it for a shape, is not to be had, with a line that says so. A kernel that
 * computes products itself is slow beside one with tensor cores, and right everywhere.
 */
#ifndef DDP_CUDA_GEMM_H_
#define DDP_CUDA_GEMM_H_

#include "kernels/cuda/device.h"
#include "kernels/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/** The operation by the plain kernel: inputs are rounded as they are read; no scratch. */
ddp_status_t ddp_cuda_gemm_plain(ddp_stream_t *stream, const ddp_gemm_args_t *args) DDP_NODISCARD;

/** See ddp_device_choices(). */
size_t ddp_cuda_gemm_choices(const ddp_device_t *device, ddp_choice_t *choices, size_t capacity);

/** What is left to do when C holds alpha op(A) op(B): of `args` beta (of what is there already), bias, add,
 * pre_activation and act are read. C = act(beta C + bias + add). */
ddp_status_t ddp_cuda_gemm_finish(ddp_stream_t *stream, const ddp_gemm_args_t *args) DDP_NODISCARD;

/** A matrix as another type: the nearest, ties to even. */
typedef struct ddp_cuda_cast_args {
    ddp_precision_t precision; /* BF16 or FP16 */
    const float    *x;         /* rows `ld` floats apart */
    size_t          rows, columns, ld;
    uint16_t       *y;     /* 16-byte aligned, rows `pitch` apart; what is behind a row becomes 0 */
    size_t          pitch; /* columns rounded up to a multiple of 8 */
} ddp_cuda_cast_args_t;
ddp_status_t ddp_cuda_cast(ddp_stream_t *stream, const ddp_cuda_cast_args_t *cast) DDP_NODISCARD;

#ifdef __cplusplus
}
#endif

#endif
