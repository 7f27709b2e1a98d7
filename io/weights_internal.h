/** @file What the readers of each kind of file share. Private to io. */
#ifndef DDP_WEIGHTS_INTERNAL_H_
#define DDP_WEIGHTS_INTERNAL_H_

#include "io/new_file_internal.h"
#include "io/source_internal.h"
#include "io/weights.h"

/** Longest name of a tensor, with its final 0. */
#define DDP_WEIGHTS_NAME_SIZE 512
/** Elements that are read and written at a time. */
#define DDP_WEIGHTS_CHUNK ((size_t)1 << 16)

typedef struct ddp_npz     ddp_npz_t;
typedef struct ddp_foreign ddp_foreign_t;

struct ddp_weights {
    char                  path[DDP_SOURCE_PATH_SIZE];
    int                   fd;    /* owned; -1: none */
    uint64_t              bytes; /* of the file */
    ddp_weights_kind_t    kind;
    ddp_weights_tensor_t *tensors; /* owned, names too */
    size_t                n, room;
    ddp_checkpoint_t     *checkpoint; /* owned; NULL unless CHECKPOINT */
    ddp_npz_t            *npz;        /* owned; NULL unless NPZ */
    ddp_foreign_t        *foreign;    /* owned; NULL unless HDF5 */
};

/** Bytes of an element; 0 for OTHER. */
size_t ddp_weights_type_bytes(ddp_weights_type_t type);

/**
 * Append a tensor; its name is copied and checked, its role told by its name, its count computed.
 * @param [in] shape  [ndim] as the file says it
 * @param [in] bytes  of its data: the shape must fill them exactly, and they must lie within the file's
 * length times `ratio` (what compression can do at most; 1 without)
 * @return DDP_ERR_FORMAT, with path and name
 */
ddp_status_t ddp_weights_add(ddp_weights_t *weights, const char *name, ddp_weights_type_t type,
                             const uint64_t *shape, size_t ndim, uint64_t bytes, uint64_t ratio,
                             uint64_t at) DDP_NODISCARD;

/** @return DDP_ERR_FORMAT: a name twice */
ddp_status_t ddp_weights_check_names(const ddp_weights_t *weights) DDP_NODISCARD;

/** Readers: fill `weights` of an open file. */
ddp_status_t ddp_safetensors_read(ddp_weights_t *weights) DDP_NODISCARD;
ddp_status_t ddp_npz_read(ddp_weights_t *weights) DDP_NODISCARD;
ddp_status_t ddp_foreign_read(ddp_weights_t *weights, const ddp_weights_params_t *params) DDP_NODISCARD;

/** The next `count` elements as stored, [first, first + count) of a tensor: front to back without reading
 * twice. @param [out] to  [count * type's bytes] */
ddp_status_t ddp_npz_get(ddp_weights_t *weights, size_t tensor, size_t first, size_t count,
                         void *to) DDP_NODISCARD;
void         ddp_npz_close(ddp_npz_t **npz_p);
ddp_status_t ddp_foreign_get(ddp_weights_t *weights, size_t tensor, size_t first, size_t count,
                             void *to) DDP_NODISCARD;
void         ddp_foreign_close(ddp_foreign_t **foreign_p);

/** Writers: what goes into the file is `chosen`, [n], indices of tensors, in that order; all are floats. */
typedef struct ddp_weights_choice {
    const size_t *chosen;
    size_t        n;
    const char   *producer;
} ddp_weights_choice_t;

ddp_status_t ddp_safetensors_write(ddp_weights_t *weights, const ddp_weights_choice_t *choice,
                                   ddp_new_file_t *file) DDP_NODISCARD;
ddp_status_t ddp_npz_write(ddp_weights_t *weights, const ddp_weights_choice_t *choice,
                           ddp_new_file_t *file) DDP_NODISCARD;
ddp_status_t ddp_weights_write_checkpoint(ddp_weights_t *weights, const ddp_weights_choice_t *choice,
                                          ddp_new_file_t *file) DDP_NODISCARD;

/** Told of the bytes of a tensor, float32, in order. */
typedef ddp_status_t ddp_weights_piece_fn_t(void *ctx, const void *data, size_t bytes);
ddp_status_t ddp_weights_each_piece(ddp_weights_t *weights, size_t tensor, ddp_weights_piece_fn_t *piece,
                                    void *ctx) DDP_NODISCARD;

#endif
