/** @file Products by cuBLASLt. Private to kernels/cuda. */
#ifndef DDP_CUDA_GEMM_LT_H_
#define DDP_CUDA_GEMM_LT_H_

#include "kernels/cuda/gemm_plan.h"
#include "kernels/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * The operation, for results and k that are not empty. Bias and activation are the library's where it has
 * them as they are meant: its GELU is the tanh form, whose accuracy it does not state, so float32 does
 * without. What is left is done by ddp_cuda_gemm_finish(). bfloat16 and half precision: operands are
 * converted first, into scratch of the stream.
 * @param [out] is_done_p  false: the library has no algorithm for this product, and nothing was run
 */
ddp_status_t ddp_cuda_gemm_lt(ddp_cuda_plans_t *plans, ddp_stream_t *stream, const ddp_gemm_args_t *args,
                              bool *is_done_p) DDP_NODISCARD;

#ifdef __cplusplus
}
#endif

#endif
