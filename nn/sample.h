/** @file Drawing a token from logits. */
#ifndef DDP_SAMPLE_H_
#define DDP_SAMPLE_H_

#include <stddef.h>
#include <stdint.h>

#include "base/export.h"
#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ddp_sample_params {
    size_t struct_size;
    double temperature; /* >= 0: logits are divided by it; 0: always the largest, the first of equals */
    size_t top_k;       /* only so many of the largest, of equals the first; 0: all */
    double top_p;       /* of these the fewest, largest first, whose probabilities add up to this or more,
                           0 < top_p <= 1; Holtzman et al. 2020, arXiv:1904.09751 */
    uint64_t seed;
} ddp_sample_params_t;
#define DDP_SAMPLE_PARAMS_INIT                                                                               \
    {                                                                                                        \
        .struct_size = sizeof(ddp_sample_params_t), .temperature = 1.0, .top_p = 1.0                         \
    }

/**
 * Draw a token with the probabilities softmax(logits / temperature), as far as top_k and top_p leave some: a
 * pure function of its arguments. Thread: any.
 * @param [in] logits    host, [vocab]; vocab > 0
 * @param [in] position  of the token to be drawn, as a number: each has a random number of its own
 * @return DDP_ERR_INVALID_ARG: a parameter out of range. DDP_ERR_NOT_FINITE: a logit that is a NaN or
 * infinite, with its token. DDP_ERR_NO_MEMORY
 */
DDP_API ddp_status_t ddp_sample(const float *logits, size_t vocab, const ddp_sample_params_t *params,
                                uint64_t position, int32_t *token_p) DDP_NODISCARD;

#ifdef __cplusplus
}
#endif

#endif
