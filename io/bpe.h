/**
 * @file GPT-2's tokenizer: byte-level byte pair encoding (Sennrich et al. 2016, arXiv:1508.07909; Radford et
 * al. 2019, section 2.2), from the two files of a vocabulary. Any bytes can be encoded, and decoding gives
 * them back.
 *
 * A text is cut into pieces by GPT-2's pattern ('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+|
 * ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+, with Unicode's letters, numbers and white space, by PCRE2), and the bytes
 * of each piece are joined pair by pair, the pair that stands first in the file of merges first, the leftmost
 * of equals first. Bytes that are not UTF-8 are pieces of their own, as many as stand in a row, and the text
 * between them is cut as if each part were alone. Not collective.
 */
#ifndef DDP_BPE_H_
#define DDP_BPE_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/export.h"
#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** The longest piece in bytes. A text has none that long. */
#define DDP_BPE_MAX_PIECE ((size_t)1 << 20)

/** What separates documents. In a text these letters are letters: the token is for who joins the texts. */
#define DDP_BPE_END_OF_TEXT "<|endoftext|>"

typedef struct ddp_bpe ddp_bpe_t;

typedef struct ddp_bpe_info {
    size_t  vocab;       /* tokens are 0 .. vocab - 1 */
    size_t  merges;      /* lines of the file of merges */
    int32_t end_of_text; /* the token of DDP_BPE_END_OF_TEXT; -1: there is none */
} ddp_bpe_info_t;

/** What ddp_bpe_encode() did. */
typedef struct ddp_bpe_done {
    size_t used;          /* bytes of the text that the tokens stand for */
    size_t tokens;        /* at most `used` */
    size_t invalid;       /* of the used bytes, those that are not UTF-8 */
    size_t first_invalid; /* offset of the first of them */
} ddp_bpe_done_t;

/**
 * Read a vocabulary: `encoder.json` (or `vocab.json`) and `vocab.bpe` (or `merges.txt`) in `folder`.
 * @return DDP_ERR_IO: a file is missing. DDP_ERR_FORMAT: bad JSON (with the offset), tokens not numbered
 * 0, 1, 2 ..., a byte without a token, a bad line of merges (with its number), a token that no line makes,
 * which is how files look that do not belong together
 */
DDP_API ddp_status_t ddp_bpe_open(const char *folder, ddp_bpe_t **bpe_p) DDP_NODISCARD;
/** Accepts NULL. */
DDP_API void                  ddp_bpe_close(ddp_bpe_t **bpe_p);
DDP_API const ddp_bpe_info_t *ddp_bpe_info(const ddp_bpe_t *bpe);

/**
 * Encode a text, or as much of it as is certain. Thread: one at a time for a `bpe`.
 * @param [in]  is_last  false: more text follows, so the last pieces, which may go on there, are not encoded;
 *                       call again with what follows behind text + used. The tokens are those of the whole
 * text
 * @param [out] tokens   [bytes]
 * @return DDP_ERR_FORMAT: a piece longer than DDP_BPE_MAX_PIECE, with its offset. DDP_ERR_NO_MEMORY
 */
DDP_API ddp_status_t ddp_bpe_encode(ddp_bpe_t *bpe, const void *text, size_t bytes, bool is_last,
                                    int32_t *tokens, ddp_bpe_done_t *done_p) DDP_NODISCARD;

/**
 * Decode one token: a text's bytes are those of its tokens, one behind the other. Thread: any.
 * @param [out] bytes_p  how many, 1 or more; they need not be UTF-8 by themselves
 * @return borrowed from `bpe`, without a final 0; NULL: there is no such token, and *bytes_p is 0
 */
DDP_API const char *ddp_bpe_token(const ddp_bpe_t *bpe, int32_t token, size_t *bytes_p);

#ifdef __cplusplus
}
#endif

#endif
