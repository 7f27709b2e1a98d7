#include "ddp/reducer_nccl_plan_internal.h"

#include "base/convert.h"

ddp_nccl_report_t ddp_nccl_report(const ddp_reducer_t *r)
{
    const size_t      leaves = sizeof(ddp_cuda_sums_t);
    const size_t      lr     = leaves + r->params.micro_batches * sizeof(ddp_loss_stats_t);
    ddp_nccl_report_t report = {.leaves = leaves, .lr = lr, .words = lr + sizeof(float)};

    report.bytes = report.words + (1 + r->params.n_tensors) * sizeof(uint32_t);
    return report;
}

size_t ddp_nccl_subtrees(const ddp_reducer_t *r, size_t present, int rank, ddp_stack_t *stack)
{
    size_t first;
    size_t count;
    size_t arenas;

    ddp_partition(r->params.micro_batches, (size_t)r->size, (size_t)rank, &first, &count);
    ddp_stack_plan(present, first, count, stack, &arenas);
    return stack->depth;
}

void ddp_nccl_cut_add(ddp_nccl_cut_t *cut, size_t ranks, size_t blocks)
{
    const size_t own = blocks / ranks + blocks % ranks;

    cut->shard += own;
    cut->bucket = blocks > cut->bucket ? blocks : cut->bucket;
    cut->own    = own > cut->own ? own : cut->own;
}

static void add_exact(const ddp_reducer_t *r, const ddp_nccl_cut_t *cut, ddp_nccl_sizes_t *sizes)
{
    ddp_stack_t stack;

    for (int q = 0; q < r->size; q++) {
        sizes->n_sources += ddp_nccl_subtrees(r, r->params.micro_batches, q, &stack);
    }
    sizes->op       = 2 * sizes->n_sources * sizeof(int32_t);
    sizes->sources  = sizes->n_sources * sizeof(ddp_cuda_source_t);
    sizes->received = ddp_received_of(&r->params, r->size, r->rank) * cut->own * DDP_BLOCK * sizeof(float);
}

ddp_nccl_sizes_t ddp_nccl_sizes(const ddp_reducer_t *r, const ddp_nccl_cut_t *cut)
{
    const size_t     n      = r->params.n_tensors;
    const size_t     blocks = r->total / DDP_BLOCK;
    const size_t     values = r->total * sizeof(float);
    ddp_nccl_sizes_t sizes  = {
         .values     = values,
         .gradients  = ddp_arenas_of(&r->params, r->size, r->rank) * values,
         .moment     = r->params.shard ? cut->shard * DDP_BLOCK * sizeof(float) : values,
         .tensors    = n * sizeof(ddp_cuda_tensor_t),
         .of_block   = blocks * sizeof(uint32_t),
         .steps      = n * sizeof(uint64_t),
         .coef       = n * sizeof(ddp_cuda_coef_t),
         .rank_scale = (size_t)r->size * sizeof(float),
         .sumsq      = blocks * sizeof(double),
         .tensor_sum = n * sizeof(double),
         .report     = ddp_nccl_report(r).bytes,
         .end        = sizeof(ddp_nccl_end_t),
         .wire       = r->params.wire == DDP_WIRE_BF16 ? cut->bucket * DDP_BLOCK * sizeof(uint16_t) : 0,
    };

    if (r->params.reduction == DDP_REDUCTION_EXACT) {
        add_exact(r, cut, &sizes);
    }
    return sizes;
}

size_t ddp_nccl_device_bytes(const ddp_nccl_sizes_t *s, size_t n_slots)
{
    return s->values + s->gradients + n_slots * s->moment + s->tensors + s->of_block + s->steps + s->coef +
           s->rank_scale + s->sumsq + s->tensor_sum + s->report + s->end + s->wire + s->op + s->sources +
           s->received;
}
