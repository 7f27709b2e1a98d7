/*
 * Batch normalisation. Statistics come in two passes: blocks have 32 columns and a chunk of rows, find the
 * mean of each column and the squares of the distances from it (the second sweep finds the rows in the L1
 * cache: 32 KiB for 256 rows); then the chunks are put together in a fixed order as Chan, Golub and LeVeque
 * 1979, in float64. A third pass normalises. Bound by memory: x is read twice and y written once.
 */
#include "base/error.h"
#include "kernels/cuda/batch_norm_internal.h"
#include "kernels/cuda/columns.h"
#include "kernels/cuda/ops.h"

#define DOWN DDP_COLUMNS_DOWN

/* Rows seen so far, their mean, and the sum of the squares of the distances from it. */
struct moments_t {
    double rows, mean, squares;
};

/* What the passes leave to each other, in scratch. */
typedef struct statistics {
    double *mean, *squares;     /* [chunks][c] */
    float  *final_mean, *scale; /* [c] what y is made with; scale: rstd * gamma */
} statistics_t;

static __device__ moments_t merge(const moments_t &a, const moments_t &b)
{
    const double rows  = a.rows + b.rows;
    const double share = rows > 0.0 ? b.rows / rows : 0.0;
    const double delta = b.mean - a.mean;

    return {rows, a.mean + delta * share, a.squares + b.squares + delta * delta * a.rows * share};
}

/* Two sums of squares agree with the float64 ones to about 1e-6: what is added up is near the chunk's mean.
 * 256 threads, 2 KiB of shared memory. */
static __global__ void chunk_kernel(ddp_batch_norm_args_t a, ddp_columns_t c, statistics_t to)
{
    __shared__ float room[DOWN][DDP_COLUMNS_ACROSS];
    __shared__ float near[DDP_COLUMNS_ACROSS]; /* a value near the mean */
    const size_t     j     = blockIdx.x * (size_t)DDP_COLUMNS_ACROSS + threadIdx.x;
    const size_t     first = blockIdx.y * c.step;
    const size_t     last  = c.rows - first < c.step ? c.rows : first + c.step;
    const float      rows  = (float)(last - first);
    const float      start = j < c.width ? a.x[first * c.width + j] : 0.0F;
    float            sum   = 0.0F;
    float            sumsq = 0.0F;

    for (size_t i = first + threadIdx.y; i < last && j < c.width; i += DOWN) {
        sum += a.x[i * c.width + j] - start;
    }
    sum = ddp_columns_down(sum, room);
    if (threadIdx.y == 0) {
        near[threadIdx.x] = start + sum / rows;
    }
    __syncthreads();
    sum = 0.0F;
    for (size_t i = first + threadIdx.y; i < last && j < c.width; i += DOWN) {
        const float d = a.x[i * c.width + j] - near[threadIdx.x];

        sum += d;
        sumsq = fmaf(d, d, sumsq);
    }
    sum   = ddp_columns_down(sum, room);
    sumsq = ddp_columns_down(sumsq, room);
    if (threadIdx.y == 0 && j < c.width) {
        const double off     = (double)sum / (double)rows; /* of `near` from the mean */
        const double squares = (double)sumsq - off * (double)sum;

        to.mean[blockIdx.y * c.width + j]    = (double)near[threadIdx.x] + off;
        to.squares[blockIdx.y * c.width + j] = squares < 0.0 ? 0.0 : squares;
    }
}

/* For y, and for whoever else wants it. */
static __device__ void put_column(const ddp_batch_norm_args_t &a, const statistics_t &to, size_t j,
                                  double mean, double variance)
{
    const float rstd = (float)(1.0 / sqrt(variance + (double)a.eps));

    to.final_mean[j] = (float)mean;
    to.scale[j]      = rstd * a.gamma[j];
    if (a.mean != NULL) {
        a.mean[j] = (float)mean;
        a.rstd[j] = rstd;
    }
}

/* Put the chunks of 32 columns together: each of 8 rows of threads every eighth chunk, then those 8. 6 KiB of
 * shared memory. */
static __global__ void merge_kernel(ddp_batch_norm_args_t a, ddp_columns_t c, statistics_t to)
{
    __shared__ double room[DOWN][3][DDP_COLUMNS_ACROSS];
    const size_t      j   = blockIdx.x * (size_t)DDP_COLUMNS_ACROSS + threadIdx.x;
    moments_t         own = {0.0, 0.0, 0.0};

    for (size_t i = threadIdx.y; i < c.chunks && j < c.width; i += DOWN) {
        const size_t rows = c.rows - i * c.step < c.step ? c.rows - i * c.step : c.step;

        own = merge(own, {(double)rows, to.mean[i * c.width + j], to.squares[i * c.width + j]});
    }
    room[threadIdx.y][0][threadIdx.x] = own.rows;
    room[threadIdx.y][1][threadIdx.x] = own.mean;
    room[threadIdx.y][2][threadIdx.x] = own.squares;
    __syncthreads();
    if (threadIdx.y > 0 || j >= c.width) {
        return;
    }
    for (int i = 1; i < DOWN; i++) {
        own = merge(own, {room[i][0][threadIdx.x], room[i][1][threadIdx.x], room[i][2][threadIdx.x]});
    }
    put_column(a, to, j, own.mean, own.squares / own.rows);
    if (a.mean_sum != NULL) {
        ddp_put<1>(a.mean_sum + j, a.accumulate_mean, {{(float)own.mean}});
        ddp_put<1>(a.var_sum + j, a.accumulate_var, {{(float)(own.squares / (own.rows - 1.0))}});
    }
}

/* Statistics that are given. */
static __global__ void given_kernel(ddp_batch_norm_args_t a, statistics_t to)
{
    DDP_CUDA_EACH(j, a.c)
    {
        put_column(a, to, j, (double)a.running_mean[j], (double)a.running_var[j]);
    }
}

/* Reads 4 bytes an element (8 with a residual), writes 4. */
template <int N> static __global__ void apply_kernel(ddp_batch_norm_args_t a, statistics_t s)
{
    for (bn_walk w(a.c / N, a.rows * (a.c / N)); w.is_inside(); w.next()) {
        const ddp_pack<N> mean  = ddp_load<N>(s.final_mean + w.column * N);
        const ddp_pack<N> scale = ddp_load<N>(s.scale + w.column * N);
        const ddp_pack<N> beta  = ddp_load<N>(a.beta + w.column * N);
        ddp_pack<N>       y     = ddp_load<N>(a.x + w.at * N);

        for (int k = 0; k < N; k++) {
            y.at[k] = bn_value(y.at[k], mean.at[k], scale.at[k], beta.at[k]);
        }
        if (a.residual != NULL) {
            const ddp_pack<N> residual = ddp_load<N>(a.residual + w.at * N);

            for (int k = 0; k < N; k++) {
                y.at[k] += residual.at[k];
            }
        }
        if (a.act == DDP_ACT_RELU) {
            for (int k = 0; k < N; k++) {
                y.at[k] = y.at[k] < 0.0F ? 0.0F : y.at[k]; /* a NaN stays */
            }
        }
        ddp_store<N>(a.y + w.at * N, y);
    }
}

/* Packs of both vectors are aligned. */
static size_t padded_to_packs(size_t c)
{
    return (c + 3) / 4 * 4;
}

size_t ddp_cuda_batch_norm_scratch(const ddp_batch_norm_args_t *args)
{
    const size_t parts = args->running_mean == NULL ? ddp_columns_chunks(args->rows) * args->c : 0;

    return 2 * padded_to_packs(args->c) * sizeof(float) + 2 * parts * sizeof(double);
}

static ddp_status_t take_statistics(ddp_stream_t *stream, const ddp_batch_norm_args_t *args, statistics_t *s)
{
    const ddp_columns_t c      = ddp_columns_of(args->rows, args->c);
    const size_t        parts  = args->running_mean == NULL ? c.chunks * c.width : 0;
    const size_t        padded = padded_to_packs(c.width);
    cudaStream_t        native = ddp_cuda_stream(stream);
    ddp_status_t        status = DDP_OK;
    void               *memory = NULL;

    DDP_TRY(ddp_cuda_scratch(stream, DDP_CUDA_SCRATCH_OP, ddp_cuda_batch_norm_scratch(args), &memory));
    s->final_mean = static_cast<float *>(memory);
    s->scale      = s->final_mean + padded;
    s->mean       = reinterpret_cast<double *>(s->scale + padded);
    s->squares    = s->mean + parts;
    if (args->running_mean != NULL) {
        LAUNCH(given_kernel, ddp_cuda_blocks(stream, c.width), DDP_CUDA_THREADS, 0, native, *args, *s);
    } else {
        LAUNCH(chunk_kernel, ddp_columns_grid(&c), ddp_columns_block(), 0, native, *args, c, *s);
        LAUNCH(merge_kernel, ddp_columns_grid(&c).x, ddp_columns_block(), 0, native, *args, c, *s);
    }
    status = ddp_cuda_launched(stream, "batch norm");
out:
    return status;
}

/* A batch without rows: nothing to normalise, nothing to learn from. */
static ddp_status_t run_empty(ddp_stream_t *stream, const ddp_batch_norm_args_t *a)
{
    ddp_status_t status = DDP_OK;

    if (a->mean != NULL) {
        DDP_TRY(ddp_cuda_fill(stream, a->mean, a->c, 0.0F));
        DDP_TRY(ddp_cuda_fill(stream, a->rstd, a->c, 0.0F));
    }
    if (a->mean_sum != NULL && !a->accumulate_mean) {
        DDP_TRY(ddp_cuda_fill(stream, a->mean_sum, a->c, 0.0F));
    }
    if (a->var_sum != NULL && !a->accumulate_var) {
        DDP_TRY(ddp_cuda_fill(stream, a->var_sum, a->c, 0.0F));
    }
out:
    return status;
}

ddp_status_t ddp_cuda_batch_norm(ddp_stream_t *stream, const ddp_batch_norm_args_t *args)
{
    statistics_t s      = {NULL, NULL, NULL, NULL};
    ddp_status_t status = DDP_OK;

    if (args->rows == 0) {
        return run_empty(stream, args);
    }
    DDP_TRY(take_statistics(stream, args, &s));
    if (ddp_is_packed(args->c, args->x, args->residual, (const float *)args->y, args->beta)) {
        LAUNCH(apply_kernel<4>, ddp_cuda_blocks(stream, args->rows * (args->c / 4)), DDP_CUDA_THREADS, 0,
               ddp_cuda_stream(stream), *args, s);
    } else {
        LAUNCH(apply_kernel<1>, ddp_cuda_blocks(stream, args->rows * args->c), DDP_CUDA_THREADS, 0,
               ddp_cuda_stream(stream), *args, s);
    }
    status = ddp_cuda_launched(stream, "batch norm");
out:
    return status;
}
