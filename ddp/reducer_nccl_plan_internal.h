/**
 * @file What the `nccl` path takes on the GPU of a rank: the same figures for the plan and for who takes it.
 * Needs no CUDA. Private.
 */
#ifndef DDP_REDUCER_NCCL_PLAN_INTERNAL_H_
#define DDP_REDUCER_NCCL_PLAN_INTERNAL_H_

#include "ddp/reducer_internal.h"
#include "kernels/cuda/optim.h"

#ifdef __cplusplus
extern "C" {
#endif

/** What the host is told of a step, in page-locked memory. */
typedef struct ddp_nccl_end {
    ddp_cuda_sums_t sums;      /* with the norm */
    uint64_t        overflows; /* of the step, of all ranks */
    uint32_t        broken;    /* tensor whose update met what is not finite */
} ddp_nccl_end_t;

/** Where things lie in a report, bytes. One copy tells the host all. */
typedef struct ddp_nccl_report {
    size_t leaves; /* [V] ddp_loss_stats_t, then lr (float) */
    size_t lr;
    size_t words; /* uint32_t [1 + n_tensors]: request, used flags */
    size_t bytes;
} ddp_nccl_report_t;
ddp_nccl_report_t ddp_nccl_report(const ddp_reducer_t *r);

/** The open subtrees of a rank when `present` micro-batches have samples. @return how many */
size_t ddp_nccl_subtrees(const ddp_reducer_t *r, size_t present, int rank, ddp_stack_t *stack);

/** Of the buckets, in blocks. Begins as zero. */
typedef struct ddp_nccl_cut {
    size_t shard;       /* slices of a rank and rests, of all buckets */
    size_t bucket, own; /* the largest bucket; the largest slice with its rest */
} ddp_nccl_cut_t;
/** One bucket more. */
void ddp_nccl_cut_add(ddp_nccl_cut_t *cut, size_t ranks, size_t blocks);

/** Bytes of each piece of memory on the GPU; 0: it is not there. */
typedef struct ddp_nccl_sizes {
    size_t values, gradients;
    size_t moment; /* of each of the optimizer's slots */
    size_t tensors, of_block, steps, coef, rank_scale, sumsq, tensor_sum, report, end;
    size_t wire;                  /* bf16: a bucket */
    size_t op, sources, received; /* exact */
    size_t n_sources;             /* exact: with all micro-batches, of all ranks */
} ddp_nccl_sizes_t;
/** Of r->rank; of `r` only what ddp_reducer_plan() sets. */
ddp_nccl_sizes_t ddp_nccl_sizes(const ddp_reducer_t *r, const ddp_nccl_cut_t *cut);
/** All together. */
size_t ddp_nccl_device_bytes(const ddp_nccl_sizes_t *sizes, size_t n_slots);

#ifdef __cplusplus
}
#endif

#endif
