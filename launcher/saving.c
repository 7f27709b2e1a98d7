/* When a run saves, and what it says about it. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "kernels/ranges.h"
#include "launcher/run.h"

#define MOST_FAILED 3 /* saves in a row */
#define DRAIN_MS    60000

bool ddp_checkpoints_wanted(const ddp_run_t *run)
{
    const ddp_config_t *config = &run->config;

    return strcmp(run->options->command, "train") == 0 && run->bench == NULL &&
           (config->checkpoint.every_steps > 0 || config->checkpoint.every_epochs > 0);
}

/* Rank 0 must not wait for its threads then, whatever they are. */
static ddp_status_t note_held(ddp_run_t *run, ddp_status_t status)
{
    run->checkpoints.is_held = status == DDP_ERR_TIMEOUT && ddp_comm_rank(run->comm) == 0;
    return status;
}

static void watch_outline(void *ctx, bool begins)
{
    if (begins) {
        ddp_run_watch_disk(ctx,
                           "making the outline of a checkpoint (DDPTRAIN_TMP, else /dev/shm, TMPDIR, /tmp)");
    } else {
        ddp_run_watch_end(ctx);
    }
}

ddp_status_t ddp_checkpoints_create(ddp_run_t *run)
{
    ddp_status_t       status = DDP_OK;
    ddp_saver_params_t params = DDP_SAVER_PARAMS_INIT;
    char               folder[DDP_RUN_FOLDER_SIZE + 64];

    if (!ddp_checkpoints_wanted(run)) {
        return DDP_OK;
    }
    snprintf(folder, sizeof(folder), "%s/checkpoints", run->folder);
    params.comm       = run->comm;
    params.reducer    = run->reducer;
    params.tensors    = ddp_params_descs(run->params);
    params.n_tensors  = ddp_params_count(run->params);
    params.folder     = folder;
    params.keep       = (size_t)run->config.checkpoint.keep;
    params.timeout_ms = (int)(run->config.checkpoint.timeout_s * 1000);
    if (run->gpus != NULL && run->config.ddp.backend == (int)DDP_REDUCER_NCCL) { /* from where the state is */
        params.memory = ddp_device_host_allocator(run->device);
    }
    params.at_disk     = watch_outline;
    params.at_disk_ctx = run;
    DDP_TRY(note_held(run, ddp_saver_create(&params, &run->checkpoints.saver)));
out:
    return status;
}

/* Rank 0: one line and one event for each save that came to its end. */
static void tell_results(ddp_run_t *run)
{
    ddp_checkpoints_t *c = &run->checkpoints;
    ddp_save_result_t  result;

    while (ddp_saver_poll(c->saver, &result)) {
        c->failed = result.is_saved ? 0 : c->failed + 1;
        ddp_progress_clear(&run->progress);
        if (result.is_saved) {
            c->best_loss = result.best_loss;
            memcpy(c->last_path, result.path, sizeof(c->last_path));
            ddp_watch_saved(run, c->last_path);
            ddp_log(DDP_LOG_DEBUG, "checkpoint %s, %.1f MB", result.path, (double)result.bytes / 1e6);
        } else {
            ddp_log(DDP_LOG_WARN, "checkpoint of step %" PRIu64 " is not saved: %s", result.step, result.why);
        }
        ddp_event_checkpoint(run, &result);
    }
}

/* Rank 0's count decides for all. */
static ddp_status_t check_failed(ddp_run_t *run, int most)
{
    ddp_status_t status = DDP_OK;

    if (ddp_comm_rank(run->comm) == 0) {
        tell_results(run);
        if (run->checkpoints.failed >= most) {
            status = ddp_fail(DDP_ERR_IO,
                              most > 1 ? "%d checkpoints in a row could not be saved"
                                       : "the last checkpoint could not be saved",
                              run->checkpoints.failed);
        }
    }
    return ddp_comm_agree(run->comm, status);
}

/* Rank 0: the validation after these steps is the best of all that were saved. NaN is none. */
static bool is_best(const ddp_checkpoints_t *c, uint64_t done)
{
    return c->loss_step == done && !isnan(c->loss) && !(c->loss >= c->best_loss);
}

static ddp_status_t begin(ddp_run_t *run, uint64_t done)
{
    ddp_status_t               status  = DDP_OK;
    ddp_checkpoints_t         *c       = &run->checkpoints;
    const ddp_batch_range_t    next    = ddp_run_batch(run, done);
    const ddp_optim_config_t   optim   = ddp_run_reducer_params(run).optim;
    const bool                 is_mine = ddp_comm_rank(run->comm) == 0;
    const bool                 best    = is_best(c, done);
    char                      *yaml    = is_mine ? ddp_config_dump(&run->config, false) : NULL;
    char                       data[DDP_DATA_TEXT_SIZE];
    char                       kind[16];
    const bool                 scaled = run->config.train.precision == (int)DDP_PRECISION_FP16;
    const ddp_loss_scale_t     scale  = ddp_reducer_loss_scale(run->reducer);
    const ddp_training_state_t state  = {
         .step             = done,
         .epoch            = next.epoch,
         .samples_seen     = next.epoch * run->data.samples + next.first,
         .seed             = run->config.train.seed,
         .micro_batches    = ddp_config_micro_batches(&run->config),
         .isa              = ddp_run_arithmetic(run),
         .optimizer        = kind,
         .n_slots          = ddp_optim_slots(&optim),
         .slot             = {ddp_optim_slot_name(&optim, 0), ddp_optim_slot_name(&optim, 1)},
         .data             = data,
         .config           = yaml != NULL ? yaml : "",
         .producer         = "ddptrain " DDP_VERSION,
         .best_loss        = best ? c->loss : c->best_loss,
         .loss_scale       = scaled ? (double)scale.scale : 0,
         .loss_scale_steps = scaled ? scale.steps : 0};

    ddp_watch_at(run, done, DDP_STAGE_SAVE);
    status = is_mine && yaml == NULL ? ddp_fail(DDP_ERR_NO_MEMORY, "no memory for a checkpoint") : DDP_OK;
    DDP_TRY(ddp_comm_agree(run->comm, status));
    ddp_config_value(&run->config, ddp_config_find("optimizer", "kind"), kind, sizeof(kind));
    ddp_data_fingerprint(run, data);
    DDP_TRY(ddp_reducer_finish(run->reducer));
    DDP_TRY(ddp_saver_save(c->saver, &state, best));
out:
    free(yaml);
    return status;
}

/* What became of the save before is known first: the best is the best of what was saved. */
static ddp_status_t save(ddp_run_t *run, uint64_t done)
{
    ddp_status_t status = DDP_OK;

    ddp_range_open("save", (int64_t)done);
    DDP_TRY(ddp_saver_settle(run->checkpoints.saver));
    DDP_TRY(check_failed(run, MOST_FAILED));
    DDP_TRY(begin(run, done));
out:
    ddp_range_close();
    return status;
}

static bool is_due(const ddp_run_t *run, uint64_t done)
{
    const uint64_t steps = run->config.checkpoint.every_steps;
    const uint64_t epoch = run->config.checkpoint.every_epochs * run->steps_per_epoch;

    return (steps > 0 && done % steps == 0) || (epoch > 0 && done % epoch == 0);
}

ddp_status_t ddp_checkpoints_step(ddp_run_t *run, uint64_t done, double loss)
{
    ddp_status_t       status = DDP_OK;
    ddp_checkpoints_t *c      = &run->checkpoints;

    if (c->saver == NULL) {
        return DDP_OK;
    }
    if (!isnan(loss)) {
        c->loss      = loss;
        c->loss_step = done;
    }
    if (is_due(run, done) && done < run->total_steps) { /* the last one must not be left out */
        DDP_TRY(save(run, done));
    } else if (ddp_comm_rank(run->comm) == 0) {
        tell_results(run);
    }
out:
    return status;
}

ddp_status_t ddp_checkpoints_save_now(ddp_run_t *run, uint64_t done)
{
    ddp_status_t status = DDP_OK;
    ddp_saver_t *saver  = run->checkpoints.saver;

    if (saver == NULL) {
        return DDP_OK;
    }
    ddp_progress_clear(&run->progress); /* waits may warn */
    DDP_TRY(note_held(run, ddp_saver_finish(saver)));
    if (ddp_saver_last(saver) != done && done > run->checkpoints.first_step) {
        DDP_TRY(save(run, done));
        DDP_TRY(note_held(run, ddp_saver_finish(saver)));
    }
    DDP_TRY(check_failed(run, 1));
out:
    return status;
}

const char *ddp_checkpoints_drain(ddp_run_t *run)
{
    if (run->checkpoints.saver != NULL) {
        (void)ddp_saver_drain(run->checkpoints.saver, DRAIN_MS); /* else there is an older one */
        if (ddp_comm_rank(run->comm) == 0) {
            tell_results(run);
        }
    }
    return run->checkpoints.last_path;
}

void ddp_checkpoints_close(ddp_run_t *run)
{
    ddp_saver_destroy(&run->checkpoints.saver);
    ddp_checkpoint_close(&run->checkpoints.opened);
    if (run->checkpoints.lock_fd > 0) {
        (void)close(run->checkpoints.lock_fd);
        run->checkpoints.lock_fd = 0;
    }
}
