/**
 * @file What the plain kernels of attention share, for .cu files. Private.
 *
 * A block of 16 x 16 threads has a tile of 64 queries by 64 keys of one head, each thread 4 rows next to each
 * other (4 ty + r) and 4 columns that are 16 apart (tx + 16 c): the four numbers of a Philox counter belong
 * to such columns. Products read their operands from shared memory, 32 columns of 64 rows at a time: a thread
 * reads 8 numbers for 16 multiplications, which is what bounds these kernels. Of rows wider than 64 a block
 * makes 64 columns of the result, so that scores are computed again for every 64.
 */
#ifndef DDP_CUDA_ATTENTION_INTERNAL_H_
#define DDP_CUDA_ATTENTION_INTERNAL_H_

#include "kernels/cuda/philox.h"
#include "kernels/cuda/precision.h"
#include "kernels/cuda/reduce.h"
#include "kernels/ops_seq.h"

#define AT_TILE    64
#define AT_ACROSS  16 /* threads; AT_ACROSS^2 in all */
#define AT_OWN     4  /* rows and columns of a thread */
#define AT_SLICE   32
#define AT_PITCH   (AT_SLICE + 1) /* neighbours in a column are in different banks */
#define AT_THREADS (AT_ACROSS * AT_ACROSS)

/* Shared memory of a block: 33.5 KiB. */
struct at_room_t {
    float stage[2 * AT_TILE * AT_PITCH];
    float p[AT_TILE][AT_TILE + 1]; /* weights, or their gradients */
};

/* Which weights are kept, and how products are rounded. */
typedef struct at_rules {
    uint64_t        stream; /* of random numbers; at_draw() */
    uint32_t        threshold;
    float           factor; /* of what is kept; 0: nothing is dropped */
    float           scale;  /* of scores */
    ddp_precision_t precision;
} at_rules_t;

/* Rows of one head. */
struct at_rows_t {
    const float *at;
    size_t       ld;
};

/* Where a block is: the head, and the columns of the result that it makes. */
struct at_place_t {
    size_t sequence, head, tile, column;
};

/** Host. */
static inline at_rules_t at_rules_of(const ddp_attention_args_t *args)
{
    at_rules_t rules = {0, 0, 0.0F, (float)(1.0 / sqrt((double)(args->channels / args->heads))),
                        args->precision};

    if (args->dropout > 0.0F) {
        rules.threshold = ddp_philox_threshold(args->dropout);
        rules.factor    = 1.0F / (1.0F - args->dropout);
    }
    return rules;
}

/** Host: x counts tiles of all heads, y columns of the result. */
static inline dim3 at_grid(const ddp_attention_args_t *args)
{
    const size_t tiles = (args->length + AT_TILE - 1) / AT_TILE;
    const size_t width = args->channels / args->heads;

    return dim3((unsigned)(args->sequences * args->heads * tiles),
                (unsigned)((width + AT_TILE - 1) / AT_TILE));
}

static inline dim3 at_block(void)
{
    return dim3(AT_ACROSS, AT_ACROSS);
}

static __device__ inline at_place_t at_place(const ddp_attention_args_t &a)
{
    const size_t tiles = (a.length + AT_TILE - 1) / AT_TILE;
    const size_t head  = blockIdx.x / tiles;

    return {head / a.heads, head % a.heads, blockIdx.x % tiles, blockIdx.y * (size_t)AT_TILE};
}

/** Part 0, 1, 2 of a matrix like qkv: q, k, v of the place's head. */
static __device__ inline size_t at_offset(const ddp_attention_args_t &a, const at_place_t &place, int part)
{
    const size_t width = a.channels / a.heads;

    return place.sequence * a.length * 3 * a.channels + (size_t)part * a.channels + place.head * width;
}

static __device__ inline at_rows_t at_qkv(const ddp_attention_args_t &a, const at_place_t &place, int part)
{
    return {a.qkv + at_offset(a, place, part), 3 * a.channels};
}

/** Of a matrix like y. */
static __device__ inline size_t at_offset_y(const ddp_attention_args_t &a, const at_place_t &place)
{
    return place.sequence * a.length * a.channels + place.head * (a.channels / a.heads);
}

/**
 * sum[r][c] = row i of `a` times row j of `b`, i and j as the threads have them, from row a0 and b0 on; rows
 * behind `length` count as zeros.
 */
static __device__ inline void at_dots(at_rows_t a, size_t a0, at_rows_t b, size_t b0, size_t length,
                                      size_t width, ddp_precision_t precision, float *stage,
                                      float sum[AT_OWN][AT_OWN])
{
    const unsigned thread = threadIdx.y * AT_ACROSS + threadIdx.x;
    float         *left   = stage;
    float         *right  = stage + AT_TILE * AT_PITCH;

#pragma unroll
    for (int r = 0; r < AT_OWN; r++) {
#pragma unroll
        for (int c = 0; c < AT_OWN; c++) {
            sum[r][c] = 0.0F;
        }
    }
    for (size_t d0 = 0; d0 < width; d0 += AT_SLICE) {
        __syncthreads(); /* what was staged before has been read */
#pragma unroll 2
        for (unsigned i = thread; i < AT_TILE * AT_SLICE; i += AT_THREADS) {
            const unsigned row = i / AT_SLICE;
            const size_t   d   = d0 + i % AT_SLICE;
            const unsigned to  = row * AT_PITCH + i % AT_SLICE;

            left[to] =
                a0 + row < length && d < width ? ddp_round(precision, a.at[(a0 + row) * a.ld + d]) : 0.0F;
            right[to] =
                b0 + row < length && d < width ? ddp_round(precision, b.at[(b0 + row) * b.ld + d]) : 0.0F;
        }
        __syncthreads();
#pragma unroll 4
        for (int d = 0; d < AT_SLICE; d++) {
            float x[AT_OWN];
            float y[AT_OWN];

#pragma unroll
            for (int r = 0; r < AT_OWN; r++) {
                x[r] = left[(threadIdx.y * AT_OWN + r) * AT_PITCH + d];
                y[r] = right[(threadIdx.x + AT_ACROSS * r) * AT_PITCH + d];
            }
#pragma unroll
            for (int r = 0; r < AT_OWN; r++) {
#pragma unroll
                for (int c = 0; c < AT_OWN; c++) {
                    sum[r][c] = fmaf(x[r], y[c], sum[r][c]);
                }
            }
        }
    }
}

/**
 * sum[r][c] += sum over l of p[i][l] (or p[l][i], if turned) * from[from0 + l][column + j]. All threads have
 * written their part of p before they call this; they may write it again after the next barrier.
 */
template <bool TURNED>
static __device__ inline void at_mix(at_room_t &room, at_rows_t from, size_t from0, size_t length,
                                     size_t width, size_t column, ddp_precision_t precision,
                                     float sum[AT_OWN][AT_OWN])
{
    const unsigned thread = threadIdx.y * AT_ACROSS + threadIdx.x;

    __syncthreads(); /* what was staged before has been read */
#pragma unroll 2
    for (unsigned i = thread; i < AT_TILE * AT_TILE; i += AT_THREADS) {
        const size_t row = from0 + i / AT_TILE;
        const size_t j   = column + i % AT_TILE;

        room.stage[i] = row < length && j < width ? ddp_round(precision, from.at[row * from.ld + j]) : 0.0F;
    }
    __syncthreads();
#pragma unroll 4
    for (int l = 0; l < AT_TILE; l++) {
        float x[AT_OWN];
        float y[AT_OWN];

#pragma unroll
        for (int r = 0; r < AT_OWN; r++) {
            const unsigned own = threadIdx.y * AT_OWN + (unsigned)r;

            x[r] = TURNED ? room.p[l][own] : room.p[own][l];
            y[r] = room.stage[l * AT_TILE + threadIdx.x + AT_ACROSS * r];
        }
#pragma unroll
        for (int r = 0; r < AT_OWN; r++) {
#pragma unroll
            for (int c = 0; c < AT_OWN; c++) {
                sum[r][c] = fmaf(x[r], y[c], sum[r][c]);
            }
        }
    }
}

/** x[c] = 0 or `factor` for the four keys of the thread in the tile of keys from k0 on, query i. */
static __device__ inline void at_keep(const at_rules_t &rules, uint64_t row, size_t i, size_t k0,
                                      float x[AT_OWN])
{
    const uint64_t counter = (k0 / DDP_PHILOX_GROUP * DDP_PHILOX_LANES + threadIdx.x) | (uint64_t)i << 32;
    const uint4    random  = ddp_philox_at(rules.stream, counter, row);
    const uint32_t word[4] = {random.x, random.y, random.z, random.w};

#pragma unroll
    for (int c = 0; c < AT_OWN; c++) {
        x[c] = ddp_philox_keeps(word[c], rules.threshold) ? rules.factor : 0.0F;
    }
}

/** What the numbers are drawn with. */
static __device__ inline void at_draw(const ddp_attention_args_t &a, at_rules_t &rules)
{
    if (rules.factor > 0.0F) {
        rules.stream = ddp_philox_stream_at(a.key, DDP_PHILOX_WEIGHTS);
    }
}

/** The upper half of the random numbers' counters: sequence and head. */
static __device__ inline uint64_t at_random_row(const ddp_attention_args_t &a, const at_place_t &place)
{
    const uint64_t first = a.dropout > 0.0F ? ddp_philox_row_at(a.key, a.first_row) : 0;

    return first + place.sequence + ((uint64_t)place.head << 48);
}

/** to[i0 + i][column + j] (+)= sum[r][c] * factor[r] */
static __device__ inline void at_store(const float sum[AT_OWN][AT_OWN], const float factor[AT_OWN], float *to,
                                       size_t ld, size_t i0, size_t length, size_t column, size_t width,
                                       bool accumulate)
{
#pragma unroll
    for (int r = 0; r < AT_OWN; r++) {
        const size_t i = i0 + threadIdx.y * AT_OWN + (unsigned)r;

#pragma unroll
        for (int c = 0; c < AT_OWN && i < length; c++) {
            const size_t j = column + threadIdx.x + AT_ACROSS * (unsigned)c;

            if (j < width) {
                const float value = sum[r][c] * factor[r];

                to[i * ld + j] = accumulate ? to[i * ld + j] + value : value;
            }
        }
    }
}

#endif
