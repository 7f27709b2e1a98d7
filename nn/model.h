/** @file Models from configuration: `mlp` and `cnn` for images of any size and number of classes. */
#ifndef DDP_MODEL_H_
#define DDP_MODEL_H_

#include "nn/layers.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DDP_MLP_MAX_HIDDEN 16

typedef enum ddp_model_kind { DDP_MODEL_MLP = 0, DDP_MODEL_CNN = 1 } ddp_model_kind_t;

typedef struct ddp_model_config {
    ddp_model_kind_t kind;
    size_t           height, width, channels, classes; /* of the data */
    size_t           n_hidden;                         /* mlp: hidden layers; 0: one linear layer */
    size_t           hidden[DDP_MLP_MAX_HIDDEN];
    float            dropout; /* mlp: after each hidden layer; cnn: before the last layer */

    ddp_conv_algo_t conv; /* of all convolutions; AUTO is the usual */
} ddp_model_config_t;

typedef struct ddp_model ddp_model_t;

/**
 * Register the model's parameters and finish the list.
 * mlp: flatten, then fc1 .. fcN with ReLU, last without. cnn: conv1 (3x3, 32, pad 1) ReLU pool 2, conv2 (3x3,
 * 64, pad 1) ReLU pool 2, flatten, fc1 (128) ReLU, fc2. Names: "fc1.weight", "fc1.bias", "conv1.weight" ...
 * @param [in] params  empty; borrowed, outlives the model
 */
DDP_API ddp_status_t ddp_model_create(const ddp_model_config_t *config, ddp_params_t *params,
                                      ddp_model_t **model_p) DDP_NODISCARD;
DDP_API void         ddp_model_destroy(ddp_model_t **model_p);

/** logits[n, classes] of images x[n, height, width, channels]. */
DDP_API ddp_status_t ddp_model_forward(ddp_model_t *model, ddp_tape_t *tape, ddp_tensor_t *x,
                                       ddp_tensor_t **logits_p) DDP_NODISCARD;

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
