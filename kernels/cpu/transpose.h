/** @file A square block of lanes, turned over its diagonal. Private. */
#ifndef DDP_TRANSPOSE_H_
#define DDP_TRANSPOSE_H_

#include "kernels/cpu/vec.h"

/* x[i] lane j <-> x[j] lane i */
DDP_INLINE void vtranspose(vf_t x[VL])
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

#endif
