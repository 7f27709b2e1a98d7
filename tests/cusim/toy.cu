#include "tests/cusim/toy_cuda.h"

static __global__ void axpy_kernel(float *y, const float *x, float a, int count)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);

    if (i < count) {
        y[i] += a * x[i];
    }
}

static __device__ float warp_sum(float value)
{
    for (int by = 16; by > 0; by >>= 1) {
        value += __shfl_xor_sync(0xffffffffU, value, by);
    }
    return value;
}

template <int WARPS> static __global__ void row_sums_kernel(float *sums, const float *x, int width)
{
    extern __shared__ float smem[];
    __shared__ float        parts[WARPS];
    float                   sum = 0.0F;

    for (int i = threadIdx.x; i < width; i += blockDim.x) {
        smem[i] = x[(size_t)blockIdx.x * width + i];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < width; i += blockDim.x) {
        sum += smem[width - 1 - i];
    }
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) {
        parts[threadIdx.x / 32] = sum;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        sum = 0.0F;
        for (float part : parts) {
            sum += part;
        }
        sums[blockIdx.x] = sum;
    }
}

void toy_axpy(float *y, const float *x, float a, int count, cudaStream_t stream)
{
    LAUNCH(axpy_kernel, (unsigned)(count + 127) / 128, 128, 0, stream, y, x, a, count);
}

void toy_row_sums(float *sums, const float *x, int blocks, int width, cudaStream_t stream)
{
    LAUNCH(row_sums_kernel<4>, (unsigned)blocks, 128, (size_t)width * sizeof(float), stream, sums, x, width);
}
