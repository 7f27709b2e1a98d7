/* The gradient of a bias: sums over rows, in one order. Tall matrices are cut into parts, added up
 * afterwards. */
#include "base/error.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/scratch.h"

#define COLUMNS     32 /* of a block, next to each other */
#define ROWS        (DDP_CUDA_THREADS / COLUMNS)
#define LEAST_PART  64 /* rows */
#define MANY_BLOCKS 512

/* Where sums go: to db, or to a row for each part. */
struct sums {
    float *db, *part; /* part NULL: db */
    size_t n;
    bool   accumulate;

    __device__ void put(size_t p, size_t column, float sum) const
    {
        if (part != NULL) {
            part[p * n + column] = sum;
        } else {
            db[column] = accumulate ? db[column] + sum : sum;
        }
    }
};

/* Block (part, columns): the sums of `length` rows. */
static __global__ void __launch_bounds__(DDP_CUDA_THREADS)
    bias_grad_kernel(const float *dy, size_t m, size_t length, unsigned across, sums out)
{
    __shared__ float strip[ROWS][COLUMNS];
    const unsigned   lane   = threadIdx.x % COLUMNS;
    const unsigned   row    = threadIdx.x / COLUMNS;
    const size_t     column = (size_t)(blockIdx.x % across) * COLUMNS + lane;
    const size_t     part   = blockIdx.x / across;
    const size_t     end    = (part + 1) * length < m ? (part + 1) * length : m;
    float            sum    = 0.0F;

    if (column < out.n) {
        for (size_t i = part * length + row; i < end; i += ROWS) {
            sum += dy[i * out.n + column];
        }
    }
    strip[row][lane] = sum;
    __syncthreads();
    if (row == 0 && column < out.n) {
        for (int r = 1; r < ROWS; r++) {
            sum += strip[r][lane];
        }
        out.put(part, column, sum);
    }
}

static __global__ void add_parts_kernel(const float *part, size_t parts, sums out)
{
    DDP_CUDA_EACH(column, out.n)
    {
        float sum = 0.0F;

        for (size_t p = 0; p < parts; p++) {
            sum += part[p * out.n + column];
        }
        out.put(0, column, sum);
    }
}

/* Into how many the rows are cut. */
static size_t parts_of(const ddp_bias_grad_args_t *args)
{
    const size_t across = (args->n + COLUMNS - 1) / COLUMNS;
    const size_t wanted = across > 0 && across < MANY_BLOCKS ? MANY_BLOCKS / across : 1;
    const size_t most   = args->m / LEAST_PART > 0 ? args->m / LEAST_PART : 1;

    return wanted < most ? wanted : most;
}

size_t ddp_cuda_bias_grad_scratch(const ddp_bias_grad_args_t *args)
{
    const size_t parts = parts_of(args);

    return parts > 1 ? parts * args->n * sizeof(float) : 0;
}

ddp_status_t ddp_cuda_bias_grad(ddp_stream_t *stream, const ddp_bias_grad_args_t *args)
{
    const size_t       across = (args->n + COLUMNS - 1) / COLUMNS;
    const size_t       parts  = parts_of(args);
    const size_t       length = (args->m + parts - 1) / parts;
    const cudaStream_t native = ddp_cuda_stream(stream);
    const sums         whole  = {args->db, NULL, args->n, args->accumulate};
    sums               cut    = whole;
    void              *memory = NULL;

    if (args->n == 0) {
        return DDP_OK;
    }
    if (parts > 1) {
        const ddp_status_t status =
            ddp_cuda_scratch(stream, DDP_CUDA_SCRATCH_OP, ddp_cuda_bias_grad_scratch(args), &memory);

        if (status != DDP_OK) {
            return status;
        }
        cut.part = (float *)memory;
    }
    LAUNCH(bias_grad_kernel, (unsigned)(across * parts), DDP_CUDA_THREADS, 0, native, args->dy, args->m,
           length, (unsigned)across, cut);
    if (parts > 1) {
        LAUNCH(add_parts_kernel, ddp_cuda_blocks(stream, args->n), DDP_CUDA_THREADS, 0, native,
               (const float *)memory, parts, whole);
    }
    return ddp_cuda_launched(stream, "bias_grad");
}
