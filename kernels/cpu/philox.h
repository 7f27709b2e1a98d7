/**
 * @file Philox 4x32-10 for VL counters at once. Private.
 */
#ifndef DDP_PHILOX_H_
#define DDP_PHILOX_H_

#include "kernels/cpu/vec.h"
#include "kernels/philox_internal.h"

/* Low and high 32 bits of x * m, lane by lane. */
DDP_INLINE void philox_product(vi_t x, uint32_t m, vi_t *low, vi_t *high)
{
#if VL == 16
    const __m512i factor = _mm512_set1_epi32((int)m);
    const __m512i even   = _mm512_mul_epu32((__m512i)x, factor);
    const __m512i odd    = _mm512_mul_epu32(_mm512_srli_epi64((__m512i)x, 32), factor);

    *low  = (vi_t)_mm512_mask_blend_epi32(0xaaaa, even, _mm512_slli_epi64(odd, 32));
    *high = (vi_t)_mm512_mask_blend_epi32(0xaaaa, _mm512_srli_epi64(even, 32), odd);
#elif VL == 8
    const __m256i factor = _mm256_set1_epi32((int)m);
    const __m256i even   = _mm256_mul_epu32((__m256i)x, factor);
    const __m256i odd    = _mm256_mul_epu32(_mm256_srli_epi64((__m256i)x, 32), factor);

    *low  = (vi_t)_mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
    *high = (vi_t)_mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa);
#else
    const uint64_t p0 = (uint64_t)(uint32_t)x[0] * m;
    const uint64_t p1 = (uint64_t)(uint32_t)x[1] * m;
    const uint64_t p2 = (uint64_t)(uint32_t)x[2] * m;
    const uint64_t p3 = (uint64_t)(uint32_t)x[3] * m;

    *low = (vi_t){(int32_t)(uint32_t)p0, (int32_t)(uint32_t)p1, (int32_t)(uint32_t)p2, (int32_t)(uint32_t)p3};
    *high = (vi_t){(int32_t)(p0 >> 32), (int32_t)(p1 >> 32), (int32_t)(p2 >> 32), (int32_t)(p3 >> 32)};
#endif
}

/* Four numbers each of the counters {first + lane, row}; first + VL does not carry out of its low 32 bits. */
DDP_INLINE void philox_lanes(uint64_t key, uint64_t first, uint64_t row, vi_t random[4])
{
    uint32_t k0 = (uint32_t)key;
    uint32_t k1 = (uint32_t)(key >> 32);
    vi_t     c0 = vset1i((int32_t)(uint32_t)first);
    vi_t     c1 = vset1i((int32_t)(uint32_t)(first >> 32));
    vi_t     c2 = vset1i((int32_t)(uint32_t)row);
    vi_t     c3 = vset1i((int32_t)(uint32_t)(row >> 32));
    vi_t     low0;
    vi_t     low1;
    vi_t     high0;
    vi_t     high1;

    for (int i = 0; i < VL; i++) {
        c0[i] |= i; /* first is a multiple of VL */
    }
    for (int round = 0; round < DDP_PHILOX_ROUNDS; round++) {
        philox_product(c0, DDP_PHILOX_M0, &low0, &high0);
        philox_product(c2, DDP_PHILOX_M1, &low1, &high1);
        c0 = high1 ^ c1 ^ vset1i((int32_t)k0);
        c1 = low1;
        c2 = high0 ^ c3 ^ vset1i((int32_t)k1);
        c3 = low0;
        k0 += DDP_PHILOX_W0;
        k1 += DDP_PHILOX_W1;
    }
    random[0] = c0;
    random[1] = c1;
    random[2] = c2;
    random[3] = c3;
}

/* The upper 24 bits of each lane, 0 .. 2^24 - 1 */
DDP_INLINE vi_t philox_upper24(vi_t x)
{
    return (x >> 8) & vset1i(0xffffff);
}

#endif
