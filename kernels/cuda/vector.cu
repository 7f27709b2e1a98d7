/* Element by element over one or two vectors. */
#include "kernels/cuda/launch.h"
#include "kernels/cuda/ops.h"

static __global__ void fill_kernel(float *y, size_t count, float value)
{
    DDP_CUDA_EACH(i, count)
    {
        y[i] = value;
    }
}

ddp_status_t ddp_cuda_fill(ddp_stream_t *stream, float *y, size_t count, float value)
{
    if (count > 0) {
        LAUNCH(fill_kernel, ddp_cuda_blocks(stream, count), DDP_CUDA_THREADS, 0, ddp_cuda_stream(stream), y,
               count, value);
    }
    return ddp_cuda_launched(stream, "fill");
}
