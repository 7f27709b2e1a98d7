/*
 * The gradient of attention in two kernels, so that every number is added up by one thread in one order: one
 * has a tile of queries and makes dq, one a tile of keys and makes dk and dv. Both compute the scores again
 * from the rows' log_sum (Dao et al. 2022, arXiv 2205.14135, algorithm 4).
 */
#include "kernels/cuda/attention_internal.h"
#include "kernels/cuda/attention_plain.h"

/* Where a block's head is. Few numbers: the rest is read from the kernel's arguments when it is needed. */
struct backward_t {
    size_t   qkv, y, log_sum; /* offsets */
    uint64_t random_row;
};

static __device__ backward_t backward_at(const ddp_attention_args_t &a)
{
    const at_place_t place = at_place(a);

    return {at_offset(a, place, 0), at_offset_y(a, place), (place.sequence * a.heads + place.head) * a.length,
            at_random_row(a, place)};
}

/* Part 0, 1, 2: q, k, v. */
static __device__ at_rows_t qkv_rows(const ddp_attention_args_t &a, const backward_t &b, int part)
{
    return {a.qkv + b.qkv + (size_t)part * a.channels, 3 * a.channels};
}

/* delta[r] = sum over the head's columns of y * dy, what every score of the row loses; by 16 threads a row.
 */
static __device__ void deltas(const ddp_attention_backward_args_t &args, const backward_t &b, size_t r0,
                              float delta[AT_OWN])
{
    const ddp_attention_args_t &a     = args.forward;
    const size_t                width = a.channels / a.heads;

#pragma unroll
    for (int r = 0; r < AT_OWN; r++) {
        const size_t i   = r0 + threadIdx.y * AT_OWN + (unsigned)r;
        float        sum = 0.0F;

        for (size_t d = threadIdx.x; d < width && i < a.length; d += AT_ACROSS) {
            sum = fmaf(a.y[b.y + i * a.channels + d], args.dy[b.y + i * a.channels + d], sum);
        }
        delta[r] = ddp_warp_sum(sum, AT_ACROSS);
    }
}

/* How many keys of the tile query i sees; none if there is no such query. */
static __device__ unsigned keys_seen(size_t length, size_t i, size_t k0)
{
    return i >= length ? 0 : i - k0 < AT_TILE ? (unsigned)(i - k0) + 1 : AT_TILE;
}

/*
 * One tile: its weights (0 where dropped) to room.p, and ds the gradients of q k. Keys that a row does not
 * see, and rows behind the last, have 0. Before they are dropped the weights wait in room.p too, each
 * thread's own: in registers they would be too many.
 */
static __device__ void weights(const ddp_attention_backward_args_t &args, const backward_t &b,
                               const at_rules_t &rules, size_t r0, size_t k0, const float delta[AT_OWN],
                               at_room_t &room, float ds[AT_OWN][AT_OWN])
{
    const ddp_attention_args_t &a     = args.forward;
    const size_t                width = a.channels / a.heads;
    const size_t                first = r0 + threadIdx.y * AT_OWN;

    at_dots(qkv_rows(a, b, 0), r0, qkv_rows(a, b, 1), k0, a.length, width, rules.precision, room.stage, ds);
#pragma unroll
    for (int r = 0; r < AT_OWN; r++) {
        const unsigned seen    = keys_seen(a.length, first + (unsigned)r, k0);
        const float    log_sum = seen > 0 ? a.log_sum[b.log_sum + first + (unsigned)r] : 0.0F;

#pragma unroll
        for (int c = 0; c < AT_OWN; c++) {
            room.p[threadIdx.y * AT_OWN + r][threadIdx.x + AT_ACROSS * c] =
                threadIdx.x + AT_ACROSS * (unsigned)c < seen ? expf(ds[r][c] * rules.scale - log_sum) : 0.0F;
        }
    }
    at_dots({args.dy + b.y, a.channels}, r0, qkv_rows(a, b, 2), k0, a.length, width, rules.precision,
            room.stage, ds);
#pragma unroll
    for (int r = 0; r < AT_OWN; r++) {
        const unsigned seen         = keys_seen(a.length, first + (unsigned)r, k0);
        float          keep[AT_OWN] = {1.0F, 1.0F, 1.0F, 1.0F};

        if (rules.factor > 0.0F) {
            at_keep(rules, b.random_row, first + (unsigned)r, k0, keep);
        }
#pragma unroll
        for (int c = 0; c < AT_OWN; c++) {
            float      *p      = &room.p[threadIdx.y * AT_OWN + r][threadIdx.x + AT_ACROSS * c];
            const float weight = *p;

            ds[r][c] = threadIdx.x + AT_ACROSS * (unsigned)c < seen
                           ? weight * (ds[r][c] * keep[c] - delta[r]) * rules.scale
                           : 0.0F;
            *p       = ddp_round(rules.precision, weight * keep[c]);
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

/* Of a block of dq_kernel() or dkv_kernel(): the first row, and column, of what it makes. */
static __device__ size_t first_row(const ddp_attention_args_t &a)
{
    return at_place(a).tile * AT_TILE;
}

static __device__ size_t first_column(void)
{
    return blockIdx.y * (size_t)AT_TILE;
}

/* What a block has made of part 0, 1 or 2: dq, dk, dv. */
static __device__ void store(const ddp_attention_backward_args_t &args, const backward_t &b, int part,
                             size_t i0, const float sum[AT_OWN][AT_OWN])
{
    const ddp_attention_args_t &a            = args.forward;
    const float                 ones[AT_OWN] = {1.0F, 1.0F, 1.0F, 1.0F};

    at_store(sum, ones, args.dqkv + b.qkv + (size_t)part * a.channels, 3 * a.channels, i0, a.length,
             first_column(), a.channels / a.heads, args.accumulate);
}

/* 33.5 KiB of shared memory. */
static __global__ void __launch_bounds__(AT_THREADS, 2)
    dq_kernel(ddp_attention_backward_args_t args, at_rules_t rules)
{
    __shared__ at_room_t        room;
    const ddp_attention_args_t &a                  = args.forward;
    const backward_t            b                  = backward_at(a);
    const size_t                width              = a.channels / a.heads;
    const size_t                r0                 = first_row(a);
    float                       dq[AT_OWN][AT_OWN] = {};
    float                       delta[AT_OWN];
    float                       ds[AT_OWN][AT_OWN];

    at_draw(a, rules);
    deltas(args, b, r0, delta);
    for (size_t k0 = 0; k0 <= r0; k0 += AT_TILE) {
        weights(args, b, rules, r0, k0, delta, room, ds);
        put_tile(room, rules.precision, ds);
        at_mix<false>(room, qkv_rows(a, b, 1), k0, a.length, width, first_column(), rules.precision, dq);
    }
    store(args, b, 0, r0, dq);
}

/* 33.5 KiB of shared memory. */
static __global__ void __launch_bounds__(AT_THREADS, 2)
    dkv_kernel(ddp_attention_backward_args_t args, at_rules_t rules)
{
    __shared__ at_room_t        room;
    const ddp_attention_args_t &a                  = args.forward;
    const backward_t            b                  = backward_at(a);
    const size_t                width              = a.channels / a.heads;
    const size_t                k0                 = first_row(a);
    float                       dk[AT_OWN][AT_OWN] = {};
    float                       dv[AT_OWN][AT_OWN] = {};
    float                       delta[AT_OWN];
    float                       ds[AT_OWN][AT_OWN];

    at_draw(a, rules);
    for (size_t r0 = k0; r0 < a.length; r0 += AT_TILE) {
        deltas(args, b, r0, delta);
        weights(args, b, rules, r0, k0, delta, room, ds);
        at_mix<true>(room, {args.dy + b.y, a.channels}, r0, a.length, width, first_column(), rules.precision,
                     dv);
        __syncthreads(); /* the weights have been read */
        put_tile(room, rules.precision, ds);
        at_mix<true>(room, qkv_rows(a, b, 0), r0, a.length, width, first_column(), rules.precision, dk);
    }
    store(args, b, 1, k0, dk);
    store(args, b, 2, k0, dv);
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
