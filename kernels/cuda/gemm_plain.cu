/* Products without a library: one kernel for all shapes and precisions. */
#include "base/error.h"
#include "kernels/cuda/activation.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/precision.h"
#include "kernels/cuda/tile.h"

/* The last steps for one element: `product` is alpha times the sum. */
static __device__ inline void finish(const ddp_gemm_args_t &args, size_t i, size_t j, float product)
{
    const size_t at    = i * args.ldc + j;
    float        value = product;

    if (args.beta != 0.0F) {
        value += args.beta * args.c[at];
    }
    if (args.bias != NULL) {
        value += args.bias[j];
    }
    if (args.add != NULL) {
        value += args.add[at];
    }
    if (args.pre_activation != NULL) {
        args.pre_activation[at] = value;
    }
    args.c[at] = ddp_act(args.act, value);
}

/* A matrix whose element of line i and depth l is x[i * ld + l] if Deep, else x[l * ld + i]. */
template <ddp_precision_t P, bool Deep> struct matrix {
    typedef size_t    line_t;
    typedef size_t    depth_t;
    static const bool is_deep = Deep;

    const float *x;
    size_t       ld;

    __device__ line_t line(size_t i) const
    {
        return i;
    }
    __device__ depth_t depth(size_t l) const
    {
        return l;
    }
    __device__ float at(line_t i, depth_t l) const
    {
        return ddp_round(P, Deep ? x[i * ld + l] : x[l * ld + i]);
    }
};

struct product {
    const ddp_gemm_args_t &args;

    __device__ void put(size_t i, size_t j, float sum) const
    {
        finish(args, i, j, args.alpha * sum);
    }
};

template <ddp_precision_t P, bool TransposeA, bool TransposeB>
static __global__ void __launch_bounds__(DDP_TILE_THREADS) gemm_kernel(ddp_gemm_args_t args, unsigned across)
{
    const matrix<P, !TransposeA> a   = {args.a, args.lda};
    const matrix<P, TransposeB>  b   = {args.b, args.ldb};
    const product                out = {args};

    ddp_tile(a, b, out, (size_t)(blockIdx.x / across) * DDP_TILE, args.m,
             (size_t)(blockIdx.x % across) * DDP_TILE, args.n, 0, args.k);
}

template <ddp_precision_t P>
static void launch(ddp_stream_t *stream, const ddp_gemm_args_t *args, unsigned blocks, unsigned across)
{
    const cudaStream_t native = ddp_cuda_stream(stream);

    if (args->transpose_a) {
        LAUNCH((gemm_kernel<P, true, false>), blocks, DDP_TILE_THREADS, 0, native, *args, across);
    } else if (args->transpose_b) {
        LAUNCH((gemm_kernel<P, false, true>), blocks, DDP_TILE_THREADS, 0, native, *args, across);
    } else {
        LAUNCH((gemm_kernel<P, false, false>), blocks, DDP_TILE_THREADS, 0, native, *args, across);
    }
}

ddp_status_t ddp_cuda_gemm_plain(ddp_stream_t *stream, const ddp_gemm_args_t *args)
{
    const size_t across = ddp_tiles(args->n);
    const size_t blocks = across * ddp_tiles(args->m);

    if (blocks > INT32_MAX) {
        return ddp_fail(DDP_ERR_UNSUPPORTED, "gemm: a result of %zu x %zu is too large for the plain kernel",
                        args->m, args->n);
    }
    if (blocks > 0) {
        DDP_WITH_PRECISION(args->precision, launch<P>(stream, args, (unsigned)blocks, (unsigned)across));
    }
    return ddp_cuda_launched(stream, "gemm");
}

static __global__ void finish_kernel(ddp_gemm_args_t args)
{
    DDP_CUDA_EACH(e, args.m * args.n)
    {
        finish(args, e / args.n, e % args.n, 0.0F);
    }
}

ddp_status_t ddp_cuda_gemm_finish(ddp_stream_t *stream, const ddp_gemm_args_t *args)
{
    const size_t count = args->m * args->n;

    if (count > 0) {
        LAUNCH(finish_kernel, ddp_cuda_blocks(stream, count), DDP_CUDA_THREADS, 0, ddp_cuda_stream(stream),
               *args);
    }
    return ddp_cuda_launched(stream, "gemm");
}
