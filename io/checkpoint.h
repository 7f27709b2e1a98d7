/**
 * @file Reading checkpoints: one HDF5 file holds model, optimizer and training state, and does not depend on
 * the ranks that wrote it. docs/checkpoint.md describes the file byte by byte; io/saver.h writes it.
 *
 * A file is verified (size and crc32c of everything) before HDF5 sees a byte of it. Not collective: one rank
 * decides what to load and tells the others.
 */
#ifndef DDP_CHECKPOINT_H_
#define DDP_CHECKPOINT_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/export.h"
#include "base/status.h"
#include "kernels/layout.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DDP_CHECKPOINT_VERSION   1
#define DDP_CHECKPOINT_MAX_SLOTS 2
/** "ckpt-000000001200.h5" with its final 0. */
#define DDP_CHECKPOINT_NAME_SIZE 32

typedef struct ddp_checkpoint ddp_checkpoint_t;

/** Everything about a run but its tensors. Texts are UTF-8; whose they are is said where the struct is used.
 */
typedef struct ddp_training_state {
    uint64_t    step;          /* steps done */
    uint64_t    epoch;         /* of the next sample, from 0 */
    uint64_t    samples_seen;  /* since the run began: the next sample's place in the order of all epochs */
    uint64_t    seed;          /* of initial values, order and dropout */
    uint64_t    micro_batches; /* V: wins over the configuration on resume */
    const char *isa;           /* "avx512": the instruction set that computed it */
    const char *optimizer;     /* "adamw", "sgd" */
    size_t      n_slots;
    const char
        *slot[DDP_CHECKPOINT_MAX_SLOTS]; /* PyTorch's names: "exp_avg", "exp_avg_sq"; "momentum_buffer" */
    const char *data;                    /* fingerprint of the training data */
    const char *config;                  /* resolved configuration, YAML */
    const char *producer;                /* "ddptrain 0.3.0" */
    double      best_loss;               /* smallest validation loss so far; NaN: none yet */
    double      loss_scale;              /* of a run in half precision (ddp_loss_scale_t); 0: it has none */
    uint64_t    loss_scale_steps;
} ddp_training_state_t;

/** A tensor of /model and its moments. */
typedef struct ddp_checkpoint_tensor {
    ddp_tensor_desc_t desc;  /* name, ndim, shape, count, role; offset unused (0) */
    uint64_t          steps; /* updates applied to it: AdamW's t */
    /* where its values and its moments begin in the file, bytes; a tensor of role AVERAGE has no moments (0)
     */
    uint64_t value_at;
    uint64_t slot_at[DDP_CHECKPOINT_MAX_SLOTS];
} ddp_checkpoint_tensor_t;

/**
 * Check size and crc32c of the whole file, then read its structure. Blocking, reads all of it once.
 * @return DDP_ERR_IO: cannot be opened or read. DDP_ERR_FORMAT: not a checkpoint of ddptrain, a version this
 * build does not read, cut short or extended, damaged: one line with path, expected and found
 */
DDP_API ddp_status_t ddp_checkpoint_open(const char *path, ddp_checkpoint_t **checkpoint_p) DDP_NODISCARD;
/** Accepts NULL. */
DDP_API void ddp_checkpoint_close(ddp_checkpoint_t **checkpoint_p);
/** The checks of open() without HDF5. @param [out] step_p  from the header; or NULL */
DDP_API ddp_status_t ddp_checkpoint_verify(const char *path, uint64_t *step_p) DDP_NODISCARD;

/** The path it was opened by; borrowed, valid until close. */
DDP_API const char *ddp_checkpoint_path(const ddp_checkpoint_t *checkpoint);
/** Borrowed from the checkpoint, valid until close; so are the texts in it. */
DDP_API const ddp_training_state_t *ddp_checkpoint_state(const ddp_checkpoint_t *checkpoint);
/** In registration order. */
DDP_API size_t                         ddp_checkpoint_count(const ddp_checkpoint_t *checkpoint);
DDP_API const ddp_checkpoint_tensor_t *ddp_checkpoint_tensors(const ddp_checkpoint_t *checkpoint);
/** @return index, or ddp_checkpoint_count() if there is none of that name */
DDP_API size_t ddp_checkpoint_find(const ddp_checkpoint_t *checkpoint, const char *name);

/** Which of a tensor's arrays. */
#define DDP_CHECKPOINT_VALUES (-1) /* 0, 1: that slot */
/**
 * Read elements [first, first + count) of a tensor's values or moments.
 * @param [in]  array  DDP_CHECKPOINT_VALUES or a slot
 * @param [out] to     host, [count]
 * @return DDP_ERR_IO; DDP_ERR_INVALID_ARG: no such range
 */
DDP_API ddp_status_t ddp_checkpoint_read(const ddp_checkpoint_t *checkpoint, size_t tensor, int array,
                                         size_t first, size_t count, float *to) DDP_NODISCARD;

/**
 * Do the tensors fit a model? Missing, superfluous and differently shaped ones are counted and the first
 * three named in one line.
 * @param [in] tensors, n  the model's
 * @param [in] allow       [n_allow] fnmatch patterns of names that may be missing on either side
 * @return DDP_ERR_MISMATCH
 */
DDP_API ddp_status_t ddp_checkpoint_check_model(const ddp_checkpoint_t  *checkpoint,
                                                const ddp_tensor_desc_t *tensors, size_t n,
                                                const char *const *allow, size_t n_allow) DDP_NODISCARD;

/**
 * Is it a run's? `ddptrain convert` makes files of weights alone, without moments, and of foreign ones
 * without a configuration.
 * @param [in] training  to go on from it: moments are needed too
 * @return DDP_ERR_MISMATCH, with the path
 */
DDP_API ddp_status_t ddp_checkpoint_check_run(const ddp_checkpoint_t *checkpoint, const char *path,
                                              bool training) DDP_NODISCARD;

/** "ckpt-000000001200.h5" */
DDP_API void ddp_checkpoint_name(uint64_t step, char name[DDP_CHECKPOINT_NAME_SIZE]);
/**
 * The steps of the files in `folder` whose names are a checkpoint's, newest first; not verified.
 * @param [out] steps_p  [*n_p], the caller frees it; NULL where there is none
 * @return DDP_ERR_IO: the folder cannot be read (a folder that does not exist is an empty one)
 */
DDP_API ddp_status_t ddp_checkpoint_list(const char *folder, uint64_t **steps_p, size_t *n_p) DDP_NODISCARD;
/** Told of each file that was passed over: path and why. */
typedef void ddp_checkpoint_skipped_fn_t(void *ctx, const char *path, const char *why);
/**
 * Open the newest that verifies.
 * @param [out] checkpoint_p  NULL if there is none at all
 * @return DDP_ERR_FORMAT: there are some, but none verifies
 */
DDP_API ddp_status_t ddp_checkpoint_open_newest(const char *folder, ddp_checkpoint_skipped_fn_t *skipped,
                                                void *ctx, ddp_checkpoint_t **checkpoint_p) DDP_NODISCARD;

/** The HDF5 that is loaded, and the headers that this was compiled with: "1.10.8, headers 1.10.8". Thread:
 * any.
 * @return `text` */
#define DDP_CHECKPOINT_LIBRARY_SIZE 48
DDP_API const char *ddp_checkpoint_library(char text[DDP_CHECKPOINT_LIBRARY_SIZE]);

#ifdef __cplusplus
}
#endif

#endif
