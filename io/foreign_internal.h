/** @file HDF5 files of others: what the process that parses one tells the one that wants it. Private to io.
 */
#ifndef DDP_FOREIGN_INTERNAL_H_
#define DDP_FOREIGN_INTERNAL_H_

#include <hdf5.h>

#include "io/weights_internal.h"

#define DDP_FOREIGN_TENSORS 65536
/** Arguments of the reader: this word, the path, DDP_FOREIGN_LIST or the tensor to send from, seconds of
 * processor time. */
#define DDP_FOREIGN_WORD "@hdf5-reader"
#define DDP_FOREIGN_ARGS 5
#define DDP_FOREIGN_LIST UINT64_MAX
/** Where the reader writes to. */
#define DDP_FOREIGN_FD    3
#define DDP_FOREIGN_MAGIC (UINT32_C(0xDD5F0000) + (uint32_t)sizeof(ddp_foreign_record_t))

typedef enum ddp_foreign_what {
    DDP_FOREIGN_TENSOR = 1, /* when numbers are sent, blocks of `bytes` in all follow */
    DDP_FOREIGN_BLOCK  = 2, /* `bytes` of numbers follow */
    DDP_FOREIGN_END    = 3, /* all is told */
    DDP_FOREIGN_FAILED = 4  /* `text` says why; in place of any other */
} ddp_foreign_what_t;

/** The parent believes none of it. */
typedef struct ddp_foreign_record {
    uint32_t magic, what, type, ndim;
    uint64_t shape[DDP_MAX_DIMS];
    uint64_t index; /* of the tensor in the order of the file */
    uint64_t at;    /* where its bytes lie in the file, if they are not packed */
    uint64_t bytes;
    uint32_t is_packed; /* in chunks, or within HDF5's own records: the reader must send it */
    char     text[DDP_WEIGHTS_NAME_SIZE];
} ddp_foreign_record_t;

/** In the reader: tell what is in `path`, or send the packed tensors from the one of index `from` on. What
 * goes wrong is told as a record. */
void ddp_foreign_tell(const char *path, uint64_t from);

/** In the reader: all of it to the parent. */
ddp_status_t ddp_foreign_put(const void *data, size_t bytes) DDP_NODISCARD;

/** In the reader, of a data set that is packed: whether it is in a way that can be read. */
ddp_status_t ddp_foreign_check_packed(hid_t array, hid_t layout, const ddp_foreign_record_t *record,
                                      const char *path) DDP_NODISCARD;

/** In the reader: the numbers of a packed data set, in C order, of the type that they have in the file. */
ddp_status_t ddp_foreign_send(hid_t array, hid_t layout, const ddp_foreign_record_t *record,
                              const char *path) DDP_NODISCARD;

#endif
