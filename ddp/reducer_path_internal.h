/**
 * @file How the reducer's work is done: one table per path. Private.
 *
 * reducer.c and reducer_step.c hold the protocol, the same for all paths: the states of a step, which arena a
 * micro-batch writes to, which bucket is complete. A path owns the memory and the streams and does the work.
 * `host` (reducer_host.c, _bucket, _sums, _norm, _plan, _wire) has its arenas in shared memory and sums them
 * there; MPI carries what goes to other machines.
 *
 * Calls of a step, all from the thread that owns the device; none waits but step_begin and wait:
 *
 *     step_begin                  once
 *     forward_done                for each micro-batch of this rank, and `sums` after the last one
 *     merge                       for each bucket of each micro-batch: two arenas of this rank become one
 *     launch                      for each bucket, in order, when it is final on this rank
 *     end                         after the last bucket
 *     wait                        from step_end
 *
 * A rank without micro-batches calls sums, launch for each bucket, and end, from step_begin.
 */
#ifndef DDP_REDUCER_PATH_INTERNAL_H_
#define DDP_REDUCER_PATH_INTERNAL_H_

#include "ddp/reducer_internal.h"

struct ddp_reducer_path {
    const char *name; /* as ddp.backend has it */

    /** Collective, and agreed on when it returns. Buckets and tensors are there. Sets values, slots,
     * grads_base and leaves; all zero but `leaves`. */
    ddp_status_t (*create)(ddp_reducer_t *r);
    /** Half-built and failed ones too. */
    void (*destroy)(ddp_reducer_t *r);
    /** Collective: what the writers (ddp_reducer_is_writer()) wrote to the arenas is everybody's. */
    ddp_status_t (*publish)(ddp_reducer_t *r);
    /** r->step and r->steps were set from a checkpoint; publish follows. */
    ddp_status_t (*restore)(ddp_reducer_t *r);

    /** The last step's updates come before what the compute stream gets next, or are waited for; its errors
     * are told. Sets `present`: the micro-batches of this step that have samples. */
    ddp_status_t (*step_begin)(ddp_reducer_t *r, size_t present);
    /** Of micro-batch r->leaf: its sums, in order of the compute stream, and its r->used. */
    ddp_status_t (*forward_done)(ddp_reducer_t *r, const ddp_loss_stats_t *stats);
    /** The small vector of this rank is complete in order of the compute stream: reduce it. */
    ddp_status_t (*sums)(ddp_reducer_t *r);
    /** In order of the compute stream: bucket b of arena `left` += that of arena `right`. */
    ddp_status_t (*merge)(ddp_reducer_t *r, size_t b, ddp_merge_t arenas);
    /** What the compute stream has so far makes bucket b final on this rank: reduce and update it. */
    ddp_status_t (*launch)(ddp_reducer_t *r, size_t b);
    ddp_status_t (*end)(ddp_reducer_t *r);
    /** Until this rank's part is done, and r's result of the step is there (all of `sums`, leaves, used_any,
     * the times). */
    ddp_status_t (*wait)(ddp_reducer_t *r);
    /** Between steps: until all parameters of this rank are written. DDP_ERR_NOT_FINITE: updates met it. */
    ddp_status_t (*finish)(ddp_reducer_t *r);

    /** The times of the last step into the reducer, if they are not there yet. NULL: they are. */
    ddp_status_t (*times)(ddp_reducer_t *r);

    /** Values and slots are memory of the compute stream's device, of each rank its own; else one host memory
     * for the machine. */
    bool is_on_device;
    /** See ddp_reducer_holder(). NULL: everybody holds all. */
    int (*holder)(const ddp_reducer_t *r, int array, size_t offset, size_t *count_p);
    /** Where this rank has element `offset` of an array, and *count_p of it from there on that lie together;
     * returns NULL: not here. NULL: values and slots are whole. */
    float *(*place)(const ddp_reducer_t *r, int array, size_t offset, size_t *count_p);

    /** See ddp_reducer_grad_norm(); after finish. */
    ddp_status_t (*grad_norm)(ddp_reducer_t *r, double *norm_p);
    /** See ddp_reducer_traffic(); `from` is zeroed. */
    void (*traffic)(const ddp_reducer_t *r, uint64_t *from);
};

extern const ddp_reducer_path_t ddp_reducer_host_path;
/** The same with a compute device that has memory of its own (reducer_staged.c). */
extern const ddp_reducer_path_t ddp_reducer_staged_path;
/** NULL: not in this build. */
const ddp_reducer_path_t *ddp_reducer_nccl_path(void);

/** The path for these parameters; AUTO is resolved in them. Collective, and what fails fails on all ranks. */
ddp_status_t ddp_reducer_choose(ddp_reducer_params_t      *params,
                                const ddp_reducer_path_t **path_p) DDP_NODISCARD;

#endif
