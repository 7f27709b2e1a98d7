/* Buckets that are reduced at the same time, as on CPUs, have a line each, since a line has no two things at
 * a time. cJSON's own functions take NULL for an object that there was no memory for. */
#include "launcher/trace_json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include <cjson/cJSON.h>

#define COMM_LINES 16

/* Lines of one device. */
typedef struct lines {
    int32_t device;
    int     comm;                    /* in use */
    double  comm_end_us[COMM_LINES]; /* of what is on each */
} lines_t;

static cJSON *add_event(cJSON *events, const char *name, const char *kind, int32_t device, int line)
{
    cJSON *event = cJSON_CreateObject();

    (void)cJSON_AddStringToObject(event, "name", name);
    (void)cJSON_AddStringToObject(event, "ph", kind);
    (void)cJSON_AddNumberToObject(event, "pid", device);
    (void)cJSON_AddNumberToObject(event, "tid", line);
    (void)cJSON_AddItemToArray(events, event);
    return event;
}

/* The name of a device, or of one of its lines. */
static void add_name(cJSON *events, const char *what, int32_t device, int line, const char *name)
{
    cJSON *event = add_event(events, what, "M", device, line);

    (void)cJSON_AddStringToObject(cJSON_AddObjectToObject(event, "args"), "name", name);
}

/* Where it is free, else on a new line. */
static int comm_line(cJSON *events, lines_t *lines, const ddp_trace_span_t *span)
{
    char name[32];
    int  line = 0;

    while (line < lines->comm && lines->comm_end_us[line] > span->start_us && line + 1 < COMM_LINES) {
        line++;
    }
    if (line == lines->comm) {
        lines->comm++;
        snprintf(name, sizeof(name), line == 0 ? "comm" : "comm %d", line + 1);
        add_name(events, "thread_name", lines->device, 1 + line, name);
    }
    lines->comm_end_us[line] = span->end_us;
    return 1 + line;
}

static void add_span(cJSON *events, const ddp_trace_span_t *span, int line)
{
    cJSON *event = add_event(events, span->phase, "X", span->device, line);
    cJSON *args  = NULL;

    (void)cJSON_AddNumberToObject(event, "ts", span->start_us);
    (void)cJSON_AddNumberToObject(event, "dur", span->end_us - span->start_us);
    if (span->part == DDP_TRACE_NO_PART) {
        return;
    }
    args = cJSON_AddObjectToObject(event, "args");
    (void)cJSON_AddNumberToObject(args, span->is_comm ? "bucket" : "part", span->part);
    if (!isnan(span->ready_us)) {
        (void)cJSON_AddNumberToObject(args, "ready_us", span->ready_us);
    }
}

static bool is_first(const ddp_trace_span_t *spans, size_t i)
{
    for (size_t k = i; k-- > 0;) {
        if (spans[k].device == spans[i].device) {
            return false;
        }
    }
    return true;
}

static void add_spans(cJSON *events, const char *noun, const ddp_trace_span_t *spans, size_t n)
{
    lines_t lines = {.device = -1};
    char    name[32];

    for (size_t i = 0; i < n; i++) {
        int line = 0;

        if (is_first(spans, i)) {
            lines = (lines_t){.device = spans[i].device};
            snprintf(name, sizeof(name), "%s %" PRId32, noun, lines.device);
            add_name(events, "process_name", lines.device, 0, name);
            add_name(events, "thread_name", lines.device, 0, "compute");
        }
        if (spans[i].is_comm) {
            line = comm_line(events, &lines, &spans[i]);
        }
        add_span(events, &spans[i], line);
    }
}

char *ddp_trace_json(const char *noun, uint64_t step, const ddp_trace_span_t *spans, size_t n)
{
    cJSON *trace = cJSON_CreateObject();
    char  *text  = NULL;

    (void)cJSON_AddStringToObject(trace, "displayTimeUnit", "ms");
    (void)cJSON_AddNumberToObject(cJSON_AddObjectToObject(trace, "otherData"), "step", (double)step);
    add_spans(cJSON_AddArrayToObject(trace, "traceEvents"), noun, spans, n);
    text = cJSON_PrintUnformatted(trace);
    cJSON_Delete(trace);
    return text;
}
