#include "nn/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/convert.h"
#include "base/error.h"
#include "nn/model_internal.h"
#include "nn/tape_internal.h"

static ddp_status_t check_config(const ddp_model_config_t *config)
{
    ddp_status_t status = DDP_OK;
    size_t       pixels = 0;

    DDP_REQUIRE(config->kind >= DDP_MODEL_MLP && config->kind <= DDP_MODEL_RESNET, DDP_ERR_CONFIG,
                "model: kind %d is not known", (int)config->kind);
    DDP_REQUIRE(config->dropout >= 0.0F && config->dropout < 1.0F, DDP_ERR_CONFIG,
                "model: dropout %g is not in [0, 1)", (double)config->dropout);
    if (config->kind == DDP_MODEL_GPT2) {
        return DDP_OK; /* the rest by its own build */
    }
    DDP_REQUIRE(config->height > 0 && config->width > 0 && config->channels > 0, DDP_ERR_CONFIG,
                "model: images of %zu x %zu with %zu channels have no pixels", config->height, config->width,
                config->channels);
    DDP_TRY(ddp_mul_size(config->height, config->width, "pixels of an image", &pixels));
    DDP_TRY(ddp_mul_size(pixels, config->channels, "values of an image", &pixels));
    DDP_REQUIRE(config->classes > 0, DDP_ERR_CONFIG, "model: no classes");
    DDP_REQUIRE((unsigned)config->conv <= DDP_CONV_WINOGRAD4, DDP_ERR_CONFIG,
                "model: convolution algorithm %d is not known", (int)config->conv);
    DDP_REQUIRE(config->n_hidden <= DDP_MLP_MAX_HIDDEN, DDP_ERR_CONFIG,
                "model: %zu hidden layers, at most %d are possible", config->n_hidden, DDP_MLP_MAX_HIDDEN);
out:
    return status;
}

static const ddp_model_ops_t *const all_ops[] = {&ddp_model_mlp_ops, &ddp_model_cnn_ops, &ddp_model_gpt2_ops,
                                                 &ddp_model_resnet_ops};

ddp_status_t ddp_model_create(const ddp_model_config_t *config, ddp_params_t *params, ddp_model_t **model_p)
{
    ddp_status_t status = DDP_OK;
    ddp_model_t *model  = calloc(1, sizeof(*model));

    DDP_REQUIRE(model != NULL, DDP_ERR_NO_MEMORY, "no memory for a model");
    DDP_TRY(check_config(config));
    DDP_REQUIRE(ddp_params_count(params) == 0, DDP_ERR_STATE,
                "model: the parameter list has %zu parameters already", ddp_params_count(params));
    model->config      = *config;
    model->ops         = all_ops[config->kind];
    model->min_samples = 1;
    DDP_TRY(model->ops->build(model, params));
    DDP_TRY(ddp_params_finish(params));
    *model_p = model;
    model    = NULL;
out:
    ddp_model_destroy(&model);
    return status;
}

void ddp_model_destroy(ddp_model_t **model_p)
{
    if (*model_p != NULL) {
        free((*model_p)->blocks);
        free((*model_p)->resnet);
    }
    free(*model_p);
    *model_p = NULL;
}

ddp_status_t ddp_model_forward(ddp_model_t *model, ddp_tape_t *tape, ddp_tensor_t *x, ddp_tensor_t **logits_p)
{
    ddp_status_t              status = DDP_OK;
    const ddp_model_config_t *config = &model->config;
    char                      text[DDP_SHAPE_TEXT_SIZE];

    DDP_REQUIRE(model->ops->forward != NULL, DDP_ERR_INVALID_ARG, "model: made for tokens, not for images");
    DDP_REQUIRE(x->ndim == 4 && x->shape[1] == config->height && x->shape[2] == config->width &&
                    x->shape[3] == config->channels,
                DDP_ERR_INVALID_ARG, "model: made for images of [n, %zu, %zu, %zu], given %s", config->height,
                config->width, config->channels, ddp_shape_text(x->ndim, x->shape, text));
    ddp_tape_set_conv(tape, config->conv);
    DDP_TRY(model->ops->forward(model, tape, x, logits_p));
out:
    return status;
}

size_t ddp_model_min_samples(const ddp_model_t *model)
{
    return model->min_samples;
}

size_t ddp_model_layers(const ddp_model_t *model, ddp_layer_info_t *layers, size_t capacity)
{
    const size_t n = model->n_layers < capacity ? model->n_layers : capacity;

    if (n > 0) {
        memcpy(layers, model->layers, n * sizeof(*layers));
    }
    return model->n_layers;
}

double ddp_model_flops(const ddp_model_t *model)
{
    return model->flops;
}

void ddp_model_count_flops(ddp_model_t *model, const ddp_params_t *params, double multiply_adds)
{
    const bool is_first = ddp_params_count(params) == 0;

    model->flops += 2 * multiply_adds * (is_first ? 2 : 3);
}

void ddp_model_add_info(ddp_model_t *model, const char *name, const char *kind, size_t ndim,
                        const size_t *shape, size_t parameters)
{
    ddp_layer_info_t *layer = &model->layers[model->n_layers++];

    snprintf(layer->name, sizeof(layer->name), "%s", name);
    snprintf(layer->kind, sizeof(layer->kind), "%s", kind);
    layer->ndim = ndim;
    memcpy(layer->shape, shape, ndim * sizeof(*shape));
    layer->parameters = parameters;
}

void ddp_model_add_plain(ddp_model_t *model, const char *name, const char *kind, size_t ndim,
                         const size_t *shape)
{
    ddp_model_add_info(model, name, kind, ndim, shape, 0);
}

void ddp_model_add_dropout(ddp_model_t *model, size_t number, size_t width)
{
    char name[32];
    char kind[32];

    if (model->config.dropout > 0) {
        snprintf(name, sizeof(name), "dropout%zu", number);
        snprintf(kind, sizeof(kind), "dropout %g", (double)model->config.dropout);
        ddp_model_add_plain(model, name, kind, 1, &width);
    }
}

static ddp_status_t add_pair(ddp_params_t *params, const char *name, size_t ndim, const size_t *shape,
                             size_t fan_in, ddp_model_pair_t *pair)
{
    ddp_status_t     status = DDP_OK;
    const ddp_init_t init   = {.kind = DDP_INIT_UNIFORM, .fan_in = fan_in};
    char             full[48];

    snprintf(full, sizeof(full), "%s.weight", name);
    DDP_TRY(ddp_params_add(params, full, ndim, shape, init, &pair->weight));
    snprintf(full, sizeof(full), "%s.bias", name);
    DDP_TRY(ddp_params_add(params, full, 1, shape, init, &pair->bias));
out:
    return status;
}

ddp_status_t ddp_model_add_linear(ddp_model_t *model, ddp_params_t *params, const char *name, size_t in,
                                  size_t out_width, ddp_act_t act, ddp_model_pair_t *pair_p)
{
    ddp_status_t status  = DDP_OK;
    const size_t shape[] = {out_width, in};

    ddp_model_count_flops(model, params, (double)in * (double)out_width);
    DDP_TRY(add_pair(params, name, 2, shape, in, pair_p));
    ddp_model_add_info(model, name, act == DDP_ACT_RELU ? "linear relu" : "linear", 1, shape,
                       out_width * in + out_width);
out:
    return status;
}

ddp_status_t ddp_model_add_conv3x3(ddp_model_t *model, ddp_params_t *params, const char *name, size_t height,
                                   size_t width, size_t in, size_t out_c, ddp_model_pair_t *pair_p)
{
    ddp_status_t status   = DDP_OK;
    const size_t shape[]  = {out_c, in, 3, 3};
    const size_t result[] = {height, width, out_c};

    ddp_model_count_flops(model, params, (double)(height * width) * (double)out_c * (double)in * 9);
    DDP_TRY(add_pair(params, name, 4, shape, 9 * in, pair_p));
    ddp_model_add_info(model, name, "conv2d 3x3 pad 1 relu", 3, result, out_c * in * 9 + out_c);
out:
    return status;
}
