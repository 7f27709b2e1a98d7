/*
 * The gradient of attention in two kernels, so that every number is added up by one thread in one order: one
 * has a tile of queries and makes dq, one a tile of keys and makes dk and dv. Both compute the scores again
 * from the rows' log_sum (Dao et al. 2022, arXiv 2205.14135, algorithm 4).
 */
#include "kernels/cuda/attention_internal.h"
#include "kernels/cuda/attention_plain.h"

/* What both kernels know of their head. */
struct backward_t {
    at_place_t   place;
    at_rows_t    q, k, v, y, dy;
    const float *log_sum;
    size_t       length, width;
    uint64_t     random_row;
};

static __device__ backward_t backward_at(const ddp_attention_backward_args_t &args)
{
    const ddp_attention_args_t &a     = args.forward;
    const at_place_t            place = at_place(a);

    return {place,
            at_qkv(a, place, 0),
            at_qkv(a, place, 1),
            at_qkv(a, place, 2),
            {a.y + at_offset_y(a, place), a.channels},
            {args.dy + at_offset_y(a, place), a.channels},
            a.log_sum + (place.sequence * a.heads + place.head) * a.length,
            a.length,
            a.channels / a.heads,
            at_random_row(a, place)};
}

/* delta[r] = sum over the head's columns of y * dy, what every score of the row loses; by 16 threads a row.
 */
static __device__ void deltas(const backward_t &b, size_t r0, float delta[AT_OWN])
{
#pragma unroll
    for (int r = 0; r < AT_OWN; r++) {
        const size_t i   = r0 + threadIdx.y * AT_OWN + (unsigned)r;
        float        sum = 0.0F;

        for (size_t d = threadIdx.x; d < b.width && i < b.length; d += AT_ACROSS) {
            sum = fmaf(b.y.at[i * b.y.ld + d], b.dy.at[i * b.dy.ld + d], sum);
        }
        delta[r] = ddp_warp_sum(sum, AT_ACROSS);
    }
}

/*
 * One tile: p the weights (with what is dropped 0), ds the gradients of q k. Keys that a row does not see,
 * and rows behind the last, have 0.
 */
static __device__ void weights(const backward_t &b, const at_rules_t &rules, size_t r0, size_t k0,
                               const float delta[AT_OWN], float *stage, float p[AT_OWN][AT_OWN],
                               float ds[AT_OWN][AT_OWN])
{
    at_dots(b.q, r0, b.k, k0, b.length, b.width, rules.precision, stage, p);
    at_dots(b.dy, r0, b.v, k0, b.length, b.width, rules.precision, stage, ds);
#pragma unroll
    for (int r = 0; r < AT_OWN; r++) {
        const size_t i            = r0 + threadIdx.y * AT_OWN + (unsigned)r;
        const float  log_sum      = i < b.length ? b.log_sum[i] : 0.0F;
        float        keep[AT_OWN] = {1.0F, 1.0F, 1.0F, 1.0F};

        if (rules.factor > 0.0F) {
            at_keep(rules, b.random_row, i, k0, keep);
        }
#pragma unroll
        for (int c = 0; c < AT_OWN; c++) {
            const size_t j      = k0 + threadIdx.x + AT_ACROSS * (unsigned)c;
            const bool   seen   = i < b.length && j <= i;
            const float  weight = seen ? expf(p[r][c] * rules.scale - log_sum) : 0.0F;

            ds[r][c] = seen ? weight * (ds[r][c] * keep[c] - delta[r]) * rules.scale : 0.0F;
            p[r][c]  = weight * keep[c];
        }
    }
}

static __device__ void put_tile(at_room_t &room, ddp_precision_t precision, const float x[AT_OWN][AT_OWN])
{
#pragma unroll
    for (int r = 0; r < AT_OWN; r++) {
#pragma unroll
        for (int c = 0; c < AT_OWN; c++) {
            room.p[threadIdx.y * AT_OWN + r][threadIdx.x + AT_ACROSS * c] = ddp_round(precision, x[r][c]);
        }
    }
}

/* 33.5 KiB of shared memory. */
static __global__ void __launch_bounds__(AT_THREADS)
    dq_kernel(ddp_attention_backward_args_t args, at_rules_t rules)
{
    __shared__ at_room_t room;
    const backward_t     b                  = backward_at(args);
    const size_t         r0                 = b.place.tile * AT_TILE;
    const float          ones[AT_OWN]       = {1.0F, 1.0F, 1.0F, 1.0F};
    float                dq[AT_OWN][AT_OWN] = {};
    float                delta[AT_OWN];
    float                p[AT_OWN][AT_OWN];
    float                ds[AT_OWN][AT_OWN];

    deltas(b, r0, delta);
    for (size_t k0 = 0; k0 <= r0; k0 += AT_TILE) {
        weights(b, rules, r0, k0, delta, room.stage, p, ds);
        put_tile(room, rules.precision, ds);
        at_mix<false>(room, b.k, k0, b.length, b.width, b.place.column, rules.precision, dq);
    }
    at_store(dq, ones, args.dqkv + at_offset(args.forward, b.place, 0), 3 * args.forward.channels, r0,
             b.length, b.place.column, b.width, args.accumulate);
}

/* 33.5 KiB of shared memory. */
static __global__ void __launch_bounds__(AT_THREADS)
    dkv_kernel(ddp_attention_backward_args_t args, at_rules_t rules)
{
    __shared__ at_room_t room;
    const backward_t     b                  = backward_at(args);
    const size_t         k0                 = b.place.tile * AT_TILE;
    const float          ones[AT_OWN]       = {1.0F, 1.0F, 1.0F, 1.0F};
    float                dk[AT_OWN][AT_OWN] = {};
    float                dv[AT_OWN][AT_OWN] = {};
    float                delta[AT_OWN];
    float                p[AT_OWN][AT_OWN];
    float                ds[AT_OWN][AT_OWN];

    for (size_t r0 = k0; r0 < b.length; r0 += AT_TILE) {
        deltas(b, r0, delta);
        weights(b, rules, r0, k0, delta, room.stage, p, ds);
        put_tile(room, rules.precision, p);
        at_mix<true>(room, b.dy, r0, b.length, b.width, b.place.column, rules.precision, dv);
        __syncthreads(); /* the weights have been read */
        put_tile(room, rules.precision, ds);
        at_mix<true>(room, b.q, r0, b.length, b.width, b.place.column, rules.precision, dk);
    }
    at_store(dk, ones, args.dqkv + at_offset(args.forward, b.place, 1), 3 * args.forward.channels, k0,
             b.length, b.place.column, b.width, args.accumulate);
    at_store(dv, ones, args.dqkv + at_offset(args.forward, b.place, 2), 3 * args.forward.channels, k0,
             b.length, b.place.column, b.width, args.accumulate);
}

ddp_status_t ddp_cuda_attention_backward_plain(ddp_stream_t                        *stream,
                                               const ddp_attention_backward_args_t *args)
{
    const ddp_attention_args_t *forward = &args->forward;

    if (forward->sequences * forward->length > 0) {
        const at_rules_t rules = at_rules_of(forward);

        LAUNCH(dq_kernel, at_grid(forward), at_block(), 0, ddp_cuda_stream(stream), *args, rules);
        LAUNCH(dkv_kernel, at_grid(forward), at_block(), 0, ddp_cuda_stream(stream), *args, rules);
    }
    return ddp_cuda_launched(stream, "attention backward");
}
