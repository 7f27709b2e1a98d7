/** @file A file that is there whole or not at all: written under another name, then renamed; nothing is
 * written over. A process that is killed leaves the other name, `<path>.part`, behind. Private to io. */
#ifndef DDP_NEW_FILE_INTERNAL_H_
#define DDP_NEW_FILE_INTERNAL_H_

#include <stddef.h>
#include <stdint.h>

#include "base/export.h"
#include "base/status.h"

typedef struct ddp_new_file ddp_new_file_t;

/** `path` is copied. @return DDP_ERR_IO: the file, or its `.part`, exists; or the folder does not */
ddp_status_t ddp_new_file_create(const char *path, ddp_new_file_t **file_p) DDP_NODISCARD;

/** Append, through a buffer. */
ddp_status_t ddp_new_file_write(ddp_new_file_t *file, const void *data, size_t bytes) DDP_NODISCARD;

/** Replace bytes that were written before. */
ddp_status_t ddp_new_file_patch(ddp_new_file_t *file, uint64_t offset, const void *data,
                                size_t bytes) DDP_NODISCARD;

/** Onto the disk, still under the other name; no more is written after it. */
ddp_status_t ddp_new_file_finish(ddp_new_file_t *file) DDP_NODISCARD;

/** Give it its name: finish first. @param [in] path  another one than at create; NULL: that one */
ddp_status_t ddp_new_file_publish(ddp_new_file_t *file, const char *path) DDP_NODISCARD;

/** Accepts NULL. Removes what was not published. */
void ddp_new_file_close(ddp_new_file_t **file_p);

#endif
