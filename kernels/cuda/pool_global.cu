/* Global average pooling: a thread has a channel of an image. */
#include "kernels/cuda/launch.h"
#include "kernels/cuda/ops.h"

/* The cpu's order: sums of this many pixels are added up. */
#define PIXELS 128

/* Reads 4 bytes an element, neighbours next to each other. */
static __global__ void pool_kernel(ddp_global_avg_pool_args_t a, float share)
{
    DDP_CUDA_EACH(i, a.n * a.c)
    {
        const float *x     = a.x + i / a.c * a.pixels * a.c + i % a.c;
        float        total = 0.0F;

        for (size_t first = 0; first < a.pixels; first += PIXELS) {
            const size_t last = a.pixels - first < PIXELS ? a.pixels : first + PIXELS;
            float        sum  = 0.0F;

#pragma unroll 4
            for (size_t p = first; p < last; p++) {
                sum += x[p * a.c];
            }
            total += sum;
        }
        a.y[i] = total * share;
    }
}

static float share_of(size_t pixels)
{
    return (float)(1.0 / (double)(pixels > 0 ? pixels : 1));
}

ddp_status_t ddp_cuda_global_avg_pool(ddp_stream_t *stream, const ddp_global_avg_pool_args_t *args)
{
    if (args->n * args->c > 0) {
        LAUNCH(pool_kernel, ddp_cuda_blocks(stream, args->n * args->c), DDP_CUDA_THREADS, 0,
               ddp_cuda_stream(stream), *args, share_of(args->pixels));
    }
    return ddp_cuda_launched(stream, "global average pool");
}

/* Writes 4 bytes an element, and reads them first if it accumulates. */
static __global__ void pool_backward_kernel(ddp_global_avg_pool_backward_args_t a, float share)
{
    DDP_CUDA_EACH(i, a.n * a.pixels * a.c)
    {
        const size_t image = i / (a.pixels * a.c);
        const float  d     = a.dy[image * a.c + i % a.c] * share;

        a.dx[i] = a.accumulate ? __fadd_rn(a.dx[i], d) : d;
    }
}

ddp_status_t ddp_cuda_global_avg_pool_backward(ddp_stream_t                              *stream,
                                               const ddp_global_avg_pool_backward_args_t *args)
{
    const size_t count = args->n * args->pixels * args->c;

    if (count > 0) {
        LAUNCH(pool_backward_kernel, ddp_cuda_blocks(stream, count), DDP_CUDA_THREADS, 0,
               ddp_cuda_stream(stream), *args, share_of(args->pixels));
    }
    return ddp_cuda_launched(stream, "global average pool backward");
}
