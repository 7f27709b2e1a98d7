/** @file IDX files: 0, 0, type, number of dimensions, each dimension as a big-endian uint32, then the items.
 * Private to io. */
#ifndef DDP_IDX_INTERNAL_H_
#define DDP_IDX_INTERNAL_H_

#include <stddef.h>
#include <stdint.h>

#include "base/export.h"
#include "base/status.h"
#include "io/bytes_internal.h"
#include "io/source_internal.h"

typedef enum ddp_idx_role { DDP_IDX_IMAGES = 0, DDP_IDX_LABELS = 1 } ddp_idx_role_t;

typedef struct ddp_idx {
    ddp_bytes_t *bytes; /* owned */
    size_t       items;
    size_t       height, width, channels; /* images; 1 each for labels */
    size_t       item_bytes;
    size_t       header_bytes;
    size_t       bytes_read; /* of the items */
} ddp_idx_t;

/**
 * Open a file and check its header against its role: images are uint8 in 3 dimensions (or 4, channels last),
 * labels uint8 or int32 in 1. An uncompressed file's length is checked too; a gzip file's, as far as its size
 * allows.
 * @return DDP_ERR_IO, DDP_ERR_FORMAT: one line with file, offset, expected and found; `idx` is then empty
 */
ddp_status_t ddp_idx_open(const char *path, ddp_idx_role_t role, ddp_idx_t *idx) DDP_NODISCARD;
void         ddp_idx_close(ddp_idx_t *idx);

/** The next `n` bytes of pixels. @return DDP_ERR_FORMAT if the data breaks off */
ddp_status_t ddp_idx_read(ddp_idx_t *idx, void *data, size_t n) DDP_NODISCARD;

/**
 * The first `n` labels of a file just opened.
 * @param [in]  classes  each label must be below; at most DDP_SOURCE_MAX_CLASSES
 * @param [out] labels   [n], or NULL: only check
 * @param [out] max_p    the largest, or NULL
 * @return DDP_ERR_FORMAT: broken off, or a label out of range, with its index
 */
ddp_status_t ddp_idx_read_labels(ddp_idx_t *idx, size_t n, size_t classes, int32_t *labels,
                                 int32_t *max_p) DDP_NODISCARD;

/** After the last item: nothing may be left over, and gzip's checksums must hold. */
ddp_status_t ddp_idx_finish(ddp_idx_t *idx) DDP_NODISCARD;

/**
 * Find the file of a role and split in a folder under the names MNIST's files go by.
 * @return DDP_ERR_IO: none there; or the folder is not there
 */
ddp_status_t ddp_idx_find(const char *folder, ddp_idx_role_t role, const char *prefix, char *path,
                          size_t path_size) DDP_NODISCARD;

#endif
