/*
 * Causal attention, tile by tile as Dao et al. 2022 (arXiv 2205.14135): scores of 64 queries and 64 keys are
 * computed, used and forgotten; a running maximum and sum of each row correct the result when the maximum
 * grows. This is the plain kernel, without tensor cores: for what cuDNN does not take, and to check it with.
 */
#include "kernels/cuda/attention_internal.h"
#include "kernels/cuda/attention_plain.h"

/* Of the thread's rows; the same in the 16 threads of a row. */
struct running_t {
    float top[AT_OWN], sum[AT_OWN];
};

/*
 * Scores of a row to weights, and what came before to the same top. exp() of what is not finite gives a NaN
 * in the row's sum: so it is seen in the result. Every row sees at least one key of every tile it comes to.
 */
static __device__ void softmax_row(const at_rules_t &rules, size_t i, size_t k0, int r, float s[AT_OWN],
                                   float y[AT_OWN], running_t &run)
{
    const size_t seen = i - k0; /* the last key of the tile that the row sees, or more */
    float        top  = -INFINITY;
    float        sum  = 0.0F;
    float        before;

#pragma unroll
    for (int c = 0; c < AT_OWN; c++) {
        s[c] *= rules.scale;
        if (threadIdx.x + AT_ACROSS * (unsigned)c <= seen) {
            top = fmaxf(top, s[c]);
        }
    }
    top    = fmaxf(run.top[r], ddp_warp_max(top, AT_ACROSS));
    before = expf(run.top[r] - top);
#pragma unroll
    for (int c = 0; c < AT_OWN; c++) {
        s[c] = threadIdx.x + AT_ACROSS * (unsigned)c <= seen ? expf(s[c] - top) : 0.0F;
        sum += s[c];
        y[c] *= before;
    }
    run.sum[r] = run.sum[r] * before + ddp_warp_sum(sum, AT_ACROSS);
    run.top[r] = top;
}

/* 33.5 KiB of shared memory; reads k and v once for every tile of queries before which they are. */
static __global__ void __launch_bounds__(AT_THREADS, 2)
    attention_kernel(ddp_attention_args_t a, at_rules_t rules)
{
    __shared__ at_room_t room;
    const at_place_t     place             = at_place(a);
    const size_t         width             = a.channels / a.heads;
    const size_t         r0                = place.tile * AT_TILE;
    const at_rows_t      q                 = at_qkv(a, place, 0);
    const at_rows_t      k                 = at_qkv(a, place, 1);
    const at_rows_t      v                 = at_qkv(a, place, 2);
    const uint64_t       row               = at_random_row(a, place);
    float                y[AT_OWN][AT_OWN] = {};
    float                s[AT_OWN][AT_OWN];
    running_t            run;

    at_draw(a, rules);
#pragma unroll
    for (int r = 0; r < AT_OWN; r++) {
        run.top[r] = -INFINITY;
        run.sum[r] = 0.0F;
    }
    for (size_t k0 = 0; k0 <= r0; k0 += AT_TILE) {
        at_dots(q, r0, k, k0, a.length, width, rules.precision, room.stage, s);
#pragma unroll
        for (int r = 0; r < AT_OWN; r++) {
            const unsigned own          = threadIdx.y * AT_OWN + (unsigned)r;
            float          keep[AT_OWN] = {1.0F, 1.0F, 1.0F, 1.0F};

            softmax_row(rules, r0 + own, k0, r, s[r], y[r], run);
            if (rules.factor > 0.0F) {
                at_keep(rules, row, r0 + own, k0, keep);
            }
#pragma unroll
            for (int c = 0; c < AT_OWN; c++) {
                room.p[own][threadIdx.x + AT_ACROSS * (unsigned)c] =
                    ddp_round(rules.precision, s[r][c] * keep[c]);
            }
        }
        at_mix<false>(room, v, k0, a.length, width, place.column, rules.precision, y);
    }
    if (a.log_sum != NULL && place.column == 0 && threadIdx.x == 0) {
        float *log_sum = a.log_sum + (place.sequence * a.heads + place.head) * a.length;

#pragma unroll
        for (int r = 0; r < AT_OWN; r++) {
            const size_t i = r0 + threadIdx.y * AT_OWN + (unsigned)r;

            if (i < a.length) {
                log_sum[i] = run.top[r] + logf(run.sum[r]);
            }
        }
    }
#pragma unroll
    for (int r = 0; r < AT_OWN; r++) {
        run.sum[r] = 1.0F / run.sum[r];
    }
    at_store(y, run.sum, a.y + at_offset_y(a, place), a.channels, r0, a.length, place.column, width, false);
}

ddp_status_t ddp_cuda_attention_plain(ddp_stream_t *stream, const ddp_attention_args_t *args)
{
    if (args->sequences * args->length > 0) {
        LAUNCH(attention_kernel, at_grid(args), at_block(), 0, ddp_cuda_stream(stream), *args,
               at_rules_of(args));
    }
    return ddp_cuda_launched(stream, "attention");
}
