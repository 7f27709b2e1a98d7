/* Dropout and drawn numbers: element by element the same Philox numbers as on the cpu (kernels/cpu/random.c).
 * One thread draws one counter, four elements. Dropout moves 8 bytes an element (12 where it adds), drawing
 * 4; at 10 rounds of two 32-bit products for four elements, memory bounds all. */
#include "kernels/cuda/ops.h"
#include "kernels/cuda/philox.h"

/* The first of the four elements of a counter; the others lie DDP_PHILOX_LANES apart, so that neighbours read
 * neighbours. */
static __device__ inline size_t first_of(size_t counter)
{
    return counter / DDP_PHILOX_LANES * DDP_PHILOX_GROUP + counter % DDP_PHILOX_LANES;
}

static __device__ inline uint32_t word_of(uint4 random, size_t word)
{
    return word == 0 ? random.x : word == 1 ? random.y : word == 2 ? random.z : random.w;
}

/* Counters of whole groups for `count` numbers. */
static size_t counters_of(size_t count)
{
    return (count + DDP_PHILOX_GROUP - 1) / DDP_PHILOX_GROUP * DDP_PHILOX_LANES;
}

typedef struct dropout_values {
    uint32_t threshold;
    float    factor;
} dropout_values_t;

static __global__ void dropout_kernel(ddp_dropout_args_t a, dropout_values_t v, size_t row_counters)
{
    const uint64_t key       = ddp_philox_stream_at(a.key, DDP_PHILOX_DROPOUT);
    const uint64_t first_row = ddp_philox_row_at(a.key, a.first_row);

    DDP_CUDA_EACH(i, a.rows * row_counters)
    {
        const size_t row     = i / row_counters;
        const size_t counter = i - row * row_counters;
        const uint4  random  = ddp_philox_at(key, counter, first_row + row);

        for (size_t word = 0; word < 4; word++) {
            const size_t column = first_of(counter) + word * DDP_PHILOX_LANES;
            const size_t at     = row * a.width + column;

            if (column < a.width) {
                const float kept = ddp_philox_keeps(word_of(random, word), v.threshold)
                                       ? __fmul_rn(a.x[at], v.factor)
                                       : 0.0F;

                a.y[at] = a.accumulate ? __fadd_rn(a.y[at], kept) : kept;
            }
        }
    }
}

ddp_status_t ddp_cuda_dropout(ddp_stream_t *stream, const ddp_dropout_args_t *args)
{
    const size_t           row_counters = counters_of(args->width);
    const dropout_values_t values       = {ddp_philox_threshold(args->p), 1.0F / (1.0F - args->p)};

    if (args->rows * args->width > 0) {
        LAUNCH(dropout_kernel, ddp_cuda_blocks(stream, args->rows * row_counters), DDP_CUDA_THREADS, 0,
               ddp_cuda_stream(stream), *args, values, row_counters);
    }
    return ddp_cuda_launched(stream, "dropout");
}

typedef struct uniform_values {
    uint64_t key;
    float    width, last;
} uniform_values_t;

static __global__ void uniform_kernel(ddp_uniform_args_t a, uniform_values_t v)
{
    DDP_CUDA_EACH(counter, (a.count + 3) / 4)
    {
        const uint4 random = ddp_philox_at(v.key, counter, 0);

        for (size_t word = 0; word < 4 && 4 * counter + word < a.count; word++) {
            /* 24 bits times 24 bits are exact in float64: the same with FMA and without */
            const float value =
                (float)((double)a.low + (double)v.width * ((double)(word_of(random, word) >> 8) * 0x1p-24));

            a.y[4 * counter + word] = value < a.high ? value : v.last;
        }
    }
}

ddp_status_t ddp_cuda_uniform(ddp_stream_t *stream, const ddp_uniform_args_t *args)
{
    const uniform_values_t values = {ddp_philox_stream(&args->key, DDP_PHILOX_UNIFORM),
                                     args->high - args->low, nextafterf(args->high, args->low)};

    if (args->count > 0) {
        LAUNCH(uniform_kernel, ddp_cuda_blocks(stream, (args->count + 3) / 4), DDP_CUDA_THREADS, 0,
               ddp_cuda_stream(stream), *args, values);
    }
    return ddp_cuda_launched(stream, "uniform");
}

/* Sine and cosine of u / 2^24 turns less 1/8 turn, u < 2^24: the quadrant is exact, the rest lies within
 * pi / 4 of 0, where the series to x^9 and x^8 are exact to float32. */
static __device__ inline void sincos_turns(uint32_t u, float *sine, float *cosine)
{
    const float x  = ((float)(u & 0x3fffffU) * 0x1p-22F - 0.5F) * 1.57079633F;
    const float x2 = x * x;
    float       s  = 2.75573192e-6F;
    float       c  = 2.48015873e-5F;

    s       = s * x2 - 1.98412698e-4F;
    s       = s * x2 + 8.33333333e-3F;
    s       = s * x2 - 1.66666667e-1F;
    s       = s * x2 * x + x;
    c       = c * x2 - 1.38888889e-3F;
    c       = c * x2 + 4.16666667e-2F;
    c       = c * x2 - 0.5F;
    c       = c * x2 + 1.0F;
    *sine   = (u & 0x400000U) != 0 ? c : s; /* quadrants 1 and 3: (sine, cosine) = (c, -s) */
    *cosine = (u & 0x400000U) != 0 ? -s : c;
    if ((u & 0x800000U) != 0) { /* quadrants 2 and 3: both change sign */
        *sine   = -*sine;
        *cosine = -*cosine;
    }
}

/* Two normal numbers of two random ones: sqrt(-2 log u) times cosine and sine of an angle. */
static __device__ inline void normal_pair(uint32_t a, uint32_t b, float std, float *pair)
{
    const float u = ((float)(a >> 8) + 0.5F) * 0x1p-24F;
    const float r = sqrtf(-2.0F * logf(fminf(u, 1.0F - 0x1p-24F))) * std;
    float       s;
    float       c;

    sincos_turns(b >> 8, &s, &c);
    pair[0] = r * c;
    pair[1] = r * s;
}

static __global__ void normal_kernel(ddp_normal_args_t a, uint64_t key, size_t counters)
{
    DDP_CUDA_EACH(counter, counters)
    {
        const uint4 random = ddp_philox_at(key, counter, 0);
        float       value[4];

        normal_pair(random.x, random.y, a.std, value);
        normal_pair(random.z, random.w, a.std, value + 2);
        for (size_t word = 0; word < 4; word++) {
            const size_t at = first_of(counter) + word * DDP_PHILOX_LANES;

            if (at < a.count) {
                a.y[at] = value[word];
            }
        }
    }
}

ddp_status_t ddp_cuda_normal(ddp_stream_t *stream, const ddp_normal_args_t *args)
{
    const size_t counters = counters_of(args->count);

    if (args->count > 0) {
        LAUNCH(normal_kernel, ddp_cuda_blocks(stream, counters), DDP_CUDA_THREADS, 0, ddp_cuda_stream(stream),
               *args, ddp_philox_stream(&args->key, DDP_PHILOX_NORMAL), counters);
    }
    return ddp_cuda_launched(stream, "normal");
}
