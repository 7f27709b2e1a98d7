#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "launcher/run.h"

#define MAX_LAYERS 128

static void shape_text(const ddp_layer_info_t *layer, char *text, size_t size)
{
    size_t used = 0;

    text[0] = '\0';
    for (size_t i = 0; i < layer->ndim && used < size; i++) {
        used += (size_t)snprintf(text + used, size - used, "%s%zu", i > 0 ? " x " : "", layer->shape[i]);
    }
}

static void print_model(const ddp_run_t *run)
{
    ddp_layer_info_t layers[MAX_LAYERS];
    const size_t     all = ddp_model_layers(run->model, layers, MAX_LAYERS);
    const size_t     n   = all < MAX_LAYERS ? all : MAX_LAYERS;
    char             shape[64];

    printf("\n# model\n%-12s %-32s %-18s %12s\n", "layer", "kind", "output", "parameters");
    for (size_t i = 0; i < n; i++) {
        shape_text(&layers[i], shape, sizeof(shape));
        printf("%-12s %-32s %-18s %12zu\n", layers[i].name, layers[i].kind, shape, layers[i].parameters);
    }
    printf("%-12s %-32s %-18s %12zu\n", "total", "", "", ddp_params_elements(run->params));
    if (run->frozen > 0) {
        printf("%-12s %-32s %-18s %12zu\n", "frozen", "", "", run->frozen);
    }
}

static void print_devices(const ddp_run_t *run)
{
    char loss[32];

    ddp_config_value(&run->config, ddp_config_find("dp", "loss"), loss, sizeof(loss));
    printf("DataParallel on %zu devices, %zu rounds a step, loss %s, outputs on device %d\n", run->devices.n,
           (ddp_config_micro_batches(&run->config) + run->devices.n - 1) / run->devices.n, loss,
           run->devices.output);
}

static void print_gpus(const ddp_run_t *run)
{
    const int n = run->devices.n > 0 ? (int)run->devices.n : ddp_comm_size(run->comm);

    for (int i = 0; run->gpus != NULL && i < n; i++) {
        printf("%s %d: GPU %d, %s, %s, memory node %d\n", run->devices.n > 0 ? "device" : "rank",
               run->devices.n > 0 ? run->devices.id[i] : i, run->gpus[i].ordinal, run->gpus[i].info.name,
               run->gpus[i].info.bus, run->gpus[i].numa);
    }
}

static void print_run(const ddp_run_t *run)
{
    const ddp_data_info_t *data = &run->data;

    printf("\n# run\n");
    printf("data %s: %zu %s, %zu for the test\n", data->source, data->samples,
           data->context > 0 ? "sequences" : "samples", data->test_samples);
    if (data->context > 0) {
        printf("tokens %.0f, %zu in a sequence, vocabulary %" PRIu64 "\n", data->tokens, data->context,
               run->config.model.vocab);
    }
    if (run->devices.n > 0) {
        print_devices(run);
    }
    printf("ranks %d on %d machine%s, instruction set %s\n", ddp_comm_size(run->comm),
           ddp_comm_machines(run->comm), ddp_comm_machines(run->comm) > 1 ? "s" : "", ddp_isa_name(run->isa));
    print_gpus(run);
    if (run->config.train.precision == DDP_PRECISION_BF16 && run->gpus == NULL) {
        printf("precision bf16, %s\n", ddp_isa_has_bf16(run->isa)
                                           ? "by instruction"
                                           : "emulated: the same results, slower than float32");
    }
    printf("steps %" PRIu64 ", %" PRIu64 " in an epoch\n", run->total_steps, run->steps_per_epoch);
    printf("micro-batches of a step %zu, of at most %" PRIu64 " samples; ranks at most %zu\n",
           ddp_config_micro_batches(&run->config), run->config.train.micro_batch,
           ddp_config_micro_batches(&run->config));
}

static ddp_status_t print_buckets(const ddp_run_t *run)
{
    ddp_status_t               status  = DDP_OK;
    const ddp_reducer_params_t params  = ddp_run_reducer_params(run);
    const size_t               n       = ddp_params_count(run->params);
    ddp_bucket_info_t         *buckets = calloc(n, sizeof(*buckets));
    ddp_reducer_plan_t         plan;

    DDP_REQUIRE(buckets != NULL, DDP_ERR_NO_MEMORY, "no memory for %zu buckets", n);
    DDP_TRY(ddp_reducer_plan(&params, ddp_comm_size(run->comm), 0, &plan, buckets, n));
    printf("\n# buckets, in the order in which they are reduced\n%-8s %8s %12s\n", "bucket", "tensors",
           "KiB");
    for (size_t i = 0; i < plan.n_buckets && i < n; i++) {
        printf("%-8zu %8zu %12.1f\n", i, buckets[i].n_tensors,
               (double)buckets[i].count * sizeof(float) / 1024);
    }
out:
    free(buckets);
    return status;
}

static ddp_status_t print_all(const ddp_run_t *run)
{
    ddp_status_t status = DDP_OK;
    char        *yaml   = NULL;

    if (ddp_comm_rank(run->comm) == 0) {
        yaml = ddp_config_dump(&run->config, true);
        DDP_REQUIRE(yaml != NULL, DDP_ERR_NO_MEMORY, "no memory for the configuration");
        printf("# configuration\n%s", yaml);
        print_run(run);
        print_model(run);
        DDP_TRY(print_buckets(run));
    }
out:
    free(yaml);
    return status;
}

ddp_status_t ddp_run_dry(ddp_run_t *run)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(ddp_comm_agree(run->comm, print_all(run)));
    DDP_TRY(ddp_memory_print(run));
    status = fflush(stdout) == 0 ? DDP_OK : ddp_fail(DDP_ERR_IO, "stdout: %s", ddp_errno_text(errno));
    DDP_TRY(ddp_comm_agree(run->comm, status));
out:
    return status;
}
