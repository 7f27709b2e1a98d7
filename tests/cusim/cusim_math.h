/**
 * @file The intrinsics of a kernel on the stand-in, as far as the product uses them; part of cusim_device.h.
 * The fast ones (__expf, rsqrtf) are exact here and approximate on a GPU: results differ in the last bits.
 */
#ifndef DDP_CUSIM_MATH_H_
#define DDP_CUSIM_MATH_H_

#include <cuda_runtime.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

/* Macros: glibc has internal functions of these names. */
#define __expf       expf
#define __logf       logf
#define __sinf       sinf
#define __cosf       cosf
#define __powf       powf
#define __exp10f     exp10f
#define __log2f      log2f
#define __sqrtf_rn   sqrtf
#define __fsqrt_rn   sqrtf
#define __fmaf_rn    fmaf
#define __fdividef   cusim_divide
#define __fdiv_rn    cusim_divide
#define __fadd_rn    cusim_add
#define __fsub_rn    cusim_subtract
#define __fmul_rn    cusim_multiply
#define __frcp_rn(x) cusim_divide(1.0F, x)
#define __dmul_rn    cusim_multiply
#define __dadd_rn    cusim_add
#define __dsub_rn    cusim_subtract

/* Not contracted to a fused operation: that is what the names with _rn are for. */
#pragma GCC         push_options
#pragma GCC         optimize("fp-contract=off")
static inline float cusim_divide(float a, float b)
{
    return a / b;
}

static inline float cusim_add(float a, float b)
{
    return a + b;
}

static inline float cusim_subtract(float a, float b)
{
    return a - b;
}

static inline float cusim_multiply(float a, float b)
{
    return a * b;
}

static inline double cusim_add(double a, double b)
{
    return a + b;
}

static inline double cusim_subtract(double a, double b)
{
    return a - b;
}

static inline double cusim_multiply(double a, double b)
{
    return a * b;
}
#pragma GCC pop_options

static inline float rsqrtf(float x)
{
    return 1.0F / sqrtf(x);
}

static inline float __saturatef(float x)
{
    return fminf(fmaxf(x, 0.0F), 1.0F);
}

/* The same bits as another type. */
template <class To, class From> static inline To cusim_bits(From from)
{
    To to;

    static_assert(sizeof(to) == sizeof(from), "the same size");
    memcpy(&to, &from, sizeof(to));
    return to;
}

static inline float __int_as_float(int x)
{
    return cusim_bits<float>(x);
}

static inline int __float_as_int(float x)
{
    return cusim_bits<int>(x);
}

static inline float __uint_as_float(unsigned x)
{
    return cusim_bits<float>(x);
}

static inline unsigned __float_as_uint(float x)
{
    return cusim_bits<unsigned>(x);
}

static inline long long __double_as_longlong(double x)
{
    return cusim_bits<long long>(x);
}

static inline double __longlong_as_double(long long x)
{
    return cusim_bits<double>(x);
}

static inline int __float2int_rn(float x)
{
    return (int)lrintf(x);
}

static inline float __int2float_rn(int x)
{
    return (float)x;
}

static inline float __uint2float_rn(unsigned x)
{
    return (float)x;
}

static inline unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)(((uint64_t)a * b) >> 32);
}

static inline int __mulhi(int a, int b)
{
    return (int)(((int64_t)a * b) >> 32);
}

static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    __extension__ typedef unsigned __int128 wide_t;

    return (unsigned long long)(((wide_t)a * b) >> 64);
}

static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}

static inline int __popcll(unsigned long long x)
{
    return __builtin_popcountll(x);
}

static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}

static inline int __clz(int x)
{
    return x != 0 ? __builtin_clz((unsigned)x) : 32;
}

static inline int __clzll(long long x)
{
    return x != 0 ? __builtin_clzll((unsigned long long)x) : 64;
}

/* Loads and stores with a hint for the caches. */
template <class T> static inline T __ldg(const T *address)
{
    return *address;
}

template <class T> static inline T __ldcs(const T *address)
{
    return *address;
}

template <class T> static inline T __ldcg(const T *address)
{
    return *address;
}

template <class T> static inline void __stcs(T *address, T value)
{
    *address = value;
}

template <class T> static inline void __stcg(T *address, T value)
{
    *address = value;
}

/* nvcc has these of the same type, and mixed ones as in C. */
#define CUSIM_MIN_MAX(type)                                                                                  \
    static inline type min(type a, type b)                                                                   \
    {                                                                                                        \
        return a < b ? a : b;                                                                                \
    }                                                                                                        \
    static inline type max(type a, type b)                                                                   \
    {                                                                                                        \
        return a > b ? a : b;                                                                                \
    }

CUSIM_MIN_MAX(int)
CUSIM_MIN_MAX(unsigned)
CUSIM_MIN_MAX(long)
CUSIM_MIN_MAX(unsigned long)
CUSIM_MIN_MAX(long long)
CUSIM_MIN_MAX(unsigned long long)
CUSIM_MIN_MAX(float)
CUSIM_MIN_MAX(double)

#endif /* DDP_CUSIM_MATH_H_ */
