/* What a run tells of itself. Fields that are missing leave a NaN, which is shown as "-". */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file_open.h"
#include "base/utf8.h"
#include "launcher/compare.h"
#include "launcher/json_read.h"

#define MOST_LIST 100000

static bool add_phase(ddp_compare_result_t *result, const char *name, double ms)
{
    size_t p = 0;

    if (isnan(ms)) {
        return true;
    }
    while (p < result->n_phases && strcmp(result->phases[p].name, name) != 0) {
        p++;
    }
    if (p == DDP_COMPARE_MAX_PHASES) {
        return true;
    }
    if (p == result->n_phases) {
        (void)snprintf(result->phases[p].name, sizeof(result->phases[p].name), "%s", name);
        ddp_utf8_clean(result->phases[p].name);
        result->n_phases++;
    }
    return ddp_compare_add(&result->phases[p].series, ms);
}

static ddp_status_t take_step(const cJSON *event, ddp_compare_result_t *result)
{
    const cJSON *phases = cJSON_GetObjectItemCaseSensitive(event, "phases_ms");
    const cJSON *phase;
    bool         is_ok = ddp_compare_add(&result->step, ddp_json_number(event, "step_ms"));

    is_ok = is_ok && ddp_compare_add(&result->comm, ddp_json_number(event, "comm_ms"));
    is_ok = is_ok && ddp_compare_add(&result->exposed, ddp_json_number(event, "exposed_comm_ms"));
    is_ok = is_ok && ddp_compare_add(&result->data, ddp_json_number(event, "data_wait_ms"));
    if (!cJSON_IsObject(phases)) {
        is_ok = is_ok && add_phase(result, "forward", ddp_json_number(event, "forward_ms"));
        is_ok = is_ok && add_phase(result, "backward", ddp_json_number(event, "backward_ms"));
        is_ok = is_ok && add_phase(result, "exposed", ddp_json_number(event, "exposed_comm_ms"));
    }
    cJSON_ArrayForEach(phase, phases)
    {
        is_ok = is_ok && add_phase(result, phase->string, cJSON_IsNumber(phase) ? phase->valuedouble : NAN);
    }
    return is_ok ? DDP_OK : ddp_fail(DDP_ERR_NO_MEMORY, "no memory for the times of steps");
}

static double or_zero(double value)
{
    return isnan(value) ? 0 : value;
}

/* A device of end's device_memory_bytes. */
static void take_device(const cJSON *memory, ddp_compare_device_t *device)
{
    for (int kind = 0; kind < DDP_COMPARE_OTHER; kind++) {
        device->bytes[kind] = ddp_json_number(memory, ddp_compare_memory_name((ddp_compare_memory_t)kind));
    }
    device->bytes[DDP_COMPARE_OTHER] =
        or_zero(ddp_json_number(memory, "scratch")) + or_zero(ddp_json_number(memory, "inputs"));
    device->total = ddp_json_number(memory, "total");
    device->peak  = ddp_json_number(memory, "peak");
    if (isnan(device->peak)) {
        device->peak = device->total;
    }
}

static ddp_status_t take_links(const cJSON *list, ddp_compare_result_t *result)
{
    ddp_status_t        status = DDP_OK;
    const int           n      = cJSON_GetArraySize(list);
    ddp_compare_link_t *links  = calloc((size_t)n + 1, sizeof(*links));
    size_t              used   = 0;
    const cJSON        *item;

    DDP_REQUIRE(links != NULL && n <= MOST_LIST, DDP_ERR_NO_MEMORY, "no memory for %d links", n);
    cJSON_ArrayForEach(item, list)
    {
        const double from  = ddp_json_at(item, 0);
        const double to    = ddp_json_at(item, 1);
        const double bytes = ddp_json_at(item, 2);

        if (from >= 0 && to >= 0 && from < DDP_COMPARE_MAX_DEVICES && to < DDP_COMPARE_MAX_DEVICES &&
            bytes >= 0) {
            links[used++] = (ddp_compare_link_t){(size_t)from, (size_t)to, bytes};
        }
    }
    free(result->links);
    result->links   = links;
    result->n_links = used;
    links           = NULL;
out:
    free(links);
    return status;
}

static ddp_status_t take_trace(const cJSON *event, ddp_compare_result_t *result)
{
    ddp_status_t        status = DDP_OK;
    const cJSON        *list   = cJSON_GetObjectItemCaseSensitive(event, "spans");
    const int           n      = cJSON_GetArraySize(list);
    ddp_compare_span_t *spans  = calloc((size_t)n + 1, sizeof(*spans));
    size_t              used   = 0;
    const cJSON        *item;

    DDP_REQUIRE(spans != NULL && n <= MOST_LIST, DDP_ERR_NO_MEMORY, "no memory for %d pieces of a step", n);
    cJSON_ArrayForEach(item, list)
    {
        const char  *phase  = cJSON_GetStringValue(cJSON_GetArrayItem(item, 0));
        const double device = ddp_json_at(item, 1);
        const double start  = ddp_json_at(item, 2) / 1e3;
        const double end    = ddp_json_at(item, 3) / 1e3;

        if (phase != NULL && device >= 0 && device < (double)result->devices && end >= start) {
            ddp_compare_span_t *span = &spans[used++];

            *span = (ddp_compare_span_t){.device = (size_t)device, .start_ms = start, .end_ms = end};
            (void)snprintf(span->phase, sizeof(span->phase), "%s", phase);
            ddp_utf8_clean(span->phase);
        }
    }
    free(result->spans);
    result->spans   = spans;
    result->n_spans = used;
    spans           = NULL;
out:
    free(spans);
    return status;
}

static ddp_status_t take_end(const cJSON *event, ddp_compare_result_t *result)
{
    const cJSON *memory = cJSON_GetObjectItemCaseSensitive(event, "device_memory_bytes");
    const cJSON *busy   = cJSON_GetObjectItemCaseSensitive(event, "device_busy_ms");
    const cJSON *moved  = cJSON_GetObjectItemCaseSensitive(event, "moved_bytes");
    const cJSON *part;
    double       sum = 0;
    char         before[sizeof(result->weights)];

    for (size_t d = 0; d < result->devices; d++) {
        if (cJSON_IsArray(memory)) {
            take_device(cJSON_GetArrayItem(memory, (int)d), &result->device[d]);
        }
        result->device[d].busy_ms = ddp_json_at(busy, (int)d);
    }
    cJSON_ArrayForEach(part, moved)
    {
        sum += cJSON_IsNumber(part) ? part->valuedouble : 0;
    }
    result->moved_bytes = cJSON_IsObject(moved) ? sum : NAN;
    memcpy(before, result->weights, sizeof(before));
    ddp_json_text(event, "weights", result->weights, sizeof(result->weights));
    if (before[0] != '\0' && strcmp(before, result->weights) != 0) {
        (void)snprintf(result->weights, sizeof(result->weights), "%s", DDP_COMPARE_UNSTEADY);
    }
    return take_links(cJSON_GetObjectItemCaseSensitive(event, "links"), result);
}

static void take_start(const cJSON *event, ddp_compare_t *compare)
{
    const cJSON *hosts     = cJSON_GetObjectItemCaseSensitive(event, "hosts");
    const char  *host      = cJSON_GetStringValue(cJSON_GetArrayItem(hosts, 0));
    const cJSON *keys      = cJSON_GetObjectItemCaseSensitive(event, "config");
    char         model[32] = "";
    char         data[128] = "";

    (void)snprintf(compare->host, sizeof(compare->host), "%s", host != NULL ? host : "");
    ddp_utf8_clean(compare->host);
    ddp_json_text(event, "isa", compare->isa, sizeof(compare->isa));
    ddp_json_text(keys, "model.kind", model, sizeof(model));
    ddp_json_text(event, "data", data, sizeof(data));
    (void)snprintf(compare->title, sizeof(compare->title), "%s on %s", model, data);
    compare->parameters = ddp_json_number(event, "parameters");
}

/* @param [out] is_end_p  this is the last event of a run that came to its end */
static ddp_status_t take(const cJSON *event, uint64_t warmup, ddp_compare_t *compare,
                         ddp_compare_result_t *result, bool *is_end_p)
{
    const char *name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(event, "event"));

    *is_end_p = name != NULL && strcmp(name, "end") == 0;
    if (name == NULL) {
        return ddp_fail(DDP_ERR_FORMAT, "a line is no event");
    }
    if (strcmp(name, "start") == 0) {
        take_start(event, compare);
    } else if (strcmp(name, "step") == 0 && ddp_json_number(event, "step") > (double)warmup) {
        return take_step(event, result);
    } else if (strcmp(name, "trace") == 0) {
        return take_trace(event, result);
    }
    return *is_end_p ? take_end(event, result) : DDP_OK;
}

ddp_status_t ddp_compare_read(const char *folder, uint64_t warmup, ddp_compare_t *compare,
                              ddp_compare_result_t *result)
{
    ddp_status_t status = DDP_OK;
    FILE        *file   = NULL;
    cJSON       *event  = NULL;
    char        *line   = NULL;
    size_t       room   = 0;
    bool         is_end = false;
    char         path[DDP_COMPARE_PATH + 32];
    ssize_t      length;

    (void)snprintf(path, sizeof(path), "%s/metrics.jsonl", folder);
    DDP_TRY(ddp_file_open(path, &file));
    while ((length = getline(&line, &room, file)) > 0) {
        event  = cJSON_ParseWithLength(line, (size_t)length);
        status = take(event, warmup, compare, result, &is_end);
        cJSON_Delete(event);
        if (status != DDP_OK) {
            ddp_error_prefix("'%s'", path);
            goto out;
        }
    }
    DDP_REQUIRE(is_end, DDP_ERR_FORMAT, "'%s': breaks off", path);
out:
    free(line);
    if (file != NULL) {
        (void)fclose(file);
    }
    return status;
}
