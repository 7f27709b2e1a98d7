/* Heads of language models: a product with every word of the vocabulary, with the loss or without. */
#include <string.h>

#include "base/error.h"
#include "kernels/ops_seq.h"
#include "nn/layers.h"
#include "nn/tape_internal.h"

static ddp_status_t make_head(const ddp_tape_t *tape, const ddp_tensor_t *x, size_t weight,
                              ddp_head_args_t *head)
{
    ddp_status_t             status = DDP_OK;
    const ddp_tensor_desc_t *w      = NULL;
    char                     x_text[DDP_SHAPE_TEXT_SIZE];
    char                     w_text[DDP_SHAPE_TEXT_SIZE];

    DDP_TRY(ddp_tape_param(tape, "head", weight, &w));
    DDP_REQUIRE(w->ndim == 2 && w->shape[1] == ddp_tensor_width(x), DDP_ERR_INVALID_ARG,
                "head: weight '%s' %s does not fit an input of %s", w->name,
                ddp_shape_text(w->ndim, w->shape, w_text), ddp_shape_text(x->ndim, x->shape, x_text));
    *head = (ddp_head_args_t){.x         = x->data,
                              .w         = ddp_params_value(tape->params, weight),
                              .rows      = ddp_tensor_rows(x),
                              .width     = ddp_tensor_width(x),
                              .vocab     = w->shape[0],
                              .precision = tape->precision};
out:
    return status;
}

/** The gradients are there since forward. */
static ddp_status_t loss_backward(ddp_tape_t *tape, ddp_node_t *head)
{
    (void)tape;
    (void)head;
    return DDP_OK;
}

static ddp_status_t loss_gradients(ddp_tape_t *tape, const ddp_tensor_t *x, size_t weight,
                                   ddp_head_args_t *head)
{
    ddp_status_t status = DDP_OK;

    DDP_REQUIRE(ddp_params_grad(tape->params, weight) != NULL, DDP_ERR_STATE,
                "head: no memory is bound for the parameters' gradients");
    head->dw = ddp_tape_param_grad(tape, weight, &head->accumulate_dw);
    if (x->needs_grad) {
        DDP_TRY(ddp_tape_new_grad(tape, x, &head->dx));
    }
out:
    return status;
}

ddp_status_t ddp_nn_head_cross_entropy(ddp_tape_t *tape, ddp_tensor_t *x, size_t weight,
                                       const int32_t *labels, const float *weights, int32_t ignore_index,
                                       ddp_loss_stats_t **stats_p)
{
    ddp_status_t                  status   = DDP_OK;
    ddp_tensor_t                 *y        = NULL;
    ddp_node_t                   *head     = NULL;
    void                         *memory   = NULL;
    const size_t                  shape[1] = {1};
    ddp_head_cross_entropy_args_t args     = {
            .labels = labels, .weights = weights, .ignore_index = ignore_index, .grad_scale = tape->loss_scale};

    DDP_TRY(make_head(tape, x, weight, &args.head));
    DDP_TRY(ddp_tape_keep(tape, sizeof(*args.stats), &memory));
    args.stats = memory;
    /* stands for the loss */
    DDP_TRY(ddp_tape_new_view(tape, NULL, 1, shape, ddp_tape_needs_grad(tape, x, weight, DDP_NO_PARAM), &y));
    if (y->needs_grad) {
        DDP_TRY(loss_gradients(tape, x, weight, &args.head));
    }
    DDP_TRY(ddp_op_head_cross_entropy(tape->stream, &args));
    DDP_TRY(ddp_tape_record(tape, loss_backward, sizeof(ddp_node_t), y, weight, DDP_NO_PARAM, &head));
    ddp_tape_set_loss(tape, x, args.head.dx);
    tape->is_loss_scaled = true; /* it must be in the weight's gradient, too */
    *stats_p             = args.stats;
out:
    return status;
}

typedef struct logits_node {
    ddp_node_t      head;
    ddp_tensor_t   *x;
    ddp_head_args_t args;
} logits_node_t;

static ddp_status_t logits_backward(ddp_tape_t *tape, ddp_node_t *head)
{
    ddp_status_t             status = DDP_OK;
    const logits_node_t     *node   = (const logits_node_t *)head;
    ddp_head_backward_args_t args   = {.head = node->args, .dlogits = head->y->grad};

    if (node->x->needs_grad) {
        DDP_TRY(ddp_tape_grad_target(tape, node->x, &args.head.dx, &args.head.accumulate_dx));
    }
    args.head.dw = ddp_tape_param_grad(tape, head->weight, &args.head.accumulate_dw);
    DDP_TRY(ddp_op_head_backward(tape->stream, &args));
out:
    return status;
}

ddp_status_t ddp_nn_head_logits(ddp_tape_t *tape, ddp_tensor_t *x, size_t weight, ddp_tensor_t **logits_p)
{
    ddp_status_t           status = DDP_OK;
    ddp_tensor_t          *y      = NULL;
    ddp_node_t            *head   = NULL;
    ddp_head_logits_args_t args   = {.logits = NULL};
    size_t                 shape[DDP_MAX_DIMS];

    DDP_TRY(make_head(tape, x, weight, &args.head));
    memcpy(shape, x->shape, sizeof(shape));
    shape[x->ndim - 1] = args.head.vocab;
    DDP_TRY(
        ddp_tape_new_tensor(tape, x->ndim, shape, ddp_tape_needs_grad(tape, x, weight, DDP_NO_PARAM), &y));
    args.logits = y->data;
    DDP_TRY(ddp_op_head_logits(tape->stream, &args));
    DDP_TRY(ddp_tape_record(tape, logits_backward, sizeof(logits_node_t), y, weight, DDP_NO_PARAM, &head));
    if (head != NULL) {
        ((logits_node_t *)head)->x    = x;
        ((logits_node_t *)head)->args = args.head;
    }
    *logits_p = y;
out:
    return status;
}
