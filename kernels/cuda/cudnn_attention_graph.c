/*
 * cuDNN recognises attention by the pattern of the graph: the order of operations, what is an inner tensor
 * and what is memory are as in NVIDIA's cudnn-frontend, and one operation that means the same but has another
 * name leaves it without an engine.
 */
#include <string.h>

#include "kernels/cuda/cudnn_graphs.h"

enum { KIND, TYPE, SEQUENCES, HEADS, LENGTH, WIDTH, IS_EXACT };

/* What both graphs are made of. */
typedef struct shapes {
    cudnnDataType_t     type;
    ddp_cudnn_extents_t packed;            /* q, k, v: rows in qkv */
    ddp_cudnn_extents_t packed_transposed; /* the same, the last two dimensions exchanged */
    ddp_cudnn_extents_t rows;              /* y, dy */
    ddp_cudnn_extents_t heads;             /* float32 scratch of a row for each head */
    ddp_cudnn_extents_t scores, scores_transposed;
    ddp_cudnn_extents_t one_each; /* one number for each row of scores */
    ddp_cudnn_extents_t value;
} shapes_t;

static shapes_t shapes_of(const ddp_cudnn_key_t *key)
{
    const int64_t n       = key->words[SEQUENCES];
    const int64_t h       = key->words[HEADS];
    const int64_t t       = key->words[LENGTH];
    const int64_t d       = key->words[WIDTH];
    const int64_t row     = h * d;
    const int64_t qkv_row = 3 * row;

    return (shapes_t){
        .type              = (cudnnDataType_t)key->words[TYPE],
        .packed            = {{n, h, t, d}, {t * qkv_row, d, qkv_row, 1}},
        .packed_transposed = {{n, h, d, t}, {t * qkv_row, d, 1, qkv_row}},
        .rows              = {{n, h, t, d}, {t * row, d, row, 1}},
        .heads             = {{n, h, t, d}, {h * t * d, t * d, d, 1}},
        .scores            = {{n, h, t, t}, {h * t * t, t * t, t, 1}},
        .scores_transposed = {{n, h, t, t}, {h * t * t, t * t, 1, t}},
        .one_each          = {{n, h, t, 1}, {h * t, t, 1, 1}},
        .value             = {{1, 1, 1, 1}, {1, 1, 1, 1}},
    };
}

static ddp_cudnn_tensor_t memory(ddp_cudnn_graph_t *graph, cudnnDataType_t type, int64_t uid,
                                 const ddp_cudnn_extents_t *extents)
{
    return ddp_cudnn_tensor(graph, type, DDP_CUDNN_MEMORY, uid, extents);
}

static ddp_cudnn_tensor_t inner(ddp_cudnn_graph_t *graph, cudnnDataType_t type,
                                const ddp_cudnn_extents_t *extents)
{
    return ddp_cudnn_tensor(graph, type, DDP_CUDNN_INNER, 0, extents);
}

static ddp_cudnn_tensor_t value(ddp_cudnn_graph_t *graph, int64_t uid, const shapes_t *s)
{
    return ddp_cudnn_tensor(graph, CUDNN_DATA_FLOAT, DDP_CUDNN_VALUE, uid, &s->value);
}

/* A new inner tensor mode(x, b). */
static ddp_cudnn_tensor_t of(ddp_cudnn_graph_t *graph, cudnnPointwiseMode_t mode, const ddp_cudnn_tensor_t *x,
                             const ddp_cudnn_tensor_t *b)
{
    ddp_cudnn_tensor_t y = inner(graph, CUDNN_DATA_FLOAT, &x->extents);

    ddp_cudnn_pointwise(graph, mode, x, b, &y);
    return y;
}

/* scale q k^T. */
static ddp_cudnn_tensor_t scores_of(ddp_cudnn_graph_t *graph, const shapes_t *s, const ddp_cudnn_tensor_t *q,
                                    const ddp_cudnn_tensor_t *k, const ddp_cudnn_tensor_t *scale)
{
    ddp_cudnn_tensor_t product = inner(graph, CUDNN_DATA_FLOAT, &s->scores);

    ddp_cudnn_matmul(graph, q, k, &product);
    return of(graph, CUDNN_POINTWISE_MUL, &product, scale);
}

/* x where the column is not behind the row, else -infinity. */
static ddp_cudnn_tensor_t causal(ddp_cudnn_graph_t *graph, const shapes_t *s, const ddp_cudnn_tensor_t *x)
{
    ddp_cudnn_tensor_t not_seen = value(graph, DDP_CUDNN_NOT_SEEN, s);
    ddp_cudnn_tensor_t row      = inner(graph, CUDNN_DATA_INT32, &s->scores);
    ddp_cudnn_tensor_t column   = inner(graph, CUDNN_DATA_INT32, &s->scores);
    ddp_cudnn_tensor_t is_seen  = inner(graph, CUDNN_DATA_BOOLEAN, &s->scores);
    ddp_cudnn_tensor_t y        = inner(graph, CUDNN_DATA_FLOAT, &s->scores);

    ddp_cudnn_index(graph, x, 2, &row);
    ddp_cudnn_index(graph, x, 3, &column);
    ddp_cudnn_is_ge(graph, &row, &column, &is_seen);
    ddp_cudnn_select(graph, &is_seen, x, &not_seen, &y);
    return y;
}

ddp_cudnn_key_t ddp_cudnn_attention_key(ddp_cudnn_kind_t kind, const ddp_cudnn_attention_t *attention)
{
    ddp_cudnn_key_t key = {{0}};

    key.words[KIND]      = kind;
    key.words[TYPE]      = attention->type;
    key.words[SEQUENCES] = attention->sequences;
    key.words[HEADS]     = attention->heads;
    key.words[LENGTH]    = attention->length;
    key.words[WIDTH]     = attention->width;
    key.words[IS_EXACT]  = kind == DDP_CUDNN_ATTENTION_BACKWARD && attention->is_exact ? 1 : 0;
    return key;
}

void ddp_cudnn_attention_graph(ddp_cudnn_graph_t *graph, const ddp_cudnn_key_t *key)
{
    const shapes_t           s       = shapes_of(key);
    const ddp_cudnn_tensor_t q       = memory(graph, s.type, DDP_CUDNN_Q, &s.packed);
    const ddp_cudnn_tensor_t k       = memory(graph, s.type, DDP_CUDNN_K, &s.packed_transposed);
    const ddp_cudnn_tensor_t v       = memory(graph, s.type, DDP_CUDNN_V, &s.packed);
    const ddp_cudnn_tensor_t y       = memory(graph, s.type, DDP_CUDNN_Y, &s.rows);
    const ddp_cudnn_tensor_t log_sum = memory(graph, CUDNN_DATA_FLOAT, DDP_CUDNN_LOG_SUM, &s.one_each);
    const ddp_cudnn_tensor_t scale   = value(graph, DDP_CUDNN_SCALE, &s);
    const ddp_cudnn_tensor_t largest = inner(graph, CUDNN_DATA_FLOAT, &s.one_each);
    const ddp_cudnn_tensor_t sum     = inner(graph, CUDNN_DATA_FLOAT, &s.one_each);
    const ddp_cudnn_tensor_t weights = inner(graph, s.type, &s.scores);
    ddp_cudnn_tensor_t       scores  = scores_of(graph, &s, &q, &k, &scale);
    ddp_cudnn_tensor_t       logarithm;

    scores = causal(graph, &s, &scores);
    ddp_cudnn_reduce(graph, CUDNN_REDUCE_TENSOR_MAX, &scores, &largest);
    scores = of(graph, CUDNN_POINTWISE_SUB, &scores, &largest);
    scores = of(graph, CUDNN_POINTWISE_EXP, &scores, NULL);
    ddp_cudnn_reduce(graph, CUDNN_REDUCE_TENSOR_ADD, &scores, &sum);
    logarithm = of(graph, CUDNN_POINTWISE_LOG, &sum, NULL);
    ddp_cudnn_pointwise(graph, CUDNN_POINTWISE_ADD, &largest, &logarithm, &log_sum);
    ddp_cudnn_pointwise(graph, CUDNN_POINTWISE_DIV, &scores, &sum, &weights);
    ddp_cudnn_matmul(graph, &weights, &v, &y);
}

/* With p = softmax and dp = dy v^T: dv = p^T dy, ds = scale p (dp - sum over columns of dy y), dk = ds^T q
 * and dq = ds k. */
void ddp_cudnn_attention_backward_graph(ddp_cudnn_graph_t *graph, const ddp_cudnn_key_t *key)
{
    const shapes_t           s             = shapes_of(key);
    const ddp_cudnn_tensor_t q             = memory(graph, s.type, DDP_CUDNN_Q, &s.packed);
    const ddp_cudnn_tensor_t k             = memory(graph, s.type, DDP_CUDNN_K, &s.packed_transposed);
    const ddp_cudnn_tensor_t v             = memory(graph, s.type, DDP_CUDNN_V, &s.packed_transposed);
    const ddp_cudnn_tensor_t y             = memory(graph, s.type, DDP_CUDNN_Y, &s.rows);
    const ddp_cudnn_tensor_t dy            = memory(graph, s.type, DDP_CUDNN_DY, &s.rows);
    const ddp_cudnn_tensor_t log_sum       = memory(graph, CUDNN_DATA_FLOAT, DDP_CUDNN_LOG_SUM, &s.one_each);
    const ddp_cudnn_tensor_t dq            = memory(graph, s.type, DDP_CUDNN_DQ, &s.packed);
    const ddp_cudnn_tensor_t dk            = memory(graph, s.type, DDP_CUDNN_DK, &s.packed);
    const ddp_cudnn_tensor_t dv            = memory(graph, s.type, DDP_CUDNN_DV, &s.packed);
    const ddp_cudnn_tensor_t row_sum       = memory(graph, CUDNN_DATA_FLOAT, DDP_CUDNN_ROW_SUM, &s.one_each);
    const ddp_cudnn_tensor_t scale         = value(graph, DDP_CUDNN_SCALE, &s);
    const ddp_cudnn_tensor_t one           = value(graph, DDP_CUDNN_ONE, &s);
    const ddp_cudnn_tensor_t k_rows        = inner(graph, CUDNN_DATA_FLOAT, &s.packed);
    const ddp_cudnn_tensor_t p_transposed  = inner(graph, s.type, &s.scores_transposed);
    const ddp_cudnn_tensor_t ds_transposed = inner(graph, s.type, &s.scores_transposed);
    const ddp_cudnn_tensor_t dp            = inner(graph, CUDNN_DATA_FLOAT, &s.scores);
    const ddp_cudnn_tensor_t products      = inner(graph, CUDNN_DATA_FLOAT, &s.rows);
    const ddp_cudnn_tensor_t sums          = inner(graph, CUDNN_DATA_FLOAT, &s.one_each);
    ddp_cudnn_tensor_t       p, ds;

    ddp_cudnn_pointwise(graph, CUDNN_POINTWISE_MUL, &dy, &y, &products);
    ddp_cudnn_reduce(graph, CUDNN_REDUCE_TENSOR_ADD, &products, &sums);
    ddp_cudnn_pointwise(graph, CUDNN_POINTWISE_MUL, &sums, &one, &row_sum);

    p = scores_of(graph, &s, &q, &k, &scale);
    p = of(graph, CUDNN_POINTWISE_SUB, &p, &log_sum);
    p = causal(graph, &s, &p);
    p = of(graph, CUDNN_POINTWISE_EXP, &p, NULL);
    ddp_cudnn_reshape(graph, &p, &p_transposed);
    ddp_cudnn_matmul(graph, &p_transposed, &dy, &dv);

    ddp_cudnn_matmul(graph, &dy, &v, &dp);
    ds = of(graph, CUDNN_POINTWISE_SUB, &dp, &row_sum);
    ds = of(graph, CUDNN_POINTWISE_MUL, &ds, &p);
    ds = of(graph, CUDNN_POINTWISE_MUL, &ds, &scale);
    ddp_cudnn_reshape(graph, &ds, &ds_transposed);
    ddp_cudnn_matmul(graph, &ds_transposed, &q, &dk);

    ddp_cudnn_reshape(graph, &k, &k_rows);
    if (key->words[IS_EXACT] != 0) {
        ddp_cudnn_matmul(graph, &ds, &k_rows, &dq);
    } else {
        const ddp_cudnn_tensor_t dq_floats = memory(graph, CUDNN_DATA_FLOAT, DDP_CUDNN_DQ_FLOATS, &s.heads);

        ddp_cudnn_matmul(graph, &ds, &k_rows, &dq_floats);
        ddp_cudnn_pointwise(graph, CUDNN_POINTWISE_IDENTITY, &dq_floats, NULL, &dq);
    }
}
