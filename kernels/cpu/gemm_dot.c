/*
 * C = A B^T with few rows on one side: elements are dot products of stored rows, so nothing is packed and no
 * lane is wasted on a width of 10. Vectors run along k; their lanes are added up at the end.
 */
#include "kernels/cpu/gemm_internal.h"
#include "kernels/cpu/kernels.h"

#if VL == 16
#define DOT_ROWS    5 /* 25 sums, 5 of B, 1 of A: 31 of 32 registers */
#define DOT_COLUMNS 5
#else
#define DOT_ROWS    3 /* 12 sums, 3 of B, 1 of A */
#define DOT_COLUMNS 4
#endif
#define DOT_SUMS ((DOT_ROWS * DOT_COLUMNS + VL - 1) / VL * VL)

/* sums[i] = sum over the lanes of x[i], for VL vectors */
DDP_INLINE void add_lanes(const vf_t *x, float *sums)
{
#if VL == 16
    __m512 q[4];

    DDP_UNROLL
    for (int i = 0; i < 4; i++) { /* within 128 bits: lane j of a part becomes its sum of x[4 i + j] */
        const __m512 a = (__m512)x[4 * i];
        const __m512 b = (__m512)x[4 * i + 1];
        const __m512 c = (__m512)x[4 * i + 2];
        const __m512 d = (__m512)x[4 * i + 3];
        const __m512 e = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
        const __m512 f = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));

        q[i] = _mm512_add_ps(_mm512_shuffle_ps(e, f, 0x44), _mm512_shuffle_ps(e, f, 0xee));
    }
    DDP_UNROLL
    for (int i = 0; i < 2; i++) {
        q[i] = _mm512_add_ps(_mm512_shuffle_f32x4(q[2 * i], q[2 * i + 1], 0x88),
                             _mm512_shuffle_f32x4(q[2 * i], q[2 * i + 1], 0xdd));
    }
    _mm512_storeu_ps(
        sums, _mm512_add_ps(_mm512_shuffle_f32x4(q[0], q[1], 0x88), _mm512_shuffle_f32x4(q[0], q[1], 0xdd)));
#elif VL == 8
    __m256 q[2];

    DDP_UNROLL
    for (int i = 0; i < 2; i++) {
        const __m256 a = (__m256)x[4 * i];
        const __m256 b = (__m256)x[4 * i + 1];
        const __m256 c = (__m256)x[4 * i + 2];
        const __m256 d = (__m256)x[4 * i + 3];
        const __m256 e = _mm256_add_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
        const __m256 f = _mm256_add_ps(_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));

        q[i] = _mm256_add_ps(_mm256_shuffle_ps(e, f, 0x44), _mm256_shuffle_ps(e, f, 0xee));
    }
    _mm256_storeu_ps(sums, _mm256_add_ps(_mm256_permute2f128_ps(q[0], q[1], 0x20),
                                         _mm256_permute2f128_ps(q[0], q[1], 0x31)));
#else
    for (int i = 0; i < VL; i++) {
        sums[i] = vsum(x[i]);
    }
#endif
}

/* sums[i * columns + j] = dot product of row i of a and row j of b */
DDP_INLINE void dot_run(const int rows, const int columns, const float *a, size_t lda, const float *b,
                        size_t ldb, size_t k, float *sums)
{
    vf_t         x[DOT_SUMS];
    const size_t whole = k / VL * VL;

    DDP_UNROLL
    for (int i = 0; i < (int)DOT_SUMS; i++) {
        x[i] = vset1(0.0F);
    }
    for (size_t at = 0; at < whole; at += VL) {
        vf_t column[DOT_COLUMNS];

        DDP_UNROLL
        for (int j = 0; j < columns; j++) {
            column[j] = vload(b + (size_t)j * ldb + at);
        }
        DDP_UNROLL
        for (int i = 0; i < rows; i++) {
            const vf_t row = vload(a + (size_t)i * lda + at);

            DDP_UNROLL
            for (int j = 0; j < columns; j++) {
                x[i * columns + j] += row * column[j];
            }
        }
    }
    if (whole < k) {
        const vmask_t mask = vmask_first(k - whole);

        DDP_UNROLL
        for (int i = 0; i < rows; i++) {
            const vf_t row = vload_masked(a + (size_t)i * lda + whole, mask);

            DDP_UNROLL
            for (int j = 0; j < columns; j++) {
                x[i * columns + j] += row * vload_masked(b + (size_t)j * ldb + whole, mask);
            }
        }
    }
    for (int i = 0; i < rows * columns; i += VL) {
        add_lanes(x + i, sums + i);
    }
}

typedef void dot_fn_t(const float *a, size_t lda, const float *b, size_t ldb, size_t k, float *sums);

#define DOT(rows, columns)                                                                                   \
    static void dot_##rows##_##columns(const float *a, size_t lda, const float *b, size_t ldb, size_t k,     \
                                       float *sums)                                                          \
    {                                                                                                        \
        dot_run(rows, columns, a, lda, b, ldb, k, sums);                                                     \
    }
#if VL == 16
#define DOTS(rows) DOT(rows, 1) DOT(rows, 2) DOT(rows, 3) DOT(rows, 4) DOT(rows, 5)
#define NAMES(rows)                                                                                          \
    {                                                                                                        \
        dot_##rows##_1, dot_##rows##_2, dot_##rows##_3, dot_##rows##_4, dot_##rows##_5                       \
    }
#else
#define DOTS(rows) DOT(rows, 1) DOT(rows, 2) DOT(rows, 3) DOT(rows, 4)
#define NAMES(rows)                                                                                          \
    {                                                                                                        \
        dot_##rows##_1, dot_##rows##_2, dot_##rows##_3, dot_##rows##_4                                       \
    }
#endif

DOTS(1)
DOTS(2)
DOTS(3)
#if DOT_ROWS > 3
DOTS(4)
DOTS(5)
#endif

/* [rows - 1][columns - 1] */
static dot_fn_t *const dots[DOT_ROWS][DOT_COLUMNS] = {
    NAMES(1), NAMES(2), NAMES(3),
#if DOT_ROWS > 3
    NAMES(4), NAMES(5),
#endif
};

/* The epilogue of one block, short of the activation. */
static void finish(const ddp_gemm_args_t *args, size_t m0, size_t rows, size_t n0, size_t columns,
                   const float *sums)
{
    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < columns; j++) {
            const size_t at = (m0 + i) * args->ldc + n0 + j;
            float        x  = args->alpha * sums[i * columns + j];

            if (args->beta != 0.0F) {
                x += args->beta * args->c[at];
            }
            if (args->bias != NULL) {
                x += args->bias[n0 + j];
            }
            if (args->add != NULL) {
                x += args->add[at];
            }
            if (args->pre_activation != NULL) {
                args->pre_activation[at] = x;
            }
            args->c[at] = x;
        }
    }
}

static void run_block(const ddp_gemm_args_t *args, size_t m0, size_t rows, size_t n0, size_t columns)
{
    float sums[DOT_SUMS];

    dots[rows - 1][columns - 1](args->a + m0 * args->lda, args->lda, args->b + n0 * args->ldb, args->ldb,
                                args->k, sums);
    finish(args, m0, rows, n0, columns, sums);
}

bool DDP_ISA_NAME(gemm_dot_fits)(const ddp_gemm_args_t *args)
{
    return args->precision == DDP_PRECISION_FLOAT32 && args->transpose_b && args->k > 0 &&
           (args->n <= GEMM_DOT_MOST || args->m <= GEMM_DOT_MOST);
}

void DDP_ISA_NAME(gemm_dot)(const ddp_gemm_args_t *args)
{
    const size_t m_parts = (args->m + DOT_ROWS - 1) / DOT_ROWS;
    const size_t n_parts = (args->n + DOT_COLUMNS - 1) / DOT_COLUMNS;
    const bool   m_inner = args->m < args->n; /* the short side stays in cache */

    for (size_t outer = 0; outer < (m_inner ? n_parts : m_parts); outer++) {
        for (size_t inner = 0; inner < (m_inner ? m_parts : n_parts); inner++) {
            const size_t i  = m_inner ? inner : outer;
            const size_t j  = m_inner ? outer : inner;
            const size_t m0 = args->m * i / m_parts;
            const size_t n0 = args->n * j / n_parts;

            run_block(args, m0, args->m * (i + 1) / m_parts - m0, n0, args->n * (j + 1) / n_parts - n0);
        }
        ddp_cpu_progress_point();
    }
}
