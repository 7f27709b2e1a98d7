/** @file What the child process that reads an HDF5 file of others tells its parent. Private to io. */
#ifndef DDP_FOREIGN_INTERNAL_H_
#define DDP_FOREIGN_INTERNAL_H_

#include "io/weights_internal.h"

#define DDP_FOREIGN_TENSORS 65536

typedef enum ddp_foreign_what {
    DDP_FOREIGN_TENSOR = 1,
    DDP_FOREIGN_END    = 2, /* all is told */
    DDP_FOREIGN_FAILED = 3  /* `text` says why */
} ddp_foreign_what_t;

/** The parent believes none of it: it checks type, shape and place again. */
typedef struct ddp_foreign_record {
    uint32_t what, type, ndim, status;
    uint64_t shape[DDP_MAX_DIMS];
    uint64_t at, bytes;
    char     text[DDP_WEIGHTS_NAME_SIZE];
} ddp_foreign_record_t;

/** The child's part: read `path`, write records to `fd`. Never returns an error: it is told as a record. */
void ddp_foreign_list(const char *path, int fd);

#endif
