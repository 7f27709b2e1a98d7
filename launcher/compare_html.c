/* compare.html: well-formed XML as well, with nothing from anywhere else. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "launcher/compare.h"
#include "launcher/svg.h"

static const char page_style[] =
    "*{box-sizing:border-box}"
    "body{margin:0 auto;max-width:72rem;padding:1rem;font:1rem/1.5 "
    "system-ui,sans-serif;background:var(--paper);"
    "color:var(--ink);overflow-wrap:anywhere}"
    "h1{font-size:1.6rem;line-height:1.2;margin:.5rem 0}h2{font-size:1.15rem;margin:2rem 0 .5rem}"
    "p,ul{max-width:46rem}.soft{color:var(--soft)}"
    ".verdict{border:1px solid var(--soft);border-left:.5rem solid var(--ddp);padding:.2rem 1rem;margin:1rem "
    "0}"
    ".headline{font-size:1.25rem;font-weight:700;margin:.5rem 0}.failed{font-weight:700}"
    ".charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,26rem),1fr));gap:1rem 2rem;"
    "align-items:start}"
    "figure{margin:0;min-width:0}figcaption{font-weight:600;margin:.5rem 0}"
    "svg{display:block;width:100%;max-width:34rem;height:auto}"
    ".key{list-style:none;display:flex;flex-wrap:wrap;gap:.2rem 1rem;padding:0;margin:.5rem "
    "0;font-size:.9rem}"
    ".key i{display:inline-block;width:.8em;height:.8em;margin-right:.4em;border:1px solid var(--soft)}"
    ".scroll{overflow-x:auto;max-width:100%}"
    "table{border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums;overflow-wrap:normal}"
    "th,td{padding:.25rem .7rem;text-align:right;border-bottom:1px solid var(--grid);white-space:nowrap}"
    "th:first-child,td:first-child{padding-left:0}"
    "thead th{vertical-align:bottom;white-space:normal}th[scope=row]{text-align:left;font-weight:600}"
    "td.words{text-align:left}"
    "dt{font-weight:600}dd{margin:0 0 .5rem}:focus-visible{outline:2px solid var(--ddp)}";

static void put_text(FILE *out, const char *element, const char *style, const char *text)
{
    fprintf(out, "<%s%s%s%s>", element, style != NULL ? " class=\"" : "", style != NULL ? style : "",
            style != NULL ? "\"" : "");
    ddp_xml_text(out, text);
    fprintf(out, "</%s>\n", element);
}

/* A table that scrolls by itself where the page is narrow. */
static void open_table(FILE *out, const char *id, const char *title, const char *const *head, size_t n)
{
    fprintf(out,
            "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"%s\"><table "
            "id=\"%s\">\n<thead><tr>",
            title, id);
    for (size_t i = 0; i < n; i++) {
        fputs(head[i][0] != '\0' ? "<th scope=\"col\">" : "<td>", out);
        ddp_xml_text(out, head[i]);
        fputs(head[i][0] != '\0' ? "</th>" : "</td>", out);
    }
    fputs("</tr></thead>\n<tbody>\n", out);
}

static void close_table(FILE *out)
{
    fputs("</tbody></table></div>\n", out);
}

/* Begins a row; where it stands in compare.json is with it. */
static void open_row(FILE *out, const ddp_compare_result_t *result)
{
    char name[64];

    fprintf(out, "<tr data-way=\"%s\" data-devices=\"%zu\"><th scope=\"row\">",
            ddp_compare_way_key(result->way), result->devices);
    ddp_xml_text(out, ddp_compare_result_text(result, name, sizeof(name)));
    fputs("</th>", out);
}

static void put_cell(FILE *out, const char *field, const char *text)
{
    fprintf(out, "<td data-field=\"%s\">", field);
    ddp_xml_text(out, text);
    fputs("</td>", out);
}

static void put_times(const ddp_compare_t *compare, FILE *out)
{
    static const char *const head[] = {
        "",           "step, ms",          "spread, ms",   "samples/s",        "speed-up",
        "efficiency", "exposed comm., ms", "moved a step", "device 0: memory", "device 0: busy",
        "weights"};
    char text[DDP_COMPARE_CELL];

    open_table(out, "times", "Time of a step", head, sizeof(head) / sizeof(head[0]));
    for (size_t i = 0; i < compare->n_results; i++) {
        const ddp_compare_result_t *r = &compare->results[i];

        open_row(out, r);
        if (!ddp_compare_is_measured(r)) {
            fputs("<td class=\"words failed\" colspan=\"10\">", out);
            ddp_xml_text(out, r->error[0] != '\0' ? r->error : "not measured");
            fputs("</td></tr>\n", out);
            continue;
        }
        put_cell(out, "step_ms.median", ddp_compare_ms_text(r->spread.median, text));
        put_cell(out, "step_ms.spread", ddp_compare_ms_text(r->spread.q3 - r->spread.q1, text));
        put_cell(out, "samples_per_s", ddp_compare_number_text(r->samples_per_s, 0, text));
        put_cell(out, "speedup", ddp_compare_number_text(r->speedup, 2, text));
        put_cell(out, "efficiency", ddp_compare_number_text(r->efficiency, 2, text));
        put_cell(out, "exposed_comm_ms", ddp_compare_ms_text(r->exposed_ms, text));
        put_cell(out, "moved_bytes", ddp_compare_bytes_text(r->moved_bytes, text));
        put_cell(out, "memory_imbalance", ddp_compare_number_text(r->memory_ratio, 2, text));
        put_cell(out, "busy_imbalance", ddp_compare_number_text(r->busy_ratio, 2, text));
        put_cell(out, "weights_equal", r->is_equal ? "equal" : "differ");
        fputs("</tr>\n", out);
    }
    close_table(out);
}

/* All phases that any result has, in the order in which they come up. */
static size_t all_phases(const ddp_compare_t *compare, const char **names)
{
    size_t n = 0;

    for (size_t i = compare->n_results; i-- > 0;) { /* DataParallel's are more */
        const ddp_compare_result_t *r = &compare->results[i];

        for (size_t p = 0; r->way == DDP_COMPARE_DP && n == 0 && p < r->n_phases; p++) {
            names[p] = r->phases[p].name;
        }
        n = n == 0 && r->way == DDP_COMPARE_DP ? r->n_phases : n;
    }
    for (size_t i = 0; i < compare->n_results; i++) {
        const ddp_compare_result_t *r = &compare->results[i];

        for (size_t p = 0; p < r->n_phases; p++) {
            size_t at = 0;

            while (at < n && strcmp(names[at], r->phases[p].name) != 0) {
                at++;
            }
            if (at == n && n < DDP_COMPARE_MAX_PHASES) {
                names[n++] = r->phases[p].name;
            }
        }
    }
    return n;
}

static void put_phases(const ddp_compare_t *compare, FILE *out)
{
    const char  *names[1 + DDP_COMPARE_MAX_PHASES] = {""};
    const size_t n                                 = all_phases(compare, names + 1);
    char         text[DDP_COMPARE_CELL];
    char         field[64];

    open_table(out, "phases", "Time by phase", names, n + 1);
    for (size_t i = 0; i < compare->n_results; i++) {
        const ddp_compare_result_t *r = &compare->results[i];

        if (!ddp_compare_is_measured(r)) {
            continue;
        }
        open_row(out, r);
        for (size_t p = 0; p < n; p++) {
            double ms = NAN;

            for (size_t q = 0; q < r->n_phases; q++) {
                ms = strcmp(r->phases[q].name, names[p + 1]) == 0 ? r->phases[q].ms : ms;
            }
            (void)snprintf(field, sizeof(field), "phases_ms.%s", names[p + 1]);
            put_cell(out, field, ddp_compare_ms_text(ms, text));
        }
        fputs("</tr>\n", out);
    }
    close_table(out);
}

static void put_memory(const ddp_compare_t *compare, FILE *out)
{
    const char *head[3 + DDP_COMPARE_MEMORY_KINDS + 1] = {"", "device"};
    size_t      n                                      = 2;
    char        text[DDP_COMPARE_CELL];
    char        field[64];

    for (int kind = 0; kind < DDP_COMPARE_MEMORY_KINDS; kind++) {
        head[n++] = ddp_compare_memory_name((ddp_compare_memory_t)kind);
    }
    head[n++] = "total";
    head[n++] = "busy, ms a step";
    open_table(out, "memory-table", "Memory and work of each device", head, n);
    for (size_t i = 0; i < compare->n_results; i++) {
        const ddp_compare_result_t *r = &compare->results[i];

        for (size_t d = 0; ddp_compare_is_measured(r) && d < r->devices; d++) {
            open_row(out, r);
            fprintf(out, "<td>%zu</td>", d);
            for (int kind = 0; kind < DDP_COMPARE_MEMORY_KINDS; kind++) {
                (void)snprintf(field, sizeof(field), "device.%zu.memory_bytes.%s", d,
                               ddp_compare_memory_name((ddp_compare_memory_t)kind));
                put_cell(out, field, ddp_compare_bytes_text(r->device[d].bytes[kind], text));
            }
            (void)snprintf(field, sizeof(field), "device.%zu.memory_bytes.total", d);
            put_cell(out, field, ddp_compare_bytes_text(r->device[d].total, text));
            (void)snprintf(field, sizeof(field), "device.%zu.busy_ms", d);
            put_cell(out, field, ddp_compare_ms_text(r->device[d].busy_ms, text));
            fputs("</tr>\n", out);
        }
    }
    close_table(out);
}

static void put_links(const ddp_compare_t *compare, FILE *out)
{
    static const char *const head[] = {"", "from", "to", "bytes a step"};

    fputs("<details><summary>Bytes from device to device</summary>\n", out);
    open_table(out, "links", "Bytes from device to device", head, sizeof(head) / sizeof(head[0]));
    for (size_t i = 0; i < compare->n_results; i++) {
        const ddp_compare_result_t *r = &compare->results[i];

        for (size_t k = 0; k < r->n_links; k++) {
            open_row(out, r);
            fprintf(out, "<td>%zu</td><td>%zu</td><td data-field=\"links.%zu.2\">%.0f</td></tr>\n",
                    r->links[k].from, r->links[k].to, k, r->links[k].bytes);
        }
    }
    close_table(out);
    fputs("</details>\n", out);
}

/* @param [in] names  [n], each also the class of its colour */
static void put_key(FILE *out, const char *const *names, size_t n)
{
    fputs("<ul class=\"key\">", out);
    for (size_t i = 0; i < n; i++) {
        fprintf(out, "<li><i class=\"%s\"></i>%s</li>", names[i], names[i]);
    }
    fputs("</ul>\n", out);
}

static void put_charts(const ddp_compare_t *compare, FILE *out)
{
    static const char *const phases[] = {"replicate", "scatter", "forward",   "gather", "loss",
                                         "backward",  "reduce",  "optimizer", "exposed"};
    const char              *kinds[DDP_COMPARE_MEMORY_KINDS];

    for (int kind = 0; kind < DDP_COMPARE_MEMORY_KINDS; kind++) {
        kinds[kind] = ddp_compare_memory_name((ddp_compare_memory_t)kind);
    }
    fputs("<div class=\"charts\">\n<figure>\n<figcaption>Samples a second</figcaption>\n", out);
    ddp_compare_throughput(compare, NULL, out);
    fputs("</figure>\n<figure>\n<figcaption>Memory of each device</figcaption>\n", out);
    ddp_compare_memory_chart(compare, out);
    put_key(out, kinds, DDP_COMPARE_MEMORY_KINDS);
    fputs("</figure>\n", out);
    ddp_compare_timelines(compare, out);
    fputs("</div>\n", out);
    put_key(out, phases, sizeof(phases) / sizeof(phases[0]));
}

static void put_verdict(const ddp_compare_t *compare, FILE *out)
{
    fputs("<section class=\"verdict\" aria-label=\"Verdict\">\n", out);
    put_text(out, "p", "headline", compare->headline);
    fputs("<ul id=\"reasons\">\n", out);
    for (size_t i = 0; i < compare->n_reasons; i++) {
        put_text(out, "li", NULL, compare->reasons[i]);
    }
    fputs("</ul>\n</section>\n", out);
}

static void put_settings(const ddp_compare_t *compare, FILE *out)
{
    fputs("<p class=\"soft\">", out);
    ddp_xml_text(out, compare->title);
    fprintf(out,
            ", %.0f parameters. Batch %" PRIu64 " in %zu micro-batches, the same data and seed %" PRIu64
            " for all; %" PRIu64 " round%s of %" PRIu64 " steps, of which the first %" PRIu64
            " do not count. Host ",
            compare->parameters, compare->config.train.batch, compare->micro_batches,
            compare->config.train.seed, compare->options.rounds, compare->options.rounds == 1 ? "" : "s",
            compare->options.steps, compare->options.warmup);
    ddp_xml_text(out, compare->host);
    fprintf(out, ", %zu core%s, ", compare->cores, compare->cores == 1 ? "" : "s");
    ddp_xml_text(out, compare->isa);
    fprintf(out, ". %.0f s in all.</p>\n", compare->seconds);
}

static void put_words(FILE *out)
{
    fputs(
        "<h2>What is what</h2>\n<dl>\n"
        "<dt>step, spread</dt><dd>The median, and how far the middle half of the steps reaches (from the "
        "first to the third quartile). Two ways whose medians are closer than the larger spread are not "
        "told apart.</dd>\n"
        "<dt>speed-up, efficiency</dt><dd>One device's step time over this one; the same for each "
        "device.</dd>\n"
        "<dt>exposed comm.</dt><dd>Time in which devices wait for each other or move data and nothing of the "
        "model is computed. DDP: from the end of backward to the end of the step on rank 0. DataParallel: "
        "all but forward, loss and backward.</dd>\n"
        "<dt>device 0: memory, busy</dt><dd>Of the first device, over the mean of the others.</dd>\n"
        "<dt>weights</dt><dd>Equal: after the last step each bit is that of one device.</dd>\n"
        "<dt>other</dt><dd>Samples and scratch memory of operations.</dd>\n"
        "</dl>\n",
        out);
}

void ddp_compare_html(const ddp_compare_t *compare, FILE *out)
{
    fputs("<!DOCTYPE html>\n<html xmlns=\"http://www.w3.org/1999/xhtml\" lang=\"en\">\n<head>\n"
          "<meta charset=\"utf-8\"/>\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
          "<meta name=\"color-scheme\" content=\"light dark\"/>\n"
          "<link rel=\"icon\" href=\"data:,\"/>\n"
          "<title>DataParallel or DDP: ",
          out);
    ddp_xml_text(out, compare->title);
    fputs("</title>\n<style>", out);
    fputs(ddp_compare_style(), out);
    fputs(page_style, out);
    fputs("</style>\n</head>\n<body>\n<main>\n<h1>DataParallel or DDP?</h1>\n", out);
    put_settings(compare, out);
    put_verdict(compare, out);
    put_charts(compare, out);
    fputs("<h2>Time of a step</h2>\n", out);
    put_times(compare, out);
    fputs("<h2>Time by phase, ms (medians)</h2>\n", out);
    put_phases(compare, out);
    fputs("<h2>Memory and work of each device</h2>\n", out);
    put_memory(compare, out);
    put_links(compare, out);
    put_words(out);
    fputs("</main>\n</body>\n</html>\n", out);
}
