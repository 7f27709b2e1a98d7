#include <math.h>

#include "launcher/compare.h"

/* What is not known is null. */
static void add(cJSON *object, const char *name, double value)
{
    if (isnan(value)) {
        cJSON_AddNullToObject(object, name);
    } else {
        cJSON_AddNumberToObject(object, name, value);
    }
}

static void add_memory(cJSON *parent, const ddp_compare_device_t *device)
{
    cJSON *memory = cJSON_AddObjectToObject(parent, "memory_bytes");

    for (int kind = 0; kind < DDP_COMPARE_MEMORY_KINDS; kind++) {
        add(memory, ddp_compare_memory_name((ddp_compare_memory_t)kind), device->bytes[kind]);
    }
    add(memory, "total", device->total);
    add(memory, "peak", device->peak);
}

static void add_devices(cJSON *object, const ddp_compare_result_t *result)
{
    cJSON *list = cJSON_AddArrayToObject(object, "device");

    for (size_t d = 0; d < result->devices; d++) {
        cJSON *device = cJSON_CreateObject();

        add_memory(device, &result->device[d]);
        add(device, "busy_ms", result->device[d].busy_ms);
        cJSON_AddItemToArray(list, device);
    }
}

static void add_times(cJSON *object, const ddp_compare_result_t *result)
{
    cJSON *step   = cJSON_AddObjectToObject(object, "step_ms");
    cJSON *phases = cJSON_AddObjectToObject(object, "phases_ms");

    add(step, "median", result->spread.median);
    add(step, "q1", result->spread.q1);
    add(step, "q3", result->spread.q3);
    add(step, "spread", result->spread.q3 - result->spread.q1);
    add(step, "count", (double)result->spread.n);
    add(object, "samples_per_s", result->samples_per_s);
    add(object, "speedup", result->speedup);
    add(object, "efficiency", result->efficiency);
    add(object, "exposed_comm_ms", result->exposed_ms);
    add(object, "comm_ms", result->comm_ms);
    add(object, "data_wait_ms", result->data_ms);
    for (size_t p = 0; p < result->n_phases; p++) {
        add(phases, result->phases[p].name, result->phases[p].ms);
    }
}

static void add_moves(cJSON *object, const ddp_compare_result_t *result)
{
    cJSON *links;

    add(object, "moved_bytes", result->moved_bytes);
    links = cJSON_AddArrayToObject(object, "links");
    for (size_t i = 0; i < result->n_links; i++) {
        const double link[] = {(double)result->links[i].from, (double)result->links[i].to,
                               result->links[i].bytes};

        cJSON_AddItemToArray(links, cJSON_CreateDoubleArray(link, 3));
    }
}

static void add_spans(cJSON *object, const ddp_compare_result_t *result)
{
    cJSON *spans = cJSON_AddArrayToObject(object, "timeline");

    for (size_t i = 0; i < result->n_spans; i++) {
        const ddp_compare_span_t *span = &result->spans[i];
        cJSON                    *item = cJSON_CreateArray();

        cJSON_AddItemToArray(item, cJSON_CreateString(span->phase));
        cJSON_AddItemToArray(item, cJSON_CreateNumber((double)span->device));
        cJSON_AddItemToArray(item, cJSON_CreateNumber(span->start_ms));
        cJSON_AddItemToArray(item, cJSON_CreateNumber(span->end_ms));
        cJSON_AddItemToArray(spans, item);
    }
}

static cJSON *result_json(const ddp_compare_result_t *result)
{
    cJSON *object = cJSON_CreateObject();

    cJSON_AddStringToObject(object, "way", ddp_compare_way_key(result->way));
    add(object, "devices", (double)result->devices);
    add(object, "rounds", (double)result->rounds);
    if (result->error[0] != '\0') {
        cJSON_AddStringToObject(object, "error", result->error);
    }
    if (!ddp_compare_is_measured(result)) {
        return object;
    }
    add_times(object, result);
    add_moves(object, result);
    add_devices(object, result);
    add(object, "memory_imbalance", result->memory_ratio);
    add(object, "busy_imbalance", result->busy_ratio);
    cJSON_AddStringToObject(object, "weights", result->weights);
    cJSON_AddBoolToObject(object, "weights_equal", result->is_equal);
    add_spans(object, result);
    return object;
}

static void add_lines(cJSON *object, const char *name, const char (*line)[DDP_COMPARE_LINE], size_t n)
{
    cJSON *list = cJSON_AddArrayToObject(object, name);

    for (size_t i = 0; i < n; i++) {
        cJSON_AddItemToArray(list, cJSON_CreateString(line[i]));
    }
}

cJSON *ddp_compare_json(const ddp_compare_t *compare)
{
    cJSON *all  = cJSON_CreateObject();
    cJSON *list = NULL;

    if (all == NULL) {
        return NULL;
    }
    cJSON_AddStringToObject(all, "title", compare->title);
    cJSON_AddStringToObject(all, "host", compare->host);
    cJSON_AddStringToObject(all, "isa", compare->isa);
    add(all, "cores", (double)compare->cores);
    add(all, "parameters", compare->parameters);
    add(all, "batch", (double)compare->config.train.batch);
    add(all, "micro_batch", (double)compare->config.train.micro_batch);
    add(all, "micro_batches", (double)compare->micro_batches);
    add(all, "seed", (double)compare->config.train.seed);
    add(all, "steps", (double)compare->options.steps);
    add(all, "warmup", (double)compare->options.warmup);
    add(all, "rounds", (double)compare->options.rounds);
    add(all, "seconds", compare->seconds);
    list = cJSON_AddArrayToObject(all, "results");
    for (size_t i = 0; i < compare->n_results; i++) {
        cJSON_AddItemToArray(list, result_json(&compare->results[i]));
    }
    cJSON_AddStringToObject(all, "verdict", compare->headline);
    add_lines(all, "reasons", compare->reasons, compare->n_reasons);
    add_lines(all, "notes", compare->notes, compare->n_notes);
    return all;
}
