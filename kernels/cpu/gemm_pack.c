/* Packing of A and B; see gemm_internal.h for the forms. */
#include "kernels/cpu/gemm_internal.h"

#define TRANSPOSED_STEP                                                                                      \
    8 /* rows of A^T read at a time across all panels, so that whole cache lines are used */

/* x[i] lane j <-> x[j] lane i */
DDP_INLINE void transpose(vf_t x[VL])
{
#if VL == 16
    __m512 t[16];

    DDP_UNROLL
    for (int i = 0; i < 16; i += 4) { /* 4 x 4 blocks in their 128-bit parts */
        __m512  a = _mm512_unpacklo_ps((__m512)x[i], (__m512)x[i + 1]);
        __m512  b = _mm512_unpackhi_ps((__m512)x[i], (__m512)x[i + 1]);
        __m512  c = _mm512_unpacklo_ps((__m512)x[i + 2], (__m512)x[i + 3]);
        __m512  d = _mm512_unpackhi_ps((__m512)x[i + 2], (__m512)x[i + 3]);
        __m512d e = _mm512_unpacklo_pd(_mm512_castps_pd(a), _mm512_castps_pd(c));
        __m512d f = _mm512_unpackhi_pd(_mm512_castps_pd(a), _mm512_castps_pd(c));
        __m512d g = _mm512_unpacklo_pd(_mm512_castps_pd(b), _mm512_castps_pd(d));
        __m512d h = _mm512_unpackhi_pd(_mm512_castps_pd(b), _mm512_castps_pd(d));

        t[i]     = _mm512_castpd_ps(e);
        t[i + 1] = _mm512_castpd_ps(f);
        t[i + 2] = _mm512_castpd_ps(g);
        t[i + 3] = _mm512_castpd_ps(h);
    }
    DDP_UNROLL
    for (int i = 0; i < 4; i++) { /* the 4 x 4 grid of 128-bit parts */
        __m512 a = _mm512_shuffle_f32x4(t[i], t[i + 4], 0x88);
        __m512 b = _mm512_shuffle_f32x4(t[i], t[i + 4], 0xdd);
        __m512 c = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0x88);
        __m512 d = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0xdd);

        x[i]      = (vf_t)_mm512_shuffle_f32x4(a, c, 0x88);
        x[i + 4]  = (vf_t)_mm512_shuffle_f32x4(b, d, 0x88);
        x[i + 8]  = (vf_t)_mm512_shuffle_f32x4(a, c, 0xdd);
        x[i + 12] = (vf_t)_mm512_shuffle_f32x4(b, d, 0xdd);
    }
#elif VL == 8
    __m256 t[8];

    DDP_UNROLL
    for (int i = 0; i < 8; i += 4) {
        __m256 a = _mm256_unpacklo_ps((__m256)x[i], (__m256)x[i + 1]);
        __m256 b = _mm256_unpackhi_ps((__m256)x[i], (__m256)x[i + 1]);
        __m256 c = _mm256_unpacklo_ps((__m256)x[i + 2], (__m256)x[i + 3]);
        __m256 d = _mm256_unpackhi_ps((__m256)x[i + 2], (__m256)x[i + 3]);

        t[i]     = _mm256_shuffle_ps(a, c, 0x44);
        t[i + 1] = _mm256_shuffle_ps(a, c, 0xee);
        t[i + 2] = _mm256_shuffle_ps(b, d, 0x44);
        t[i + 3] = _mm256_shuffle_ps(b, d, 0xee);
    }
    DDP_UNROLL
    for (int i = 0; i < 4; i++) {
        x[i]     = (vf_t)_mm256_permute2f128_ps(t[i], t[i + 4], 0x20);
        x[i + 4] = (vf_t)_mm256_permute2f128_ps(t[i], t[i + 4], 0x31);
    }
#else
    vf_t a = x[0];
    vf_t b = x[1];
    vf_t c = x[2];
    vf_t d = x[3];

    DDP_UNROLL
    for (int i = 0; i < 4; i++) {
        x[i] = (vf_t){a[i], b[i], c[i], d[i]};
    }
#endif
}

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
            transpose(x);
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
