/* The page. */
#include <math.h>
#include <string.h>

#include "launcher/page.h"
#include "launcher/report.h"
#include "launcher/svg.h"

#define NUMBERED 32

/* A chart of one field of one run. */
static void put_field(const ddp_report_run_t *run, ddp_report_field_t field, const char *title,
                      bool is_from_zero, FILE *out)
{
    char               id[NUMBERED];
    ddp_report_chart_t chart = {.id    = id,
                                .title = title,
                                .text =
                                    "Over the steps; the table of steps has some of the values. Dotted lines "
                                    "from top to bottom are restarts.",
                                .unit         = "step",
                                .n            = 1,
                                .is_from_zero = is_from_zero,
                                .run          = run};

    (void)snprintf(id, sizeof(id), "chart-%s", ddp_report_field_info(field)->key);
    chart.line[0] = (ddp_report_line_t){.series = &run->field[field], .name = title, .has_marks = true};
    ddp_report_chart(&chart, out);
}

static void put_loss(const ddp_report_run_t *run, FILE *out)
{
    ddp_report_chart_t chart = {
        .id    = "loss",
        .title = "Loss",
        .text  = "Training and test loss over the steps; the tables of steps and of evaluations "
                 "have some of the values. Dotted lines from top to bottom are restarts.",
        .unit  = "step",
        .n     = 2,
        .run   = run};

    chart.line[0] = (ddp_report_line_t){.series = &run->field[DDP_REPORT_LOSS], .name = "training"};
    chart.line[1] = (ddp_report_line_t){
        .series = &run->field[DDP_REPORT_TEST_LOSS], .name = "test", .color = 1, .has_marks = true};
    ddp_report_chart(&chart, out);
}

static void put_saves(const ddp_report_run_t *run, FILE *out)
{
    ddp_report_chart_t chart = {.id    = "saving",
                                .title = "Checkpoints, ms",
                                .text =
                                    "How long training paused for each, and how long it took to write, over "
                                    "the steps; the table of checkpoints has the newest.",
                                .unit         = "step",
                                .n            = 2,
                                .is_from_zero = true,
                                .run          = run};

    chart.line[0] = (ddp_report_line_t){
        .series = &run->field[DDP_REPORT_STALL], .name = "training paused", .has_marks = true};
    chart.line[1] = (ddp_report_line_t){.series    = &run->field[DDP_REPORT_WRITE],
                                        .name      = "written, training goes on",
                                        .color     = 1,
                                        .has_marks = true};
    ddp_report_chart(&chart, out);
}

static void put_phase_key(const ddp_report_run_t *run, FILE *out)
{
    const char *names[DDP_REPORT_MAX_PHASES];

    for (size_t p = 0; p < run->n_phases; p++) {
        names[p] = run->phase[p].name;
    }
    if (run->n_phases > 0) {
        ddp_page_key(out, names, names, run->n_phases);
    }
}

static void put_heat_key(const ddp_report_run_t *run, FILE *out)
{
    static const char *const styles[] = {"late0", "late1", "late2", "late3", "late4"};
    static const char *const texts[]  = {"up to 5 % more than the rank in the middle", "5 to 15 %",
                                         "15 to 30 %", "30 to 60 %", "60 % or more"};

    if (run->heat.n > 0) {
        ddp_page_key(out, styles, texts, sizeof(styles) / sizeof(styles[0]));
    }
}

static void put_charts(const ddp_report_run_t *run, FILE *out)
{
    const bool is_text = run->field[DDP_REPORT_TOKENS].count > 0;

    fputs("<div class=\"charts\">\n", out);
    put_loss(run, out);
    put_field(run, is_text ? DDP_REPORT_PERPLEXITY : DDP_REPORT_ACCURACY,
              is_text ? "Perplexity on the test samples" : "Accuracy on the test samples", false, out);
    put_field(run, is_text ? DDP_REPORT_TOKENS : DDP_REPORT_SAMPLES,
              is_text ? "Tokens a second" : "Samples a second", true, out);
    put_field(run, DDP_REPORT_LR, "Learning rate", true, out);
    put_field(run, DDP_REPORT_GRAD_NORM, "Norm of the gradient, before clipping", false, out);
    put_saves(run, out);
    fputs("</div>\n<div class=\"charts\">\n<div>\n", out);
    ddp_report_phases_chart(run, out);
    put_phase_key(run, out);
    fputs("</div>\n<div>\n", out);
    ddp_report_heat_chart(run, out);
    put_heat_key(run, out);
    fputs("</div>\n</div>\n", out);
}

static void put_outcome(const ddp_report_run_t *run, FILE *out)
{
    fputs("<section class=\"verdict\" aria-label=\"What happened\">\n", out);
    ddp_page_text(out, "p", "headline", run->headline);
    fputs("<ul id=\"notes\">\n", out);
    for (size_t i = 0; i < run->n_notes; i++) {
        ddp_page_text(out, "li", NULL, run->notes[i]);
    }
    fputs("</ul>\n</section>\n", out);
}

static void put_title(const ddp_report_run_t *run, FILE *out)
{
    char text[512];
    char count[DDP_CELL];

    (void)snprintf(text, sizeof(text), "%s, %s parameters. Folder %s.", run->title,
                   ddp_cell_number(run->parameters, 0, count), run->folder);
    ddp_page_text(out, "p", "soft", text);
}

/* One field of all runs. */
static void put_overlay(const ddp_report_run_t *const *runs, size_t n, ddp_report_field_t field,
                        const char *title, bool is_from_zero, FILE *out)
{
    char               id[NUMBERED];
    ddp_report_chart_t chart = {.id    = id,
                                .title = title,
                                .text = "A line for each run, over the steps; the table of runs has the last "
                                        "values.",
                                .unit = "step",
                                .n    = n,
                                .is_from_zero = is_from_zero};

    (void)snprintf(id, sizeof(id), "chart-%d", (int)field);
    for (size_t i = 0; i < n; i++) {
        chart.line[i] =
            (ddp_report_line_t){.series = &runs[i]->field[field], .name = runs[i]->name, .color = (int)i};
    }
    ddp_report_chart(&chart, out);
}

static void put_number(FILE *out, const char *field, double value)
{
    if (isnan(value)) {
        fprintf(out, "<td data-field=\"%s\">-</td>", field);
    } else {
        fprintf(out, "<td data-field=\"%s\">%.6g</td>", field, value);
    }
}

static double last_of(const ddp_report_run_t *run, ddp_report_field_t field)
{
    return run->field[field].count > 0 ? run->field[field].last : NAN;
}

static double least_of(const ddp_report_run_t *run, ddp_report_field_t field)
{
    return run->field[field].count > 0 ? run->field[field].least : NAN;
}

static void put_runs(const ddp_report_run_t *const *runs, size_t n, FILE *out)
{
    static const char *const head[] = {"run",
                                       "steps",
                                       "ranks",
                                       "loss",
                                       "test loss",
                                       "least test loss",
                                       "samples/s (median)",
                                       "step, ms (median)",
                                       ""};

    ddp_page_open_table(out, "runs", "Runs", head, sizeof(head) / sizeof(head[0]));
    for (size_t i = 0; i < n; i++) {
        const ddp_report_run_t *run = runs[i];

        fprintf(out, "<tr data-run=\"%zu\"><th scope=\"row\">", i);
        ddp_xml_text(out, run->name);
        fputs("</th>", out);
        put_number(out, "step", run->step);
        put_number(out, "ranks", run->n_starts > 0 ? run->start[run->n_starts - 1].ranks : NAN);
        put_number(out, "loss", last_of(run, DDP_REPORT_LOSS));
        put_number(out, "test", last_of(run, DDP_REPORT_TEST_LOSS));
        put_number(out, "least", least_of(run, DDP_REPORT_TEST_LOSS));
        put_number(out, "samples_per_s", ddp_series_median(&run->field[DDP_REPORT_SAMPLES]));
        put_number(out, "step_ms", ddp_series_median(&run->field[DDP_REPORT_STEP_MS]));
        fputs("<td class=\"left\">", out);
        ddp_xml_text(out, run->headline);
        fputs("</td></tr>\n", out);
    }
    ddp_page_close_table(out);
}

void ddp_report_html(const ddp_report_run_t *const *runs, size_t n, FILE *out)
{
    char title[DDP_REPORT_LINE];

    if (n == 1) {
        (void)snprintf(title, sizeof(title), "Run %s", runs[0]->name);
        ddp_page_open(out, title, title, ddp_report_style());
        put_title(runs[0], out);
        put_outcome(runs[0], out);
        put_charts(runs[0], out);
        ddp_report_tables(runs[0], out);
    } else {
        (void)snprintf(title, sizeof(title), "%zu runs", n);
        ddp_page_open(out, title, title, ddp_report_style());
        put_runs(runs, n, out);
        fputs("<div class=\"charts\">\n", out);
        put_overlay(runs, n, DDP_REPORT_LOSS, "Training loss", false, out);
        put_overlay(runs, n, DDP_REPORT_TEST_LOSS, "Test loss", false, out);
        put_overlay(runs, n, DDP_REPORT_SAMPLES, "Samples a second", true, out);
        put_overlay(runs, n, DDP_REPORT_STEP_MS, "Time of a step, ms", true, out);
        fputs("</div>\n", out);
    }
    ddp_page_close(out);
}
