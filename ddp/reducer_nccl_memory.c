/* Memory of the `nccl` path: arenas and tables of the device, page-locked memory for what the host is told.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fault.h"
#include "ddp/reducer_nccl_internal.h"
#include "kernels/cuda/device.h"

ddp_status_t ddp_nccl_device_memory(ddp_reducer_t *r, const char *label, size_t bytes, void **memory_p)
{
    ddp_status_t           status    = DDP_OK;
    ddp_nccl_path_t       *path      = r->nccl;
    const ddp_allocator_t *allocator = ddp_device_allocator(r->device);

    DDP_REQUIRE(path->n_device < DDP_NCCL_BLOCKS, DDP_ERR_STATE, "no room to note memory for %s", label);
    DDP_TRY(allocator->acquire(allocator->ctx, label, bytes, &path->device[path->n_device]));
    *memory_p = path->device[path->n_device++];
out:
    return status;
}

ddp_status_t ddp_nccl_host_memory(ddp_reducer_t *r, const char *label, size_t bytes, void **memory_p)
{
    ddp_status_t           status    = DDP_OK;
    ddp_nccl_path_t       *path      = r->nccl;
    const ddp_allocator_t *allocator = ddp_device_host_allocator(r->device);

    DDP_REQUIRE(path->n_host < DDP_NCCL_BLOCKS, DDP_ERR_STATE, "no room to note memory for %s", label);
    DDP_TRY(allocator->acquire(allocator->ctx, label, bytes, &path->host[path->n_host]));
    *memory_p = path->host[path->n_host++];
out:
    return status;
}

static ddp_status_t make_ranges(ddp_reducer_t *r)
{
    ddp_status_t     status = DDP_OK;
    ddp_nccl_path_t *path   = r->nccl;
    const size_t     size   = (size_t)r->size;

    path->ranges = calloc(r->n_buckets, sizeof(*path->ranges));
    DDP_REQUIRE(path->ranges != NULL, DDP_ERR_NO_MEMORY, "no memory for slices");
    for (size_t b = 0; b < r->n_buckets; b++) {
        ddp_nccl_range_t *range = &path->ranges[b];

        range->first       = r->buckets[b].range.offset / DDP_BLOCK;
        range->blocks      = r->buckets[b].range.count / DDP_BLOCK;
        range->slice       = range->blocks / size;
        range->own         = range->first + (size_t)r->rank * range->slice;
        range->rest        = range->first + size * range->slice;
        range->rest_blocks = range->blocks - size * range->slice;
        range->shard       = path->cut.shard;
        ddp_nccl_cut_add(&path->cut, size, range->blocks);
    }
    path->sizes = ddp_nccl_sizes(r, &path->cut);
out:
    return status;
}

/* To memory of the device, now: set-up only. */
static ddp_status_t upload(ddp_reducer_t *r, void *to, const void *from, size_t bytes)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(ddp_stream_copy(r->compute, to, from, bytes));
    DDP_TRY(ddp_stream_synchronize(r->compute, -1));
out:
    return status;
}

static ddp_status_t make_tensors(ddp_reducer_t *r)
{
    ddp_status_t       status   = DDP_OK;
    const size_t       n        = r->params.n_tensors;
    const size_t       blocks   = r->total / DDP_BLOCK;
    ddp_cuda_tensor_t *tensor   = calloc(n, sizeof(*tensor));
    uint32_t          *of_block = calloc(blocks, sizeof(*of_block));
    void              *d_tensor = NULL;
    void              *d_block  = NULL;

    DDP_REQUIRE(tensor != NULL && of_block != NULL, DDP_ERR_NO_MEMORY, "no memory for %zu tensors", n);
    DDP_REQUIRE(blocks < UINT32_MAX, DDP_ERR_NO_MEMORY, "a GPU does not hold %zu elements", r->total);
    for (size_t i = 0; i < n; i++) {
        const ddp_tensor_desc_t *desc  = &r->tensors[i];
        const size_t             first = desc->offset / DDP_BLOCK;
        const size_t             count = ddp_block_round(desc->count) / DDP_BLOCK;

        tensor[i] = (ddp_cuda_tensor_t){.first_block = (uint32_t)first,
                                        .blocks      = (uint32_t)count,
                                        .is_average  = desc->role == DDP_TENSOR_AVERAGE,
                                        .momentum    = desc->momentum,
                                        .no_decay    = desc->no_decay,
                                        .frozen      = desc->frozen};
        for (size_t b = 0; b < count; b++) {
            of_block[first + b] = (uint32_t)i;
        }
    }
    DDP_TRY(ddp_nccl_device_memory(r, "tables of tensors", r->nccl->sizes.tensors, &d_tensor));
    DDP_TRY(ddp_nccl_device_memory(r, "tables of tensors", r->nccl->sizes.of_block, &d_block));
    DDP_TRY(upload(r, d_tensor, tensor, r->nccl->sizes.tensors));
    DDP_TRY(upload(r, d_block, of_block, r->nccl->sizes.of_block));
    r->nccl->tensors = (ddp_cuda_tensors_t){d_tensor, n, d_block};
out:
    free(tensor);
    free(of_block);
    return status;
}

static ddp_status_t make_arenas(ddp_reducer_t *r)
{
    ddp_status_t     status = DDP_OK;
    ddp_nccl_path_t *path   = r->nccl;
    const size_t     bytes  = r->total * sizeof(float);
    const size_t     arenas = ddp_arenas_of(&r->params, r->size, r->rank);
    void            *memory = NULL;

    DDP_REQUIRE(bytes / sizeof(float) == r->total && arenas <= SIZE_MAX / 2 / bytes, DDP_ERR_NO_MEMORY,
                "gradients of %zu elements do not fit in memory", r->total);
    DDP_TRY(ddp_nccl_acquire(path->nccl, r->compute, "parameters", path->sizes.values, &memory));
    r->values = memory;
    for (size_t s = 0; s < ddp_optim_slots(&r->params.optim); s++) {
        DDP_TRY(ddp_nccl_device_memory(r, "moments", path->sizes.moment, &memory));
        r->slots[s] = memory;
    }
    DDP_TRY(ddp_nccl_acquire(path->nccl, r->compute, "gradients", path->sizes.gradients, &memory));
    r->grads_base = memory;
out:
    return status;
}

static ddp_status_t make_tables(ddp_reducer_t *r)
{
    ddp_status_t     status = DDP_OK;
    ddp_nccl_path_t *path   = r->nccl;
    const size_t     report = path->sizes.report;

#define DEVICE(field)                                                                                        \
    do {                                                                                                     \
        void *memory_ = NULL;                                                                                \
        DDP_TRY(ddp_nccl_device_memory(r, "tables of the optimizer", path->sizes.field, &memory_));          \
        path->field = memory_;                                                                               \
    } while (0)
#define HOST(field, bytes)                                                                                   \
    do {                                                                                                     \
        void *memory_ = NULL;                                                                                \
        DDP_TRY(ddp_nccl_host_memory(r, "results of a step", (bytes), &memory_));                            \
        path->field = memory_;                                                                               \
    } while (0)
    DEVICE(steps);
    DEVICE(coef);
    DEVICE(rank_scale);
    DEVICE(sumsq);
    DEVICE(tensor_sum);
    DEVICE(report);
    DEVICE(end);
    if (path->sizes.wire > 0) {
        DEVICE(wire);
    }
    HOST(h_report, report);
    HOST(h_small, report);
    HOST(h_end, 2 * sizeof(*path->h_end));
    HOST(h_norm, sizeof(*path->h_norm));
#undef HOST
#undef DEVICE
    path->h_end[0].broken = path->h_end[1].broken = DDP_CUDA_NO_TENSOR;
    r->leaves = (ddp_leaf_t *)(void *)(path->h_report + ddp_nccl_report(r).leaves);
out:
    return status;
}

ddp_status_t ddp_nccl_memory_create(ddp_reducer_t *r)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(make_ranges(r));
    DDP_TRY(make_arenas(r));
    DDP_TRY(make_tensors(r));
    DDP_TRY(make_tables(r));
    DDP_TRY(ddp_fault("reducer_memory", r->rank));
out:
    return status;
}

void ddp_nccl_memory_destroy(ddp_reducer_t *r)
{
    ddp_nccl_path_t       *path   = r->nccl;
    const ddp_allocator_t *device = ddp_device_allocator(r->device);
    const ddp_allocator_t *host   = ddp_device_host_allocator(r->device);

    while (path->n_device > 0) {
        device->release(device->ctx, path->device[--path->n_device]);
    }
    while (path->n_host > 0) {
        host->release(host->ctx, path->host[--path->n_host]);
    }
    free(path->ranges);
}

/* The part of a bucket that element `offset` lies in, and where it ends. */
static const ddp_nccl_range_t *find_part(const ddp_reducer_t *r, size_t offset, int *rank_p, size_t *end_p)
{
    const size_t            block = offset / DDP_BLOCK;
    const ddp_nccl_range_t *range = r->nccl->ranges;

    while (block >= range->first + range->blocks) {
        range++;
    }
    if (block >= range->rest) {
        *rank_p = DDP_REDUCER_EVERYBODY;
        *end_p  = (range->first + range->blocks) * DDP_BLOCK;
    } else {
        *rank_p = (int)((block - range->first) / range->slice);
        *end_p  = (range->first + ((size_t)*rank_p + 1) * range->slice) * DDP_BLOCK;
    }
    return range;
}

static bool is_whole(const ddp_reducer_t *r, int array, size_t offset)
{
    return array == DDP_REDUCER_VALUES || !r->nccl->shard || r->size == 1 || offset >= r->total;
}

int ddp_nccl_holder(const ddp_reducer_t *r, int array, size_t offset, size_t *count_p)
{
    int    rank = DDP_REDUCER_EVERYBODY;
    size_t end  = r->total;

    if (!is_whole(r, array, offset)) {
        (void)find_part(r, offset, &rank, &end);
    }
    *count_p = end - offset;
    return rank;
}

float *ddp_nccl_place(const ddp_reducer_t *r, int array, size_t offset, size_t *count_p)
{
    const ddp_nccl_range_t *range;
    float                  *base = array == DDP_REDUCER_VALUES ? r->values : r->slots[array];
    int                     rank;
    size_t                  end;

    if (is_whole(r, array, offset)) {
        *count_p = r->total - offset;
        return base + offset;
    }
    range    = find_part(r, offset, &rank, &end);
    *count_p = end - offset;
    if (rank == DDP_REDUCER_EVERYBODY) {
        return base + (range->shard + range->slice) * DDP_BLOCK + (offset - range->rest * DDP_BLOCK);
    }
    return rank == r->rank ? base + range->shard * DDP_BLOCK + (offset - range->own * DDP_BLOCK) : NULL;
}
