/* The charts. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/convert.h"
#include "launcher/plot.h"
#include "launcher/report.h"

#define LEFT      46.0
#define RIGHT     346.0
#define HEIGHT    170.0 /* of the part with data */
#define LEGEND    16.0  /* a line of it */
#define BELOW     40.0  /* axis and unit */
#define MARGIN    0.04  /* of the range, above and below */
#define FACTOR    30.0  /* a range beyond it is drawn by its logarithm */
#define NAME      44    /* characters of a name in a legend */
#define LATENESS  5     /* colours of the map */
#define MOST_ROWS 48

const char *ddp_report_style(void)
{
    return ".c0{stroke:var(--blue)}.c1{stroke:var(--orange)}.c2{stroke:#009e73}.c3{stroke:#cc79a7}"
           ".c4{stroke:var(--ink)}.c5{stroke:#e69f00}.c6{stroke:#8f6fd1}.c7{stroke:var(--other)}"
           ".line{fill:none;stroke-width:1.6;stroke-linejoin:round}.c1.line{stroke-dasharray:7 3}"
           ".c2.line{stroke-dasharray:2 2}.c3.line{stroke-dasharray:9 3 2 3}.c5.line{stroke-dasharray:5 5}"
           ".c6.line{stroke-dasharray:3 3}.c7.line{stroke-dasharray:12 4}"
           ".mark{fill:var(--paper);stroke-width:1.6}.band{stroke:none;opacity:.22}"
           ".b0{fill:var(--blue)}.b1{fill:var(--orange)}.b2{fill:#009e73}.b3{fill:#cc79a7}.b4{fill:var(--ink)"
           "}"
           ".b5{fill:#e69f00}.b6{fill:#8f6fd1}.b7{fill:var(--other)}"
           ".restart{stroke:var(--ink);stroke-width:1;stroke-dasharray:1 3}"
           ".data-wait{fill:#e69f00;background:#e69f00}.rest{fill:var(--grid);background:var(--grid)}"
           ".late0{fill:var(--orange);background:var(--orange);opacity:.08}"
           ".late1{fill:var(--orange);background:var(--orange);opacity:.3}"
           ".late2{fill:var(--orange);background:var(--orange);opacity:.55}"
           ".late3{fill:var(--orange);background:var(--orange);opacity:.8}"
           ".late4{fill:var(--orange);background:var(--orange)}"
           "pre{overflow:auto;max-width:100%;font-size:.85rem;line-height:1.35}"
           "code{font-size:.9em}summary{cursor:pointer}td.left{text-align:left;white-space:normal}";
}

/* Opens figure and drawing. @param [in] legend  lines of it */
static void open_chart(ddp_svg_t *svg, ddp_plot_t *plot, const ddp_svg_frame_t *frame, double legend)
{
    ddp_svg_frame_t whole = *frame;

    plot->left   = LEFT;
    plot->right  = RIGHT;
    plot->top    = 8 + LEGEND * legend;
    plot->bottom = plot->top + HEIGHT;
    whole.width  = DDP_PLOT_WIDTH;
    whole.height = plot->bottom + BELOW;
    fputs("<figure>\n<figcaption>", svg->out);
    ddp_xml_text(svg->out, frame->title);
    fputs("</figcaption>\n", svg->out);
    ddp_svg_open(svg, &whole);
}

static void close_chart(ddp_svg_t *svg)
{
    ddp_svg_close(svg);
    fputs("</figure>\n", svg->out);
}

/* Where a process began that went on, but not where the run did. */
static void draw_restarts(ddp_svg_t *svg, const ddp_plot_t *plot, const ddp_report_run_t *run)
{
    for (size_t i = 1; run != NULL && i < run->n_starts; i++) {
        const double x = run->start[i].step;

        if (x >= plot->least_x && x <= plot->most_x) {
            ddp_svg_line(svg, "restart", ddp_plot_x(plot, x), plot->top, ddp_plot_x(plot, x), plot->bottom);
        }
    }
}

/* Widens a range to all means of a line, and to the band of half of its points: a single peak does not
 * flatten the rest. */
static void widen(const ddp_series_t *series, double *least_p, double *most_p)
{
    double       least[DDP_SERIES_POINTS];
    double       most[DDP_SERIES_POINTS];
    const size_t n = series->n;

    for (size_t i = 0; i < n; i++) {
        *least_p = fmin(*least_p, ddp_series_mean(&series->point[i]));
        *most_p  = fmax(*most_p, ddp_series_mean(&series->point[i]));
        least[i] = series->point[i].least;
        most[i]  = series->point[i].most;
    }
    if (n > 0) {
        qsort(least, n, sizeof(least[0]), ddp_ascending);
        qsort(most, n, sizeof(most[0]), ddp_ascending);
        *least_p = fmin(*least_p, least[n / 2]);
        *most_p  = fmax(*most_p, most[n / 2]);
    }
}

/* Ranges of all lines, with something around them. @return false: there is no value */
static bool find_ranges(const ddp_report_chart_t *chart, ddp_plot_t *plot)
{
    double least_y = INFINITY;
    double most_y  = -INFINITY;
    double range;

    plot->least_x = INFINITY;
    plot->most_x  = -INFINITY;
    for (size_t k = 0; k < chart->n; k++) {
        const ddp_series_t *series = chart->line[k].series;

        widen(series, &least_y, &most_y);
        if (series->n > 0) {
            plot->least_x = fmin(plot->least_x, series->point[0].first_x);
            plot->most_x  = fmax(plot->most_x, series->last_x);
        }
    }
    if (!(most_y >= least_y)) {
        return false;
    }
    if (plot->most_x <= plot->least_x) {
        plot->least_x -= 1;
        plot->most_x += 1;
    }
    plot->is_log_y = !chart->is_from_zero && least_y > 1 / DDP_SERIES_MOST && most_y > FACTOR * least_y;
    range          = most_y > least_y ? most_y - least_y : fmax(fabs(most_y), 1e-9);
    plot->least_y  = chart->is_from_zero ? fmin(least_y, 0) : least_y - MARGIN * range;
    plot->most_y   = most_y + MARGIN * range;
    if (plot->is_log_y) {
        plot->least_y = least_y * pow(most_y / least_y, -MARGIN);
        plot->most_y  = most_y * pow(most_y / least_y, MARGIN);
    }
    return true;
}

/* From the least to the most of the values that share a point. */
static void draw_band(ddp_svg_t *svg, const ddp_plot_t *plot, const ddp_report_line_t *line)
{
    const ddp_series_t *series = line->series;
    double              xy[2 * DDP_SERIES_POINTS][2];
    char                style[16];

    for (size_t i = 0; i < series->n; i++) {
        const ddp_series_point_t *point = &series->point[i];
        const double              x     = ddp_plot_x(plot, (point->first_x + point->last_x) / 2);
        const size_t              back  = 2 * series->n - 1 - i;

        xy[i][0]    = x;
        xy[i][1]    = ddp_plot_y(plot, point->most);
        xy[back][0] = x;
        xy[back][1] = ddp_plot_y(plot, point->least);
    }
    (void)snprintf(style, sizeof(style), "band b%d", line->color);
    ddp_svg_path(svg, style, (const double(*)[2])xy, 2 * series->n);
}

static void draw_line(ddp_svg_t *svg, const ddp_plot_t *plot, const ddp_report_line_t *line)
{
    const ddp_series_t *series = line->series;
    double              xy[DDP_SERIES_POINTS][2];
    char                style[16];

    for (size_t i = 0; i < series->n; i++) {
        const ddp_series_point_t *point = &series->point[i];

        xy[i][0] = ddp_plot_x(plot, (point->first_x + point->last_x) / 2);
        xy[i][1] = ddp_plot_y(plot, ddp_series_mean(point));
    }
    if (series->per_point > 1) {
        draw_band(svg, plot, line);
    }
    (void)snprintf(style, sizeof(style), "c%d line", line->color);
    ddp_svg_path(svg, style, (const double(*)[2])xy, series->n);
    (void)snprintf(style, sizeof(style), "c%d mark", line->color);
    for (size_t i = 0; i < series->n && (series->n == 1 || (line->has_marks && series->n <= 40)); i++) {
        char hint[128];
        char text[DDP_CELL];

        (void)snprintf(hint, sizeof(hint), "%.40s, step %.0f: %s", line->name, series->point[i].last_x,
                       ddp_cell_short(ddp_series_mean(&series->point[i]), text));
        ddp_svg_circle(svg, style, xy[i][0], xy[i][1], 2.6, hint);
    }
}

static void draw_legend(ddp_svg_t *svg, const ddp_report_chart_t *chart)
{
    char   style[16];
    double y = 12;

    for (size_t k = 0; k < chart->n; k++) {
        if (chart->line[k].series->n > 0) {
            (void)snprintf(style, sizeof(style), "c%d line", chart->line[k].color);
            ddp_svg_line(svg, style, LEFT, y, LEFT + 26, y);
            ddp_svg_text(svg, "label", LEFT + 32, y + 4, DDP_SVG_START, "%.*s", NAME, chart->line[k].name);
            y += LEGEND;
        }
    }
}

void ddp_report_chart(const ddp_report_chart_t *chart, FILE *out)
{
    ddp_svg_t             svg   = {out};
    ddp_plot_t            plot  = {0};
    size_t                shown = 0;
    const ddp_svg_frame_t frame = {.id = chart->id, .title = chart->title, .text = chart->text};

    for (size_t k = 0; k < chart->n; k++) {
        shown += chart->line[k].series->n > 0 ? 1 : 0;
    }
    if (!find_ranges(chart, &plot)) {
        return;
    }
    open_chart(&svg, &plot, &frame, shown > 1 ? (double)shown : 0);
    ddp_plot_scale_y(&svg, &plot);
    ddp_plot_scale_x(&svg, &plot, chart->unit);
    draw_restarts(&svg, &plot, chart->run);
    for (size_t k = 0; k < chart->n; k++) {
        if (chart->line[k].series->n > 0) {
            draw_line(&svg, &plot, &chart->line[k]);
        }
    }
    if (shown > 1) {
        draw_legend(&svg, chart);
    }
    close_chart(&svg);
}

/* One phase, from the sum of those below it to its own top. `below` becomes the top. */
static void draw_area(ddp_svg_t *svg, const ddp_plot_t *plot, const ddp_report_phase_t *phase,
                      const ddp_series_t *steps, double *below)
{
    double xy[4 * DDP_SERIES_POINTS][2];
    size_t n = 0;

    for (size_t i = 0; i < steps->n; i++) {
        const double ms  = ddp_series_at(&phase->series, steps->point[i].first_x);
        const double top = below[i] + (isnan(ms) ? 0 : ms);

        xy[n][0]   = ddp_plot_x(plot, steps->point[i].first_x);
        xy[n++][1] = ddp_plot_y(plot, top);
        xy[n][0]   = ddp_plot_x(plot, i + 1 < steps->n ? steps->point[i + 1].first_x : steps->last_x);
        xy[n++][1] = ddp_plot_y(plot, top);
    }
    for (size_t i = steps->n; i-- > 0;) {
        xy[n][0]   = xy[2 * i + 1][0];
        xy[n++][1] = ddp_plot_y(plot, below[i]);
        xy[n][0]   = xy[2 * i][0];
        xy[n++][1] = ddp_plot_y(plot, below[i]);
        below[i] += fmax(ddp_series_at(&phase->series, steps->point[i].first_x), 0); /* nor a NaN */
    }
    ddp_svg_path(svg,
                 strcmp(phase->name, "data-wait") == 0 || strcmp(phase->name, "rest") == 0
                     ? phase->name
                     : ddp_plot_phase(phase->name),
                 (const double(*)[2])xy, n);
}

void ddp_report_phases_chart(const ddp_report_run_t *run, FILE *out)
{
    ddp_svg_t             svg                      = {out};
    ddp_plot_t            plot                     = {0};
    const ddp_series_t   *steps                    = &run->field[DDP_REPORT_STEP_MS];
    double                below[DDP_SERIES_POINTS] = {0};
    const ddp_svg_frame_t frame                    = {.id    = "phases",
                                                      .title = "Where a step's time goes, ms",
                                                      .text =
                                                          "Phases of the mean step, one above the other, over the steps. Their "
                                                                             "means are in the table of phases."};

    if (run->n_phases == 0 || steps->n == 0) {
        return;
    }
    plot.least_x = steps->point[0].first_x;
    plot.most_x  = fmax(steps->last_x, plot.least_x + 1);
    for (size_t i = 0; i < steps->n; i++) {
        double sum = 0;

        for (size_t p = 0; p < run->n_phases; p++) {
            sum += fmax(ddp_series_at(&run->phase[p].series, steps->point[i].first_x), 0);
        }
        plot.most_y = fmax(plot.most_y, sum);
    }
    plot.most_y = fmax(plot.most_y * (1 + MARGIN), 1e-6);
    open_chart(&svg, &plot, &frame, 0);
    ddp_plot_scale_y(&svg, &plot);
    for (size_t p = 0; p < run->n_phases; p++) {
        draw_area(&svg, &plot, &run->phase[p], steps, below);
    }
    ddp_plot_scale_x(&svg, &plot, "step");
    draw_restarts(&svg, &plot, run);
    close_chart(&svg);
}

/* Of a share: computed for as long as the rank in the middle is 1. */
static int lateness(double share)
{
    static const double more[LATENESS - 1] = {1.05, 1.15, 1.3, 1.6};
    int                 late               = 0;

    while (late < LATENESS - 1 && share >= more[late]) {
        late++;
    }
    return late;
}

/* The latest of the ranks [from, to) in a column, over the rank in the middle; NaN: none is told of. */
static double share_of(const ddp_report_heat_t *heat, size_t from, size_t to, size_t column, double median)
{
    double share = NAN;

    for (size_t r = from; r < to; r++) {
        const double ms = heat->own[r * DDP_REPORT_COLUMNS + column];

        share = ms > 0 ? fmax(share, ms / median) : share;
    }
    return share;
}

/* Adds "rank 3" or "ranks 0 to 7". */
static void say_span(char *text, size_t size, const char *what, double from, double to)
{
    const size_t used = strlen(text);

    if (from < to) {
        (void)snprintf(text + used, size - used, "%ss %.0f to %.0f", what, from, to);
    } else {
        (void)snprintf(text + used, size - used, "%s %.0f", what, from);
    }
}

/* A row of the map; neighbours that are as late are one rectangle. */
static void draw_ranks(ddp_svg_t *svg, const ddp_plot_t *plot, const ddp_report_heat_t *heat,
                       const double *medians, size_t from, size_t to, double y, double height)
{
    size_t c = 0;

    while (c < heat->n) {
        const double share = share_of(heat, from, to, c, medians[c]);
        double       most  = share;
        size_t       end   = c + 1;
        char         style[16];
        char         hint[128] = "";

        while (end < heat->n && !isnan(share) &&
               lateness(share_of(heat, from, to, end, medians[end])) == lateness(share) &&
               !isnan(share_of(heat, from, to, end, medians[end]))) {
            most = fmax(most, share_of(heat, from, to, end, medians[end]));
            end++;
        }
        if (!isnan(share)) {
            const double x = ddp_plot_x(plot, heat->first_x[c]);

            (void)snprintf(style, sizeof(style), "late%d", lateness(share));
            say_span(hint, sizeof(hint), "rank", (double)from, (double)(to - 1));
            say_span(hint, sizeof(hint), ", step", heat->first_x[c], heat->last_x[end - 1]);
            (void)snprintf(hint + strlen(hint), sizeof(hint) - strlen(hint), ": up to %.2f times the middle",
                           most);
            ddp_svg_rect(svg, style, x, y,
                         fmax(ddp_plot_x(plot, end < heat->n ? heat->first_x[end] : plot->most_x) - x, 0.5),
                         height, hint);
        }
        c = end;
    }
}

void ddp_report_heat_chart(const ddp_report_run_t *run, FILE *out)
{
    const ddp_report_heat_t *heat   = &run->heat;
    const size_t             each   = (heat->ranks + MOST_ROWS - 1) / MOST_ROWS; /* ranks of a row */
    const size_t             rows   = each > 0 ? (heat->ranks + each - 1) / each : 0;
    const double             height = rows > 0 ? fmin(HEIGHT / (double)rows, 24) : 0;
    double                   medians[DDP_REPORT_COLUMNS];
    double                   width; /* steps of a column */
    ddp_svg_t                svg   = {out};
    ddp_plot_t               plot  = {.least_y = 0, .most_y = 1};
    const ddp_svg_frame_t    frame = {
           .id    = "stragglers",
           .title = "Slow ranks: the own work of each, next to the rank in the middle",
           .text  = "A row for each rank, or for some of them, from left to right over "
                       "the steps; darker is slower. The table of ranks has the means."};

    if (heat->n == 0) {
        return;
    }
    for (size_t c = 0; c < heat->n; c++) {
        medians[c] = ddp_report_heat_median(heat, c);
    }
    width        = heat->n > 1 ? (heat->first_x[heat->n - 1] - heat->first_x[0]) / (double)(heat->n - 1) : 1;
    plot.least_x = heat->first_x[0];
    plot.most_x  = heat->first_x[heat->n - 1] + fmax(width, 1);
    open_chart(&svg, &plot, &frame, 0);
    for (size_t row = 0; row < rows; row++) {
        const size_t from = row * each;
        const size_t to   = from + each < heat->ranks ? from + each : heat->ranks;
        const double y    = plot.top + (double)row * height;

        draw_ranks(&svg, &plot, heat, medians, from, to, y, height > 3 ? height - 1 : height);
        if (rows <= 16 || row % 8 == 0) {
            ddp_svg_text(&svg, "soft", LEFT - 5, y + height / 2 + 4, DDP_SVG_END, "%zu", from);
        }
    }
    plot.bottom = plot.top + HEIGHT;
    ddp_plot_scale_x(&svg, &plot, "step");
    draw_restarts(&svg, &plot, run);
    close_chart(&svg);
}
