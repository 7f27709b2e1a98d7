#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <xxhash.h>

#include "base/error.h"
#include "launcher/doctor.h"
#include "launcher/events_internal.h"

#define MIB 1048576.0

void ddp_events_number(cJSON *object, const char *name, double value)
{
    (void)cJSON_AddNumberToObject(object, name, value); /* no memory means no field */
}

static void add_text(cJSON *object, const char *name, const char *value)
{
    if (object != NULL) {
        cJSON_AddStringToObject(object, name, value);
    }
}

void ddp_events_time(cJSON *event)
{
    struct timespec now;

    if (clock_gettime(CLOCK_REALTIME, &now) == 0) {
        ddp_events_number(event, "time", (double)now.tv_sec + (double)(now.tv_nsec / 1000000) / 1e3);
    }
}

void ddp_events_write(ddp_run_t *run, cJSON *event)
{
    ddp_events_time(event);
    ddp_run_watch_disk(run, "writing metrics.jsonl");
    ddp_metrics_write(run->metrics, event);
    ddp_run_watch_end(run);
}

/* Two runs with the same digest have the same configuration. */
static void add_digest(cJSON *event, const ddp_config_t *config)
{
    char         *yaml = ddp_config_dump(config, true);
    char          text[33];
    XXH128_hash_t hash;

    if (yaml == NULL) {
        return;
    }
    hash = XXH3_128bits(yaml, strlen(yaml));
    snprintf(text, sizeof(text), "%016" PRIx64 "%016" PRIx64, (uint64_t)hash.high64, (uint64_t)hash.low64);
    add_text(event, "digest", text);
    free(yaml);
}

static void add_plan(cJSON *event, const ddp_run_t *run)
{
    const ddp_reducer_params_t params = ddp_run_reducer_params(run);
    ddp_reducer_plan_t         plan;

    if (ddp_reducer_plan(&params, ddp_comm_size(run->comm), 0, &plan, NULL, 0) != DDP_OK) {
        ddp_error_clear(); /* the reducer is there, so this is no memory: one field less */
        return;
    }
    ddp_events_number(event, "buckets", (double)plan.n_buckets);
    ddp_events_number(event, "gradient_arenas", (double)plan.arenas);
    ddp_events_number(event, "shared_bytes", (double)plan.shared_bytes);
}

/* Between machines: how many buckets take which exchange, and the link that it was chosen by. */
static void add_exchange(cJSON *event, const ddp_run_t *run)
{
    const size_t       n      = run->reducer != NULL ? ddp_reducer_buckets(run->reducer, NULL, 0) : 0;
    ddp_bucket_info_t *bucket = calloc(n + 1, sizeof(*bucket));
    size_t             uses[DDP_EXCHANGE_MEASURED + 1] = {0};
    cJSON             *object                          = NULL;
    ddp_link_t         link;

    for (size_t b = 0; bucket != NULL && b < ddp_reducer_buckets(run->reducer, bucket, n); b++) {
        uses[bucket[b].exchange]++;
    }
    free(bucket);
    if (event != NULL && n > 0 && uses[DDP_EXCHANGE_AUTO] < n) {
        object = cJSON_AddObjectToObject(event, "exchange");
    }
    for (int kind = DDP_EXCHANGE_DIRECT; kind <= DDP_EXCHANGE_HALVING; kind++) {
        if (uses[kind] > 0) {
            ddp_events_number(object, ddp_exchange_name((ddp_exchange_kind_t)kind), (double)uses[kind]);
        }
    }
    if (n > 0 && ddp_reducer_link(run->reducer, &link)) {
        object = event != NULL ? cJSON_AddObjectToObject(event, "link") : NULL;
        ddp_events_number(object, "latency_us", link.latency_s * 1e6);
        ddp_events_number(object, "overhead_us", link.overhead_s * 1e6);
        ddp_events_number(object, "mb_per_s", link.bytes_per_s / 1e6);
        ddp_events_number(object, "spread_mb_per_s", link.spread_per_s / 1e6);
    }
}

/* What was planned for rank 0 and its machine. */
static void add_memory(cJSON *event, const ddp_run_memory_t *memory)
{
    cJSON *object = event != NULL ? cJSON_AddObjectToObject(event, "memory_bytes") : NULL;

    ddp_events_number(object, "parameters", (double)memory->parameters);
    ddp_events_number(object, "moments", (double)memory->moments);
    ddp_events_number(object, "gradients", (double)memory->gradients);
    ddp_events_number(object, "tables", (double)memory->tables);
    ddp_events_number(object, "data", (double)memory->data);
    ddp_events_number(object, "activations", (double)memory->tape.activations);
    ddp_events_number(object, "scratch", (double)(memory->tape.scratch + memory->kernels));
    ddp_events_number(object, "records", (double)memory->tape.nodes);
    ddp_events_number(object, "loader", (double)memory->loader);
    ddp_events_number(object, "evaluation", (double)memory->evaluation);
    ddp_events_number(object, "wire", (double)memory->wire);
    ddp_events_number(object, "snapshot", (double)memory->snapshot);
    ddp_events_number(object, "shared", (double)memory->shared);
    ddp_events_number(object, "rank", (double)memory->own);
    ddp_events_number(object, "machine", (double)memory->machine);
    if (memory->gpu > 0) {
        ddp_events_number(object, "gpu", (double)memory->gpu);
    }
}

/* What pictures are normalised by: who computes with the weights elsewhere must do the same. */
static void add_pixels(cJSON *event, const ddp_run_t *run)
{
    cJSON *means = event != NULL ? cJSON_AddArrayToObject(event, "pixel_mean") : NULL;
    cJSON *stds  = means != NULL ? cJSON_AddArrayToObject(event, "pixel_std") : NULL;

    for (size_t c = 0; stds != NULL && c < ddp_dataset_info(run->train)->channels; c++) {
        double mean;
        double std;

        ddp_dataset_moments(run->train, c, &mean, &std);
        cJSON_AddItemToArray(means, cJSON_CreateNumber(mean));
        cJSON_AddItemToArray(stds, cJSON_CreateNumber(std));
    }
}

/* Of all ranks, or of the devices of train.mode dp. */
static void add_gpus(cJSON *event, const ddp_run_t *run)
{
    const size_t n    = run->devices.n > 0 ? run->devices.n : (size_t)ddp_comm_size(run->comm);
    cJSON       *list = event != NULL && run->gpus != NULL ? cJSON_AddArrayToObject(event, "gpus") : NULL;
    char         uuid[DDP_GPU_UUID_TEXT];

    for (size_t i = 0; list != NULL && i < n; i++) {
        const ddp_gpu_t *gpu    = &run->gpus[i];
        cJSON           *object = cJSON_CreateObject();

        ddp_gpu_uuid_text(gpu, uuid);
        add_text(object, "name", gpu->info.name);
        add_text(object, "bus", gpu->info.bus);
        add_text(object, "uuid", uuid);
        ddp_events_number(object, "ordinal", gpu->ordinal);
        ddp_events_number(object, "numa", gpu->numa);
        ddp_events_number(object, "capability", gpu->info.major + gpu->info.minor / 10.0);
        ddp_events_number(object, "memory_bytes", (double)gpu->info.memory_bytes);
        (void)cJSON_AddItemToArray(list, object);
    }
}

/* What joins rank 0's machine to the others; one machine uses none. */
static void add_nics(cJSON *event, const ddp_run_t *run)
{
    const bool      has_more = event != NULL && ddp_comm_machines(run->comm) > 1;
    ddp_nic_facts_t nic[DDP_FACTS_NICS];
    const int32_t   n    = has_more ? ddp_nics_read(nic) : 0;
    cJSON          *list = has_more ? cJSON_AddArrayToObject(event, "nics") : NULL;

    for (int32_t i = 0; list != NULL && i < n; i++) {
        cJSON *object = cJSON_CreateObject();

        add_text(object, "name", nic[i].name);
        add_text(object, "address", nic[i].address);
        ddp_events_number(object, "mbit_s", nic[i].mbit);
        ddp_events_number(object, "numa", nic[i].numa);
        (void)cJSON_AddItemToArray(list, object);
    }
}

/* Of train.mode dp. */
static void add_devices(cJSON *event, const ddp_run_t *run)
{
    cJSON *list = NULL;

    if (run->devices.n > 0 && event != NULL) {
        list = cJSON_CreateIntArray(run->devices.id, (int)run->devices.n);
        (void)cJSON_AddItemToObject(event, "devices", list);
        ddp_events_number(event, "output_device", run->devices.output);
    }
}

void ddp_event_start(ddp_run_t *run)
{
    cJSON *event = ddp_metrics_event("start");
    cJSON *hosts = event != NULL ? cJSON_AddArrayToObject(event, "hosts") : NULL;
    char   name[64];
    char   value[DDP_CONFIG_TEXT_SIZE];
    cJSON *config;

    for (int r = 0; hosts != NULL && r < ddp_comm_size(run->comm); r++) {
        cJSON_AddItemToArray(hosts, cJSON_CreateString(ddp_comm_host(run->comm, r)));
    }
    add_text(event, "version", DDP_VERSION);
    add_text(event, "mode", run->config.train.mode == DDP_MODE_DP ? "dp" : "ddp");
    add_devices(event, run);
    ddp_events_number(event, "ranks", ddp_comm_size(run->comm));
    ddp_events_number(event, "machines", ddp_comm_machines(run->comm));
    add_text(event, "device", run->gpus != NULL ? "cuda" : "cpu");
    add_gpus(event, run);
    add_nics(event, run);
    add_text(event, "isa", ddp_run_arithmetic(run));
    if (run->config.train.precision == DDP_PRECISION_BF16 && run->gpus == NULL) {
        add_text(event, "bf16", ddp_isa_has_bf16(run->isa) ? "instruction" : "emulated");
    }
    add_text(event, "data", run->data.source);
    ddp_events_number(event, "samples", (double)run->data.samples);
    ddp_events_number(event, "test_samples", (double)run->data.test_samples);
    if (run->data.context > 0) {
        ddp_events_number(event, "context", (double)run->data.context);
        ddp_events_number(event, "vocab", (double)run->config.model.vocab);
        ddp_events_number(event, "tokens", run->data.tokens);
    } else {
        add_pixels(event, run);
    }
    ddp_events_number(event, "parameters", (double)ddp_params_elements(run->params));
    if (run->frozen > 0) {
        ddp_events_number(event, "frozen", (double)run->frozen);
    }
    add_plan(event, run);
    add_exchange(event, run);
    add_memory(event, &run->memory);
    ddp_events_add_plan(event, run);
    ddp_events_number(event, "micro_batches", (double)ddp_config_micro_batches(&run->config));
    ddp_events_number(event, "total_steps", (double)run->total_steps);
    ddp_events_number(event, "sample_gflop", ddp_model_flops(run->model) / 1e9);
    ddp_events_number(event, "peak_gflops", run->peak_gflops);
    add_digest(event, &run->config);
    config = event != NULL ? cJSON_AddObjectToObject(event, "config") : NULL;
    for (size_t i = 0; config != NULL && i < ddp_config_keys(); i++) {
        snprintf(name, sizeof(name), "%s.%s", ddp_config_section(i), ddp_config_name(i));
        ddp_config_value(&run->config, i, value, sizeof(value));
        add_text(config, name, value);
    }
    ddp_events_write(run, event);
}

/* Of each bucket. */
static void add_bucket_bytes(cJSON *all, const ddp_run_t *run, size_t n)
{
    const ddp_reducer_params_t params  = ddp_run_reducer_params(run);
    ddp_bucket_info_t         *buckets = calloc(n, sizeof(*buckets));
    ddp_reducer_plan_t         plan;
    cJSON                     *bytes = all != NULL ? cJSON_AddArrayToObject(all, "bytes") : NULL;

    if (buckets == NULL || bytes == NULL ||
        ddp_reducer_plan(&params, ddp_comm_size(run->comm), 0, &plan, buckets, n) != DDP_OK) {
        ddp_error_clear(); /* the reducer is there, so this is no memory: an empty list */
        n = 0;
    }
    for (size_t b = 0; b < n; b++) {
        cJSON_AddItemToArray(bytes, cJSON_CreateNumber((double)(buckets[b].count * sizeof(float))));
    }
    free(buckets);
}

/* {"bytes": [...], "ready_ms": [...], "launched_ms": [...], "done_ms": [...]} of the last step; whole
 * microseconds. */
static void add_buckets(cJSON *event, const ddp_run_t *run)
{
    const size_t        n     = ddp_reducer_bucket_times(run->reducer, NULL, 0);
    ddp_bucket_times_t *times = calloc(n, sizeof(*times));
    cJSON *all      = event != NULL && times != NULL ? cJSON_AddObjectToObject(event, "bucket_times") : NULL;
    cJSON *ready    = all != NULL ? cJSON_AddArrayToObject(all, "ready_ms") : NULL;
    cJSON *launched = ready != NULL ? cJSON_AddArrayToObject(all, "launched_ms") : NULL;
    cJSON *done     = launched != NULL ? cJSON_AddArrayToObject(all, "done_ms") : NULL;

    if (times != NULL) {
        ddp_reducer_bucket_times(run->reducer, times, n);
    }
    add_bucket_bytes(all, run, n);
    for (size_t b = 0; b < n && done != NULL; b++) {
        cJSON_AddItemToArray(ready, cJSON_CreateNumber((double)(times[b].ready_ns / 1000) / 1e3));
        cJSON_AddItemToArray(launched, cJSON_CreateNumber((double)(times[b].launched_ns / 1000) / 1e3));
        cJSON_AddItemToArray(done, cJSON_CreateNumber((double)(times[b].done_ns / 1000) / 1e3));
    }
    free(times);
}

void ddp_event_step(ddp_run_t *run, const ddp_step_report_t *report)
{
    cJSON *event = ddp_metrics_event("step");

    ddp_events_number(event, "step", (double)report->step);
    ddp_events_number(event, "epoch", (double)report->epoch);
    ddp_events_number(event, "loss", report->loss);
    ddp_events_number(event, "lr", report->lr);
    if (!isnan(report->grad_norm)) {
        ddp_events_number(event, "grad_norm", report->grad_norm);
    }
    ddp_events_number(event, "step_ms", report->step_ms);
    ddp_events_number(event, "samples_per_s", report->samples_per_s);
    if (report->tokens_per_s > 0) {
        ddp_events_number(event, "tokens_per_s", report->tokens_per_s);
    }
    ddp_events_add_times(event, run, report);
    ddp_events_number(event, "data_wait_ms", report->data_wait_ms);
    ddp_events_number(event, "gflops", report->gflops);
    ddp_events_number(event, "mfu", report->mfu);
    if (ddp_comm_size(run->comm) > 1) {
        ddp_events_number(event, "slowest_rank", report->slowest_rank);
        ddp_events_number(event, "spread_ms", report->spread_ms);
    }
    if (run->config.ddp.trace_buckets) {
        add_buckets(event, run);
    }
    if (report->skipped > 0) {
        ddp_events_number(event, "skipped", (double)report->skipped);
    }
    if (run->config.train.precision == (int)DDP_PRECISION_FP16) {
        ddp_events_number(event, "loss_scale", report->loss_scale);
    }
    if (run->config.ddp.wire == (int)DDP_WIRE_BF16) {
        ddp_events_number(event, "wire_overflows", (double)report->wire_overflows);
    }
    ddp_events_write(run, event);
}

void ddp_event_stop(ddp_run_t *run, uint64_t step)
{
    cJSON *event = ddp_metrics_event("stop");

    ddp_events_number(event, "step", (double)step);
    ddp_events_write(run, event);
}

void ddp_event_checkpoint(ddp_run_t *run, const ddp_save_result_t *result)
{
    cJSON *event = ddp_metrics_event("checkpoint");

    ddp_events_number(event, "step", (double)result->step);
    if (result->is_saved) {
        add_text(event, "path", result->path);
        ddp_events_number(event, "bytes", (double)result->bytes);
        ddp_events_number(event, "stall_ms", (double)result->stall_ns / 1e6);
        ddp_events_number(event, "write_ms", (double)result->write_ns / 1e6);
    } else {
        add_text(event, "error", result->why);
    }
    ddp_events_write(run, event);
}

void ddp_event_eval(ddp_run_t *run, uint64_t step, uint64_t epoch, const ddp_eval_result_t *result)
{
    cJSON *event = ddp_metrics_event("eval");

    ddp_events_number(event, "step", (double)step);
    ddp_events_number(event, "epoch", (double)epoch);
    ddp_events_number(event, "loss", result->loss);
    if (result->perplexity > 0) {
        ddp_events_number(event, "perplexity", result->perplexity);
    }
    ddp_events_number(event, "accuracy", result->accuracy);
    ddp_events_number(event, "seconds", result->seconds);
    ddp_events_write(run, event);
}

/* What came of train.graphs on this rank, or on the first device. */
static void add_graphs(cJSON *event, const ddp_run_t *run)
{
    const ddp_graphs_report_t report = ddp_stream_graphs(run->compute);

    if (ddp_stream_has_graphs(run->compute)) {
        ddp_events_number(event, "graphs", (double)report.graphs);
        ddp_events_number(event, "graph_launches", (double)report.launches);
        ddp_events_number(event, "graph_share",
                          (double)report.launched / (double)(report.launched + report.single));
    }
}

void ddp_event_end(ddp_run_t *run, const ddp_end_report_t *report)
{
    cJSON *event = ddp_metrics_event("end");

    ddp_events_number(event, "steps", (double)report->steps);
    if (report->skipped > 0) {
        ddp_events_number(event, "skipped", (double)report->skipped);
    }
    ddp_events_number(event, "seconds", report->seconds);
    ddp_events_number(event, "first_step_ms", report->first_step_ms);
    ddp_events_number(event, "peak_rss_mb", (double)report->use.peak_rss / MIB);
    ddp_events_number(event, "pss_mb", (double)report->use.pss / MIB);
    ddp_events_add_use(event, run, report);
    add_graphs(event, run);
    if (report->test.perplexity > 0) {
        ddp_events_number(event, "perplexity", report->test.perplexity);
    }
    ddp_events_number(event, "accuracy", report->test.accuracy);
    add_text(event, "weights", report->weights);
    ddp_events_write(run, event);
}
