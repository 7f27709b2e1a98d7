/* Batch normalisation. */
#include "base/error.h"
#include "kernels/ops_norm.h"
#include "nn/layers.h"
#include "nn/tape_internal.h"

typedef struct batch_norm_node {
    ddp_node_t            head;
    ddp_tensor_t         *x, *residual;
    ddp_batch_norm_args_t args;
} batch_norm_node_t;

/* Gradients of y, of the residual and of x have one shape. The residual's is y's where RELU passed it, and
 * overwrites that; else x's does. *taker_p keeps the memory then. */
static ddp_status_t batch_norm_targets(ddp_tape_t *tape, const batch_norm_node_t *node,
                                       ddp_batch_norm_backward_args_t *args, ddp_tensor_t **taker_p)
{
    ddp_status_t  status   = DDP_OK;
    ddp_tensor_t *x        = node->x;
    ddp_tensor_t *residual = node->residual;

    *taker_p = NULL;
    if (residual != NULL && residual->needs_grad) {
        if (residual->has_grad) {
            DDP_TRY(ddp_tape_grad_target(tape, residual, &args->dresidual, &args->accumulate_dresidual));
        } else {
            args->dresidual = node->head.y->grad;
            *taker_p        = residual;
        }
    }
    if (!x->needs_grad) {
        return DDP_OK;
    }
    if (x->has_grad || *taker_p != NULL) {
        DDP_TRY(ddp_tape_grad_target(tape, x, &args->dx, &args->accumulate_dx));
    } else {
        args->dx = node->head.y->grad;
        *taker_p = x;
    }
out:
    return status;
}

static ddp_status_t batch_norm_backward(ddp_tape_t *tape, ddp_node_t *head)
{
    ddp_status_t                   status = DDP_OK;
    const batch_norm_node_t       *node   = (const batch_norm_node_t *)head;
    ddp_tensor_t                  *taker  = NULL;
    ddp_batch_norm_backward_args_t args   = {.x     = node->args.x,
                                             .dy    = head->y->grad,
                                             .rows  = node->args.rows,
                                             .c     = node->args.c,
                                             .gamma = node->args.gamma,
                                             .beta  = node->args.beta,
                                             .mean  = node->args.mean,
                                             .rstd  = node->args.rstd,
                                             .act   = node->args.act,
                                             .y     = node->residual != NULL ? node->args.y : NULL};

    DDP_TRY(batch_norm_targets(tape, node, &args, &taker));
    args.dgamma = ddp_tape_param_grad(tape, head->weight, &args.accumulate_dgamma);
    args.dbeta  = ddp_tape_param_grad(tape, head->bias, &args.accumulate_dbeta);
    DDP_TRY(ddp_op_batch_norm_backward(tape->stream, &args));
    if (taker != NULL) {
        DDP_TRY(ddp_tape_give_grad(tape, taker, head->y->grad, true));
    }
out:
    return status;
}

static ddp_status_t check_residual(const ddp_tensor_t *x, const ddp_tensor_t *residual)
{
    ddp_status_t status     = DDP_OK;
    bool         same_shape = residual->ndim == x->ndim;
    char         x_text[DDP_SHAPE_TEXT_SIZE];
    char         r_text[DDP_SHAPE_TEXT_SIZE];

    for (size_t i = 0; i < x->ndim && same_shape; i++) {
        same_shape = residual->shape[i] == x->shape[i];
    }
    DDP_REQUIRE(same_shape, DDP_ERR_INVALID_ARG, "batch norm: a residual of %s does not fit an input of %s",
                ddp_shape_text(residual->ndim, residual->shape, r_text),
                ddp_shape_text(x->ndim, x->shape, x_text));
    DDP_REQUIRE(residual != x, DDP_ERR_INVALID_ARG,
                "batch norm: its input can not be its residual, use ddp_nn_add()");
out:
    return status;
}

/* The four vectors fit; what evaluation reads of them. */
static ddp_status_t batch_norm_params(const ddp_tape_t *tape, const ddp_batch_norm_t *norm,
                                      ddp_batch_norm_args_t *args)
{
    const size_t             index[] = {norm->gamma, norm->beta, norm->running_mean, norm->running_var};
    ddp_status_t             status  = DDP_OK;
    const ddp_tensor_desc_t *desc    = NULL;

    for (size_t i = 0; i < 4; i++) {
        DDP_TRY(ddp_tape_param(tape, "batch norm", index[i], &desc));
        DDP_REQUIRE(desc->count == args->c, DDP_ERR_INVALID_ARG,
                    "batch norm: '%s' has %zu elements, the input %zu channels", desc->name, desc->count,
                    args->c);
    }
    args->gamma = ddp_params_value(tape->params, norm->gamma);
    args->beta  = ddp_params_value(tape->params, norm->beta);
    if (!tape->begin.training) {
        args->running_mean = ddp_params_value(tape->params, norm->running_mean);
        args->running_var  = ddp_params_value(tape->params, norm->running_var);
    }
out:
    return status;
}

/* Where the statistics go. */
static ddp_status_t batch_norm_statistics(ddp_tape_t *tape, const ddp_batch_norm_t *norm, bool for_backward,
                                          ddp_batch_norm_args_t *args)
{
    ddp_status_t status = DDP_OK;
    void        *memory = NULL;

    DDP_TRY(
        ddp_tape_average(tape, "batch norm", norm->running_mean, &args->mean_sum, &args->accumulate_mean));
    DDP_TRY(ddp_tape_average(tape, "batch norm", norm->running_var, &args->var_sum, &args->accumulate_var));
    if (for_backward) {
        DDP_TRY(ddp_tape_take(tape, args->c * sizeof(float), &memory));
        args->mean = memory;
        DDP_TRY(ddp_tape_take(tape, args->c * sizeof(float), &memory));
        args->rstd = memory;
    }
out:
    return status;
}

ddp_status_t ddp_nn_batch_norm(ddp_tape_t *tape, ddp_tensor_t *x, const ddp_batch_norm_t *norm,
                               ddp_tensor_t *residual, ddp_act_t act, ddp_tensor_t **y_p)
{
    ddp_status_t          status     = DDP_OK;
    ddp_tensor_t         *y          = NULL;
    ddp_node_t           *head       = NULL;
    batch_norm_node_t    *node       = NULL;
    bool                  needs_grad = residual != NULL && residual->needs_grad;
    ddp_batch_norm_args_t args       = {
              .x = x->data, .rows = ddp_tensor_rows(x), .c = ddp_tensor_width(x), .eps = norm->eps, .act = act};

    if (residual != NULL) {
        DDP_TRY(check_residual(x, residual));
        args.residual = residual->data;
    }
    DDP_TRY(batch_norm_params(tape, norm, &args));
    needs_grad = needs_grad || ddp_tape_needs_grad(tape, x, norm->gamma, norm->beta);
    DDP_TRY(ddp_tape_new_tensor(tape, x->ndim, x->shape, needs_grad, &y));
    DDP_TRY(batch_norm_statistics(tape, norm, y->needs_grad, &args));
    args.y = y->data;
    DDP_TRY(ddp_op_batch_norm(tape->stream, &args));
    DDP_TRY(ddp_tape_record(tape, batch_norm_backward, sizeof(*node), y, norm->gamma, norm->beta, &head));
    if (head != NULL) {
        node           = (batch_norm_node_t *)head;
        node->x        = x;
        node->residual = residual;
        node->args     = args;
    }
    *y_p = y;
out:
    return status;
}
