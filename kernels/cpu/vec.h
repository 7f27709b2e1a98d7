/**
 * @file One vector type for the three instruction sets, from one source: compiled once per set with
 * DDP_ISA_SUFFIX and VL.
 *
 * GCC and clang vector extensions; intrinsics only where the extensions have no word. Private: never
 * installed. FMA contraction is on (-ffp-contract=fast) for every set; plain C has no FMA, so sets differ in
 * the last bits.
 */
#ifndef DDP_VEC_H_
#define DDP_VEC_H_

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Name of a function in this instruction set: DDP_ISA_NAME(gemm) is ddp_gemm_avx2. */
#define DDP_PASTE_(a, b)   ddp_##a##_##b
#define DDP_PASTE(a, b)    DDP_PASTE_(a, b)
#define DDP_ISA_NAME(name) DDP_PASTE(name, DDP_ISA_SUFFIX)
#define DDP_TEXT_(a)       #a
#define DDP_TEXT(a)        DDP_TEXT_(a)
#define DDP_ISA_TEXT       DDP_TEXT(DDP_ISA_SUFFIX)

#if defined(__AVX512F__)
#include <immintrin.h>
#define VL 16
#elif defined(__AVX2__)
#include <immintrin.h>
#define VL 8
#else
#define VL 4
#endif

#define DDP_INLINE static inline __attribute__((always_inline))

/* In front of a loop: DDP_UNROLL for one with few rounds, known to the compiler, that must vanish (sums stay
 * in registers only then); DDP_UNROLL_BY(n) for a long one. */
#ifdef __clang__
#define DDP_PRAGMA_(text) _Pragma(#text)
#define DDP_UNROLL        _Pragma("clang loop unroll(full)")
#define DDP_UNROLL_BY(n)  DDP_PRAGMA_(clang loop unroll_count(n))
#else
#define DDP_PRAGMA_(text) _Pragma(#text)
#define DDP_UNROLL        _Pragma("GCC unroll 32")
#define DDP_UNROLL_BY(n)  DDP_PRAGMA_(GCC unroll n)
#endif

/* Keep a broadcast in a register: gcc folds it into each multiplication that uses it, as one load more. */
#if VL > 4 && !defined(__clang__)
#define DDP_IN_REGISTER(x) __asm__("" : "+v"(x))
#else
#define DDP_IN_REGISTER(x) (void)0
#endif

typedef float   vf_t __attribute__((vector_size(VL * 4)));
typedef int32_t vi_t __attribute__((vector_size(VL * 4)));
typedef float   vfu_t __attribute__((vector_size(VL * 4), aligned(4), may_alias)); /* anywhere in memory */
typedef int32_t viu_t __attribute__((vector_size(VL * 4), aligned(4), may_alias));

DDP_INLINE vf_t vload(const float *p)
{
    return (vf_t) * (const vfu_t *)p;
}

DDP_INLINE void vstore(float *p, vf_t x)
{
    *(vfu_t *)p = (vfu_t)x;
}

DDP_INLINE vf_t vset1(float x)
{
#if VL == 16
    return (vf_t)_mm512_set1_ps(x);
#elif VL == 8
    return (vf_t)_mm256_set1_ps(x);
#else
    return (vf_t){x, x, x, x};
#endif
}

DDP_INLINE vi_t vset1i(int32_t x)
{
    return x - (vi_t){0};
}

/* mask lanes are all ones or 0, as vector comparisons give them */
DDP_INLINE vf_t vselect(vi_t mask, vf_t yes, vf_t no)
{
    return (vf_t)(((vi_t)yes & mask) | ((vi_t)no & ~mask));
}

/* b where a is NaN, as the instructions do */
DDP_INLINE vf_t vmax(vf_t a, vf_t b)
{
#if VL == 16
    return (vf_t)_mm512_max_ps((__m512)a, (__m512)b);
#elif VL == 8
    return (vf_t)_mm256_max_ps((__m256)a, (__m256)b);
#else
    return vselect(a > b, a, b);
#endif
}

DDP_INLINE vf_t vmin(vf_t a, vf_t b)
{
#if VL == 16
    return (vf_t)_mm512_min_ps((__m512)a, (__m512)b);
#elif VL == 8
    return (vf_t)_mm256_min_ps((__m256)a, (__m256)b);
#else
    return vselect(a < b, a, b);
#endif
}

DDP_INLINE vf_t vsqrt(vf_t a)
{
#if VL == 16
    return (vf_t)_mm512_sqrt_ps((__m512)a);
#elif VL == 8
    return (vf_t)_mm256_sqrt_ps((__m256)a);
#else
    return (vf_t){sqrtf(a[0]), sqrtf(a[1]), sqrtf(a[2]), sqrtf(a[3])};
#endif
}

/* pairwise, so the order is fixed: lane i + lane i + n/2, and so on */
DDP_INLINE float vsum(vf_t a)
{
#if VL == 4
    return (a[0] + a[2]) + (a[1] + a[3]);
#else
#if VL == 16
    const __m256 b = _mm256_add_ps(_mm512_castps512_ps256((__m512)a), _mm512_extractf32x8_ps((__m512)a, 1));
#else
    const __m256 b = (__m256)a;
#endif
    const __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    const __m128 d = _mm_add_ps(c, _mm_movehl_ps(c, c));

    return _mm_cvtss_f32(_mm_add_ss(d, _mm_movehdup_ps(d)));
#endif
}

/* the largest lane; any number where one is NaN */
DDP_INLINE float vhmax(vf_t a)
{
#if VL == 4
    const float b = a[0] > a[2] ? a[0] : a[2];
    const float c = a[1] > a[3] ? a[1] : a[3];

    return b > c ? b : c;
#else
#if VL == 16
    const __m256 b = _mm256_max_ps(_mm512_castps512_ps256((__m512)a), _mm512_extractf32x8_ps((__m512)a, 1));
#else
    const __m256 b = (__m256)a;
#endif
    const __m128 c = _mm_max_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    const __m128 d = _mm_max_ps(c, _mm_movehl_ps(c, c));

    return _mm_cvtss_f32(_mm_max_ss(d, _mm_movehdup_ps(d)));
#endif
}

/* is a lane of the mask set? */
DDP_INLINE bool vany(vi_t mask)
{
#if VL == 16
    return _mm512_test_epi32_mask((__m512i)mask, (__m512i)mask) != 0;
#elif VL == 8
    return _mm256_testz_si256((__m256i)mask, (__m256i)mask) == 0;
#else
    return (mask[0] | mask[1] | mask[2] | mask[3]) != 0;
#endif
}

DDP_INLINE vf_t vabs(vf_t a)
{
    return (vf_t)((vi_t)a & vset1i(INT32_MAX));
}

DDP_INLINE vf_t vcopysign(vf_t size, vf_t sign)
{
    return (vf_t)(((vi_t)size & vset1i(INT32_MAX)) | ((vi_t)sign & vset1i(INT32_MIN)));
}

/*
 * exp(x) = 2^n exp(r): n = x / log 2 rounded by the 1.5 * 2^23 trick, r = x - n log 2 with log 2 in two
 * parts, the first of which gives exact products; exp(r) = 1 + r + r^2 q(r), q of degree 4 by a fit of equal
 * ripple, 3e-9. Below 1 ulp. Clamped to [-87, 88].
 */
DDP_INLINE vf_t vexp(vf_t x)
{
    const vf_t magic = vset1(12582912.0F);
    vf_t       n;
    vf_t       r;
    vf_t       q;
    vi_t       exponent;

    x        = vmin(vmax(x, vset1(-87.0F)), vset1(88.0F));
    n        = x * vset1(1.44269504F) + magic;
    exponent = (vi_t)n << 23;
    n        = n - magic;
    r        = x - n * vset1(0.693359375F) - n * vset1(-2.12194440e-4F);
    q        = vset1(1.38144672e-3F);
    q        = q * r + vset1(8.36878084e-3F);
    q        = q * r + vset1(4.16683927e-2F);
    q        = q * r + vset1(1.66665196e-1F);
    q        = q * r + vset1(4.9999994e-1F);
    q        = q * (r * r) + r + vset1(1.0F);
    return (vf_t)((vi_t)q + exponent);
}

/* The first lanes of a vector: loads and stores that touch nothing behind them (rows that end within a
 * vector). */
#if VL == 16
typedef __mmask16 vmask_t;
#elif VL == 8
typedef __m256i vmask_t;
#else
typedef size_t vmask_t;
#endif

/* the first n lanes, n <= VL */
DDP_INLINE vmask_t vmask_first(size_t n)
{
#if VL == 16
    return (vmask_t)((1U << n) - 1U);
#elif VL == 8
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
#else
    return n;
#endif
}

/* 0 in the other lanes */
DDP_INLINE vf_t vload_masked(const float *p, vmask_t mask)
{
#if VL == 16
    return (vf_t)_mm512_maskz_loadu_ps(mask, p);
#elif VL == 8
    return (vf_t)_mm256_maskload_ps(p, mask);
#else
    vf_t x = {0.0F};

    for (size_t i = 0; i < mask; i++) {
        x[i] = p[i];
    }
    return x;
#endif
}

DDP_INLINE void vstore_masked(float *p, vf_t x, vmask_t mask)
{
#if VL == 16
    _mm512_mask_storeu_ps(p, mask, (__m512)x);
#elif VL == 8
    _mm256_maskstore_ps(p, mask, (__m256)x);
#else
    for (size_t i = 0; i < mask; i++) {
        p[i] = x[i];
    }
#endif
}

#endif
