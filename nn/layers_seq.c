/* Layers of sequence models. */
#include "base/error.h"
#include "kernels/ops_seq.h"
#include "nn/layers.h"
#include "nn/tape_internal.h"

typedef struct embedding_node {
    ddp_node_t           head;
    ddp_embedding_args_t args;
} embedding_node_t;

static ddp_status_t embedding_backward(ddp_tape_t *tape, ddp_node_t *head)
{
    const ddp_embedding_args_t   *forward = &((embedding_node_t *)head)->args;
    ddp_embedding_backward_args_t args    = {.tokens    = forward->tokens,
                                             .sequences = forward->sequences,
                                             .length    = forward->length,
                                             .vocab     = forward->vocab,
                                             .width     = forward->width,
                                             .dy        = head->y->grad};

    args.dtable = ddp_tape_param_grad(tape, head->weight, &args.accumulate_table);
    if (head->bias != DDP_NO_PARAM) {
        args.n_positions = ddp_params_descs(tape->params)[head->bias].shape[0];
        args.dpositions  = ddp_tape_param_grad(tape, head->bias, &args.accumulate_positions);
    }
    return ddp_op_embedding_backward(tape->stream, &args);
}

static ddp_status_t check_embedding(const ddp_tape_t *tape, size_t length, size_t table, size_t positions,
                                    ddp_embedding_args_t *args)
{
    ddp_status_t             status = DDP_OK;
    const ddp_tensor_desc_t *t      = NULL;
    const ddp_tensor_desc_t *p      = NULL;
    char                     t_text[DDP_SHAPE_TEXT_SIZE];
    char                     p_text[DDP_SHAPE_TEXT_SIZE];

    DDP_TRY(ddp_tape_param(tape, "embedding", table, &t));
    DDP_REQUIRE(t->ndim == 2, DDP_ERR_INVALID_ARG, "embedding: table '%s' %s is not a matrix", t->name,
                ddp_shape_text(t->ndim, t->shape, t_text));
    args->vocab = t->shape[0];
    args->width = t->shape[1];
    args->table = ddp_params_value(tape->params, table);
    if (positions != DDP_NO_PARAM) {
        DDP_TRY(ddp_tape_param(tape, "embedding", positions, &p));
        DDP_REQUIRE(p->ndim == 2 && p->shape[1] == args->width && p->shape[0] >= length, DDP_ERR_INVALID_ARG,
                    "embedding: positions '%s' %s do not fit sequences of %zu tokens and table '%s' %s",
                    p->name, ddp_shape_text(p->ndim, p->shape, p_text), length, t->name,
                    ddp_shape_text(t->ndim, t->shape, t_text));
        args->positions = ddp_params_value(tape->params, positions);
    }
out:
    return status;
}

ddp_status_t ddp_nn_embedding(ddp_tape_t *tape, const int32_t *tokens, size_t sequences, size_t length,
                              size_t table, size_t positions, ddp_tensor_t **y_p)
{
    ddp_status_t         status = DDP_OK;
    ddp_tensor_t        *y      = NULL;
    ddp_node_t          *head   = NULL;
    ddp_embedding_args_t args   = {.tokens = tokens, .sequences = sequences, .length = length};
    size_t               shape[3];

    DDP_TRY(check_embedding(tape, length, table, positions, &args));
    shape[0] = sequences;
    shape[1] = length;
    shape[2] = args.width;
    DDP_TRY(ddp_tape_new_tensor(tape, 3, shape, ddp_tape_needs_grad(tape, NULL, table, positions), &y));
    args.y = y->data;
    DDP_TRY(ddp_op_embedding(tape->stream, &args));
    DDP_TRY(ddp_tape_record(tape, embedding_backward, sizeof(embedding_node_t), y, table, positions, &head));
    if (head != NULL) {
        ((embedding_node_t *)head)->args = args;
    }
    *y_p = y;
out:
    return status;
}

typedef struct norm_node {
    ddp_node_t            head;
    ddp_tensor_t         *x;
    ddp_layer_norm_args_t args;
} norm_node_t;

static ddp_status_t norm_backward(ddp_tape_t *tape, ddp_node_t *head)
{
    ddp_status_t                   status = DDP_OK;
    norm_node_t                   *node   = (norm_node_t *)head;
    ddp_layer_norm_backward_args_t args   = {.x     = node->args.x,
                                             .dy    = head->y->grad,
                                             .rows  = node->args.rows,
                                             .width = node->args.width,
                                             .gamma = node->args.gamma,
                                             .mean  = node->args.mean,
                                             .rstd  = node->args.rstd};

    if (node->x->needs_grad) {
        DDP_TRY(ddp_tape_grad_target(tape, node->x, &args.dx, &args.accumulate_dx));
    }
    args.dgamma = ddp_tape_param_grad(tape, head->weight, &args.accumulate_dgamma);
    args.dbeta  = ddp_tape_param_grad(tape, head->bias, &args.accumulate_dbeta);
    DDP_TRY(ddp_op_layer_norm_backward(tape->stream, &args));
out:
    return status;
}

/** `index` is a vector of `width` floats. */
static ddp_status_t check_vector(const ddp_tape_t *tape, size_t index, size_t width)
{
    ddp_status_t             status = DDP_OK;
    const ddp_tensor_desc_t *desc   = NULL;

    DDP_TRY(ddp_tape_param(tape, "layer norm", index, &desc));
    DDP_REQUIRE(desc->count == width, DDP_ERR_INVALID_ARG,
                "layer norm: '%s' has %zu elements, rows of the input %zu", desc->name, desc->count, width);
out:
    return status;
}

ddp_status_t ddp_nn_layer_norm(ddp_tape_t *tape, ddp_tensor_t *x, size_t gamma, size_t beta, float eps,
                               ddp_tensor_t **y_p)
{
    ddp_status_t          status = DDP_OK;
    ddp_tensor_t         *y      = NULL;
    ddp_node_t           *head   = NULL;
    void                 *memory = NULL;
    ddp_layer_norm_args_t args   = {
          .x = x->data, .rows = ddp_tensor_rows(x), .width = ddp_tensor_width(x), .eps = eps};

    DDP_TRY(check_vector(tape, gamma, args.width));
    DDP_TRY(check_vector(tape, beta, args.width));
    DDP_TRY(ddp_tape_new_tensor(tape, x->ndim, x->shape, ddp_tape_needs_grad(tape, x, gamma, beta), &y));
    if (y->needs_grad) {
        DDP_TRY(ddp_tape_take(tape, args.rows * sizeof(float), &memory));
        args.mean = memory;
        DDP_TRY(ddp_tape_take(tape, args.rows * sizeof(float), &memory));
        args.rstd = memory;
    }
    args.gamma = ddp_params_value(tape->params, gamma);
    args.beta  = ddp_params_value(tape->params, beta);
    args.y     = y->data;
    DDP_TRY(ddp_op_layer_norm(tape->stream, &args));
    DDP_TRY(ddp_tape_record(tape, norm_backward, sizeof(norm_node_t), y, gamma, beta, &head));
    if (head != NULL) {
        ((norm_node_t *)head)->x    = x;
        ((norm_node_t *)head)->args = args;
    }
    *y_p = y;
out:
    return status;
}

typedef struct attention_node {
    ddp_node_t           head;
    ddp_tensor_t        *qkv;
    ddp_attention_args_t args;
} attention_node_t;

static ddp_status_t attention_backward(ddp_tape_t *tape, ddp_node_t *head)
{
    ddp_status_t                  status = DDP_OK;
    attention_node_t             *node   = (attention_node_t *)head;
    ddp_attention_backward_args_t args   = {.forward = node->args, .dy = head->y->grad};

    DDP_TRY(ddp_tape_grad_target(tape, node->qkv, &args.dqkv, &args.accumulate));
    DDP_TRY(ddp_op_attention_backward(tape->stream, &args));
out:
    return status;
}

ddp_status_t ddp_nn_attention(ddp_tape_t *tape, ddp_tensor_t *qkv, size_t heads, float dropout,
                              ddp_tensor_t **y_p)
{
    ddp_status_t         status = DDP_OK;
    ddp_tensor_t        *y      = NULL;
    ddp_node_t          *head   = NULL;
    void                *memory = NULL;
    ddp_attention_args_t args   = {.qkv = qkv->data, .heads = heads, .precision = tape->precision};
    size_t               shape[3];
    char                 text[DDP_SHAPE_TEXT_SIZE];

    DDP_REQUIRE(qkv->ndim == 3 && heads > 0 && qkv->shape[2] % (3 * heads) == 0, DDP_ERR_INVALID_ARG,
                "attention: an input of %s is not q, k, v of %zu heads",
                ddp_shape_text(qkv->ndim, qkv->shape, text), heads);
    args.sequences = qkv->shape[0];
    args.length    = qkv->shape[1];
    args.channels  = qkv->shape[2] / 3;
    args.dropout   = tape->begin.training ? dropout : 0.0F;
    args.first_row = ddp_tape_first_row(tape);
    args.key       = ddp_tape_next_key(tape);
    shape[0]       = args.sequences;
    shape[1]       = args.length;
    shape[2]       = args.channels;
    DDP_TRY(ddp_tape_new_tensor(tape, 3, shape, qkv->needs_grad, &y));
    if (y->needs_grad) {
        DDP_TRY(ddp_tape_take(tape, args.sequences * heads * args.length * sizeof(float), &memory));
        args.log_sum = memory;
    }
    args.y = y->data;
    DDP_TRY(ddp_op_attention(tape->stream, &args));
    DDP_TRY(ddp_tape_record(tape, attention_backward, sizeof(attention_node_t), y, DDP_NO_PARAM, DDP_NO_PARAM,
                            &head));
    if (head != NULL) {
        ((attention_node_t *)head)->qkv  = qkv;
        ((attention_node_t *)head)->args = args;
    }
    *y_p = y;
out:
    return status;
}
