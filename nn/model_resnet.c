/* Residual networks: He, Zhang, Ren and Sun 2016, Deep residual learning for image recognition (arXiv
 * 1512.03385). Names and shapes are torchvision's; so is where the bottleneck has its stride (its 3x3
 * convolution) and that every shortcut that changes shape is a 1x1 convolution. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "nn/model_internal.h"

#define NORM_EPS      1e-5F
#define NORM_MOMENTUM 0.1F
#define MAX_STAGES    4
#define EXPANSION     4 /* of a bottleneck */

/* Depth = number of layers with weights, shortcuts not counted. */
typedef struct plan {
    size_t depth;
    bool   is_small; /* for pictures of 32x32: a 3x3 stem and three stages, section 4.2; else table 1 */
    bool   is_bottleneck;
    size_t blocks[MAX_STAGES];
} plan_t;

static const plan_t plans[] = {
    {18, false, false, {2, 2, 2, 2}}, {20, true, false, {3, 3, 3}},      {32, true, false, {5, 5, 5}},
    {34, false, false, {3, 4, 6, 3}}, {44, true, false, {7, 7, 7}},      {50, false, true, {3, 4, 6, 3}},
    {56, true, false, {9, 9, 9}},     {101, false, true, {3, 4, 23, 3}}, {110, true, false, {18, 18, 18}},
};

typedef struct conv {
    size_t           weight, stride, pad;
    ddp_batch_norm_t norm;
} conv_t;

typedef struct block {
    size_t n; /* convolutions: 2, or 3 of a bottleneck */
    conv_t conv[3];
    conv_t shortcut;
    bool   has_shortcut;
} block_t;

struct ddp_resnet {
    conv_t  stem;
    bool    is_small;
    size_t  n_blocks;
    block_t blocks[]; /* [n_blocks] */
};

/* Where the network has got to. */
typedef struct site {
    ddp_model_t  *model;
    ddp_params_t *params;
    size_t        shape[3]; /* height, width, channels */
} site_t;

static size_t halved(size_t size)
{
    return (size - 1) / 2 + 1;
}

static ddp_status_t add_vector(ddp_params_t *params, const char *prefix, const char *name, size_t c,
                               ddp_init_kind_t kind, bool is_average, size_t *index_p)
{
    const ddp_init_t init = {.kind = kind};
    char             full[64];

    snprintf(full, sizeof(full), "%s.%s", prefix, name);
    return is_average ? ddp_params_add_average(params, full, 1, &c, init, NORM_MOMENTUM, index_p)
                      : ddp_params_add(params, full, 1, &c, init, index_p);
}

static ddp_status_t add_norm(ddp_params_t *params, const char *prefix, size_t c, ddp_batch_norm_t *norm)
{
    ddp_status_t status = DDP_OK;

    norm->eps = NORM_EPS;
    DDP_TRY(add_vector(params, prefix, "weight", c, DDP_INIT_ONE, false, &norm->gamma));
    DDP_TRY(add_vector(params, prefix, "bias", c, DDP_INIT_ZERO, false, &norm->beta));
    DDP_TRY(add_vector(params, prefix, "running_mean", c, DDP_INIT_ZERO, true, &norm->running_mean));
    DDP_TRY(add_vector(params, prefix, "running_var", c, DDP_INIT_ONE, true, &norm->running_var));
out:
    return status;
}

/* A convolution without bias and its normalisation. The weight starts normal with variance 2 / (out * kernel
 * * kernel); He, Zhang, Ren and Sun 2015 (arXiv 1502.01852), equation 14. `shape` becomes that of the result.
 */
static ddp_status_t add_conv(const site_t *site, size_t shape[3], const char *name, const char *norm_name,
                             size_t out_c, size_t kernel, size_t stride, conv_t *conv)
{
    const size_t     dims[] = {out_c, shape[2], kernel, kernel};
    const double     fan    = (double)(out_c * kernel * kernel);
    const ddp_init_t init   = {.kind = DDP_INIT_NORMAL, .std = (float)sqrt(2.0 / fan)};
    ddp_status_t     status = DDP_OK;
    char             full[64];

    conv->stride = stride;
    conv->pad    = kernel / 2;
    shape[0]     = stride == 2 ? halved(shape[0]) : shape[0];
    shape[1]     = stride == 2 ? halved(shape[1]) : shape[1];
    ddp_model_count_flops(site->model, site->params, (double)(shape[0] * shape[1]) * (double)shape[2] * fan);
    shape[2] = out_c;
    snprintf(full, sizeof(full), "%s.weight", name);
    DDP_TRY(ddp_params_add(site->params, full, 4, dims, init, &conv->weight));
    DDP_TRY(add_norm(site->params, norm_name, out_c, &conv->norm));
out:
    return status;
}

/* "<prefix>.conv<i>" and "<prefix>.bn<i>" */
static ddp_status_t add_numbered(const site_t *site, size_t shape[3], const char *prefix, size_t i,
                                 size_t out_c, size_t kernel, size_t stride, conv_t *conv)
{
    char name[48];
    char norm[48];

    snprintf(name, sizeof(name), "%sconv%zu", prefix, i);
    snprintf(norm, sizeof(norm), "%sbn%zu", prefix, i);
    return add_conv(site, shape, name, norm, out_c, kernel, stride, conv);
}

static ddp_status_t add_block(site_t *site, const char *name, bool is_bottleneck, size_t width, size_t stride,
                              block_t *block)
{
    const size_t before   = ddp_params_elements(site->params);
    const size_t out_c    = is_bottleneck ? EXPANSION * width : width;
    size_t       inner[3] = {site->shape[0], site->shape[1], site->shape[2]};
    ddp_status_t status   = DDP_OK;
    char         prefix[24];
    char         shortcut[40];
    char         norm[40];

    snprintf(prefix, sizeof(prefix), "%s.", name);
    block->n            = is_bottleneck ? 3 : 2;
    block->has_shortcut = stride != 1 || site->shape[2] != out_c;
    if (is_bottleneck) {
        DDP_TRY(add_numbered(site, inner, prefix, 1, width, 1, 1, &block->conv[0]));
        DDP_TRY(add_numbered(site, inner, prefix, 2, width, 3, stride, &block->conv[1]));
        DDP_TRY(add_numbered(site, inner, prefix, 3, out_c, 1, 1, &block->conv[2]));
    } else {
        DDP_TRY(add_numbered(site, inner, prefix, 1, width, 3, stride, &block->conv[0]));
        DDP_TRY(add_numbered(site, inner, prefix, 2, width, 3, 1, &block->conv[1]));
    }
    if (block->has_shortcut) {
        snprintf(shortcut, sizeof(shortcut), "%sdownsample.0", prefix);
        snprintf(norm, sizeof(norm), "%sdownsample.1", prefix);
        DDP_TRY(add_conv(site, site->shape, shortcut, norm, out_c, 1, stride, &block->shortcut));
    }
    ddp_model_add_info(site->model, name,
                       is_bottleneck         ? "bottleneck"
                       : block->has_shortcut ? "2 conv2d 3x3, 1x1 shortcut"
                                             : "2 conv2d 3x3",
                       3, site->shape, ddp_params_elements(site->params) - before);
out:
    return status;
}

static ddp_status_t add_stem(site_t *site, const plan_t *plan, conv_t *stem)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(add_numbered(site, site->shape, "", 1, plan->is_small ? 16 : 64, plan->is_small ? 3 : 7,
                         plan->is_small ? 1 : 2, stem));
    ddp_model_add_info(site->model, "conv1",
                       plan->is_small ? "conv2d 3x3 pad 1 norm relu" : "conv2d 7x7 stride 2 norm relu", 3,
                       site->shape, ddp_params_elements(site->params));
    if (!plan->is_small) {
        site->shape[0] = halved(site->shape[0]);
        site->shape[1] = halved(site->shape[1]);
        ddp_model_add_plain(site->model, "maxpool", "max_pool2d 3 stride 2 pad 1", 3, site->shape);
    }
out:
    return status;
}

static ddp_status_t find_plan(size_t depth, const plan_t **plan_p)
{
    for (size_t i = 0; i < sizeof(plans) / sizeof(plans[0]); i++) {
        if (plans[i].depth == depth) {
            *plan_p = &plans[i];
            return DDP_OK;
        }
    }
    return ddp_fail(
        DDP_ERR_CONFIG,
        "model: no resnet of depth %zu; there are 20, 32, 44, 56, 110 for small pictures and 18, 34, "
        "50, 101 for large ones",
        depth);
}

static ddp_status_t build(ddp_model_t *model, ddp_params_t *params)
{
    const ddp_model_config_t *config   = &model->config;
    site_t                    site     = {model, params, {config->height, config->width, config->channels}};
    ddp_status_t              status   = DDP_OK;
    const plan_t             *plan     = NULL;
    ddp_resnet_t             *net      = NULL;
    size_t                    n_blocks = 0;
    block_t                  *block    = NULL;
    char                      name[16];

    DDP_TRY(find_plan(config->depth, &plan));
    for (size_t s = 0; s < MAX_STAGES; s++) {
        n_blocks += plan->blocks[s];
    }
    net = model->resnet = calloc(1, sizeof(*net) + n_blocks * sizeof(*net->blocks));
    DDP_REQUIRE(net != NULL, DDP_ERR_NO_MEMORY, "no memory for a model of %zu blocks", n_blocks);
    net->is_small = plan->is_small;
    net->n_blocks = n_blocks;
    block         = net->blocks;
    DDP_TRY(add_stem(&site, plan, &net->stem));
    for (size_t s = 0; s < MAX_STAGES; s++) {
        for (size_t i = 0; i < plan->blocks[s]; i++, block++) {
            snprintf(name, sizeof(name), "layer%zu.%zu", s + 1, i);
            DDP_TRY(add_block(&site, name, plan->is_bottleneck, (plan->is_small ? 16U : 64U) << s,
                              s > 0 && i == 0 ? 2 : 1, block));
        }
    }
    model->min_samples = site.shape[0] * site.shape[1] == 1 ? 2 : 1;
    ddp_model_add_plain(model, "avgpool", "global average", 1, &site.shape[2]);
    ddp_model_add_dropout(model, 1, site.shape[2]);
    DDP_TRY(ddp_model_add_linear(model, params, "fc", site.shape[2], config->classes, DDP_ACT_NONE,
                                 &model->linear[0]));
out:
    return status;
}

static ddp_status_t run_conv(ddp_tape_t *tape, const conv_t *conv, ddp_tensor_t *x, ddp_tensor_t *residual,
                             ddp_act_t act, ddp_tensor_t **y_p)
{
    ddp_status_t  status = DDP_OK;
    ddp_tensor_t *y      = NULL;

    DDP_TRY(ddp_nn_conv2d(tape, x, conv->weight, DDP_NO_PARAM, conv->stride, conv->pad, DDP_ACT_NONE, &y));
    DDP_TRY(ddp_nn_batch_norm(tape, y, &conv->norm, residual, act, y_p));
out:
    return status;
}

static ddp_status_t run_block(const void *ctx, ddp_tape_t *tape, ddp_tensor_t *x, ddp_tensor_t **y_p)
{
    const block_t *block    = ctx;
    ddp_status_t   status   = DDP_OK;
    ddp_tensor_t  *residual = x;
    ddp_tensor_t  *y        = x;

    for (size_t i = 0; i + 1 < block->n; i++) {
        DDP_TRY(run_conv(tape, &block->conv[i], y, NULL, DDP_ACT_RELU, &y));
    }
    if (block->has_shortcut) {
        DDP_TRY(run_conv(tape, &block->shortcut, x, NULL, DDP_ACT_NONE, &residual));
    }
    DDP_TRY(run_conv(tape, &block->conv[block->n - 1], y, residual, DDP_ACT_RELU, y_p));
out:
    return status;
}

static ddp_status_t forward(const ddp_model_t *model, ddp_tape_t *tape, ddp_tensor_t *x,
                            ddp_tensor_t **logits_p)
{
    const ddp_resnet_t    *net    = model->resnet;
    const ddp_model_pair_t fc     = model->linear[0];
    ddp_status_t           status = DDP_OK;

    DDP_TRY(run_conv(tape, &net->stem, x, NULL, DDP_ACT_RELU, &x));
    if (!net->is_small) {
        DDP_TRY(ddp_nn_max_pool2d(tape, x, 3, 2, 1, &x));
    }
    for (size_t i = 0; i < net->n_blocks; i++) {
        DDP_TRY(ddp_tape_block(tape, run_block, &net->blocks[i], x, &x));
    }
    DDP_TRY(ddp_nn_global_avg_pool(tape, x, &x));
    DDP_TRY(ddp_nn_dropout(tape, x, model->config.dropout, &x));
    DDP_TRY(ddp_nn_linear(tape, x, fc.weight, fc.bias, DDP_ACT_NONE, logits_p));
out:
    return status;
}

const ddp_model_ops_t ddp_model_resnet_ops = {.build = build, .forward = forward};
