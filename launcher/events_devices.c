/* What events say of devices: times of a step, memory, what moved, the timeline. cJSON's own functions take
 * NULL for an object that there was no memory for. */
#include "launcher/events_internal.h"

/* Bytes between devices, by phase. */
static void add_moved(cJSON *object, const uint64_t *moved)
{
    for (int p = 0; p < DDP_DP_PHASES; p++) {
        if (moved[p] > 0) {
            ddp_events_number(object, ddp_dp_phase_name((ddp_dp_phase_t)p), (double)moved[p]);
        }
    }
}

/* With train.mode dp. */
static void add_phases(cJSON *event, const ddp_run_t *run, const ddp_measure_t *sum)
{
    const double ms     = 1e6 * (double)sum->steps;
    cJSON       *phases = cJSON_AddObjectToObject(event, "phases_ms");
    cJSON       *busy   = NULL;

    for (int p = 0; p < DDP_DP_PHASES; p++) {
        ddp_events_number(phases, ddp_dp_phase_name((ddp_dp_phase_t)p), (double)sum->phase_ns[p] / ms);
    }
    busy = cJSON_AddArrayToObject(event, "device_busy_ms");
    for (size_t d = 0; d < run->devices.n; d++) {
        (void)cJSON_AddItemToArray(busy, cJSON_CreateNumber((double)sum->busy_ns[d] / ms));
    }
    add_moved(cJSON_AddObjectToObject(event, "moved_bytes"), sum->moved);
}

void ddp_events_add_times(cJSON *event, const ddp_run_t *run, const ddp_step_report_t *report)
{
    const ddp_measure_t *sum = report->measure;
    const double         ms  = 1e6 * (double)sum->steps;

    ddp_events_number(event, "forward_ms", (double)sum->forward_ns / ms);
    ddp_events_number(event, "backward_ms", (double)sum->backward_ns / ms);
    ddp_events_number(event, "exposed_comm_ms", (double)sum->exposed_ns / ms);
    if (run->config.train.mode == DDP_MODE_DDP) {
        ddp_events_number(event, "comm_ms", (double)sum->comm_ns / ms);
        ddp_events_number(event, "overlap", report->overlap);
    } else {
        add_phases(event, run, sum);
    }
}

void ddp_event_trace(ddp_run_t *run, uint64_t step, double step_ms, const ddp_span_t *spans, size_t n)
{
    cJSON *event = ddp_metrics_event("trace");
    cJSON *all   = NULL;

    ddp_events_number(event, "step", (double)step);
    ddp_events_number(event, "step_ms", step_ms);
    all = cJSON_AddArrayToObject(event, "spans");
    for (size_t i = 0; i < n; i++) {
        cJSON *span = cJSON_CreateArray();

        (void)cJSON_AddItemToArray(span, cJSON_CreateString(ddp_span_phase_name(run, spans[i].phase)));
        (void)cJSON_AddItemToArray(span, cJSON_CreateNumber(spans[i].device));
        (void)cJSON_AddItemToArray(span, cJSON_CreateNumber(spans[i].start_us));
        (void)cJSON_AddItemToArray(span, cJSON_CreateNumber(spans[i].end_us));
        (void)cJSON_AddItemToArray(all, span);
    }
    ddp_events_write(run, event);
}

static void add_memory(cJSON *list, int64_t id, const ddp_dp_memory_t *memory, uint64_t pss)
{
    cJSON *object = cJSON_CreateObject();

    ddp_events_number(object, "id", (double)id);
    ddp_events_number(object, "parameters", (double)memory->parameters);
    ddp_events_number(object, "gradients", (double)memory->gradients);
    ddp_events_number(object, "moments", (double)memory->moments);
    ddp_events_number(object, "activations", (double)memory->activations);
    ddp_events_number(object, "scratch", (double)memory->scratch);
    ddp_events_number(object, "inputs", (double)memory->inputs);
    ddp_events_number(object, "outputs", (double)memory->outputs);
    ddp_events_number(object, "total", (double)memory->total);
    if (memory->peak > 0) {
        ddp_events_number(object, "peak", (double)memory->peak);
    }
    if (memory->cap > 0) {
        ddp_events_number(object, "cap", (double)memory->cap);
    }
    if (pss > 0) {
        ddp_events_number(object, "pss", (double)pss);
    }
    (void)cJSON_AddItemToArray(list, object);
}

/* In the last step, for each pair of devices, and in all by kind. */
static void add_traffic(cJSON *event, const ddp_run_t *run, const ddp_use_t *use, const uint64_t *dp_moved)
{
    cJSON   *links    = cJSON_AddArrayToObject(event, "links");
    cJSON   *moved    = cJSON_AddObjectToObject(event, "moved_bytes");
    uint64_t read     = 0;
    uint64_t received = 0;

    for (size_t i = 0; i < use->n * use->n; i++) {
        const double link[3] = {(double)(i % use->n), (double)(i / use->n), (double)use->link[i]};

        if (use->link[i] > 0) {
            (void)cJSON_AddItemToArray(links, cJSON_CreateDoubleArray(link, 3));
        }
    }
    for (size_t d = 0; d < use->n; d++) {
        read += use->device[d].read;
        received += use->device[d].received;
    }
    if (run->config.train.mode == DDP_MODE_DDP) {
        ddp_events_number(moved, "gradients", (double)read);
        ddp_events_number(moved, "network", (double)received);
    } else {
        add_moved(moved, dp_moved);
    }
}

void ddp_events_add_plan(cJSON *event, const ddp_run_t *run)
{
    cJSON *memory = NULL;

    if (run->devices.n > 0) {
        memory = cJSON_AddArrayToObject(event, "planned_memory_bytes");
    }
    for (size_t d = 0; d < run->devices.n; d++) {
        add_memory(memory, run->devices.id[d], &run->memory.device[d], 0);
    }
}

void ddp_events_add_use(cJSON *event, const ddp_run_t *run, const ddp_end_report_t *report)
{
    const ddp_use_t *use    = &report->use;
    cJSON           *memory = cJSON_AddArrayToObject(event, "device_memory_bytes");
    cJSON           *busy   = cJSON_AddArrayToObject(event, "device_busy_ms");

    for (size_t d = 0; d < use->n; d++) {
        add_memory(memory, use->device[d].id, &use->device[d].memory, use->device[d].pss);
        (void)cJSON_AddItemToArray(busy, cJSON_CreateNumber(use->device[d].busy_ms));
    }
    add_traffic(event, run, use, report->measure.moved);
}
