/**
 * @file Sums over the rows of matrices, column by column, in two passes whose order depends on the shape
 * alone; for .cu files. Private.
 *
 * The first pass cuts the rows into chunks: a block has 32 columns (a cache line of each row) and 8 rows at a
 * time. The second adds a column's chunks up in float64. Bound by reading what is summed once; the partial
 * sums are at most 1/64 of that.
 */
#ifndef DDP_CUDA_COLUMNS_H_
#define DDP_CUDA_COLUMNS_H_

#include "kernels/cuda/reduce.h"
#include "kernels/cuda/scratch.h"

#define DDP_COLUMNS_ACROSS 32 /* columns of a block */
#define DDP_COLUMNS_DOWN   8  /* rows that it reads at a time */

/** How rows are cut. */
typedef struct ddp_columns {
    size_t rows, width;
    size_t step;   /* rows of a chunk */
    size_t chunks; /* [chunks][sums][width] partial sums */
} ddp_columns_t;

#define DDP_COLUMNS_LEAST ((size_t)64)  /* rows of a chunk */
#define DDP_COLUMNS_MOST  ((size_t)512) /* chunks */

/** Chunks of so many rows at most, and of fewer rows. Host. */
static inline size_t ddp_columns_chunks(size_t rows)
{
    const size_t chunks = (rows + DDP_COLUMNS_LEAST - 1) / DDP_COLUMNS_LEAST;

    return chunks < DDP_COLUMNS_MOST ? chunks : DDP_COLUMNS_MOST;
}

/** Chunks are many enough to fill a device, and their sums few enough to cost little. Host. */
static inline ddp_columns_t ddp_columns_of(size_t rows, size_t width)
{
    const size_t even = (rows + DDP_COLUMNS_MOST - 1) / DDP_COLUMNS_MOST;
    const size_t step = even > DDP_COLUMNS_LEAST ? even : DDP_COLUMNS_LEAST;

    return (ddp_columns_t){rows, width, step, (rows + step - 1) / step};
}

static inline dim3 ddp_columns_grid(const ddp_columns_t *c)
{
    return dim3((unsigned)((c->width + DDP_COLUMNS_ACROSS - 1) / DDP_COLUMNS_ACROSS), (unsigned)c->chunks);
}

static inline dim3 ddp_columns_block(void)
{
    return dim3(DDP_COLUMNS_ACROSS, DDP_COLUMNS_DOWN);
}

/** The sum over the block's 8 rows of threads, for each of its columns; in the first row. `room` is shared
 * and free again after the next barrier. */
static __device__ inline float ddp_columns_down(float value, float (*room)[DDP_COLUMNS_ACROSS])
{
    float sum = 0.0F;

    __syncthreads(); /* an earlier sum may still be read */
    room[threadIdx.y][threadIdx.x] = value;
    __syncthreads();
    if (threadIdx.y == 0) {
        for (int i = 0; i < DDP_COLUMNS_DOWN; i++) {
            sum += room[i][threadIdx.x];
        }
    }
    return sum;
}

/**
 * part[chunk][k][j] = sum over the chunk's rows of term k of (row, j).
 *
 * F has `enum { sums = n }`, `void column(size_t j)`, called first, and `void add(size_t row, size_t j, float
 * sum[n])`. 256 threads, 1 KiB of shared memory.
 */
template <class F> static __global__ void ddp_columns_kernel(F f, ddp_columns_t c, float *part)
{
    __shared__ float room[DDP_COLUMNS_DOWN][DDP_COLUMNS_ACROSS];
    const size_t     j            = blockIdx.x * (size_t)DDP_COLUMNS_ACROSS + threadIdx.x;
    const size_t     first        = blockIdx.y * c.step;
    const size_t     last         = c.rows - first < c.step ? c.rows : first + c.step;
    float            sum[F::sums] = {};

    if (j < c.width) {
        f.column(j);
        for (size_t i = first + threadIdx.y; i < last; i += DDP_COLUMNS_DOWN) {
            f.add(i, j, sum);
        }
    }
    for (int k = 0; k < F::sums; k++) {
        const float total = ddp_columns_down(sum[k], room);

        if (threadIdx.y == 0 && j < c.width) {
            part[(blockIdx.y * (size_t)F::sums + k) * c.width + j] = total;
        }
    }
}

/** Sum number `k` of `sums` of column j over all chunks, in order. */
static __device__ inline double ddp_columns_total(const ddp_columns_t &c, const float *part, int k, int sums,
                                                  size_t j)
{
    double total = 0.0;

    for (size_t chunk = 0; chunk < c.chunks; chunk++) {
        total += (double)part[(chunk * (size_t)sums + (size_t)k) * c.width + j];
    }
    return total;
}

#endif
