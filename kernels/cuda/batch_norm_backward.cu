/*
 * The gradients of batch normalisation: sums of g and g (x - mean) by columns, in which the residual gets its
 * gradient too, then dx. Bound by memory: x and dy are read twice (and y, where it tells what RELU let
 * through), dx is written once.
 */
#include "base/error.h"
#include "kernels/cuda/batch_norm_internal.h"
#include "kernels/cuda/columns.h"
#include "kernels/cuda/ops.h"

/* How it is known where RELU gave 0. */
enum mask_t { MASK_NONE, MASK_FROM_X, MASK_FROM_Y };

static mask_t mask_of(const ddp_batch_norm_backward_args_t *a)
{
    return a->act == DDP_ACT_NONE ? MASK_NONE : a->y != NULL ? MASK_FROM_Y : MASK_FROM_X;
}

/* dy, or 0 where RELU gave 0; `value` is a value of RELU, or what RELU was given. */
static __device__ float masked(float value, float dy)
{
    return value > 0.0F ? dy : 0.0F;
}

/* What the column sums are of. */
struct sums_t {
    enum { sums = 2 };
    ddp_batch_norm_backward_args_t a;
    mask_t                         mask;
    float                          mean, scale, beta; /* of the thread's column */

    __device__ void column(size_t j)
    {
        mean  = a.mean[j];
        scale = a.rstd[j] * a.gamma[j];
        beta  = a.beta != NULL ? a.beta[j] : 0.0F;
    }
    __device__ void add(size_t row, size_t j, float *sum) const
    {
        const size_t at = row * a.c + j;
        const float  x  = a.x[at];
        float        g  = a.dy[at];

        if (mask == MASK_FROM_Y) {
            g = masked(a.y[at], g);
        } else if (mask == MASK_FROM_X) {
            g = masked(bn_value(x, mean, scale, beta), g);
        }
        sum[0] += g;
        sum[1] = fmaf(g, x - mean, sum[1]);
        if (a.dresidual != NULL) {
            a.dresidual[at] = a.accumulate_dresidual ? a.dresidual[at] + g : g;
        }
    }
};

/* dx = scale * (g - g_mean - (x - mean) * slope) */
typedef struct slopes {
    float *scale, *g_mean, *slope; /* [c] */
} slopes_t;

static __global__ void finish_kernel(ddp_batch_norm_backward_args_t a, ddp_columns_t c, const float *part,
                                     slopes_t to)
{
    DDP_CUDA_EACH(j, c.width)
    {
        const double g        = ddp_columns_total(c, part, 0, 2, j);
        const double products = ddp_columns_total(c, part, 1, 2, j);
        const double rstd     = (double)a.rstd[j];

        to.scale[j]  = a.rstd[j] * a.gamma[j];
        to.g_mean[j] = (float)(g / (double)c.rows);
        to.slope[j]  = (float)(products * rstd * rstd / (double)c.rows);
        if (a.dgamma != NULL) {
            ddp_put<1>(a.dgamma + j, a.accumulate_dgamma, {{(float)(products * rstd)}});
        }
        if (a.dbeta != NULL) {
            ddp_put<1>(a.dbeta + j, a.accumulate_dbeta, {{(float)g}});
        }
    }
}

template <int N> static __global__ void dx_kernel(ddp_batch_norm_backward_args_t a, mask_t mask, slopes_t s)
{
    for (bn_walk w(a.c / N, a.rows * (a.c / N)); w.is_inside(); w.next()) {
        const ddp_pack<N> mean   = ddp_load<N>(a.mean + w.column * N);
        const ddp_pack<N> scale  = ddp_load<N>(s.scale + w.column * N);
        const ddp_pack<N> g_mean = ddp_load<N>(s.g_mean + w.column * N);
        const ddp_pack<N> slope  = ddp_load<N>(s.slope + w.column * N);
        const ddp_pack<N> x      = ddp_load<N>(a.x + w.at * N);
        ddp_pack<N>       g      = ddp_load<N>(a.dy + w.at * N);

        if (mask == MASK_FROM_Y) {
            const ddp_pack<N> y = ddp_load<N>(a.y + w.at * N);

            for (int k = 0; k < N; k++) {
                g.at[k] = masked(y.at[k], g.at[k]);
            }
        } else if (mask == MASK_FROM_X) {
            const ddp_pack<N> beta = ddp_load<N>(a.beta + w.column * N);

            for (int k = 0; k < N; k++) {
                g.at[k] = masked(bn_value(x.at[k], mean.at[k], scale.at[k], beta.at[k]), g.at[k]);
            }
        }
        for (int k = 0; k < N; k++) {
            g.at[k] = (g.at[k] - g_mean.at[k] - (x.at[k] - mean.at[k]) * slope.at[k]) * scale.at[k];
        }
        ddp_put<N>(a.dx + w.at * N, a.accumulate_dx, g);
    }
}

/* Where g is in the residual's gradient, as it is, nobody needs the mask a second time. */
static ddp_status_t run_dx(ddp_stream_t *stream, const ddp_batch_norm_backward_args_t *args, slopes_t s)
{
    ddp_batch_norm_backward_args_t a    = *args;
    mask_t                         mask = mask_of(args);

    if (a.dresidual != NULL && !a.accumulate_dresidual) {
        a.dy = a.dresidual;
        mask = MASK_NONE;
    }
    if (ddp_is_packed(a.c, a.x, a.dy, a.y, a.mean, a.beta, (const float *)a.dx)) {
        LAUNCH(dx_kernel<4>, ddp_cuda_blocks(stream, a.rows * (a.c / 4)), DDP_CUDA_THREADS, 0,
               ddp_cuda_stream(stream), a, mask, s);
    } else {
        LAUNCH(dx_kernel<1>, ddp_cuda_blocks(stream, a.rows * a.c), DDP_CUDA_THREADS, 0,
               ddp_cuda_stream(stream), a, mask, s);
    }
    return ddp_cuda_launched(stream, "batch norm backward");
}

/* A batch without rows: its gradients are 0. */
static ddp_status_t run_empty(ddp_stream_t *stream, const ddp_batch_norm_backward_args_t *a)
{
    ddp_status_t status = DDP_OK;

    if (a->dgamma != NULL && !a->accumulate_dgamma) {
        DDP_TRY(ddp_cuda_fill(stream, a->dgamma, a->c, 0.0F));
    }
    if (a->dbeta != NULL && !a->accumulate_dbeta) {
        DDP_TRY(ddp_cuda_fill(stream, a->dbeta, a->c, 0.0F));
    }
out:
    return status;
}

/* Packs of all vectors are aligned. */
static size_t padded_to_packs(size_t c)
{
    return (c + 3) / 4 * 4;
}

size_t ddp_cuda_batch_norm_backward_scratch(const ddp_batch_norm_backward_args_t *args)
{
    return (3 * padded_to_packs(args->c) + ddp_columns_chunks(args->rows) * sums_t::sums * args->c) *
           sizeof(float);
}

ddp_status_t ddp_cuda_batch_norm_backward(ddp_stream_t *stream, const ddp_batch_norm_backward_args_t *args)
{
    const ddp_columns_t c      = ddp_columns_of(args->rows, args->c);
    const size_t        padded = padded_to_packs(c.width);
    const sums_t        sums   = {*args, mask_of(args), 0.0F, 0.0F, 0.0F};
    cudaStream_t        native = ddp_cuda_stream(stream);
    ddp_status_t        status = DDP_OK;
    void               *memory = NULL;
    float              *part;
    slopes_t            s;

    if (args->rows == 0) {
        return run_empty(stream, args);
    }
    DDP_TRY(
        ddp_cuda_scratch(stream, DDP_CUDA_SCRATCH_OP, ddp_cuda_batch_norm_backward_scratch(args), &memory));
    s.scale  = static_cast<float *>(memory);
    s.g_mean = s.scale + padded;
    s.slope  = s.g_mean + padded;
    part     = s.slope + padded;
    LAUNCH(ddp_columns_kernel<sums_t>, ddp_columns_grid(&c), ddp_columns_block(), 0, native, sums, c, part);
    LAUNCH(finish_kernel, ddp_cuda_blocks(stream, c.width), DDP_CUDA_THREADS, 0, native, *args, c,
           (const float *)part, s);
    DDP_TRY(ddp_cuda_launched(stream, "batch norm backward"));
    if (args->dx != NULL) {
        DDP_TRY(run_dx(stream, args, s));
    }
out:
    return status;
}
