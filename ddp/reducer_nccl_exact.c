/*
 * The exact sum over ranks with a GPU each: every rank sends the open subtrees of its micro-batches to the
 * owner of a slice, who sums them in the order of the one tree that all numbers of ranks share.
 */
#include <stdlib.h>

#include "base/convert.h"
#include "base/error.h"
#include "ddp/reducer_nccl_internal.h"

static ddp_status_t make_host_tables(ddp_reducer_t *r, size_t most)
{
    ddp_status_t      status = DDP_OK;
    ddp_nccl_exact_t *sum    = &r->nccl->sum;
    void             *memory = NULL;

    sum->arena   = calloc(DDP_MAX_NODES, sizeof(*sum->arena));
    sum->of_rank = calloc((size_t)r->size, sizeof(*sum->of_rank));
    sum->level   = calloc(most, sizeof(*sum->level));
    sum->index   = calloc(most, sizeof(*sum->index));
    DDP_REQUIRE(sum->arena != NULL && sum->of_rank != NULL && sum->level != NULL && sum->index != NULL,
                DDP_ERR_NO_MEMORY, "no memory for the reduction plan");
    DDP_TRY(ddp_nccl_host_memory(r, "the reduction plan", 2 * most * sizeof(*sum->h_op), &memory));
    sum->h_op = memory;
    DDP_TRY(ddp_nccl_host_memory(r, "the reduction plan", most * sizeof(*sum->h_sources), &memory));
    sum->h_sources = memory;
out:
    return status;
}

ddp_status_t ddp_nccl_exact_create(ddp_reducer_t *r)
{
    ddp_status_t      status = DDP_OK;
    ddp_nccl_path_t  *path   = r->nccl;
    ddp_nccl_exact_t *sum    = &path->sum;
    void             *memory = NULL;

    DDP_TRY(make_host_tables(r, path->sizes.n_sources));
    DDP_TRY(ddp_nccl_device_memory(r, "the reduction plan", path->sizes.op, &memory));
    sum->op = memory;
    DDP_TRY(ddp_nccl_device_memory(r, "the reduction plan", path->sizes.sources, &memory));
    sum->sources = memory;
    if (path->sizes.received > 0) {
        DDP_TRY(ddp_nccl_acquire(path->nccl, r->compute,
                                 "partial sums of other ranks (ddp.reduction fast needs none)",
                                 path->sizes.received, &memory));
        sum->received = memory;
    }
out:
    return status;
}

void ddp_nccl_exact_destroy(ddp_reducer_t *r)
{
    free(r->nccl->sum.arena);
    free(r->nccl->sum.of_rank);
    free(r->nccl->sum.level);
    free(r->nccl->sum.index);
}

static void list_sources(ddp_reducer_t *r)
{
    ddp_nccl_exact_t *sum = &r->nccl->sum;
    ddp_stack_t       stack;

    sum->n_sources = sum->n_received = sum->n_own = 0;
    for (int q = 0; q < r->size; q++) {
        const size_t n = ddp_nccl_subtrees(r, r->present, q, &stack);

        sum->of_rank[q] = (uint32_t)n;
        for (size_t i = 0; i < n; i++) {
            const bool     is_own = q == r->rank;
            const uint32_t at     = is_own ? stack.node[i].arena : (uint32_t)sum->n_received++;

            if (is_own) {
                sum->arena[sum->n_own++] = at;
            }
            sum->level[sum->n_sources]       = stack.node[i].level;
            sum->index[sum->n_sources]       = stack.node[i].index;
            sum->h_sources[sum->n_sources++] = (ddp_cuda_source_t){!is_own, at, (uint32_t)q};
        }
    }
}

ddp_status_t ddp_nccl_exact_plan(ddp_reducer_t *r)
{
    ddp_status_t      status = DDP_OK;
    ddp_nccl_exact_t *sum    = &r->nccl->sum;

    list_sources(r);
    DDP_TRY(
        ddp_tree_program_make(r->present, sum->level, sum->index, sum->n_sources, sum->h_op, &sum->length));
    DDP_TRY(ddp_stream_copy(r->nccl->comm, sum->op, sum->h_op, sum->length * sizeof(*sum->op)));
    DDP_TRY(
        ddp_stream_copy(r->nccl->comm, sum->sources, sum->h_sources, sum->n_sources * sizeof(*sum->sources)));
out:
    return status;
}

/* Blocks [first, first + blocks) of this rank's arenas to `to`. */
static ddp_status_t send_to(ddp_reducer_t *r, size_t first, size_t blocks, int to)
{
    ddp_status_t            status = DDP_OK;
    const ddp_nccl_exact_t *sum    = &r->nccl->sum;

    for (size_t i = 0; i < sum->n_own && blocks > 0; i++) {
        DDP_TRY(ddp_nccl_send(r->nccl->nccl, r->nccl->comm,
                              r->grads_base + sum->arena[i] * r->total + first * DDP_BLOCK,
                              blocks * DDP_BLOCK, to));
    }
out:
    return status;
}

/* As many blocks of each of the sources of `from`, whose first is received source `index`. */
static ddp_status_t receive_from(ddp_reducer_t *r, float *base, size_t blocks, int from, size_t index)
{
    ddp_status_t            status = DDP_OK;
    const ddp_nccl_exact_t *sum    = &r->nccl->sum;

    for (size_t i = 0; i < sum->of_rank[from] && blocks > 0; i++) {
        DDP_TRY(ddp_nccl_receive(r->nccl->nccl, r->nccl->comm, base + (index + i) * blocks * DDP_BLOCK,
                                 blocks * DDP_BLOCK, from));
    }
out:
    return status;
}

static float *received_rest(const ddp_reducer_t *r, const ddp_nccl_range_t *range)
{
    return r->nccl->sum.received + r->nccl->sum.n_received * range->slice * DDP_BLOCK;
}

/* Everybody sums the rest, so everybody gets it. */
static ddp_status_t exchange(ddp_reducer_t *r, const ddp_nccl_range_t *range)
{
    ddp_status_t      status = DDP_OK;
    ddp_nccl_exact_t *sum    = &r->nccl->sum;
    size_t            index  = 0;

    DDP_TRY(ddp_nccl_group_start(r->nccl->nccl));
    for (int q = 0; q < r->size; q++) {
        if (q == r->rank) {
            continue;
        }
        DDP_TRY(send_to(r, range->first + (size_t)q * range->slice, range->slice, q));
        DDP_TRY(send_to(r, range->rest, range->rest_blocks, q));
        DDP_TRY(receive_from(r, sum->received, range->slice, q, index));
        if (range->rest_blocks > 0) {
            DDP_TRY(receive_from(r, received_rest(r, range), range->rest_blocks, q, index));
        }
        index += sum->of_rank[q];
    }
    DDP_TRY(ddp_nccl_group_end(r->nccl->nccl));
out:
    return status;
}

/* Into the first arena. */
static ddp_status_t sum_range(ddp_reducer_t *r, size_t first, size_t blocks, const float *received)
{
    const ddp_nccl_path_t     *path = r->nccl;
    const ddp_cuda_tree_args_t args = {
        .op              = path->sum.op,
        .length          = path->sum.length,
        .source          = path->sum.sources,
        .arenas          = r->grads_base + first * DDP_BLOCK,
        .received        = received,
        .arena_stride    = r->total,
        .received_stride = blocks * DDP_BLOCK,
        .rank_scale      = r->params.average == DDP_AVERAGE_RANKS ? path->rank_scale : NULL,
        .tensors         = path->tensors,
        .first_block     = first,
        .blocks          = blocks,
        .to              = r->grads_base + first * DDP_BLOCK,
    };

    return blocks > 0 ? ddp_cuda_tree_sum(path->comm, &args) : DDP_OK;
}

ddp_status_t ddp_nccl_exact_reduce(ddp_reducer_t *r, size_t b)
{
    ddp_status_t            status = DDP_OK;
    ddp_nccl_path_t        *path   = r->nccl;
    const ddp_nccl_range_t *range  = &path->ranges[b];

    if (r->size > 1) {
        DDP_TRY(exchange(r, range));
    }
    DDP_TRY(sum_range(r, range->own, range->slice, path->sum.received));
    DDP_TRY(sum_range(r, range->rest, range->rest_blocks,
                      range->rest_blocks > 0 && path->sum.received != NULL ? received_rest(r, range) : NULL));
    if (!path->shard && r->size > 1 && range->slice > 0) {
        DDP_TRY(ddp_nccl_all_gather(path->nccl, path->comm, r->grads_base + range->first * DDP_BLOCK,
                                    range->slice * DDP_BLOCK, ncclFloat32));
    }
out:
    return status;
}
