#include "kernels/cpu/kernels.h"
#include "kernels/cpu/philox.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/table.h"

#define GROUP DDP_PHILOX_GROUP
/* Floats between two looks at the clock. */
#define CHUNK 16384

/* Keep or drop `lanes` <= VL elements by the upper 24 bits of their random numbers. */
DDP_INLINE void dropout_lanes(const ddp_dropout_args_t *a, vi_t random, vi_t threshold, vf_t factor,
                              size_t at, size_t lanes)
{
    const vi_t    drop = philox_upper24(random) < threshold;
    const vmask_t mask = vmask_first(lanes);
    const vf_t    v    = vselect(drop, vset1(0.0F), vload_masked(a->x + at, mask) * factor);

    vstore_masked(a->y + at, a->accumulate ? vload_masked(a->y + at, mask) + v : v, mask);
}

/* Columns [group * GROUP, ...) of one row; `at` is where they lie. */
static void dropout_group(const ddp_dropout_args_t *a, uint64_t key, uint64_t row, size_t group,
                          vi_t threshold, vf_t factor, size_t at, size_t columns)
{
    for (size_t half = 0; half < GROUP / 4; half += VL) {
        const uint64_t counter = (uint64_t)group * (GROUP / 4) + half;
        vi_t           random[4];

        if (half >= columns) {
            return;
        }
        philox_lanes(key, counter, row, random);
        for (size_t word = 0; word < 4; word++) {
            const size_t first = word * (GROUP / 4) + half;

            if (first < columns) {
                dropout_lanes(a, random[word], threshold, factor, at + first,
                              columns - first < VL ? columns - first : VL);
            }
        }
    }
}

ddp_status_t DDP_ISA_NAME(dropout)(const ddp_dropout_args_t *args)
{
    const uint64_t key       = ddp_philox_stream(&args->key, DDP_PHILOX_DROPOUT);
    const vi_t     threshold = vset1i((int32_t)ddp_philox_threshold(args->p));
    const vf_t     factor    = vset1(1.0F / (1.0F - args->p));
    size_t         done      = 0;

    for (size_t i = 0; i < args->rows; i++) {
        for (size_t j = 0; j < args->width; j += GROUP) {
            dropout_group(args, key, args->first_row + i, j / GROUP, threshold, factor, i * args->width + j,
                          args->width - j < GROUP ? args->width - j : GROUP);
        }
        done += args->width;
        if (done >= CHUNK) {
            done = 0;
            ddp_cpu_progress_point();
        }
    }
    return DDP_OK;
}

ddp_status_t DDP_ISA_NAME(uniform)(const ddp_uniform_args_t *args)
{
    const uint64_t key   = ddp_philox_stream(&args->key, DDP_PHILOX_UNIFORM);
    const float    width = args->high - args->low;
    const float    last  = nextafterf(args->high, args->low);
    uint32_t       random[4];

    for (size_t i = 0; i < args->count; i++) {
        const uint32_t counter[4] = {(uint32_t)(i / 4), (uint32_t)((uint64_t)i >> 34), 0, 0};
        float          value;

        if (i % 4 == 0) {
            ddp_philox(key, counter, random);
        }
        /* 24 bits times 24 bits are exact in float64: the same with FMA and without */
        value      = (float)((double)args->low + (double)width * ((double)(random[i % 4] >> 8) * 0x1p-24));
        args->y[i] = value < args->high ? value : last;
        if (i % CHUNK == 0) {
            ddp_cpu_progress_point();
        }
    }
    return DDP_OK;
}

/* log(x), x in [2^-25, 1): x = m 2^e, m in [sqrt(1/2), sqrt(2)); log m = 2 atanh((m - 1) / (m + 1)) by its
 * series, of which the first term left out is 4e-10. */
DDP_INLINE vf_t vlog(vf_t x)
{
    /* 0x3f3504f3 is sqrt(1/2) */
    const vi_t e  = ((vi_t)x - vset1i(0x3f3504f3)) >> 23;
    const vf_t m  = (vf_t)((vi_t)x - (e << 23));
    const vf_t s  = (m - vset1(1.0F)) / (m + vset1(1.0F));
    const vf_t s2 = s * s;
    vf_t       p  = vset1(2.0F / 9.0F);

    p = p * s2 + vset1(2.0F / 7.0F);
    p = p * s2 + vset1(2.0F / 5.0F);
    p = p * s2 + vset1(2.0F / 3.0F);
    p = p * s2 + vset1(2.0F);
    return __builtin_convertvector(e, vf_t) * vset1(0.693147181F) + s * p;
}

/* Sine and cosine of u / 2^24 turns less 1/8 turn, u in [0, 2^24): the quadrant is exact, the rest lies
 * within pi / 4 of 0, where the series to x^9 and x^8 are exact to float32. */
DDP_INLINE void vsincos_turns(vi_t u, vf_t *sine, vf_t *cosine)
{
    const vf_t turn = __builtin_convertvector(u & vset1i(0x3fffff), vf_t) * vset1(0x1p-22F) - vset1(0.5F);
    const vf_t x    = turn * vset1(1.57079633F);
    const vf_t x2   = x * x;
    const vi_t odd  = (u & vset1i(0x400000)) != 0; /* quadrants 1 and 3: (sine, cosine) = (c, -s) */
    const vi_t flip = (u & vset1i(0x800000)) << 8; /* quadrants 2 and 3: both change sign */
    vf_t       s    = vset1(2.75573192e-6F);
    vf_t       c    = vset1(2.48015873e-5F);

    s       = s * x2 + vset1(-1.98412698e-4F);
    s       = s * x2 + vset1(8.33333333e-3F);
    s       = s * x2 + vset1(-1.66666667e-1F);
    s       = s * x2 * x + x;
    c       = c * x2 + vset1(-1.38888889e-3F);
    c       = c * x2 + vset1(4.16666667e-2F);
    c       = c * x2 + vset1(-0.5F);
    c       = c * x2 + vset1(1.0F);
    *sine   = (vf_t)((vi_t)vselect(odd, c, s) ^ flip);
    *cosine = (vf_t)((vi_t)vselect(odd, vset1(0.0F) - s, c) ^ flip);
}

/* Two normal numbers of two random ones: sqrt(-2 log u) times cosine and sine of an angle. */
DDP_INLINE void normal_pair(vi_t a, vi_t b, vf_t std, vf_t *first, vf_t *second)
{
    const vf_t u = (__builtin_convertvector(philox_upper24(a), vf_t) + vset1(0.5F)) * vset1(0x1p-24F);
    const vf_t r = vsqrt(vset1(-2.0F) * vlog(vmin(u, vset1(1.0F - 0x1p-24F)))) * std;
    vf_t       s;
    vf_t       c;

    vsincos_turns(philox_upper24(b), &s, &c);
    *first  = r * c;
    *second = r * s;
}

/* The same element from the same word of the same counter, for every vector length. */
ddp_status_t DDP_ISA_NAME(normal)(const ddp_normal_args_t *args)
{
    const uint64_t key = ddp_philox_stream(&args->key, DDP_PHILOX_NORMAL);
    const vf_t     std = vset1(args->std);

    for (size_t i = 0; i < args->count; i += GROUP) {
        for (size_t half = 0; half < GROUP / 4; half += VL) {
            vi_t random[4];
            vf_t value[4];

            philox_lanes(key, (uint64_t)(i / 4 + half), 0, random);
            normal_pair(random[0], random[1], std, &value[0], &value[1]);
            normal_pair(random[2], random[3], std, &value[2], &value[3]);
            for (size_t word = 0; word < 4; word++) {
                const size_t at = i + word * (GROUP / 4) + half;

                if (at < args->count) {
                    vstore_some(args->y + at, value[word], args->count - at);
                }
            }
        }
        if (i % CHUNK == 0) {
            ddp_cpu_progress_point();
        }
    }
    return DDP_OK;
}
