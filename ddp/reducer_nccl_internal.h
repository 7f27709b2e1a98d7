/**
 * @file The `nccl` path: everything on CUDA streams, nothing in a step waits for the host. Private.
 *
 * Two streams: the caller's compute stream, and `comm` (urgent). In order of comm, in each step:
 *
 *     small vector (losses, weights, used flags, lr, requests) over all ranks -> coefficients of the updates
 *     for each bucket, once compute has its gradients: reduce -> update -> with shard: gather the parameters
 *     two_phase: the norm, then the updates of all buckets
 *     end: what the host is told; the next step's compute waits for it
 *
 * A bucket's blocks are cut into `size` slices of equal length and a rest of fewer than `size` blocks: NCCL's
 * reduce-scatter and all-gather take equal parts, and nothing is padded. The rest is everybody's.
 */
#ifndef DDP_REDUCER_NCCL_INTERNAL_H_
#define DDP_REDUCER_NCCL_INTERNAL_H_

#include "ddp/nccl_internal.h"
#include "ddp/reducer_nccl_plan_internal.h"
#include "ddp/reducer_path_internal.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Where a bucket lies, in blocks of an arena. */
typedef struct ddp_nccl_range {
    size_t first, blocks;
    size_t slice; /* of each rank: blocks / size */
    size_t own;   /* where this rank's begins */
    size_t rest;  /* where the rest begins: first + size * slice */
    size_t rest_blocks;
    size_t shard; /* where the moments of the own slice begin in a sharded arena; those of the rest follow */
} ddp_nccl_range_t;

/** Points in time of a step on the device; two sets, as one step is read while the next one is recorded. */
typedef struct ddp_nccl_times {
    cudaEvent_t  begin, backward_end, end; /* owned */
    cudaEvent_t *ready, *launched, *done;  /* owned, [n_buckets] */
    int64_t      begin_ns;                 /* the host's clock at `begin` */
    bool         had_backward;
} ddp_nccl_times_t;

/** The exact sum for `present` micro-batches: tables of the device, and what goes to whom. */
typedef struct ddp_nccl_exact {
    int32_t           *op; /* device */
    size_t             length;
    ddp_cuda_source_t *sources; /* device */
    size_t             n_sources, n_received;
    uint32_t          *arena; /* owned, [n_own]: arenas of this rank that take part */
    size_t             n_own;
    uint32_t          *level, *index; /* owned, [sources], scratch */
    uint32_t          *of_rank;       /* owned, [size]: sources of each rank */
    float             *received;      /* device: slices, then rests, of all received sources of one bucket */
    size_t             max_received;  /* sources, when every micro-batch is present */

    /* page-locked, as long as the tables */
    int32_t           *h_op;
    ddp_cuda_source_t *h_sources;
} ddp_nccl_exact_t;

#define DDP_NCCL_BLOCKS 24

typedef struct ddp_nccl_path {
    ddp_nccl_t   *nccl;        /* owned */
    ddp_stream_t *comm;        /* owned */
    ddp_event_t  *ready_point; /* owned; the compute stream's, for comm to wait for */
    ddp_event_t  *sums_point;  /* owned; `report` is there */
    ddp_event_t  *norm_point;  /* owned; two_phase: h_norm is there */
    ddp_event_t  *end_point;   /* owned; all of the step is done */
    bool          shard, exact;

    ddp_nccl_range_t *ranges; /* owned, [n_buckets] */
    ddp_nccl_cut_t    cut;
    ddp_nccl_sizes_t  sizes;
    ddp_nccl_exact_t  sum;

    /* of the device, owned through `device` */
    ddp_cuda_tensors_t tensors;
    uint64_t          *steps;      /* [n_tensors] */
    ddp_cuda_coef_t   *coef;       /* [n_tensors] */
    float             *rank_scale; /* [size] */
    double            *sumsq;      /* [total / DDP_BLOCK] */
    double            *tensor_sum; /* [n_tensors] */
    uint16_t          *wire;       /* wire bf16: one bucket */
    char              *report;     /* sums, leaves and lr, words: see ddp_nccl_report_t */
    ddp_nccl_end_t    *end;        /* .sums is unused: they are in the report */

    /* page-locked, owned through `host` */
    char            *h_report;
    char            *h_small; /* lr and words of this rank, as they lie in a report */
    ddp_nccl_end_t  *h_end;   /* [2] by the parity of the step */
    ddp_cuda_sums_t *h_norm;  /* [1] */

    void  *device[DDP_NCCL_BLOCKS]; /* owned, of the device's allocator */
    size_t n_device;
    void  *host[DDP_NCCL_BLOCKS]; /* owned, page-locked */
    size_t n_host;

    ddp_nccl_times_t times[2];
    uint64_t         ended;      /* last step whose end was recorded */
    uint64_t         timed;      /* last step whose times are in the reducer */
    uint64_t         first_step; /* last step of the checkpoint */
} ddp_nccl_path_t;

/* reducer_nccl_memory.c */
ddp_status_t ddp_nccl_device_memory(ddp_reducer_t *r, const char *label, size_t bytes,
                                    void **memory_p) DDP_NODISCARD;
ddp_status_t ddp_nccl_host_memory(ddp_reducer_t *r, const char *label, size_t bytes,
                                  void **memory_p) DDP_NODISCARD;
ddp_status_t ddp_nccl_memory_create(ddp_reducer_t *r) DDP_NODISCARD;
void         ddp_nccl_memory_destroy(ddp_reducer_t *r);
int          ddp_nccl_holder(const ddp_reducer_t *r, int array, size_t offset, size_t *count_p);
float       *ddp_nccl_place(const ddp_reducer_t *r, int array, size_t offset, size_t *count_p);

/* reducer_nccl_exact.c */
ddp_status_t ddp_nccl_exact_create(ddp_reducer_t *r) DDP_NODISCARD;
void         ddp_nccl_exact_destroy(ddp_reducer_t *r);
/** The tables for r->present, if it has changed; nothing of them may be in use. */
ddp_status_t ddp_nccl_exact_plan(ddp_reducer_t *r) DDP_NODISCARD;
/** Partial sums to the owners of their slices, tree sums, and without shard the totals to all. */
ddp_status_t ddp_nccl_exact_reduce(ddp_reducer_t *r, size_t b) DDP_NODISCARD;

/* reducer_nccl_bucket.c: in order of comm */
ddp_status_t ddp_nccl_bucket_reduce(ddp_reducer_t *r, size_t b) DDP_NODISCARD;
ddp_status_t ddp_nccl_bucket_update(ddp_reducer_t *r, size_t b) DDP_NODISCARD;
/** two_phase: sums of squares of what this rank updates. */
ddp_status_t ddp_nccl_bucket_sumsq(ddp_reducer_t *r, size_t b) DDP_NODISCARD;
/** With shard: everybody's sums of squares to all. */
ddp_status_t ddp_nccl_gather_sumsq(ddp_reducer_t *r) DDP_NODISCARD;

/* reducer_nccl_times.c */
ddp_status_t ddp_nccl_times_create(ddp_reducer_t *r) DDP_NODISCARD;
void         ddp_nccl_times_destroy(ddp_reducer_t *r);
ddp_status_t ddp_nccl_times_record(ddp_reducer_t *r, cudaEvent_t event, ddp_stream_t *stream) DDP_NODISCARD;
/** Of `step`, which has ended, into the reducer's result. */
ddp_status_t ddp_nccl_times_read(ddp_reducer_t *r, uint64_t step) DDP_NODISCARD;

#ifdef __cplusplus
}
#endif

#endif
