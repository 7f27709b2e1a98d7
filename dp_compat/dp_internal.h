/**
 * @file Inside of DataParallel: a replica and its thread, the micro-batch it has in hand, and what is written
 * down about a step. Private.
 *
 * Who writes what: a replica's fields belong to its thread while it runs a job, and to the caller's thread
 * else; handing over the job is what orders the two. Device 0 is the caller's thread. The caller runs a round
 * as jobs: forward on all devices, loss on the output device, backward on all devices, reduce on device 0.
 */
#ifndef DDP_DP_INTERNAL_H_
#define DDP_DP_INTERNAL_H_

#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/error.h"
#include "dp_compat/data_parallel.h"
#include "nn/layers.h"
#include "nn/params.h"
#include "nn/tape.h"

#define DDP_DP_NAME_SIZE 24

typedef struct ddp_replica ddp_replica_t;

/** Memory of a device that grows with what it has to hold, and stays. */
typedef struct ddp_dp_buffer {
    void  *memory; /* owned by the device's allocator */
    size_t bytes;
} ddp_dp_buffer_t;

/** Work for a replica's thread. */
typedef ddp_status_t ddp_dp_job_fn_t(ddp_replica_t *replica);

typedef enum ddp_dp_job_state {
    DDP_DP_JOB_NONE   = 0,
    DDP_DP_JOB_POSTED = 1,
    DDP_DP_JOB_DONE   = 2,
    DDP_DP_JOB_END    = 3 /* the thread ends */
} ddp_dp_job_state_t;

/** A piece of a step, with the round it belongs to. */
typedef struct ddp_dp_piece {
    ddp_dp_phase_t phase;
    size_t         round;
    int64_t        start_ns, end_ns; /* clock */
} ddp_dp_piece_t;

struct ddp_replica {
    ddp_dp_t *dp;    /* borrowed */
    size_t    index; /* in device_ids */
    int       id;
    char      name[DDP_DP_NAME_SIZE]; /* "device 3" */

    ddp_device_t *device; /* owned, as the next six; device 0: borrowed, but for the tape */
    ddp_stream_t *stream;
    ddp_params_t *params;
    ddp_tape_t   *tape;
    float        *values, *grads;
    uint8_t      *used;      /* owned, [n_tensors]: of the micro-batch in hand */
    uint8_t      *loss_used; /* owned, [n_tensors]: of a loss on the output device */

    ddp_dp_buffer_t input[DDP_DP_MAX_INPUTS];
    ddp_dp_buffer_t output_grad;
    /* of the output device only */
    ddp_dp_buffer_t target[DDP_DP_MAX_INPUTS]; /* of all micro-batches of a round */
    ddp_dp_buffer_t gathered_memory;
    ddp_tape_t    **loss_tapes; /* owned, [n]: one for each device, as gradients must last */

    /* the micro-batch in hand; micro.n == 0: none */
    ddp_micro_t       micro;
    ddp_dp_input_t    fetched[DDP_DP_MAX_INPUTS];
    const void       *inputs[DDP_DP_MAX_INPUTS];      /* on this device */
    const void       *loss_inputs[DDP_DP_MAX_INPUTS]; /* on the output device */
    ddp_tensor_t     *output;
    ddp_loss_stats_t *stats;       /* device: the loss was taken here */
    ddp_loss_stats_t  sums;        /* of an evaluation, host */
    bool              accumulates; /* gradients are added to what is there */
    float            *gathered;    /* its part of the gathered output */
    const float      *loss_grad;   /* of that, on the output device */
    float             scale;       /* of its gradient: 1, or INSIDE_MEAN's 1 / weight */

    /* its thread; none for device 0 */
    pthread_t        thread;
    bool             has_thread;
    bool             is_hung; /* given up: what it has is not touched any more */
    int              core;    /* pinned to; -1: to none */
    pthread_mutex_t  lock;    /* guards the next three and the changes of `state` */
    pthread_cond_t   posted, done;
    ddp_dp_job_fn_t *job;
    _Atomic int      state; /* ddp_dp_job_state_t; read without the lock while spinning */
    ddp_status_t     status;
    char             line[DDP_ERROR_LINE_SIZE];
    _Atomic uint64_t moved; /* grows with everything it gets done */
    _Atomic int      phase; /* ddp_dp_phase_t that it is in */

    /* of the last step */
    ddp_dp_piece_t *pieces; /* owned, [pieces_capacity] */
    size_t          n_pieces, pieces_capacity;
    uint64_t        received_bytes[DDP_DP_PHASES]; /* by its own thread */
    uint64_t        gathered_bytes, reduced_bytes; /* that others took from it */
};

struct ddp_dp {
    ddp_dp_params_t    params;
    int                ids[DDP_DP_MAX_DEVICES];
    size_t             caps[DDP_DP_MAX_DEVICES];
    size_t             n;          /* devices */
    size_t             output;     /* index of the output device */
    ddp_comm_t        *owned_comm; /* or NULL */
    ddp_reducer_t     *reducer;    /* owned */
    ddp_replica_t     *replica;    /* owned, [n] */
    ddp_reducer_plan_t charged;    /* what of the reducer counts as held by device 0; zeros: nothing */
    bool               is_charged; /* it came from elsewhere: not from device 0's own allocator */
    bool               is_cuda;    /* devices are GPUs */
    int                cores;      /* this process may use */
    bool               may_spin;   /* a core for every device */
    float              loss_scale; /* of the running step */
    ddp_status_t       failed;     /* an earlier step did: nothing works any more */
    ddp_loss_stats_t  *stats;      /* owned, [V]: of the running step's micro-batches, host */
    size_t             n_tensors;
    bool               has_averages;
    float            **average;       /* owned, [n_tensors]: sum of device 0's statistics; NULL: is none */
    size_t            *average_parts; /* owned, [n_tensors]: statistics in that sum */
    ddp_dp_buffer_t    averages;      /* what `average` points into */
    float             *h_average;     /* owned, page-locked: a GPU's average and its sum, on their way */
    ddp_dp_buffer_t    leaf_stats;    /* is_cuda: `stats` as device 0 reads them */
    ddp_dp_buffer_t    staging;       /* is_cuda: a gradient of another device that is to be added */

    /* evaluation */
    bool evaluates;

    /* the running or last step */
    uint64_t         step; /* from 0 */
    size_t           round, rounds;
    size_t           n_busy;     /* devices that have a micro-batch in this round: the first ones */
    bool             replicates; /* jobs begin with a copy of the parameters */
    int64_t          start_ns, end_ns;
    int64_t          phase_ns[DDP_DP_PHASES];
    pthread_t        watcher;
    bool             has_watcher;
    pthread_mutex_t  lock; /* guards is_ending */
    pthread_cond_t   ending;
    bool             is_ending;
    _Atomic bool     is_working; /* the caller's thread is in a step */
    _Atomic bool     is_waiting; /* it waits for another device, whose silence it sees itself */
    _Atomic uint64_t step_now;   /* `step`, for the watcher */
};

/** Is the loss taken in the replica? One device has no other place. */
static inline bool ddp_dp_is_inside(const ddp_dp_t *dp)
{
    return dp->params.loss_at != DDP_DP_LOSS_OUTSIDE || dp->n == 1;
}

/** Something got done. */
static inline void ddp_dp_progressed(ddp_replica_t *replica)
{
    atomic_fetch_add_explicit(&replica->moved, 1, memory_order_relaxed);
}

/* cores.c */
/** Cores that this thread may use. @param [out] cores  [capacity] @return how many; 0: unknown */
int ddp_dp_cores(int *cores, int capacity);
/** What a device gets of a core, in relative units: its highest frequency (kHz; 1 where unknown) divided by
 * the number of the devices on it. @param [in] root  "" but in tests: where sys/devices is */
double ddp_dp_speed(const char *root, const int *ids, size_t n, size_t index, const int *cores, int n_cores);
/** A warning if devices differ by more than a quarter. @param [in] value  [n], 0: does not count */
void ddp_dp_warn_unlike(const int *ids, const double *value, size_t n, const char *what);

/* worker.c */
/** Start the thread of a replica. */
ddp_status_t ddp_dp_thread_start(ddp_replica_t *replica) DDP_NODISCARD;
/** Let it end and wait for that; one that hangs is let go. */
void ddp_dp_thread_stop(ddp_replica_t *replica);
/**
 * Run jobs on the first n_busy devices at once, each on its own thread.
 * @return DDP_OK, or the status of one that failed, with a line that names all of them that did. A device
 * that makes no progress is given up: DDP_ERR_TIMEOUT
 */
ddp_status_t ddp_dp_on_all(ddp_dp_t *dp, ddp_dp_job_fn_t *first_job, ddp_dp_job_fn_t *job) DDP_NODISCARD;
/** The same on the output device alone. */
ddp_status_t ddp_dp_on_output(ddp_dp_t *dp, ddp_dp_job_fn_t *job) DDP_NODISCARD;
/** A job of one device; its status is in the replica. Nothing happens where its thread is missing or hangs.
 */
void         ddp_dp_run(ddp_replica_t *replica, ddp_dp_job_fn_t *job);
ddp_status_t ddp_dp_watcher_start(ddp_dp_t *dp) DDP_NODISCARD;
void         ddp_dp_watcher_stop(ddp_dp_t *dp);

/* replica.c */
/** Memory for `bytes`: what was there is lost where it has to grow. */
ddp_status_t ddp_dp_buffer_need(ddp_replica_t *replica, ddp_dp_buffer_t *buffer, const char *label,
                                size_t bytes) DDP_NODISCARD;
void         ddp_dp_buffer_free(ddp_replica_t *replica, ddp_dp_buffer_t *buffer);
/* jobs: make and free what a replica has on its device */
ddp_status_t ddp_dp_open(ddp_replica_t *replica) DDP_NODISCARD;
ddp_status_t ddp_dp_close(ddp_replica_t *replica) DDP_NODISCARD;
/** Of the output device: tapes for the losses. */
ddp_status_t ddp_dp_open_loss(ddp_replica_t *replica) DDP_NODISCARD;

/* micro.c: jobs */
/** Parameters (in the first round), samples, forward and, inside, the loss. */
ddp_status_t ddp_dp_forward_job(ddp_replica_t *replica) DDP_NODISCARD;
/** On the output device: gather, and losses of all devices. */
ddp_status_t ddp_dp_loss_job(ddp_replica_t *replica) DDP_NODISCARD;
ddp_status_t ddp_dp_backward_job(ddp_replica_t *replica) DDP_NODISCARD;
/** Not a job: ask where the samples of its micro-batch are. */
ddp_status_t ddp_dp_fetch(ddp_replica_t *replica, ddp_dp_fetch_fn_t *fetch, void *ctx) DDP_NODISCARD;
/** Forward and loss without gradient. */
ddp_status_t ddp_dp_evaluate_job(ddp_replica_t *replica) DDP_NODISCARD;

/* report.c */
/** A phase begins on this replica's thread. @return now */
int64_t ddp_dp_enter(ddp_replica_t *replica, ddp_dp_phase_t phase);
void    ddp_dp_leave(ddp_replica_t *replica, ddp_dp_phase_t phase, int64_t start_ns);
void    ddp_dp_report_begin(ddp_dp_t *dp);
/** @param [in] step_end_ns  when the reducer's last part began. @param [in] update_ns  time it spent in
 * updates, in that part and before it */
void ddp_dp_report_end(ddp_dp_t *dp, int64_t step_end_ns, int64_t update_ns);

#endif
