#include "nn/model_internal.h"

#include <stdio.h>

#include "base/error.h"

#define FC_WIDTH 128

static const size_t conv_channels[DDP_CNN_CONVS] = {32, 64};

static ddp_status_t build(ddp_model_t *model, ddp_params_t *params)
{
    ddp_status_t              status   = DDP_OK;
    const ddp_model_config_t *config   = &model->config;
    size_t                    shape[3] = {config->height, config->width, config->channels};
    size_t                    flat     = 0;
    char                      name[32];

    DDP_REQUIRE(config->height >= 4 && config->width >= 4, DDP_ERR_CONFIG,
                "model: cnn halves an image twice; %zu x %zu is smaller than 4 x 4, use mlp", config->height,
                config->width);
    for (size_t i = 0; i < DDP_CNN_CONVS; i++) {
        snprintf(name, sizeof(name), "conv%zu", i + 1);
        DDP_TRY(ddp_model_add_conv3x3(model, params, name, shape[0], shape[1], shape[2], conv_channels[i],
                                      &model->conv[i]));
        shape[0] /= 2;
        shape[1] /= 2;
        shape[2] = conv_channels[i];
        snprintf(name, sizeof(name), "pool%zu", i + 1);
        ddp_model_add_plain(model, name, "max_pool2d 2", 3, shape);
    }
    flat = shape[0] * shape[1] * shape[2];
    ddp_model_add_plain(model, "flatten", "flatten", 1, &flat);
    DDP_TRY(ddp_model_add_linear(model, params, "fc1", flat, FC_WIDTH, DDP_ACT_RELU, &model->linear[0]));
    ddp_model_add_dropout(model, 1, FC_WIDTH);
    DDP_TRY(ddp_model_add_linear(model, params, "fc2", FC_WIDTH, config->classes, DDP_ACT_NONE,
                                 &model->linear[1]));
out:
    return status;
}

static ddp_status_t forward(const ddp_model_t *model, ddp_tape_t *tape, ddp_tensor_t *x,
                            ddp_tensor_t **logits_p)
{
    ddp_status_t            status = DDP_OK;
    const ddp_model_pair_t *linear = model->linear;

    for (size_t i = 0; i < DDP_CNN_CONVS; i++) {
        DDP_TRY(ddp_nn_conv2d(tape, x, model->conv[i].weight, model->conv[i].bias, 1, 1, DDP_ACT_RELU, &x));
        DDP_TRY(ddp_nn_max_pool2d(tape, x, 2, 2, 0, &x));
    }
    DDP_TRY(ddp_nn_flatten(tape, x, &x));
    DDP_TRY(ddp_nn_linear(tape, x, linear[0].weight, linear[0].bias, DDP_ACT_RELU, &x));
    DDP_TRY(ddp_nn_dropout(tape, x, model->config.dropout, &x));
    DDP_TRY(ddp_nn_linear(tape, x, linear[1].weight, linear[1].bias, DDP_ACT_NONE, logits_p));
out:
    return status;
}

const ddp_model_ops_t ddp_model_cnn_ops = {.build = build, .forward = forward};
