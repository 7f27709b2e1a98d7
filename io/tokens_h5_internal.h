/** @file Tokens in an array of an HDF5 file. Thread: any, several at once. Private to io. */
#ifndef DDP_TOKENS_H5_INTERNAL_H_
#define DDP_TOKENS_H5_INTERNAL_H_

#include <stddef.h>
#include <stdint.h>

#include "base/export.h"
#include "base/status.h"

/** The first bytes of such a file. */
#define DDP_TOKENS_H5_MAGIC "\x89HDF\r\n\x1a\n"

typedef struct ddp_tokens_h5 ddp_tokens_h5_t;

/** @param [out] rows_p  1 for an array of one dimension. @param [out] count_p  tokens of a row
 * @return DDP_ERR_IO, DDP_ERR_FORMAT: no such array, or not of integers */
ddp_status_t ddp_tokens_h5_open(const char *path, const char *name, ddp_tokens_h5_t **h5_p, uint64_t *rows_p,
                                uint64_t *count_p) DDP_NODISCARD;
/** Accepts NULL. */
void ddp_tokens_h5_close(ddp_tokens_h5_t **h5_p);

/** @param [out] tokens  [n]: those from `first` on of a row; one that int32 does not hold is its nearest end
 * @return DDP_ERR_FORMAT */
ddp_status_t ddp_tokens_h5_read(ddp_tokens_h5_t *h5, uint64_t row, uint64_t first, size_t n,
                                int32_t *tokens) DDP_NODISCARD;

/** The data set's name. */
const char *ddp_tokens_h5_name(const ddp_tokens_h5_t *h5);

#endif
