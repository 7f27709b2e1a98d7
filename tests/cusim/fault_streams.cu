#include "tests/cusim/fault_streams.h"

#define THREADS 64

static __global__ void gradient_kernel(float *g, const float *p, const float *x, int count)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);

    if (i < count) {
        g[i] = p[i] * 0.5F + x[i];
    }
}

static __global__ void update_kernel(float *p, const float *g, float rate, int count)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);

    if (i < count) {
        p[i] -= rate * g[i];
    }
}

static __global__ void norm_kernel(float *norm, const float *g, int count)
{
    __shared__ float parts[THREADS];
    float            sum = 0.0F;

    for (int i = threadIdx.x; i < count; i += THREADS) {
        sum += g[i] * g[i];
    }
    parts[threadIdx.x] = sum;
    __syncthreads();
    for (int by = THREADS / 2; by > 0; by /= 2) {
        if (threadIdx.x < by) {
            parts[threadIdx.x] += parts[threadIdx.x + by];
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        *norm = parts[0];
    }
}

void toy_gradient(float *g, const float *p, const float *x, int count, cudaStream_t stream)
{
    LAUNCH(gradient_kernel, (count + THREADS - 1) / THREADS, THREADS, 0, stream, g, p, x, count);
}

void toy_update(float *p, const float *g, float rate, int count, cudaStream_t stream)
{
    LAUNCH(update_kernel, (count + THREADS - 1) / THREADS, THREADS, 0, stream, p, g, rate, count);
}

void toy_norm(float *norm, const float *g, int count, cudaStream_t stream)
{
    LAUNCH(norm_kernel, 1, THREADS, 0, stream, norm, g, count);
}
