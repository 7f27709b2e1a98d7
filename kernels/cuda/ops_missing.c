/* Operations that have no kernel for CUDA yet: one line here each until they have. */
#include "base/error.h"
#include "kernels/cuda/ops.h"

#define DDP_CUDA_MISSING(op, args_t)                                                                         \
    ddp_status_t ddp_cuda_##op(ddp_stream_t *stream, const args_t *args)                                     \
    {                                                                                                        \
        (void)stream;                                                                                        \
        (void)args;                                                                                          \
        return ddp_fail(DDP_ERR_UNSUPPORTED, "cuda: no kernel for " #op);                                    \
    }

DDP_CUDA_MISSING(mse, ddp_mse_args_t)
