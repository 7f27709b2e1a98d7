#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/error.h"
#include "launcher/events_internal.h"

#define MIB 1048576.0

static void add(cJSON *object, const char *name, double value)
{
    if (object != NULL) {
        cJSON_AddNumberToObject(object, name, value);
    }
}

static void add_text(cJSON *object, const char *name, const char *value)
{
    if (object != NULL) {
        cJSON_AddStringToObject(object, name, value);
    }
}

void ddp_events_write(ddp_run_t *run, cJSON *event)
{
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
    add(event, "buckets", (double)plan.n_buckets);
    add(event, "gradient_arenas", (double)plan.arenas);
    add(event, "shared_bytes", (double)plan.shared_bytes);
}

/* What was planned for rank 0 and its machine. */
static void add_memory(cJSON *event, const ddp_run_memory_t *memory)
{
    cJSON *object = event != NULL ? cJSON_AddObjectToObject(event, "memory_bytes") : NULL;

    add(object, "parameters", (double)memory->parameters);
    add(object, "moments", (double)memory->moments);
    add(object, "gradients", (double)memory->gradients);
    add(object, "tables", (double)memory->tables);
    add(object, "data", (double)memory->data);
    add(object, "activations", (double)memory->tape.activations);
    add(object, "scratch", (double)(memory->tape.scratch + memory->kernels));
    add(object, "records", (double)memory->tape.nodes);
    add(object, "loader", (double)memory->loader);
    add(object, "evaluation", (double)memory->evaluation);
    add(object, "wire", (double)memory->wire);
    add(object, "snapshot", (double)memory->snapshot);
    add(object, "shared", (double)memory->shared);
    add(object, "rank", (double)memory->own);
    add(object, "machine", (double)memory->machine);
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

/* Of train.mode dp. */
static void add_devices(cJSON *event, const ddp_run_t *run)
{
    cJSON *list = NULL;

    if (run->devices.n > 0 && event != NULL) {
        list = cJSON_CreateIntArray(run->devices.id, (int)run->devices.n);
        (void)cJSON_AddItemToObject(event, "devices", list);
        add(event, "output_device", run->devices.output);
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
    add_text(event, "mode", run->config.train.mode == DDP_MODE_DP ? "dp" : "ddp");
    add_devices(event, run);
    add(event, "ranks", ddp_comm_size(run->comm));
    add(event, "machines", ddp_comm_machines(run->comm));
    add_text(event, "device", "cpu");
    add_text(event, "isa", ddp_isa_name(run->isa));
    if (run->config.train.precision == DDP_PRECISION_BF16) {
        add_text(event, "bf16", ddp_isa_has_bf16(run->isa) ? "instruction" : "emulated");
    }
    add_text(event, "data", run->data.source);
    add(event, "samples", (double)run->data.samples);
    add(event, "test_samples", (double)run->data.test_samples);
    if (run->data.context > 0) {
        add(event, "context", (double)run->data.context);
        add(event, "vocab", (double)run->config.model.vocab);
        add(event, "tokens", run->data.tokens);
    } else {
        add_pixels(event, run);
    }
    add(event, "parameters", (double)ddp_params_elements(run->params));
    if (run->frozen > 0) {
        add(event, "frozen", (double)run->frozen);
    }
    add_plan(event, run);
    add_memory(event, &run->memory);
    ddp_events_add_plan(event, run);
    add(event, "micro_batches", (double)ddp_config_micro_batches(&run->config));
    add(event, "total_steps", (double)run->total_steps);
    add(event, "sample_gflop", ddp_model_flops(run->model) / 1e9);
    add(event, "peak_gflops", run->peak_gflops);
    add_digest(event, &run->config);
    config = event != NULL ? cJSON_AddObjectToObject(event, "config") : NULL;
    for (size_t i = 0; config != NULL && i < ddp_config_keys(); i++) {
        snprintf(name, sizeof(name), "%s.%s", ddp_config_section(i), ddp_config_name(i));
        ddp_config_value(&run->config, i, value, sizeof(value));
        add_text(config, name, value);
    }
    ddp_events_write(run, event);
}

/* {"ready_ms": [...], "launched_ms": [...], "done_ms": [...]} of the last step; whole microseconds. */
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

    add(event, "step", (double)report->step);
    add(event, "epoch", (double)report->epoch);
    add(event, "loss", report->loss);
    add(event, "lr", report->lr);
    if (!isnan(report->grad_norm)) {
        add(event, "grad_norm", report->grad_norm);
    }
    add(event, "step_ms", report->step_ms);
    add(event, "samples_per_s", report->samples_per_s);
    if (report->tokens_per_s > 0) {
        add(event, "tokens_per_s", report->tokens_per_s);
    }
    ddp_events_add_times(event, run, report);
    add(event, "data_wait_ms", report->data_wait_ms);
    add(event, "gflops", report->gflops);
    add(event, "mfu", report->mfu);
    if (ddp_comm_size(run->comm) > 1) {
        add(event, "slowest_rank", report->slowest_rank);
        add(event, "spread_ms", report->spread_ms);
    }
    if (run->config.ddp.trace_buckets) {
        add_buckets(event, run);
    }
    if (report->skipped > 0) {
        add(event, "skipped", (double)report->skipped);
    }
    ddp_events_write(run, event);
}

void ddp_event_stop(ddp_run_t *run, uint64_t step)
{
    cJSON *event = ddp_metrics_event("stop");

    add(event, "step", (double)step);
    ddp_events_write(run, event);
}

void ddp_event_checkpoint(ddp_run_t *run, const ddp_save_result_t *result)
{
    cJSON *event = ddp_metrics_event("checkpoint");

    add(event, "step", (double)result->step);
    if (result->is_saved) {
        add_text(event, "path", result->path);
        add(event, "bytes", (double)result->bytes);
        add(event, "stall_ms", (double)result->stall_ns / 1e6);
        add(event, "write_ms", (double)result->write_ns / 1e6);
    } else {
        add_text(event, "error", result->why);
    }
    ddp_events_write(run, event);
}

void ddp_event_eval(ddp_run_t *run, uint64_t step, uint64_t epoch, const ddp_eval_result_t *result)
{
    cJSON *event = ddp_metrics_event("eval");

    add(event, "step", (double)step);
    add(event, "epoch", (double)epoch);
    add(event, "loss", result->loss);
    if (result->perplexity > 0) {
        add(event, "perplexity", result->perplexity);
    }
    add(event, "accuracy", result->accuracy);
    add(event, "seconds", result->seconds);
    ddp_events_write(run, event);
}

void ddp_event_end(ddp_run_t *run, const ddp_end_report_t *report)
{
    cJSON *event = ddp_metrics_event("end");

    add(event, "steps", (double)report->steps);
    if (report->skipped > 0) {
        add(event, "skipped", (double)report->skipped);
    }
    add(event, "seconds", report->seconds);
    add(event, "first_step_ms", report->first_step_ms);
    add(event, "peak_rss_mb", (double)report->use.peak_rss / MIB);
    add(event, "pss_mb", (double)report->use.pss / MIB);
    ddp_events_add_use(event, run, report);
    if (report->test.perplexity > 0) {
        add(event, "perplexity", report->test.perplexity);
    }
    add(event, "accuracy", report->test.accuracy);
    add_text(event, "weights", report->weights);
    ddp_events_write(run, event);
}
