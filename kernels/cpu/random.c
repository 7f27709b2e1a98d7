#include "kernels/cpu/kernels.h"
#include "kernels/cpu/philox.h"
#include "kernels/cpu/table.h"

/* Numbers that one row of counters gives: 16 counters times four words, in the order word, counter. The same
 * for every vector length. */
#define GROUP 64
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
    const uint64_t key       = philox_stream(&args->key, PHILOX_DROPOUT);
    const vi_t     threshold = vset1i((int32_t)ceilf(args->p * 16777216.0F));
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
    const uint64_t key   = philox_stream(&args->key, PHILOX_UNIFORM);
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
