/** @file The parts of a tokenizer. Private to io. */
#ifndef DDP_BPE_INTERNAL_H_
#define DDP_BPE_INTERNAL_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "io/bpe.h"

#define DDP_BPE_NO_RANK UINT32_MAX

/** Two tokens that stand side by side, and what they become. */
typedef struct ddp_bpe_pair {
    uint32_t left, right;
    uint32_t rank; /* line of the merges, from 0; DDP_BPE_NO_RANK: an empty place of the table */
    uint32_t made;
} ddp_bpe_pair_t;

/** What the two files say. */
typedef struct ddp_bpe_vocab {
    size_t          tokens, merges;
    unsigned char  *bytes;     /* owned; of all tokens, one behind the other */
    uint32_t       *start;     /* owned, [tokens + 1] */
    uint32_t        byte[256]; /* the token of each byte */
    ddp_bpe_pair_t *pairs;     /* owned; a table by ddp_bpe_pair_place() */
    uint32_t        pair_mask; /* its size, a power of 2, less 1 */
    int32_t         end_of_text;
} ddp_bpe_vocab_t;

/** Fill `vocab`, which is zeros. On failure too it is to be freed. */
ddp_status_t ddp_bpe_vocab_read(const char *folder, ddp_bpe_vocab_t *vocab) DDP_NODISCARD;
void         ddp_bpe_vocab_free(ddp_bpe_vocab_t *vocab);

/** Where the pair is, or the empty place where it would be. */
static inline ddp_bpe_pair_t *ddp_bpe_pair_place(const ddp_bpe_vocab_t *vocab, uint32_t left, uint32_t right)
{
    const uint64_t key = (((uint64_t)left << 32) | right) * UINT64_C(0x9e3779b97f4a7c15);
    uint32_t       i   = (uint32_t)(key >> 32) & vocab->pair_mask;

    while (vocab->pairs[i].rank != DDP_BPE_NO_RANK &&
           (vocab->pairs[i].left != left || vocab->pairs[i].right != right)) {
        i = (i + 1) & vocab->pair_mask;
    }
    return &vocab->pairs[i];
}

/** FNV-1a (http://www.isthe.com/chongo/tech/comp/fnv) of bytes. */
static inline uint64_t ddp_bpe_hash(const unsigned char *bytes, size_t n)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < n; i++) {
        hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    }
    return hash ^ (hash >> 32);
}

/** GPT-2's pattern. */
typedef struct ddp_bpe_split ddp_bpe_split_t;

typedef struct ddp_bpe_piece {
    size_t bytes;
    bool   is_valid;   /* UTF-8 */
    bool   is_certain; /* whatever follows the text */
} ddp_bpe_piece_t;

ddp_status_t ddp_bpe_split_create(ddp_bpe_split_t **split_p) DDP_NODISCARD;
void         ddp_bpe_split_destroy(ddp_bpe_split_t **split_p);
/** The piece that begins at text + first, first < bytes. @return DDP_ERR_NO_MEMORY */
ddp_status_t ddp_bpe_split_next(ddp_bpe_split_t *split, const unsigned char *text, size_t bytes, size_t first,
                                ddp_bpe_piece_t *piece) DDP_NODISCARD;

#endif
