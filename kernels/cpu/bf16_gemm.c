/* The matrix product's pieces for pairs of bfloat16: packing rounds, panels have the forms of
 * gemm_internal.h. */
#include "kernels/cpu/bf16_internal.h"
#include "kernels/cpu/transpose.h"

#define TILE_PAIRS true
#include "kernels/cpu/gemm_tile.h"

#define TRANSPOSED_STEP 8 /* as for float32 */

static void tile(const ddp_gemm_tile_t *t, size_t rows, bool a_transposed)
{
    tiles[rows - 1][(t->columns - 1) / VL][a_transposed](t);
}

static void pack_a_rows(const float *a, size_t lda, size_t rows, size_t depth, float *packed)
{
    const size_t panels = gemm_panels(rows);

    for (size_t p = 0; p < panels; p++) {
        const size_t first = gemm_panel_first(rows, panels, p);
        const size_t count = gemm_panel_first(rows, panels, p + 1) - first;

        for (size_t i = 0; i < count; i++) {
            const float *from = a + (first + i) * lda;
            float       *to   = packed + p * GEMM_A_PANEL + i * GEMM_A_PITCH;
            size_t       k    = 0;

            for (; k + 2 * (size_t)VL <= depth; k += 2 * (size_t)VL) {
                vstore(to + k / 2, bf16_pair_along(from + k, 2 * (size_t)VL));
            }
            if (k < depth) { /* a packed row has room behind it */
                vstore(to + k / 2, bf16_pair_along(from + k, depth - k));
            }
        }
    }
}

/* Elements of two rows, k and k + 1, that share lanes; row k + 1 may be behind the last. */
DDP_INLINE vf_t pair_rows(const float *from, size_t ld, bool both, size_t count)
{
    vf_t even;
    vf_t odd = vset1(0.0F);

    if (count >= VL) {
        even = vload(from);
        odd  = both ? vload(from + ld) : odd;
    } else {
        even = vload_masked(from, vmask_first(count));
        odd  = both ? vload_masked(from + ld, vmask_first(count)) : odd;
    }
    return bf16_pair_across(even, odd);
}

static void pack_a_columns(const float *a, size_t lda, size_t rows, size_t depth, float *packed)
{
    const size_t panels = gemm_panels(rows);

    for (size_t k0 = 0; k0 < depth; k0 += TRANSPOSED_STEP) {
        const size_t k1 = k0 + TRANSPOSED_STEP < depth ? k0 + TRANSPOSED_STEP : depth;

        for (size_t p = 0; p < panels; p++) {
            const size_t first = gemm_panel_first(rows, panels, p);
            const size_t count = gemm_panel_first(rows, panels, p + 1) - first;
            float       *to    = packed + p * GEMM_AT_PANEL;

            for (size_t i = 0; i < count; i += VL) {
                for (size_t k = k0; k < k1; k += 2) {
                    vstore(to + k / 2 * GEMM_AT_PITCH + i,
                           pair_rows(a + k * lda + first + i, lda, k + 1 < depth, count - i));
                }
            }
        }
    }
}

static void pack_a(bool transposed, const float *a, size_t lda, size_t rows, size_t depth, float *packed)
{
    if (transposed) {
        pack_a_columns(a, lda, rows, depth, packed);
    } else {
        pack_a_rows(a, lda, rows, depth, packed);
    }
}

static void pack_b_rows(const float *b, size_t ldb, size_t columns, size_t depth, float *packed)
{
    for (size_t k = 0; k < depth; k += 2) {
        const float *from = b + k * ldb;
        float       *to   = packed + k / 2 * GEMM_COLUMNS;

        for (size_t j = 0; j < columns; j += VL) {
            vstore(to + j, pair_rows(from + j, ldb, k + 1 < depth, columns - j));
        }
    }
}

/* B is stored [n, k]: transpose blocks of VL x VL lanes; rows behind the last are 0 */
static void pack_b_columns(const float *b, size_t ldb, size_t columns, size_t depth, float *packed)
{
    const size_t wide = 2 * (size_t)VL;

    for (size_t j0 = 0; j0 < columns; j0 += VL) {
        const size_t count = columns - j0 < VL ? columns - j0 : VL;
        const float *from  = b + j0 * ldb;
        vf_t         x[VL];

        for (size_t k = 0; k < depth; k += wide) {
            const size_t left  = depth - k < wide ? depth - k : wide;
            float       *to    = packed + k / 2 * GEMM_COLUMNS + j0;
            const size_t lanes = (left + 1) / 2;

            if (count == VL && left == wide) {
                DDP_UNROLL
                for (size_t j = 0; j < VL; j++) {
                    x[j] = bf16_pair_along(from + j * ldb + k, wide);
                    __builtin_prefetch(from + j * ldb + k + 2 * wide);
                    __builtin_prefetch(from + j * ldb + k + 2 * wide + wide / 2);
                }
            } else {
                for (size_t j = 0; j < VL; j++) {
                    x[j] = j < count ? bf16_pair_along(from + j * ldb + k, left) : vset1(0.0F);
                }
            }
            vtranspose(x);
            if (lanes == VL) {
                DDP_UNROLL
                for (size_t j = 0; j < VL; j++) {
                    vstore(to + j * GEMM_COLUMNS, x[j]);
                }
            } else {
                for (size_t j = 0; j < lanes; j++) {
                    vstore(to + j * GEMM_COLUMNS, x[j]);
                }
            }
        }
    }
}

static void pack_b(bool transposed, const float *b, size_t ldb, size_t columns, size_t depth, float *packed)
{
    if (transposed) {
        pack_b_columns(b, ldb, columns, depth, packed);
    } else {
        pack_b_rows(b, ldb, columns, depth, packed);
    }
}

const ddp_gemm_form_t DDP_ISA_NAME(bf16_gemm) = {
    .k_per_lane = 2, .pack_a = pack_a, .pack_b = pack_b, .tile = tile};
