/**
 * @file Products of bfloat16 numbers: rounding, and one step of a sum. Private.
 *
 * A 32-bit lane holds a pair, the element with the even index in its lower half; so packed forms have the
 * shape they have for float32, with half as many steps. A step is what AVX-512-BF16's VDPBF16PS does with a
 * lane: two fused multiply-adds, the upper halves first, then the lower ones, each rounded to the nearest
 * float32, and numbers below float32's smallest normal one are 0 as inputs and as results. Sources compiled
 * for that set use the instruction; others do the same with FMA and flushing switched on in the processor,
 * and have the same bits. Plain C rounds the product too, which shows below the smallest normal number only,
 * and flushes on x86 only.
 */
#ifndef DDP_BF16_H_
#define DDP_BF16_H_

#include <string.h>

#include "kernels/cpu/vec.h"

typedef uint32_t vu_t __attribute__((vector_size(VL * 4)));
typedef uint16_t ddp_bf16_t __attribute__((may_alias));

/* To the nearest, ties to even. A NaN stays one; what is below the smallest normal number becomes 0. */
DDP_INLINE uint32_t bf16_round(uint32_t bits)
{
    const uint32_t magnitude = bits & 0x7fffffffU;
    const uint32_t rounded   = bits + 0x7fffU + ((bits >> 16) & 1U);
    const uint32_t kept      = magnitude > 0x7f800000U ? bits | 0x00400000U : rounded;

    return magnitude < 0x00800000U ? bits & 0x80000000U : kept;
}

/* The pairs (even[i], odd[i]). */
DDP_INLINE vf_t bf16_pair_across(vf_t even, vf_t odd)
{
#ifdef __AVX512BF16__
    const __m512i interleave = _mm512_set_epi32(
        0x001f000f, 0x001e000e, 0x001d000d, 0x001c000c, 0x001b000b, 0x001a000a, 0x00190009, 0x00180008,
        0x00170007, 0x00160006, 0x00150005, 0x00140004, 0x00130003, 0x00120002, 0x00110001, 0x00100000);

    return (vf_t)_mm512_permutexvar_epi16(interleave,
                                          (__m512i)_mm512_cvtne2ps_pbh((__m512)odd, (__m512)even));
#else
    vu_t lower = (vu_t)even;
    vu_t upper = (vu_t)odd;

    for (int i = 0; i < VL; i++) {
        lower[i] = bf16_round(lower[i]) >> 16;
        upper[i] = bf16_round(upper[i]) & 0xffff0000U;
    }
    return (vf_t)(lower | upper);
#endif
}

/* The pairs (x[0], x[1]), (x[2], x[3]) ... of the first n elements, n <= 2 VL; zeros behind them. */
DDP_INLINE vf_t bf16_pair_along(const float *x, size_t n)
{
#ifdef __AVX512BF16__
    if (n >= 2 * (size_t)VL) {
        return (vf_t)_mm512_cvtne2ps_pbh((__m512)vload(x + VL), (__m512)vload(x));
    }
    return (vf_t)_mm512_cvtne2ps_pbh(n > VL ? (__m512)vload_masked(x + VL, vmask_first(n - VL))
                                            : _mm512_setzero_ps(),
                                     (__m512)vload_masked(x, vmask_first(n < VL ? n : VL)));
#else
    union {
        vf_t     lanes;
        uint16_t half[2 * VL];
    } pairs = {{0.0F}};

    for (size_t i = 0; i < n; i++) {
        uint32_t bits;

        memcpy(&bits, x + i, sizeof(bits));
        pairs.half[i] = (uint16_t)(bf16_round(bits) >> 16);
    }
    return pairs.lanes;
#endif
}

/*
 * sum += pairs of x times pairs of row, in BF16_PASSES passes over all the sums of a register block: pass p
 * takes bf16_part(p) of both. Between bf16_begin() and bf16_end() on these sums.
 */
#ifdef __AVX512BF16__
#define BF16_PASSES 1
#else
#define BF16_PASSES 2
#endif

DDP_INLINE vf_t bf16_part(vf_t pairs, const int pass)
{
#ifdef __AVX512BF16__
    (void)pass;
    return pairs;
#else
    return (vf_t)(pass == 0 ? (vu_t)pairs & 0xffff0000U : (vu_t)pairs << 16);
#endif
}

DDP_INLINE vf_t bf16_add(vf_t sum, vf_t x, vf_t row)
{
#ifdef __AVX512BF16__
    return (vf_t)_mm512_dpbf16_ps((__m512)sum, (__m512bh)x, (__m512bh)row);
#else
    return sum + x * row;
#endif
}

#if defined(__SSE__) && !defined(__AVX512BF16__)
#define BF16_FLUSH_BITS 0x8040U /* of MXCSR: results to zero, inputs as zero */

/* Arithmetic on the sums stays on its side of this point. */
DDP_INLINE void bf16_fence(vf_t *sum, const int count)
{
    DDP_UNROLL
    for (int i = 0; i < count; i++) {
#if VL == 16
        __asm__ volatile("" : "+v"(sum[i]) : : "memory");
#else
        __asm__ volatile("" : "+x"(sum[i]) : : "memory");
#endif
    }
}

DDP_INLINE uint32_t bf16_begin(vf_t *sum, const int count)
{
    uint32_t before;
    uint32_t flush;

    __asm__ volatile("stmxcsr %0" : "=m"(before) : : "memory");
    flush = before | BF16_FLUSH_BITS;
    __asm__ volatile("ldmxcsr %0" : : "m"(flush) : "memory");
    bf16_fence(sum, count);
    return before;
}

DDP_INLINE void bf16_end(vf_t *sum, const int count, uint32_t before)
{
    bf16_fence(sum, count);
    __asm__ volatile("ldmxcsr %0" : : "m"(before) : "memory");
    bf16_fence(sum, count);
}
#else
DDP_INLINE uint32_t bf16_begin(vf_t *sum, const int count)
{
    (void)sum;
    (void)count;
    return 0;
}

DDP_INLINE void bf16_end(vf_t *sum, const int count, uint32_t before)
{
    (void)sum;
    (void)count;
    (void)before;
}
#endif

#endif
