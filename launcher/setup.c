#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/convert.h"
#include "base/error.h"
#include "base/log.h"
#include "launcher/cores.h"
#include "launcher/data_parallel.h"

#define GPUS_TOLD    ((size_t)4)
#define MOST_LOADERS ((size_t)4) /* threads of train.mode dp */

static ddp_status_t create_device(ddp_run_t *run)
{
    ddp_status_t        status = DDP_OK;
    ddp_device_params_t params = DDP_DEVICE_PARAMS_INIT;

    ddp_gpus_device_params(run, &params);
    if (run->devices.n > 0) { /* the first of several */
        snprintf(run->device_name, sizeof(run->device_name), "device %d", run->devices.id[0]);
        params.name         = run->device_name;
        params.memory_bytes = run->devices.memory[0];
    } else if (run->gpus != NULL) {
        snprintf(run->device_name, sizeof(run->device_name), "GPU %s", run->gpus[ddp_gpus_own(run)].info.bus);
        params.name = run->device_name;
    }
    DDP_TRY(ddp_device_create(&params, &run->device));
    ddp_comm_attach(run->comm, run->device);
    DDP_TRY(ddp_stream_create(run->device, "compute", &run->compute));
    if (run->config.train.graphs) {
        DDP_TRY(ddp_stream_use_graphs(run->compute));
    }
out:
    return status;
}

static ddp_status_t create_trainer(ddp_run_t *run)
{
    ddp_status_t         status = DDP_OK;
    ddp_trainer_params_t params = DDP_TRAINER_PARAMS_INIT;

    if (run->devices.n > 0) {
        return ddp_run_dp_create(run);
    }
    params.params  = run->params;
    params.seed    = run->config.train.seed;
    params.forward = run->forward != NULL ? run->forward : ddp_run_forward;
    params.ctx     = run;
    params.rounded = (ddp_precision_t)run->config.train.precision;
    params.reducer = ddp_run_reducer_params(run);
    DDP_TRY(ddp_trainer_create(&params, &run->trainer));
    run->reducer = ddp_trainer_reducer(run->trainer);
    run->tape    = ddp_trainer_tape(run->trainer);
    ddp_run_set_tape(run, run->tape);
    DDP_TRY(ddp_comm_agree(run->comm, ddp_tape_reserve(run->tape, &run->memory.tape)));
    DDP_TRY(ddp_comm_agree(run->comm, ddp_stream_reserve(run->compute, &run->memory.scratch)));
out:
    return status;
}

ddp_loader_params_t ddp_run_loader_params(const ddp_run_t *run)
{
    ddp_loader_params_t params = DDP_LOADER_PARAMS_INIT;

    params.dataset       = run->train;
    params.tokens        = run->train_tokens;
    params.seed          = run->config.train.seed;
    params.augment       = (ddp_augment_t)run->config.data.augment;
    params.batch         = (size_t)run->config.train.batch;
    params.micro_batches = ddp_config_micro_batches(&run->config);
    ddp_partition(params.micro_batches, (size_t)ddp_comm_size(run->comm), (size_t)ddp_comm_rank(run->comm),
                  &params.first_micro, &params.micro_count);
    if (run->devices.n > 0) { /* with augmentation one thread is enough for a few devices only */
        params.threads = run->devices.n < MOST_LOADERS ? run->devices.n : MOST_LOADERS;
    }
    params.first_step = run->checkpoints.first_step;
    params.end_step   = run->total_steps;
    /* a step holds its micro-batches to its end, because backward reads them */
    params.depth      = params.micro_count + 4;
    params.timeout_ms = (int)(run->config.ddp.timeout_s * 1000);
    return params;
}

/* Rank 0 makes the run's folder with the configuration and opens the metrics, or goes on with those there
 * are. */
static ddp_status_t create_folder(ddp_run_t *run)
{
    ddp_status_t status  = DDP_OK;
    const bool   is_here = run->folder[0] != '\0';
    char        *yaml    = NULL;
    char         base[64];

    if (ddp_comm_rank(run->comm) != 0) {
        return DDP_OK;
    }
    ddp_run_base(run, base, sizeof(base));
    yaml = ddp_config_dump(&run->config, true);
    DDP_REQUIRE(yaml != NULL, DDP_ERR_NO_MEMORY, "no memory for config.yaml");
    if (!is_here) {
        DDP_TRY(ddp_run_folder_create(run->options->out, base, run->folder, sizeof(run->folder)));
        DDP_TRY(ddp_run_folder_lock(run->folder, &run->checkpoints.lock_fd));
    }
    DDP_TRY(ddp_file_write(run->folder, "config.yaml", yaml));
    DDP_TRY(is_here ? ddp_metrics_resume(run->folder, run->checkpoints.first_step, &run->metrics)
                    : ddp_metrics_open(run->folder, &run->metrics));
out:
    free(yaml);
    return status;
}

static void say_shared_cores(const ddp_run_t *run)
{
    const int cores = run->devices.n > 1 && run->gpus == NULL ? ddp_cores_available() : 0;

    if (run->devices.n > (size_t)cores && cores > 0) {
        ddp_log(DDP_LOG_INFO, "%zu devices share %d core%s%s", run->devices.n, cores, cores > 1 ? "s" : "",
                run->launch.is_managed ? ", which is what mpirun leaves to a rank: run it without mpirun"
                                       : "");
    }
}

static void say_idle_cores(const ddp_run_t *run)
{
    int    cores;
    int    most      = (int)ddp_config_micro_batches(&run->config);
    char   rest[512] = "";
    size_t used      = 0;

    if (ddp_comm_size(run->comm) > 1 || run->launch.is_managed || run->devices.n > 0 || run->gpus != NULL) {
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

/* "3 ranks", or "DataParallel on devices 0, 1" */
static void workers_text(const ddp_run_t *run, char *text, size_t size)
{
    const size_t n     = run->devices.n;
    const int    ranks = ddp_comm_size(run->comm);
    size_t       used  = 0;

    if (n == 0) {
        snprintf(text, size, "%d rank%s", ranks, ranks > 1 ? "s" : "");
        return;
    }
    used = (size_t)snprintf(text, size, "DataParallel on device%s", n > 1 ? "s" : "");
    for (size_t i = 0; i < n && used < size; i++) {
        used += (size_t)snprintf(text + used, size - used, "%s%d", i > 0 ? ", " : " ", run->devices.id[i]);
    }
}

/* "NVIDIA H200 (0000:1b:00.0, node 0), ..." of the first ones */
static void say_gpus(const ddp_run_t *run)
{
    const size_t n    = run->devices.n > 0 ? run->devices.n : (size_t)ddp_comm_size(run->comm);
    size_t       used = 0;
    char         text[512];

    for (size_t i = 0; i < n && i < GPUS_TOLD; i++) {
        const ddp_gpu_t *gpu = &run->gpus[i];

        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%.40s (%s", i > 0 ? ", " : "",
                                 gpu->info.name, gpu->info.bus);
        used += (size_t)snprintf(text + used, sizeof(text) - used, gpu->numa >= 0 ? ", node %d)" : ")",
                                 gpu->numa);
    }
    ddp_log(DDP_LOG_INFO, "GPUs: %s%s", text, n > GPUS_TOLD ? " and more" : "");
}

static void say_start(const ddp_run_t *run)
{
    char model[32];
    char frozen[48] = "";
    char workers[320]; /* 64 devices */

    if (ddp_comm_rank(run->comm) != 0) {
        return;
    }
    ddp_config_value(&run->config, ddp_config_find("model", "kind"), model, sizeof(model));
    ddp_data_say(run);
    if (run->frozen > 0) {
        snprintf(frozen, sizeof(frozen), ", %zu of them frozen", run->frozen);
    }
    workers_text(run, workers, sizeof(workers));
    ddp_log(DDP_LOG_INFO, "model %s, %zu parameters%s; %s, batch %" PRIu64 " in %zu micro-batches; %s", model,
            ddp_params_elements(run->params), frozen, workers, run->config.train.batch,
            ddp_config_micro_batches(&run->config), ddp_run_arithmetic(run));
    if (run->gpus != NULL) {
        say_gpus(run);
    }
    if (run->config.train.precision == DDP_PRECISION_BF16 && !ddp_device_has_bf16(run->device)) {
        ddp_log(
            DDP_LOG_WARN,
            "train.precision bf16 is emulated here, slower than float32: the processor has no AVX-512-BF16");
    }
    ddp_log(DDP_LOG_INFO, "folder %s", run->folder);
    say_idle_cores(run);
    say_shared_cores(run);
}

ddp_status_t ddp_run_build(ddp_run_t *run)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(ddp_memory_check(run));
    DDP_TRY(ddp_comm_agree(run->comm, create_device(run)));
    ddp_watch_at(run, 0, DDP_STAGE_DATA);
    DDP_TRY(ddp_data_load(run));
    ddp_watch_at(run, 0, DDP_STAGE_BUILD);
    DDP_TRY(create_trainer(run));
    status = ddp_eval_create(run);
    if (status == DDP_OK) {
        const ddp_loader_params_t loader = ddp_run_loader_params(run);
        ddp_cores_before_t        before;

        ddp_cores_go_near(run->gpus != NULL ? run->gpus[ddp_gpus_own(run)].numa : -1, &before);
        status = ddp_loader_create(&loader, &run->loader);
        ddp_cores_leave(&before);
    }
    DDP_TRY(ddp_comm_agree(run->comm, status));
out:
    return status;
}

ddp_status_t ddp_run_setup(ddp_run_t *run)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(ddp_run_build(run));
    DDP_TRY(ddp_checkpoints_restore(run));
    DDP_TRY(ddp_peak_find(run));
    /* late, so that a set-up that fails leaves no empty folder */
    ddp_run_watch_disk(run, "making the run's folder");
    status = create_folder(run);
    ddp_run_watch_end(run);
    DDP_TRY(ddp_comm_agree(run->comm, status));
    DDP_TRY(ddp_comm_broadcast(run->comm, run->folder, sizeof(run->folder), 0));
    DDP_TRY(ddp_checkpoints_create(run));
    ddp_watch_saved(run, "");
    say_start(run);
    if (ddp_comm_rank(run->comm) == 0) {
        ddp_progress_init(&run->progress);
        ddp_event_start(run);
    }
out:
    return status;
}
