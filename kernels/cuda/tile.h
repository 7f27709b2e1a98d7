/**
 * @file Sums of products, out[i, j] = sum over l of a(i, l) b(j, l): what the plain kernels of products and
 * convolutions are made of; for .cu files. Private.
 *
 * A block of threads computes a square of the result from panels of both operands in shared memory, 4 x 4
 * sums a thread. Every sum adds up in order of l, so results do not depend on the schedule.
 *
 * An operand is a struct with
 *   line_t, line(i)      what is known of line i (a row of a, a column of b), or of i past the last line
 *   depth_t, depth(l)    what is known of the index of the sum
 *   at(line, depth)      the element, rounded; called for lines and depths that exist only
 *   is_deep              whether neighbours in memory are neighbours in l (else in i)
 */
#ifndef DDP_CUDA_TILE_H_
#define DDP_CUDA_TILE_H_

#include "kernels/cuda/launch.h"

#define DDP_TILE         64 /* rows and columns of a block's part of the result */
#define DDP_TILE_DEPTH   16 /* of a panel */
#define DDP_TILE_THREADS 256
#define DDP_TILE_OWN     4                         /* rows and columns of a thread's part */
#define DDP_TILE_ACROSS  (DDP_TILE / DDP_TILE_OWN) /* threads */
#define DDP_TILE_PITCH   (DDP_TILE + 4)            /* fewer threads meet in one bank */
#define DDP_TILE_LOADS   (DDP_TILE * DDP_TILE_DEPTH / DDP_TILE_THREADS)

/** How many tiles cover `count` rows or columns. */
static inline size_t ddp_tiles(size_t count)
{
    return (count + DDP_TILE - 1) / DDP_TILE;
}

typedef float ddp_panel_t[DDP_TILE_DEPTH][DDP_TILE_PITCH];

/* What one thread brings of an operand into shared memory: DDP_TILE_LOADS elements of each panel. */
template <class Operand> struct ddp_loader {
    static const int lines = Operand::is_deep ? DDP_TILE_LOADS : 1; /* of them, on so many lines */
    /* A line after another, and a depth after another, are so far apart. */
    static const int line_step  = DDP_TILE_THREADS / DDP_TILE_DEPTH;
    static const int depth_step = DDP_TILE_THREADS / DDP_TILE;

    typename Operand::line_t line[lines];
    unsigned                 at_line, at_depth; /* in the panel */
    size_t                   first, count;      /* lines: of the tile, and of all there are */

    __device__ ddp_loader(const Operand &operand, size_t first_line, size_t line_count)
        : at_line(Operand::is_deep ? threadIdx.x / DDP_TILE_DEPTH : threadIdx.x % DDP_TILE),
          at_depth(Operand::is_deep ? threadIdx.x % DDP_TILE_DEPTH : threadIdx.x / DDP_TILE),
          first(first_line), count(line_count)
    {
        for (int i = 0; i < lines; i++) {
            line[i] = operand.line(first + at_line + (unsigned)(i * line_step));
        }
    }

    /* The panel of depths l0 .. end - 1; zeros where there is nothing. */
    __device__ void load(const Operand &operand, size_t l0, size_t end, ddp_panel_t panel) const
    {
        if (Operand::is_deep) {
            const size_t                    l     = l0 + at_depth;
            const typename Operand::depth_t depth = operand.depth(l < end ? l : l0);

            for (int i = 0; i < lines; i++) {
                const unsigned to   = at_line + (unsigned)(i * line_step);
                const bool     here = l < end && first + to < count;

                panel[at_depth][to] = here ? operand.at(line[i], depth) : 0.0F;
            }
        } else {
            for (int i = 0; i < DDP_TILE_LOADS; i++) {
                const unsigned to   = at_depth + (unsigned)(i * depth_step);
                const size_t   l    = l0 + to;
                const bool     here = l < end && first + at_line < count;

                panel[to][at_line] = here ? operand.at(line[0], operand.depth(l)) : 0.0F;
            }
        }
    }
};

/* One panel's share of this thread's sums. */
static __device__ inline void ddp_tile_add(const ddp_panel_t a, const ddp_panel_t b,
                                           float sum[DDP_TILE_OWN][DDP_TILE_OWN])
{
    const unsigned row    = threadIdx.x / DDP_TILE_ACROSS * DDP_TILE_OWN;
    const unsigned column = threadIdx.x % DDP_TILE_ACROSS * DDP_TILE_OWN;

    for (int l = 0; l < DDP_TILE_DEPTH; l++) {
        for (int i = 0; i < DDP_TILE_OWN; i++) {
            for (int j = 0; j < DDP_TILE_OWN; j++) {
                sum[i][j] = fmaf(a[l][row + i], b[l][column + j], sum[i][j]);
            }
        }
    }
}

/**
 * The tile whose first row is i0 and first column j0, of a result of rows x columns; the sums are over l = l0
 * .. end - 1 and go to out.put(i, j, sum). All DDP_TILE_THREADS threads of the block call it, once in a
 * kernel.
 */
template <class A, class B, class Out>
static __device__ inline void ddp_tile(const A &a, const B &b, const Out &out, size_t i0, size_t rows,
                                       size_t j0, size_t columns, size_t l0, size_t end)
{
    __shared__ ddp_panel_t a_panel;
    __shared__ ddp_panel_t b_panel;
    const ddp_loader<A>    a_loader(a, i0, rows);
    const ddp_loader<B>    b_loader(b, j0, columns);
    const size_t           i = i0 + threadIdx.x / DDP_TILE_ACROSS * DDP_TILE_OWN;
    const size_t           j = j0 + threadIdx.x % DDP_TILE_ACROSS * DDP_TILE_OWN;
    float                  sum[DDP_TILE_OWN][DDP_TILE_OWN] = {{0.0F}};

    for (; l0 < end; l0 += DDP_TILE_DEPTH) {
        a_loader.load(a, l0, end, a_panel);
        b_loader.load(b, l0, end, b_panel);
        __syncthreads();
        ddp_tile_add(a_panel, b_panel, sum);
        __syncthreads(); /* all have read it before the next one comes */
    }
    for (int r = 0; r < DDP_TILE_OWN; r++) {
        for (int c = 0; c < DDP_TILE_OWN; c++) {
            if (i + r < rows && j + c < columns) {
                out.put(i + r, j + c, sum[r][c]);
            }
        }
    }
}

#endif
