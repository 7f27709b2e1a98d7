#include "kernels/cuda/cudnn_cast.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/precision.h"

template <ddp_precision_t P> static __device__ inline float float_of(uint16_t bits)
{
    return P == DDP_PRECISION_BF16 ? __bfloat162float(__ushort_as_bfloat16(bits))
                                   : __half2float(__ushort_as_half(bits));
}

template <ddp_precision_t P, bool Accumulate>
static __global__ void widen_kernel(const uint16_t *x, size_t count, float *y)
{
    DDP_CUDA_EACH(i, count)
    {
        y[i] = float_of<P>(x[i]) + (Accumulate ? y[i] : 0.0F);
    }
}

static __global__ void round_kernel(ddp_precision_t precision, const float *x, size_t count, float *y)
{
    DDP_CUDA_EACH(i, count)
    {
        y[i] = ddp_round(precision, x[i]);
    }
}

template <ddp_precision_t P>
static void widen(ddp_stream_t *stream, const uint16_t *x, size_t count, float *y, bool accumulate)
{
    const unsigned     blocks = ddp_cuda_blocks(stream, count);
    const cudaStream_t native = ddp_cuda_stream(stream);

    if (accumulate) {
        LAUNCH((widen_kernel<P, true>), blocks, DDP_CUDA_THREADS, 0, native, x, count, y);
    } else {
        LAUNCH((widen_kernel<P, false>), blocks, DDP_CUDA_THREADS, 0, native, x, count, y);
    }
}

ddp_status_t ddp_cudnn_widen(ddp_stream_t *stream, ddp_precision_t precision, const uint16_t *x, size_t count,
                             float *y, bool accumulate)
{
    if (precision == DDP_PRECISION_BF16) {
        widen<DDP_PRECISION_BF16>(stream, x, count, y, accumulate);
    } else {
        widen<DDP_PRECISION_FP16>(stream, x, count, y, accumulate);
    }
    return ddp_cuda_launched(stream, "widen");
}

ddp_status_t ddp_cudnn_round(ddp_stream_t *stream, ddp_precision_t precision, const float *x, size_t count,
                             float *y)
{
    LAUNCH(round_kernel, ddp_cuda_blocks(stream, count), DDP_CUDA_THREADS, 0, ddp_cuda_stream(stream),
           precision, x, count, y);
    return ddp_cuda_launched(stream, "round");
}
