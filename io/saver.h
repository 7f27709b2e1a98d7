/**
 * @file Writing checkpoints while training goes on. A save copies the state at a step boundary; threads write
 * it. The ranks of rank 0's machine write their own slices; the others only take part in the decision.
 *
 * A disk may take its time, or not answer at all: a save *hangs* when nothing of it has moved (no byte
 * written, no call come back) for 30 s, or half of timeout_ms if that is less. That is a warning, and
 * training goes on.
 *
 * A file is complete or not there: temporary file in the same folder, space reserved first, checksum, fsync,
 * rename, fsync of the folder. The same state gives the same bytes from any number of ranks.
 */
#ifndef DDP_SAVER_H_
#define DDP_SAVER_H_

#include "ddp/comm.h"
#include "ddp/reducer.h"
#include "io/checkpoint.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ddp_saver ddp_saver_t;

typedef struct ddp_saver_params {
    size_t                   struct_size;
    ddp_comm_t              *comm;    /* borrowed, outlives the saver */
    ddp_reducer_t           *reducer; /* borrowed */
    const ddp_tensor_desc_t *tensors; /* [n_tensors], registration order; borrowed */
    size_t                   n_tensors;
    const char              *folder; /* rank 0: made if missing; copied. Others: not read */
    size_t                   keep;   /* newest files kept, >= 2; and the best */
    int timeout_ms;                  /* > 0: how long a disk may make no progress while it is waited for; see
                                        ddp_saver_finish() */
    /* For the snapshot; NULL, or what cannot give it: memory of the process. A device's host allocator takes
     * copies faster. Borrowed, and outlives the saver; where a thread is left behind (ddp_saver_destroy()),
     * the process. */
    const ddp_allocator_t *memory;
    /* Rank 0, before and after ddp_saver_save() itself is at a disk, where nothing waits for other ranks;
     * may be NULL. */
    void (*at_disk)(void *ctx, bool begins);
    void *at_disk_ctx;
} ddp_saver_params_t;
#define DDP_SAVER_PARAMS_INIT                                                                                \
    {                                                                                                        \
        .struct_size = sizeof(ddp_saver_params_t), .keep = 3, .timeout_ms = 600000                           \
    }

/** Bytes that rank 0's machine needs beyond training: the snapshot. For --dry-run. */
DDP_API size_t ddp_saver_bytes(const ddp_tensor_desc_t *tensors, size_t n_tensors, size_t n_slots);

/** Collective. Takes the snapshot's memory, removes temporary files that a killed run left, and sees that the
 * folder can be written and has room for one file.
 * @return DDP_ERR_IO: path and cause, or as ddp_saver_finish() */
DDP_API ddp_status_t ddp_saver_create(const ddp_saver_params_t *params, ddp_saver_t **saver_p) DDP_NODISCARD;
/** Local. What is still being written is given up (its temporary file removed). A thread that the disk holds
 * for timeout_ms is left behind with its memory and that of the communicator; it ends with the process.
 * Accepts NULL. */
DDP_API void ddp_saver_destroy(ddp_saver_t **saver_p);

/** What became of a save. */
typedef struct ddp_save_result {
    uint64_t step;
    bool     is_saved;
    bool     is_best;   /* as the save was told; false where it was not begun */
    double   best_loss; /* of its state */
    char     path[4096];
    char     why[512]; /* not saved: one line */
    uint64_t bytes;
    int64_t  stall_ns; /* the loop stood still: waiting for the save before it, and copying */
    int64_t  write_ns;
} ddp_save_result_t;

/** Collective: wait for the save that is being written, as long as it does not hang; then its result can be
 * polled. That it hangs is no error: a save now would be left out. */
DDP_API ddp_status_t ddp_saver_settle(ddp_saver_t *saver) DDP_NODISCARD;
/**
 * Copy the state and begin to write. Collective, between steps (after ddp_reducer_finish()). Blocking for the
 * copy, and as ddp_saver_settle() for the save before it. If that hangs, this one is left out: a result that
 * is not saved, "still writing ..."
 * @param [in] state    rank 0's is written; copied
 * @param [in] is_best  rank 0's: this one is kept as the best so far
 */
DDP_API ddp_status_t ddp_saver_save(ddp_saver_t *saver, const ddp_training_state_t *state,
                                    bool is_best) DDP_NODISCARD;
/** Step of the last save that was begun, the same on all ranks; 0: none. Local. */
DDP_API uint64_t ddp_saver_last(const ddp_saver_t *saver);
/** Local, not blocking; rank 0 learns of saves that came to an end, oldest first, and a save that hangs is
 * warned of.
 * @return true and *result_p, or false */
DDP_API bool ddp_saver_poll(ddp_saver_t *saver, ddp_save_result_t *result_p);
/** Collective: wait until nothing is being written; warns of what hangs.
 * @return DDP_ERR_TIMEOUT (rank 0) and DDP_ERR_REMOTE: no progress for timeout_ms; what, where, and how much
 * was written */
DDP_API ddp_status_t ddp_saver_finish(ddp_saver_t *saver) DDP_NODISCARD;

/** Local, for a run that fails on all ranks at the same step: let the save that is being written come to its
 * end. Every rank must wait, as its thread writes too. @return false: it has not in this time */
DDP_API bool ddp_saver_drain(ddp_saver_t *saver, int timeout_ms);

/**
 * Collective: give reducer and ranks the state of a checkpoint that rank 0 opened (others NULL): values,
 * moments, steps of the tensors. Any number of ranks and machines; only rank 0's machine needs the file.
 * @param [in] values_only  --init: moments and step counts stay at 0; tensors that the checkpoint lacks stay
 *                          as they are
 */
DDP_API ddp_status_t ddp_checkpoint_restore(ddp_comm_t *comm, ddp_reducer_t *reducer,
                                            const ddp_tensor_desc_t *tensors, size_t n_tensors,
                                            const ddp_checkpoint_t *checkpoint,
                                            bool                    values_only) DDP_NODISCARD;

#ifdef __cplusplus
}
#endif

#endif
