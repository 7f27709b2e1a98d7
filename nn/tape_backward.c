/* Backward: the tape in reverse, where gradients go, and when a parameter's is final. */
#include "nn/tape_internal.h"

#include <assert.h>
#include <string.h>

#include "base/error.h"

ddp_status_t ddp_tape_grad_target(ddp_tape_t *tape, ddp_tensor_t *x, float **grad_p, bool *accumulate_p)
{
    ddp_status_t status = DDP_OK;

    if (!x->has_grad) {
        DDP_TRY(ddp_tape_new_grad(tape, x, &x->grad));
    }
    *grad_p       = x->grad;
    *accumulate_p = x->has_grad;
    x->has_grad   = true;
out:
    return status;
}

ddp_status_t ddp_tape_give_grad(ddp_tape_t *tape, ddp_tensor_t *x, float *grad, bool may_take)
{
    ddp_status_t status     = DDP_OK;
    float       *target     = NULL;
    bool         accumulate = false;

    if (!x->needs_grad) {
        return DDP_OK;
    }
    if (!x->has_grad && may_take) {
        assert(tape->running->y->grad == grad);
        tape->running->y->grad = NULL; /* x gives it back */
        x->grad                = grad;
        x->has_grad            = true;
        return DDP_OK;
    }
    DDP_TRY(ddp_tape_grad_target(tape, x, &target, &accumulate));
    if (accumulate) {
        DDP_TRY(ddp_op_axpy(tape->stream, 1.0F, grad, target, x->count));
    } else {
        DDP_TRY(ddp_stream_copy(tape->stream, target, grad, x->count * sizeof(float)));
    }
out:
    return status;
}

float *ddp_tape_param_grad(ddp_tape_t *tape, size_t index, bool *accumulate_p)
{
    *accumulate_p = false;
    if (!ddp_tape_is_trained(tape, index)) {
        return NULL;
    }
    *accumulate_p        = tape->begin.accumulate_grads || tape->written[index] != 0;
    tape->written[index] = 1;
    return ddp_params_grad(tape->params, index);
}

/** One use of a parameter lies behind us. After the last one its gradient is final. */
static ddp_status_t pass_use(ddp_tape_t *tape, size_t index)
{
    ddp_status_t status     = DDP_OK;
    float       *grad       = NULL;
    bool         accumulate = false;

    if (!ddp_tape_is_trained(tape, index) || --tape->left[index] > 0) {
        return DDP_OK;
    }
    if (tape->written[index] == 0) { /* used, but the loss does not depend on it */
        grad = ddp_tape_param_grad(tape, index, &accumulate);
        if (!accumulate) {
            DDP_TRY(ddp_op_fill(tape->stream, grad, ddp_params_descs(tape->params)[index].count, 0.0F));
        }
    }
    if (tape->ready != NULL) {
        DDP_TRY(tape->ready(tape->ready_ctx, index));
    }
out:
    return status;
}

/* Nothing reads the node's result, its gradient or what it kept after what is submitted by now. */
static void give_back(ddp_tape_t *tape, ddp_node_t *node)
{
    ddp_tensor_t *y = node->y;

    if (y->grad != NULL) {
        ddp_tape_give(tape, y->grad, y->count * sizeof(float));
        y->grad = NULL;
    }
    ddp_tape_give_pieces(tape, &node->pieces);
}

ddp_status_t ddp_tape_run_back(ddp_tape_t *tape, ddp_node_t *last)
{
    ddp_status_t status = DDP_OK;
    ddp_node_t  *outer  = tape->running;

    for (ddp_node_t *node = last; node != NULL; node = node->previous) {
        tape->running = node;
        if (node->y->has_grad || node->runs_always) {
            DDP_TRY(node->backward(tape, node));
        }
        give_back(tape, node);
        DDP_TRY(pass_use(tape, node->bias));
        DDP_TRY(pass_use(tape, node->weight));
    }
out:
    tape->running = outer;
    return status;
}

/* Forward wrote their statistics, and nothing reads a running average in training. */
static ddp_status_t averages_ready(ddp_tape_t *tape)
{
    ddp_status_t             status = DDP_OK;
    const ddp_tensor_desc_t *descs  = ddp_params_descs(tape->params);

    for (size_t i = tape->n_params; i-- > 0 && tape->ready != NULL;) {
        if (descs[i].role == DDP_TENSOR_AVERAGE && tape->uses[i] > 0) {
            DDP_TRY(tape->ready(tape->ready_ctx, i));
        }
    }
out:
    return status;
}

static bool any_used(const ddp_tape_t *tape)
{
    for (size_t i = 0; i < tape->n_params; i++) {
        if (tape->uses[i] > 0) {
            return true;
        }
    }
    return false;
}

/* Once for each micro-batch: a second backward would start from overwritten gradients. */
static ddp_status_t check_backward(const ddp_tape_t *tape)
{
    ddp_status_t status = DDP_OK;

    DDP_REQUIRE(tape->begun && tape->begin.training, DDP_ERR_STATE,
                "backward needs a ddp_tape_begin() with training = true");
    DDP_REQUIRE(!tape->went_back, DDP_ERR_STATE, "backward ran already since ddp_tape_begin()");
    DDP_REQUIRE(!any_used(tape) || ddp_params_grad(tape->params, 0) != NULL, DDP_ERR_STATE,
                "no memory is bound for the parameters' gradients");
out:
    return status;
}

/* `grad`, memory of the tape, is the gradient with respect to `output`. */
static ddp_status_t go_back(ddp_tape_t *tape, ddp_tensor_t *output, float *grad)
{
    ddp_status_t status = DDP_OK;

    tape->went_back = true;
    memcpy(tape->left, tape->uses, tape->n_params * sizeof(*tape->left));
    if (output->needs_grad) {
        output->grad     = grad;
        output->has_grad = true;
    }
    DDP_TRY(averages_ready(tape));
    DDP_TRY(ddp_tape_run_back(tape, tape->last));
out:
    return status;
}

ddp_status_t ddp_tape_backward(ddp_tape_t *tape)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(check_backward(tape));
    DDP_REQUIRE(tape->loss_input != NULL, DDP_ERR_STATE, "backward needs a loss since ddp_tape_begin()");
    if (tape->loss_scale != 1.0F && !tape->is_loss_scaled && tape->loss_input->needs_grad) {
        DDP_TRY(ddp_op_scale(tape->stream, tape->loss_scale, tape->loss_grad, tape->loss_input->count));
    }
    DDP_TRY(go_back(tape, tape->loss_input, tape->loss_grad));
out:
    return status;
}

ddp_status_t ddp_tape_backward_from(ddp_tape_t *tape, ddp_tensor_t *output, const float *grad)
{
    ddp_status_t status = DDP_OK;
    float       *own    = NULL;

    DDP_REQUIRE(output != NULL && (grad != NULL || output->count == 0), DDP_ERR_INVALID_ARG,
                "backward from an output needs that output and its gradient");
    DDP_TRY(check_backward(tape));
    DDP_REQUIRE(tape->loss_input == NULL, DDP_ERR_STATE,
                "backward from an output: a loss was taken since ddp_tape_begin()");
    DDP_REQUIRE(ddp_arena_has(&tape->host, output), DDP_ERR_INVALID_ARG,
                "backward from an output: it is a tensor of another tape");
    DDP_REQUIRE(output->needs_grad, DDP_ERR_INVALID_ARG,
                "backward from an output: it needs no gradient; nothing before it is trained");
    /* Layers write to the gradients they get, and hand the memory on. */
    DDP_TRY(ddp_tape_new_grad(tape, output, &own));
    DDP_TRY(ddp_stream_copy(tape->stream, own, grad, output->count * sizeof(float)));
    DDP_TRY(go_back(tape, output, own));
out:
    return status;
}
