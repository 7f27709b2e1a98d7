/**
 * @file The register block of the matrix product: one function per number of rows and vectors. Private.
 *
 * Included once by gemm_kernel.c, for float32, and once by bf16_gemm.c, for pairs of bfloat16: there
 * TILE_PAIRS is true, a and b of a tile hold pairs, and its depth counts them.
 */
#ifndef DDP_GEMM_TILE_H_
#define DDP_GEMM_TILE_H_

#include "kernels/cpu/activation.h"
#include "kernels/cpu/bf16.h"
#include "kernels/cpu/gemm_internal.h"

/* What happens to the finished sums of one row. `mask` is for the last vector, if it is not a whole one. */
DDP_INLINE void finish_row(const ddp_gemm_tile_t *t, const vf_t *sum, const vf_t *bias, size_t row,
                           const int vectors, bool whole, vmask_t mask)
{
    float *c = t->c + row * t->ldc;

    DDP_UNROLL
    for (int j = 0; j < vectors; j++) {
        const bool masked = j == vectors - 1 && !whole;
        vf_t       x      = vset1(t->alpha) * sum[j];

        if (t->beta != 0.0F) {
            x += vset1(t->beta) * (masked ? vload_masked(c + j * VL, mask) : vload(c + j * VL));
        }
        if (t->bias != NULL) {
            x += bias[j];
        }
        if (t->add != NULL) {
            const float *add = t->add + row * t->ldc + j * VL;

            x += masked ? vload_masked(add, mask) : vload(add);
        }
        if (t->pre != NULL) {
            float *pre = t->pre + row * t->ldc + j * VL;

            if (masked) {
                vstore_masked(pre, x, mask);
            } else {
                vstore(pre, x);
            }
        }
        if (t->relu) {
            x = vrelu(x);
        }
        if (masked) {
            vstore_masked(c + j * VL, x, mask);
        } else {
            vstore(c + j * VL, x);
        }
    }
}

/* Sums lie in sum[row * vectors + vector]. */
DDP_INLINE void tile_run(const int rows, const int vectors, const bool transposed, const ddp_gemm_tile_t *t)
{
    const size_t  last   = t->columns - (size_t)(vectors - 1) * VL;
    const bool    whole  = last == VL;
    const vmask_t mask   = vmask_first(last);
    const float  *a      = t->a;
    const float  *b      = t->b;
    const int     passes = TILE_PAIRS ? BF16_PASSES : 1;
    uint32_t      mode   = 0;
    vf_t          sum[GEMM_ROWS * GEMM_VECTORS];
    vf_t          bias[GEMM_VECTORS];

    DDP_UNROLL
    for (int i = 0; i < rows; i++) {
        if (t->depth >= GEMM_DEEP) {
            __builtin_prefetch(t->c + (size_t)i * t->ldc, 1);
            __builtin_prefetch(t->c + (size_t)i * t->ldc + t->columns - 1, 1);
            if (t->add != NULL) {
                __builtin_prefetch(t->add + (size_t)i * t->ldc, 0);
                __builtin_prefetch(t->add + (size_t)i * t->ldc + t->columns - 1, 0);
            }
            if (t->pre != NULL) {
                __builtin_prefetch(t->pre + (size_t)i * t->ldc, 1);
                __builtin_prefetch(t->pre + (size_t)i * t->ldc + t->columns - 1, 1);
            }
        }
        DDP_UNROLL
        for (int j = 0; j < vectors; j++) {
            sum[i * vectors + j] = vset1(0.0F);
        }
    }
    if (TILE_PAIRS) {
        mode = bf16_begin(sum, rows * vectors);
    }
    DDP_UNROLL_BY(2)
    for (size_t k = t->depth; k > 0; k--) {
        vf_t row[GEMM_VECTORS];

        DDP_UNROLL
        for (int j = 0; j < vectors; j++) {
            row[j] = vload(b + j * VL);
        }
        DDP_UNROLL
        for (int pass = 0; pass < passes; pass++) {
            vf_t part[GEMM_VECTORS];

            DDP_UNROLL
            for (int j = 0; j < vectors; j++) {
                part[j] = TILE_PAIRS ? bf16_part(row[j], pass) : row[j];
            }
            DDP_UNROLL
            for (int i = 0; i < rows; i++) {
                vf_t x = vset1(transposed ? a[i] : a[i * GEMM_A_PITCH]);

                DDP_IN_REGISTER(x);
                x = TILE_PAIRS ? bf16_part(x, pass) : x;
                DDP_UNROLL
                for (int j = 0; j < vectors; j++) {
                    vf_t *at = &sum[i * vectors + j];

                    *at = TILE_PAIRS ? bf16_add(*at, x, part[j]) : *at + x * part[j];
                }
            }
        }
        a += transposed ? GEMM_AT_PITCH : 1;
        b += t->b_pitch;
    }
    if (TILE_PAIRS) {
        bf16_end(sum, rows * vectors, mode);
    }
    DDP_UNROLL
    for (int j = 0; j < vectors; j++) {
        const bool masked = j == vectors - 1 && !whole;

        bias[j] = vset1(0.0F);
        if (t->bias != NULL) {
            bias[j] = masked ? vload_masked(t->bias + j * VL, mask) : vload(t->bias + j * VL);
        }
    }
    /* Nothing but stores where that is all: the usual case of short products. */
    if (whole && t->bias == NULL && t->beta == 0.0F && t->alpha == 1.0F && t->add == NULL && t->pre == NULL &&
        !t->relu) {
        DDP_UNROLL
        for (int i = 0; i < rows; i++) {
            DDP_UNROLL
            for (int j = 0; j < vectors; j++) {
                vstore(t->c + (size_t)i * t->ldc + j * VL, sum[i * vectors + j]);
            }
        }
        return;
    }
    DDP_UNROLL
    for (int i = 0; i < rows; i++) {
        finish_row(t, sum + i * vectors, bias, (size_t)i, vectors, whole, mask);
    }
}

typedef void tile_fn_t(const ddp_gemm_tile_t *tile);

#define TILE(rows, vectors, transposed)                                                                      \
    static void tile_##rows##_##vectors##_##transposed(const ddp_gemm_tile_t *t)                             \
    {                                                                                                        \
        tile_run(rows, vectors, transposed, t);                                                              \
    }
#define TILES(rows) TILE(rows, 1, 0) TILE(rows, 1, 1) TILE(rows, 2, 0) TILE(rows, 2, 1)
#define NAMES(rows)                                                                                          \
    {                                                                                                        \
        {tile_##rows##_1_0, tile_##rows##_1_1}, {tile_##rows##_2_0, tile_##rows##_2_1},                      \
    }

TILES(1)
TILES(2)
TILES(3)
TILES(4)
TILES(5)
TILES(6)
#if GEMM_ROWS > 6
TILES(7)
TILES(8)
TILES(9)
TILES(10)
TILES(11)
TILES(12)
TILES(13)
TILES(14)
#endif

/* [rows - 1][vectors - 1][transposed] */
static tile_fn_t *const tiles[GEMM_ROWS][GEMM_VECTORS][2] = {
    NAMES(1), NAMES(2), NAMES(3), NAMES(4),  NAMES(5),  NAMES(6),
#if GEMM_ROWS > 6
    NAMES(7), NAMES(8), NAMES(9), NAMES(10), NAMES(11), NAMES(12), NAMES(13), NAMES(14),
#endif
};

#endif
