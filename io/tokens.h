/**
 * @file Token data for language models: shards of token numbers, an array of an HDF5 file, or the bytes of
 * any file (`text`).
 *
 * A sequence is context + 1 tokens of one shard, of which the first `context` are inputs and the last
 * `context` targets; sequence k of a shard begins at token k * context, so that every token but the first is
 * a target once. The rest of a shard, shorter than a sequence, is left out. Each row of
 * an HDF5 array of two dimensions is a shard in this sense. Files are mapped, not read (HDF5: read in
 * slices): opening looks at headers and sizes only, and the ranks of a machine share the pages. A file must
 * not be shortened while it is open. In which order to fetch is for ddp_sampler_index(seed, epoch, sequences,
 * i), which needs to know nothing of ranks. Not collective.
 */
#ifndef DDP_TOKENS_H_
#define DDP_TOKENS_H_

#include <stddef.h>
#include <stdint.h>

#include "base/export.h"
#include "base/status.h"
#include "io/dataset.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ddp_tokens ddp_tokens_t;

typedef enum ddp_tokens_format {
    DDP_TOKENS_LLMC   = 0, /* llm.c's: 256 int32 (20240520, 1, number of tokens, zeros), then uint16 tokens */
    DDP_TOKENS_UINT16 = 1, /* raw, little-endian */
    DDP_TOKENS_UINT32 = 2, /* raw, little-endian */
    DDP_TOKENS_HDF5   = 3, /* an array of integers, [tokens] or [rows, tokens] */
    DDP_TOKENS_TEXT   = 4  /* each byte a token */
} ddp_tokens_format_t;

/** Tokens of DDP_TOKENS_TEXT. */
#define DDP_TOKENS_BYTES 256

typedef struct ddp_tokens_params {
    size_t              struct_size;
    ddp_tokens_format_t format;
    const char         *path;    /* a file, or a pattern of glob(7): shards in the order of their names */
    const char         *name;    /* HDF5: of the data set; NULL: "tokens" */
    size_t              context; /* tokens of a sequence, > 0 */
    size_t              vocab;   /* tokens must be below; > 0 */
    ddp_split_t         split;   /* with val_fraction */
    double              val_fraction; /* this share of the sequences, the last ones, is the test split and the
                                         others the training split; 0: all of them are the split asked for */
    size_t samples;                   /* use only the first so many sequences of the split; 0: all */
} ddp_tokens_params_t;
#define DDP_TOKENS_PARAMS_INIT                                                                               \
    {                                                                                                        \
        .struct_size = sizeof(ddp_tokens_params_t)                                                           \
    }

typedef struct ddp_tokens_info {
    size_t   sequences; /* of the split */
    size_t   context;
    size_t   shards;
    uint64_t tokens;  /* of all shards */
    uint64_t digest;  /* of the sizes of all shards and what is at 64 places of each (HDF5: at the ends): the
                         same on machines with the same files */
    char source[512]; /* for the user: "data/train-*.bin (12 shards)" */
} ddp_tokens_info_t;

/**
 * What a file, or the first that matches a pattern, is: llm.c's or HDF5's by its first bytes, else by the
 * end of its name: `.bin`, `.u16` and `.uint16` are uint16, `.u32` and `.uint32` uint32; anything else is
 * text.
 * @return DDP_ERR_IO: no file matches, or cannot be read
 */
DDP_API ddp_status_t ddp_tokens_detect(const char *path, ddp_tokens_format_t *format_p) DDP_NODISCARD;

/**
 * Map the files and check them.
 * @return DDP_ERR_IO: no file matches, or cannot be opened. DDP_ERR_FORMAT: wrong magic or version, a shard
 * cut short or longer than its header says, empty: one line with file, offset, expected and found.
 * DDP_ERR_CONFIG: the context does not fit in the data, a vocabulary too small for bytes
 */
DDP_API ddp_status_t ddp_tokens_open(const ddp_tokens_params_t *params,
                                     ddp_tokens_t             **tokens_p) DDP_NODISCARD;
/** Accepts NULL. */
DDP_API void                     ddp_tokens_close(ddp_tokens_t **tokens_p);
DDP_API const ddp_tokens_info_t *ddp_tokens_info(const ddp_tokens_t *tokens);

/**
 * Thread: any, several at once.
 * @param [in]  index    [n], each < sequences
 * @param [out] inputs   [n, context] int32
 * @param [out] targets  [n, context] int32: the token behind each input
 * @return DDP_ERR_FORMAT: a token is not below the vocabulary (with file and offset); the outputs are
 * undefined
 */
DDP_API ddp_status_t ddp_tokens_fetch(const ddp_tokens_t *tokens, const size_t *index, size_t n,
                                      int32_t *inputs, int32_t *targets) DDP_NODISCARD;

#ifdef __cplusplus
}
#endif

#endif
