/** @file The bytes of a file, gzip or not, from front to back. Private to io. */
#ifndef DDP_BYTES_INTERNAL_H_
#define DDP_BYTES_INTERNAL_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/export.h"
#include "base/status.h"

typedef struct ddp_bytes ddp_bytes_t;

/** What identifies a file's content without reading it. */
typedef struct ddp_bytes_info {
    uint64_t file_bytes; /* as stored */
    int64_t  mtime_ns;
    bool     is_gzip; /* by its first two bytes, not by its name */
} ddp_bytes_info_t;

/** Open a regular file. `path` is copied. @return DDP_ERR_IO with path and cause */
ddp_status_t ddp_bytes_open(const char *path, ddp_bytes_t **bytes_p) DDP_NODISCARD;
void         ddp_bytes_close(ddp_bytes_t **bytes_p);

const char             *ddp_bytes_path(const ddp_bytes_t *bytes);
const ddp_bytes_info_t *ddp_bytes_info(const ddp_bytes_t *bytes);

/**
 * The next `n` decoded bytes.
 * @param [out] got_p  fewer than `n` only where the data ends, or breaks off: see ddp_bytes_is_cut()
 * @return DDP_ERR_IO; DDP_ERR_FORMAT: gzip data damaged (its checksums included) or followed by something
 * else, with the offset in the file
 */
ddp_status_t ddp_bytes_read(ddp_bytes_t *bytes, void *data, size_t n, size_t *got_p) DDP_NODISCARD;

/** true if gzip data broke off before its end. */
bool ddp_bytes_is_cut(const ddp_bytes_t *bytes);

#endif
