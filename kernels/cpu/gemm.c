/*
 * Matrix product: packed panels, register blocks, fused epilogue.
 *
 * Loops, outer to inner: blocks of columns, blocks of rows and parts of k (A packed, in L2), panels of B (in
 * L1), panels of A. A panel of B is packed just before its first use and kept while other blocks of rows need
 * it. A block of rows goes through all of k, so that its part of C stays in L2; but where A is transposed a
 * part of k goes through all rows, since memory then gives whole rows of A.
 */
#include "kernels/cpu/activation.h"
#include "kernels/cpu/bf16_internal.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/scratch.h"

#define A_FLOATS ((GEMM_M_BLOCK / GEMM_ROWS) * (GEMM_A_PANEL > GEMM_AT_PANEL ? GEMM_A_PANEL : GEMM_AT_PANEL))
#define B_FLOATS (GEMM_N_BLOCK * GEMM_DEPTH > GEMM_B_KEPT ? GEMM_N_BLOCK * GEMM_DEPTH : GEMM_B_KEPT)

/* The part of the product that the inner loops work on. */
typedef struct block {
    const ddp_gemm_args_t *args;
    const ddp_gemm_form_t *form;
    size_t                 n0, n1; /* columns */
    size_t                 m0, m1; /* rows */
    size_t                 k0, k1;
    bool                   first, last; /* of k: beta and bias, activation */
    float                 *a, *b;       /* packed */
} block_t;

/* How many parts the rows and k are cut into; k has `lanes`. */
typedef struct parts {
    size_t m, k, lanes;
} parts_t;

DDP_INLINE size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

DDP_INLINE size_t lanes_of(const ddp_gemm_form_t *form, size_t k)
{
    return (k + form->k_per_lane - 1) / form->k_per_lane;
}

static const float *b_at(const block_t *block, size_t j0)
{
    const ddp_gemm_args_t *args = block->args;

    return args->transpose_b ? args->b + j0 * args->ldb + block->k0 : args->b + block->k0 * args->ldb + j0;
}

/* The share of panel p of A in fetching the next panel of B: spread over the panels it costs nothing and
 * hides the memory. */
DDP_INLINE void prefetch_b(const block_t *block, size_t j0, size_t p, size_t panels)
{
    const size_t columns = smaller(GEMM_COLUMNS, block->n1 - j0);
    const size_t depth   = block->k1 - block->k0;
    const size_t ldb     = block->args->ldb;
    const float *b       = b_at(block, j0);

    if (block->args->transpose_b) {
        for (size_t j = columns * p / panels; j < columns * (p + 1) / panels; j++) {
            for (size_t k = 0; k < depth; k += 16) {
                __builtin_prefetch(b + j * ldb + k, 0, 2);
            }
        }
    } else {
        for (size_t k = depth * p / panels; k < depth * (p + 1) / panels; k++) {
            for (size_t j = 0; j < columns; j += 16) {
                __builtin_prefetch(b + k * ldb + j, 0, 2);
            }
        }
    }
}

DDP_INLINE void activate_rows(ddp_act_t act, float *c, size_t ldc, size_t rows, size_t columns)
{
    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < columns; j += VL) {
            float *at = c + i * ldc + j;

            if (columns - j >= VL) {
                vstore(at, vact(act, vload(at)));
            } else {
                const vmask_t mask = vmask_first(columns - j);

                vstore_masked(at, vact(act, vload_masked(at, mask)), mask);
            }
        }
    }
}

/* A second pass, over a block that is still in cache. */
static void activate(const ddp_gemm_args_t *args, float *c, size_t rows, size_t columns)
{
    switch (args->act) {
    case DDP_ACT_RELU:
        activate_rows(DDP_ACT_RELU, c, args->ldc, rows, columns);
        break;
    case DDP_ACT_GELU:
        activate_rows(DDP_ACT_GELU, c, args->ldc, rows, columns);
        break;
    case DDP_ACT_GELU_TANH:
        activate_rows(DDP_ACT_GELU_TANH, c, args->ldc, rows, columns);
        break;
    case DDP_ACT_NONE:
        break;
    }
}

/* Columns j0 .. of all rows of the block. */
static void run_columns(const block_t *block, size_t j0, const float *b, size_t b_pitch)
{
    const ddp_gemm_args_t *args   = block->args;
    const size_t           rows   = block->m1 - block->m0;
    const size_t           panels = gemm_panels(rows);
    const size_t           panel  = args->transpose_a ? GEMM_AT_PANEL : GEMM_A_PANEL;
    const size_t           depth  = block->k1 - block->k0;
    const bool             gelu   = args->act == DDP_ACT_GELU || args->act == DDP_ACT_GELU_TANH;
    ddp_gemm_tile_t        tile   = {.b       = b,
                                     .b_pitch = b_pitch,
                                     .depth   = lanes_of(block->form, depth),
                                     .columns = smaller(GEMM_COLUMNS, block->n1 - j0),
                                     .ldc     = args->ldc,
                                     .alpha   = args->alpha,
                                     .beta    = block->first ? args->beta : 1.0F};

    if (block->last) {
        tile.bias = args->bias != NULL ? args->bias + j0 : NULL;
        tile.relu = args->act == DDP_ACT_RELU;
    }
    for (size_t p = 0; p < panels; p++) {
        const size_t first = gemm_panel_first(rows, panels, p);
        const size_t count = gemm_panel_first(rows, panels, p + 1) - first;
        const size_t at    = (block->m0 + first) * args->ldc + j0;

        tile.a = block->a + p * panel;
        tile.c = args->c + at;
        if (block->last && args->add != NULL) {
            tile.add = args->add + at;
        }
        if (block->last && args->pre_activation != NULL) {
            tile.pre = args->pre_activation + at;
        }
        if (block->m0 == 0 && j0 + GEMM_COLUMNS < block->n1 && tile.depth >= GEMM_DEEP) {
            prefetch_b(block, j0 + GEMM_COLUMNS, p, panels);
        }
        block->form->tile(&tile, count, args->transpose_a);
        if (block->last && gelu) {
            activate(args, tile.c, count, tile.columns);
        }
    }
}

/* One block of rows: pack A, then panel after panel of B. */
static void run_rows(const block_t *block)
{
    const ddp_gemm_args_t *args     = block->args;
    const size_t           depth    = block->k1 - block->k0;
    const size_t           lanes    = lanes_of(block->form, depth);
    const size_t           rows     = block->m1 - block->m0;
    const bool             keep     = args->m > GEMM_M_BLOCK;
    const bool             in_place = !args->transpose_b && block->form->k_per_lane == 1;

    if (depth > 0) {
        const float *a = args->transpose_a ? args->a + block->k0 * args->lda + block->m0
                                           : args->a + block->m0 * args->lda + block->k0;

        block->form->pack_a(args->transpose_a, a, args->lda, rows, depth, block->a);
    }
    for (size_t j0 = block->n0; j0 < block->n1; j0 += GEMM_COLUMNS) {
        const size_t columns = smaller(GEMM_COLUMNS, block->n1 - j0);
        float       *b       = block->b + (keep ? (j0 - block->n0) * lanes : 0);

        /* Copying pays when a panel is read more than once. */
        if (in_place && rows <= GEMM_ROWS && !keep && columns == GEMM_COLUMNS && depth > 0) {
            run_columns(block, j0, b_at(block, j0), args->ldb);
        } else {
            if (block->m0 == 0 && depth > 0) {
                block->form->pack_b(args->transpose_b, b_at(block, j0), args->ldb, columns, depth, b);
            }
            run_columns(block, j0, b, GEMM_COLUMNS);
        }
        ddp_cpu_progress_point();
    }
}

static const ddp_gemm_form_t *gemm_form(ddp_precision_t precision)
{
    static const ddp_gemm_form_t floats = {1, DDP_ISA_NAME(gemm_pack_a), DDP_ISA_NAME(gemm_pack_b),
                                           DDP_ISA_NAME(gemm_tile)};

    return precision == DDP_PRECISION_FLOAT32 ? &floats : bf16_pieces(precision)->gemm;
}

size_t DDP_ISA_NAME(gemm_scratch_bytes)(void)
{
    return (A_FLOATS + B_FLOATS) * sizeof(float);
}

/* Does a block of rows go through all of k before the next one? */
static bool is_rows_first(const ddp_gemm_args_t *args)
{
    return !args->transpose_a && args->m > GEMM_M_BLOCK && args->k <= GEMM_B_KEPT / 256;
}

static size_t columns_of_block(const ddp_gemm_args_t *args)
{
    return is_rows_first(args)
               ? smaller(GEMM_N_BLOCK, GEMM_B_KEPT / (args->k + 1) / GEMM_COLUMNS * GEMM_COLUMNS)
               : GEMM_N_BLOCK;
}

/* Part ik of k and im of the rows. `b` is where packed B begins. */
static void run_part(block_t *block, const parts_t *parts, size_t im, size_t ik, float *b)
{
    const ddp_gemm_args_t *args    = block->args;
    const size_t           columns = (block->n1 - block->n0 + GEMM_COLUMNS - 1) / GEMM_COLUMNS * GEMM_COLUMNS;

    block->m0    = args->m * im / parts->m;
    block->m1    = args->m * (im + 1) / parts->m;
    block->k0    = parts->lanes * ik / parts->k * block->form->k_per_lane;
    block->k1    = smaller(parts->lanes * (ik + 1) / parts->k * block->form->k_per_lane, args->k);
    block->first = ik == 0;
    block->last  = ik == parts->k - 1;
    block->b     = b + (is_rows_first(args) ? columns * lanes_of(block->form, block->k0) : 0);
    run_rows(block);
}

/* All rows and all of k, in the order that the first comment explains. */
static void run_block(block_t *block, const parts_t *parts, float *b)
{
    if (is_rows_first(block->args)) {
        for (size_t im = 0; im < parts->m; im++) {
            for (size_t ik = 0; ik < parts->k; ik++) {
                run_part(block, parts, im, ik, b);
            }
        }
        return;
    }
    for (size_t ik = 0; ik < parts->k; ik++) {
        for (size_t im = 0; im < parts->m; im++) {
            run_part(block, parts, im, ik, b);
        }
    }
}

ddp_status_t DDP_ISA_NAME(gemm)(const ddp_gemm_args_t *args)
{
    const ddp_gemm_form_t *form    = gemm_form(args->precision);
    const size_t           columns = columns_of_block(args);
    const size_t           lanes   = lanes_of(form, args->k);
    const parts_t          parts   = {.m     = (args->m + GEMM_M_BLOCK - 1) / GEMM_M_BLOCK,
                                      .k     = lanes == 0 ? 1 : (lanes + GEMM_DEPTH - 1) / GEMM_DEPTH,
                                      .lanes = lanes};
    ddp_status_t           status  = DDP_OK;
    block_t                block   = {.args = args, .form = form};
    void                  *scratch = NULL;

    if (args->m == 0 || args->n == 0) {
        return DDP_OK;
    }
    if (DDP_ISA_NAME(gemm_dot_fits)(args)) {
        DDP_ISA_NAME(gemm_dot)(args);
        activate(args, args->c, args->m, args->n);
        return DDP_OK;
    }
    status = ddp_cpu_scratch_get(DDP_ISA_NAME(gemm_scratch_bytes)(), &scratch);
    if (status != DDP_OK) {
        return status;
    }
    block.a = scratch;
    for (block.n0 = 0; block.n0 < args->n; block.n0 = block.n1) {
        block.n1 = smaller(block.n0 + columns, args->n);
        run_block(&block, &parts, block.a + A_FLOATS);
    }
    ddp_cpu_scratch_put();
    return status;
}
