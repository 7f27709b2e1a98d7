#include "nn/decode.h"

#include <stdlib.h>
#include <string.h>

#include "base/convert.h"
#include "base/error.h"
#include "kernels/ops_seq.h"
#include "nn/model_internal.h"

struct ddp_decoder {
    const ddp_model_t  *model;              /* borrowed */
    const ddp_params_t *params;             /* borrowed */
    ddp_stream_t       *stream;             /* borrowed */
    float              *memory;             /* owned, the device's: all that follows but `tokens` */
    float              *keys, *values;      /* [layers, context, channels] */
    float              *x, *y, *qkv, *wide; /* [context] rows of 1, 1, 3 and 4 channels */
    float              *logits;             /* [vocab] */
    int32_t            *tokens;             /* owned, [context]: so far; host */
    float              *d_tokens;           /* [context] int32: those that are run */
    size_t              length;
};

/* The parts of one allocation, each a multiple of 16 floats: whole cache lines. */
static ddp_status_t allocate(ddp_decoder_t *decoder)
{
    ddp_status_t              status    = DDP_OK;
    const ddp_allocator_t    *allocator = ddp_device_allocator(ddp_stream_device(decoder->stream));
    const ddp_model_config_t *config    = &decoder->model->config;
    const size_t              rows      = config->context * config->channels;
    void                     *memory    = NULL;
    const struct {
        float **part;
        size_t  count;
    } parts[]    = {{&decoder->keys, config->layers * rows},
                    {&decoder->values, config->layers * rows},
                    {&decoder->x, rows},
                    {&decoder->y, rows},
                    {&decoder->qkv, 3 * rows},
                    {&decoder->wide, 4 * rows},
                    {&decoder->logits, config->vocab},
                    {&decoder->d_tokens, config->context}};
    size_t total = 0;

    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        total += (parts[i].count + 15) / 16 * 16;
    }
    decoder->tokens = calloc(config->context, sizeof(*decoder->tokens));
    DDP_REQUIRE(decoder->tokens != NULL, DDP_ERR_NO_MEMORY, "no memory to decode %zu tokens",
                config->context);
    DDP_TRY(allocator->acquire(allocator->ctx, "keys and values", total * sizeof(float), &memory));
    decoder->memory = memory;
    total           = 0;
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        *parts[i].part = decoder->memory + total;
        total += (parts[i].count + 15) / 16 * 16;
    }
out:
    return status;
}

ddp_status_t ddp_decoder_create(const ddp_model_t *model, const ddp_params_t *params, ddp_stream_t *stream,
                                ddp_decoder_t **decoder_p)
{
    ddp_status_t   status  = DDP_OK;
    ddp_decoder_t *decoder = calloc(1, sizeof(*decoder));

    DDP_REQUIRE(decoder != NULL, DDP_ERR_NO_MEMORY, "no memory to decode");
    DDP_REQUIRE(model->config.kind == DDP_MODEL_GPT2, DDP_ERR_INVALID_ARG,
                "decoder: the model is made for images, not for tokens");
    decoder->model  = model;
    decoder->params = params;
    decoder->stream = stream;
    DDP_TRY(allocate(decoder));
    *decoder_p = decoder;
    decoder    = NULL;
out:
    ddp_decoder_destroy(&decoder);
    return status;
}

void ddp_decoder_destroy(ddp_decoder_t **decoder_p)
{
    ddp_decoder_t         *decoder   = *decoder_p;
    const ddp_allocator_t *allocator = NULL;

    if (decoder == NULL) {
        return;
    }
    if (decoder->memory != NULL) {
        allocator = ddp_device_allocator(ddp_stream_device(decoder->stream));
        allocator->release(allocator->ctx, decoder->memory);
    }
    free(decoder->tokens);
    free(decoder);
    *decoder_p = NULL;
}

void ddp_decoder_reset(ddp_decoder_t *decoder)
{
    decoder->length = 0;
}

size_t ddp_decoder_length(const ddp_decoder_t *decoder)
{
    return decoder->length;
}

static const float *value(const ddp_decoder_t *decoder, size_t index)
{
    return ddp_params_value(decoder->params, index);
}

static ddp_status_t norm(const ddp_decoder_t *decoder, const float *x, size_t rows, ddp_model_pair_t pair,
                         float *y)
{
    const ddp_layer_norm_args_t args = {.x     = x,
                                        .rows  = rows,
                                        .width = decoder->model->config.channels,
                                        .gamma = value(decoder, pair.weight),
                                        .beta  = value(decoder, pair.bias),
                                        .eps   = DDP_GPT2_NORM_EPS,
                                        .y     = y};

    return ddp_op_layer_norm(decoder->stream, &args);
}

/* y[rows, out] = act(x[rows, in] w[in, out] + bias), added to y where beta is 1 */
static ddp_status_t linear(const ddp_decoder_t *decoder, const float *x, size_t rows, ddp_model_pair_t pair,
                           ddp_act_t act, float beta, float *y)
{
    const size_t         *shape = ddp_params_descs(decoder->params)[pair.weight].shape;
    const ddp_gemm_args_t args  = {.m     = rows,
                                   .n     = shape[1],
                                   .k     = shape[0],
                                   .alpha = 1.0F,
                                   .beta  = beta,
                                   .a     = x,
                                   .lda   = shape[0],
                                   .b     = value(decoder, pair.weight),
                                   .ldb   = shape[1],
                                   .c     = y,
                                   .ldc   = shape[1],
                                   .bias  = value(decoder, pair.bias),
                                   .act   = act};

    return ddp_op_gemm(decoder->stream, &args);
}

/* Of `rows` new tokens behind `past`, from qkv to y. */
static ddp_status_t attend(const ddp_decoder_t *decoder, size_t layer, size_t past, size_t rows)
{
    ddp_status_t                      status = DDP_OK;
    const ddp_model_config_t         *config = &decoder->model->config;
    const size_t                      at     = layer * config->context * config->channels;
    const ddp_attention_cached_args_t cached = {.qkv       = decoder->qkv,
                                                .sequences = 1,
                                                .length    = rows,
                                                .heads     = config->heads,
                                                .channels  = config->channels,
                                                .past      = past,
                                                .capacity  = config->context,
                                                .keys      = decoder->keys + at,
                                                .values    = decoder->values + at,
                                                .y         = decoder->y};
    const ddp_attention_args_t        whole  = {.qkv       = decoder->qkv,
                                                .sequences = 1,
                                                .length    = rows,
                                                .heads     = config->heads,
                                                .channels  = config->channels,
                                                .y         = decoder->y};

    if (past > 0 || rows == 1) {
        DDP_TRY(ddp_op_attention_cached(decoder->stream, &cached));
    } else {
        DDP_TRY(ddp_op_attention(decoder->stream, &whole));
        DDP_TRY(ddp_op_attention_keep(decoder->stream, &cached));
    }
out:
    return status;
}

/* As run_block() of model_gpt2.c, x in place. */
static ddp_status_t run_block(const ddp_decoder_t *decoder, size_t layer, size_t past, size_t rows)
{
    ddp_status_t            status = DDP_OK;
    const ddp_gpt2_block_t *block  = &decoder->model->blocks[layer];

    DDP_TRY(norm(decoder, decoder->x, rows, block->ln_1, decoder->y));
    DDP_TRY(linear(decoder, decoder->y, rows, block->attn, DDP_ACT_NONE, 0.0F, decoder->qkv));
    DDP_TRY(attend(decoder, layer, past, rows));
    DDP_TRY(linear(decoder, decoder->y, rows, block->attn_proj, DDP_ACT_NONE, 1.0F, decoder->x));
    DDP_TRY(norm(decoder, decoder->x, rows, block->ln_2, decoder->y));
    DDP_TRY(linear(decoder, decoder->y, rows, block->fc, DDP_ACT_GELU_TANH, 0.0F, decoder->wide));
    DDP_TRY(linear(decoder, decoder->wide, rows, block->fc_proj, DDP_ACT_NONE, 1.0F, decoder->x));
out:
    return status;
}

/* Logits of the last of `rows` rows of x. */
static ddp_status_t run_head(const ddp_decoder_t *decoder, size_t rows)
{
    ddp_status_t              status = DDP_OK;
    const ddp_model_config_t *config = &decoder->model->config;
    const size_t              c      = config->channels;
    const ddp_gemm_args_t     args   = {.transpose_b = true,
                                        .m           = 1,
                                        .n           = config->vocab,
                                        .k           = c,
                                        .alpha       = 1.0F,
                                        .a           = decoder->y,
                                        .lda         = c,
                                        .b           = value(decoder, decoder->model->wte),
                                        .ldb         = c,
                                        .c           = decoder->logits,
                                        .ldc         = config->vocab};

    DDP_TRY(norm(decoder, decoder->x + (rows - 1) * c, 1, decoder->model->ln_f, decoder->y));
    DDP_TRY(ddp_op_gemm(decoder->stream, &args));
out:
    return status;
}

/* Tokens past .. past + rows - 1 of decoder->tokens. */
static ddp_status_t run(const ddp_decoder_t *decoder, size_t past, size_t rows)
{
    ddp_status_t               status    = DDP_OK;
    const ddp_model_config_t  *config    = &decoder->model->config;
    const ddp_embedding_args_t embedding = {.tokens    = (const int32_t *)(const void *)decoder->d_tokens,
                                            .sequences = 1,
                                            .length    = rows,
                                            .vocab     = config->vocab,
                                            .width     = config->channels,
                                            .table     = value(decoder, decoder->model->wte),
                                            .positions =
                                                value(decoder, decoder->model->wpe) + past * config->channels,
                                            .y = decoder->x};

    DDP_TRY(ddp_stream_copy(decoder->stream, decoder->d_tokens, decoder->tokens + past,
                            rows * sizeof(*decoder->tokens)));
    DDP_TRY(ddp_op_embedding(decoder->stream, &embedding));
    for (size_t layer = 0; layer < config->layers; layer++) {
        DDP_TRY(run_block(decoder, layer, past, rows));
    }
    DDP_TRY(run_head(decoder, rows));
    DDP_TRY(ddp_stream_synchronize(decoder->stream, -1));
out:
    return status;
}

ddp_status_t ddp_decoder_feed(ddp_decoder_t *decoder, const int32_t *tokens, size_t n, float *logits)
{
    ddp_status_t              status = DDP_OK;
    const ddp_model_config_t *config = &decoder->model->config;
    size_t                    past   = decoder->length;

    DDP_REQUIRE(n >= 1 && n <= config->context, DDP_ERR_INVALID_ARG,
                "decoder: %zu tokens at once; 1 .. %zu, the context", n, config->context);
    for (size_t i = 0; i < n; i++) {
        DDP_REQUIRE(tokens[i] >= 0 && (size_t)tokens[i] < config->vocab, DDP_ERR_INVALID_ARG,
                    "decoder: token %ld is not below the vocabulary of %zu", (long)tokens[i], config->vocab);
    }
    if (n > config->context - decoder->length) {
        const size_t half = (config->context + 1) / 2;
        const size_t room = n < half ? half - n : 0;
        const size_t kept = room < decoder->length ? room : decoder->length;

        memmove(decoder->tokens, decoder->tokens + decoder->length - kept, kept * sizeof(*tokens));
        decoder->length = kept;
        past            = 0;
    }
    memcpy(decoder->tokens + decoder->length, tokens, n * sizeof(*tokens));
    decoder->length += n;
    DDP_TRY(run(decoder, past, decoder->length - past));
    if (logits != NULL) {
        DDP_TRY(ddp_stream_read(decoder->stream, logits, decoder->logits, config->vocab * sizeof(*logits)));
    }
out:
    return status;
}
