/**
 * @file Token shards as llm.c writes them, which io/tokens.h reads (DDP_TOKENS_LLMC).
 *
 * One shard has the name asked for, `tokens.bin`; several are numbered, `tokens_000000.bin`,
 * `tokens_000001.bin` ..., which the pattern `tokens_*.bin` finds in their order. Until
 * ddp_token_writer_finish() all of them have other names, so that there are either all or none; nothing is
 * written over. Not collective.
 */
#ifndef DDP_TOKEN_WRITER_H_
#define DDP_TOKEN_WRITER_H_

#include <stddef.h>
#include <stdint.h>

#include "base/export.h"
#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Tokens are uint16 in these files. */
#define DDP_TOKEN_WRITER_MAX_VOCAB 65536

typedef struct ddp_token_writer ddp_token_writer_t;

/**
 * @param [in] path          copied
 * @param [in] shard_tokens  a shard's most, 2 .. 2^31 - 1
 * @return DDP_ERR_IO: `path` or a numbered shard of it exists, or the folder does not
 */
DDP_API ddp_status_t ddp_token_writer_create(const char *path, uint64_t shard_tokens,
                                             ddp_token_writer_t **writer_p) DDP_NODISCARD;

/** @param [in] tokens  [n], each 0 .. 65535. @return DDP_ERR_IO; the writer can then only be closed */
DDP_API ddp_status_t ddp_token_writer_write(ddp_token_writer_t *writer, const int32_t *tokens,
                                            size_t n) DDP_NODISCARD;

/** Give the files their names. @param [out] shards_p  how many, at least 1; may be NULL
 * @return DDP_ERR_IO; DDP_ERR_FORMAT: no token was written, and there is no file */
DDP_API ddp_status_t ddp_token_writer_finish(ddp_token_writer_t *writer, size_t *shards_p) DDP_NODISCARD;

/** Accepts NULL. What was not finished is removed. */
DDP_API void ddp_token_writer_close(ddp_token_writer_t **writer_p);

#ifdef __cplusplus
}
#endif

#endif
