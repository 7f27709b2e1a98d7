#include "nn/sample.h"

#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "kernels/ops.h"

#define SAMPLE_KEY UINT64_C(0x746f6b656e) /* apart from other uses of the same seed */

/* A token that may be drawn. */
typedef struct choice {
    double  weight; /* at first its logit */
    int32_t token;
} choice_t;

/* The largest first, of equals the first token: no two are equal, so the order is one. */
static int by_weight(const void *a, const void *b)
{
    const choice_t *x = a;
    const choice_t *y = b;

    if (x->weight != y->weight) {
        return x->weight > y->weight ? -1 : 1;
    }
    return x->token < y->token ? -1 : 1;
}

static ddp_status_t check(const float *logits, size_t vocab, const ddp_sample_params_t *params)
{
    ddp_status_t status = DDP_OK;

    DDP_REQUIRE(params->struct_size == sizeof(*params), DDP_ERR_INVALID_ARG,
                "sample parameters not made with DDP_SAMPLE_PARAMS_INIT");
    DDP_REQUIRE(vocab > 0 && vocab <= INT32_MAX, DDP_ERR_INVALID_ARG, "sample: a vocabulary of %zu", vocab);
    DDP_REQUIRE(params->temperature >= 0.0 && isfinite(params->temperature), DDP_ERR_INVALID_ARG,
                "sample: the temperature is %g; 0 or more", params->temperature);
    DDP_REQUIRE(params->top_p > 0.0 && params->top_p <= 1.0, DDP_ERR_INVALID_ARG,
                "sample: top_p is %g; 0 < value <= 1", params->top_p);
    for (size_t i = 0; i < vocab; i++) {
        DDP_REQUIRE(isfinite(logits[i]), DDP_ERR_NOT_FINITE, "sample: the logit of token %zu is %g", i,
                    (double)logits[i]);
    }
out:
    return status;
}

static size_t largest(const float *logits, size_t vocab)
{
    size_t best = 0;

    for (size_t i = 1; i < vocab; i++) {
        best = logits[i] > logits[best] ? i : best;
    }
    return best;
}

/* Uniform in [0, 1), 53 bits. */
static double draw(uint64_t seed, uint64_t position)
{
    const uint32_t counter[4] = {(uint32_t)position, (uint32_t)(position >> 32), 0, 0};
    uint32_t       random[4];

    ddp_philox(seed ^ SAMPLE_KEY, counter, random);
    return (double)(((uint64_t)random[0] << 32 | random[1]) >> 11) * 0x1p-53;
}

/* Put choices[i] where it belongs in a heap of n with the one to be drawn last on top. */
static void sink(choice_t *choices, size_t n, size_t i)
{
    const choice_t one = choices[i];

    for (size_t child = 2 * i + 1; child < n; child = 2 * i + 1) {
        child += child + 1 < n && by_weight(&choices[child + 1], &choices[child]) > 0 ? 1 : 0;
        if (by_weight(&choices[child], &one) <= 0) {
            break;
        }
        choices[i] = choices[child];
        i          = child;
    }
    choices[i] = one;
}

/* The first k become the k largest, sorted. */
static void sort_largest(choice_t *choices, size_t n, size_t k)
{
    for (size_t i = k / 2; i-- > 0;) {
        sink(choices, k, i);
    }
    for (size_t i = k; i < n; i++) {
        if (by_weight(&choices[i], &choices[0]) < 0) {
            choices[0] = choices[i];
            sink(choices, k, 0);
        }
    }
    qsort(choices, k, sizeof(*choices), by_weight);
}

/* Logits become weights, those of choices that may not be drawn are cut off. @return how many are left */
static size_t weigh(choice_t *choices, size_t n, double top, const ddp_sample_params_t *params)
{
    double total = 0.0;
    double sum   = 0.0;

    if (params->top_k > 0 || params->top_p < 1.0) {
        const size_t k = params->top_k > 0 && params->top_k < n ? params->top_k : n;

        sort_largest(choices, n, k);
        n = k;
    }
    for (size_t i = 0; i < n; i++) {
        choices[i].weight = exp((choices[i].weight - top) / params->temperature);
        total += choices[i].weight;
    }
    for (size_t i = 0; i < n && params->top_p < 1.0; i++) {
        sum += choices[i].weight;
        if (sum >= params->top_p * total) {
            return i + 1;
        }
    }
    return n;
}

ddp_status_t ddp_sample(const float *logits, size_t vocab, const ddp_sample_params_t *params,
                        uint64_t position, int32_t *token_p)
{
    ddp_status_t status  = DDP_OK;
    choice_t    *choices = NULL;
    size_t       best;
    double       total = 0.0;
    double       rest;
    size_t       n;

    DDP_TRY(check(logits, vocab, params));
    best = largest(logits, vocab);
    if (params->temperature == 0.0) {
        *token_p = (int32_t)best;
        goto out;
    }
    choices = malloc(vocab * sizeof(*choices));
    DDP_REQUIRE(choices != NULL, DDP_ERR_NO_MEMORY, "no memory to draw from %zu tokens", vocab);
    for (size_t i = 0; i < vocab; i++) {
        choices[i] = (choice_t){.weight = (double)logits[i], .token = (int32_t)i};
    }
    n = weigh(choices, vocab, (double)logits[best], params);
    for (size_t i = 0; i < n; i++) {
        total += choices[i].weight;
    }
    rest     = draw(params->seed, position) * total;
    *token_p = (int32_t)best; /* where rounding leaves something over */
    for (size_t i = 0; i < n; i++) {
        rest -= choices[i].weight;
        if (rest < 0.0) {
            *token_p = choices[i].token;
            break;
        }
    }
out:
    free(choices);
    return status;
}
