#include "kernels/cpu/kernels.h"
#include "kernels/cpu/table.h"
#include "kernels/cpu/vec.h"

/* Side of the squares that are turned over at once: both stay in the first-level cache. */
#define TILE 32

/* y[j * rows + i] (+)= x[i * columns + j] for one square */
static void turn_tile(const float *x, float *y, size_t rows, size_t columns, size_t tile_rows,
                      size_t tile_columns, bool accumulate)
{
    for (size_t j = 0; j < tile_columns; j++) {
        float *to = y + j * rows;

        if (accumulate) {
            for (size_t i = 0; i < tile_rows; i++) {
                to[i] += x[i * columns + j];
            }
        } else {
            for (size_t i = 0; i < tile_rows; i++) {
                to[i] = x[i * columns + j];
            }
        }
    }
}

/* One image: x is [rows, columns], y is [columns, rows]. */
static void turn(const float *x, float *y, size_t rows, size_t columns, bool accumulate)
{
    for (size_t i = 0; i < rows; i += TILE) {
        const size_t tile_rows = rows - i < TILE ? rows - i : TILE;

        for (size_t j = 0; j < columns; j += TILE) {
            const size_t tile_columns = columns - j < TILE ? columns - j : TILE;

            turn_tile(x + i * columns + j, y + j * rows + i, rows, columns, tile_rows, tile_columns,
                      accumulate);
        }
    }
}

ddp_status_t DDP_ISA_NAME(nhwc_to_nchw)(const ddp_permute_args_t *args)
{
    const size_t pixels  = args->h * args->w;
    const size_t rows    = args->inverse ? args->c : pixels;
    const size_t columns = args->inverse ? pixels : args->c;

    for (size_t n = 0; n < args->n; n++) {
        turn(args->x + n * rows * columns, args->y + n * rows * columns, rows, columns, args->accumulate);
        ddp_cpu_progress_point();
    }
    return DDP_OK;
}
