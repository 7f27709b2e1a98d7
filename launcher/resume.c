/* Where a run goes on. Rank 0 looks, opens and decides; the others are told. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "io/weights.h"
#include "launcher/run.h"

#define PATH_SIZE (DDP_RUN_FOLDER_SIZE + 64)

/* What all ranks must know of rank 0's choice. */
typedef struct choice {
    uint8_t  is_found, is_init;
    uint64_t step, micro_batch;
    double   best_loss;
    double   loss_scale; /* 0: none */
    uint32_t loss_scale_steps;
} choice_t;

static bool is_requeued(void)
{
    const char *const names[] = {"DDPTRAIN_RESTART_COUNT", "SLURM_RESTART_COUNT"};

    for (size_t i = 0; i < 2; i++) {
        const char *text = getenv(names[i]);

        if (text != NULL && strtol(text, NULL, 10) >= 1) {
            return true;
        }
    }
    return false;
}

/* "runs/<model>-<data>" */
void ddp_run_base(const ddp_run_t *run, char *base, size_t size)
{
    char model[32];
    char data[32];

    ddp_config_value(&run->config, ddp_config_find("model", "kind"), model, sizeof(model));
    ddp_config_value(&run->config, ddp_config_find("data", "kind"), data, sizeof(data));
    snprintf(base, size, "runs/%s-%s", model, data);
}

/* ddp_run_folder_fn_t: a folder whose run had this model and these data. */
static bool is_same_work(void *ctx, const char *folder)
{
    const ddp_run_t *run = ctx;
    ddp_config_t     saved;
    char             path[PATH_SIZE];
    char             mine[DDP_CONFIG_TEXT_SIZE];
    char             its[DDP_CONFIG_TEXT_SIZE];

    snprintf(path, sizeof(path), "%s/config.yaml", folder);
    ddp_config_defaults(&saved);
    if (ddp_config_load(&saved, path) != DDP_OK) {
        ddp_error_clear(); /* no run's folder, or a run that never began */
        return false;
    }
    for (size_t i = 0; i < ddp_config_keys(); i++) {
        const char *section = ddp_config_section(i);

        if (strcmp(section, "model") != 0 && strcmp(section, "data") != 0) {
            continue;
        }
        ddp_config_value(&run->config, i, mine, sizeof(mine));
        ddp_config_value(&saved, i, its, sizeof(its));
        if (strcmp(mine, its) != 0) {
            return false;
        }
    }
    return true;
}

/* ddp_checkpoint_skipped_fn_t */
static void say_skipped(void *ctx, const char *path, const char *why)
{
    (void)ctx;
    ddp_log(DDP_LOG_WARN, "checkpoint %s is passed over: %s", path, why);
}

/* The folder to go on with, locked, in run->folder; "" if there is none yet. */
static ddp_status_t choose_folder(ddp_run_t *run, bool is_auto)
{
    ddp_status_t status = DDP_OK;
    const char  *out    = run->options->out;
    char         base[64];

    if (out != NULL && ddp_run_folder_exists(out)) {
        DDP_REQUIRE(strlen(out) < sizeof(run->folder), DDP_ERR_IO, "'%s': path too long", out);
        memcpy(run->folder, out, strlen(out) + 1);
    } else if (out == NULL && is_auto) {
        ddp_run_base(run, base, sizeof(base));
        ddp_run_folder_newest(base, is_same_work, run, run->folder, sizeof(run->folder));
    }
    if (run->folder[0] != '\0') {
        DDP_TRY(ddp_run_folder_lock(run->folder, &run->checkpoints.lock_fd));
    }
out:
    return status;
}

/* Checkpoints of later steps would be taken for newer ones. */
static ddp_status_t check_is_newest(const ddp_run_t *run)
{
    ddp_status_t   status = DDP_OK;
    const uint64_t step   = ddp_checkpoint_state(run->checkpoints.opened)->step;
    uint64_t      *steps  = NULL;
    size_t         n      = 0;
    char           path[PATH_SIZE];

    snprintf(path, sizeof(path), "%s/checkpoints", run->folder);
    DDP_TRY(ddp_checkpoint_list(path, &steps, &n));
    DDP_REQUIRE(n == 0 || steps[0] <= step, DDP_ERR_CONFIG,
                "--resume: step %" PRIu64 ", but '%s' holds step %" PRIu64 " already: choose another --out",
                step, path, steps[0]);
out:
    free(steps);
    return status;
}

static ddp_status_t open_auto(ddp_run_t *run)
{
    ddp_status_t status = DDP_OK;
    char         path[PATH_SIZE];

    DDP_TRY(choose_folder(run, true));
    if (run->folder[0] != '\0') {
        snprintf(path, sizeof(path), "%s/checkpoints", run->folder);
        DDP_TRY(ddp_checkpoint_open_newest(path, say_skipped, NULL, &run->checkpoints.opened));
    }
out:
    return status;
}

/* --resume FILE */
static ddp_status_t open_named(ddp_run_t *run)
{
    ddp_status_t       status = DDP_OK;
    const char        *path   = run->options->resume;
    ddp_checkpoints_t *c      = &run->checkpoints;

    DDP_TRY(ddp_checkpoint_open(path, &c->opened));
    DDP_TRY(ddp_checkpoint_check_run(c->opened, path, true));
    if (run->folder[0] == '\0') {
        DDP_TRY(choose_folder(run, false));
    }
    if (run->folder[0] != '\0') {
        DDP_TRY(check_is_newest(run));
    }
out:
    return status;
}

static ddp_status_t open_init(const char *path, ddp_checkpoint_t **checkpoint_p)
{
    const ddp_status_t status = ddp_checkpoint_open(path, checkpoint_p);
    ddp_weights_kind_t kind   = DDP_WEIGHTS_CHECKPOINT;

    if (status == DDP_ERR_FORMAT && ddp_weights_kind_of_ending(path, &kind) &&
        kind != DDP_WEIGHTS_CHECKPOINT) {
        ddp_error_prefix("--init takes checkpoints, and ddptrain convert makes one of such files");
    }
    return status;
}

/* A job that is started again has the command line of its first start: what it saved in --out goes on,
 * whatever file the run began with. */
static ddp_status_t open_checkpoint(ddp_run_t *run)
{
    ddp_status_t         status  = DDP_OK;
    const ddp_options_t *options = run->options;
    ddp_checkpoints_t   *c       = &run->checkpoints;
    const char          *file    = options->init != NULL ? options->init : options->resume;
    const bool           is_auto = file == NULL || (!c->is_init && strcmp(file, "auto") == 0);

    if (is_auto ? c->is_resumed : is_requeued() && options->out != NULL) {
        DDP_TRY(open_auto(run));
        if (c->opened != NULL && !is_auto) {
            c->is_init = false;
            ddp_log(DDP_LOG_INFO, "resume: started again: goes on in %s, not with '%s'", run->folder, file);
        } else if (c->opened == NULL && is_auto) {
            ddp_log(DDP_LOG_INFO, "resume: no checkpoint %s%s: the run begins anew",
                    run->folder[0] != '\0' ? "in " : "of this model and data", run->folder);
        }
    }
    if (c->opened == NULL && !is_auto) {
        DDP_TRY(c->is_init ? open_init(file, &c->opened) : open_named(run));
    }
out:
    return status;
}

/* Keys whose change would make another run of it. model.* shows in the tensors. */
static bool may_change(size_t i)
{
    static const char *const fixed[] = {"model.kind", "train.batch", "optimizer.kind", "data.kind"};
    char                     name[64];

    snprintf(name, sizeof(name), "%s.%s", ddp_config_section(i), ddp_config_name(i));
    for (size_t f = 0; f < sizeof(fixed) / sizeof(fixed[0]); f++) {
        if (strcmp(name, fixed[f]) == 0) {
            return false;
        }
    }
    return true;
}

/* Say what is different from the run that wrote the checkpoint. */
static ddp_status_t compare_config(ddp_run_t *run, choice_t *choice)
{
    ddp_status_t  status = DDP_OK;
    const size_t  micro  = ddp_config_find("train", "micro_batch");
    ddp_config_t  saved;
    char          was[DDP_CONFIG_TEXT_SIZE];
    char          is[DDP_CONFIG_TEXT_SIZE];
    ddp_config_t *config = &run->config;

    ddp_config_defaults(&saved);
    DDP_TRY(ddp_config_load_text(&saved, "the checkpoint's configuration",
                                 ddp_checkpoint_state(run->checkpoints.opened)->config));
    for (size_t i = 0; i < ddp_config_keys(); i++) {
        if (ddp_config_is_place(i)) {
            continue;
        }
        ddp_config_value(&saved, i, was, sizeof(was));
        ddp_config_value(config, i, is, sizeof(is));
        if (strcmp(was, is) == 0) {
            continue;
        }
        DDP_REQUIRE(
            may_change(i), DDP_ERR_CONFIG,
            "--resume: %s.%s was %s and cannot become %s; --init FILE takes the weights into a new run",
            ddp_config_section(i), ddp_config_name(i), was, is);
        ddp_log(DDP_LOG_INFO,
                i == micro ? "resume: %s.%s stays %s, not %s: it is part of the result"
                           : "resume: %s.%s was %s, is now %s",
                ddp_config_section(i), ddp_config_name(i), was, is);
    }
    choice->micro_batch = saved.train.micro_batch;
out:
    return status;
}

static ddp_status_t look(ddp_run_t *run, choice_t *choice)
{
    ddp_status_t       status = DDP_OK;
    ddp_checkpoints_t *c      = &run->checkpoints;

    choice->best_loss = NAN;
    DDP_TRY(open_checkpoint(run));
    choice->is_found = c->opened != NULL ? 1 : 0;
    choice->is_init  = c->is_init ? 1 : 0;
    if (c->opened != NULL && !c->is_init) {
        choice->step             = ddp_checkpoint_state(c->opened)->step;
        choice->best_loss        = ddp_checkpoint_state(c->opened)->best_loss;
        choice->loss_scale       = ddp_checkpoint_state(c->opened)->loss_scale;
        choice->loss_scale_steps = (uint32_t)ddp_checkpoint_state(c->opened)->loss_scale_steps;
        DDP_TRY(compare_config(run, choice));
    }
out:
    return status;
}

ddp_status_t ddp_checkpoints_find(ddp_run_t *run)
{
    ddp_status_t       status = DDP_OK;
    ddp_checkpoints_t *c      = &run->checkpoints;
    choice_t           choice = {0};

    c->is_init    = run->options->init != NULL;
    c->is_resumed = run->options->resume != NULL || (!c->is_init && is_requeued());
    if (ddp_comm_rank(run->comm) == 0) {
        status = look(run, &choice);
    }
    DDP_TRY(ddp_comm_agree(run->comm, status));
    DDP_TRY(ddp_comm_broadcast(run->comm, &choice, sizeof(choice), 0));
    c->is_found   = choice.is_found != 0;
    c->is_init    = choice.is_init != 0;
    c->first_step = choice.step;
    c->best_loss  = choice.best_loss;
    c->loss_scale = (ddp_loss_scale_t){(float)choice.loss_scale, choice.loss_scale_steps};
    if (choice.micro_batch > 0) {
        run->config.train.micro_batch = choice.micro_batch;
    }
out:
    return status;
}

/* Rank 0: what could not be known before the model and the data were there. */
static ddp_status_t check_content(ddp_run_t *run)
{
    ddp_status_t                status  = DDP_OK;
    const ddp_checkpoints_t    *c       = &run->checkpoints;
    const ddp_options_t        *options = run->options;
    const ddp_training_state_t *state   = NULL;
    char                        data[DDP_DATA_TEXT_SIZE];

    if (c->opened == NULL) {
        return DDP_OK;
    }
    state  = ddp_checkpoint_state(c->opened);
    status = ddp_checkpoint_check_model(c->opened, ddp_params_descs(run->params),
                                        ddp_params_count(run->params), options->allow, options->n_allow);
    if (status != DDP_OK) {
        ddp_error_prefix("'%s' is of another model", ddp_checkpoint_path(c->opened));
        return status;
    }
    ddp_data_fingerprint(run, data);
    if (!c->is_init && strcmp(data, state->data) != 0) {
        ddp_log(DDP_LOG_WARN, "resume: the training data were '%s', are now '%s'", state->data, data);
    }
    if (!c->is_init && strcmp(state->isa, ddp_run_arithmetic(run)) != 0) {
        ddp_log(DDP_LOG_WARN, "resume: computed with %s so far, now with %s: the last bits will differ",
                state->isa, ddp_run_arithmetic(run));
    }
    return status;
}

ddp_status_t ddp_checkpoints_restore(ddp_run_t *run)
{
    ddp_status_t       status = DDP_OK;
    ddp_checkpoints_t *c      = &run->checkpoints;

    if (!c->is_found) {
        return DDP_OK;
    }
    DDP_TRY(ddp_comm_agree(run->comm, check_content(run)));
    DDP_TRY(ddp_checkpoint_restore(run->comm, run->reducer, ddp_params_descs(run->params),
                                   ddp_params_count(run->params), c->opened, c->is_init));
    if (c->loss_scale.scale != 0) {
        DDP_TRY(ddp_comm_agree(run->comm, ddp_reducer_set_loss_scale(run->reducer, &c->loss_scale)));
    }
    if (run->dp != NULL) {
        ddp_dp_set_step(run->dp, c->first_step);
    } else {
        ddp_trainer_set_step(run->trainer, c->first_step);
    }
    if (ddp_comm_rank(run->comm) == 0 && !c->is_init) {
        ddp_log(DDP_LOG_INFO, "resume: goes on after step %" PRIu64 " of %" PRIu64, c->first_step,
                run->total_steps);
    }
    ddp_checkpoint_close(&c->opened);
out:
    return status;
}
