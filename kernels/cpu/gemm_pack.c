/* Packing of A and B; see gemm_internal.h for the forms. */
#include "kernels/cpu/gemm_internal.h"
#include "kernels/cpu/transpose.h"

#define TRANSPOSED_STEP                                                                                      \
    8 /* rows of A^T read at a time across all panels, so that whole cache lines are used */

/* Writes whole vectors: a packed row has room behind it. */
DDP_INLINE void copy_row(float *to, const float *from, size_t count)
{
    size_t i = 0;

    for (; i + VL <= count; i += VL) {
        vstore(to + i, vload(from + i));
    }
    if (i < count) {
        vstore(to + i, vload_masked(from + i, vmask_first(count - i)));
    }
}

static void pack_a_rows(const float *a, size_t lda, size_t rows, size_t depth, float *packed)
{
    const size_t panels = gemm_panels(rows);

    for (size_t p = 0; p < panels; p++) {
        const size_t first = gemm_panel_first(rows, panels, p);
        const size_t count = gemm_panel_first(rows, panels, p + 1) - first;

        for (size_t i = 0; i < count; i++) {
            copy_row(packed + p * GEMM_A_PANEL + i * GEMM_A_PITCH, a + (first + i) * lda, depth);
        }
    }
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
                const vmask_t mask = vmask_first(count - i < VL ? count - i : VL);

                for (size_t k = k0; k < k1; k++) {
                    vstore(to + k * GEMM_AT_PITCH + i, vload_masked(a + k * lda + first + i, mask));
                }
            }
        }
    }
}

void DDP_ISA_NAME(gemm_pack_a)(bool transposed, const float *a, size_t lda, size_t rows, size_t depth,
                               float *packed)
{
    if (depth == 0) {
        return;
    }
    if (transposed) {
        pack_a_columns(a, lda, rows, depth, packed);
    } else {
        pack_a_rows(a, lda, rows, depth, packed);
    }
}

/* B is stored [k, n]: copy rows */
static void pack_b_rows(const float *b, size_t ldb, size_t columns, size_t depth, float *packed)
{
    const size_t  vectors = (columns + VL - 1) / VL;
    const vmask_t mask    = vmask_first(columns - (vectors - 1) * VL);

    for (size_t k = 0; k < depth; k++) {
        const float *from = b + k * ldb;
        float       *to   = packed + k * GEMM_COLUMNS;

        if (columns == GEMM_COLUMNS) {
            vstore(to, vload(from));
            vstore(to + VL, vload(from + VL));
        } else if (vectors == 2) {
            vstore(to, vload(from));
            vstore(to + VL, vload_masked(from + VL, mask));
        } else {
            vstore(to, vload_masked(from, mask));
        }
    }
}

/* B is stored [n, k]: transpose blocks of VL x VL; rows behind the last are 0 */
static void pack_b_columns(const float *b, size_t ldb, size_t columns, size_t depth, float *packed)
{
    for (size_t j0 = 0; j0 < columns; j0 += VL) {
        const size_t count = columns - j0 < VL ? columns - j0 : VL;
        const float *from  = b + j0 * ldb;
        size_t       k     = 0;
        vf_t         x[VL];

        for (; k < depth; k += VL) {
            const size_t left = depth - k < VL ? depth - k : VL;

            if (count == VL && left == VL) {
                DDP_UNROLL
                for (size_t j = 0; j < VL; j++) {
                    x[j] = vload(from + j * ldb + k);
                    __builtin_prefetch(from + j * ldb + k + 2 * (size_t)VL);
                }
            } else {
                for (size_t j = 0; j < VL; j++) {
                    x[j] = j < count ? vload_masked(from + j * ldb + k, vmask_first(left)) : vset1(0.0F);
                }
            }
            vtranspose(x);
            if (left == VL) {
                DDP_UNROLL
                for (size_t j = 0; j < VL; j++) {
                    vstore(packed + (k + j) * GEMM_COLUMNS + j0, x[j]);
                }
            } else {
                for (size_t j = 0; j < left; j++) {
                    vstore(packed + (k + j) * GEMM_COLUMNS + j0, x[j]);
                }
            }
        }
    }
}

void DDP_ISA_NAME(gemm_pack_b)(bool transposed, const float *b, size_t ldb, size_t columns, size_t depth,
                               float *packed)
{
    if (depth == 0) {
        return;
    }
    if (transposed) {
        pack_b_columns(b, ldb, columns, depth, packed);
    } else {
        pack_b_rows(b, ldb, columns, depth, packed);
    }
}
