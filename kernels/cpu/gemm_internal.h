/**
 * @file Pieces of the matrix product: a register block, and packing. Private.
 *
 * A is packed in panels of at most GEMM_ROWS rows, B in panels of GEMM_COLUMNS columns; both sides are cut
 * along k into parts of at most GEMM_DEPTH lanes. A lane is one float32, or a pair of bfloat16 numbers next
 * to each other in k (kernels/cpu/bf16.h). All sizes are compile-time constants, and every element of C is
 * summed in the order of k whatever block it falls in.
 */
#ifndef DDP_GEMM_INTERNAL_H_
#define DDP_GEMM_INTERNAL_H_

#include <stdbool.h>
#include <stddef.h>

#include "kernels/cpu/vec.h"
#include "kernels/ops.h"

#define GEMM_VECTORS 2 /* of a register block's columns */
#define GEMM_COLUMNS ((size_t)GEMM_VECTORS * VL)
#if VL == 16
#define GEMM_ROWS 14 /* 28 sums, 2 of B, 1 of A: 31 of 32 registers */
#else
#define GEMM_ROWS 6 /* 12 sums, 2 of B, 1 of A: 15 of 16 registers */
#endif
#define GEMM_DEPTH 256
/* From this depth on fetching ahead pays; before, it is but more instructions. */
#define GEMM_DEEP 100
/* Floats from row to row in a panel of row-major A: constant, so that one register addresses all rows, and
 * not a power of two, so that rows do not fall on one cache set. */
#define GEMM_A_PITCH (GEMM_DEPTH + 16)
/* Floats from k to k in a panel of transposed A. */
#define GEMM_AT_PITCH (VL == 16 ? 16 : 8)
/* Floats of a panel; panels of transposed A are filled side by side, hence no power of two either. */
#define GEMM_A_PANEL  (GEMM_ROWS * (size_t)GEMM_A_PITCH)
#define GEMM_AT_PANEL ((size_t)GEMM_DEPTH * GEMM_AT_PITCH + 32)
/* Rows of C for which A stays packed in the L2 cache, and columns for which B stays packed. */
#define GEMM_M_BLOCK (VL == 16 ? (size_t)19 * GEMM_ROWS : (size_t)43 * GEMM_ROWS)
#define GEMM_N_BLOCK ((size_t)2048)
/* Floats of B that stay packed over all of k, a share of the L3 cache; at least 256 columns of them. */
#define GEMM_B_KEPT ((size_t)1 << 21)

/** c[rows, columns] = alpha * a b + beta * c + bias + add, and relu of that. */
typedef struct ddp_gemm_tile {
    const float *a; /* packed panel */
    const float *b; /* rows of `columns` floats, padded to whole vectors unless b_pitch says otherwise */
    size_t       b_pitch;
    size_t       depth;
    size_t       columns; /* 1 .. GEMM_COLUMNS */
    float       *c;
    size_t       ldc;
    float        alpha, beta; /* beta 0: c is not read */
    const float *bias;        /* [columns] or NULL */
    const float *add;         /* as c, or NULL */
    float       *pre;         /* as c, before relu; or NULL */
    bool         relu;
} ddp_gemm_tile_t;

/** @param [in] rows  1 .. GEMM_ROWS */
void DDP_ISA_NAME(gemm_tile)(const ddp_gemm_tile_t *tile, size_t rows, bool a_transposed);

/** Rows first .. first + rows - 1 of op(A), `depth` of k, into panels: even parts of the rows. `a` points to
 * k = 0 of the part. */
void DDP_ISA_NAME(gemm_pack_a)(bool transposed, const float *a, size_t lda, size_t rows, size_t depth,
                               float *packed);

/** `columns` <= GEMM_COLUMNS columns of op(B) into [depth][GEMM_COLUMNS], zeros behind the last. */
void DDP_ISA_NAME(gemm_pack_b)(bool transposed, const float *b, size_t ldb, size_t columns, size_t depth,
                               float *packed);

/** How numbers are packed and multiplied. `depth` counts k in packing, lanes in a tile. */
typedef struct ddp_gemm_form {
    size_t k_per_lane;
    void (*pack_a)(bool transposed, const float *a, size_t lda, size_t rows, size_t depth, float *packed);
    void (*pack_b)(bool transposed, const float *b, size_t ldb, size_t columns, size_t depth, float *packed);
    void (*tile)(const ddp_gemm_tile_t *tile, size_t rows, bool a_transposed);
} ddp_gemm_form_t;

/* Rows on the short side up to which dot products beat packing. */
#define GEMM_DOT_MOST 16

/** op(B) is transposed and one side is short: gemm_dot() does it, all but the activation. */
bool DDP_ISA_NAME(gemm_dot_fits)(const ddp_gemm_args_t *args);
void DDP_ISA_NAME(gemm_dot)(const ddp_gemm_args_t *args);

/* Panels that `rows` rows are cut into, and the first row of panel i: even, so that there is no thin last
 * one. */
DDP_INLINE size_t gemm_panels(size_t rows)
{
    return (rows + GEMM_ROWS - 1) / GEMM_ROWS;
}

DDP_INLINE size_t gemm_panel_first(size_t rows, size_t panels, size_t i)
{
    return rows * i / panels;
}

#endif
