/*
 * Softmax cross-entropy: a block a row, of as many threads as the row has use for. One sweep finds the
 * largest logit and the sum of exponentials (each thread corrects its sum when its largest grows), the second
 * makes the gradient, in place. Bound by memory: logits are read twice, mostly from the L2 cache the second
 * time (a row of 50304 is 201 KB), and written once.
 */
#include <float.h>

#include "base/error.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/entropy.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/pack.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/scratch.h"

#define MOST_THREADS 512
#define MOST_WARPS   (MOST_THREADS / DDP_CUDA_WARP)
#define SUM_THREADS  256

/* What a thread has seen of its row. */
struct seen_t {
    float    top, sum; /* sum of exp(x - top) */
    unsigned where;    /* the first with the largest */
};

static __device__ void look(seen_t *seen, float x, unsigned j)
{
    if (x > seen->top) {
        seen->sum   = seen->sum * expf(seen->top - x) + 1.0F;
        seen->top   = x;
        seen->where = j;
    } else {
        seen->sum += expf(x - seen->top); /* a NaN stays */
    }
}

/* The smallest over the block. */
static __device__ unsigned block_min(unsigned value, unsigned *part)
{
    const unsigned lane = threadIdx.x % DDP_CUDA_WARP;

    for (int by = DDP_CUDA_WARP / 2; by > 0; by /= 2) {
        value = min(value, __shfl_xor_sync(DDP_CUDA_FULL, value, by));
    }
    if (lane == 0) {
        part[threadIdx.x / DDP_CUDA_WARP] = value;
    }
    __syncthreads();
    value = lane < blockDim.x / DDP_CUDA_WARP ? part[lane] : UINT_MAX;
    for (int by = DDP_CUDA_WARP / 2; by > 0; by /= 2) {
        value = min(value, __shfl_xor_sync(DDP_CUDA_FULL, value, by));
    }
    return value;
}

/* What all threads have seen together. A row with something that overflowed or is no number gets a sum that
 * is a NaN. */
static __device__ seen_t look_together(seen_t own)
{
    __shared__ float    part[MOST_WARPS];
    __shared__ unsigned where[MOST_WARPS];
    seen_t              all;

    all.top   = ddp_block_max(own.top, part);
    all.sum   = ddp_block_sum(own.sum * expf(own.top - all.top), part);
    all.where = block_min(own.top == all.top ? own.where : UINT_MAX, where);
    all.sum   = all.top - all.top != 0.0F ? NAN : all.sum;
    return all;
}

template <int N>
static __device__ void gradient(const ddp_cuda_entropy_args_t &a, const float *x, float *d, const seen_t &all,
                                unsigned label, float weight)
{
    const float factor = weight / all.sum;

    for (size_t j = threadIdx.x * (size_t)N; j < a.classes; j += blockDim.x * (size_t)N) {
        ddp_pack<N> v = ddp_load<N>(x + j);

        for (int k = 0; k < N; k++) {
            v.at[k] = expf(v.at[k] - all.top) * factor;
            v.at[k] -= j + (unsigned)k == label ? weight : 0.0F;
        }
        ddp_store<N>(d + j, v);
    }
}

template <int N> static __device__ void clear(const ddp_cuda_entropy_args_t &a, float *d)
{
    for (size_t j = threadIdx.x * (size_t)N; j < a.classes; j += blockDim.x * (size_t)N) {
        ddp_store<N>(d + j, {});
    }
}

/* 0.3 KiB of shared memory. */
template <int N>
static __global__ void __launch_bounds__(MOST_THREADS) entropy_kernel(ddp_cuda_entropy_args_t a)
{
    const size_t   i      = blockIdx.x;
    const float   *x      = a.logits + i * a.pitch;
    float         *d      = a.dlogits == NULL ? NULL : a.dlogits + i * a.pitch;
    const int32_t  label  = a.labels[i];
    const float    weight = a.weights == NULL ? 1.0F : a.weights[i];
    const unsigned column = (unsigned)label;
    seen_t         seen   = {-FLT_MAX, 0.0F, UINT_MAX};
    float          logit;

    if (label == a.ignore_index || label < 0 || (size_t)label >= a.classes) {
        if (d != NULL) {
            clear<N>(a, d);
        }
        if (threadIdx.x == 0) {
            a.row[i] = {0.0, 0.0F, 0, 0};
        }
        return;
    }
    for (size_t j = threadIdx.x * (size_t)N; j < a.classes; j += blockDim.x * (size_t)N) {
        const ddp_pack<N> v = ddp_load<N>(x + j);

        for (int k = 0; k < N; k++) {
            look(&seen, v.at[k], (unsigned)j + (unsigned)k);
        }
    }
    logit = x[column];
    seen  = look_together(seen); /* its barriers are between reading x[column] and writing it */
    if (threadIdx.x == 0) {
        a.row[i].loss    = (double)weight * (log((double)seen.sum) + ((double)seen.top - (double)logit));
        a.row[i].weight  = weight;
        a.row[i].correct = seen.where == column && seen.sum == seen.sum;
        a.row[i].counted = 1;
    }
    if (d != NULL) {
        gradient<N>(a, x, d, seen, column, weight * a.grad_scale);
    }
}

ddp_status_t ddp_cuda_entropy(ddp_stream_t *stream, const ddp_cuda_entropy_args_t *args)
{
    const unsigned threads = args->classes <= 1024 ? 32 : args->classes <= 8192 ? 128 : MOST_THREADS;

    if (args->rows == 0) {
        return DDP_OK;
    }
    if (args->pitch % 4 == 0 && ddp_is_packed(args->classes, args->logits, (const float *)args->dlogits)) {
        LAUNCH(entropy_kernel<4>, (unsigned)args->rows, threads, 0, ddp_cuda_stream(stream), *args);
    } else {
        LAUNCH(entropy_kernel<1>, (unsigned)args->rows, threads, 0, ddp_cuda_stream(stream), *args);
    }
    return ddp_cuda_launched(stream, "cross entropy");
}

/* One block; every thread every 256th row, then a tree. */
static __global__ void sum_losses_kernel(const ddp_cuda_row_loss_t *row, size_t rows, ddp_loss_stats_t *stats)
{
    __shared__ double part[SUM_THREADS / DDP_CUDA_WARP];
    double            loss    = 0.0;
    double            weight  = 0.0;
    double            correct = 0.0;
    double            counted = 0.0;

    for (size_t i = threadIdx.x; i < rows; i += SUM_THREADS) {
        loss += row[i].loss;
        weight += (double)row[i].weight;
        correct += (double)row[i].correct;
        counted += (double)row[i].counted;
    }
    loss    = ddp_block_sum(loss, part);
    weight  = ddp_block_sum(weight, part);
    correct = ddp_block_sum(correct, part);
    counted = ddp_block_sum(counted, part);
    if (threadIdx.x == 0) {
        *stats = {(float)loss, (float)weight, (float)correct, (float)counted};
    }
}

ddp_status_t ddp_cuda_sum_losses(ddp_stream_t *stream, const ddp_cuda_row_loss_t *row, size_t rows,
                                 ddp_loss_stats_t *stats)
{
    LAUNCH(sum_losses_kernel, 1, SUM_THREADS, 0, ddp_cuda_stream(stream), row, rows, stats);
    return ddp_cuda_launched(stream, "sum of losses");
}

size_t ddp_cuda_cross_entropy_scratch(const ddp_cross_entropy_args_t *args)
{
    return args->rows * sizeof(ddp_cuda_row_loss_t);
}

ddp_status_t ddp_cuda_cross_entropy(ddp_stream_t *stream, const ddp_cross_entropy_args_t *args)
{
    const ddp_cuda_check_args_t check   = {args->labels, args->rows, args->classes, DDP_CUDA_WRONG_LABEL,
                                           args->ignore_index};
    ddp_cuda_entropy_args_t     entropy = {args->logits,  args->dlogits, args->rows,    args->classes,
                                           args->classes, args->labels,  args->weights, args->ignore_index,
                                           1.0F,          NULL};
    ddp_status_t                status  = DDP_OK;
    void                       *memory  = NULL;

    DDP_TRY(ddp_cuda_check_indices(stream, &check));
    DDP_TRY(ddp_cuda_scratch(stream, DDP_CUDA_SCRATCH_OP, ddp_cuda_cross_entropy_scratch(args), &memory));
    entropy.row = static_cast<ddp_cuda_row_loss_t *>(memory);
    DDP_TRY(ddp_cuda_entropy(stream, &entropy));
    DDP_TRY(ddp_cuda_sum_losses(stream, entropy.row, args->rows, args->stats));
out:
    return status;
}
