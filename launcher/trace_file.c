/* trace.json of a run: the timeline of its last step. */
#include <math.h>
#include <stdlib.h>

#include <cjson/cJSON.h>

#include "base/error.h"
#include "base/log.h"
#include "io/metrics.h"
#include "launcher/run.h"
#include "launcher/trace_json.h"

static ddp_trace_span_t convert(const ddp_run_t *run, const ddp_span_t *span)
{
    const bool is_comm = ddp_span_is_comm(run, span->phase);

    return (ddp_trace_span_t){.phase    = ddp_span_phase_name(run, span->phase),
                              .device   = span->device,
                              .is_comm  = is_comm,
                              .part     = run->dp != NULL ? DDP_TRACE_NO_PART : span->part,
                              .start_us = span->start_us,
                              .end_us   = span->end_us,
                              .ready_us = is_comm ? span->ready_us : NAN};
}

void ddp_trace_file_write(ddp_run_t *run, uint64_t step, const ddp_span_t *spans, size_t n)
{
    ddp_status_t      status = DDP_OK;
    ddp_trace_span_t *all    = calloc(n + 1, sizeof(*all));
    char             *text   = NULL;

    for (size_t i = 0; all != NULL && i < n; i++) {
        all[i] = convert(run, &spans[i]);
    }
    if (all != NULL) {
        text = ddp_trace_json(run->dp != NULL ? "device" : "rank", step, all, n);
    }
    ddp_run_watch_disk(run, "writing trace.json");
    status = text != NULL ? ddp_file_write(run->folder, "trace.json", text)
                          : ddp_fail(DDP_ERR_NO_MEMORY, "no memory for trace.json");
    ddp_run_watch_end(run);
    if (status != DDP_OK) { /* the training is worth more than its picture */
        ddp_log(DDP_LOG_WARN, "no trace: %s", ddp_error_line());
    }
    cJSON_free(text);
    free(all);
}
