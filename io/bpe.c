#include "io/bpe.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "io/bpe_internal.h"

#define NONE UINT32_MAX

/* Texts repeat their words: what they became is kept, each word in the one place that its hash says. */
#define CACHE_SIZE   ((size_t)1 << 15)
#define CACHE_BYTES  23
#define CACHE_TOKENS 9

typedef struct cached {
    uint8_t       bytes, tokens; /* 0: empty */
    unsigned char text[CACHE_BYTES];
    uint32_t      token[CACHE_TOKENS];
} cached_t;

/* A token of a piece, linked to its neighbours. */
typedef struct symbol {
    uint32_t token;      /* NONE: joined to the one on its left */
    uint32_t last, next; /* NONE: the end */
} symbol_t;

struct ddp_bpe {
    ddp_bpe_info_t   info;
    ddp_bpe_vocab_t  vocab;   /* owned */
    ddp_bpe_split_t *split;   /* owned */
    cached_t        *cache;   /* owned, [CACHE_SIZE] */
    symbol_t        *symbols; /* owned, [symbols_size] */
    uint64_t        *heap; /* owned, [2 symbols_size]: rank << 32 | index of the left symbol, least first */
    size_t           symbols_size;
    size_t           heap_n;
};

ddp_status_t ddp_bpe_open(const char *folder, ddp_bpe_t **bpe_p)
{
    ddp_status_t status = DDP_OK;
    ddp_bpe_t   *bpe    = calloc(1, sizeof(*bpe));

    DDP_REQUIRE(bpe != NULL, DDP_ERR_NO_MEMORY, "no memory for a tokenizer");
    bpe->cache = calloc(CACHE_SIZE, sizeof(*bpe->cache));
    DDP_REQUIRE(bpe->cache != NULL, DDP_ERR_NO_MEMORY, "no memory for a tokenizer");
    DDP_TRY(ddp_bpe_vocab_read(folder, &bpe->vocab));
    DDP_TRY(ddp_bpe_split_create(&bpe->split));
    bpe->info.vocab       = bpe->vocab.tokens;
    bpe->info.merges      = bpe->vocab.merges;
    bpe->info.end_of_text = bpe->vocab.end_of_text;
    *bpe_p                = bpe;
    bpe                   = NULL;
out:
    ddp_bpe_close(&bpe);
    return status;
}

void ddp_bpe_close(ddp_bpe_t **bpe_p)
{
    ddp_bpe_t *bpe = *bpe_p;

    if (bpe == NULL) {
        return;
    }
    ddp_bpe_split_destroy(&bpe->split);
    ddp_bpe_vocab_free(&bpe->vocab);
    free(bpe->cache);
    free(bpe->symbols);
    free(bpe->heap);
    free(bpe);
    *bpe_p = NULL;
}

const ddp_bpe_info_t *ddp_bpe_info(const ddp_bpe_t *bpe)
{
    return &bpe->info;
}

const char *ddp_bpe_token(const ddp_bpe_t *bpe, int32_t token, size_t *bytes_p)
{
    const ddp_bpe_vocab_t *vocab = &bpe->vocab;

    if (token < 0 || (size_t)token >= vocab->tokens) {
        *bytes_p = 0;
        return NULL;
    }
    *bytes_p = vocab->start[token + 1] - vocab->start[token];
    return (const char *)vocab->bytes + vocab->start[token];
}

static ddp_status_t reserve(ddp_bpe_t *bpe, size_t n)
{
    ddp_status_t status = DDP_OK;
    size_t       size   = bpe->symbols_size > 0 ? bpe->symbols_size : 64;

    if (n <= bpe->symbols_size) {
        goto out;
    }
    while (size < n) {
        size *= 2;
    }
    free(bpe->symbols);
    free(bpe->heap);
    bpe->symbols_size = 0;
    bpe->symbols      = malloc(size * sizeof(*bpe->symbols));
    bpe->heap         = malloc(2 * size * sizeof(*bpe->heap));
    DDP_REQUIRE(bpe->symbols != NULL && bpe->heap != NULL, DDP_ERR_NO_MEMORY,
                "no memory for a word of %zu bytes", n);
    bpe->symbols_size = size;
out:
    return status;
}

/* Note the pair of symbol `left` and its neighbour, if some line joins them. */
static void push(ddp_bpe_t *bpe, uint32_t left)
{
    const symbol_t *symbol = &bpe->symbols[left];
    uint32_t        rank   = DDP_BPE_NO_RANK;
    size_t          i      = bpe->heap_n;
    uint64_t        entry;

    if (symbol->next != NONE) {
        rank = ddp_bpe_pair_place(&bpe->vocab, symbol->token, bpe->symbols[symbol->next].token)->rank;
    }
    if (rank == DDP_BPE_NO_RANK) {
        return;
    }
    entry = ((uint64_t)rank << 32) | left;
    bpe->heap_n++;
    while (i > 0 && bpe->heap[(i - 1) / 2] > entry) {
        bpe->heap[i] = bpe->heap[(i - 1) / 2];
        i            = (i - 1) / 2;
    }
    bpe->heap[i] = entry;
}

static uint64_t pop(ddp_bpe_t *bpe)
{
    const uint64_t top   = bpe->heap[0];
    const uint64_t entry = bpe->heap[--bpe->heap_n];
    size_t         i     = 0;

    for (size_t child = 1; child < bpe->heap_n; child = 2 * i + 1) {
        child += child + 1 < bpe->heap_n && bpe->heap[child + 1] < bpe->heap[child] ? 1 : 0;
        if (bpe->heap[child] >= entry) {
            break;
        }
        bpe->heap[i] = bpe->heap[child];
        i            = child;
    }
    bpe->heap[i] = entry;
    return top;
}

/* The pair noted as `entry`, if it still stands there, becomes one symbol. n - 1 pairs are noted at first;
 * each of at most n - 1 joins takes one note away and adds at most two: never more than 2 n. */
static void join(ddp_bpe_t *bpe, uint64_t entry)
{
    const uint32_t        left   = (uint32_t)entry;
    symbol_t             *symbol = &bpe->symbols[left];
    symbol_t             *right;
    const ddp_bpe_pair_t *pair;

    if (symbol->token == NONE || symbol->next == NONE) {
        return;
    }
    right = &bpe->symbols[symbol->next];
    pair  = ddp_bpe_pair_place(&bpe->vocab, symbol->token, right->token);
    if (pair->rank != (uint32_t)(entry >> 32)) {
        return;
    }
    symbol->token = pair->made;
    symbol->next  = right->next;
    right->token  = NONE;
    if (symbol->next != NONE) {
        bpe->symbols[symbol->next].last = left;
    }
    push(bpe, left);
    if (symbol->last != NONE) {
        push(bpe, symbol->last);
    }
}

/* @param [out] tokens  [n] @return how many */
static size_t merge(ddp_bpe_t *bpe, const unsigned char *text, size_t n, int32_t *tokens)
{
    size_t made = 0;

    for (size_t i = 0; i < n; i++) {
        bpe->symbols[i] = (symbol_t){.token = bpe->vocab.byte[text[i]],
                                     .last  = i > 0 ? (uint32_t)(i - 1) : NONE,
                                     .next  = i + 1 < n ? (uint32_t)(i + 1) : NONE};
    }
    bpe->heap_n = 0;
    for (size_t i = 0; i < n; i++) {
        push(bpe, (uint32_t)i);
    }
    while (bpe->heap_n > 0) {
        join(bpe, pop(bpe));
    }
    for (uint32_t i = 0; i != NONE; i = bpe->symbols[i].next) {
        tokens[made++] = (int32_t)bpe->symbols[i].token;
    }
    return made;
}

static ddp_status_t encode_piece(ddp_bpe_t *bpe, const unsigned char *text, size_t n, int32_t *tokens,
                                 size_t *made_p)
{
    ddp_status_t status = DDP_OK;
    cached_t    *cached = NULL;
    size_t       made;

    if (n <= CACHE_BYTES) {
        cached = &bpe->cache[ddp_bpe_hash(text, n) % CACHE_SIZE];
        if (cached->bytes == n && memcmp(cached->text, text, n) == 0) {
            for (size_t i = 0; i < cached->tokens; i++) {
                tokens[i] = (int32_t)cached->token[i];
            }
            *made_p = cached->tokens;
            goto out;
        }
    }
    DDP_TRY(reserve(bpe, n));
    made = merge(bpe, text, n, tokens);
    if (cached != NULL && made <= CACHE_TOKENS) {
        cached->bytes  = (uint8_t)n;
        cached->tokens = (uint8_t)made;
        memcpy(cached->text, text, n);
        for (size_t i = 0; i < made; i++) {
            cached->token[i] = (uint32_t)tokens[i];
        }
    }
    *made_p = made;
out:
    return status;
}

ddp_status_t ddp_bpe_encode(ddp_bpe_t *bpe, const void *text, size_t bytes, bool is_last, int32_t *tokens,
                            ddp_bpe_done_t *done_p)
{
    ddp_status_t         status = DDP_OK;
    const unsigned char *data   = text;
    ddp_bpe_done_t       done   = {.used = 0};

    while (done.used < bytes) {
        ddp_bpe_piece_t piece;
        size_t          made = 0;

        DDP_TRY(ddp_bpe_split_next(bpe->split, data, bytes, done.used, &piece));
        DDP_REQUIRE(piece.bytes <= DDP_BPE_MAX_PIECE, DDP_ERR_FORMAT,
                    "offset %zu: a word of more than %zu bytes: this is no text", done.used,
                    DDP_BPE_MAX_PIECE);
        if (!is_last && !piece.is_certain) {
            break;
        }
        if (!piece.is_valid) {
            done.first_invalid = done.invalid == 0 ? done.used : done.first_invalid;
            done.invalid += piece.bytes;
        }
        DDP_TRY(encode_piece(bpe, data + done.used, piece.bytes, tokens + done.tokens, &made));
        done.tokens += made;
        done.used += piece.bytes;
    }
    *done_p = done;
out:
    return status;
}
