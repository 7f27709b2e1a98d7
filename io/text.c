#include "io/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "io/bpe.h"
#include "io/bytes_internal.h"
#include "io/file_internal.h"
#include "io/new_file_internal.h"
#include "io/token_writer.h"
#include "io/tokens.h"

#define FIRST_BUFFER ((size_t)1 << 20)
#define PATH_SIZE    4096
#define TOKENS_ONCE  ((size_t)4096)
#define END_BYTES    (sizeof(DDP_BPE_END_OF_TEXT) - 1)

/* Text on its way. */
typedef struct converter {
    const ddp_text_params_t *params;
    ddp_text_report_t        report;
    ddp_bytes_t             *bytes;      /* owned */
    ddp_bpe_t               *bpe;        /* owned; NULL: bytes are tokens */
    ddp_token_writer_t      *writers[2]; /* owned; the second is NULL without val_fraction */
    int                      part;       /* the writer's number */
    uint64_t                 cut; /* where the second part begins, once it is known; until then the least */
    char                    *buffer;  /* owned, [size] */
    int32_t                 *tokens;  /* owned, [size] */
    size_t                   size, n; /* n bytes of the buffer are text, not encoded yet */
    uint64_t                 offset;  /* of the buffer in the text */
    bool                     has_ended;
} converter_t;

static ddp_status_t check_params(const ddp_text_params_t *params)
{
    ddp_status_t status = DDP_OK;

    DDP_REQUIRE(params->struct_size == sizeof(*params), DDP_ERR_INVALID_ARG,
                "text parameters not made with DDP_TEXT_PARAMS_INIT");
    DDP_REQUIRE(params->in != NULL && params->out != NULL, DDP_ERR_CONFIG,
                "a file to read and one to write are needed");
    DDP_REQUIRE(params->val_fraction >= 0.0 && params->val_fraction < 1.0, DDP_ERR_CONFIG,
                "the validation part is %g; 0 <= value < 1", params->val_fraction);
out:
    return status;
}

static ddp_status_t open_vocab(converter_t *converter)
{
    ddp_status_t             status = DDP_OK;
    const ddp_text_params_t *params = converter->params;

    converter->report.vocab = 256;
    if (params->bpe != NULL) {
        DDP_TRY(ddp_bpe_open(params->bpe, &converter->bpe));
        converter->report.vocab = ddp_bpe_info(converter->bpe)->vocab;
        DDP_REQUIRE(converter->report.vocab <= DDP_TOKEN_WRITER_MAX_VOCAB, DDP_ERR_CONFIG,
                    "'%s': %zu tokens; a shard's are uint16, so %d are the most", params->bpe,
                    converter->report.vocab, DDP_TOKEN_WRITER_MAX_VOCAB);
    }
    if (params->end_of_text) {
        DDP_REQUIRE(converter->bpe != NULL && ddp_bpe_info(converter->bpe)->end_of_text >= 0, DDP_ERR_CONFIG,
                    "%s%s%s: there is no token " DDP_BPE_END_OF_TEXT, params->bpe != NULL ? "'" : "",
                    params->bpe != NULL ? params->bpe : "bytes", params->bpe != NULL ? "'" : "");
    }
out:
    return status;
}

static ddp_status_t open_writers(converter_t *converter)
{
    ddp_status_t             status = DDP_OK;
    const ddp_text_params_t *params = converter->params;
    const ddp_bytes_info_t  *info   = ddp_bytes_info(converter->bytes);
    char                     name[PATH_SIZE];

    converter->cut = UINT64_MAX;
    if (params->val_fraction == 0.0) {
        DDP_TRY(ddp_token_writer_create(params->out, params->shard_tokens, &converter->writers[0]));
        goto out;
    }
    DDP_REQUIRE(!info->is_gzip, DDP_ERR_CONFIG,
                "'%s': how long a gzip text is shows at its end only; unpack it to split it", params->in);
    converter->cut = (uint64_t)((double)info->file_bytes * (1.0 - params->val_fraction));
    DDP_TRY(ddp_path_insert(params->out, "_train", name, sizeof(name)));
    DDP_TRY(ddp_token_writer_create(name, params->shard_tokens, &converter->writers[0]));
    DDP_TRY(ddp_path_insert(params->out, "_val", name, sizeof(name)));
    DDP_TRY(ddp_token_writer_create(name, params->shard_tokens, &converter->writers[1]));
out:
    return status;
}

static ddp_status_t grow(converter_t *converter)
{
    ddp_status_t status = DDP_OK;
    const size_t size   = converter->size > 0 ? 2 * converter->size : FIRST_BUFFER;
    char        *buffer = realloc(converter->buffer, size);
    int32_t     *tokens = NULL;

    converter->buffer = buffer != NULL ? buffer : converter->buffer;
    DDP_REQUIRE(buffer != NULL, DDP_ERR_NO_MEMORY, "no memory for %zu bytes of text", size);
    tokens = malloc(size * sizeof(*tokens));
    DDP_REQUIRE(tokens != NULL, DDP_ERR_NO_MEMORY, "no memory for %zu tokens", size);
    free(converter->tokens);
    converter->tokens = tokens;
    converter->size   = size;
out:
    return status;
}

static ddp_status_t fill(converter_t *converter)
{
    ddp_status_t status = DDP_OK;
    size_t       got    = 0;

    if (converter->n == converter->size) {
        DDP_TRY(grow(converter)); /* one piece fills it all; ddp_bpe_encode() knows when that is too long */
    }
    DDP_TRY(ddp_bytes_read(converter->bytes, converter->buffer + converter->n, converter->size - converter->n,
                           &got));
    converter->has_ended = got < converter->size - converter->n;
    DDP_REQUIRE(!converter->has_ended || !ddp_bytes_is_cut(converter->bytes), DDP_ERR_FORMAT,
                "'%s': gzip data cut short", converter->params->in);
    converter->n += got;
    converter->report.bytes += got;
out:
    return status;
}

static ddp_status_t put(converter_t *converter, const int32_t *tokens, size_t n)
{
    converter->report.tokens[converter->part] += n;
    return ddp_token_writer_write(converter->writers[converter->part], tokens, n);
}

/* Text without a separator. */
static ddp_status_t encode_plain(converter_t *converter, const char *text, size_t n, bool is_last,
                                 size_t *used_p)
{
    ddp_status_t   status = DDP_OK;
    ddp_bpe_done_t done   = {.used = n, .tokens = n};

    if (converter->bpe != NULL) {
        status = ddp_bpe_encode(converter->bpe, text, n, is_last, converter->tokens, &done);
        if (status != DDP_OK) {
            ddp_error_prefix("'%s': behind offset %llu", converter->params->in,
                             (unsigned long long)(converter->offset + (uint64_t)(text - converter->buffer)));
            goto out;
        }
        if (done.invalid > 0 && converter->report.invalid == 0) {
            converter->report.first_invalid =
                converter->offset + (uint64_t)(text - converter->buffer) + done.first_invalid;
        }
        converter->report.invalid += done.invalid;
    } else {
        for (size_t i = 0; i < n; i++) {
            converter->tokens[i] = (unsigned char)text[i];
        }
    }
    DDP_TRY(put(converter, converter->tokens, done.tokens));
    *used_p = done.used;
out:
    return status;
}

/* The first n bytes of the buffer. A separator's first bytes alone are never certain to be anything else
 * (io/bpe_split.c looks further ahead than it is long), so none is missed where the text is cut. */
static ddp_status_t encode(converter_t *converter, size_t n, bool is_last, size_t *used_p)
{
    ddp_status_t  status = DDP_OK;
    const char   *text   = converter->buffer;
    const char   *mark   = NULL;
    size_t        used   = 0;
    size_t        step   = 0;
    const int32_t end    = converter->bpe != NULL ? ddp_bpe_info(converter->bpe)->end_of_text : -1;

    while (converter->params->end_of_text &&
           (mark = memmem(text + used, n - used, DDP_BPE_END_OF_TEXT, END_BYTES)) != NULL) {
        DDP_TRY(encode_plain(converter, text + used, (size_t)(mark - text) - used, true, &step));
        DDP_TRY(put(converter, &end, 1));
        used = (size_t)(mark - text) + END_BYTES;
    }
    DDP_TRY(encode_plain(converter, text + used, n - used, is_last, &step));
    *used_p = used + step;
out:
    return status;
}

/* How much of the buffer belongs to this part: all, or up to the first line that begins behind the cut. */
static size_t part_end(const converter_t *converter, bool *is_there_p)
{
    uint64_t    from = converter->cut > converter->offset ? converter->cut - converter->offset : 0;
    const char *line = NULL;

    if (converter->part == 0 && from < converter->n) {
        line = memchr(converter->buffer + from, '\n', converter->n - from);
    }
    *is_there_p = line != NULL;
    return line != NULL ? (size_t)(line - converter->buffer) + 1 : converter->n;
}

static ddp_status_t encode_all(converter_t *converter)
{
    ddp_status_t   status = DDP_OK;
    const uint64_t total =
        ddp_bytes_info(converter->bytes)->is_gzip ? 0 : ddp_bytes_info(converter->bytes)->file_bytes;

    DDP_TRY(grow(converter));
    while (!converter->has_ended || converter->n > 0) {
        bool   is_part_end = false;
        size_t used        = 0;
        size_t end;

        if (!converter->has_ended) {
            DDP_TRY(fill(converter));
        }
        end = part_end(converter, &is_part_end);
        DDP_TRY(encode(converter, end, converter->has_ended || is_part_end, &used));
        converter->part += is_part_end ? 1 : 0;
        converter->offset += used;
        converter->n -= used;
        memmove(converter->buffer, converter->buffer + used, converter->n);
        if (converter->params->progress != NULL) {
            converter->params->progress(converter->params->ctx, converter->offset, total);
        }
    }
out:
    return status;
}

static ddp_status_t finish(converter_t *converter)
{
    ddp_status_t       status = DDP_OK;
    ddp_text_report_t *report = &converter->report;

    DDP_REQUIRE(report->bytes > 0, DDP_ERR_FORMAT, "'%s': expected text, found an empty file",
                converter->params->in);
    DDP_REQUIRE(converter->writers[1] == NULL || (report->tokens[0] > 0 && report->tokens[1] > 0),
                DDP_ERR_CONFIG, "'%s': with a validation part of %g, one of the two parts has no line",
                converter->params->in, converter->params->val_fraction);
    for (int i = 0; i < 2 && converter->writers[i] != NULL; i++) {
        DDP_TRY(ddp_token_writer_finish(converter->writers[i], &report->shards[i]));
    }
out:
    return status;
}

ddp_status_t ddp_text_encode(const ddp_text_params_t *params, ddp_text_report_t *report_p)
{
    ddp_status_t status    = DDP_OK;
    converter_t  converter = {.params = params};

    DDP_TRY(check_params(params));
    DDP_TRY(open_vocab(&converter));
    DDP_TRY(ddp_bytes_open(params->in, &converter.bytes));
    DDP_TRY(open_writers(&converter));
    DDP_TRY(encode_all(&converter));
    DDP_TRY(finish(&converter));
    *report_p = converter.report;
out:
    ddp_token_writer_close(&converter.writers[1]);
    ddp_token_writer_close(&converter.writers[0]);
    ddp_bytes_close(&converter.bytes);
    ddp_bpe_close(&converter.bpe);
    free(converter.tokens);
    free(converter.buffer);
    return status;
}

static ddp_status_t decode_tokens(const ddp_bpe_t *bpe, const int32_t *tokens, size_t n, ddp_new_file_t *file)
{
    ddp_status_t status = DDP_OK;

    for (size_t i = 0; i < n; i++) {
        const char  byte   = (char)tokens[i];
        size_t      length = 1;
        const char *text   = bpe != NULL ? ddp_bpe_token(bpe, tokens[i], &length) : &byte;

        DDP_TRY(ddp_new_file_write(file, text, length));
    }
out:
    return status;
}

/* In sequences of one input and its target, whose inputs are all tokens but the last, the last target. */
static ddp_status_t decode_all(const ddp_text_params_t *params, const ddp_bpe_t *bpe,
                               const ddp_tokens_t *tokens, ddp_new_file_t *file)
{
    ddp_status_t status = DDP_OK;
    const size_t n      = ddp_tokens_info(tokens)->sequences;
    size_t       index[TOKENS_ONCE];
    int32_t      inputs[TOKENS_ONCE];
    int32_t      targets[TOKENS_ONCE];

    for (size_t done = 0; done < n;) {
        const size_t count = n - done < TOKENS_ONCE ? n - done : TOKENS_ONCE;

        for (size_t i = 0; i < count; i++) {
            index[i] = done + i;
        }
        DDP_TRY(ddp_tokens_fetch(tokens, index, count, inputs, targets));
        DDP_TRY(decode_tokens(bpe, inputs, count, file));
        done += count;
        if (done == n) {
            DDP_TRY(decode_tokens(bpe, targets + count - 1, 1, file));
        }
        if (params->progress != NULL) {
            params->progress(params->ctx, done, n);
        }
    }
out:
    return status;
}

ddp_status_t ddp_text_decode(const ddp_text_params_t *params, ddp_text_report_t *report_p)
{
    ddp_status_t        status    = DDP_OK;
    ddp_tokens_params_t reading   = DDP_TOKENS_PARAMS_INIT;
    converter_t         converter = {.params = params};
    ddp_tokens_t       *tokens    = NULL;
    ddp_new_file_t     *file      = NULL;

    DDP_TRY(check_params(params));
    DDP_TRY(open_vocab(&converter));
    reading.path    = params->in;
    reading.context = 1;
    reading.vocab   = converter.report.vocab;
    DDP_TRY(ddp_tokens_detect(params->in, &reading.format));
    DDP_REQUIRE(reading.format != DDP_TOKENS_TEXT, DDP_ERR_FORMAT,
                "'%s': neither a shard of llm.c nor named like raw tokens (.bin, .u16, .u32)", params->in);
    DDP_TRY(ddp_tokens_open(&reading, &tokens));
    DDP_REQUIRE(ddp_tokens_info(tokens)->shards == 1, DDP_ERR_CONFIG,
                "'%s': %zu shards; decode one at a time", params->in, ddp_tokens_info(tokens)->shards);
    DDP_TRY(ddp_new_file_create(params->out, &file));
    DDP_TRY(decode_all(params, converter.bpe, tokens, file));
    DDP_TRY(ddp_new_file_finish(file));
    DDP_TRY(ddp_new_file_publish(file, NULL));
    converter.report.tokens[0] = ddp_tokens_info(tokens)->tokens;
    converter.report.shards[0] = 1;
    *report_p                  = converter.report;
out:
    ddp_new_file_close(&file);
    ddp_tokens_close(&tokens);
    ddp_bpe_close(&converter.bpe);
    return status;
}
