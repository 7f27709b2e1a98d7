/**
 * @file Text to token shards and back, in pieces: memory does not grow with the files. Not collective.
 */
#ifndef DDP_TEXT_H_
#define DDP_TEXT_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/export.h"
#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A shard's tokens where nothing else is said: 200 MB, as llm.c's. */
#define DDP_TEXT_SHARD_TOKENS 100000000

typedef struct ddp_text_params {
    size_t      struct_size;
    const char *in; /* a file; text may be gzip */
    const char
        *out; /* must not exist; ddp_text_encode(): see io/token_writer.h for the names of several shards */
    const char *bpe; /* the folder of a vocabulary (io/bpe.h); NULL: every byte is a token */
    /* the rest is for ddp_text_encode() */
    bool     end_of_text;  /* where the text says <|endoftext|>, it means the token */
    uint64_t shard_tokens; /* a shard's most */
    double val_fraction; /* > 0: this share of the text's bytes, the last ones from where a line begins, goes
                            to <out>_val and the rest to <out>_train, both before the ending (".bin") */
    /** Called now and then, may be NULL. @param total  bytes of the input; 0: not known, as of gzip */
    void (*progress)(void *ctx, uint64_t bytes, uint64_t total);
    void *ctx;
} ddp_text_params_t;
#define DDP_TEXT_PARAMS_INIT                                                                                 \
    {                                                                                                        \
        .struct_size = sizeof(ddp_text_params_t), .shard_tokens = DDP_TEXT_SHARD_TOKENS                      \
    }

typedef struct ddp_text_report {
    uint64_t bytes;     /* of the text */
    uint64_t tokens[2]; /* without val_fraction all are in [0]; else training, validation */
    size_t   shards[2];
    size_t   vocab;
    uint64_t invalid;       /* bytes of the text that are not UTF-8 (not counted without bpe) */
    uint64_t first_invalid; /* where the first of them is */
} ddp_text_report_t;

/**
 * Write the tokens of a text. On failure no file is left.
 * @return DDP_ERR_IO, DDP_ERR_FORMAT: a file, see io/bpe.h and io/token_writer.h; an empty text.
 * DDP_ERR_CONFIG: a vocabulary of more than 65536 tokens, or without the token that end_of_text wants; a
 * val_fraction that leaves one part without a line
 */
DDP_API ddp_status_t ddp_text_encode(const ddp_text_params_t *params,
                                     ddp_text_report_t       *report_p) DDP_NODISCARD;

/**
 * Write the text of one shard of tokens.
 * @return DDP_ERR_IO, DDP_ERR_FORMAT: a file; a token that the vocabulary does not have, with its offset
 */
DDP_API ddp_status_t ddp_text_decode(const ddp_text_params_t *params,
                                     ddp_text_report_t       *report_p) DDP_NODISCARD;

#ifdef __cplusplus
}
#endif

#endif
