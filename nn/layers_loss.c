#include "nn/layers.h"

#include "base/error.h"
#include "nn/tape_internal.h"

/** Memory for the sums and, where backward will want it, for the gradient of `x`. */
static ddp_status_t loss_memory(ddp_tape_t *tape, const ddp_tensor_t *x, ddp_loss_stats_t **stats_p,
                                float **grad_p)
{
    ddp_status_t status = DDP_OK;
    void        *memory = NULL;

    DDP_REQUIRE(tape->begun, DDP_ERR_STATE, "ddp_tape_begin() comes before any layer");
    DDP_TRY(ddp_tape_keep(tape, sizeof(**stats_p), &memory));
    *stats_p = memory;
    *grad_p  = NULL;
    if (x->needs_grad) {
        DDP_TRY(ddp_tape_new_grad(tape, x, grad_p));
    }
out:
    return status;
}

ddp_status_t ddp_nn_cross_entropy(ddp_tape_t *tape, ddp_tensor_t *logits, const int32_t *labels,
                                  const float *weights, int32_t ignore_index, ddp_loss_stats_t **stats_p)
{
    ddp_status_t             status = DDP_OK;
    ddp_cross_entropy_args_t args   = {.logits       = logits->data,
                                       .labels       = labels,
                                       .weights      = weights,
                                       .rows         = ddp_tensor_rows(logits),
                                       .classes      = ddp_tensor_width(logits),
                                       .ignore_index = ignore_index};

    DDP_TRY(loss_memory(tape, logits, &args.stats, &args.dlogits));
    DDP_TRY(ddp_op_cross_entropy(tape->stream, &args));
    ddp_tape_set_loss(tape, logits, args.dlogits);
    *stats_p = args.stats;
out:
    return status;
}

ddp_status_t ddp_nn_mse(ddp_tape_t *tape, ddp_tensor_t *y, const float *target, const float *weights,
                        ddp_loss_stats_t **stats_p)
{
    ddp_status_t   status = DDP_OK;
    ddp_mse_args_t args   = {
          .y = y->data, .target = target, .weights = weights, .rows = y->shape[0], .width = 1};

    for (size_t i = 1; i < y->ndim; i++) {
        args.width *= y->shape[i];
    }
    DDP_TRY(loss_memory(tape, y, &args.stats, &args.dy));
    DDP_TRY(ddp_op_mse(tape->stream, &args));
    ddp_tape_set_loss(tape, y, args.dy);
    *stats_p = args.stats;
out:
    return status;
}
