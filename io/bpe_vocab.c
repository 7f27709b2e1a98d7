#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "base/error.h"
#include "io/bpe_internal.h"
#include "io/bytes_internal.h"
#include "io/file_internal.h"

#define MAX_FILE_BYTES ((size_t)64 << 20)
#define MAX_TOKENS     ((size_t)1 << 24)
#define PATH_SIZE      4096

/* While the files are read. */
typedef struct reader {
    ddp_bpe_vocab_t *vocab;
    char             json_path[PATH_SIZE], merges_path[PATH_SIZE];
    char            *text;       /* owned; of the file being read, with a final 0 */
    size_t           text_bytes; /* without it */
    cJSON           *json;       /* owned */
    const cJSON    **items;      /* owned, [tokens]: by number */
    uint32_t        *by_bytes;   /* owned; a table of tokens by their bytes, the empty ones UINT32_MAX */
    uint32_t         mask;
    bool            *is_made; /* owned, [tokens]: a byte, or made by a line */
} reader_t;

/* GPT-2's files show bytes as characters: those that print in Latin-1 as themselves, the others as U+0100 and
 * on (bytes_to_unicode() of encoder.py). @return the byte, -1 if the character is none of them */
static int byte_of(uint32_t character)
{
    static const struct {
        uint32_t first, last; /* bytes */
    } hidden[]     = {{0, 32}, {127, 160}, {173, 173}};
    uint32_t index = character - 256;

    if (character >= 256) {
        for (size_t i = 0; i < 3; i++) {
            const uint32_t n = hidden[i].last - hidden[i].first + 1;

            if (index < n) {
                return (int)(hidden[i].first + index);
            }
            index -= n;
        }
        return -1;
    }
    return character <= 32 || (character >= 127 && character <= 160) || character == 173 ? -1
                                                                                         : (int)character;
}

/* The bytes that a word of the files stands for; `bytes` is [n]. @return how many, 0 if it is no such word */
static size_t bytes_of(const char *word, size_t n, unsigned char *bytes)
{
    size_t made = 0;

    for (size_t i = 0; i < n; i++) {
        uint32_t character = (unsigned char)word[i];
        int      byte;

        if (character >= 0xc2 && character <= 0xdf && i + 1 < n &&
            ((unsigned char)word[i + 1] & 0xc0) == 0x80) {
            character = ((character & 0x1f) << 6) | ((unsigned char)word[++i] & 0x3f);
        } else if (character >= 0x80) {
            return 0;
        }
        byte = byte_of(character);
        if (byte < 0) {
            return 0;
        }
        bytes[made++] = (unsigned char)byte;
    }
    return made;
}

/* The first of two names that exists, or the first. */
static ddp_status_t find_file(const char *folder, const char *name, const char *other, char *path)
{
    ddp_status_t status = DDP_OK;
    int          length;

    length = snprintf(path, PATH_SIZE, "%s/%s", folder, name);
    DDP_REQUIRE(length > 0 && length < PATH_SIZE - 16, DDP_ERR_IO, "'%s': path too long", folder);
    if (access(path, F_OK) == 0) {
        goto out;
    }
    (void)snprintf(path, PATH_SIZE, "%s/%s", folder, other);
    DDP_REQUIRE(access(path, F_OK) == 0, DDP_ERR_IO, "'%s': no %s and no %s in this folder", folder, name,
                other);
out:
    return status;
}

static ddp_status_t read_text(reader_t *reader, const char *path)
{
    ddp_status_t status = DDP_OK;
    ddp_bytes_t *bytes  = NULL;

    free(reader->text);
    reader->text = malloc(MAX_FILE_BYTES + 1);
    DDP_REQUIRE(reader->text != NULL, DDP_ERR_NO_MEMORY, "'%s': no memory to read it", path);
    DDP_TRY(ddp_bytes_open(path, &bytes));
    DDP_TRY(ddp_bytes_read(bytes, reader->text, MAX_FILE_BYTES, &reader->text_bytes));
    DDP_REQUIRE(reader->text_bytes < MAX_FILE_BYTES && !ddp_bytes_is_cut(bytes), DDP_ERR_FORMAT,
                "'%s': %s: this is no vocabulary", path,
                ddp_bytes_is_cut(bytes) ? "gzip data cut short" : "64 MiB or more");
    reader->text[reader->text_bytes] = '\0';
out:
    ddp_bytes_close(&bytes);
    return status;
}

/* The tokens of the JSON object by number: 0, 1, 2 ..., each once. */
static ddp_status_t number_tokens(reader_t *reader)
{
    ddp_status_t status = DDP_OK;
    const char  *end    = NULL;
    const cJSON *item;
    size_t       n;

    reader->json = cJSON_ParseWithLengthOpts(reader->text, reader->text_bytes + 1, &end, true);
    DDP_REQUIRE(reader->json != NULL, DDP_ERR_FORMAT, "'%s': offset %zu: not JSON", reader->json_path,
                (size_t)(end - reader->text));
    n = cJSON_IsObject(reader->json) ? (size_t)cJSON_GetArraySize(reader->json) : 0;
    DDP_REQUIRE(n > 0 && n <= MAX_TOKENS, DDP_ERR_FORMAT,
                "'%s': expected an object of 1 .. %zu tokens, {\"token\": number, ...}, found %s",
                reader->json_path, MAX_TOKENS,
                n > 0                          ? "more"
                : cJSON_IsObject(reader->json) ? "none"
                                               : "another value");
    reader->vocab->tokens = n;
    reader->items         = calloc(n, sizeof(const cJSON *));
    DDP_REQUIRE(reader->items != NULL, DDP_ERR_NO_MEMORY, "no memory for %zu tokens", n);
    cJSON_ArrayForEach(item, reader->json)
    {
        const double number = cJSON_IsNumber(item) ? item->valuedouble : -1.0;

        DDP_REQUIRE(number >= 0.0 && number < (double)n && number == (double)(size_t)number, DDP_ERR_FORMAT,
                    "'%s': token '%.40s': expected a number 0 .. %zu, since there are %zu tokens, found %g",
                    reader->json_path, item->string, n - 1, n, number);
        DDP_REQUIRE(reader->items[(size_t)number] == NULL, DDP_ERR_FORMAT,
                    "'%s': the tokens '%.40s' and '%.40s' are both number %zu", reader->json_path,
                    reader->items[(size_t)number]->string, item->string, (size_t)number);
        reader->items[(size_t)number] = item;
    }
out:
    return status;
}

/* Where a token of these bytes is in by_bytes, or would be. */
static uint32_t *place_of(const reader_t *reader, const unsigned char *bytes, size_t n)
{
    const ddp_bpe_vocab_t *vocab = reader->vocab;
    uint32_t               i     = (uint32_t)ddp_bpe_hash(bytes, n) & reader->mask;

    while (reader->by_bytes[i] != UINT32_MAX) {
        const uint32_t token = reader->by_bytes[i];

        if (vocab->start[token + 1] - vocab->start[token] == n &&
            memcmp(vocab->bytes + vocab->start[token], bytes, n) == 0) {
            break;
        }
        i = (i + 1) & reader->mask;
    }
    return &reader->by_bytes[i];
}

static ddp_status_t make_tables(reader_t *reader)
{
    ddp_status_t     status = DDP_OK;
    ddp_bpe_vocab_t *vocab  = reader->vocab;
    size_t           total  = 0;
    uint32_t         size   = 1024;

    for (size_t i = 0; i < vocab->tokens; i++) {
        total += strlen(reader->items[i]->string);
    }
    while (size < 2 * vocab->tokens) {
        size *= 2;
    }
    reader->mask     = size - 1;
    reader->by_bytes = malloc(size * sizeof(uint32_t));
    reader->is_made  = calloc(vocab->tokens, sizeof(bool));
    vocab->bytes     = malloc(total + 1);
    vocab->start     = calloc(vocab->tokens + 1, sizeof(uint32_t));
    DDP_REQUIRE(reader->by_bytes != NULL && reader->is_made != NULL && vocab->bytes != NULL &&
                    vocab->start != NULL,
                DDP_ERR_NO_MEMORY, "no memory for %zu tokens", vocab->tokens);
    memset(reader->by_bytes, 0xff, size * sizeof(uint32_t));
out:
    return status;
}

/* The bytes of all tokens. A word with other characters than the files' is a token by itself, which no text
 * becomes. */
static ddp_status_t decode_tokens(reader_t *reader)
{
    ddp_status_t     status = DDP_OK;
    ddp_bpe_vocab_t *vocab  = reader->vocab;

    DDP_TRY(make_tables(reader));
    for (uint32_t i = 0; i < vocab->tokens; i++) {
        const char    *word   = reader->items[i]->string;
        const size_t   length = strlen(word);
        unsigned char *bytes  = vocab->bytes + vocab->start[i];
        const size_t   n      = bytes_of(word, length, bytes);
        uint32_t      *place;

        DDP_REQUIRE(length > 0, DDP_ERR_FORMAT, "'%s': token %lu is empty", reader->json_path,
                    (unsigned long)i);
        vocab->start[i + 1] = vocab->start[i] + (uint32_t)(n > 0 ? n : length);
        if (n == 0) {
            memcpy(bytes, word, length);
            reader->is_made[i] = true; /* by nobody, and by right */
            continue;
        }
        place = place_of(reader, bytes, n);
        DDP_REQUIRE(*place == UINT32_MAX, DDP_ERR_FORMAT, "'%s': the tokens %lu and %lu are both '%.40s'",
                    reader->json_path, (unsigned long)*place, (unsigned long)i, word);
        *place = i;
    }
out:
    return status;
}

static ddp_status_t find_bytes(reader_t *reader)
{
    ddp_status_t     status = DDP_OK;
    ddp_bpe_vocab_t *vocab  = reader->vocab;
    uint32_t         end_of_text;

    for (unsigned value = 0; value < 256; value++) {
        const unsigned char byte = (unsigned char)value;

        vocab->byte[value] = *place_of(reader, &byte, 1);
        DDP_REQUIRE(vocab->byte[value] != UINT32_MAX, DDP_ERR_FORMAT,
                    "'%s': no token for the byte 0x%02x: not a vocabulary of bytes, as GPT-2's is",
                    reader->json_path, value);
        reader->is_made[vocab->byte[value]] = true;
    }
    end_of_text =
        *place_of(reader, (const unsigned char *)DDP_BPE_END_OF_TEXT, sizeof(DDP_BPE_END_OF_TEXT) - 1);
    vocab->end_of_text = end_of_text == UINT32_MAX ? -1 : (int32_t)end_of_text;
out:
    return status;
}

/* The token that a word of the merges names; it must exist already. */
static ddp_status_t token_of(const reader_t *reader, const char *word, size_t n, size_t line,
                             uint32_t *token_p)
{
    ddp_status_t  status = DDP_OK;
    unsigned char bytes[1024];
    size_t        made  = 0;
    uint32_t      token = UINT32_MAX;

    DDP_REQUIRE(n <= sizeof(bytes), DDP_ERR_FORMAT, "'%s': line %zu: %zu bytes are too long for a token",
                reader->merges_path, line, n);
    made  = bytes_of(word, n, bytes);
    token = made > 0 ? *place_of(reader, bytes, made) : UINT32_MAX;
    DDP_REQUIRE(token != UINT32_MAX, DDP_ERR_FORMAT,
                "'%s': line %zu: '%.*s' is no token of '%s': do the two files belong together?",
                reader->merges_path, line, (int)(n < 40 ? n : 40), word, reader->json_path);
    *token_p = token;
out:
    return status;
}

static ddp_status_t take_line(reader_t *reader, const char *text, size_t n, size_t line)
{
    ddp_status_t     status = DDP_OK;
    ddp_bpe_vocab_t *vocab  = reader->vocab;
    const char      *gap    = memchr(text, ' ', n);
    const size_t     left   = gap != NULL ? (size_t)(gap - text) : 0;
    char             joined[2048];
    uint32_t         parts[2] = {0};
    uint32_t         made     = 0;
    ddp_bpe_pair_t  *pair;

    DDP_REQUIRE(left > 0 && left + 1 < n && memchr(gap + 1, ' ', n - left - 1) == NULL, DDP_ERR_FORMAT,
                "'%s': line %zu: expected two words and one space between them, found '%.*s'",
                reader->merges_path, line, (int)(n < 40 ? n : 40), text);
    DDP_TRY(token_of(reader, text, left, line, &parts[0]));
    DDP_TRY(token_of(reader, gap + 1, n - left - 1, line, &parts[1]));
    for (int i = 0; i < 2; i++) {
        DDP_REQUIRE(reader->is_made[parts[i]], DDP_ERR_FORMAT,
                    "'%s': line %zu: '%.40s' is joined here, but no line above makes it", reader->merges_path,
                    line, reader->items[parts[i]]->string);
    }
    memcpy(joined, text, left);
    memcpy(joined + left, gap + 1, n - left - 1); /* both are at most 1024 */
    DDP_TRY(token_of(reader, joined, n - 1, line, &made));
    reader->is_made[made] = true;
    pair                  = ddp_bpe_pair_place(vocab, parts[0], parts[1]);
    DDP_REQUIRE(pair->rank == DDP_BPE_NO_RANK, DDP_ERR_FORMAT, "'%s': line %zu: the same as an earlier line",
                reader->merges_path, line);
    *pair =
        (ddp_bpe_pair_t){.left = parts[0], .right = parts[1], .rank = (uint32_t)vocab->merges, .made = made};
    vocab->merges++;
out:
    return status;
}

static ddp_status_t make_pairs(reader_t *reader)
{
    ddp_status_t     status = DDP_OK;
    ddp_bpe_vocab_t *vocab  = reader->vocab;
    size_t           lines  = 1;
    uint32_t         size   = 1024;

    for (const char *c = reader->text; (c = strchr(c, '\n')) != NULL; c++) {
        lines++;
    }
    while (size < 2 * lines) {
        size *= 2;
    }
    vocab->pair_mask = size - 1;
    vocab->pairs     = malloc(size * sizeof(*vocab->pairs));
    DDP_REQUIRE(vocab->pairs != NULL, DDP_ERR_NO_MEMORY, "no memory for %zu merges", lines);
    memset(vocab->pairs, 0xff, size * sizeof(*vocab->pairs)); /* DDP_BPE_NO_RANK */
out:
    return status;
}

static ddp_status_t read_merges(reader_t *reader)
{
    ddp_status_t status = DDP_OK;
    const char  *end;
    size_t       line = 1;

    DDP_TRY(read_text(reader, reader->merges_path));
    DDP_TRY(make_pairs(reader));
    end = reader->text + reader->text_bytes;
    for (const char *c = reader->text; c < end; line++) {
        const char *next = memchr(c, '\n', (size_t)(end - c));
        size_t      n    = (size_t)((next != NULL ? next : end) - c);

        n -= n > 0 && c[n - 1] == '\r' ? 1 : 0;
        if (line > 1 || strncmp(c, "#version", strlen("#version")) != 0) {
            DDP_TRY(take_line(reader, c, n, line));
        }
        c = next != NULL ? next + 1 : end;
    }
out:
    return status;
}

/* Special tokens are named like <|endoftext|> or [UNK]; any other is made by a line. */
static ddp_status_t check_all_made(const reader_t *reader)
{
    ddp_status_t status = DDP_OK;

    for (size_t i = 0; i < reader->vocab->tokens; i++) {
        const char *word = reader->items[i]->string;
        const char  last = word[strlen(word) - 1];

        DDP_REQUIRE(
            reader->is_made[i] || (word[0] == '<' && last == '>') || (word[0] == '[' && last == ']'),
            DDP_ERR_FORMAT,
            "'%s': no line makes the token '%.40s' (%zu) of '%s': do the two files belong together, and "
            "is this one whole?",
            reader->merges_path, word, i, reader->json_path);
    }
out:
    return status;
}

ddp_status_t ddp_bpe_vocab_read(const char *folder, ddp_bpe_vocab_t *vocab)
{
    ddp_status_t status = DDP_OK;
    reader_t    *reader = calloc(1, sizeof(*reader));

    DDP_REQUIRE(reader != NULL, DDP_ERR_NO_MEMORY, "no memory for a tokenizer");
    reader->vocab = vocab;
    DDP_TRY(find_file(folder, "encoder.json", "vocab.json", reader->json_path));
    DDP_TRY(find_file(folder, "vocab.bpe", "merges.txt", reader->merges_path));
    DDP_TRY(read_text(reader, reader->json_path));
    DDP_TRY(number_tokens(reader));
    DDP_TRY(decode_tokens(reader));
    DDP_TRY(find_bytes(reader));
    DDP_TRY(read_merges(reader));
    DDP_TRY(check_all_made(reader));
out:
    if (reader != NULL) {
        free(reader->is_made);
        free(reader->by_bytes);
        free(reader->items);
        cJSON_Delete(reader->json);
        free(reader->text);
        free(reader);
    }
    return status;
}

void ddp_bpe_vocab_free(ddp_bpe_vocab_t *vocab)
{
    free(vocab->bytes);
    free(vocab->start);
    free(vocab->pairs);
    memset(vocab, 0, sizeof(*vocab));
}
