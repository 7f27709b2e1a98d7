#include "launcher/run.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fault.h"
#include "base/log.h"
#include "launcher/build.h"
#include "launcher/cores.h"

ddp_status_t ddp_run_shared(const ddp_run_t *run, const char *label, size_t bytes, void **memory_p)
{
    ddp_status_t status = ddp_comm_shared(run->comm, label, bytes, memory_p);

    if (status == DDP_OK) {
        status = ddp_fault("run_shared", ddp_comm_rank(run->comm));
    }
    return ddp_comm_agree(run->comm, status);
}

ddp_status_t ddp_run_connect(ddp_run_t *run)
{
    ddp_status_t      status = DDP_OK;
    ddp_comm_params_t params = DDP_COMM_PARAMS_INIT;
    void             *spoken = NULL;

    params.parent     = MPI_COMM_WORLD;
    params.timeout_ms = (int)(run->config.ddp.timeout_s * 1000);
    params.exchange   = run->config.ddp.exchange;
    ddp_watchdog_arm(run->watchdog, "MPI_Comm_dup", run->watchdog_ms);
    status = ddp_comm_create(&params, &run->comm);
    ddp_watchdog_disarm(run->watchdog);
    DDP_TRY(status);
    if (ddp_comm_size(run->comm) > 1) {
        ddp_log_set_identity(ddp_comm_rank(run->comm), ddp_comm_host(run->comm, ddp_comm_rank(run->comm)));
    }
    DDP_TRY(ddp_run_shared(run, "the end of the run", sizeof(*run->spoken), &spoken));
    run->spoken = spoken;
out:
    return status;
}

/* Two builds may not even have the same keys, so this is asked first. */
static ddp_status_t check_build(ddp_run_t *run)
{
    char              text[DDP_BUILD_TEXT];
    const ddp_field_t field  = {.name = "ddptrain", .value = text};
    ddp_status_t      status = DDP_OK;

    ddp_build_text(text);
    status = ddp_comm_check_equal(run->comm, &field, 1);
    if (status == DDP_ERR_MISMATCH) {
        status = ddp_fail(DDP_ERR_CONFIG, "%s: put the same program on all hosts", ddp_error_line());
    }
    return status;
}

/* All ranks read their own command line and file: say which key differs where. */
static ddp_status_t check_config(ddp_run_t *run)
{
    ddp_status_t status                 = DDP_OK;
    const size_t n                      = ddp_config_keys();
    ddp_field_t *fields                 = calloc(n + 5, sizeof(*fields));
    char(*names)[64]                    = calloc(n, sizeof(*names));
    char(*values)[DDP_CONFIG_TEXT_SIZE] = calloc(n, sizeof(*values));

    if (fields == NULL || names == NULL || values == NULL) {
        status = ddp_fail(DDP_ERR_NO_MEMORY, "no memory to compare the configuration");
    }
    DDP_TRY(ddp_comm_agree(run->comm, status));
    for (size_t i = 0; i < n; i++) {
        snprintf(names[i], sizeof(names[i]), "%s.%s", ddp_config_section(i), ddp_config_name(i));
        ddp_config_value(&run->config, i, values[i], sizeof(values[i]));
        fields[i] = (ddp_field_t){.name = names[i], .value = values[i]};
    }
    fields[n] = (ddp_field_t){.name = "--dry-run", .value = run->options->dry_run ? "on" : "off"};
    fields[n + 1] =
        (ddp_field_t){.name = "--out", .value = run->options->out != NULL ? run->options->out : "(none)"};
    fields[n + 2] = (ddp_field_t){.name = "command", .value = run->options->command};
    fields[n + 3] = (ddp_field_t){.name  = "--resume",
                                  .value = run->options->resume != NULL ? run->options->resume : "(none)"};
    fields[n + 4] =
        (ddp_field_t){.name = "--init", .value = run->options->init != NULL ? run->options->init : "(none)"};
    status = ddp_comm_check_equal(run->comm, fields, n + 5);
    if (status == DDP_ERR_MISMATCH) {
        status = ddp_fail(DDP_ERR_CONFIG, "%s", ddp_error_line());
    }
out:
    free(fields);
    free(names);
    free(values);
    return status;
}

static void say_choices(const ddp_run_t *run)
{
    char text[DDP_CONFIG_TEXT_SIZE + 128];

    if (ddp_comm_rank(run->comm) != 0) {
        return;
    }
    for (size_t i = 0; i < ddp_config_keys(); i++) {
        if (ddp_config_no_effect(&run->config, i, text, sizeof(text))) {
            ddp_log(DDP_LOG_WARN, "%s", text);
        }
    }
    if (run->is_data_chosen && run->config.data.kind == DDP_DATA_SHAPES) {
        ddp_log(DDP_LOG_INFO,
                "data: Fashion-MNIST is not installed (Debian: dataset-fashion-mnist), so drawn shapes "
                "are used");
    }
}

static ddp_status_t agree_isa(ddp_run_t *run)
{
    ddp_status_t status = DDP_OK;
    const int    size   = ddp_comm_size(run->comm);
    int          mine   = (int)ddp_isa_detect();
    int         *all    = calloc((size_t)size, sizeof(*all));
    int          lowest = mine;

    status = all == NULL ? ddp_fail(DDP_ERR_NO_MEMORY, "no memory for %d ranks", size) : ddp_isa_check();
    DDP_TRY(ddp_comm_agree(run->comm, status));
    DDP_TRY(ddp_comm_allgather(run->comm, &mine, sizeof(mine), all));
    for (int r = 0; r < size; r++) {
        lowest = all[r] < lowest ? all[r] : lowest;
    }
    run->isa = (ddp_isa_t)lowest;
out:
    free(all);
    return status;
}

static void plan_schedule(ddp_run_t *run)
{
    const ddp_config_t *config = &run->config;

    run->steps_per_epoch = ddp_sampler_batches(run->data.samples, (size_t)config->train.batch);
    run->total_steps =
        config->train.steps > 0 ? config->train.steps : config->train.epochs * run->steps_per_epoch;
    run->schedule = (ddp_schedule_t){
        .kind         = (ddp_schedule_kind_t)config->schedule.kind,
        .lr           = config->optimizer.lr,
        .warmup_steps = config->schedule.warmup_steps,
        .total_steps  = run->total_steps,
        .min_ratio    = config->schedule.min_ratio,
        .step_size    = config->schedule.step_size > 0 ? config->schedule.step_size : run->steps_per_epoch,
        .gamma        = config->schedule.gamma,
        .decay_steps = config->schedule.decay_steps > 0 ? config->schedule.decay_steps : run->total_steps / 5,
    };
}

/* Pictures: their size; labels of either set may go up to the larger number of classes. */
static void describe_pictures(const ddp_run_t *run, ddp_model_config_t *model)
{
    const ddp_dataset_info_t *info = ddp_dataset_info(run->train);
    const size_t              more = ddp_dataset_info(run->test)->classes;

    model->height   = info->height;
    model->width    = info->width;
    model->channels = info->channels;
    model->classes  = info->classes > more ? info->classes : more;
}

static size_t count_frozen(const ddp_params_t *params)
{
    const ddp_tensor_desc_t *descs = ddp_params_descs(params);
    size_t                   count = 0;

    for (size_t i = 0; i < ddp_params_count(params); i++) {
        const bool is_frozen = !ddp_params_is_trained(params, i) && descs[i].role == DDP_TENSOR_PARAMETER;

        count += is_frozen ? descs[i].count : 0;
    }
    return count;
}

/* train.freeze and optimizer.decay. */
static ddp_status_t choose_trained(const ddp_run_t *run, ddp_params_t *params)
{
    ddp_status_t             status  = DDP_OK;
    const ddp_tensor_desc_t *descs   = ddp_params_descs(params);
    size_t                   trained = 0;
    char                     word[DDP_CONFIG_TEXT_SIZE];

    for (size_t i = 0; ddp_config_word(run->config.train.freeze, i, word, sizeof(word)); i++) {
        size_t count = 0;

        DDP_TRY(ddp_params_freeze(params, word, &count));
        DDP_REQUIRE(count > 0, DDP_ERR_CONFIG,
                    "train.freeze: '%s' matches no parameter; they have names such as %s and %s", word,
                    descs[0].name, descs[ddp_params_count(params) - 1].name);
    }
    for (size_t i = 0; i < ddp_params_count(params); i++) {
        trained += ddp_params_is_trained(params, i) ? 1 : 0;
    }
    DDP_REQUIRE(trained > 0, DDP_ERR_CONFIG, "train.freeze leaves nothing to train");
    if (run->config.optimizer.decay == DDP_DECAY_MATRICES) {
        ddp_params_decay_matrices(params);
    }
out:
    return status;
}

ddp_status_t ddp_run_model(const ddp_run_t *run, ddp_params_t **params_p, ddp_model_t **model_p)
{
    ddp_status_t       status = DDP_OK;
    ddp_model_config_t model  = ddp_config_model(&run->config);

    if (run->train != NULL) {
        describe_pictures(run, &model);
    }
    DDP_TRY(ddp_params_create(params_p));
    DDP_TRY(ddp_model_create(&model, *params_p, model_p));
    DDP_TRY(choose_trained(run, *params_p));
out:
    return status;
}

/* What else there is works with ranks. */
static void choose_mode(ddp_run_t *run)
{
    const char *command = run->options->command;
    char        text[DDP_CONFIG_TEXT_SIZE];

    if (run->config.train.mode == DDP_MODE_DP && strcmp(command, "train") != 0 &&
        strcmp(command, "doctor") != 0) {
        run->config.train.mode = DDP_MODE_DDP;
        if (ddp_comm_rank(run->comm) == 0) {
            ddp_log(DDP_LOG_INFO, "train.mode dp is for ddptrain train: %s works with ranks", command);
        }
    }
    if (ddp_config_drop_ranks(&run->config, text, sizeof(text)) && ddp_comm_rank(run->comm) == 0) {
        ddp_log(DDP_LOG_WARN, "%s", text);
    }
}

ddp_status_t ddp_run_settle(ddp_run_t *run, ddp_status_t early)
{
    ddp_status_t status = DDP_OK;

    if (early == DDP_OK) {
        early =
            ddp_launch_check(&run->launch, ddp_comm_size(run->comm), run->config.train.mode == DDP_MODE_DP);
    }
    DDP_TRY(ddp_comm_agree(run->comm, early));
    DDP_TRY(check_build(run));
    choose_mode(run);
    DDP_TRY(ddp_gpus_choose(run));
    run->is_data_chosen = run->config.data.kind == DDP_CONFIG_DATA_AUTO;
    DDP_TRY(ddp_comm_agree(run->comm,
                           ddp_config_resolve(&run->config, ddp_dataset_fashion_mnist_exists(NULL) != 0)));
    DDP_TRY(check_config(run));
out:
    return status;
}

ddp_status_t ddp_run_join(ddp_run_t *run, ddp_status_t early)
{
    ddp_status_t status = DDP_OK;
    char         early_line[DDP_ERROR_LINE_SIZE];

    memcpy(early_line, ddp_error_line(), sizeof(early_line));
    DDP_TRY(ddp_run_connect(run));
    DDP_TRY(ddp_run_settle(run, early != DDP_OK ? ddp_fail(early, "%s", early_line) : DDP_OK));
    DDP_TRY(ddp_watch_start(run));
out:
    return status;
}

/* The smallest micro-batch of a batch of so many samples suffices for the model. */
static ddp_status_t check_parts(const ddp_run_t *run, size_t samples)
{
    const size_t parts  = ddp_config_micro_batches(&run->config);
    const size_t least  = samples < parts ? 1 : samples / parts;
    const size_t needed = ddp_model_min_samples(run->model);
    ddp_status_t status = DDP_OK;

    DDP_REQUIRE(
        samples == 0 || least >= needed, DDP_ERR_CONFIG,
        "model.depth %" PRIu64 " makes images of one pixel of these pictures, and a single one can not be "
        "normalised: a batch of %zu samples in %zu micro-batches has one of %zu; set train.micro_batch, "
        "train.batch or data.samples so that none has less than %zu",
        run->config.model.depth, samples, parts, least, needed);
out:
    return status;
}

/* A batch, and the last one of an epoch if there is a shorter one. */
static ddp_status_t check_batches(const ddp_run_t *run)
{
    const size_t batch  = (size_t)run->config.train.batch;
    ddp_status_t status = DDP_OK;

    DDP_TRY(check_parts(run, batch));
    if (run->total_steps >= run->steps_per_epoch) {
        DDP_TRY(check_parts(run, run->data.samples % batch));
    }
out:
    return status;
}

static ddp_status_t choose_devices(ddp_run_t *run)
{
    ddp_status_t    status = DDP_OK;
    ddp_cuda_info_t info;
    int             most = 0;

    if (run->config.train.mode == DDP_MODE_DP && run->config.ddp.device == (int)DDP_DEVICE_CUDA) {
        ddp_cuda_probe(&info);
        most = info.devices;
    } else if (run->config.train.mode == DDP_MODE_DP) {
        most = ddp_cores_available();
    }
    if (most > 0) {
        DDP_TRY(ddp_devices_resolve(&run->config, (size_t)most, &run->devices));
    }
    DDP_TRY(ddp_gpus_take(run));
out:
    return status;
}

/* A checkpoint may be from behind the end: with fewer epochs, or fewer data. */
static ddp_status_t check_end(const ddp_run_t *run)
{
    const uint64_t done   = run->checkpoints.first_step;
    ddp_status_t   status = DDP_OK;

    DDP_REQUIRE(done <= run->total_steps, DDP_ERR_CONFIG,
                "--resume: %" PRIu64 " steps are done, but the run ends after %" PRIu64 "; raise train.%s",
                done, run->total_steps, run->config.train.steps > 0 ? "steps" : "epochs");
out:
    return status;
}

ddp_status_t ddp_run_prepare(ddp_run_t *run)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(ddp_config_check_ranks(&run->config, ddp_comm_size(run->comm)));
    DDP_TRY(choose_devices(run));
    say_choices(run);
    DDP_TRY(agree_isa(run));

    DDP_TRY(ddp_comm_agree(run->comm, ddp_data_open(run)));
    plan_schedule(run);
    status = ddp_schedule_check(&run->schedule);
    if (status == DDP_OK) {
        status = ddp_run_model(run, &run->params, &run->model);
    }
    if (status == DDP_OK) {
        status = check_batches(run);
    }
    if (status == DDP_OK) {
        status = check_end(run);
    }
    DDP_TRY(ddp_comm_agree(run->comm, status));
    run->frozen = count_frozen(run->params);
    DDP_TRY(ddp_memory_plan(run));
out:
    return status;
}

const char *ddp_run_arithmetic(const ddp_run_t *run)
{
    return run->gpus != NULL ? "cuda" : ddp_isa_name(run->isa);
}

ddp_reducer_params_t ddp_run_reducer_params(const ddp_run_t *run)
{
    ddp_reducer_params_t params = DDP_REDUCER_PARAMS_INIT;
    const ddp_config_t  *config = &run->config;

    params.comm              = run->comm;
    params.compute           = run->compute;
    params.tensors           = ddp_params_descs(run->params);
    params.n_tensors         = ddp_params_count(run->params);
    params.micro_batches     = ddp_config_micro_batches(config);
    params.bucket_cap_bytes  = (size_t)(config->ddp.bucket_cap_mb * 1048576);
    params.tail_bucket_bytes = (size_t)(config->ddp.tail_bucket_kb * 1024);
    params.reduction         = (ddp_reduction_t)config->ddp.reduction;
    params.average           = (ddp_average_t)config->ddp.average;
    params.nonfinite         = (ddp_nonfinite_t)config->train.nonfinite;
    params.clip_norm         = (float)config->optimizer.clip_norm;
    params.checksum_every    = config->ddp.checksum_every;
    params.loss_scale_every  = config->train.precision == (int)DDP_PRECISION_FP16 ? DDP_LOSS_SCALE_EVERY : 0;
    params.backend           = (ddp_reducer_backend_t)config->ddp.backend;
    params.wire              = (ddp_wire_type_t)config->ddp.wire;
    params.exchange          = (ddp_exchange_kind_t)config->ddp.exchange;
    params.shard             = config->optimizer.shard;
    params.max_ctas          = (int)config->ddp.max_ctas;
    params.share_devices     = config->ddp.share_gpu;
    params.optim             = (ddp_optim_config_t){.kind         = (ddp_optim_kind_t)config->optimizer.kind,
                                                    .beta1        = config->optimizer.beta1,
                                                    .beta2        = config->optimizer.beta2,
                                                    .eps          = config->optimizer.eps,
                                                    .momentum     = config->optimizer.momentum,
                                                    .nesterov     = config->optimizer.nesterov,
                                                    .weight_decay = config->optimizer.weight_decay};
    if (params.bucket_cap_bytes == 0) {
        params.bucket_cap_bytes = 1;
    }
    return params;
}

void ddp_run_teardown(ddp_run_t *run)
{
    ddp_checkpoints_close(run);
    ddp_metrics_close(&run->metrics);
    ddp_loader_destroy(&run->loader);
    ddp_eval_destroy(&run->eval);
    run->tape    = NULL;
    run->reducer = NULL;
    ddp_trainer_destroy(&run->trainer);
    ddp_dp_destroy(&run->dp);
    ddp_model_destroy(&run->model);
    ddp_params_destroy(&run->params);
    ddp_data_close(run);
    ddp_stream_destroy(&run->compute);
    ddp_device_destroy(&run->device);
    free(run->gpus);
    run->gpus = NULL;
}

void ddp_run_part(ddp_run_t *run)
{
    ddp_watch_end(run);
    run->spoken = NULL; /* memory of the communicator */
    ddp_comm_destroy(&run->comm);
}
