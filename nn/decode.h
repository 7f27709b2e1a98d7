/**
 * @file GPT-2 token by token: keys and values of the tokens so far are kept, so that one more token costs one
 * row of each product. Logits agree with ddp_model_logits() to rounding. Not collective.
 */
#ifndef DDP_DECODE_H_
#define DDP_DECODE_H_

#include <stddef.h>
#include <stdint.h>

#include "base/export.h"
#include "base/status.h"
#include "kernels/device.h"
#include "nn/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ddp_decoder ddp_decoder_t;

/**
 * Memory for one sequence: 2 layers channels context floats of keys and values, and about 12 channels context
 * for the prompt.
 * @param [in] model, params, stream  borrowed; a gpt2 with bound values, which may change between calls if
 *                                    ddp_decoder_reset() follows. Thread: owner of the device
 * @return DDP_ERR_INVALID_ARG: another model. DDP_ERR_NO_MEMORY
 */
DDP_API ddp_status_t ddp_decoder_create(const ddp_model_t *model, const ddp_params_t *params,
                                        ddp_stream_t *stream, ddp_decoder_t **decoder_p) DDP_NODISCARD;
/** Accepts NULL. */
DDP_API void ddp_decoder_destroy(ddp_decoder_t **decoder_p);

/** Forget all tokens. */
DDP_API void ddp_decoder_reset(ddp_decoder_t *decoder);

/** Tokens that the next one sees. */
DDP_API size_t ddp_decoder_length(const ddp_decoder_t *decoder);

/**
 * Append tokens, a prompt or one, and compute the logits of what follows. Blocking.
 *
 * Beyond the model's context the window moves: of what was before, only so many of the last tokens stay that
 * the new ones and they are half of a context (the new ones alone where they are more), and these are
 * computed anew at the first positions. So a token costs a prompt of half a context every half a context.
 * @param [in]  tokens  host, [n], 1 <= n <= context
 * @param [out] logits  host, [vocab], of the token behind the last; or NULL
 * @return DDP_ERR_INVALID_ARG: n, or a token that is not below the vocabulary; the tokens before are still
 * there. Another error of the stream: the decoder can only be destroyed
 */
DDP_API ddp_status_t ddp_decoder_feed(ddp_decoder_t *decoder, const int32_t *tokens, size_t n,
                                      float *logits) DDP_NODISCARD;

#ifdef __cplusplus
}
#endif

#endif
