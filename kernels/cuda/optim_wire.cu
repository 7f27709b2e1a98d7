/* Gradients as bfloat16 on the wire: 6 bytes an element, bound by memory. What does not fit is counted by a
 * block of threads together: one atomic addition of whole numbers for each block that has some. */
#include "kernels/cuda/launch.h"
#include "kernels/cuda/optim.h"

#define INFINITE_BF16 0x7f80U

/* The nearest, ties to even; a NaN stays one. */
static __device__ inline uint16_t to_bf16(float x)
{
    const uint32_t bits = __float_as_uint(x);

    if ((bits & 0x7fffffffU) > 0x7f800000U) {
        return (uint16_t)((bits >> 16) | 0x40U);
    }
    return (uint16_t)((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

static __device__ inline void count_threads(bool is_one, uint64_t *counter)
{
    const int count = __syncthreads_count(is_one);

    if (threadIdx.x == 0 && count > 0) {
        atomicAdd(reinterpret_cast<unsigned long long *>(counter), (unsigned long long)count);
    }
}

static __global__ void to_bf16_kernel(const float *x, uint16_t *y, uint64_t *overflows)
{
    const size_t   i     = blockIdx.x * (size_t)DDP_BLOCK + threadIdx.x;
    const float    value = x[i];
    const uint16_t sent  = to_bf16(value);

    y[i] = sent;
    count_threads(isfinite(value) && (sent & 0x7fffU) == INFINITE_BF16, overflows);
}

static __global__ void from_bf16_kernel(ddp_cuda_from_bf16_args_t a)
{
    const size_t i     = blockIdx.x * (size_t)DDP_BLOCK + threadIdx.x;
    const float  value = __uint_as_float((uint32_t)a.x[i] << 16);

    a.y[i] = value;
    if (blockIdx.x >= a.first_counted && blockIdx.x - a.first_counted < a.counted) { /* or not, as a block */
        count_threads(!isfinite(value), a.overflows);
    }
}

ddp_status_t ddp_cuda_to_bf16(ddp_stream_t *stream, const float *x, uint16_t *y, size_t blocks,
                              uint64_t *overflows)
{
    if (blocks > 0) {
        LAUNCH(to_bf16_kernel, (unsigned)blocks, DDP_BLOCK, 0, ddp_cuda_stream(stream), x, y, overflows);
    }
    return ddp_cuda_launched(stream, "to bfloat16");
}

ddp_status_t ddp_cuda_from_bf16(ddp_stream_t *stream, const ddp_cuda_from_bf16_args_t *args)
{
    if (args->blocks > 0) {
        LAUNCH(from_bf16_kernel, (unsigned)args->blocks, DDP_BLOCK, 0, ddp_cuda_stream(stream), *args);
    }
    return ddp_cuda_launched(stream, "from bfloat16");
}
