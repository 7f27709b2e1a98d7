/* Products: which way they are computed. */
#include "kernels/cuda/gemm.h"

#include "kernels/cuda/ops.h"

ddp_status_t ddp_cuda_gemm(ddp_stream_t *stream, const ddp_gemm_args_t *args)
{
    return ddp_cuda_gemm_plain(stream, args);
}
