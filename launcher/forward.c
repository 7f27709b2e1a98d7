/* One micro-batch or evaluation chunk through the model, whatever kind of data it is. */
#include "base/error.h"
#include "launcher/run.h"

void ddp_run_set_tape(const ddp_run_t *run, ddp_tape_t *tape)
{
    ddp_tape_set_recompute(tape, run->config.train.recompute == DDP_RECOMPUTE_BLOCKS);
    ddp_tape_set_precision(tape, (ddp_precision_t)run->config.train.precision);
}

ddp_status_t ddp_run_loss(const ddp_run_t *run, ddp_model_t *model, ddp_tape_t *tape, const void *x,
                          const int32_t *y, size_t n, ddp_loss_stats_t **stats_p)
{
    ddp_status_t              status = DDP_OK;
    const ddp_dataset_info_t *info   = NULL;
    ddp_tensor_t             *images = NULL;
    ddp_tensor_t             *logits = NULL;
    size_t                    shape[4];

    if (run->data.context > 0) {
        return ddp_model_forward_tokens(model, tape, x, y, n, run->data.context, stats_p);
    }
    info     = ddp_dataset_info(run->train);
    shape[0] = n;
    shape[1] = info->height;
    shape[2] = info->width;
    shape[3] = info->channels;
    DDP_TRY(ddp_tape_input(tape, x, 4, shape, &images));
    DDP_TRY(ddp_model_forward(model, tape, images, &logits));
    DDP_TRY(ddp_nn_cross_entropy(tape, logits, y, NULL, DDP_RUN_NO_LABEL, stats_p));
out:
    return status;
}
