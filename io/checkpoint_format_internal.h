/**
 * @file How a checkpoint's file is laid out: which bytes are metadata, made by HDF5, and where each array of
 * floats lies. Writer and reader share it. Private to io; docs/checkpoint.md describes the result.
 */
#ifndef DDP_CHECKPOINT_FORMAT_INTERNAL_H_
#define DDP_CHECKPOINT_FORMAT_INTERNAL_H_

#include "io/checkpoint.h"

/** HDF5's user block: text with size and checksums, which covers the rest of the file. */
#define DDP_CHECKPOINT_HEADER_BYTES 4096

#define DDP_CHECKPOINT_METADATA (-2) /* an extent that is no array */

/** A range of the file. Extents cover [DDP_CHECKPOINT_HEADER_BYTES, bytes) in order, without a gap. */
typedef struct ddp_checkpoint_extent {
    uint64_t       at, bytes;
    size_t         tensor;
    int            array;    /* DDP_CHECKPOINT_VALUES, a slot, or DDP_CHECKPOINT_METADATA */
    const uint8_t *metadata; /* [bytes], borrowed from the plan; NULL for arrays */
} ddp_checkpoint_extent_t;

typedef struct ddp_checkpoint_plan {
    uint64_t                 bytes;   /* of the file */
    ddp_checkpoint_extent_t *extents; /* owned, [n_extents] */
    size_t                   n_extents;
    uint8_t                 *metadata; /* owned */
} ddp_checkpoint_plan_t;

/**
 * Make all of a file but its arrays. HDF5 writes a sparse skeleton outside of the checkpoint's folder, so
 * that a full disk never happens inside of HDF5.
 * @param [in]  tensors  [n], registration order
 * @param [in]  steps    [n], updates applied to each
 * @param [out] plan_p   ddp_checkpoint_plan_free() frees what is in it
 * @return DDP_ERR_IO: no folder for the skeleton can be written (DDPTRAIN_TMP, /dev/shm, TMPDIR, /tmp)
 */
ddp_status_t ddp_checkpoint_plan_make(const ddp_tensor_desc_t *tensors, const uint64_t *steps, size_t n,
                                      const ddp_training_state_t *state,
                                      ddp_checkpoint_plan_t      *plan_p) DDP_NODISCARD;
void         ddp_checkpoint_plan_free(ddp_checkpoint_plan_t *plan);

typedef struct ddp_checkpoint_header {
    unsigned version;
    uint64_t step;
    uint64_t bytes; /* of the file, header included */
    uint32_t crc;   /* of all bytes behind the header */
} ddp_checkpoint_header_t;

void ddp_checkpoint_header_write(const ddp_checkpoint_header_t *header,
                                 char                           block[DDP_CHECKPOINT_HEADER_BYTES]);
/** @param [in] path  for the line. @return DDP_ERR_FORMAT; a version that is not known is no error here */
ddp_status_t ddp_checkpoint_header_read(const char *path, const char block[DDP_CHECKPOINT_HEADER_BYTES],
                                        ddp_checkpoint_header_t *header_p) DDP_NODISCARD;

#endif
