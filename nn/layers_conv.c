#include "nn/layers.h"

#include "base/error.h"
#include "nn/tape_internal.h"

typedef struct conv2d_node {
    ddp_node_t         head;
    ddp_tensor_t      *x;
    ddp_conv2d_shape_t shape;
    ddp_act_t          act;
} conv2d_node_t;

static ddp_status_t conv2d_param_targets(ddp_tape_t *tape, const ddp_node_t *head,
                                         ddp_conv2d_backward_args_t *args)
{
    ddp_status_t             status          = DDP_OK;
    bool                     accumulate_bias = false;
    float                   *db              = NULL;
    const ddp_tensor_desc_t *bias            = NULL;

    args->dw = ddp_tape_param_grad(tape, head->weight, &args->accumulate_dw);
    if (!ddp_tape_is_trained(tape, head->bias)) {
        return DDP_OK;
    }
    db = ddp_tape_param_grad(tape, head->bias, &accumulate_bias);
    if (args->dw == NULL) {
        args->accumulate_dw = accumulate_bias;
    }
    if (accumulate_bias != args->accumulate_dw) { /* one of the two is shared with another layer, one not */
        bias = &ddp_params_descs(tape->params)[head->bias];
        if (!accumulate_bias) {
            DDP_TRY(ddp_op_fill(tape->stream, db, bias->count, 0.0F));
        } else {
            DDP_TRY(ddp_op_fill(tape->stream, args->dw, ddp_params_descs(tape->params)[head->weight].count,
                                0.0F));
        }
        args->accumulate_dw = true;
    }
    args->db = db;
out:
    return status;
}

static ddp_status_t conv2d_backward(ddp_tape_t *tape, ddp_node_t *head)
{
    ddp_status_t            status = DDP_OK;
    conv2d_node_t          *node   = (conv2d_node_t *)head;
    float                  *dy     = head->y->grad;
    ddp_act_backward_args_t act    = {
           .act = node->act, .saved = head->y->data, .dy = dy, .dx = dy, .count = head->y->count};
    ddp_conv2d_backward_args_t args = {.shape = node->shape,
                                       .x     = node->x->data,
                                       .w     = ddp_params_value(tape->params, head->weight),
                                       .dy    = dy};

    if (node->act != DDP_ACT_NONE) {
        DDP_TRY(ddp_op_act_backward(tape->stream, &act));
    }
    DDP_TRY(ddp_tape_scratch(tape, ddp_conv2d_scratch_bytes(ddp_stream_device(tape->stream), &node->shape),
                             &args.scratch));
    if (node->x->needs_grad) {
        DDP_TRY(ddp_tape_grad_target(tape, node->x, &args.dx, &args.accumulate_dx));
    }
    DDP_TRY(conv2d_param_targets(tape, head, &args));
    /* One call for both gradients, so that what they share is prepared once; it does the input's first. */
    DDP_TRY(ddp_op_conv2d_backward(tape->stream, &args));
out:
    return status;
}

static ddp_status_t check_conv2d(const ddp_tape_t *tape, const ddp_tensor_t *x, size_t weight, size_t bias,
                                 ddp_act_t act, ddp_conv2d_shape_t *shape)
{
    ddp_status_t             status = DDP_OK;
    const ddp_tensor_desc_t *w      = NULL;
    const ddp_tensor_desc_t *b      = NULL;
    char                     x_text[DDP_SHAPE_TEXT_SIZE];
    char                     p_text[DDP_SHAPE_TEXT_SIZE];

    DDP_TRY(ddp_tape_param(tape, "conv2d", weight, &w));
    DDP_REQUIRE(act == DDP_ACT_NONE || act == DDP_ACT_RELU, DDP_ERR_INVALID_ARG,
                "conv2d: activation %d; only none and relu are fused, use ddp_nn_act() for others", (int)act);
    DDP_REQUIRE(
        x->ndim == 4 && w->ndim == 4 && w->shape[1] == x->shape[3], DDP_ERR_INVALID_ARG,
        "conv2d: weight '%s' %s (out, in, height, width) does not fit images of %s (n, height, width, "
        "channels)",
        w->name, ddp_shape_text(w->ndim, w->shape, p_text), ddp_shape_text(x->ndim, x->shape, x_text));
    if (bias != DDP_NO_PARAM) {
        DDP_TRY(ddp_tape_param(tape, "conv2d", bias, &b));
        DDP_REQUIRE(b->count == w->shape[0], DDP_ERR_INVALID_ARG,
                    "conv2d: bias '%s' %s does not fit weight '%s' %s", b->name,
                    ddp_shape_text(b->ndim, b->shape, x_text), w->name,
                    ddp_shape_text(w->ndim, w->shape, p_text));
    }
    shape->n        = x->shape[0];
    shape->in_h     = x->shape[1];
    shape->in_w     = x->shape[2];
    shape->in_c     = x->shape[3];
    shape->out_c    = w->shape[0];
    shape->kernel_h = w->shape[2];
    shape->kernel_w = w->shape[3];
    DDP_TRY(ddp_conv2d_shape_fill(shape));
out:
    return status;
}

ddp_status_t ddp_nn_conv2d(ddp_tape_t *tape, ddp_tensor_t *x, size_t weight, size_t bias, size_t stride,
                           size_t pad, ddp_act_t act, ddp_tensor_t **y_p)
{
    ddp_status_t      status = DDP_OK;
    ddp_tensor_t     *y      = NULL;
    conv2d_node_t    *node   = NULL;
    ddp_node_t       *head   = NULL;
    ddp_conv2d_args_t args   = {
          .shape = {.stride = stride, .pad = pad, .algo = tape->conv, .precision = tape->precision},
          .x     = x->data,
          .act   = act};
    size_t y_shape[4];

    DDP_TRY(check_conv2d(tape, x, weight, bias, act, &args.shape));
    y_shape[0] = args.shape.n;
    y_shape[1] = args.shape.out_h;
    y_shape[2] = args.shape.out_w;
    y_shape[3] = args.shape.out_c;
    DDP_TRY(ddp_tape_new_tensor(tape, 4, y_shape, ddp_tape_needs_grad(tape, x, weight, bias), &y));
    DDP_TRY(ddp_tape_scratch(tape, ddp_conv2d_scratch_bytes(ddp_stream_device(tape->stream), &args.shape),
                             &args.scratch));
    args.w    = ddp_params_value(tape->params, weight);
    args.bias = bias == DDP_NO_PARAM ? NULL : ddp_params_value(tape->params, bias);
    args.y    = y->data;
    DDP_TRY(ddp_op_conv2d(tape->stream, &args));
    DDP_TRY(ddp_tape_record(tape, conv2d_backward, sizeof(*node), y, weight, bias, &head));
    if (head != NULL) {
        node        = (conv2d_node_t *)head;
        node->x     = x;
        node->shape = args.shape;
        node->act   = act;
    }
    *y_p = y;
out:
    return status;
}
