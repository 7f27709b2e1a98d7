/* GPT-2: Radford, Wu, Child, Luan, Amodei, Sutskever 2019, Language models are unsupervised multitask
 * learners. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/convert.h"
#include "base/error.h"
#include "nn/model_internal.h"

#define INIT_STD 0.02
#define IGNORED  (-1)

ddp_status_t ddp_model_gpt2_preset(const char *name, ddp_model_config_t *config)
{
    static const struct {
        const char *name;
        size_t      layers, heads, channels, context, vocab;
    } presets[] = {
        {"gpt2-124m", 12, 12, 768, 1024, 50257},  {"gpt2-355m", 24, 16, 1024, 1024, 50257},
        {"gpt2-774m", 36, 20, 1280, 1024, 50257}, {"gpt2-1558m", 48, 25, 1600, 1024, 50257},
        {"gpt2-small", 4, 4, 256, 256, 256},      {"gpt2-tiny", 2, 2, 64, 32, 256},
    };

    for (size_t i = 0; i < sizeof(presets) / sizeof(presets[0]); i++) {
        if (strcmp(presets[i].name, name) == 0) {
            config->layers   = presets[i].layers;
            config->heads    = presets[i].heads;
            config->channels = presets[i].channels;
            config->context  = presets[i].context;
            config->vocab    = presets[i].vocab;
            return DDP_OK;
        }
    }
    return ddp_fail(DDP_ERR_CONFIG,
                    "model: no preset '%s'; there are gpt2-124m, -355m, -774m, -1558m, -small and -tiny",
                    name);
}

/* "<prefix>.weight" of `shape` with `std`, and "<prefix>.bias" of `bias` zeros. */
static ddp_status_t add_linear(ddp_params_t *params, const char *prefix, size_t in, size_t out_width,
                               double std, ddp_model_pair_t *pair)
{
    const size_t     shape[] = {in, out_width};
    const ddp_init_t normal  = {.kind = DDP_INIT_NORMAL, .std = (float)std};
    const ddp_init_t zero    = {.kind = DDP_INIT_ZERO};
    ddp_status_t     status  = DDP_OK;
    char             name[64];

    snprintf(name, sizeof(name), "%s.weight", prefix);
    DDP_TRY(ddp_params_add(params, name, 2, shape, normal, &pair->weight));
    snprintf(name, sizeof(name), "%s.bias", prefix);
    DDP_TRY(ddp_params_add(params, name, 1, &shape[1], zero, &pair->bias));
out:
    return status;
}

static ddp_status_t add_norm(ddp_params_t *params, const char *prefix, size_t width, ddp_model_pair_t *pair)
{
    const ddp_init_t one    = {.kind = DDP_INIT_ONE};
    const ddp_init_t zero   = {.kind = DDP_INIT_ZERO};
    ddp_status_t     status = DDP_OK;
    char             name[64];

    snprintf(name, sizeof(name), "%s.weight", prefix);
    DDP_TRY(ddp_params_add(params, name, 1, &width, one, &pair->weight));
    snprintf(name, sizeof(name), "%s.bias", prefix);
    DDP_TRY(ddp_params_add(params, name, 1, &width, zero, &pair->bias));
out:
    return status;
}

static ddp_status_t add_block(ddp_model_t *model, ddp_params_t *params, size_t i)
{
    ddp_gpt2_block_t *block  = &model->blocks[i];
    ddp_status_t      status = DDP_OK;
    const size_t      c      = model->config.channels;
    const double      small  = INIT_STD / sqrt(2.0 * (double)model->config.layers);
    const size_t      before = ddp_params_elements(params);
    char              name[64];
    size_t            shape[2];

    block->model = model;
    snprintf(name, sizeof(name), "transformer.h.%zu.ln_1", i);
    DDP_TRY(add_norm(params, name, c, &block->ln_1));
    snprintf(name, sizeof(name), "transformer.h.%zu.attn.c_attn", i);
    DDP_TRY(add_linear(params, name, c, 3 * c, INIT_STD, &block->attn));
    snprintf(name, sizeof(name), "transformer.h.%zu.attn.c_proj", i);
    DDP_TRY(add_linear(params, name, c, c, small, &block->attn_proj));
    snprintf(name, sizeof(name), "transformer.h.%zu.ln_2", i);
    DDP_TRY(add_norm(params, name, c, &block->ln_2));
    snprintf(name, sizeof(name), "transformer.h.%zu.mlp.c_fc", i);
    DDP_TRY(add_linear(params, name, c, 4 * c, INIT_STD, &block->fc));
    snprintf(name, sizeof(name), "transformer.h.%zu.mlp.c_proj", i);
    DDP_TRY(add_linear(params, name, 4 * c, c, small, &block->fc_proj));
    snprintf(name, sizeof(name), "h.%zu", i);
    shape[0] = model->config.context;
    shape[1] = c;
    ddp_model_add_info(model, name, "attention, mlp", 2, shape, ddp_params_elements(params) - before);
out:
    return status;
}

static ddp_status_t check_gpt2(const ddp_model_config_t *config)
{
    ddp_status_t status = DDP_OK;
    size_t       unused = 0;

    DDP_REQUIRE(config->layers > 0 && config->layers <= DDP_GPT2_MAX_LAYERS, DDP_ERR_CONFIG,
                "model: %zu layers, not 1 .. %d", config->layers, DDP_GPT2_MAX_LAYERS);
    DDP_REQUIRE(config->heads > 0 && config->channels > 0 && config->channels % config->heads == 0,
                DDP_ERR_CONFIG, "model: %zu channels do not divide into %zu heads", config->channels,
                config->heads);
    DDP_REQUIRE(config->context > 0 && config->vocab > 0 && config->vocab <= INT32_MAX, DDP_ERR_CONFIG,
                "model: a context of %zu and a vocabulary of %zu", config->context, config->vocab);
    DDP_TRY(ddp_mul_size(config->channels, 4 * sizeof(float), "channels of a model", &unused));
out:
    return status;
}

/* Of one sequence of `context` tokens: each weight is used in three products; half of the scores are. */
static double gpt2_flops(const ddp_model_config_t *config)
{
    const double t       = (double)config->context;
    const double c       = (double)config->channels;
    const double weights = (double)config->layers * 12.0 * c * c + (double)config->vocab * c;

    return t * 6.0 * weights + (double)config->layers * 6.0 * t * t * c;
}

static ddp_status_t build(ddp_model_t *model, ddp_params_t *params)
{
    const ddp_model_config_t *config   = &model->config;
    const ddp_init_t          normal   = {.kind = DDP_INIT_NORMAL, .std = (float)INIT_STD};
    const size_t              words[]  = {config->vocab, config->channels};
    const size_t              places[] = {config->context, config->channels};
    const size_t              logits[] = {config->context, config->vocab};
    ddp_status_t              status   = DDP_OK;

    DDP_TRY(check_gpt2(config));
    model->blocks = calloc(config->layers, sizeof(*model->blocks));
    DDP_REQUIRE(model->blocks != NULL, DDP_ERR_NO_MEMORY, "no memory for %zu layers", config->layers);
    /* What is registered first is ready last: the embedding, which the head uses too. */
    DDP_TRY(ddp_params_add(params, "transformer.wte.weight", 2, words, normal, &model->wte));
    DDP_TRY(ddp_params_add(params, "transformer.wpe.weight", 2, places, normal, &model->wpe));
    ddp_model_add_info(model, "embedding", "tokens + positions", 2, places, ddp_params_elements(params));
    for (size_t i = 0; i < config->layers; i++) {
        DDP_TRY(add_block(model, params, i));
    }
    DDP_TRY(add_norm(params, "transformer.ln_f", config->channels, &model->ln_f));
    ddp_model_add_info(model, "ln_f", "layer norm", 2, places, 2 * config->channels);
    ddp_model_add_info(model, "head", "linear, tied", 2, logits, 0);
    model->flops = gpt2_flops(config);
out:
    return status;
}

/* x + dropout(projection of y) */
static ddp_status_t add_projection(const ddp_model_t *model, ddp_tape_t *tape, ddp_tensor_t *x,
                                   ddp_tensor_t *y, ddp_model_pair_t proj, ddp_tensor_t **x_p)
{
    ddp_status_t status = DDP_OK;

    if (model->config.dropout == 0.0F) {
        return ddp_nn_linear_add(tape, y, proj.weight, proj.bias, x, x_p);
    }
    DDP_TRY(ddp_nn_linear_in_out(tape, y, proj.weight, proj.bias, DDP_ACT_NONE, &y));
    DDP_TRY(ddp_nn_dropout(tape, y, model->config.dropout, &y));
    DDP_TRY(ddp_nn_add(tape, x, y, x_p));
out:
    return status;
}

/* ddp_block_fn_t of a ddp_gpt2_block_t */
static ddp_status_t run_block(const void *ctx, ddp_tape_t *tape, ddp_tensor_t *x, ddp_tensor_t **x_p)
{
    ddp_status_t            status = DDP_OK;
    const ddp_gpt2_block_t *block  = ctx;
    const ddp_model_t      *model  = block->model;
    ddp_tensor_t           *y      = NULL;

    DDP_TRY(ddp_nn_layer_norm(tape, x, block->ln_1.weight, block->ln_1.bias, DDP_GPT2_NORM_EPS, &y));
    DDP_TRY(ddp_nn_linear_in_out(tape, y, block->attn.weight, block->attn.bias, DDP_ACT_NONE, &y));
    DDP_TRY(ddp_nn_attention(tape, y, model->config.heads, model->config.dropout, &y));
    DDP_TRY(add_projection(model, tape, x, y, block->attn_proj, &x));
    DDP_TRY(ddp_nn_layer_norm(tape, x, block->ln_2.weight, block->ln_2.bias, DDP_GPT2_NORM_EPS, &y));
    DDP_TRY(ddp_nn_linear_in_out(tape, y, block->fc.weight, block->fc.bias, DDP_ACT_GELU_TANH, &y));
    DDP_TRY(add_projection(model, tape, x, y, block->fc_proj, x_p));
out:
    return status;
}

ddp_status_t ddp_model_hidden(ddp_model_t *model, ddp_tape_t *tape, const int32_t *tokens, size_t n,
                              size_t length, ddp_tensor_t **x_p)
{
    ddp_status_t  status = DDP_OK;
    ddp_tensor_t *x      = NULL;

    DDP_REQUIRE(model->config.kind == DDP_MODEL_GPT2, DDP_ERR_INVALID_ARG,
                "model: made for images, not for tokens");
    DDP_REQUIRE(length <= model->config.context, DDP_ERR_INVALID_ARG,
                "model: sequences of %zu tokens are longer than the context of %zu", length,
                model->config.context);
    DDP_TRY(ddp_nn_embedding(tape, tokens, n, length, model->wte, model->wpe, &x));
    DDP_TRY(ddp_nn_dropout(tape, x, model->config.dropout, &x));
    for (size_t i = 0; i < model->config.layers; i++) {
        DDP_TRY(ddp_tape_block(tape, run_block, &model->blocks[i], x, &x));
    }
    DDP_TRY(ddp_nn_layer_norm(tape, x, model->ln_f.weight, model->ln_f.bias, DDP_GPT2_NORM_EPS, x_p));
out:
    return status;
}

ddp_status_t ddp_model_head_loss(ddp_model_t *model, ddp_tape_t *tape, ddp_tensor_t *x,
                                 const int32_t *targets, ddp_loss_stats_t **stats_p)
{
    return ddp_nn_head_cross_entropy(tape, x, model->wte, targets, NULL, IGNORED, stats_p);
}

ddp_status_t ddp_model_forward_tokens(ddp_model_t *model, ddp_tape_t *tape, const int32_t *tokens,
                                      const int32_t *targets, size_t n, size_t length,
                                      ddp_loss_stats_t **stats_p)
{
    ddp_status_t  status = DDP_OK;
    ddp_tensor_t *x      = NULL;

    DDP_TRY(ddp_model_hidden(model, tape, tokens, n, length, &x));
    DDP_TRY(ddp_model_head_loss(model, tape, x, targets, stats_p));
out:
    return status;
}

ddp_status_t ddp_model_logits(ddp_model_t *model, ddp_tape_t *tape, const int32_t *tokens, size_t n,
                              size_t length, ddp_tensor_t **logits_p)
{
    ddp_status_t  status = DDP_OK;
    ddp_tensor_t *x      = NULL;

    DDP_TRY(ddp_model_hidden(model, tape, tokens, n, length, &x));
    DDP_TRY(ddp_nn_head_logits(tape, x, model->wte, logits_p));
out:
    return status;
}

const ddp_model_ops_t ddp_model_gpt2_ops = {.build = build};
