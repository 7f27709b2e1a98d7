/* The charts. */
#include <math.h>
#include <string.h>

#include "launcher/compare.h"
#include "launcher/plot.h"

#define ROW      18.0
#define GAP      5.0 /* between ways */
#define MOST_BAR 4   /* devices that have a bar of their own */
#define MOST_ROW 8   /* devices in a timeline */

const char *ddp_compare_style(void)
{
    return ".ideal{fill:none;stroke:var(--soft);stroke-width:1.5;stroke-dasharray:5 4}"
           ".dp-line{fill:none;stroke:var(--orange);stroke-width:2;stroke-dasharray:9 3}"
           ".ddp-line{fill:none;stroke:var(--blue);stroke-width:2}"
           ".one-line{fill:none;stroke:var(--ink);stroke-width:2}"
           ".dp-mark{fill:var(--orange)}.ddp-mark{fill:var(--blue)}.one-mark{fill:var(--ink)}"
           ".first{fill:none;stroke:var(--ink);stroke-width:1.6}"
           "svg text.on-dark{fill:#fff;font-size:9px}svg text.on-light{fill:#000;font-size:9px}";
}

/* Throughput of a way, with a bar for the middle half of its steps and a mark at the median. */
static void draw_way(ddp_svg_t *svg, const ddp_compare_t *compare, const ddp_plot_t *plot,
                     ddp_compare_way_t way)
{
    const char *key = ddp_compare_way_key(way);
    double      line[DDP_COMPARE_MAX_COUNTS + 1][2];
    size_t      n = 0;
    char        style[24];
    char        name[64];
    char        hint[128];

    for (size_t i = 0; i < compare->n_results; i++) {
        const ddp_compare_result_t *r = &compare->results[i];

        if (ddp_compare_is_measured(r) && (r->way == way || r->way == DDP_COMPARE_ONE)) {
            line[n][0] = ddp_plot_x(plot, (double)r->devices);
            line[n][1] = ddp_plot_y(plot, r->samples_per_s);
            n++;
        }
    }
    (void)snprintf(style, sizeof(style), "%s-line", key);
    ddp_svg_path(svg, style, (const double(*)[2])line, n);
    for (size_t i = 0; i < compare->n_results; i++) {
        const ddp_compare_result_t *r     = &compare->results[i];
        const double                batch = (double)compare->config.train.batch * 1e3;
        const double                x     = ddp_plot_x(plot, (double)r->devices);

        if (!ddp_compare_is_measured(r) || r->way != way) {
            continue;
        }
        (void)snprintf(hint, sizeof(hint), "%s: %.0f samples/s",
                       ddp_compare_result_text(r, name, sizeof(name)), r->samples_per_s);
        ddp_svg_line(svg, style, x, ddp_plot_y(plot, fmin(batch / r->spread.q1, plot->most_y)), x,
                     ddp_plot_y(plot, batch / r->spread.q3));
        (void)snprintf(style, sizeof(style), "%s-mark", key);
        if (way == DDP_COMPARE_DDP) {
            ddp_svg_rect(svg, style, x - 4, ddp_plot_y(plot, r->samples_per_s) - 4, 8, 8, hint);
        } else {
            ddp_svg_circle(svg, style, x, ddp_plot_y(plot, r->samples_per_s), 4.5, hint);
        }
        (void)snprintf(style, sizeof(style), "%s-line", key);
    }
}

static void draw_legend(ddp_svg_t *svg)
{
    ddp_svg_line(svg, "ddp-line", 46, 12, 70, 12);
    ddp_svg_rect(svg, "ddp-mark", 54, 8, 8, 8, NULL);
    ddp_svg_text(svg, "label", 75, 16, DDP_SVG_START, "DDP");
    ddp_svg_line(svg, "dp-line", 120, 12, 144, 12);
    ddp_svg_circle(svg, "dp-mark", 132, 12, 4.5, NULL);
    ddp_svg_text(svg, "label", 149, 16, DDP_SVG_START, "DataParallel");
    ddp_svg_line(svg, "ideal", 240, 12, 264, 12);
    ddp_svg_text(svg, "label", 269, 16, DDP_SVG_START, "ideal");
}

void ddp_compare_throughput(const ddp_compare_t *compare, const char *style, FILE *out)
{
    ddp_svg_t                   svg   = {out};
    ddp_plot_t                  plot  = {.left = 46, .right = 346, .top = 28, .bottom = 204};
    const ddp_compare_result_t *one   = ddp_compare_find(compare, DDP_COMPARE_ONE, 1);
    const size_t                n     = compare->options.n_counts;
    const double                most  = n > 0 ? (double)compare->options.counts[n - 1] : 1;
    const ddp_svg_frame_t       frame = {.width  = DDP_PLOT_WIDTH,
                                         .height = 244,
                                         .id     = "throughput",
                                         .title  = "Samples a second over the number of devices",
                                         .text   = "DDP, DataParallel and the ideal: one device's times the "
                                                         "number of devices. The figures are in the first table.",
                                         .style  = style};

    ddp_svg_open(&svg, &frame);
    plot.least_x = 1 - 0.1 * most;
    plot.most_x  = 1.05 * most;
    plot.most_y  = 1e-9;
    for (size_t i = 0; i < compare->n_results; i++) {
        if (ddp_compare_is_measured(&compare->results[i])) {
            plot.most_y = fmax(plot.most_y, compare->results[i].samples_per_s);
        }
    }
    if (ddp_compare_is_measured(one)) {
        plot.most_y = fmax(plot.most_y, one->samples_per_s * most);
    }
    plot.most_y *= 1.04;
    ddp_plot_scale_y(&svg, &plot);
    ddp_svg_line(&svg, "axis", plot.left, plot.bottom, plot.right, plot.bottom);
    ddp_svg_text(&svg, "soft", ddp_plot_x(&plot, 1), plot.bottom + 15, DDP_SVG_MIDDLE, "1");
    for (size_t i = 0; i < n; i++) {
        ddp_svg_text(&svg, "soft", ddp_plot_x(&plot, (double)compare->options.counts[i]), plot.bottom + 15,
                     DDP_SVG_MIDDLE, "%zu", compare->options.counts[i]);
    }
    ddp_svg_text(&svg, "soft", (plot.left + plot.right) / 2, plot.bottom + 32, DDP_SVG_MIDDLE, "devices");
    if (ddp_compare_is_measured(one)) {
        ddp_svg_line(&svg, "ideal", ddp_plot_x(&plot, 1), ddp_plot_y(&plot, one->samples_per_s),
                     ddp_plot_x(&plot, most), ddp_plot_y(&plot, one->samples_per_s * most));
    }
    draw_way(&svg, compare, &plot, DDP_COMPARE_DP);
    draw_way(&svg, compare, &plot, DDP_COMPARE_DDP);
    draw_way(&svg, compare, &plot, DDP_COMPARE_ONE);
    draw_legend(&svg);
    ddp_svg_close(&svg);
}

/* A bar of a device, or of several in the mean. */
typedef struct bar {
    char   label[40];
    double bytes[DDP_COMPARE_MEMORY_KINDS];
    double total;
    bool   is_first; /* DataParallel's device 0 */
    bool   is_new;   /* the first of its way */
} bar_t;

static void average(const ddp_compare_result_t *result, size_t from, size_t to, bar_t *bar)
{
    memset(bar->bytes, 0, sizeof(bar->bytes));
    bar->total = 0;
    for (size_t d = from; d < to; d++) {
        for (size_t kind = 0; kind < DDP_COMPARE_MEMORY_KINDS; kind++) {
            const double bytes = result->device[d].bytes[kind];

            bar->bytes[kind] += (isnan(bytes) ? 0 : bytes) / (double)(to - from);
        }
        bar->total += result->device[d].total / (double)(to - from);
    }
}

/* @return number of bars */
static size_t bars_of(const ddp_compare_result_t *result, bar_t *bars)
{
    const char  *noun = result->way == DDP_COMPARE_DDP ? "rank" : "device";
    const char  *way  = result->way == DDP_COMPARE_DDP ? "DDP" : "DP";
    const size_t own  = result->devices <= MOST_BAR ? result->devices : 1;
    size_t       n    = 0;

    if (!ddp_compare_is_measured(result) || isnan(result->device[0].total)) {
        return 0;
    }
    for (size_t d = 0; d < own; d++, n++) {
        average(result, d, d + 1, &bars[n]);
        bars[n].is_first = d == 0 && result->way == DDP_COMPARE_DP;
        bars[n].is_new   = d == 0;
        (void)snprintf(bars[n].label, sizeof(bars[n].label), "%s %zu, %s %zu", way, result->devices, noun, d);
        if (result->way == DDP_COMPARE_ONE) {
            (void)snprintf(bars[n].label, sizeof(bars[n].label), "one device");
        }
    }
    if (own < result->devices) {
        average(result, 1, result->devices, &bars[n]);
        bars[n].is_first = false;
        bars[n].is_new   = false;
        (void)snprintf(bars[n].label, sizeof(bars[n].label), "%s %zu, others", way, result->devices);
        n++;
    }
    return n;
}

static void draw_bar(ddp_svg_t *svg, const bar_t *bar, double most, double y)
{
    const double left  = 106;
    const double width = 184;
    double       x     = left;
    char         text[DDP_CELL];
    char         hint[128];

    ddp_svg_text(svg, bar->is_first ? "strong" : "label", left - 6, y + 12, DDP_SVG_END, "%s", bar->label);
    for (int kind = 0; kind < DDP_COMPARE_MEMORY_KINDS; kind++) {
        const char  *name = ddp_compare_memory_name((ddp_compare_memory_t)kind);
        const double wide = width * bar->bytes[kind] / most;

        if (wide > 0) {
            (void)snprintf(hint, sizeof(hint), "%s: %s %s", bar->label, name,
                           ddp_cell_bytes(bar->bytes[kind], text));
            ddp_svg_rect(svg, name, x, y + 2, wide, ROW - 5, hint);
            x += wide;
        }
    }
    if (bar->is_first) {
        ddp_svg_rect(svg, "first", left, y + 1, x - left, ROW - 3, NULL);
    }
    ddp_svg_text(svg, bar->is_first ? "strong" : "label", x + 5, y + 12, DDP_SVG_START, "%s",
                 ddp_cell_bytes(bar->total, text));
}

void ddp_compare_memory_chart(const ddp_compare_t *compare, FILE *out)
{
    bar_t           bars[DDP_COMPARE_MAX_RESULTS * (MOST_BAR + 1)];
    size_t          n     = 0;
    double          most  = 1;
    double          y     = 0;
    ddp_svg_t       svg   = {out};
    ddp_svg_frame_t frame = {.width  = DDP_PLOT_WIDTH,
                             .height = 4,
                             .id     = "memory",
                             .title  = "Memory that each device holds",
                             .text   = "A bar for each device, by what the memory is for; DataParallel's "
                                       "device 0 has a frame. The figures are in the table of memory."};

    for (size_t i = 0; i < compare->n_results; i++) {
        n += bars_of(&compare->results[i], bars + n);
    }
    if (n == 0) {
        return;
    }
    for (size_t i = 0; i < n; i++) {
        double sum = 0;

        for (int kind = 0; kind < DDP_COMPARE_MEMORY_KINDS; kind++) {
            sum += bars[i].bytes[kind];
        }
        most = fmax(most, sum);
    }
    for (size_t i = 0; i < n; i++) {
        frame.height += ROW + (bars[i].is_new ? GAP : 0);
    }
    ddp_svg_open(&svg, &frame);
    for (size_t i = 0; i < n; i++) {
        y += bars[i].is_new ? GAP : 0;
        draw_bar(&svg, &bars[i], most, y);
        y += ROW;
    }
    ddp_svg_close(&svg);
}

/* When the first rank began, which need not be the one whose clock it is: 0 or less. */
static double start_of(const ddp_compare_result_t *result)
{
    double start = 0;

    for (size_t i = 0; i < result->n_spans; i++) {
        start = fmin(start, result->spans[i].start_ms);
    }
    return start;
}

static double length_of(const ddp_compare_result_t *result)
{
    double end = 0;

    for (size_t i = 0; i < result->n_spans; i++) {
        end = fmax(end, result->spans[i].end_ms);
    }
    return end - start_of(result);
}

/* @param [in] left  place of the time 0 */
static void draw_span(ddp_svg_t *svg, const ddp_compare_result_t *result, const ddp_compare_span_t *span,
                      double left, double scale)
{
    /* DDP reduces while backward runs: a thin bar over the thick one */
    const bool  is_thin = result->way != DDP_COMPARE_DP && strcmp(span->phase, "reduce") == 0;
    const char *style   = ddp_plot_phase(span->phase);
    const bool  is_dark =
        strcmp(style, "forward") == 0 || strcmp(style, "replicate") == 0 || strcmp(style, "optimizer") == 0;
    const double x     = left + span->start_ms * scale;
    const double width = fmax((span->end_ms - span->start_ms) * scale, 0.3);
    const double y     = (double)span->device * 22 + 6;
    char         hint[128];

    (void)snprintf(hint, sizeof(hint), "%zu: %s from %.3f to %.3f ms", span->device, span->phase,
                   span->start_ms, span->end_ms);
    ddp_svg_rect(svg, style, x, is_thin ? y + 11 : y, width, is_thin ? 6 : 17, hint);
    if (!is_thin && width > 6.0 * (double)strlen(span->phase)) {
        ddp_svg_text(svg, is_dark ? "on-dark" : "on-light", x + width / 2,
                     y + (result->way == DDP_COMPARE_DP ? 12 : 8.5), DDP_SVG_MIDDLE, "%s", span->phase);
    }
}

static void draw_timeline(const ddp_compare_result_t *result, double most, FILE *out)
{
    const size_t    rows  = result->devices < MOST_ROW ? result->devices : MOST_ROW;
    const double    left  = 62;
    const double    scale = (DDP_PLOT_WIDTH - left - 14) / most;
    const double    axis  = (double)rows * 22 + 8;
    const double    tick  = ddp_svg_tick(most, 5);
    const char     *noun  = result->way == DDP_COMPARE_DDP ? "rank" : "device";
    ddp_svg_t       svg   = {out};
    char            title[96];
    char            id[32];
    ddp_svg_frame_t frame = {.width  = DDP_PLOT_WIDTH,
                             .height = axis + 34,
                             .id     = id,
                             .title  = title,
                             .text = "Phases of the last step from left to right, a row for each device; how "
                                     "long each takes is in the table of phases."};

    (void)snprintf(id, sizeof(id), "timeline-%s", ddp_compare_way_key(result->way));
    (void)snprintf(title, sizeof(title), "One step of %s", ddp_compare_way_name(result->way));
    ddp_svg_open(&svg, &frame);
    for (double t = 0; t <= most * 1.0001; t += tick) {
        ddp_svg_line(&svg, "grid", left + t * scale, 4, left + t * scale, axis);
        ddp_svg_text(&svg, "soft", left + t * scale, axis + 13, DDP_SVG_MIDDLE, "%.4g", t);
    }
    ddp_svg_text(&svg, "soft", left + (DDP_PLOT_WIDTH - left - 14) / 2, axis + 28, DDP_SVG_MIDDLE, "ms");
    for (size_t d = 0; d < rows; d++) {
        ddp_svg_text(&svg, d == 0 ? "strong" : "label", left - 5, (double)d * 22 + 18, DDP_SVG_END, "%s %zu",
                     noun, d);
    }
    for (int is_thin = 0; is_thin < 2; is_thin++) {
        for (size_t i = 0; i < result->n_spans; i++) {
            const ddp_compare_span_t *span = &result->spans[i];

            if (span->device < rows && (strcmp(span->phase, "reduce") == 0) == (is_thin == 1)) {
                draw_span(&svg, result, span, left - start_of(result) * scale, scale);
            }
        }
    }
    ddp_svg_close(&svg);
}

static bool has_spans(const ddp_compare_t *compare, ddp_compare_way_t way, size_t devices)
{
    const ddp_compare_result_t *result = ddp_compare_find(compare, way, devices);

    return result != NULL && result->n_spans > 0;
}

/* The largest number of devices with timelines of both ways, or of either; 0: there is none. One that has a
 * core for each device if possible. */
static size_t timeline_devices(const ddp_compare_t *compare)
{
    size_t either = 0;

    for (size_t i = ddp_compare_roomy(compare); i-- > 0;) {
        const size_t k   = compare->options.counts[i];
        const bool   dp  = has_spans(compare, DDP_COMPARE_DP, k);
        const bool   ddp = has_spans(compare, DDP_COMPARE_DDP, k);

        if (dp && ddp) {
            return k;
        }
        either = either == 0 && (dp || ddp) ? k : either;
    }
    return either;
}

void ddp_compare_timelines(const ddp_compare_t *compare, FILE *out)
{
    const size_t devices = timeline_devices(compare);
    double       end     = 0;

    for (size_t i = 0; i < compare->n_results; i++) {
        end = compare->results[i].devices == devices ? fmax(end, length_of(&compare->results[i])) : end;
    }
    for (size_t i = 0; i < compare->n_results; i++) {
        const ddp_compare_result_t *result = &compare->results[i];

        if (result->devices == devices && result->n_spans > 0 && end > 0) {
            fprintf(out,
                    "<figure>\n<figcaption>One step of %s on %zu %s, the last of its runs</figcaption>\n",
                    ddp_compare_way_name(result->way), devices,
                    result->way == DDP_COMPARE_DDP ? "ranks" : "devices");
            draw_timeline(result, end, out);
            fputs("</figure>\n", out);
        }
    }
}
