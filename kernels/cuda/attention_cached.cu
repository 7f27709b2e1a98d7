/*
 * Attention of a few new rows to many kept ones: a block has one new row of one head and 128 columns of its
 * result, and goes through the keys 128 at a time with a running maximum and sum. Bound by reading the kept
 * rows: 8 bytes of each for every column.
 */
#include "kernels/cuda/ops.h"
#include "kernels/cuda/reduce.h"

#define KEYS  128 /* of a tile; threads, too */
#define WARPS (KEYS / DDP_CUDA_WARP)

static __global__ void keep_kernel(ddp_attention_cached_args_t a)
{
    DDP_CUDA_EACH(i, a.sequences * a.length * a.channels)
    {
        const size_t row = i / a.channels;
        const size_t j   = i % a.channels;
        const size_t to  = (row / a.length * a.capacity + a.past + row % a.length) * a.channels + j;

        a.keys[to]   = a.qkv[row * 3 * a.channels + a.channels + j];
        a.values[to] = a.qkv[row * 3 * a.channels + 2 * a.channels + j];
    }
}

ddp_status_t ddp_cuda_attention_keep(ddp_stream_t *stream, const ddp_attention_cached_args_t *args)
{
    const size_t count = args->sequences * args->length * args->channels;

    if (count > 0) {
        LAUNCH(keep_kernel, ddp_cuda_blocks(stream, count), DDP_CUDA_THREADS, 0, ddp_cuda_stream(stream),
               *args);
    }
    return ddp_cuda_launched(stream, "cached attention");
}

/* score[j] = q k_j * scale for the tile's first n keys, -inf behind; a warp a key. */
static __device__ void score_tile(const float *q, const float *keys, size_t ld, size_t n, size_t width,
                                  float scale, float *score)
{
    const unsigned lane = threadIdx.x % DDP_CUDA_WARP;

    for (size_t j = threadIdx.x / DDP_CUDA_WARP; j < KEYS; j += WARPS) {
        float sum = 0.0F;

        for (size_t d = lane; d < width && j < n; d += DDP_CUDA_WARP) {
            sum = fmaf(q[d], keys[j * ld + d], sum);
        }
        sum = ddp_warp_sum(sum);
        if (lane == 0) {
            score[j] = j < n ? sum * scale : -INFINITY;
        }
    }
}

/* x counts rows and heads, y columns. 0.5 KiB of shared memory. */
static __global__ void cached_kernel(ddp_attention_cached_args_t a, float scale)
{
    __shared__ float score[KEYS];
    __shared__ float part[WARPS];
    const size_t     row   = blockIdx.x / a.heads;
    const size_t     width = a.channels / a.heads;
    const size_t     head  = blockIdx.x % a.heads * width;
    const size_t     first = row / a.length * a.capacity * a.channels + head; /* of the sequence's keys */
    const size_t     n     = a.past + row % a.length + 1;
    const size_t     d     = blockIdx.y * (size_t)KEYS + threadIdx.x;
    float            top   = -INFINITY;
    float            sum   = 0.0F;
    float            y     = 0.0F;

    for (size_t k0 = 0; k0 < n; k0 += KEYS) {
        const size_t keys = n - k0 < KEYS ? n - k0 : KEYS;
        float        before;
        float        weight;

        score_tile(a.qkv + row * 3 * a.channels + head, a.keys + first + k0 * a.channels, a.channels, keys,
                   width, scale, score);
        __syncthreads();
        weight = score[threadIdx.x];
        before = top;
        top    = fmaxf(top, ddp_block_max(weight, part));
        before = expf(before - top);
        weight = threadIdx.x < keys ? expf(weight - top) : 0.0F;
        sum    = sum * before + ddp_block_sum(weight, part);
        y *= before;
        score[threadIdx.x] = weight; /* block_max() and block_sum() had barriers since it was read */
        __syncthreads();
        for (size_t j = 0; j < keys && d < width; j++) {
            y = fmaf(score[j], a.values[first + (k0 + j) * a.channels + d], y);
        }
        __syncthreads(); /* the weights have been read */
    }
    if (d < width) {
        a.y[row * a.channels + head + d] = y / sum;
    }
}

ddp_status_t ddp_cuda_attention_cached(ddp_stream_t *stream, const ddp_attention_cached_args_t *args)
{
    const size_t width = args->channels / args->heads;
    const dim3   grid((unsigned)(args->sequences * args->length * args->heads),
                      (unsigned)((width + KEYS - 1) / KEYS));
    ddp_status_t status = ddp_cuda_attention_keep(stream, args);

    if (status == DDP_OK && grid.x > 0) {
        LAUNCH(cached_kernel, grid, KEYS, 0, ddp_cuda_stream(stream), *args,
               (float)(1.0 / sqrt((double)width)));
        status = ddp_cuda_launched(stream, "cached attention");
    }
    return status;
}
