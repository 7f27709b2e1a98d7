/* Tables of one run. */
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "launcher/page.h"
#include "launcher/report.h"
#include "launcher/svg.h"

#define ROWS       20 /* of what is long */
#define MOST_RANKS 64

static void put_cell(FILE *out, const char *field, const char *text)
{
    fputs("<td", out);
    if (field != NULL) {
        fprintf(out, " data-field=\"%s\"", field);
    }
    fputs(">", out);
    ddp_xml_text(out, text);
    fputs("</td>", out);
}

static void put_number(FILE *out, const char *field, double value)
{
    char text[DDP_CELL] = "-";

    if (!isnan(value)) {
        (void)snprintf(text, sizeof(text), "%.6g", value);
    }
    put_cell(out, field, text);
}

static void put_words(FILE *out, const char *text)
{
    fputs("<td class=\"left\">", out);
    ddp_xml_text(out, text[0] != '\0' ? text : "-");
    fputs("</td>", out);
}

static void open_row(FILE *out, double step)
{
    fprintf(out, "<tr data-step=\"%.0f\"><th scope=\"row\">%.0f</th>", step, step);
}

/* Some of the points of the first of these fields that has any, with what the others have there. */
static void put_values(const ddp_report_run_t *run, const char *id, const char *title, const int *wanted,
                       size_t n, FILE *out)
{
    const char         *head[DDP_REPORT_FIELDS + 1] = {"step"};
    int                 shown[DDP_REPORT_FIELDS];
    size_t              columns = 0;
    const ddp_series_t *first   = NULL;

    for (size_t i = 0; i < n; i++) {
        if (run->field[wanted[i]].n > 0) {
            first            = first == NULL ? &run->field[wanted[i]] : first;
            shown[columns++] = wanted[i];
            head[columns]    = ddp_report_field_info((ddp_report_field_t)wanted[i])->name;
        }
    }
    if (first == NULL) {
        return;
    }
    fprintf(out, "<h2>%s</h2>\n", title);
    ddp_page_open_table(out, id, title, head, columns + 1);
    for (size_t row = 0; row < ROWS && row < first->n; row++) {
        /* spread over all of them, the first and the last included */
        const size_t rows = first->n < ROWS ? first->n : ROWS;
        const size_t i    = rows > 1 ? row * (first->n - 1) / (rows - 1) : 0;

        open_row(out, first->point[i].last_x);
        for (size_t c = 0; c < columns; c++) {
            put_number(out, ddp_report_field_info((ddp_report_field_t)shown[c])->key,
                       ddp_series_at(&run->field[shown[c]], first->point[i].last_x));
        }
        fputs("</tr>\n", out);
    }
    ddp_page_close_table(out);
    if (first->per_point > 1) {
        fprintf(
            out,
            "<p class=\"soft\">Means of up to %zu values each; charts have %zu points, with a band from the "
            "least to the most.</p>\n",
            first->per_point, first->n);
    }
}

static void put_phases(const ddp_report_run_t *run, FILE *out)
{
    static const char *const head[] = {"phase", "median, ms", "share of the step"};
    const double             step   = ddp_series_median(&run->field[DDP_REPORT_STEP_MS]);
    char                     text[DDP_CELL];

    if (run->n_phases == 0) {
        return;
    }
    fputs("<h2>Phases of a step</h2>\n", out);
    ddp_page_open_table(out, "phase-table", "Phases of a step", head, 3);
    for (size_t p = 0; p < run->n_phases; p++) {
        const double ms = ddp_series_median(&run->phase[p].series);

        fputs("<tr><th scope=\"row\">", out);
        ddp_xml_text(out, run->phase[p].name);
        fputs("</th>", out);
        put_cell(out, NULL, ddp_cell_ms(ms, text));
        (void)snprintf(text, sizeof(text), "%.0f %%", 100 * ms / step);
        put_cell(out, NULL, step > 0 ? text : "-");
        fputs("</tr>\n", out);
    }
    ddp_page_close_table(out);
    fputs("<p class=\"soft\">exposed: from the end of backward to the end of the step. data-wait: waiting "
          "for samples. "
          "rest: what none of them is, such as updates that wait for all gradients. Of rank 0; with "
          "train.mode dp wall "
          "time.</p>\n",
          out);
}

/* Of all reports; without any, how often each rank's gradients came last. */
static void put_ranks(const ddp_report_run_t *run, FILE *out)
{
    static const char *const head[] = {"rank", "computing, ms", "waiting for samples, ms",
                                       "rest of the step, ms", "slowest"};
    static const char *const few[]  = {"rank", "last gradients of a step, times"};
    const ddp_report_heat_t *heat   = &run->heat;
    const bool               is_all = heat->events > 0;
    const size_t             n      = is_all ? heat->ranks : run->last_ranks;
    char                     text[DDP_CELL];

    if (n < 2) {
        return;
    }
    fputs("<h2>Ranks</h2>\n", out);
    ddp_page_open_table(out, "ranks", "Ranks", is_all ? head : few, is_all ? 5 : 2);
    for (size_t r = 0; r < n && r < MOST_RANKS; r++) {
        fprintf(out, "<tr><th scope=\"row\">%zu</th>", r);
        if (is_all) {
            put_cell(out, NULL, ddp_cell_ms(heat->computed[r] / heat->told[r], text));
            put_cell(out, NULL, ddp_cell_ms(heat->waited[r] / heat->told[r], text));
            put_cell(out, NULL, ddp_cell_ms(heat->communicated[r] / heat->told[r], text));
            (void)snprintf(text, sizeof(text), "%.0f of %zu", heat->slowest[r], heat->events);
            put_cell(out, NULL, text);
        } else {
            put_number(out, NULL, (double)run->last_rank[r]);
        }
        fputs("</tr>\n", out);
    }
    ddp_page_close_table(out);
    if (n > MOST_RANKS) {
        fprintf(out, "<p class=\"soft\">The first %d of %zu.</p>\n", MOST_RANKS, n);
    }
}

static void put_saves(const ddp_report_run_t *run, FILE *out)
{
    static const char *const head[] = {"step", "size", "training paused, ms", "written in, ms", ""};
    char                     text[DDP_CELL];

    if (run->all_saves == 0) {
        return;
    }
    fputs("<h2>Checkpoints</h2>\n", out);
    fprintf(out, "<p>%zu save%s, %zu failed; %zu file%s in the folder, the newest ", run->all_saves,
            run->all_saves == 1 ? "" : "s", run->failed_saves, run->files, run->files == 1 ? "" : "s");
    ddp_xml_text(out, run->newest[0] != '\0' ? run->newest : "of none");
    fputs(".</p>\n", out);
    ddp_page_open_table(out, "saves", "Checkpoints", head, 5);
    for (size_t i = 0; i < run->n_saves; i++) {
        const ddp_report_save_t *save = &run->save[i];

        open_row(out, save->step);
        put_cell(out, NULL, ddp_cell_bytes(save->bytes, text));
        put_cell(out, NULL, ddp_cell_ms(save->stall_ms, text));
        put_cell(out, NULL, ddp_cell_ms(save->write_ms, text));
        put_words(out, save->error);
        fputs("</tr>\n", out);
    }
    ddp_page_close_table(out);
}

static void put_starts(const ddp_report_run_t *run, FILE *out)
{
    static const char *const head[] = {"start", "after step", "began",        "took", "ranks",
                                       "hosts", "devices",    "changed keys", "ended"};
    char                     text[DDP_CELL];
    char                     devices[256];

    fputs("<h2>Starts</h2>\n", out);
    ddp_page_open_table(out, "starts", "Starts", head, sizeof(head) / sizeof(head[0]));
    for (size_t i = 0; i < run->n_starts; i++) {
        const ddp_report_start_t *start  = &run->start[i];
        const size_t              behind = run->n_starts - i;

        fprintf(out, "<tr><th scope=\"row\">%zu</th>",
                i < run->all_starts - behind ? i + 1 : run->all_starts - behind + 1);
        put_number(out, NULL, start->step);
        put_cell(out, NULL, ddp_report_time(start->time_s, text));
        put_cell(out, NULL, ddp_report_duration(start->end_s - start->time_s, text));
        put_number(out, NULL, start->ranks);
        put_words(out, start->hosts);
        (void)snprintf(devices, sizeof(devices), "%s%s%s",
                       start->gpus[0] != '\0' ? start->gpus : start->device,
                       start->isa[0] != '\0' ? ", " : "", start->isa);
        put_words(out, devices);
        put_words(out, start->changes);
        put_words(out, start->ended);
        fputs("</tr>\n", out);
    }
    ddp_page_close_table(out);
    if (run->all_starts > run->n_starts) {
        fprintf(out, "<p class=\"soft\">%zu starts are left out.</p>\n", run->all_starts - run->n_starts);
    }
}

/* 2026-01-02T03:04:05Z as the other times of the page; what is not of this form stays as it is. */
static const char *minute_of(const char *time, char text[DDP_CELL])
{
    if (strlen(time) != 20 || time[10] != 'T' || time[19] != 'Z') {
        return time;
    }
    (void)snprintf(text, DDP_CELL, "%.10s %.5s UTC", time, time + 11);
    return text;
}

static void put_attempts(const ddp_report_run_t *run, FILE *out)
{
    static const char *const head[] = {"start",  "ended", "ran",  "ranks",
                                       "status", "why",   "then", "hosts left out"};
    char                     text[DDP_CELL];
    char                     then[192];
    bool                     has_reason;

    if (run->n_attempts == 0) {
        return;
    }
    fputs("<h2>Starts under supervise</h2>\n", out);
    ddp_page_open_table(out, "attempts", "Starts under supervise", head, sizeof(head) / sizeof(head[0]));
    for (size_t i = 0; i < run->n_attempts; i++) {
        const ddp_report_attempt_t *attempt = &run->attempt[i];

        fprintf(out, "<tr><th scope=\"row\">%zu</th>", run->all_attempts - run->n_attempts + i + 1);
        put_words(out, minute_of(attempt->time, text));
        put_cell(out, NULL, ddp_report_duration(attempt->seconds, text));
        put_number(out, NULL, attempt->ranks);
        put_number(out, NULL, attempt->code);
        put_words(out, attempt->line);
        has_reason = attempt->reason[0] != '\0' && strcmp(attempt->reason, attempt->next) != 0;
        (void)snprintf(then, sizeof(then), "%s%s%s", attempt->next, has_reason ? ": " : "",
                       has_reason ? attempt->reason : "");
        put_words(out, then);
        put_words(out, attempt->left_out);
        fputs("</tr>\n", out);
    }
    ddp_page_close_table(out);
}

static void put_term(FILE *out, const char *term, const char *fmt, ...) DDP_PRINTF(3, 4);

static void put_term(FILE *out, const char *term, const char *fmt, ...)
{
    char    text[512];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    fprintf(out, "<dt>%s</dt>", term);
    ddp_page_text(out, "dd", NULL, text);
}

static void put_environment(const ddp_report_run_t *run, FILE *out)
{
    const ddp_report_start_t *start = run->n_starts > 0 ? &run->start[run->n_starts - 1] : NULL;
    char                      text[DDP_CELL];

    if (start == NULL) {
        return;
    }
    fputs("<h2>Environment of the last start</h2>\n<dl>\n", out);
    if (start->version[0] != '\0') {
        put_term(out, "ddptrain", "%s", start->version);
    }
    put_term(out, "processes", "%s rank%s on %s machine%s, train.mode %s",
             ddp_cell_number(start->ranks, 0, text), start->ranks == 1 ? "" : "s",
             start->machines > 1 ? "several" : "one", start->machines > 1 ? "s" : "",
             start->is_dp ? "dp" : "ddp");
    put_term(out, "hosts (ranks)", "%s", start->hosts);
    put_term(out, "device", "%s%s%s, instruction set %s", start->device, start->gpus[0] != '\0' ? ", " : "",
             start->gpus, start->isa);
    put_term(out, "training samples", "%s", ddp_cell_number(run->samples, 0, text));
    put_term(out, "micro-batches of a step", "%s", ddp_cell_number(run->micro_batches, 0, text));
    if (!isnan(run->pss_mb)) {
        put_term(out, "memory of all processes", "%.0f MiB", run->pss_mb);
    }
    if (run->weights[0] != '\0') {
        put_term(out, "weights", "%s", run->weights);
    }
    fputs("</dl>\n", out);
}

static void put_configuration(const ddp_report_run_t *run, FILE *out)
{
    const cJSON *key;

    if (run->yaml == NULL && run->config == NULL) {
        return;
    }
    fputs("<h2>Configuration</h2>\n<details><summary>config.yaml, every key as it was used</summary>\n"
          "<pre tabindex=\"0\">",
          out);
    for (char *line = run->yaml, *end; line != NULL && *line != '\0'; line = end) { /* line by line: no
                                                                          control characters but these */
        char text[1024];

        end = strchr(line, '\n');
        end = end != NULL ? end + 1 : line + strlen(line);
        (void)snprintf(text, sizeof(text), "%.*s",
                       (int)(end - line) - (end > line && end[-1] == '\n' ? 1 : 0), line);
        ddp_xml_text(out, text);
        fputc('\n', out);
    }
    if (run->yaml == NULL) {
        cJSON_ArrayForEach(key, run->config)
        {
            ddp_xml_text(out, key->string);
            fputs(": ", out);
            ddp_xml_text(out, cJSON_GetStringValue(key) != NULL ? cJSON_GetStringValue(key) : "");
            fputc('\n', out);
        }
    }
    fputs("</pre>\n</details>\n", out);
}

void ddp_report_tables(const ddp_report_run_t *run, FILE *out)
{
    static const int steps[] = {DDP_REPORT_LOSS,       DDP_REPORT_LR,      DDP_REPORT_GRAD_NORM,
                                DDP_REPORT_LOSS_SCALE, DDP_REPORT_STEP_MS, DDP_REPORT_SAMPLES,
                                DDP_REPORT_TOKENS,     DDP_REPORT_MFU,     DDP_REPORT_SPREAD};
    static const int evals[] = {DDP_REPORT_TEST_LOSS, DDP_REPORT_ACCURACY, DDP_REPORT_PERPLEXITY};

    put_values(run, "values", "Steps", steps, sizeof(steps) / sizeof(steps[0]), out);
    put_values(run, "evaluations", "Evaluations on the test samples", evals, sizeof(evals) / sizeof(evals[0]),
               out);
    put_phases(run, out);
    put_ranks(run, out);
    put_saves(run, out);
    put_starts(run, out);
    put_attempts(run, out);
    put_environment(run, out);
    put_configuration(run, out);
}
