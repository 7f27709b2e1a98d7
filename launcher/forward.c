/* One micro-batch or evaluation chunk through the model, whatever kind of data it is. */
#include "base/error.h"
#include "launcher/run.h"

void ddp_run_set_tape(const ddp_run_t *run, ddp_tape_t *tape)
{
    ddp_tape_set_recompute(tape, run->config.train.recompute == DDP_RECOMPUTE_BLOCKS);
    ddp_tape_set_precision(tape, (ddp_precision_t)run->config.train.precision);
}

/* The label that counts nothing: of tokens the one that nn/model.h says. */
static int32_t ignored(const ddp_run_t *run)
{
    return run->data.context > 0 ? -1 : DDP_RUN_NO_LABEL;
}

/* With the loss inside of a replica, a gpt2's head and loss are one. */
static bool has_fused_head(const ddp_run_t *run)
{
    return run->data.context > 0 && run->config.dp.loss != (int)DDP_DP_LOSS_OUTSIDE;
}

static ddp_status_t run_pictures(const ddp_run_t *run, ddp_model_t *model, ddp_tape_t *tape, const void *x,
                                 size_t n, ddp_tensor_t **logits_p)
{
    ddp_status_t              status   = DDP_OK;
    const ddp_dataset_info_t *info     = ddp_dataset_info(run->train);
    const size_t              shape[4] = {n, info->height, info->width, info->channels};
    ddp_tensor_t             *images   = NULL;

    DDP_TRY(ddp_tape_input(tape, x, 4, shape, &images));
    DDP_TRY(ddp_model_forward(model, tape, images, logits_p));
out:
    return status;
}

ddp_status_t ddp_run_output(const ddp_run_t *run, ddp_model_t *model, ddp_tape_t *tape, const void *x,
                            size_t n, ddp_tensor_t **output_p)
{
    if (run->data.context == 0) {
        return run_pictures(run, model, tape, x, n, output_p);
    }
    return has_fused_head(run) ? ddp_model_hidden(model, tape, x, n, run->data.context, output_p)
                               : ddp_model_logits(model, tape, x, n, run->data.context, output_p);
}

ddp_status_t ddp_run_output_loss(const ddp_run_t *run, ddp_model_t *model, ddp_tape_t *tape,
                                 ddp_tensor_t *output, const int32_t *y, ddp_loss_stats_t **stats_p)
{
    return has_fused_head(run) ? ddp_model_head_loss(model, tape, output, y, stats_p)
                               : ddp_nn_cross_entropy(tape, output, y, NULL, ignored(run), stats_p);
}

/* Of a sample as the loaders have them: pixels, or one token after the other. */
static size_t sample_bytes(const ddp_run_t *run)
{
    const ddp_dataset_info_t *info = run->data.context > 0 ? NULL : ddp_dataset_info(run->train);

    return info == NULL ? run->data.context * sizeof(int32_t)
                        : info->height * info->width * info->channels * sizeof(float);
}

ddp_status_t ddp_run_loss(const ddp_run_t *run, ddp_model_t *model, ddp_tape_t *tape, const void *x,
                          const int32_t *y, size_t n, ddp_loss_stats_t **stats_p)
{
    ddp_status_t  status  = DDP_OK;
    const size_t  labels  = run->data.context > 0 ? n * run->data.context : n;
    const void   *targets = NULL;
    ddp_tensor_t *logits  = NULL;

    DDP_TRY(ddp_tape_upload(tape, x, n * sample_bytes(run), &x));
    DDP_TRY(ddp_tape_upload(tape, y, labels * sizeof(*y), &targets));
    if (run->data.context > 0) {
        DDP_TRY(ddp_model_forward_tokens(model, tape, x, targets, n, run->data.context, stats_p));
        goto out;
    }
    DDP_TRY(run_pictures(run, model, tape, x, n, &logits));
    DDP_TRY(ddp_nn_cross_entropy(tape, logits, targets, NULL, DDP_RUN_NO_LABEL, stats_p));
out:
    return status;
}
