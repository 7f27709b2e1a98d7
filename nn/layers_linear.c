#include "nn/layers.h"

#include <string.h>

#include "base/error.h"
#include "nn/tape_internal.h"

typedef struct linear_node {
    ddp_node_t    head;
    ddp_tensor_t *x;
    ddp_tensor_t *residual; /* or NULL */
    size_t        rows, in, out;
    bool          in_out; /* the weight is [in, out] */
    ddp_act_t     act;

    ddp_precision_t precision;
    const float    *saved; /* what the activation's gradient needs */
} linear_node_t;

static ddp_status_t linear_param_grads(ddp_tape_t *tape, const linear_node_t *node)
{
    ddp_status_t         status     = DDP_OK;
    const ddp_tensor_t  *y          = node->head.y;
    bool                 accumulate = false;
    ddp_bias_grad_args_t bias       = {.dy = y->grad, .m = node->rows, .n = node->out};
    ddp_gemm_args_t      gemm       = {.transpose_a = true,
                                       .m           = node->out,
                                       .n           = node->in,
                                       .k           = node->rows,
                                       .alpha       = 1.0F,
                                       .a           = y->grad,
                                       .lda         = node->out,
                                       .b           = node->x->data,
                                       .ldb         = node->in,
                                       .ldc         = node->in,
                                       .precision   = node->precision};

    if (ddp_tape_is_trained(tape, node->head.bias)) {
        bias.db = ddp_tape_param_grad(tape, node->head.bias, &bias.accumulate);
        DDP_TRY(ddp_op_bias_grad(tape->stream, &bias));
    }
    if (!ddp_tape_is_trained(tape, node->head.weight)) {
        return DDP_OK;
    }
    if (node->in_out) {
        gemm.m   = node->in;
        gemm.n   = node->out;
        gemm.a   = node->x->data;
        gemm.lda = node->in;
        gemm.b   = y->grad;
        gemm.ldb = node->out;
        gemm.ldc = node->out;
    }
    gemm.c    = ddp_tape_param_grad(tape, node->head.weight, &accumulate);
    gemm.beta = accumulate ? 1.0F : 0.0F;
    DDP_TRY(ddp_op_gemm(tape->stream, &gemm));
out:
    return status;
}

static ddp_status_t linear_input_grad(ddp_tape_t *tape, const linear_node_t *node)
{
    ddp_status_t    status     = DDP_OK;
    bool            accumulate = false;
    ddp_gemm_args_t gemm       = {.m         = node->rows,
                                  .n         = node->in,
                                  .k         = node->out,
                                  .alpha     = 1.0F,
                                  .a         = node->head.y->grad,
                                  .lda       = node->out,
                                  .b         = ddp_params_value(tape->params, node->head.weight),
                                  .ldb       = node->in,
                                  .ldc       = node->in,
                                  .precision = node->precision};

    if (node->in_out) {
        gemm.transpose_b = true;
        gemm.ldb         = node->out;
    }
    DDP_TRY(ddp_tape_grad_target(tape, node->x, &gemm.c, &accumulate));
    gemm.beta = accumulate ? 1.0F : 0.0F;
    DDP_TRY(ddp_op_gemm(tape->stream, &gemm));
out:
    return status;
}

static ddp_status_t linear_backward(ddp_tape_t *tape, ddp_node_t *head)
{
    ddp_status_t            status = DDP_OK;
    linear_node_t          *node   = (linear_node_t *)head;
    ddp_act_backward_args_t act    = {.act   = node->act,
                                      .saved = node->saved,
                                      .dy    = head->y->grad,
                                      .dx    = head->y->grad, /* nobody needs it as it was any more */
                                      .count = head->y->count};

    if (node->act != DDP_ACT_NONE) {
        DDP_TRY(ddp_op_act_backward(tape->stream, &act));
    }
    if (node->x->needs_grad) {
        DDP_TRY(linear_input_grad(tape, node));
    }
    DDP_TRY(linear_param_grads(tape, node));
    if (node->residual != NULL) { /* last: it may keep the memory of y's gradient and add to it */
        DDP_TRY(ddp_tape_give_grad(tape, node->residual, head->y->grad, true));
    }
out:
    return status;
}

static ddp_status_t check_linear(const ddp_tape_t *tape, const ddp_tensor_t *x, size_t weight, size_t bias,
                                 bool in_out, size_t *out_p)
{
    ddp_status_t             status = DDP_OK;
    const ddp_tensor_desc_t *w      = NULL;
    const ddp_tensor_desc_t *b      = NULL;
    char                     x_text[DDP_SHAPE_TEXT_SIZE];
    char                     p_text[DDP_SHAPE_TEXT_SIZE];

    DDP_TRY(ddp_tape_param(tape, "linear", weight, &w));
    DDP_REQUIRE(w->ndim == 2 && w->shape[in_out ? 0 : 1] == ddp_tensor_width(x), DDP_ERR_INVALID_ARG,
                "linear: weight '%s' %s does not fit an input of %s", w->name,
                ddp_shape_text(w->ndim, w->shape, p_text), ddp_shape_text(x->ndim, x->shape, x_text));
    *out_p = w->shape[in_out ? 1 : 0];
    if (bias != DDP_NO_PARAM) {
        DDP_TRY(ddp_tape_param(tape, "linear", bias, &b));
        DDP_REQUIRE(b->count == *out_p, DDP_ERR_INVALID_ARG,
                    "linear: bias '%s' %s does not fit weight '%s' %s", b->name,
                    ddp_shape_text(b->ndim, b->shape, x_text), w->name,
                    ddp_shape_text(w->ndim, w->shape, p_text));
    }
out:
    return status;
}

static ddp_status_t check_residual(const ddp_tensor_t *x, size_t out_width, const ddp_tensor_t *residual)
{
    ddp_status_t status = DDP_OK;
    char         x_text[DDP_SHAPE_TEXT_SIZE];
    char         r_text[DDP_SHAPE_TEXT_SIZE];

    DDP_REQUIRE(residual == NULL || (ddp_tensor_rows(residual) == ddp_tensor_rows(x) &&
                                     ddp_tensor_width(residual) == out_width),
                DDP_ERR_INVALID_ARG, "linear: residual %s does not fit an input of %s and %zu columns",
                ddp_shape_text(residual->ndim, residual->shape, r_text),
                ddp_shape_text(x->ndim, x->shape, x_text), out_width);
out:
    return status;
}

/** y and, in training, what backward needs of a GELU. */
static ddp_status_t linear_outputs(ddp_tape_t *tape, const ddp_tensor_t *x, size_t out, ddp_act_t act,
                                   bool needs_grad, ddp_tensor_t **y_p, float **pre_activation_p)
{
    ddp_status_t status = DDP_OK;
    size_t       shape[DDP_MAX_DIMS];
    void        *memory = NULL;

    memcpy(shape, x->shape, sizeof(shape));
    shape[x->ndim - 1] = out;
    DDP_TRY(ddp_tape_new_tensor(tape, x->ndim, shape, needs_grad, y_p));
    if ((*y_p)->needs_grad && act != DDP_ACT_NONE && act != DDP_ACT_RELU) {
        DDP_TRY(ddp_tape_take(tape, (*y_p)->count * sizeof(float), &memory));
        *pre_activation_p = memory;
    }
out:
    return status;
}

static ddp_status_t linear(ddp_tape_t *tape, ddp_tensor_t *x, size_t weight, size_t bias, ddp_act_t act,
                           bool in_out, ddp_tensor_t *residual, ddp_tensor_t **y_p)
{
    ddp_status_t    status = DDP_OK;
    ddp_tensor_t   *y      = NULL;
    linear_node_t  *node   = NULL;
    ddp_node_t     *head   = NULL;
    size_t          out    = 0;
    const size_t    rows   = ddp_tensor_rows(x);
    ddp_gemm_args_t gemm   = {.transpose_b = !in_out,
                              .m           = rows,
                              .alpha       = 1.0F,
                              .a           = x->data,
                              .act         = act,
                              .precision   = tape->precision};

    DDP_TRY(check_linear(tape, x, weight, bias, in_out, &out));
    DDP_TRY(check_residual(x, out, residual));
    DDP_TRY(linear_outputs(tape, x, out, act,
                           ddp_tape_needs_grad(tape, x, weight, bias) ||
                               (residual != NULL && residual->needs_grad),
                           &y, &gemm.pre_activation));
    gemm.n    = out;
    gemm.k    = ddp_tensor_width(x);
    gemm.lda  = gemm.k;
    gemm.b    = ddp_params_value(tape->params, weight);
    gemm.ldb  = in_out ? out : gemm.k;
    gemm.c    = y->data;
    gemm.ldc  = out;
    gemm.add  = residual != NULL ? residual->data : NULL;
    gemm.bias = bias == DDP_NO_PARAM ? NULL : ddp_params_value(tape->params, bias);
    DDP_TRY(ddp_op_gemm(tape->stream, &gemm));
    DDP_TRY(ddp_tape_record(tape, linear_backward, sizeof(*node), y, weight, bias, &head));
    if (head != NULL) {
        node            = (linear_node_t *)head;
        node->x         = x;
        node->residual  = residual;
        node->rows      = rows;
        node->in        = gemm.k;
        node->out       = out;
        node->in_out    = in_out;
        node->act       = act;
        node->precision = tape->precision;
        node->saved     = gemm.pre_activation != NULL ? gemm.pre_activation : y->data;
    }
    *y_p = y;
out:
    return status;
}

ddp_status_t ddp_nn_linear(ddp_tape_t *tape, ddp_tensor_t *x, size_t weight, size_t bias, ddp_act_t act,
                           ddp_tensor_t **y_p)
{
    return linear(tape, x, weight, bias, act, false, NULL, y_p);
}

ddp_status_t ddp_nn_linear_in_out(ddp_tape_t *tape, ddp_tensor_t *x, size_t weight, size_t bias,
                                  ddp_act_t act, ddp_tensor_t **y_p)
{
    return linear(tape, x, weight, bias, act, true, NULL, y_p);
}

ddp_status_t ddp_nn_linear_add(ddp_tape_t *tape, ddp_tensor_t *x, size_t weight, size_t bias,
                               ddp_tensor_t *residual, ddp_tensor_t **y_p)
{
    return linear(tape, x, weight, bias, DDP_ACT_NONE, true, residual, y_p);
}
