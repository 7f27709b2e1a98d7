/** @file Inside of the reducer: what its files share. Private. */
#ifndef DDP_REDUCER_INTERNAL_H_
#define DDP_REDUCER_INTERNAL_H_

#include <mpi.h>

#include "ddp/comm_internal.h"
#include "ddp/exchange_internal.h"
#include "ddp/plan_internal.h"
#include "ddp/reducer.h"

/** The part of one tensor that lies in this rank's slice of a bucket. */
typedef struct ddp_segment {
    size_t tensor;
    size_t offset; /* floats from the start of the arena */
    size_t blocks;
} ddp_segment_t;

typedef struct ddp_bucket {
    ddp_bucket_range_t range;
    size_t             pending;                    /* tensors of this micro-batch that are not ready yet */
    size_t             slice_offset, slice_blocks; /* this rank's part */
    ddp_segment_t     *segments;                   /* borrowed from reducer->segments */
    size_t             n_segments;
    bool               announced;                      /* this step's "ready" flag is set */
    int64_t            ready_ns, launched_ns, done_ns; /* of this step, see ddp_bucket_times_t; clock */
    ddp_exchange_t    *exchange;                       /* owned; several machines */
    bool               is_on_wire;                     /* started, and its end was not seen */
} ddp_bucket_t;

/** One micro-batch's entry in the machine's table; crosses the wire as floats. */
typedef ddp_loss_stats_t ddp_leaf_t;

/** Of a machine's message in front of its leaves. Crosses MPI as bytes. */
typedef struct ddp_sums_head {
    uint64_t overflows;
    float    lr;
    uint32_t request;
} ddp_sums_head_t;

/** What all ranks know once every micro-batch's forward is done. Equal on all ranks. */
typedef struct ddp_sums {
    double   loss, weight, correct, counted;
    float    lr;
    uint32_t request; /* until then this rank's own, as lr */
    double   grad_norm;
    bool     finite;     /* loss and weight */
    size_t   broken;     /* two_phase: first tensor that is not finite, or DDP_NO_TENSOR */
    bool     update;     /* the parameters change in this step */
    float    grad_scale; /* with the clip factor once the norm is known */
} ddp_sums_t;

/** The reduction of one machine's sources, or of all machines' nodes; rebuilt when the number of present
 * micro-batches changes. */
typedef struct ddp_program {
    int32_t *op; /* owned */
    size_t   length;
    size_t   first_source, n_sources;
} ddp_program_t;

/** A gradient arena of a rank of this machine that takes part in the sum. */
typedef struct ddp_source {
    const float *base;
    float       *writable; /* the same arena: an owner may put its result there */
    int          rank;
} ddp_source_t;

#define DDP_NO_TENSOR SIZE_MAX

typedef enum ddp_reducer_state {
    DDP_REDUCER_IDLE,
    DDP_REDUCER_STEP,
    DDP_REDUCER_FORWARD,
    DDP_REDUCER_BACKWARD
} ddp_reducer_state_t;

/**
 * State of the `host` path: arenas in the machine's shared memory, sums and updates by this process' own
 * threads of work, MPI between machines.
 */
typedef struct ddp_host_path {
    ddp_stream_t *reduce;        /* owned: local flags, sums, updates */
    ddp_stream_t *wire;          /* owned: between machines; NULL with one machine */
    ddp_event_t  *compute_point; /* owned */
    ddp_event_t  *reduce_point;  /* owned */
    ddp_isa_t     isa;

    ddp_segment_t *segments; /* owned */

    /* shared memory of the machine, all from one window */
    void       *window; /* all of it */
    size_t      window_bytes;
    float     **arenas;          /* owned, [local_size]: first arena of each local rank */
    ddp_flag_t *forward_flag;    /* [local_size]: step whose forward this rank has finished */
    ddp_flag_t *ready_flag;      /* [local_size][n_buckets]: gradients final, parameters no longer read */
    ddp_flag_t *summed_flag;     /* [local_size]: two_phase: all slices summed, block norms written */
    ddp_flag_t *done_flag;       /* [local_size]: own slices updated, nothing of this step is read any more */
    ddp_flag_t *sums_flag;       /* leaves of all machines are in the table */
    uint8_t    *used_rank;       /* [local_size][n_tensors] */
    uint8_t    *used_others;     /* [n_tensors]: by ranks of other machines */
    double     *block_sumsq;     /* [total / DDP_BLOCK] */
    int64_t    *final_ns;        /* [local_size]: when the rank's last gradients were final */
    size_t     *broken_of;       /* [local_size]: first tensor that was not finite in that rank's updates */
    float      *lr;              /* [1] written by rank 0 */
    uint32_t   *requests;        /* [local_size] */
    uint32_t   *request_others;  /* [1]: of other machines */
    uint64_t   *overflows;       /* [local_size]: of the step before, see ddp_step_result_t */
    uint64_t   *overflow_others; /* [1]: of other machines */

    /* the plan for `present` micro-batches */
    ddp_source_t  *sources; /* owned: arenas of this machine, in order of their micro-batches */
    size_t         n_sources;
    ddp_program_t *local; /* owned: one machine: the total; else one for each node of this machine */
    size_t         n_local;
    ddp_program_t  across;                  /* over the nodes of all machines */
    size_t        *machine_nodes;           /* owned, [machines] */
    float         *total_base;              /* arena in which totals are put */
    const float  **source_pointer;          /* owned, scratch of one call */
    float         *source_scale;            /* owned, [n_sources]; average ranks */
    uint32_t      *node_level, *node_index; /* owned, scratch */

    /* the running step */
    MPI_Request *sums_requests; /* owned, leader only */
    int         *sums_peer;     /* owned */
    int          n_sums_requests;
    uint8_t     *sums_send;     /* owned */
    uint8_t     *sums_received; /* owned, [machines][sums_bytes] */
    size_t       sums_bytes;    /* largest message */
    int          sums_stage;
    size_t       broken; /* first tensor that was not finite in this rank's updates */

    /* between machines */
    ddp_link_t link; /* measured if there is a choice; else 0 */
    bool       has_link;
    int        n_on_wire;  /* buckets between their launch and their end */
    int64_t    on_wire_ns; /* since when there has been one */
} ddp_host_path_t;

/** What the `host` path has besides where the compute stream's device has memory of its own. */
typedef struct ddp_staged_path {
    ddp_device_t *gpu;           /* borrowed, of the compute stream */
    ddp_device_t *host;          /* owned: a cpu device for the host path's work */
    ddp_stream_t *watch;         /* owned, of `host`: looks for the end of backward */
    ddp_stream_t *copy;          /* owned, of `gpu`: gradients to the host */
    float        *values;        /* owned, on `gpu`: as r->values, for forward and backward */
    float        *grads;         /* owned, on `gpu`: this rank's arenas */
    bool          is_pinned;     /* the window */
    uint64_t      uploaded_step; /* whose parameters `values` are; UINT64_MAX: none */
    ddp_event_t  *compute_point, *forward_point, *backward_point; /* owned */
    ddp_event_t **copied;                                         /* owned, [n_buckets] and the array */
} ddp_staged_path_t;

typedef struct ddp_reducer_path ddp_reducer_path_t;

struct ddp_reducer {
    ddp_reducer_params_t      params;
    const ddp_reducer_path_t *path;
    ddp_comm_t               *comm; /* borrowed */
    ddp_device_t             *device;
    ddp_stream_t             *compute; /* borrowed */
    int                       rank, size, local_rank, local_size, machine, machines;
    bool two_phase; /* sums first, updates after the last bucket: clipping, nonfinite skip, loss scaling */

    ddp_tensor_desc_t *tensors;        /* owned, names too */
    size_t            *bucket_of;      /* owned, [n_tensors] */
    size_t            *order;          /* owned, [n_tensors]: tensor at each position of the layout */
    uint8_t           *used;           /* owned, [n_tensors] this micro-batch */
    uint8_t           *is_ready;       /* owned, [n_tensors] this micro-batch */
    uint64_t          *steps;          /* owned, [n_tensors] */
    ddp_optim_config_t optim_no_decay; /* params.optim for tensors that do not decay */
    size_t             total;          /* floats of an arena */
    ddp_bucket_t      *buckets;        /* owned */
    size_t             n_buckets;

    /* from the path's create; memory of the compute device */
    float *values;
    float *slots[2];
    float *device_values; /* NULL: values; else those are host memory, and this is a copy on the device */
    float *grads_base;    /* this rank's first arena; the others follow, `total` floats each */

    /* the running step */
    ddp_reducer_state_t state;
    uint64_t            step;       /* from 1 */
    ddp_loss_scale_t    loss_scale; /* of the running step, then of the next */
    size_t              present;
    size_t              first_leaf, n_leaves, leaf, leaves_left;
    ddp_stack_t         stack;
    ddp_merge_t         merges[DDP_MAX_NODES];
    size_t              n_merges;
    float              *grads; /* arena of this micro-batch */
    bool                accumulate;
    size_t              next_bucket;
    bool                wants_norm; /* keep the sums of squares */

    /* what a path leaves for the result of the step */
    ddp_sums_t  sums;     /* until they are reduced: this rank's lr and request */
    ddp_leaf_t *leaves;   /* [V], from the path's create */
    uint8_t    *used_any; /* owned, [n_tensors] by anybody in this step */
    int64_t     comm_ns, begin_ns, backward_end_ns, end_ns;
    int64_t     hidden_comm_ns; /* comm_ns at the end of backward */
    int         slowest_rank;
    int64_t     spread_ns;

    uint64_t wire_overflows;

    ddp_host_path_t       host; /* all zero with another path */
    ddp_staged_path_t     staged;
    struct ddp_nccl_path *nccl; /* owned; NULL with another path */
};

/** Are all sums known before the first update? */
static inline bool ddp_reducer_is_two_phase(const ddp_reducer_params_t *params)
{
    return params->clip_norm > 0 || params->nonfinite == DDP_NONFINITE_SKIP || params->loss_scale_every > 0;
}

/** EXACT or FAST. */
ddp_reduction_t ddp_reducer_reduction(const ddp_reducer_params_t *params);

/* The rest is the `host` path. */

/* reducer_plan.c */
ddp_status_t ddp_reducer_plan_memory(ddp_reducer_t *r);
ddp_status_t ddp_reducer_plan_sources(ddp_reducer_t *r, size_t present);

/* reducer_host.c: what goes to the reduce stream, and what it is told of the compute stream */
void         ddp_reducer_host_note_used(ddp_reducer_t *r);
ddp_status_t ddp_reducer_host_submit_sums(ddp_reducer_t *r);
ddp_status_t ddp_reducer_host_submit_bucket(ddp_reducer_t *r, size_t b);
ddp_status_t ddp_reducer_host_submit_end(ddp_reducer_t *r);
void         ddp_reducer_host_ready(ddp_reducer_t *r, size_t b);
void         ddp_reducer_host_backward_end(ddp_reducer_t *r);
ddp_status_t ddp_reducer_host_wait_reduced(ddp_reducer_t *r);

/* reducer_sums.c: work on the compute stream, and on the reduce stream */
ddp_status_t ddp_reducer_leaf_work(void *args);
ddp_status_t ddp_reducer_sums_work(void *args);
typedef struct ddp_leaf_args {
    ddp_reducer_t          *reducer;
    size_t                  leaf;
    const ddp_loss_stats_t *stats;
} ddp_leaf_args_t;

/* reducer_bucket.c: work on the reduce stream */
typedef struct ddp_bucket_args {
    ddp_reducer_t *reducer;
    size_t         bucket;
} ddp_bucket_args_t;
ddp_status_t ddp_reducer_bucket_work(void *args);
ddp_status_t ddp_reducer_end_work(void *args);
/** The total of this rank's slice is in total_base: update from it, or keep it and write the block sums
 * (two_phase). */
void ddp_reducer_bucket_total(ddp_reducer_t *r, const ddp_bucket_t *bucket);

/* reducer_scale.c */
/** Are gradients that are not finite no more than a reason to halve the loss scale? */
bool ddp_reducer_may_halve(const ddp_reducer_t *r);
/** What this step's sums make of the scale. */
void ddp_reducer_adapt_scale(ddp_reducer_t *r);

/* reducer_norm.c */
/** All slices are summed: the norm, what clipping makes of it, and whether everything is finite. */
void ddp_reducer_norm(ddp_reducer_t *r);
/** What is not finite, known before any update: "loss", a tensor's name, or NULL. */
const char *ddp_reducer_not_finite(const ddp_reducer_t *r);
/** DDP_ERR_NOT_FINITE that names a tensor and a step. */
ddp_status_t ddp_reducer_fail_tensor(const ddp_reducer_t *r, size_t tensor, uint64_t step);
/** DDP_ERR_NOT_FINITE for that, unless such steps are skipped. */
ddp_status_t ddp_reducer_check_sums(const ddp_reducer_t *r);
/** DDP_ERR_NOT_FINITE: the updates of the last step met a sum that is not. All ranks of the machine are done.
 */
ddp_status_t ddp_reducer_check_updates(const ddp_reducer_t *r);
/** See ddp_reducer_grad_norm(); after finish. */
ddp_status_t ddp_reducer_host_norm(ddp_reducer_t *r, double *norm_p);

/* reducer_wire.c */
/** Bytes of this rank's buffers for a bucket, whichever exchange is chosen. Pure. */
size_t ddp_reducer_wire_bytes(const ddp_reducer_t *r, const ddp_bucket_range_t *range);
/** Collective: the link, if there is something to choose. */
ddp_status_t ddp_reducer_wire_measure(ddp_reducer_t *r);
ddp_status_t ddp_reducer_wire_create(ddp_reducer_t *r);
void         ddp_reducer_wire_destroy(ddp_reducer_t *r);
ddp_status_t ddp_reducer_wire_start(ddp_reducer_t *r, size_t bucket);
ddp_status_t ddp_reducer_wire_work(void *args);
/** With several machines comm_ns is the time in which at least one bucket is under way: from its launch on,
 * to the end of ddp_reducer_wire_work(). */
void    ddp_reducer_wire_opened(ddp_reducer_t *r, int64_t now_ns);
int64_t ddp_reducer_comm_until(const ddp_reducer_t *r, int64_t now_ns);
/** Values of this rank that became infinite on the wire since the last call. */
uint64_t ddp_reducer_wire_take_overflows(ddp_reducer_t *r);

#endif
