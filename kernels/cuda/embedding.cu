/*
 * Embedding and its gradient. Tokens were wrong or not is found out first (check.h); a wrong one takes row 0
 * and gives nothing back, and the step ends with its line.
 *
 * The gradient of the table has the bits of the cpu: a row gets its contributions in the order of the tokens.
 * For that the places of each word are listed in order:
 *   count  how many places each word has; who asks gets a slot, in no order
 *   start  where a word's list begins: the sums of the counts before it, by one block
 *   list   every place goes to its slot
 *   order  and from there to the position that is its rank in its list
 * Integers only, so the atomics leave the same result whatever the schedule. The ranks are found by looking
 * at the whole list of the word: a word that is 5 % of 65536 tokens has 3277 places and costs 11 million
 * comparisons, which all threads share.
 */
#include "base/error.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/pack.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/scratch.h"

#define WARPS 8
#define SCAN  1024 /* threads of the block that adds up counts */

static __device__ bool is_word(int32_t token, size_t vocab)
{
    return token >= 0 && (size_t)token < vocab;
}

/* A warp a token. Reads 8 bytes an element (positions come from the L2 cache), writes 4. */
template <int N> static __global__ void embedding_kernel(ddp_embedding_args_t a)
{
    const size_t   row  = blockIdx.x * (size_t)WARPS + threadIdx.x / DDP_CUDA_WARP;
    const unsigned lane = threadIdx.x % DDP_CUDA_WARP;
    const float   *from;
    const float   *position;

    if (row >= a.sequences * a.length) {
        return;
    }
    from     = a.table + (is_word(a.tokens[row], a.vocab) ? (size_t)a.tokens[row] : 0) * a.width;
    position = a.positions == NULL ? NULL : a.positions + row % a.length * a.width;
    for (size_t j = lane * N; j < a.width; j += DDP_CUDA_WARP * N) {
        ddp_pack<N> v = ddp_load<N>(from + j);

        if (position != NULL) {
            const ddp_pack<N> p = ddp_load<N>(position + j);

            for (int k = 0; k < N; k++) {
                v.at[k] += p.at[k];
            }
        }
        ddp_store<N>(a.y + row * a.width + j, v);
    }
}

static ddp_status_t check_tokens(ddp_stream_t *stream, const int32_t *tokens, size_t count, size_t vocab)
{
    const ddp_cuda_check_args_t check = {tokens, count, vocab, DDP_CUDA_WRONG_TOKEN, 0};

    return ddp_cuda_check_indices(stream, &check);
}

ddp_status_t ddp_cuda_embedding(ddp_stream_t *stream, const ddp_embedding_args_t *args)
{
    const size_t   rows    = args->sequences * args->length;
    const unsigned grid    = (unsigned)((rows + WARPS - 1) / WARPS);
    const unsigned threads = WARPS * DDP_CUDA_WARP;
    ddp_status_t   status  = check_tokens(stream, args->tokens, rows, args->vocab);

    if (status != DDP_OK || rows == 0) {
        return status;
    }
    if (ddp_is_packed(args->width, args->table, args->positions, args->y)) {
        LAUNCH(embedding_kernel<4>, grid, threads, 0, ddp_cuda_stream(stream), *args);
    } else {
        LAUNCH(embedding_kernel<1>, grid, threads, 0, ddp_cuda_stream(stream), *args);
    }
    return ddp_cuda_launched(stream, "embedding");
}

/* Where each word stands, in scratch. */
typedef struct places {
    const int32_t *tokens;
    size_t         n, vocab;
    uint32_t      *count; /* [vocab] */
    uint32_t      *start; /* [vocab + 1] */
    uint32_t      *slot;  /* [n] */
    uint32_t      *list;  /* [n] in no order within a word */
    uint32_t      *order; /* [n] and in order */
} places_t;

static __global__ void clear_kernel(places_t p)
{
    DDP_CUDA_EACH(v, p.vocab)
    {
        p.count[v] = 0;
    }
}

static __global__ void count_kernel(places_t p)
{
    DDP_CUDA_EACH(i, p.n)
    {
        if (is_word(p.tokens[i], p.vocab)) {
            p.slot[i] = atomicAdd(&p.count[p.tokens[i]], 1U);
        }
    }
}

/* start[v] = the sum of count[0 .. v - 1]: one block, SCAN words at a time. 32 warps' totals are in shared
 * memory. */
static __global__ void start_kernel(places_t p)
{
    __shared__ uint32_t total[SCAN / DDP_CUDA_WARP];
    const unsigned      lane   = threadIdx.x % DDP_CUDA_WARP;
    const unsigned      warp   = threadIdx.x / DDP_CUDA_WARP;
    uint32_t            before = 0; /* in earlier groups of SCAN */

    for (size_t first = 0; first < p.vocab; first += SCAN) {
        const size_t   v   = first + threadIdx.x;
        const uint32_t own = v < p.vocab ? p.count[v] : 0;
        uint32_t       sum = own; /* of the lanes up to this one */
        uint32_t       all;

        for (unsigned by = 1; by < DDP_CUDA_WARP; by *= 2) {
            const uint32_t other = __shfl_up_sync(DDP_CUDA_FULL, sum, by);

            sum += lane >= by ? other : 0;
        }
        if (lane == DDP_CUDA_WARP - 1) {
            total[warp] = sum;
        }
        __syncthreads();
        all = total[lane]; /* as many warps as lanes */
        sum += ddp_warp_sum(lane < warp ? all : 0);
        if (v < p.vocab) {
            p.start[v] = before + sum - own;
        }
        before += ddp_warp_sum(all);
        __syncthreads(); /* all have read the totals */
    }
    if (threadIdx.x == 0) {
        p.start[p.vocab] = before;
    }
}

static __global__ void list_kernel(places_t p)
{
    DDP_CUDA_EACH(i, p.n)
    {
        if (is_word(p.tokens[i], p.vocab)) {
            p.list[p.start[p.tokens[i]] + p.slot[i]] = (uint32_t)i;
        }
    }
}

static __global__ void order_kernel(places_t p)
{
    DDP_CUDA_EACH(i, p.n)
    {
        if (is_word(p.tokens[i], p.vocab)) {
            const uint32_t first = p.start[p.tokens[i]];
            const uint32_t last  = p.start[p.tokens[i] + 1];
            uint32_t       rank  = 0;

            for (uint32_t k = first; k < last; k++) {
                rank += p.list[k] < i;
            }
            p.order[first + rank] = (uint32_t)i;
        }
    }
}

/* A warp has 32 N columns of a word. Reads dy once, and reads (if it accumulates) and writes dtable once. */
template <int N>
static __global__ void table_kernel(places_t p, const float *dy, size_t width, float *dtable, bool accumulate)
{
    const size_t v     = blockIdx.x * (size_t)WARPS + threadIdx.x / DDP_CUDA_WARP;
    const size_t j     = (blockIdx.y * (size_t)DDP_CUDA_WARP + threadIdx.x % DDP_CUDA_WARP) * N;
    ddp_pack<N>  sum   = {};
    uint32_t     first = 0;
    uint32_t     last  = 0;

    if (v >= p.vocab || j >= width) {
        return;
    }
    first = p.start[v];
    last  = p.start[v + 1];
    if (accumulate) {
        if (first == last) {
            return;
        }
        sum = ddp_load<N>(dtable + v * width + j);
    }
#pragma unroll 4
    for (uint32_t k = first; k < last; k++) {
        const ddp_pack<N> d = ddp_load<N>(dy + p.order[k] * width + j);

        for (int e = 0; e < N; e++) {
            sum.at[e] += d.at[e];
        }
    }
    ddp_store<N>(dtable + v * width + j, sum);
}

/* A thread an element of a row; rows behind the sequences become 0. Reads dy once. */
static __global__ void positions_kernel(ddp_embedding_backward_args_t a)
{
    DDP_CUDA_EACH(i, (a.accumulate_positions ? a.length : a.n_positions) * a.width)
    {
        float sum = a.accumulate_positions ? a.dpositions[i] : 0.0F;

        for (size_t s = 0; s < a.sequences && i < a.length * a.width; s++) {
            sum += a.dy[s * a.length * a.width + i];
        }
        a.dpositions[i] = sum;
    }
}

static size_t places_bytes(size_t vocab, size_t n)
{
    return (2 * vocab + 1 + 3 * n) * sizeof(uint32_t);
}

size_t ddp_cuda_embedding_backward_scratch(const ddp_embedding_backward_args_t *args)
{
    return places_bytes(args->vocab, args->sequences * args->length);
}

/* Fill `p`. @return DDP_ERR_INVALID_ARG: too many tokens for 32-bit places */
static ddp_status_t find_places(ddp_stream_t *stream, places_t *p)
{
    cudaStream_t native = ddp_cuda_stream(stream);
    ddp_status_t status = DDP_OK;
    void        *memory = NULL;

    DDP_REQUIRE(p->n < UINT32_MAX, DDP_ERR_INVALID_ARG, "embedding backward: %zu tokens at once are too many",
                p->n);
    DDP_TRY(ddp_cuda_scratch(stream, DDP_CUDA_SCRATCH_OP, places_bytes(p->vocab, p->n), &memory));
    p->count = static_cast<uint32_t *>(memory);
    p->start = p->count + p->vocab;
    p->slot  = p->start + p->vocab + 1;
    p->list  = p->slot + p->n;
    p->order = p->list + p->n;
    LAUNCH(clear_kernel, ddp_cuda_blocks(stream, p->vocab), DDP_CUDA_THREADS, 0, native, *p);
    LAUNCH(count_kernel, ddp_cuda_blocks(stream, p->n), DDP_CUDA_THREADS, 0, native, *p);
    LAUNCH(start_kernel, 1, SCAN, 0, native, *p);
    LAUNCH(list_kernel, ddp_cuda_blocks(stream, p->n), DDP_CUDA_THREADS, 0, native, *p);
    LAUNCH(order_kernel, ddp_cuda_blocks(stream, p->n), DDP_CUDA_THREADS, 0, native, *p);
    status = ddp_cuda_launched(stream, "embedding backward");
out:
    return status;
}

static ddp_status_t table_gradient(ddp_stream_t *stream, const ddp_embedding_backward_args_t *args)
{
    const size_t   n      = args->sequences * args->length;
    places_t       places = {args->tokens, n, args->vocab, NULL, NULL, NULL, NULL, NULL};
    ddp_status_t   status = find_places(stream, &places);
    const bool     packed = ddp_is_packed(args->width, args->dy, (const float *)args->dtable);
    const size_t   across = (size_t)DDP_CUDA_WARP * (packed ? 4 : 1);
    const dim3     grid((unsigned)((args->vocab + WARPS - 1) / WARPS),
                        (unsigned)((args->width + across - 1) / across));
    const unsigned threads = WARPS * DDP_CUDA_WARP;

    if (status != DDP_OK) {
        return status;
    }
    if (packed) {
        LAUNCH(table_kernel<4>, grid, threads, 0, ddp_cuda_stream(stream), places, args->dy, args->width,
               args->dtable, args->accumulate_table);
    } else {
        LAUNCH(table_kernel<1>, grid, threads, 0, ddp_cuda_stream(stream), places, args->dy, args->width,
               args->dtable, args->accumulate_table);
    }
    return ddp_cuda_launched(stream, "embedding backward");
}

ddp_status_t ddp_cuda_embedding_backward(ddp_stream_t *stream, const ddp_embedding_backward_args_t *args)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(check_tokens(stream, args->tokens, args->sequences * args->length, args->vocab));
    if (args->dtable != NULL && args->vocab > 0 && args->width > 0) {
        DDP_TRY(table_gradient(stream, args));
    }
    if (args->dpositions != NULL) {
        LAUNCH(positions_kernel, ddp_cuda_blocks(stream, args->n_positions * args->width), DDP_CUDA_THREADS,
               0, ddp_cuda_stream(stream), *args);
        DDP_TRY(ddp_cuda_launched(stream, "embedding backward"));
    }
out:
    return status;
}
