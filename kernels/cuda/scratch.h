/**
 * @file Scratch memory of kernels: the stream's, kept from call to call. Work of one stream runs in order, so
 * whoever takes it next may overwrite it. Private.
 *
 * What is there before the first step is said by ddp_cuda_op_scratch() of a dry run, see
 * ddp_stream_reserve(). An operation that takes scratch says there how much.
 */
#ifndef DDP_CUDA_SCRATCH_H_
#define DDP_CUDA_SCRATCH_H_

#include "kernels/cuda/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Who uses it: a product may be called by an operation that has scratch itself. */
typedef enum ddp_cuda_scratch_use {
    DDP_CUDA_SCRATCH_OP,
    DDP_CUDA_SCRATCH_PRODUCT,
    DDP_CUDA_SCRATCH_USES
} ddp_cuda_scratch_use_t;

/** @param [out] memory_p  device, 256-byte aligned, not zeroed; NULL for 0 bytes */
ddp_status_t ddp_cuda_scratch(ddp_stream_t *stream, ddp_cuda_scratch_use_t use, size_t bytes,
                              void **memory_p) DDP_NODISCARD;

#ifdef __cplusplus
}
#endif

#endif
