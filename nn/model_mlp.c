#include "nn/model_internal.h"

#include <stdio.h>

#include "base/error.h"

static ddp_status_t build(ddp_model_t *model, ddp_params_t *params)
{
    ddp_status_t              status = DDP_OK;
    const ddp_model_config_t *config = &model->config;
    size_t                    width  = config->height * config->width * config->channels;
    char                      name[32];

    ddp_model_add_plain(model, "flatten", "flatten", 1, &width);
    for (size_t i = 0; i < config->n_hidden; i++) {
        DDP_REQUIRE(config->hidden[i] > 0, DDP_ERR_CONFIG, "model: hidden layer %zu has no width", i + 1);
        snprintf(name, sizeof(name), "fc%zu", i + 1);
        DDP_TRY(ddp_model_add_linear(model, params, name, width, config->hidden[i], DDP_ACT_RELU,
                                     &model->linear[i]));
        ddp_model_add_dropout(model, i + 1, config->hidden[i]);
        width = config->hidden[i];
    }
    snprintf(name, sizeof(name), "fc%zu", config->n_hidden + 1);
    DDP_TRY(ddp_model_add_linear(model, params, name, width, config->classes, DDP_ACT_NONE,
                                 &model->linear[config->n_hidden]));
out:
    return status;
}

static ddp_status_t forward(const ddp_model_t *model, ddp_tape_t *tape, ddp_tensor_t *x,
                            ddp_tensor_t **logits_p)
{
    ddp_status_t            status = DDP_OK;
    const ddp_model_pair_t *linear = model->linear;
    const size_t            n      = model->config.n_hidden;

    DDP_TRY(ddp_nn_flatten(tape, x, &x));
    for (size_t i = 0; i < n; i++) {
        DDP_TRY(ddp_nn_linear(tape, x, linear[i].weight, linear[i].bias, DDP_ACT_RELU, &x));
        DDP_TRY(ddp_nn_dropout(tape, x, model->config.dropout, &x));
    }
    DDP_TRY(ddp_nn_linear(tape, x, linear[n].weight, linear[n].bias, DDP_ACT_NONE, logits_p));
out:
    return status;
}

const ddp_model_ops_t ddp_model_mlp_ops = {.build = build, .forward = forward};
