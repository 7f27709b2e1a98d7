#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fault.h"
#include "base/log.h"
#include "launcher/cores.h"
#include "launcher/run.h"

static ddp_status_t create_device(ddp_run_t *run)
{
    ddp_status_t        status = DDP_OK;
    ddp_device_params_t params = DDP_DEVICE_PARAMS_INIT;

    params.isa = run->isa;
    DDP_TRY(ddp_device_create(&params, &run->device));
    ddp_comm_attach(run->comm, run->device);
    DDP_TRY(ddp_stream_create(run->device, "compute", &run->compute));
out:
    return status;
}

/* One copy for the machine: local rank 0 decodes the training samples while local rank 1 decodes the test
 * samples. */
static ddp_status_t load_data(ddp_run_t *run)
{
    ddp_status_t              status      = DDP_OK;
    const ddp_dataset_info_t *info        = ddp_dataset_info(run->train);
    const int                 rank        = ddp_comm_local_rank(run->comm);
    const int                 test_loader = ddp_comm_local_size(run->comm) > 1 ? 1 : 0;
    void                     *train       = NULL;
    void                     *test        = NULL;
    double                    mean[16]    = {0};
    double                    std[16]     = {0};

    DDP_TRY(ddp_run_shared(run, "training samples", info->memory_bytes, &train));
    DDP_TRY(ddp_run_shared(run, "test samples", ddp_dataset_info(run->test)->memory_bytes, &test));
    status = ddp_fault("data_load", ddp_comm_rank(run->comm));
    if (status == DDP_OK && rank == 0) {
        status = ddp_dataset_load(run->train, train);
    }
    if (status == DDP_OK && rank == test_loader) {
        status = ddp_dataset_load(run->test, test);
    }
    DDP_TRY(ddp_comm_agree(run->comm, status));
    if (rank != 0) {
        status = ddp_dataset_attach(run->train, train);
    }
    if (status == DDP_OK && rank != test_loader) {
        status = ddp_dataset_attach(run->test, test);
    }
    if (status == DDP_OK && info->channels > sizeof(mean) / sizeof(mean[0])) {
        status = ddp_fail(DDP_ERR_UNSUPPORTED, "%s: pictures of %zu channels, at most 16 are supported",
                          info->source, info->channels);
    }
    if (status == DDP_OK) {
        for (size_t c = 0; c < info->channels; c++) {
            ddp_dataset_moments(run->train, c, &mean[c], &std[c]);
        }
        status = ddp_dataset_set_moments(run->test, mean, std);
    }
    DDP_TRY(ddp_comm_agree(run->comm, status));
out:
    return status;
}

/* Machines read their own files: the same number of samples and the same pixels, by their moments. */
static ddp_status_t check_data_equal(ddp_run_t *run)
{
    char        samples[32];
    char        test_samples[32];
    char        moments[64];
    double      mean     = 0;
    double      std      = 0;
    ddp_field_t fields[] = {{"number of training samples", samples},
                            {"number of test samples", test_samples},
                            {"mean and deviation of the first channel", moments}};

    ddp_dataset_moments(run->train, 0, &mean, &std);
    snprintf(samples, sizeof(samples), "%zu", ddp_dataset_info(run->train)->samples);
    snprintf(test_samples, sizeof(test_samples), "%zu", ddp_dataset_info(run->test)->samples);
    snprintf(moments, sizeof(moments), "%.17g, %.17g", mean, std);
    return ddp_comm_check_equal(run->comm, fields, sizeof(fields) / sizeof(fields[0]));
}

static ddp_status_t create_trainer(ddp_run_t *run)
{
    ddp_status_t         status = DDP_OK;
    ddp_trainer_params_t params = DDP_TRAINER_PARAMS_INIT;

    params.params  = run->params;
    params.seed    = run->config.train.seed;
    params.forward = ddp_run_forward;
    params.ctx     = run;
    params.reducer = ddp_run_reducer_params(run);
    DDP_TRY(ddp_trainer_create(&params, &run->trainer));
    run->reducer = ddp_trainer_reducer(run->trainer);
    run->tape    = ddp_trainer_tape(run->trainer);
out:
    return status;
}

static ddp_status_t create_loader(ddp_run_t *run)
{
    ddp_loader_params_t params = DDP_LOADER_PARAMS_INIT;

    params.dataset       = run->train;
    params.seed          = run->config.train.seed;
    params.augment       = (ddp_augment_t)run->config.data.augment;
    params.batch         = (size_t)run->config.train.batch;
    params.micro_batches = ddp_config_micro_batches(&run->config);
    ddp_reducer_range(run->reducer, &params.first_micro, &params.micro_count);
    params.end_step = run->total_steps;
    /* a step holds its micro-batches to its end, because backward reads them */
    params.depth      = params.micro_count + 4;
    params.timeout_ms = (int)(run->config.ddp.timeout_s * 1000);
    return ddp_loader_create(&params, &run->loader);
}

/* Rank 0 makes the run's folder with the configuration and opens the metrics. */
static ddp_status_t create_folder(ddp_run_t *run)
{
    ddp_status_t status = DDP_OK;
    char        *yaml   = NULL;
    char         base[64];
    char         model[32];
    char         data[32];

    if (ddp_comm_rank(run->comm) != 0) {
        return DDP_OK;
    }
    ddp_config_value(&run->config, ddp_config_find("model", "kind"), model, sizeof(model));
    ddp_config_value(&run->config, ddp_config_find("data", "kind"), data, sizeof(data));
    snprintf(base, sizeof(base), "runs/%s-%s", model, data);
    yaml = ddp_config_dump(&run->config);
    DDP_REQUIRE(yaml != NULL, DDP_ERR_NO_MEMORY, "no memory for config.yaml");
    DDP_TRY(ddp_run_folder_create(run->options->out, base, run->folder, sizeof(run->folder)));
    DDP_TRY(ddp_file_write(run->folder, "config.yaml", yaml));
    DDP_TRY(ddp_metrics_open(run->folder, &run->metrics));
out:
    free(yaml);
    return status;
}

static void say_idle_cores(const ddp_run_t *run)
{
    int    cores;
    int    most      = (int)ddp_config_micro_batches(&run->config);
    char   rest[512] = "";
    size_t used      = 0;

    if (ddp_comm_size(run->comm) > 1 || run->launch.is_managed) {
        return;
    }
    cores = ddp_cores_available();
    if (cores < 2 || most < 2) {
        return;
    }
    for (int i = 0; i < run->argc && used < sizeof(rest); i++) {
        used += (size_t)snprintf(rest + used, sizeof(rest) - used, " %s", run->argv[i]);
    }
    ddp_log(DDP_LOG_INFO, "%d cores here, 1 used: mpirun%s -np %d%s", cores,
            geteuid() == 0 ? " --allow-run-as-root" : "", cores < most ? cores : most, rest);
}

static void say_start(const ddp_run_t *run)
{
    const ddp_dataset_info_t *info = ddp_dataset_info(run->train);
    char                      model[32];

    if (ddp_comm_rank(run->comm) != 0) {
        return;
    }
    ddp_config_value(&run->config, ddp_config_find("model", "kind"), model, sizeof(model));
    ddp_log(DDP_LOG_INFO, "data %s, %zu samples, %zu x %zu, %zu classes", info->source, info->samples,
            info->height, info->width, info->classes);
    ddp_log(DDP_LOG_INFO, "model %s, %zu parameters; %d rank%s, batch %" PRIu64 " in %zu micro-batches; %s",
            model, ddp_params_elements(run->params), ddp_comm_size(run->comm),
            ddp_comm_size(run->comm) > 1 ? "s" : "", run->config.train.batch,
            ddp_config_micro_batches(&run->config), ddp_isa_name(run->isa));
    ddp_log(DDP_LOG_INFO, "folder %s", run->folder);
    say_idle_cores(run);
}

ddp_status_t ddp_run_build(ddp_run_t *run)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(ddp_comm_agree(run->comm, create_device(run)));
    DDP_TRY(load_data(run));
    DDP_TRY(check_data_equal(run));
    DDP_TRY(create_trainer(run));
    status = ddp_eval_create(run);
    if (status == DDP_OK) {
        status = create_loader(run);
    }
    DDP_TRY(ddp_comm_agree(run->comm, status));
out:
    return status;
}

ddp_status_t ddp_run_setup(ddp_run_t *run)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(ddp_run_build(run));
    /* last, so that a set-up that fails leaves no empty folder */
    DDP_TRY(ddp_comm_agree(run->comm, create_folder(run)));
    say_start(run);
    if (ddp_comm_rank(run->comm) == 0) {
        ddp_progress_init(&run->progress);
        ddp_event_start(run);
    }
out:
    return status;
}
