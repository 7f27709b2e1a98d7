#include "nn/layers.h"

#include "base/error.h"
#include "kernels/ops_norm.h"
#include "nn/tape_internal.h"

typedef struct pool2d_node {
    ddp_node_t        head;
    ddp_tensor_t     *x;
    ddp_pool2d_args_t args;
} pool2d_node_t;

static ddp_status_t pool2d_backward(ddp_tape_t *tape, ddp_node_t *head)
{
    ddp_status_t               status = DDP_OK;
    pool2d_node_t             *node   = (pool2d_node_t *)head;
    ddp_pool2d_backward_args_t args   = {.forward = node->args, .dy = head->y->grad};

    DDP_TRY(ddp_tape_grad_target(tape, node->x, &args.dx, &args.accumulate));
    DDP_TRY(ddp_op_pool2d_backward(tape->stream, &args));
out:
    return status;
}

static ddp_status_t pool2d_geometry(const ddp_tensor_t *x, ddp_pool2d_args_t *args)
{
    ddp_status_t status = DDP_OK;
    char         text[DDP_SHAPE_TEXT_SIZE];

    ddp_shape_text(x->ndim, x->shape, text);
    DDP_REQUIRE(x->ndim == 4, DDP_ERR_INVALID_ARG,
                "pool2d: an input of %s is not images (n, height, width, channels)", text);
    args->n    = x->shape[0];
    args->in_h = x->shape[1];
    args->in_w = x->shape[2];
    args->c    = x->shape[3];
    DDP_REQUIRE(
        args->kernel > 0 && args->stride > 0 && args->pad <= args->kernel / 2, DDP_ERR_INVALID_ARG,
        "pool2d: kernel %zu, stride %zu, pad %zu; kernel and stride are > 0, pad at most half a kernel",
        args->kernel, args->stride, args->pad);
    DDP_REQUIRE(args->kernel <= args->in_h + 2 * args->pad && args->kernel <= args->in_w + 2 * args->pad,
                DDP_ERR_INVALID_ARG, "pool2d: kernel %zu is larger than images of %s with pad %zu",
                args->kernel, text, args->pad);
    args->out_h = (args->in_h + 2 * args->pad - args->kernel) / args->stride + 1;
    args->out_w = (args->in_w + 2 * args->pad - args->kernel) / args->stride + 1;
out:
    return status;
}

static ddp_status_t pool2d(ddp_tape_t *tape, ddp_tensor_t *x, ddp_pool2d_args_t *args, ddp_tensor_t **y_p)
{
    ddp_status_t   status = DDP_OK;
    ddp_tensor_t  *y      = NULL;
    pool2d_node_t *node   = NULL;
    ddp_node_t    *head   = NULL;
    void          *index  = NULL;
    size_t         shape[4];

    DDP_TRY(pool2d_geometry(x, args));
    shape[0] = args->n;
    shape[1] = args->out_h;
    shape[2] = args->out_w;
    shape[3] = args->c;
    DDP_TRY(ddp_tape_new_tensor(tape, 4, shape, x->needs_grad, &y));
    if (args->is_max) {
        DDP_TRY(ddp_tape_take(tape, y->count, &index));
    }
    args->x     = x->data;
    args->y     = y->data;
    args->index = index;
    DDP_TRY(ddp_op_pool2d(tape->stream, args));
    DDP_TRY(ddp_tape_record(tape, pool2d_backward, sizeof(*node), y, DDP_NO_PARAM, DDP_NO_PARAM, &head));
    if (head != NULL) {
        node       = (pool2d_node_t *)head;
        node->x    = x;
        node->args = *args;
    }
    *y_p = y;
out:
    return status;
}

ddp_status_t ddp_nn_max_pool2d(ddp_tape_t *tape, ddp_tensor_t *x, size_t kernel, size_t stride, size_t pad,
                               ddp_tensor_t **y_p)
{
    ddp_pool2d_args_t args = {.is_max = true, .kernel = kernel, .stride = stride, .pad = pad};

    return pool2d(tape, x, &args, y_p);
}

ddp_status_t ddp_nn_avg_pool2d(ddp_tape_t *tape, ddp_tensor_t *x, size_t kernel, size_t stride, size_t pad,
                               ddp_tensor_t **y_p)
{
    ddp_pool2d_args_t args = {.is_max = false, .kernel = kernel, .stride = stride, .pad = pad};

    return pool2d(tape, x, &args, y_p);
}

typedef struct global_node {
    ddp_node_t    head;
    ddp_tensor_t *x;
    size_t        pixels;
} global_node_t;

static ddp_status_t global_backward(ddp_tape_t *tape, ddp_node_t *head)
{
    ddp_status_t                        status = DDP_OK;
    global_node_t                      *node   = (global_node_t *)head;
    ddp_global_avg_pool_backward_args_t args   = {
          .dy = head->y->grad, .n = head->y->shape[0], .pixels = node->pixels, .c = head->y->shape[1]};

    DDP_TRY(ddp_tape_grad_target(tape, node->x, &args.dx, &args.accumulate));
    DDP_TRY(ddp_op_global_avg_pool_backward(tape->stream, &args));
out:
    return status;
}

ddp_status_t ddp_nn_global_avg_pool(ddp_tape_t *tape, ddp_tensor_t *x, ddp_tensor_t **y_p)
{
    ddp_status_t               status = DDP_OK;
    ddp_tensor_t              *y      = NULL;
    ddp_node_t                *head   = NULL;
    ddp_global_avg_pool_args_t args   = {.x = x->data};
    size_t                     shape[2];
    char                       text[DDP_SHAPE_TEXT_SIZE];

    DDP_REQUIRE(x->ndim == 4, DDP_ERR_INVALID_ARG,
                "global average pool: an input of %s is not images (n, height, width, channels)",
                ddp_shape_text(x->ndim, x->shape, text));
    args.n      = x->shape[0];
    args.pixels = x->shape[1] * x->shape[2];
    args.c      = x->shape[3];
    shape[0]    = args.n;
    shape[1]    = args.c;
    DDP_TRY(ddp_tape_new_tensor(tape, 2, shape, x->needs_grad, &y));
    args.y = y->data;
    DDP_TRY(ddp_op_global_avg_pool(tape->stream, &args));
    DDP_TRY(
        ddp_tape_record(tape, global_backward, sizeof(global_node_t), y, DDP_NO_PARAM, DDP_NO_PARAM, &head));
    if (head != NULL) {
        ((global_node_t *)head)->x      = x;
        ((global_node_t *)head)->pixels = args.pixels;
    }
    *y_p = y;
out:
    return status;
}
