#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "io/metrics.h"
#include "kernels/cuda.h"
#include "launcher/child.h"
#include "launcher/compare.h"
#include "launcher/cores.h"
#include "launcher/launch.h"
#include "launcher/start.h"

/* GPUs that the runs will find; 0: they compute on cores. */
static size_t count_gpus(const ddp_config_t *config)
{
    ddp_cuda_info_t info = {.devices = 0};

    if (config->ddp.device != (int)DDP_DEVICE_CPU) {
        ddp_cuda_probe(&info);
    }
    return (size_t)info.devices;
}

/* As many devices as there are cores or GPUs, by powers of two; two at least. */
static void choose_counts(ddp_compare_t *compare, size_t gpus)
{
    ddp_compare_options_t *options = &compare->options;
    const size_t           there   = gpus > 0 ? gpus : compare->cores;

    for (size_t k = 2; options->n_counts < DDP_COMPARE_MAX_COUNTS && k <= DDP_COMPARE_MAX_DEVICES &&
                       k <= compare->config.train.batch && (k == 2 || k <= there);
         k *= 2) {
        options->counts[options->n_counts++] = k;
    }
}

/* V is the same for all: as stated, else as many micro-batches as the largest number of devices. */
static ddp_status_t choose_micro_batch(ddp_compare_t *compare)
{
    ddp_status_t   status = DDP_OK;
    ddp_config_t  *config = &compare->config;
    const uint64_t batch  = config->train.batch;
    const size_t   gpus   = count_gpus(config);
    size_t         most;

    if (compare->options.n_counts == 0) {
        choose_counts(compare, gpus);
    }
    DDP_REQUIRE(compare->options.n_counts > 0, DDP_ERR_CONFIG,
                "train.batch 1 cannot be shared by devices: nothing to compare");
    most = compare->options.counts[compare->options.n_counts - 1];
    DDP_REQUIRE(gpus == 0 || most <= gpus || config->ddp.share_gpu, DDP_ERR_CONFIG,
                "%zu devices, but %zu GPU%s: fewer of them (--devices), or --set ddp.device=cpu", most, gpus,
                gpus == 1 ? " is here" : "s are here");
    if (config->train.micro_batch == 0) {
        DDP_REQUIRE(most <= batch, DDP_ERR_CONFIG,
                    "%zu devices, but train.batch is %llu: each needs a sample or more", most,
                    (unsigned long long)batch);
        config->train.micro_batch = (batch + most - 1) / most;
        while ((batch + config->train.micro_batch - 1) / config->train.micro_batch < most) {
            config->train.micro_batch--;
        }
    }
    DDP_TRY(ddp_config_check_devices(config, most));
    compare->micro_batches = ddp_config_micro_batches(config);
out:
    return status;
}

static ddp_status_t prepare(ddp_compare_t *compare)
{
    ddp_status_t       status = DDP_OK;
    const ddp_launch_t launch = ddp_launch_read();

    DDP_REQUIRE(launch.ranks <= 1, DDP_ERR_CONFIG,
                "compare starts its own processes: start it once, without mpirun");
    ddp_config_defaults(&compare->config);
    DDP_TRY(ddp_start_read_config(&compare->options.run, &compare->config));
    compare->cores = (size_t)ddp_cores_available();
    DDP_TRY(choose_micro_batch(compare));
out:
    return status;
}

static ddp_status_t compare_all(ddp_compare_t *compare)
{
    ddp_status_t status = DDP_OK;
    ddp_status_t ended;
    char         line[DDP_ERROR_LINE_SIZE];

    compare->results = calloc(DDP_COMPARE_MAX_RESULTS, sizeof(*compare->results));
    DDP_REQUIRE(compare->results != NULL, DDP_ERR_NO_MEMORY, "no memory for results");
    DDP_TRY(ddp_run_folder_create(compare->options.run.out, "runs/compare", compare->folder,
                                  sizeof(compare->folder)));
    ended = ddp_compare_runs(compare);
    (void)snprintf(line, sizeof(line), "%s", ddp_error_line());
    DDP_REQUIRE(ended == DDP_OK || ended == DDP_ERR_STATE, ended, "%s", line);
    if (ended == DDP_ERR_STATE) {
        ddp_compare_note(compare, "The comparison was stopped by signal %d before it was complete",
                         ddp_child_interrupted());
    }
    ddp_compare_derive(compare);
    ddp_compare_verdict(compare);
    DDP_TRY(ddp_compare_write(compare));
    ddp_compare_print(compare, stdout);
    DDP_REQUIRE(fflush(stdout) == 0, DDP_ERR_IO, "stdout: %s", ddp_errno_text(errno));
    ddp_log(DDP_LOG_INFO, "%s/compare.html has the charts", compare->folder);
    DDP_REQUIRE(ended == DDP_OK, ended, "%s", line);
    for (size_t i = 0; i < compare->n_results; i++) {
        DDP_REQUIRE(compare->results[i].error[0] == '\0', DDP_ERR_REMOTE,
                    "not all could be measured; the rest is in '%s'", compare->folder);
    }
out:
    return status;
}

int ddp_compare_command(int argc, char **argv)
{
    static ddp_compare_t compare; /* large */
    ddp_status_t         status = ddp_compare_options_parse(argc, argv, &compare.options);

    if (status == DDP_OK && compare.options.help) {
        if (ddp_launch_read().is_first) {
            ddp_compare_help(stdout);
        }
        return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
    }
    ddp_log_set_level(compare.options.run.log);
    if (status == DDP_OK) {
        status = prepare(&compare);
    }
    if (status == DDP_OK) {
        status = compare_all(&compare);
    }
    if (status != DDP_OK && ddp_launch_read().is_first) {
        ddp_log(DDP_LOG_ERROR, "%s", ddp_error_line());
    }
    ddp_compare_free(&compare);
    return status == DDP_OK ? EXIT_SUCCESS : status == DDP_ERR_CONFIG ? 2 : EXIT_FAILURE;
}
