/* Element by element over one or two vectors, and the sum of squares of one. */
#include "kernels/cuda/each.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/sumsq.h"

struct fill_t {
    enum { inputs = 0 };
    float value;

    __device__ float operator()(const float *x) const
    {
        (void)x;
        return value;
    }
};

struct axpy_t {
    enum { inputs = 2 };
    float alpha;

    /* rounded twice, as the cpu's `plain` set does: gradients of a tensor used twice are summed by it */
    __device__ float operator()(const float *x) const
    {
        return __fadd_rn(x[1], __fmul_rn(alpha, x[0]));
    }
};

struct scale_t {
    enum { inputs = 1 };
    float alpha;

    __device__ float operator()(const float *x) const
    {
        return x[0] * alpha;
    }
};

ddp_status_t ddp_cuda_fill(ddp_stream_t *stream, float *y, size_t count, float value)
{
    const ddp_cuda_each_t<fill_t> each = {{value}, {y}, y, count};

    return ddp_cuda_each(stream, "fill", each);
}

ddp_status_t ddp_cuda_axpy(ddp_stream_t *stream, float alpha, const float *x, float *y, size_t count)
{
    const ddp_cuda_each_t<axpy_t> each = {{alpha}, {x, y}, y, count};

    return ddp_cuda_each(stream, "axpy", each);
}

ddp_status_t ddp_cuda_scale(ddp_stream_t *stream, float alpha, float *y, size_t count)
{
    const ddp_cuda_each_t<scale_t> each = {{alpha}, {y}, y, count};

    return ddp_cuda_each(stream, "scale", each);
}

/* Blocks of DDP_BLOCK that one pass takes. */
#define PASS_BLOCKS (DDP_CUDA_THREADS / DDP_SUMSQ_LANES)

/* One block of threads, so that blocks are added in order: what of a vector is summed in a step has its own
 * kernels (optim.h), and this is for short ones. Bound by what one multiprocessor loads. */
static __global__ void sumsq_kernel(const float *x, size_t count, double *sum_p)
{
    __shared__ double lanes[DDP_CUDA_THREADS];
    const size_t      lane  = threadIdx.x % DDP_SUMSQ_LANES;
    double            total = 0.0;

    for (size_t first = 0; first < count; first += PASS_BLOCKS * DDP_BLOCK) {
        const size_t at = first + threadIdx.x / DDP_SUMSQ_LANES * DDP_BLOCK;

        lanes[threadIdx.x] = at < count ? sumsq_lane(x + at, lane, count - at) : 0.0;
        __syncthreads();
        if (threadIdx.x == 0) {
            for (size_t b = 0; b < PASS_BLOCKS && first + b * DDP_BLOCK < count; b++) {
                total += sumsq_finish(lanes + b * DDP_SUMSQ_LANES);
            }
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        *sum_p = total;
    }
}

ddp_status_t ddp_cuda_sumsq(ddp_stream_t *stream, const float *x, size_t count, double *sum_p)
{
    LAUNCH(sumsq_kernel, 1, DDP_CUDA_THREADS, 0, ddp_cuda_stream(stream), x, count, sum_p);
    return ddp_cuda_launched(stream, "sumsq");
}
