/** @file A data set of an open HDF5 file, read by slices. Thread: as io/h5_internal.h. Private to io. */
#ifndef DDP_H5_TABLE_INTERNAL_H_
#define DDP_H5_TABLE_INTERNAL_H_

#include <stddef.h>
#include <stdint.h>

#include <hdf5.h>

#include "base/export.h"
#include "base/status.h"

#define DDP_H5_MAX_DIMS 4

typedef struct ddp_h5_table {
    const char *path, *name, *key; /* for the lines; borrowed */
    hid_t       id, type, space;   /* owned; < 0: none */
    int         ndim;
    hsize_t     dims[DDP_H5_MAX_DIMS]; /* those that it does not have are 1 */
    hsize_t     chunk;                 /* rows of a chunk; 1 if contiguous */
} ddp_h5_table_t;

#define DDP_H5_TABLE_EMPTY                                                                                   \
    {                                                                                                        \
        .id = -1, .type = -1, .space = -1, .dims = {1, 1, 1, 1}, .chunk = 1                                  \
    }

/** What a data set must be. */
typedef struct ddp_h5_wanted {
    const char *path, *name, *key; /* `key` of the configuration names the data set */
    int         least, most;       /* dimensions, none of them 0 */
    uint64_t    limit;             /* of one dimension */
    size_t      cache_bytes;       /* for unpacked chunks; 0: HDF5's default, 1 MiB */
} ddp_h5_wanted_t;

/** @return DDP_ERR_FORMAT, with path and data set; `table` is then empty */
ddp_status_t ddp_h5_table_open(hid_t file, const ddp_h5_wanted_t *wanted,
                               ddp_h5_table_t *table) DDP_NODISCARD;
void         ddp_h5_table_close(ddp_h5_table_t *table);

/**
 * Read count[d] entries from start[d] on in each dimension, converted to the memory's type.
 * @return DDP_ERR_FORMAT
 */
ddp_status_t ddp_h5_table_read(const ddp_h5_table_t *table, hid_t type, const hsize_t *start,
                               const hsize_t *count, void *data) DDP_NODISCARD;

#endif
