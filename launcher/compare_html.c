/* compare.html. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "launcher/compare.h"
#include "launcher/page.h"
#include "launcher/svg.h"

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
    char text[DDP_CELL];

    ddp_page_open_table(out, "times", "Time of a step", head, sizeof(head) / sizeof(head[0]));
    for (size_t i = 0; i < compare->n_results; i++) {
        const ddp_compare_result_t *r = &compare->results[i];

        open_row(out, r);
        if (!ddp_compare_is_measured(r)) {
            fputs("<td class=\"words failed\" colspan=\"10\">", out);
            ddp_xml_text(out, r->error[0] != '\0' ? r->error : "not measured");
            fputs("</td></tr>\n", out);
            continue;
        }
        put_cell(out, "step_ms.median", ddp_cell_ms(r->spread.median, text));
        put_cell(out, "step_ms.spread", ddp_cell_ms(r->spread.q3 - r->spread.q1, text));
        put_cell(out, "samples_per_s", ddp_cell_number(r->samples_per_s, 0, text));
        put_cell(out, "speedup", ddp_cell_number(r->speedup, 2, text));
        put_cell(out, "efficiency", ddp_cell_number(r->efficiency, 2, text));
        put_cell(out, "exposed_comm_ms", ddp_cell_ms(r->exposed_ms, text));
        put_cell(out, "moved_bytes", ddp_cell_bytes(r->moved_bytes, text));
        put_cell(out, "memory_imbalance", ddp_cell_number(r->memory_ratio, 2, text));
        put_cell(out, "busy_imbalance", ddp_cell_number(r->busy_ratio, 2, text));
        put_cell(out, "weights_equal", r->is_equal ? "equal" : "differ");
        fputs("</tr>\n", out);
    }
    ddp_page_close_table(out);
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
    char         text[DDP_CELL];
    char         field[64];

    ddp_page_open_table(out, "phases", "Time by phase", names, n + 1);
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
            put_cell(out, field, ddp_cell_ms(ms, text));
        }
        fputs("</tr>\n", out);
    }
    ddp_page_close_table(out);
}

static void put_memory(const ddp_compare_t *compare, FILE *out)
{
    const char *head[3 + DDP_COMPARE_MEMORY_KINDS + 1] = {"", "device"};
    size_t      n                                      = 2;
    char        text[DDP_CELL];
    char        field[64];

    for (int kind = 0; kind < DDP_COMPARE_MEMORY_KINDS; kind++) {
        head[n++] = ddp_compare_memory_name((ddp_compare_memory_t)kind);
    }
    head[n++] = "total";
    head[n++] = "busy, ms a step";
    ddp_page_open_table(out, "memory-table", "Memory and work of each device", head, n);
    for (size_t i = 0; i < compare->n_results; i++) {
        const ddp_compare_result_t *r = &compare->results[i];

        for (size_t d = 0; ddp_compare_is_measured(r) && d < r->devices; d++) {
            open_row(out, r);
            fprintf(out, "<td>%zu</td>", d);
            for (int kind = 0; kind < DDP_COMPARE_MEMORY_KINDS; kind++) {
                (void)snprintf(field, sizeof(field), "device.%zu.memory_bytes.%s", d,
                               ddp_compare_memory_name((ddp_compare_memory_t)kind));
                put_cell(out, field, ddp_cell_bytes(r->device[d].bytes[kind], text));
            }
            (void)snprintf(field, sizeof(field), "device.%zu.memory_bytes.total", d);
            put_cell(out, field, ddp_cell_bytes(r->device[d].total, text));
            (void)snprintf(field, sizeof(field), "device.%zu.busy_ms", d);
            put_cell(out, field, ddp_cell_ms(r->device[d].busy_ms, text));
            fputs("</tr>\n", out);
        }
    }
    ddp_page_close_table(out);
}

static void put_links(const ddp_compare_t *compare, FILE *out)
{
    static const char *const head[] = {"", "from", "to", "bytes a step"};

    fputs("<details><summary>Bytes from device to device</summary>\n", out);
    ddp_page_open_table(out, "links", "Bytes from device to device", head, sizeof(head) / sizeof(head[0]));
    for (size_t i = 0; i < compare->n_results; i++) {
        const ddp_compare_result_t *r = &compare->results[i];

        for (size_t k = 0; k < r->n_links; k++) {
            open_row(out, r);
            fprintf(out, "<td>%zu</td><td>%zu</td><td data-field=\"links.%zu.2\">%.0f</td></tr>\n",
                    r->links[k].from, r->links[k].to, k, r->links[k].bytes);
        }
    }
    ddp_page_close_table(out);
    fputs("</details>\n", out);
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
    ddp_page_key(out, kinds, kinds, DDP_COMPARE_MEMORY_KINDS);
    fputs("</figure>\n", out);
    ddp_compare_timelines(compare, out);
    fputs("</div>\n", out);
    ddp_page_key(out, phases, phases, sizeof(phases) / sizeof(phases[0]));
}

static void put_verdict(const ddp_compare_t *compare, FILE *out)
{
    fputs("<section class=\"verdict\" aria-label=\"Verdict\">\n", out);
    ddp_page_text(out, "p", "headline", compare->headline);
    fputs("<ul id=\"reasons\">\n", out);
    for (size_t i = 0; i < compare->n_reasons; i++) {
        ddp_page_text(out, "li", NULL, compare->reasons[i]);
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
    char title[DDP_COMPARE_LINE + 32];

    (void)snprintf(title, sizeof(title), "DataParallel or DDP: %s", compare->title);
    ddp_page_open(out, title, "DataParallel or DDP?", ddp_compare_style());
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
    ddp_page_close(out);
}
