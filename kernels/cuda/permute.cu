/* Images of pixels x channels turned over, [n, rows, columns] -> [n, columns, rows], in squares through
 * shared memory, so that reads and writes are whole lines. 8 bytes an element (12 where it adds); bound by
 * memory. */
#include "kernels/cuda/launch.h"
#include "kernels/cuda/ops.h"

#define TILE 32
/* Rows that a block of threads moves at once. */
#define LINES (DDP_CUDA_THREADS / TILE)

typedef struct turn {
    const float *x;
    float       *y;
    size_t       rows, columns;          /* of x */
    size_t       tiles_down, tiles_wide; /* of an image */
    size_t       tiles;                  /* of all */
    bool         accumulate;
} turn_t;

static __global__ void turn_kernel(turn_t t)
{
    __shared__ float tile[TILE][TILE + 1]; /* one more: a column of it lies in all banks */
    const size_t     line = threadIdx.x / TILE;
    const size_t     lane = threadIdx.x % TILE;

    for (size_t k = blockIdx.x; k < t.tiles; k += gridDim.x) {
        const size_t image = k / (t.tiles_down * t.tiles_wide) * t.rows * t.columns;
        const size_t row   = k / t.tiles_wide % t.tiles_down * TILE;
        const size_t col   = k % t.tiles_wide * TILE;

        for (size_t i = line; i < TILE; i += LINES) {
            if (row + i < t.rows && col + lane < t.columns) {
                tile[i][lane] = t.x[image + (row + i) * t.columns + col + lane];
            }
        }
        __syncthreads();
        for (size_t j = line; j < TILE; j += LINES) {
            if (col + j < t.columns && row + lane < t.rows) {
                float *to = t.y + image + (col + j) * t.rows + row + lane;

                *to = t.accumulate ? *to + tile[lane][j] : tile[lane][j];
            }
        }
        __syncthreads();
    }
}

ddp_status_t ddp_cuda_nhwc_to_nchw(ddp_stream_t *stream, const ddp_permute_args_t *args)
{
    const size_t pixels = args->h * args->w;
    turn_t       turn   = {};

    turn.x          = args->x;
    turn.y          = args->y;
    turn.rows       = args->inverse ? args->c : pixels;
    turn.columns    = args->inverse ? pixels : args->c;
    turn.tiles_down = (turn.rows + TILE - 1) / TILE;
    turn.tiles_wide = (turn.columns + TILE - 1) / TILE;
    turn.tiles      = args->n * turn.tiles_down * turn.tiles_wide;
    turn.accumulate = args->accumulate;
    if (turn.tiles > 0) {
        LAUNCH(turn_kernel, ddp_cuda_blocks(stream, turn.tiles * DDP_CUDA_THREADS), DDP_CUDA_THREADS, 0,
               ddp_cuda_stream(stream), turn);
    }
    return ddp_cuda_launched(stream, "nhwc_to_nchw");
}
