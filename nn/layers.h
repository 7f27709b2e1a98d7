/**
 * @file Layers: each runs its operations on the tape's stream and records what backward needs.
 *
 * Inputs and outputs are tensors of the tape; parameters are indices of its ddp_params_t. Errors:
 * DDP_ERR_INVALID_ARG with both shapes in the line. A parameter may be used several times; its gradient is
 * the sum in a fixed order.
 */
#ifndef DDP_LAYERS_H_
#define DDP_LAYERS_H_

#include "nn/tape.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DDP_NO_PARAM ((size_t)-1)

/** y[rows, out] = act(x[rows, in] W^T + b); W [out, in], b [out] or DDP_NO_PARAM. All dimensions of x but the
 * last are rows. */
DDP_API ddp_status_t ddp_nn_linear(ddp_tape_t *tape, ddp_tensor_t *x, size_t weight, size_t bias,
                                   ddp_act_t act, ddp_tensor_t **y_p) DDP_NODISCARD;
/** The same for a weight stored [in, out], as GPT-2's are (Conv1D of Hugging Face). */
DDP_API ddp_status_t ddp_nn_linear_in_out(ddp_tape_t *tape, ddp_tensor_t *x, size_t weight, size_t bias,
                                          ddp_act_t act, ddp_tensor_t **y_p) DDP_NODISCARD;
/** y = residual + x W + b of the same: one pass less than ddp_nn_add() of both, with the same bits. */
DDP_API ddp_status_t ddp_nn_linear_add(ddp_tape_t *tape, ddp_tensor_t *x, size_t weight, size_t bias,
                                       ddp_tensor_t *residual, ddp_tensor_t **y_p) DDP_NODISCARD;
/** Images NHWC; W [out_c, in_c, k_h, k_w]; act NONE or RELU. ddp_tape_set_conv() says how it is computed. */
DDP_API ddp_status_t ddp_nn_conv2d(ddp_tape_t *tape, ddp_tensor_t *x, size_t weight, size_t bias,
                                   size_t stride, size_t pad, ddp_act_t act,
                                   ddp_tensor_t **y_p) DDP_NODISCARD;
DDP_API ddp_status_t ddp_nn_act(ddp_tape_t *tape, ddp_tensor_t *x, ddp_act_t act,
                                ddp_tensor_t **y_p) DDP_NODISCARD;
DDP_API ddp_status_t ddp_nn_max_pool2d(ddp_tape_t *tape, ddp_tensor_t *x, size_t kernel, size_t stride,
                                       size_t pad, ddp_tensor_t **y_p) DDP_NODISCARD;
DDP_API ddp_status_t ddp_nn_avg_pool2d(ddp_tape_t *tape, ddp_tensor_t *x, size_t kernel, size_t stride,
                                       size_t pad, ddp_tensor_t **y_p) DDP_NODISCARD;
/** [n, h, w, c] -> [n, c]: the mean of each channel over the pixels. */
DDP_API ddp_status_t ddp_nn_global_avg_pool(ddp_tape_t *tape, ddp_tensor_t *x,
                                            ddp_tensor_t **y_p) DDP_NODISCARD;

/** Parameters of a batch normalisation, [channels] each: gamma and beta, and two running averages
 * (ddp_params_add_average()). */
typedef struct ddp_batch_norm {
    size_t gamma, beta, running_mean, running_var;
    float  eps;
} ddp_batch_norm_t;
/**
 * y = act(batch_norm(x) + residual), over the last dimension; act NONE or RELU. Training normalises with the
 * micro-batch's own mean and variance, and gives both, the variance unbiased, to the running averages;
 * evaluation normalises with these.
 * @param [in] norm      copied
 * @param [in] residual  shape of x, not x itself, or NULL
 * @return besides: DDP_ERR_INVALID_ARG in training: a single value in each channel. DDP_ERR_STATE: the
 * running averages got statistics in this micro-batch already
 */
DDP_API ddp_status_t ddp_nn_batch_norm(ddp_tape_t *tape, ddp_tensor_t *x, const ddp_batch_norm_t *norm,
                                       ddp_tensor_t *residual, ddp_act_t act,
                                       ddp_tensor_t **y_p) DDP_NODISCARD;
/** [n, h, w, c] -> [n, c * h * w], in PyTorch's order. No copy where c, or h * w, is 1. */
DDP_API ddp_status_t ddp_nn_flatten(ddp_tape_t *tape, ddp_tensor_t *x, ddp_tensor_t **y_p) DDP_NODISCARD;
/** Inverted dropout, random numbers per row of dimension 0; identity when not training or p = 0. Each call in
 * a forward has its own layer number. */
DDP_API ddp_status_t ddp_nn_dropout(ddp_tape_t *tape, ddp_tensor_t *x, float p,
                                    ddp_tensor_t **y_p) DDP_NODISCARD;
/** y = a + b, same shapes (a residual). */
DDP_API ddp_status_t ddp_nn_add(ddp_tape_t *tape, ddp_tensor_t *a, ddp_tensor_t *b,
                                ddp_tensor_t **y_p) DDP_NODISCARD;

/**
 * y[sequences, length, width] = table[tokens] + positions: table [vocab, width], positions [length or more,
 * width] or DDP_NO_PARAM.
 * @param [in] tokens  device, [sequences, length]; borrowed until backward is done. One outside of the
 *                     vocabulary fails the stream (DDP_ERR_INVALID_ARG)
 */
DDP_API ddp_status_t ddp_nn_embedding(ddp_tape_t *tape, const int32_t *tokens, size_t sequences,
                                      size_t length, size_t table, size_t positions,
                                      ddp_tensor_t **y_p) DDP_NODISCARD;
/** Over the last dimension; gamma and beta [width]. */
DDP_API ddp_status_t ddp_nn_layer_norm(ddp_tape_t *tape, ddp_tensor_t *x, size_t gamma, size_t beta,
                                       float eps, ddp_tensor_t **y_p) DDP_NODISCARD;
/** Causal self-attention: y[sequences, length, channels] of qkv[sequences, length, 3 channels]; q, k, v side
 * by side, in each of them head after head. In training `dropout` of the attention weights, 0 <= dropout < 1,
 * with a layer number as ddp_nn_dropout() has. */
DDP_API ddp_status_t ddp_nn_attention(ddp_tape_t *tape, ddp_tensor_t *qkv, size_t heads, float dropout,
                                      ddp_tensor_t **y_p) DDP_NODISCARD;

/** Losses end a forward. `stats` is device memory of the tape, filled in stream order, valid until the next
 * begin. */
DDP_API ddp_status_t ddp_nn_cross_entropy(ddp_tape_t *tape, ddp_tensor_t *logits, const int32_t *labels,
                                          const float *weights, int32_t ignore_index,
                                          ddp_loss_stats_t **stats_p) DDP_NODISCARD;
DDP_API ddp_status_t ddp_nn_mse(ddp_tape_t *tape, ddp_tensor_t *y, const float *target, const float *weights,
                                ddp_loss_stats_t **stats_p) DDP_NODISCARD;
/**
 * ddp_nn_linear() without bias and ddp_nn_cross_entropy() in one, without ever holding all logits. In
 * training the gradients of both are taken in forward, so the parameters' gradients must be bound by then.
 */
DDP_API ddp_status_t ddp_nn_head_cross_entropy(ddp_tape_t *tape, ddp_tensor_t *x, size_t weight,
                                               const int32_t *labels, const float *weights,
                                               int32_t            ignore_index,
                                               ddp_loss_stats_t **stats_p) DDP_NODISCARD;
/**
 * The logits of that head, [.., vocab] of x [.., width], for a loss taken elsewhere: with
 * ddp_nn_cross_entropy(), on this tape or another, sums and all gradients have the bits of
 * ddp_nn_head_cross_entropy().
 */
DDP_API ddp_status_t ddp_nn_head_logits(ddp_tape_t *tape, ddp_tensor_t *x, size_t weight,
                                        ddp_tensor_t **logits_p) DDP_NODISCARD;

#ifdef __cplusplus
}
#endif

#endif
