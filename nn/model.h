/** @file Models from configuration: `mlp`, `cnn` and `resnet` for images of any size and number of classes,
 * `gpt2` for tokens. */
#ifndef DDP_MODEL_H_
#define DDP_MODEL_H_

#include "nn/layers.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DDP_MLP_MAX_HIDDEN 16

typedef enum ddp_model_kind {
    DDP_MODEL_MLP    = 0,
    DDP_MODEL_CNN    = 1,
    DDP_MODEL_GPT2   = 2,
    DDP_MODEL_RESNET = 3
} ddp_model_kind_t;

typedef struct ddp_model_config {
    ddp_model_kind_t kind;
    size_t height, width, channels, classes; /* of the data; gpt2: channels of a token, the rest 0 */
    size_t n_hidden;                         /* mlp: hidden layers; 0: one linear layer */
    size_t hidden[DDP_MLP_MAX_HIDDEN];
    float  dropout; /* mlp: after each hidden layer; cnn: before the last layer; gpt2: after the embedding and
                       each projection, and of the attention weights */
    size_t depth;   /* resnet: 20, 32, 44, 56 or 110; 18, 34, 50 or 101 */
    size_t layers, heads, context, vocab; /* gpt2; channels is a multiple of heads */

    ddp_conv_algo_t conv; /* of all convolutions; AUTO is the usual */
} ddp_model_config_t;

/**
 * Fill layers, heads, channels, context and vocab of a gpt2 by the name of a preset: gpt2-124m, gpt2-355m,
 * gpt2-774m, gpt2-1558m (Radford et al. 2019), gpt2-small (4 layers, 4 heads, 256 channels, context 256,
 * vocab 256) and gpt2-tiny (2, 2, 64, 32, 256). The rest stays.
 * @return DDP_ERR_CONFIG: no such preset
 */
DDP_API ddp_status_t ddp_model_gpt2_preset(const char *name, ddp_model_config_t *config) DDP_NODISCARD;

/** Forward only reads it: tapes of several threads may share one, each with a clone of its parameters. */
typedef struct ddp_model ddp_model_t;

/**
 * Register the model's parameters and finish the list.
 * mlp: flatten, then fc1 .. fcN with ReLU, last without. cnn: conv1 (3x3, 32, pad 1) ReLU pool 2, conv2 (3x3,
 * 64, pad 1) ReLU pool 2, flatten, fc1 (128) ReLU, fc2. Names: "fc1.weight", "fc1.bias", "conv1.weight" ...
 * gpt2: pre-LN blocks with tanh-GELU, learned positions, head tied to the embedding; names and shapes are
 * those of Hugging Face's state dict, "transformer.h.0.attn.c_attn.weight" [channels, 3 channels].
 * resnet: of depth 18, 34, 50 or 101 (He et al. 2016, table 1) torchvision's names, shapes and initial
 * distributions, "layer1.0.conv1.weight", "layer1.0.bn1.running_mean" (num_batches_tracked is not kept); of
 * depth 20, 32, 44, 56 or 110 (their section 4.2, for pictures of 32x32) a 3x3 stem, no max pool, stages
 * layer1 .. layer3 of 16, 32 and 64 channels, with 1x1 shortcuts (their option B).
 * @param [in] params  empty; borrowed, outlives the model
 */
DDP_API ddp_status_t ddp_model_create(const ddp_model_config_t *config, ddp_params_t *params,
                                      ddp_model_t **model_p) DDP_NODISCARD;
DDP_API void         ddp_model_destroy(ddp_model_t **model_p);

/** logits[n, classes] of images x[n, height, width, channels]. */
DDP_API ddp_status_t ddp_model_forward(ddp_model_t *model, ddp_tape_t *tape, ddp_tensor_t *x,
                                       ddp_tensor_t **logits_p) DDP_NODISCARD;

/**
 * Of a gpt2: the summed loss of predicting targets[n, length] from tokens[n, length], ending the forward.
 * @param [in] tokens, targets  device, borrowed until backward is done; a target of -1 counts nothing
 * @return DDP_ERR_INVALID_ARG: another model, or length > context
 */
DDP_API ddp_status_t ddp_model_forward_tokens(ddp_model_t *model, ddp_tape_t *tape, const int32_t *tokens,
                                              const int32_t *targets, size_t n, size_t length,
                                              ddp_loss_stats_t **stats_p) DDP_NODISCARD;
/** Its two halves, to take the loss elsewhere than in one call: x[n, length, channels], which the head makes
 * logits of, and the head with the loss. The same bits. */
DDP_API ddp_status_t ddp_model_hidden(ddp_model_t *model, ddp_tape_t *tape, const int32_t *tokens, size_t n,
                                      size_t length, ddp_tensor_t **x_p) DDP_NODISCARD;
DDP_API ddp_status_t ddp_model_head_loss(ddp_model_t *model, ddp_tape_t *tape, ddp_tensor_t *x,
                                         const int32_t *targets, ddp_loss_stats_t **stats_p) DDP_NODISCARD;
/** Of a gpt2: logits[n, length, vocab], for sampling, or in training for a loss taken elsewhere:
 * ddp_nn_head_logits() says with what bits. */
DDP_API ddp_status_t ddp_model_logits(ddp_model_t *model, ddp_tape_t *tape, const int32_t *tokens, size_t n,
                                      size_t length, ddp_tensor_t **logits_p) DDP_NODISCARD;

/** Least number of samples of a micro-batch in training: 2 where batch normalisation comes down to images of
 * a single pixel, since one value has no variance; else 1. */
DDP_API size_t ddp_model_min_samples(const ddp_model_t *model);

/** One line of the model table: layer, output shape for batch 1, parameters. */
typedef struct ddp_layer_info {
    char   name[32];
    char   kind[32]; /* "conv2d 3x3 pad 1 relu" */
    size_t ndim;
    size_t shape[DDP_MAX_DIMS]; /* output, batch left out, NHWC */
    size_t parameters;
} ddp_layer_info_t;
/** @return number of layers; at most `capacity` are written. */
DDP_API size_t ddp_model_layers(const ddp_model_t *model, ddp_layer_info_t *layers, size_t capacity);
/** Floating point operations of forward plus backward for one sample (for throughput figures). */
DDP_API double ddp_model_flops(const ddp_model_t *model);

#ifdef __cplusplus
}
#endif

#endif
