/**
 * @file Named tensors in files of several kinds: checkpoints of ddptrain, safetensors, NumPy's .npz, and HDF5
 * files of others. One process; no MPI.
 *
 * Nothing in a file is believed: names, types, shapes and places are checked against the file's length before
 * any use, and HDF5 of others is parsed by another process, with limits of time and memory.
 * Thread: the owner of the object.
 */
#ifndef DDP_WEIGHTS_H_
#define DDP_WEIGHTS_H_

#include "io/checkpoint.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ddp_weights_kind {
    DDP_WEIGHTS_CHECKPOINT  = 0, /* ours, verified */
    DDP_WEIGHTS_HDF5        = 1, /* any other HDF5 file */
    DDP_WEIGHTS_SAFETENSORS = 2,
    DDP_WEIGHTS_NPZ         = 3
} ddp_weights_kind_t;

/** As stored, little-endian. OTHER (integers, truth values) can be listed, not read. */
typedef enum ddp_weights_type {
    DDP_WEIGHTS_F32   = 0,
    DDP_WEIGHTS_F64   = 1,
    DDP_WEIGHTS_F16   = 2,
    DDP_WEIGHTS_BF16  = 3,
    DDP_WEIGHTS_OTHER = 4
} ddp_weights_type_t;

typedef struct ddp_weights_tensor {
    ddp_tensor_desc_t  desc; /* name, ndim (0: a single number), shape, count, role; OTHER: only name */
    ddp_weights_type_t type;
    int                array; /* DDP_CHECKPOINT_VALUES; in a checkpoint 0, 1: moments, whose names begin with
                                 "optimizer.<slot>." */
    uint64_t at;              /* of io: where it lies */
    bool     is_packed;       /* of io */
} ddp_weights_tensor_t;

typedef struct ddp_weights ddp_weights_t;

/** "checkpoint", "HDF5", "safetensors", "npz" */
DDP_API const char *ddp_weights_kind_name(ddp_weights_kind_t kind);

/** A moment: of a checkpoint, or in another file under the name that ddp_weights_write() gives it,
 * "optimizer.<slot>.<name>". */
DDP_API bool ddp_weights_is_moment(const ddp_weights_tensor_t *tensor);

/** The kind that a path's ending asks for: .h5 and .hdf5 (a checkpoint), .safetensors, .npz. @return false:
 * none of them */
DDP_API bool ddp_weights_kind_of_ending(const char *path, ddp_weights_kind_t *kind_p);

/** How a file is opened. */
typedef struct ddp_weights_params {
    size_t struct_size;
    bool   unverified; /* a checkpoint that does not verify is read as an HDF5 file of others */
    const char
        *reader;   /* borrowed: a program that is started to parse HDF5 of others, whose main() begins with
                      ddp_weights_reader(); "/proc/self/exe" is this one. NULL: such files are refused */
    int timeout_s; /* the most that is waited for it; a second more for each 10 MB that it unpacks */
} ddp_weights_params_t;
#define DDP_WEIGHTS_PARAMS_INIT                                                                              \
    {                                                                                                        \
        .struct_size = sizeof(ddp_weights_params_t), .timeout_s = 20                                         \
    }

/**
 * Open a file of any kind, told by its content. Blocking; a checkpoint is verified, which reads all of it.
 * @return DDP_ERR_IO; DDP_ERR_FORMAT: no such file, damaged, or hostile: path, place and cause in one line;
 * DDP_ERR_SYSTEM: the reader cannot be started; DDP_ERR_UNSUPPORTED: HDF5 of others, and no reader
 */
DDP_API ddp_status_t ddp_weights_open(const char *path, const ddp_weights_params_t *params,
                                      ddp_weights_t **weights_p) DDP_NODISCARD;

/**
 * The first call of main() in a program that is a `reader`. It parses a file for the process that started
 * this one, if that is what it was started for: with limits of memory (512 MiB beyond its own) and processor
 * time, without a core file, and able to write to nothing but a pipe.
 * @param [out] code_p  exit status, if true
 * @return false: main() goes on; true: it returns *code_p
 */
DDP_API bool ddp_weights_reader(int argc, char **argv, int *code_p);

/** Accepts NULL. */
DDP_API void ddp_weights_close(ddp_weights_t **weights_p);

DDP_API ddp_weights_kind_t ddp_weights_kind(const ddp_weights_t *weights);
/** Borrowed; NULL unless the kind is CHECKPOINT. */
DDP_API const ddp_checkpoint_t *ddp_weights_checkpoint(const ddp_weights_t *weights);
/** In the order of the file; valid until close or adopt. */
DDP_API size_t                      ddp_weights_count(const ddp_weights_t *weights);
DDP_API const ddp_weights_tensor_t *ddp_weights_tensors(const ddp_weights_t *weights);
/** @return index, or ddp_weights_count() if there is none of that name */
DDP_API size_t ddp_weights_find(const ddp_weights_t *weights, const char *name);

/**
 * Elements [first, first + count) as float32. From front to back is fast for all kinds.
 * @param [out] to  host, [count]
 * @return DDP_ERR_IO; DDP_ERR_FORMAT: damaged, or a number that float32 cannot hold; DDP_ERR_INVALID_ARG: no
 * such range, or type OTHER
 */
DDP_API ddp_status_t ddp_weights_read(ddp_weights_t *weights, size_t tensor, size_t first, size_t count,
                                      float *to) DDP_NODISCARD;

/** One line on what was changed; without the path. */
typedef void ddp_weights_said_fn_t(void *ctx, const char *line);

/**
 * Give the tensors the names that models here have, and drop what no model has: prefixes `module.` and
 * `_orig_mod.`; arrays that are no floats; for GPT-2 in Hugging Face's names the masks `attn.bias`, and
 * `lm_head.weight`, which must equal `transformer.wte.weight`; its `transformer.` is added where it lacks.
 * @param [in] moments  keep arrays named `optimizer.<slot>.<name>`, as ddp_weights_write() writes them
 * @return DDP_ERR_FORMAT: two tensors would have one name, or lm_head.weight is another matrix
 */
DDP_API ddp_status_t ddp_weights_adopt(ddp_weights_t *weights, bool moments, ddp_weights_said_fn_t *said,
                                       void *ctx) DDP_NODISCARD;

/**
 * Write them as float32 into a new file, which is there whole or not at all.
 * @param [in] kind     of the file; CHECKPOINT: one of step 0 without moments, for --init
 * @param [in] moments  SAFETENSORS, NPZ: a checkpoint's moments too
 * @return DDP_ERR_IO: exists already, or cannot be written; DDP_ERR_FORMAT: a name, shape or size that this
 * kind cannot have
 */
DDP_API ddp_status_t ddp_weights_write(ddp_weights_t *weights, const char *path, ddp_weights_kind_t kind,
                                       bool moments, const char *producer) DDP_NODISCARD;

#ifdef __cplusplus
}
#endif

#endif
