/*
 * Pooling, one thread an element of what is written; channels lie side by side, so neighbours read and write
 * neighbours. Forward reads a window (from cache where windows overlap) and writes 4 or 5 bytes, backward
 * gathers from the windows over an element in their order, as the cpu adds them, and needs no atomics. Bound
 * by memory, with the division by four extents close behind: 32 bits wide where everything fits.
 */
#include "kernels/cuda/launch.h"
#include "kernels/cuda/ops.h"

/* Where an element of an image [n, h, w, c] lies. */
template <class index_t> struct place_t {
    index_t n, row, column, c;
};

template <class index_t>
static __device__ inline place_t<index_t> place_of(index_t i, index_t h, index_t w, index_t c)
{
    const index_t pixel = i / c;
    const index_t line  = pixel / w;

    return {line / h, line % h, pixel % w, i % c};
}

/* The first output row or column whose window reaches `x`, and the one behind the last. */
template <class index_t>
static __device__ inline void windows_over(index_t x, const ddp_pool2d_args_t &a, index_t out, index_t *first,
                                           index_t *end)
{
    const index_t from   = x + (index_t)a.pad; /* in the padded image */
    const index_t kernel = (index_t)a.kernel;
    const index_t stride = (index_t)a.stride;
    const index_t last   = from / stride + 1;

    *first = from < kernel ? 0 : (from - kernel) / stride + 1;
    *end   = last < out ? last : out;
}

/* The larger one stays; of equals the first; a NaN replaces all and is replaced by a NaN only. */
template <class index_t> static __global__ void max_pool_kernel(ddp_pool2d_args_t a, index_t count)
{
    DDP_CUDA_EACH(i, count)
    {
        const place_t<index_t> p =
            place_of<index_t>((index_t)i, (index_t)a.out_h, (index_t)a.out_w, (index_t)a.c);
        const float *x     = a.x + (size_t)p.n * a.in_h * a.in_w * a.c + p.c;
        float        best  = -INFINITY;
        int          where = -1;

        for (int k = 0; k < (int)(a.kernel * a.kernel); k++) {
            const index_t row = p.row * (index_t)a.stride + (index_t)(k / (int)a.kernel) - (index_t)a.pad;
            const index_t column =
                p.column * (index_t)a.stride + (index_t)(k % (int)a.kernel) - (index_t)a.pad;

            if (row < (index_t)a.in_h && column < (index_t)a.in_w) { /* below 0 is large */
                const float v = x[((size_t)row * a.in_w + column) * a.c];

                if (v > best || v != v || where < 0) {
                    best  = v;
                    where = k;
                }
            }
        }
        a.y[i]     = best;
        a.index[i] = (uint8_t)where;
    }
}

template <class index_t> static __global__ void average_pool_kernel(ddp_pool2d_args_t a, index_t count)
{
    const float share = (float)(a.kernel * a.kernel);

    DDP_CUDA_EACH(i, count)
    {
        const place_t<index_t> p =
            place_of<index_t>((index_t)i, (index_t)a.out_h, (index_t)a.out_w, (index_t)a.c);
        const float *x   = a.x + (size_t)p.n * a.in_h * a.in_w * a.c + p.c;
        float        sum = 0.0F;

        for (index_t k = 0; k < (index_t)a.kernel; k++) {
            const index_t row = p.row * (index_t)a.stride + k - (index_t)a.pad;

            for (index_t l = 0; l < (index_t)a.kernel; l++) {
                const index_t column = p.column * (index_t)a.stride + l - (index_t)a.pad;

                if (row < (index_t)a.in_h && column < (index_t)a.in_w) {
                    sum += x[((size_t)row * a.in_w + column) * a.c];
                }
            }
        }
        a.y[i] = sum / share;
    }
}

template <class index_t>
static __global__ void pool_backward_kernel(ddp_pool2d_backward_args_t args, index_t count)
{
    const ddp_pool2d_args_t &a     = args.forward;
    const float              share = (float)(a.kernel * a.kernel);

    DDP_CUDA_EACH(i, count)
    {
        const place_t<index_t> p =
            place_of<index_t>((index_t)i, (index_t)a.in_h, (index_t)a.in_w, (index_t)a.c);
        const size_t image = (size_t)p.n * a.out_h * a.out_w * a.c + p.c;
        float        sum   = args.accumulate ? args.dx[i] : 0.0F;
        index_t      row;
        index_t      row_end;
        index_t      first;
        index_t      end;

        windows_over<index_t>(p.row, a, (index_t)a.out_h, &row, &row_end);
        windows_over<index_t>(p.column, a, (index_t)a.out_w, &first, &end);
        for (; row < row_end; row++) {
            for (index_t column = first; column < end; column++) {
                const size_t  at = image + ((size_t)row * a.out_w + column) * a.c;
                const index_t position =
                    (p.row + (index_t)a.pad - row * (index_t)a.stride) * (index_t)a.kernel +
                    (p.column + (index_t)a.pad - column * (index_t)a.stride);

                if (!a.is_max) {
                    sum += args.dy[at] / share;
                } else if (a.index[at] == position) {
                    sum += args.dy[at];
                }
            }
        }
        args.dx[i] = sum;
    }
}

/* Extents with padding and strides stay below 2^31. */
static bool is_small(const ddp_pool2d_args_t *a)
{
    const size_t side  = (a->in_h > a->in_w ? a->in_h : a->in_w) + 2 * a->pad + a->kernel;
    const size_t limit = (size_t)1 << 31;

    return side < limit && a->n * a->in_h * a->in_w * a->c < limit &&
           a->n * a->out_h * a->out_w * a->c < limit;
}

ddp_status_t ddp_cuda_pool2d(ddp_stream_t *stream, const ddp_pool2d_args_t *args)
{
    const size_t       count  = args->n * args->out_h * args->out_w * args->c;
    const unsigned     blocks = ddp_cuda_blocks(stream, count);
    const cudaStream_t native = ddp_cuda_stream(stream);

    if (count > 0 && is_small(args)) {
        if (args->is_max) {
            LAUNCH(max_pool_kernel<uint32_t>, blocks, DDP_CUDA_THREADS, 0, native, *args, (uint32_t)count);
        } else {
            LAUNCH(average_pool_kernel<uint32_t>, blocks, DDP_CUDA_THREADS, 0, native, *args,
                   (uint32_t)count);
        }
    } else if (count > 0) {
        if (args->is_max) {
            LAUNCH(max_pool_kernel<uint64_t>, blocks, DDP_CUDA_THREADS, 0, native, *args, (uint64_t)count);
        } else {
            LAUNCH(average_pool_kernel<uint64_t>, blocks, DDP_CUDA_THREADS, 0, native, *args,
                   (uint64_t)count);
        }
    }
    return ddp_cuda_launched(stream, "pool2d");
}

ddp_status_t ddp_cuda_pool2d_backward(ddp_stream_t *stream, const ddp_pool2d_backward_args_t *args)
{
    const ddp_pool2d_args_t *a     = &args->forward;
    const size_t             count = a->n * a->in_h * a->in_w * a->c;

    if (count > 0 && is_small(a)) {
        LAUNCH(pool_backward_kernel<uint32_t>, ddp_cuda_blocks(stream, count), DDP_CUDA_THREADS, 0,
               ddp_cuda_stream(stream), *args, (uint32_t)count);
    } else if (count > 0) {
        LAUNCH(pool_backward_kernel<uint64_t>, ddp_cuda_blocks(stream, count), DDP_CUDA_THREADS, 0,
               ddp_cuda_stream(stream), *args, (uint64_t)count);
    }
    return ddp_cuda_launched(stream, "pool2d_backward");
}
