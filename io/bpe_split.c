#include <stdlib.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/error.h"
#include "io/bpe_internal.h"

/* GPT-2's encoder.py (github.com/openai/gpt-2). White space is Unicode's property, as Python, Rust and
 * Oniguruma have it: PCRE2's own \s has U+180E too. */
#define SPACE "\\p{White_Space}"
#define PATTERN                                                                                              \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" SPACE "\\p{L}\\p{N}]+|" SPACE                         \
    "+(?!\\P{White_Space})|" SPACE "+"

/* What decides about a piece lies less than this behind its end: at most two characters. */
#define LOOK_AHEAD ((size_t)16)

struct ddp_bpe_split {
    pcre2_code       *code;  /* owned */
    pcre2_match_data *match; /* owned */
};

ddp_status_t ddp_bpe_split_create(ddp_bpe_split_t **split_p)
{
    ddp_status_t     status = DDP_OK;
    ddp_bpe_split_t *split  = calloc(1, sizeof(*split));
    int              code   = 0;
    PCRE2_SIZE       offset = 0;

    DDP_REQUIRE(split != NULL, DDP_ERR_NO_MEMORY, "no memory for a tokenizer");
    split->code = pcre2_compile((PCRE2_SPTR)PATTERN, PCRE2_ZERO_TERMINATED,
                                PCRE2_UTF | PCRE2_MATCH_INVALID_UTF, &code, &offset, NULL);
    DDP_REQUIRE(
        split->code != NULL, code == PCRE2_ERROR_NOMEMORY ? DDP_ERR_NO_MEMORY : DDP_ERR_UNSUPPORTED,
        "this PCRE2 does not take the tokenizer's pattern (error %d at %zu); 10.40 or newer is needed", code,
        (size_t)offset);
    /* where machine code may not be made, matching is slower and says the same */
    (void)pcre2_jit_compile(split->code, PCRE2_JIT_COMPLETE);
    split->match = pcre2_match_data_create(1, NULL);
    DDP_REQUIRE(split->match != NULL, DDP_ERR_NO_MEMORY, "no memory for a tokenizer");
    *split_p = split;
    split    = NULL;
out:
    ddp_bpe_split_destroy(&split);
    return status;
}

void ddp_bpe_split_destroy(ddp_bpe_split_t **split_p)
{
    ddp_bpe_split_t *split = *split_p;

    if (split == NULL) {
        return;
    }
    pcre2_match_data_free(split->match);
    pcre2_code_free(split->code);
    free(split);
    *split_p = NULL;
}

ddp_status_t ddp_bpe_split_next(ddp_bpe_split_t *split, const unsigned char *text, size_t bytes, size_t first,
                                ddp_bpe_piece_t *piece)
{
    ddp_status_t status = DDP_OK;
    PCRE2_SIZE  *found  = pcre2_get_ovector_pointer(split->match);
    size_t       begin  = bytes; /* of the match; behind `first` where bytes are skipped */
    size_t       end    = bytes;
    int          code   = pcre2_match(split->code, text, bytes, first, 0, split->match, NULL);

    DDP_REQUIRE(code >= 0 || code == PCRE2_ERROR_NOMATCH, DDP_ERR_NO_MEMORY,
                "PCRE2 gives up at offset %zu of a text (error %d)", first, code);
    if (code >= 0) {
        begin = found[0];
        end   = found[1];
    }
    /* every character belongs to some alternative, so what is skipped is no character */
    piece->is_valid   = begin == first;
    piece->bytes      = (begin == first ? end : begin) - first;
    piece->is_certain = bytes - first - piece->bytes >= LOOK_AHEAD;
out:
    return status;
}
