/**
 * @file Operations of sequence models: embedding, layer normalisation, causal attention, and the loss of a
 * head that never holds all its logits. What kernels/ops.h says of every operation holds here too.
 *
 * A sequence is a run of `length` rows; `sequences` of them lie one after the other.
 */
#ifndef DDP_OPS_SEQ_H_
#define DDP_OPS_SEQ_H_

#include "kernels/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/** y[s, t] = table[tokens[s, t]] + positions[t]. */
typedef struct ddp_embedding_args {
    const int32_t *tokens; /* [sequences, length], in [0, vocab): anything else fails the stream
                              (DDP_ERR_INVALID_ARG) */
    size_t       sequences, length, vocab, width;
    const float *table;     /* [vocab, width] */
    const float *positions; /* [length or more, width], or NULL: nothing is added */
    float       *y;         /* [sequences, length, width] */
} ddp_embedding_args_t;
DDP_API ddp_status_t ddp_op_embedding(ddp_stream_t *stream, const ddp_embedding_args_t *args) DDP_NODISCARD;

/**
 * The gradients of both tables. A row of dtable gets its contributions one after the other in the order of
 * the tokens; a row of dpositions in the order of the sequences. Rows that nothing refers to become 0, or
 * stay as they are where the gradient accumulates.
 */
typedef struct ddp_embedding_backward_args {
    const int32_t *tokens; /* as in forward */
    size_t         sequences, length, vocab, width;
    size_t         n_positions; /* rows of dpositions, >= length */
    const float   *dy;          /* [sequences, length, width] */
    float         *dtable;      /* [vocab, width] or NULL */
    float         *dpositions;  /* [n_positions, width] or NULL */
    bool           accumulate_table, accumulate_positions;
} ddp_embedding_backward_args_t;
DDP_API ddp_status_t ddp_op_embedding_backward(ddp_stream_t                        *stream,
                                               const ddp_embedding_backward_args_t *args) DDP_NODISCARD;

/** y = (x - mean) * rstd * gamma + beta for each row, rstd = 1 / sqrt(variance + eps), variance over `width`;
 * Ba, Kiros and Hinton 2016, arXiv 1607.06450. */
typedef struct ddp_layer_norm_args {
    const float *x; /* [rows, width] */
    size_t       rows, width;
    const float *gamma, *beta; /* [width] */
    float        eps;          /* >= 0 */
    float       *y;            /* [rows, width]; may be x */
    float       *mean, *rstd;  /* [rows], for backward; or both NULL */
} ddp_layer_norm_args_t;
DDP_API ddp_status_t ddp_op_layer_norm(ddp_stream_t *stream, const ddp_layer_norm_args_t *args) DDP_NODISCARD;

/** Any of dx, dgamma and dbeta may be NULL. dx is not dy. */
typedef struct ddp_layer_norm_backward_args {
    const float *x, *dy; /* [rows, width] */
    size_t       rows, width;
    const float *gamma;          /* [width] */
    const float *mean, *rstd;    /* [rows], as forward left them */
    float       *dx;             /* [rows, width] */
    float       *dgamma, *dbeta; /* [width] */
    bool         accumulate_dx, accumulate_dgamma, accumulate_dbeta;
} ddp_layer_norm_backward_args_t;
DDP_API ddp_status_t ddp_op_layer_norm_backward(ddp_stream_t                         *stream,
                                                const ddp_layer_norm_backward_args_t *args) DDP_NODISCARD;

/**
 * Causal self-attention of several heads: y_i = sum over j <= i of softmax_j(q_i k_j / sqrt(d)) v_j, with
 * d = channels / heads. q, k and v of head h are columns h d .. of the first, second and third `channels`
 * columns of a row of qkv. Scores exist in tiles of 64 rows only, and those above the diagonal are not
 * computed; Dao et al. 2022, arXiv 2205.14135.
 *
 * Dropout of the weights (inverted): the weight of (i, j) is kept, and divided by 1 - p, where the random
 * number of (seed, step, layer, row, head, i, j) is >= p; row is the sequence's position in the global batch.
 * Nothing of it is stored: backward draws the same numbers again.
 */
typedef struct ddp_attention_args {
    const float *qkv;                                /* [sequences, length, 3 channels] */
    size_t       sequences, length, heads, channels; /* channels: a multiple of heads */
    float       *y;                                  /* [sequences, length, channels] */
    float *log_sum; /* [sequences, heads, length]: log of the sum of exp(scores), for backward; or NULL */

    ddp_precision_t precision;
    float           dropout;   /* p, 0 <= p < 1; 0: the rest is not read */
    uint64_t        first_row; /* of the first sequence */
    ddp_rng_key_t   key;
} ddp_attention_args_t;
DDP_API ddp_status_t ddp_op_attention(ddp_stream_t *stream, const ddp_attention_args_t *args) DDP_NODISCARD;

/**
 * The attention of ddp_op_attention() for rows that come behind `past` others whose keys and values are kept:
 * row i of the new ones sees the past and the new ones up to itself. The new keys and values are kept too.
 * One sequence token by token is cheap this way; for many new rows without a past ddp_op_attention() is
 * faster, after which ddp_op_attention_keep() keeps what it used. Results agree to rounding.
 */
typedef struct ddp_attention_cached_args {
    const float *qkv;                                /* [sequences, length, 3 channels], of the new rows */
    size_t       sequences, length, heads, channels; /* channels: a multiple of heads */
    size_t       past, capacity;                     /* past + length <= capacity */
    float *keys, *values; /* [sequences, capacity, channels]: rows past .. past + length - 1 are written,
                             those before them read */
    float *y;             /* [sequences, length, channels] */
} ddp_attention_cached_args_t;
DDP_API ddp_status_t ddp_op_attention_cached(ddp_stream_t                      *stream,
                                             const ddp_attention_cached_args_t *args) DDP_NODISCARD;
/** Only keep the new keys and values; y and heads are not used. */
DDP_API ddp_status_t ddp_op_attention_keep(ddp_stream_t                      *stream,
                                           const ddp_attention_cached_args_t *args) DDP_NODISCARD;

/** The gradient dqkv of all three; scores are computed again. */
typedef struct ddp_attention_backward_args {
    ddp_attention_args_t forward; /* as in forward; log_sum is required */
    const float         *dy;      /* [sequences, length, channels] */
    float               *dqkv;    /* [sequences, length, 3 channels] */
    bool                 accumulate;
} ddp_attention_backward_args_t;
DDP_API ddp_status_t ddp_op_attention_backward(ddp_stream_t                        *stream,
                                               const ddp_attention_backward_args_t *args) DDP_NODISCARD;

/** A head: logits[rows, vocab] = x w^T, and where its gradients go. */
typedef struct ddp_head_args {
    const float *x; /* [rows, width] */
    const float *w; /* [vocab, width] */
    size_t       rows, width, vocab;
    float       *dx; /* [rows, width] or NULL. The gradient of the SUM, as dw */
    float       *dw; /* [vocab, width] or NULL */
    bool         accumulate_dx, accumulate_dw;

    ddp_precision_t precision;
} ddp_head_args_t;

/**
 * Softmax cross-entropy of a head's logits, as ddp_op_cross_entropy(), and its gradients in the same pass.
 * Logits exist for a part of at most 256 rows at a time (1024 on a CUDA device).
 */
typedef struct ddp_head_cross_entropy_args {
    ddp_head_args_t head;
    const int32_t  *labels;    /* [rows], in [0, vocab) or ignore_index: anything else fails the stream
                                  (DDP_ERR_INVALID_ARG) */
    const float      *weights; /* [rows] or NULL: all 1 */
    int32_t           ignore_index;
    float             grad_scale; /* dx and dw come multiplied by it; 0: they do not */
    ddp_loss_stats_t *stats;      /* replaced */
} ddp_head_cross_entropy_args_t;
DDP_API ddp_status_t ddp_op_head_cross_entropy(ddp_stream_t                        *stream,
                                               const ddp_head_cross_entropy_args_t *args) DDP_NODISCARD;

/**
 * The same in three: all logits, ddp_op_cross_entropy() of them wherever that is done, and back. Sums,
 * dx and dw have the bits of ddp_op_head_cross_entropy(); on CUDA if vocab is a multiple of 8.
 */
typedef struct ddp_head_logits_args {
    ddp_head_args_t head;   /* gradients are not read */
    float          *logits; /* [rows, vocab] */
} ddp_head_logits_args_t;
DDP_API ddp_status_t ddp_op_head_logits(ddp_stream_t                 *stream,
                                        const ddp_head_logits_args_t *args) DDP_NODISCARD;
typedef struct ddp_head_backward_args {
    ddp_head_args_t head;
    const float    *dlogits; /* [rows, vocab] */
} ddp_head_backward_args_t;
DDP_API ddp_status_t ddp_op_head_backward(ddp_stream_t                   *stream,
                                          const ddp_head_backward_args_t *args) DDP_NODISCARD;

/**
 * What kernels take for themselves at most, and keep. On a cpu: products, and a head of `vocab` words; 0:
 * none. On cuda ddp_device_dry_scratch() of a dry device, in all.
 */
DDP_API size_t ddp_kernel_scratch_bytes(const ddp_device_t *device, size_t vocab);

/** y[i] normal with mean 0 and standard deviation `std`, a pure function of (key, i); Box and Muller 1958. */
typedef struct ddp_normal_args {
    float        *y;
    size_t        count;
    float         std;
    ddp_rng_key_t key;
} ddp_normal_args_t;
DDP_API ddp_status_t ddp_op_normal(ddp_stream_t *stream, const ddp_normal_args_t *args) DDP_NODISCARD;

#ifdef __cplusplus
}
#endif

#endif
