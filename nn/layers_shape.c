/* Layers without parameters that move or combine values: activation, flatten, dropout, add. */
#include "nn/layers.h"

#include "base/error.h"
#include "nn/tape_internal.h"

typedef struct act_node {
    ddp_node_t    head;
    ddp_tensor_t *x;
    ddp_act_t     act;
} act_node_t;

static ddp_status_t act_backward(ddp_tape_t *tape, ddp_node_t *head)
{
    ddp_status_t            status = DDP_OK;
    act_node_t             *node   = (act_node_t *)head;
    ddp_act_backward_args_t args   = {.act   = node->act,
                                      .saved = node->act == DDP_ACT_RELU ? head->y->data : node->x->data,
                                      .dy    = head->y->grad,
                                      .count = head->y->count};

    DDP_TRY(ddp_tape_grad_target(tape, node->x, &args.dx, &args.accumulate));
    DDP_TRY(ddp_op_act_backward(tape->stream, &args));
out:
    return status;
}

ddp_status_t ddp_nn_act(ddp_tape_t *tape, ddp_tensor_t *x, ddp_act_t act, ddp_tensor_t **y_p)
{
    ddp_status_t   status = DDP_OK;
    ddp_tensor_t  *y      = NULL;
    ddp_node_t    *head   = NULL;
    ddp_act_args_t args   = {.act = act, .x = x->data, .count = x->count};

    if (act == DDP_ACT_NONE) {
        *y_p = x;
        return DDP_OK;
    }
    DDP_TRY(ddp_tape_new_tensor(tape, x->ndim, x->shape, x->needs_grad, &y));
    args.y = y->data;
    DDP_TRY(ddp_op_act(tape->stream, &args));
    DDP_TRY(ddp_tape_record(tape, act_backward, sizeof(act_node_t), y, DDP_NO_PARAM, DDP_NO_PARAM, &head));
    if (head != NULL) {
        ((act_node_t *)head)->x   = x;
        ((act_node_t *)head)->act = act;
    }
    *y_p = y;
out:
    return status;
}

typedef struct flatten_node {
    ddp_node_t         head;
    ddp_tensor_t      *x;
    bool               is_view;
    ddp_permute_args_t args;
} flatten_node_t;

static ddp_status_t flatten_backward(ddp_tape_t *tape, ddp_node_t *head)
{
    ddp_status_t       status = DDP_OK;
    flatten_node_t    *node   = (flatten_node_t *)head;
    ddp_permute_args_t args   = node->args;

    if (node->is_view) {
        return ddp_tape_give_grad(tape, node->x, head->y->grad, true);
    }
    args.x       = head->y->grad;
    args.inverse = true;
    DDP_TRY(ddp_tape_grad_target(tape, node->x, &args.y, &args.accumulate));
    DDP_TRY(ddp_op_nhwc_to_nchw(tape->stream, &args));
out:
    return status;
}

ddp_status_t ddp_nn_flatten(ddp_tape_t *tape, ddp_tensor_t *x, ddp_tensor_t **y_p)
{
    ddp_status_t       status  = DDP_OK;
    ddp_tensor_t      *y       = NULL;
    ddp_node_t        *head    = NULL;
    flatten_node_t    *node    = NULL;
    bool               is_view = false;
    ddp_permute_args_t args    = {.x = x->data};
    size_t             shape[2];
    char               text[DDP_SHAPE_TEXT_SIZE];

    DDP_REQUIRE(x->ndim == 4, DDP_ERR_INVALID_ARG,
                "flatten: an input of %s is not images (n, height, width, channels)",
                ddp_shape_text(x->ndim, x->shape, text));
    args.n   = x->shape[0];
    args.h   = x->shape[1];
    args.w   = x->shape[2];
    args.c   = x->shape[3];
    shape[0] = args.n;
    shape[1] = args.c * args.h * args.w;
    is_view  = args.c == 1 || args.h * args.w == 1;
    if (is_view) {
        DDP_TRY(ddp_tape_new_view(tape, x->data, 2, shape, x->needs_grad, &y));
    } else {
        DDP_TRY(ddp_tape_new_tensor(tape, 2, shape, x->needs_grad, &y));
        args.y = y->data;
        DDP_TRY(ddp_op_nhwc_to_nchw(tape->stream, &args));
    }
    DDP_TRY(ddp_tape_record(tape, flatten_backward, sizeof(*node), y, DDP_NO_PARAM, DDP_NO_PARAM, &head));
    if (head != NULL) {
        node          = (flatten_node_t *)head;
        node->x       = x;
        node->is_view = is_view;
        node->args    = args;
    }
    *y_p = y;
out:
    return status;
}

typedef struct dropout_node {
    ddp_node_t         head;
    ddp_tensor_t      *x;
    ddp_dropout_args_t args;
} dropout_node_t;

static ddp_status_t dropout_backward(ddp_tape_t *tape, ddp_node_t *head)
{
    ddp_status_t       status = DDP_OK;
    dropout_node_t    *node   = (dropout_node_t *)head;
    ddp_dropout_args_t args   = node->args;

    args.x = head->y->grad;
    DDP_TRY(ddp_tape_grad_target(tape, node->x, &args.y, &args.accumulate));
    DDP_TRY(ddp_op_dropout(tape->stream, &args));
out:
    return status;
}

ddp_status_t ddp_nn_dropout(ddp_tape_t *tape, ddp_tensor_t *x, float p, ddp_tensor_t **y_p)
{
    ddp_status_t       status = DDP_OK;
    ddp_tensor_t      *y      = NULL;
    ddp_node_t        *head   = NULL;
    ddp_dropout_args_t args   = {.x         = x->data,
                                 .rows      = x->shape[0],
                                 .width     = 1,
                                 .first_row = ddp_tape_first_row(tape),
                                 .p         = p,
                                 .key       = ddp_tape_next_key(tape)};

    DDP_REQUIRE(p >= 0.0F && p < 1.0F, DDP_ERR_INVALID_ARG, "dropout: probability %g is not in [0, 1)",
                (double)p);
    if (!tape->begin.training || p == 0.0F) {
        *y_p = x;
        return DDP_OK;
    }
    for (size_t i = 1; i < x->ndim; i++) {
        args.width *= x->shape[i];
    }
    DDP_TRY(ddp_tape_new_tensor(tape, x->ndim, x->shape, x->needs_grad, &y));
    args.y = y->data;
    DDP_TRY(ddp_op_dropout(tape->stream, &args));
    DDP_TRY(ddp_tape_record(tape, dropout_backward, sizeof(dropout_node_t), y, DDP_NO_PARAM, DDP_NO_PARAM,
                            &head));
    if (head != NULL) {
        ((dropout_node_t *)head)->x    = x;
        ((dropout_node_t *)head)->args = args;
    }
    *y_p = y;
out:
    return status;
}

typedef struct add_node {
    ddp_node_t    head;
    ddp_tensor_t *a, *b;
} add_node_t;

static ddp_status_t add_backward(ddp_tape_t *tape, ddp_node_t *head)
{
    ddp_status_t status = DDP_OK;
    add_node_t  *node   = (add_node_t *)head;

    DDP_TRY(ddp_tape_give_grad(tape, node->b, head->y->grad, false));
    DDP_TRY(ddp_tape_give_grad(tape, node->a, head->y->grad, true)); /* b has its own copy by now */
out:
    return status;
}

ddp_status_t ddp_nn_add(ddp_tape_t *tape, ddp_tensor_t *a, ddp_tensor_t *b, ddp_tensor_t **y_p)
{
    ddp_status_t  status     = DDP_OK;
    ddp_tensor_t *y          = NULL;
    ddp_node_t   *head       = NULL;
    bool          same_shape = a->ndim == b->ndim;
    char          a_text[DDP_SHAPE_TEXT_SIZE];
    char          b_text[DDP_SHAPE_TEXT_SIZE];

    for (size_t i = 0; i < a->ndim && same_shape; i++) {
        same_shape = a->shape[i] == b->shape[i];
    }
    DDP_REQUIRE(same_shape, DDP_ERR_INVALID_ARG, "add: %s and %s differ",
                ddp_shape_text(a->ndim, a->shape, a_text), ddp_shape_text(b->ndim, b->shape, b_text));
    DDP_TRY(ddp_tape_new_tensor(tape, a->ndim, a->shape, a->needs_grad || b->needs_grad, &y));
    DDP_TRY(ddp_stream_copy(tape->stream, y->data, a->data, a->count * sizeof(float)));
    DDP_TRY(ddp_op_axpy(tape->stream, 1.0F, b->data, y->data, b->count));
    DDP_TRY(ddp_tape_record(tape, add_backward, sizeof(add_node_t), y, DDP_NO_PARAM, DDP_NO_PARAM, &head));
    if (head != NULL) {
        ((add_node_t *)head)->a = a;
        ((add_node_t *)head)->b = b;
    }
    *y_p = y;
out:
    return status;
}
