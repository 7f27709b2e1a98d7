#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/log.h"
#include "io/metrics.h"
#include "launcher/json_read.h"
#include "launcher/launch.h"
#include "launcher/report.h"
#include "launcher/trace_json.h"

typedef struct report {
    ddp_report_options_t options;
    ddp_report_run_t    *run[DDP_REPORT_MAX_RUNS]; /* owned; large */
} report_t;

ddp_status_t ddp_report_trace(const ddp_report_run_t *run, char **text_p)
{
    ddp_status_t      status = DDP_OK;
    const cJSON      *list   = cJSON_GetObjectItemCaseSensitive(run->trace, "spans");
    const int         n      = cJSON_GetArraySize(list);
    const bool        is_dp  = run->n_starts > 0 && run->start[run->n_starts - 1].is_dp;
    ddp_trace_span_t *spans  = calloc((size_t)n + 1, sizeof(*spans));
    size_t            used   = 0;
    const cJSON      *item;
    char             *text;

    DDP_REQUIRE(spans != NULL, DDP_ERR_NO_MEMORY, "no memory for %d pieces of a step", n);
    DDP_REQUIRE(n > 0, DDP_ERR_FORMAT,
                "'%s': there is no timeline in it; a run with train.trace: true leaves one at its end",
                run->folder);
    cJSON_ArrayForEach(item, list)
    {
        const char  *phase  = cJSON_GetStringValue(cJSON_GetArrayItem(item, 0));
        const double device = ddp_json_at(item, 1);
        const double start  = ddp_json_at(item, 2);
        const double end    = ddp_json_at(item, 3);

        if (phase != NULL && device >= 0 && device <= INT32_MAX && end >= start) {
            spans[used++] = (ddp_trace_span_t){.phase    = phase,
                                               .device   = (int32_t)device,
                                               .is_comm  = !is_dp && strcmp(phase, "reduce") == 0,
                                               .part     = DDP_TRACE_NO_PART,
                                               .start_us = start,
                                               .end_us   = end,
                                               .ready_us = NAN};
        }
    }
    text = ddp_trace_json(is_dp ? "device" : "rank", (uint64_t)fmax(ddp_json_number(run->trace, "step"), 0),
                          spans, used);
    DDP_REQUIRE(text != NULL, DDP_ERR_NO_MEMORY, "no memory for the timeline");
    *text_p = text;
out:
    free(spans);
    return status;
}

/* A run's folder below DIR, where there are several runs: its name, with a number if an earlier one has it.
 */
static void board_folder(const report_t *report, size_t i, char *path, size_t size)
{
    const char *folder = report->options.run[i];
    size_t      same   = 0;
    size_t      length = strlen(folder);
    const char *name;

    if (report->options.n_runs == 1) {
        (void)snprintf(path, size, "%s", report->options.tensorboard);
        return;
    }
    while (length > 1 && folder[length - 1] == '/') {
        length--;
    }
    for (name = folder + length; name > folder && name[-1] != '/'; name--) {
    }
    for (size_t k = 0; k < i; k++) {
        same += strcmp(report->run[k]->name, name) == 0 ? 1 : 0;
    }
    (void)snprintf(path, size, same > 0 ? "%s/%.*s-%zu" : "%s/%.*s", report->options.tensorboard,
                   (int)(folder + length - name), name, same + 1);
}

/* Reads run `i`, and writes its event file if there is to be one. */
static ddp_status_t read_run(report_t *report, size_t i)
{
    ddp_status_t        status = DDP_OK;
    ddp_report_board_t *board  = NULL;
    ddp_report_sink_t   sink   = {0};
    char                path[DDP_REPORT_PATH];

    report->run[i] = calloc(1, sizeof(*report->run[i]));
    DDP_REQUIRE(report->run[i] != NULL, DDP_ERR_NO_MEMORY, "no memory for a run");
    if (report->options.tensorboard != NULL) {
        board_folder(report, i, path, sizeof(path));
        DDP_TRY(ddp_report_board_create(path, &board));
        sink = ddp_report_board_sink(board);
    }
    DDP_TRY(ddp_report_read(report->options.run[i], board != NULL ? &sink : NULL, report->run[i]));
    if (board != NULL) {
        DDP_TRY(ddp_report_board_finish(board));
    }
    ddp_report_words(report->run[i], (double)time(NULL));
out:
    ddp_report_board_close(&board);
    return status;
}

static ddp_status_t write_page(const report_t *report)
{
    ddp_status_t status = DDP_OK;
    char        *text   = NULL;
    size_t       size   = 0;
    FILE        *out    = open_memstream(&text, &size);
    char         path[DDP_REPORT_PATH + 16];

    DDP_REQUIRE(out != NULL, DDP_ERR_NO_MEMORY, "no memory for the page");
    ddp_report_html((const ddp_report_run_t *const *)report->run, report->options.n_runs, out);
    DDP_REQUIRE(fclose(out) == 0, DDP_ERR_NO_MEMORY, "no memory for the page");
    if (report->options.out != NULL) {
        (void)snprintf(path, sizeof(path), "%s", report->options.out);
    } else if (report->options.n_runs == 1) {
        (void)snprintf(path, sizeof(path), "%s/report.html", report->run[0]->folder);
    } else {
        (void)snprintf(path, sizeof(path), "report.html");
    }
    status = ddp_file_write_path(path, text);
    if (status != DDP_OK && report->options.out == NULL) {
        ddp_error_prefix("choose another place with --out FILE.html");
    }
    DDP_TRY(status);
    printf("page %s\n", path);
out:
    free(text);
    return status;
}

static ddp_status_t work(report_t *report)
{
    ddp_status_t status = DDP_OK;
    char        *trace  = NULL;

    DDP_REQUIRE(ddp_launch_read().ranks <= 1, DDP_ERR_CONFIG,
                "report is one process: start it without mpirun");
    for (size_t i = 0; i < report->options.n_runs; i++) {
        const ddp_report_run_t *run;

        DDP_TRY(read_run(report, i));
        run = report->run[i];
        printf("%s: %s\n", run->folder, run->headline);
        if (run->damaged > 0) {
            ddp_log(DDP_LOG_WARN,
                    "'%s/metrics.jsonl': %zu line%s cannot be read and left out, first line %zu", run->folder,
                    run->damaged, run->damaged == 1 ? "" : "s", run->first_damaged);
        }
    }
    DDP_TRY(write_page(report));
    if (report->options.trace != NULL) {
        DDP_TRY(ddp_report_trace(report->run[0], &trace));
        DDP_TRY(ddp_file_write_path(report->options.trace, trace));
    }
    DDP_REQUIRE(fflush(stdout) == 0, DDP_ERR_IO, "stdout: %s", ddp_errno_text(errno));
out:
    cJSON_free(trace);
    return status;
}

int ddp_report_command(int argc, char **argv)
{
    report_t     report = {0};
    ddp_status_t status = ddp_report_options_parse(argc, argv, &report.options);

    if (status == DDP_OK && report.options.help) {
        ddp_report_help(stdout);
        return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
    }
    ddp_log_set_level(report.options.log);
    status = status == DDP_OK ? work(&report) : status;
    if (status != DDP_OK && ddp_launch_read().is_first) {
        ddp_log(DDP_LOG_ERROR, "%s", ddp_error_line());
    }
    for (size_t i = 0; i < report.options.n_runs && report.run[i] != NULL; i++) {
        ddp_report_free(report.run[i]);
        free(report.run[i]);
    }
    return status == DDP_OK ? EXIT_SUCCESS : status == DDP_ERR_CONFIG ? 2 : EXIT_FAILURE;
}
