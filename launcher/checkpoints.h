/** @file Checkpoints of a run: where it goes on (--resume, --init), and when it saves. */
#ifndef DDP_CHECKPOINTS_H_
#define DDP_CHECKPOINTS_H_

#include "ddp/reducer.h"
#include "io/checkpoint.h"
#include "io/saver.h"
#include "launcher/options.h"

#define DDP_CHECKPOINTS_PATH_SIZE 4096

struct ddp_run;

/** State of ddp_run_t; zeroed at the start. */
typedef struct ddp_checkpoints {
    ddp_checkpoint_t *opened;     /* owned; rank 0, from find to restore */
    bool              is_found;   /* there is one to go on from; the same on all ranks */
    bool              is_init;    /* --init: weights only */
    bool              is_resumed; /* --resume: an existing folder may be gone on with */
    uint64_t          first_step; /* steps done before this process; 0: a new run */
    int               lock_fd;    /* owned; rank 0: the run's folder is ours; 0: none */
    ddp_saver_t      *saver;      /* owned; NULL: the configuration asks for none */
    double            best_loss;  /* rank 0: least validation loss of what is saved; NaN: none */
    ddp_loss_scale_t  loss_scale; /* to go on with; 0: there is none */
    double            loss;       /* of the last validation, after loss_step steps; 0: none */
    uint64_t          loss_step;
    bool              is_held;                 /* rank 0: by a disk that does not answer */
    int               failed;                  /* saves in a row */
    char last_path[DDP_CHECKPOINTS_PATH_SIZE]; /* rank 0: the newest that this process has saved; "" */
} ddp_checkpoints_t;

/**
 * Find and open the checkpoint that the run goes on from, choose the run's folder where there is one already,
 * and let the checkpoint's micro-batches win. After ddp_run_join(), before ddp_run_prepare(). Collective.
 * @return DDP_ERR_CONFIG: something of the configuration cannot change; DDP_ERR_STATE: another run is in the
 * folder
 */
ddp_status_t ddp_checkpoints_find(struct ddp_run *run) DDP_NODISCARD;
/** Bring the checkpoint into the reducer, and close it. After ddp_run_build(). Collective. */
ddp_status_t ddp_checkpoints_restore(struct ddp_run *run) DDP_NODISCARD;
/** Will this command save checkpoints? */
bool ddp_checkpoints_wanted(const struct ddp_run *run);
/** Get ready to save into the run's folder. Collective. */
ddp_status_t ddp_checkpoints_create(struct ddp_run *run) DDP_NODISCARD;
/**
 * After a step and its evaluation: save if it is time, and tell what became of earlier saves. Collective.
 * @param [in] done   steps done
 * @param [in] loss   validation loss if there was an evaluation after this step, else NaN
 * @return DDP_ERR_IO: three saves in a row have failed
 */
ddp_status_t ddp_checkpoints_step(struct ddp_run *run, uint64_t done, double loss) DDP_NODISCARD;
/** Save the state after `done` steps if it is not saved yet, and wait until it is on the disk. Collective.
 * @return DDP_ERR_IO: that failed; DDP_ERR_TIMEOUT: the disk does not answer */
ddp_status_t ddp_checkpoints_save_now(struct ddp_run *run, uint64_t done) DDP_NODISCARD;
/** Local, where all ranks fail at the same step: let a save that is being written come to its end.
 * @return rank 0: the newest checkpoint that this process has saved, borrowed; "" if there is none */
const char *ddp_checkpoints_drain(struct ddp_run *run);
/** Local; in any state. */
void ddp_checkpoints_close(struct ddp_run *run);

#endif
