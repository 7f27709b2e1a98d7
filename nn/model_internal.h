/** @file Inside of a model: what mlp and cnn share, and the table each of them fills. */
#ifndef DDP_MODEL_INTERNAL_H_
#define DDP_MODEL_INTERNAL_H_

#include "nn/model.h"

/** Parameters of a linear or convolution layer. */
typedef struct ddp_model_pair {
    size_t weight, bias;
} ddp_model_pair_t;

typedef struct ddp_resnet ddp_resnet_t; /* model_resnet.c */

#define DDP_CNN_CONVS       2
#define DDP_CNN_LINEARS     2
#define DDP_GPT2_MAX_LAYERS 96
#define DDP_GPT2_NORM_EPS   1e-5F
/** gpt2: embedding, blocks, the last norm, head; the others have fewer. */
#define DDP_MODEL_MAX_LAYERS (DDP_GPT2_MAX_LAYERS + 3)

/** Parameters of one block of gpt2; `weight` is a norm's gamma. */
typedef struct ddp_gpt2_block {
    const ddp_model_t *model; /* borrowed */
    ddp_model_pair_t   ln_1, attn, attn_proj, ln_2, fc, fc_proj;
} ddp_gpt2_block_t;

typedef struct ddp_model_ops {
    ddp_status_t (*build)(ddp_model_t *model, ddp_params_t *params);
    ddp_status_t (*forward)(const ddp_model_t *model, ddp_tape_t *tape, ddp_tensor_t *x,
                            ddp_tensor_t **logits_p); /* images only */
} ddp_model_ops_t;

struct ddp_model {
    ddp_model_config_t     config;
    const ddp_model_ops_t *ops;
    ddp_model_pair_t       conv[DDP_CNN_CONVS];
    ddp_model_pair_t       linear[DDP_MLP_MAX_HIDDEN + 1];
    size_t                 wte, wpe; /* gpt2 */
    ddp_model_pair_t       ln_f;     /* gpt2 */
    ddp_gpt2_block_t      *blocks;   /* owned; gpt2 */
    ddp_resnet_t          *resnet;   /* owned; resnet */
    ddp_layer_info_t       layers[DDP_MODEL_MAX_LAYERS];
    size_t                 n_layers;
    size_t                 min_samples;
    double                 flops;
};

extern const ddp_model_ops_t ddp_model_mlp_ops;
extern const ddp_model_ops_t ddp_model_cnn_ops;
extern const ddp_model_ops_t ddp_model_gpt2_ops;
extern const ddp_model_ops_t ddp_model_resnet_ops;

/** Register "<name>.weight" [out, in] and "<name>.bias" [out], and add the layer to the table. */
ddp_status_t ddp_model_add_linear(ddp_model_t *model, ddp_params_t *params, const char *name, size_t in,
                                  size_t out, ddp_act_t act, ddp_model_pair_t *pair_p) DDP_NODISCARD;
/** As ddp_model_add_linear(): 3x3, stride 1, pad 1, ReLU, for images of height x width. */
ddp_status_t ddp_model_add_conv3x3(ddp_model_t *model, ddp_params_t *params, const char *name, size_t height,
                                   size_t width, size_t in, size_t out,
                                   ddp_model_pair_t *pair_p) DDP_NODISCARD;
/**
 * Count a layer of `multiply_adds` per sample, before it is registered: forward, weight gradient and input
 * gradient cost the same, and the first layer with weights needs no input gradient.
 */
void ddp_model_count_flops(ddp_model_t *model, const ddp_params_t *params, double multiply_adds);
/** Add a layer without parameters to the table. */
void ddp_model_add_plain(ddp_model_t *model, const char *name, const char *kind, size_t ndim,
                         const size_t *shape);
/** As ddp_model_add_plain(), for a layer with parameters of its own. */
void ddp_model_add_info(ddp_model_t *model, const char *name, const char *kind, size_t ndim,
                        const size_t *shape, size_t parameters);
/** A dropout of a layer of `width` values, if the configuration has one: "dropout<number>". */
void ddp_model_add_dropout(ddp_model_t *model, size_t number, size_t width);

#endif
