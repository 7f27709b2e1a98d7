/*
 * Layer normalisation: a warp a row. Sums over a row are of float32 in the order of the lanes; the variance
 * is that about the mean, in a second sweep. Rows come from memory once, the later sweeps find them in the L1
 * cache (8 rows of a block; 24 KiB at a width of 768).
 */
#include "kernels/cuda/columns.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/pack.h"

#define WARPS 8 /* rows of a block */

static unsigned row_blocks(size_t rows)
{
    return (unsigned)((rows + WARPS - 1) / WARPS);
}

/* Reads and writes 4 bytes an element each; no shared memory. */
template <int N> static __global__ void layer_norm_kernel(ddp_layer_norm_args_t a)
{
    const size_t   row  = blockIdx.x * (size_t)WARPS + threadIdx.x / DDP_CUDA_WARP;
    const unsigned lane = threadIdx.x % DDP_CUDA_WARP;
    const float   *x    = a.x + row * a.width;
    float         *y    = a.y + row * a.width;
    float          sum  = 0.0F;
    float          mean;
    float          rstd;

    if (row >= a.rows) {
        return;
    }
    for (size_t j = lane * N; j < a.width; j += DDP_CUDA_WARP * N) {
        const ddp_pack<N> v = ddp_load<N>(x + j);

        for (int k = 0; k < N; k++) {
            sum += v.at[k];
        }
    }
    mean = ddp_warp_sum(sum) / (float)a.width;
    sum  = 0.0F;
    for (size_t j = lane * N; j < a.width; j += DDP_CUDA_WARP * N) {
        const ddp_pack<N> v = ddp_load<N>(x + j);

        for (int k = 0; k < N; k++) {
            sum = fmaf(v.at[k] - mean, v.at[k] - mean, sum);
        }
    }
    rstd = 1.0F / sqrtf(ddp_warp_sum(sum) / (float)a.width + a.eps);
    for (size_t j = lane * N; j < a.width; j += DDP_CUDA_WARP * N) {
        const ddp_pack<N> v     = ddp_load<N>(x + j);
        const ddp_pack<N> gamma = ddp_load<N>(a.gamma + j);
        const ddp_pack<N> beta  = ddp_load<N>(a.beta + j);
        ddp_pack<N>       to;

        for (int k = 0; k < N; k++) {
            to.at[k] = fmaf((v.at[k] - mean) * rstd, gamma.at[k], beta.at[k]);
        }
        ddp_store<N>(y + j, to);
    }
    if (lane == 0 && a.mean != NULL) {
        a.mean[row] = mean;
        a.rstd[row] = rstd;
    }
}

ddp_status_t ddp_cuda_layer_norm(ddp_stream_t *stream, const ddp_layer_norm_args_t *args)
{
    const unsigned grid    = row_blocks(args->rows);
    const unsigned threads = WARPS * DDP_CUDA_WARP;

    if (args->rows == 0) {
        return DDP_OK;
    }
    if (ddp_is_packed(args->width, args->x, args->y, args->gamma, args->beta)) {
        LAUNCH(layer_norm_kernel<4>, grid, threads, 0, ddp_cuda_stream(stream), *args);
    } else {
        LAUNCH(layer_norm_kernel<1>, grid, threads, 0, ddp_cuda_stream(stream), *args);
    }
    return ddp_cuda_launched(stream, "layer norm");
}

/* dx = rstd * (g - mean(g) - h * mean(g h)), g = dy * gamma, h = (x - mean) * rstd. Reads 8 bytes an element
 * and writes 4 (reads 12 if it accumulates). */
template <int N> static __global__ void layer_norm_dx_kernel(ddp_layer_norm_backward_args_t a)
{
    const size_t   row      = blockIdx.x * (size_t)WARPS + threadIdx.x / DDP_CUDA_WARP;
    const unsigned lane     = threadIdx.x % DDP_CUDA_WARP;
    const float   *x        = a.x + row * a.width;
    const float   *dy       = a.dy + row * a.width;
    float          sum      = 0.0F;
    float          products = 0.0F;
    float          mean;
    float          rstd;

    if (row >= a.rows) {
        return;
    }
    mean = a.mean[row];
    rstd = a.rstd[row];
    for (size_t j = lane * N; j < a.width; j += DDP_CUDA_WARP * N) {
        const ddp_pack<N> v     = ddp_load<N>(x + j);
        const ddp_pack<N> d     = ddp_load<N>(dy + j);
        const ddp_pack<N> gamma = ddp_load<N>(a.gamma + j);

        for (int k = 0; k < N; k++) {
            const float g = d.at[k] * gamma.at[k];

            sum += g;
            products = fmaf(g, (v.at[k] - mean) * rstd, products);
        }
    }
    sum      = ddp_warp_sum(sum) / (float)a.width;
    products = ddp_warp_sum(products) / (float)a.width;
    for (size_t j = lane * N; j < a.width; j += DDP_CUDA_WARP * N) {
        const ddp_pack<N> v     = ddp_load<N>(x + j);
        const ddp_pack<N> d     = ddp_load<N>(dy + j);
        const ddp_pack<N> gamma = ddp_load<N>(a.gamma + j);
        ddp_pack<N>       to;

        for (int k = 0; k < N; k++) {
            const float h = (v.at[k] - mean) * rstd;

            to.at[k] = (d.at[k] * gamma.at[k] - sum - h * products) * rstd;
        }
        ddp_put<N>(a.dx + row * a.width + j, a.accumulate_dx, to);
    }
}

/* What dgamma and dbeta are sums of. */
struct terms_t {
    enum { sums = 2 };
    const float *x, *dy, *mean, *rstd;
    size_t       width;

    __device__ void column(size_t j)
    {
        (void)j;
    }
    __device__ void add(size_t row, size_t j, float *sum) const
    {
        const float d = dy[row * width + j];

        sum[0] = fmaf(d, (x[row * width + j] - mean[row]) * rstd[row], sum[0]);
        sum[1] += d;
    }
};

static __global__ void finish_kernel(ddp_columns_t c, const float *part, float *dgamma,
                                     bool accumulate_dgamma, float *dbeta, bool accumulate_dbeta)
{
    DDP_CUDA_EACH(j, c.width)
    {
        if (dgamma != NULL) {
            ddp_put<1>(dgamma + j, accumulate_dgamma, {{(float)ddp_columns_total(c, part, 0, 2, j)}});
        }
        if (dbeta != NULL) {
            ddp_put<1>(dbeta + j, accumulate_dbeta, {{(float)ddp_columns_total(c, part, 1, 2, j)}});
        }
    }
}

size_t ddp_cuda_layer_norm_backward_scratch(const ddp_layer_norm_backward_args_t *args)
{
    return ddp_columns_chunks(args->rows) * terms_t::sums * args->width * sizeof(float);
}

static ddp_status_t parameters(ddp_stream_t *stream, const ddp_layer_norm_backward_args_t *args)
{
    const ddp_columns_t c      = ddp_columns_of(args->rows, args->width);
    const terms_t       terms  = {args->x, args->dy, args->mean, args->rstd, args->width};
    ddp_status_t        status = DDP_OK;
    void               *part   = NULL;

    status = ddp_cuda_scratch(stream, DDP_CUDA_SCRATCH_OP, ddp_cuda_layer_norm_backward_scratch(args), &part);
    if (status != DDP_OK || c.width == 0) {
        return status;
    }
    if (c.chunks > 0) {
        LAUNCH(ddp_columns_kernel<terms_t>, ddp_columns_grid(&c), ddp_columns_block(), 0,
               ddp_cuda_stream(stream), terms, c, (float *)part);
    }
    LAUNCH(finish_kernel, ddp_cuda_blocks(stream, c.width), DDP_CUDA_THREADS, 0, ddp_cuda_stream(stream), c,
           (const float *)part, args->dgamma, args->accumulate_dgamma, args->dbeta, args->accumulate_dbeta);
    return ddp_cuda_launched(stream, "layer norm backward");
}

ddp_status_t ddp_cuda_layer_norm_backward(ddp_stream_t *stream, const ddp_layer_norm_backward_args_t *args)
{
    const unsigned grid    = row_blocks(args->rows);
    const unsigned threads = WARPS * DDP_CUDA_WARP;
    ddp_status_t   status  = DDP_OK;

    if (args->dx != NULL && args->rows > 0) {
        if (ddp_is_packed(args->width, args->x, args->dy, args->gamma, (const float *)args->dx)) {
            LAUNCH(layer_norm_dx_kernel<4>, grid, threads, 0, ddp_cuda_stream(stream), *args);
        } else {
            LAUNCH(layer_norm_dx_kernel<1>, grid, threads, 0, ddp_cuda_stream(stream), *args);
        }
        status = ddp_cuda_launched(stream, "layer norm backward");
    }
    if (status == DDP_OK && (args->dgamma != NULL || args->dbeta != NULL)) {
        status = parameters(stream, args);
    }
    return status;
}
