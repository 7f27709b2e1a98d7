/* metrics.jsonl, as `ddptrain report` reads it, down to the page. */
#include <cjson/cJSON.h>

#include "base/error.h"
#include "launcher/json_lines.h"
#include "launcher/report.h"
#include "tests/fuzz/fuzz_file.h"

static void draw(ddp_report_run_t *run)
{
    const ddp_report_run_t *runs[2] = {run, run};
    char                   *text    = NULL;
    size_t                  size    = 0;
    FILE                   *out     = open_memstream(&text, &size);
    char                   *trace   = NULL;

    if (out == NULL) {
        abort();
    }
    ddp_report_words(run, 1e9);
    ddp_report_html(runs, 1, out);
    ddp_report_html(runs, 2, out);
    (void)fclose(out);
    free(text);
    ddp_ignore(ddp_report_trace(run, &trace), "there is one or not");
    cJSON_free(trace);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ddp_json_lines_t *lines  = NULL;
    ddp_json_line_t   line   = {0};
    bool              is_end = false;
    char              path[64];
    const int         fd  = fuzz_file(data, size, path);
    ddp_report_run_t *run = calloc(1, sizeof(*run));

    if (run == NULL || ddp_json_lines_open(path, &lines) != DDP_OK) {
        abort();
    }
    while (ddp_json_lines_next(lines, &line, &is_end) == DDP_OK && !is_end) {
        if (line.json != NULL) {
            ddp_ignore(ddp_report_take(line.json, run), "refused or not, no harm may come of it");
        }
        cJSON_Delete(line.json);
    }
    ddp_json_lines_close(&lines);
    draw(run);
    ddp_report_free(run);
    free(run);
    (void)close(fd);
    return 0;
}
