/* What a language model writes while it learns. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/utf8.h"
#include "launcher/run.h"
#include "nn/decode.h"
#include "nn/sample.h"

#define LINE_BYTES       160
#define SHARE_OF_TIMEOUT 4
#define TEMPERATURE      0.8
#define TOP_K            40

/* Line by line; what is no UTF-8, or a control character, is shown as a question mark. */
static void say(const unsigned char *text, size_t n)
{
    char   line[LINE_BYTES + 8];
    size_t used = 0;
    size_t length;

    for (size_t i = 0; i < n; i += length) {
        length = ddp_utf8_length((const char *)text + i, n - i);
        if (text[i] == '\n' || used >= LINE_BYTES) {
            ddp_log(DDP_LOG_INFO, "sample | %.*s", (int)used, line);
            used = 0;
        }
        if (text[i] == '\n') {
            continue;
        }
        if (length == 0 || text[i] < ' ' || text[i] == 0x7f) {
            length       = 1;
            line[used++] = '?';
            continue;
        }
        memcpy(line + used, text + i, length);
        used += length;
    }
    if (used > 0) {
        ddp_log(DDP_LOG_INFO, "sample | %.*s", (int)used, line);
    }
}

/* Bytes are tokens. It begins behind the end of a line. The other ranks wait meanwhile, and would give this
 * one up: *done_p < n where it takes long. */
static ddp_status_t write_text(const ddp_run_t *run, uint64_t step, unsigned char *text, size_t n,
                               size_t *done_p)
{
    ddp_status_t        status  = DDP_OK;
    ddp_sample_params_t params  = DDP_SAMPLE_PARAMS_INIT;
    ddp_decoder_t      *decoder = NULL;
    const int64_t       end = ddp_clock_ns() + (int64_t)(run->config.ddp.timeout_s * 1e9 / SHARE_OF_TIMEOUT);
    const size_t        vocab  = (size_t)run->config.model.vocab;
    float              *logits = malloc(vocab * sizeof(*logits));
    int32_t             token  = '\n';

    DDP_REQUIRE(logits != NULL, DDP_ERR_NO_MEMORY, "no memory for %zu logits", vocab);
    params.temperature = TEMPERATURE;
    params.top_k       = TOP_K;
    params.seed        = run->config.train.seed;
    DDP_TRY(ddp_decoder_create(run->model, run->params, run->compute, &decoder));
    for (size_t i = 0; i < n && ddp_clock_ns() < end; i++) {
        DDP_TRY(ddp_decoder_feed(decoder, &token, 1, logits));
        /* a larger vocabulary than text needs has tokens that are no bytes */
        DDP_TRY(ddp_sample(logits, DDP_TOKENS_BYTES, &params, step << 32 | i, &token));
        text[i] = (unsigned char)token;
        *done_p = i + 1;
    }
out:
    ddp_decoder_destroy(&decoder);
    free(logits);
    return status;
}

void ddp_run_sample(ddp_run_t *run, uint64_t step)
{
    const size_t   n      = (size_t)run->config.train.sample_tokens;
    size_t         done   = 0;
    unsigned char *text   = NULL;
    ddp_status_t   status = DDP_OK;

    if (n == 0 || run->config.data.kind != DDP_CONFIG_DATA_TEXT) {
        return;
    }
    text = malloc(n);
    DDP_REQUIRE(text != NULL, DDP_ERR_NO_MEMORY, "no memory for a sample of %zu tokens", n);
    DDP_TRY(write_text(run, step, text, n, &done));
    say(text, done);
    if (done < n) {
        ddp_log(DDP_LOG_INFO, "sample | ... %zu of %zu tokens: the other ranks wait", done, n);
    }
out:
    if (status != DDP_OK) {
        ddp_log(DDP_LOG_WARN, "no sample: %s", ddp_error_line());
        ddp_error_clear();
    }
    free(text);
}
