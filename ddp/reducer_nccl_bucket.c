/* One bucket, in order of the comm stream: sum it over the ranks, update what this rank updates, and with
 * shard gather the parameters. */
#include "base/error.h"
#include "ddp/reducer_nccl_internal.h"

/* Back to float32. What came not finite is counted by one rank: in a slice by its owner, in the rest by the
 * last one, whose slice ends where the rest begins. */
static ddp_status_t widen(ddp_reducer_t *r, const ddp_nccl_range_t *range, size_t first, size_t blocks)
{
    const ddp_nccl_path_t *path = r->nccl;
    const size_t           at   = (first - range->first) * DDP_BLOCK;
    const size_t end   = range->own + range->slice + (r->rank == r->size - 1 ? range->rest_blocks : 0);
    const size_t begin = range->own > first ? range->own : first;
    const size_t stop  = end < first + blocks ? end : first + blocks;
    const ddp_cuda_from_bf16_args_t args = {
        .x             = path->wire + at,
        .y             = r->grads_base + first * DDP_BLOCK,
        .blocks        = blocks,
        .first_counted = begin - first,
        .counted       = stop > begin ? stop - begin : 0,
        .overflows     = &path->end->overflows,
    };

    return ddp_cuda_from_bf16(path->comm, &args);
}

/* In the library's order, through bfloat16. Without shard all of the bucket; else the own slice and the rest.
 */
static ddp_status_t reduce_wire(ddp_reducer_t *r, const ddp_nccl_range_t *range)
{
    ddp_status_t     status = DDP_OK;
    ddp_nccl_path_t *path   = r->nccl;
    float           *bucket = r->grads_base + range->first * DDP_BLOCK;
    const size_t     rest   = (range->rest - range->first) * DDP_BLOCK;

    DDP_TRY(ddp_cuda_to_bf16(path->comm, bucket, path->wire, range->blocks, &path->end->overflows));
    if (!path->shard) {
        DDP_TRY(ddp_nccl_all_reduce(path->nccl, path->comm, path->wire, range->blocks * DDP_BLOCK,
                                    ncclBfloat16, ncclSum));
        return widen(r, range, range->first, range->blocks);
    }
    DDP_TRY(ddp_nccl_group_start(path->nccl));
    if (range->slice > 0) {
        DDP_TRY(ddp_nccl_reduce_scatter(path->nccl, path->comm, path->wire, range->slice * DDP_BLOCK,
                                        ncclBfloat16));
    }
    if (range->rest_blocks > 0) {
        DDP_TRY(ddp_nccl_all_reduce(path->nccl, path->comm, path->wire + rest, range->rest_blocks * DDP_BLOCK,
                                    ncclBfloat16, ncclSum));
    }
    DDP_TRY(ddp_nccl_group_end(path->nccl));
    DDP_TRY(widen(r, range, range->own, range->slice));
    DDP_TRY(widen(r, range, range->rest, range->rest_blocks));
out:
    return status;
}

static ddp_status_t reduce_float(ddp_reducer_t *r, const ddp_nccl_range_t *range)
{
    ddp_status_t     status = DDP_OK;
    ddp_nccl_path_t *path   = r->nccl;
    float           *bucket = r->grads_base + range->first * DDP_BLOCK;

    if (!path->shard) {
        return ddp_nccl_all_reduce(path->nccl, path->comm, bucket, range->blocks * DDP_BLOCK, ncclFloat32,
                                   ncclSum);
    }
    DDP_TRY(ddp_nccl_group_start(path->nccl));
    if (range->slice > 0) {
        DDP_TRY(
            ddp_nccl_reduce_scatter(path->nccl, path->comm, bucket, range->slice * DDP_BLOCK, ncclFloat32));
    }
    if (range->rest_blocks > 0) {
        DDP_TRY(ddp_nccl_all_reduce(path->nccl, path->comm, r->grads_base + range->rest * DDP_BLOCK,
                                    range->rest_blocks * DDP_BLOCK, ncclFloat32, ncclSum));
    }
    DDP_TRY(ddp_nccl_group_end(path->nccl));
out:
    return status;
}

static ddp_status_t scale_own(ddp_reducer_t *r, const ddp_nccl_range_t *range)
{
    const ddp_nccl_path_t      *path = r->nccl;
    const ddp_cuda_scale_args_t args = {
        .tensors     = path->tensors,
        .rank_scale  = path->rank_scale,
        .rank        = (size_t)r->rank,
        .first_block = range->first,
        .blocks      = range->blocks,
        .x           = r->grads_base + range->first * DDP_BLOCK,
    };

    return ddp_cuda_scale_blocks(path->comm, &args);
}

ddp_status_t ddp_nccl_bucket_reduce(ddp_reducer_t *r, size_t b)
{
    ddp_status_t            status = DDP_OK;
    ddp_nccl_path_t        *path   = r->nccl;
    const ddp_nccl_range_t *range  = &path->ranges[b];

    if (path->exact) {
        return ddp_nccl_exact_reduce(r, b);
    }
    if (r->first_leaf >= r->present) { /* no micro-batch of this rank has samples */
        DDP_TRY(ddp_op_fill(path->comm, r->grads_base + range->first * DDP_BLOCK, range->blocks * DDP_BLOCK,
                            0.0F));
    } else if (r->params.average == DDP_AVERAGE_RANKS) {
        DDP_TRY(scale_own(r, range));
    }
    if (r->size > 1) {
        DDP_TRY(path->wire != NULL ? reduce_wire(r, range) : reduce_float(r, range));
    }
out:
    return status;
}

/* Blocks [first, first + blocks); their moments begin at block `moment` of the arenas. */
static ddp_status_t update_range(ddp_reducer_t *r, size_t first, size_t blocks, size_t moment)
{
    const ddp_nccl_path_t *path = r->nccl;
    ddp_cuda_update_args_t args = {
        .config      = &r->params.optim,
        .tensors     = path->tensors,
        .coef        = path->coef,
        .first_block = first,
        .blocks      = blocks,
        .grad        = r->grads_base + first * DDP_BLOCK,
        .value       = r->values + first * DDP_BLOCK,
        .sumsq       = r->wants_norm && !r->two_phase ? path->sumsq + first : NULL,
        .broken      = &path->end->broken,
    };

    for (size_t s = 0; s < 2; s++) {
        args.slot[s] = r->slots[s] == NULL ? NULL : r->slots[s] + moment * DDP_BLOCK;
    }
    return blocks > 0 ? ddp_cuda_update(path->comm, &args) : DDP_OK;
}

ddp_status_t ddp_nccl_bucket_update(ddp_reducer_t *r, size_t b)
{
    ddp_status_t            status = DDP_OK;
    ddp_nccl_path_t        *path   = r->nccl;
    const ddp_nccl_range_t *range  = &path->ranges[b];

    if (!path->shard) {
        return update_range(r, range->first, range->blocks, range->first);
    }
    DDP_TRY(update_range(r, range->own, range->slice, range->shard));
    DDP_TRY(update_range(r, range->rest, range->rest_blocks, range->shard + range->slice));
    if (r->size > 1 && range->slice > 0) {
        DDP_TRY(ddp_nccl_all_gather(path->nccl, path->comm, r->values + range->first * DDP_BLOCK,
                                    range->slice * DDP_BLOCK, ncclFloat32));
    }
out:
    return status;
}

static ddp_status_t sumsq_range(ddp_reducer_t *r, size_t first, size_t blocks)
{
    return blocks > 0 ? ddp_cuda_block_sumsq(r->nccl->comm, r->grads_base + first * DDP_BLOCK,
                                             r->nccl->sumsq + first, blocks)
                      : DDP_OK;
}

ddp_status_t ddp_nccl_bucket_sumsq(ddp_reducer_t *r, size_t b)
{
    ddp_status_t            status = DDP_OK;
    const ddp_nccl_range_t *range  = &r->nccl->ranges[b];

    if (!r->nccl->shard) {
        return sumsq_range(r, range->first, range->blocks);
    }
    DDP_TRY(sumsq_range(r, range->own, range->slice));
    DDP_TRY(sumsq_range(r, range->rest, range->rest_blocks));
out:
    return status;
}

ddp_status_t ddp_nccl_gather_sumsq(ddp_reducer_t *r)
{
    ddp_status_t     status = DDP_OK;
    ddp_nccl_path_t *path   = r->nccl;

    if (!path->shard || r->size == 1) {
        return DDP_OK;
    }
    DDP_TRY(ddp_nccl_group_start(path->nccl));
    for (size_t b = 0; b < r->n_buckets; b++) {
        if (path->ranges[b].slice > 0) {
            DDP_TRY(ddp_nccl_all_gather(path->nccl, path->comm, path->sumsq + path->ranges[b].first,
                                        path->ranges[b].slice, ncclFloat64));
        }
    }
    DDP_TRY(ddp_nccl_group_end(path->nccl));
out:
    return status;
}
