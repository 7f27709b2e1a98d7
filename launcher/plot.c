#include "launcher/plot.h"

#include <math.h>
#include <string.h>

#include "launcher/cell.h"

#define MARKS      5
#define MOST_MARKS (2 * MARKS) /* also where numbers are so large that one more is the same number */
#define A_LITTLE   1e-9        /* of rounding, so that the last mark is not lost */

const char *ddp_plot_style(void)
{
    return ":root{--paper:#fff;--ink:#1b1b1b;--soft:#595959;--grid:#dcdcdc;--orange:#b34700;--blue:#0072b2;"
           "--other:#999}"
           "@media(prefers-color-scheme:dark){:root{--paper:#16181c;--ink:#e9e9e9;--soft:#b0b0b0;"
           "--grid:#3a3d42;--orange:#f5a545;--blue:#6ec1f0;--other:#8c8c8c}}"
           "svg text{font:11px system-ui,sans-serif;fill:var(--ink)}"
           "svg text.soft{fill:var(--soft)}svg text.small{font-size:9px}svg text.strong{font-weight:700}"
           ".paper{fill:var(--paper)}.grid{stroke:var(--grid)}.axis{stroke:var(--soft)}"
           ".parameters,.forward{fill:#0072b2;background:#0072b2}"
           ".gradients,.scatter{fill:#e69f00;background:#e69f00}"
           ".moments,.backward{fill:#56b4e9;background:#56b4e9}"
           ".activations,.reduce{fill:#009e73;background:#009e73}"
           ".outputs,.replicate{fill:#d55e00;background:#d55e00}"
           ".gather{fill:#f0e442;background:#f0e442}.loss{fill:#cc79a7;background:#cc79a7}"
           ".optimizer{fill:#8f6fd1;background:#8f6fd1}"
           ".other,.exposed{fill:var(--other);background:var(--other)}";
}

const char *ddp_plot_phase(const char *phase)
{
    static const char *const known[] = {"replicate", "scatter", "forward",   "gather", "loss",
                                        "backward",  "reduce",  "optimizer", "exposed"};

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strcmp(known[i], phase) == 0) {
            return known[i];
        }
    }
    return "other";
}

double ddp_plot_x(const ddp_plot_t *plot, double x)
{
    return plot->left + (plot->right - plot->left) * (x - plot->least_x) / (plot->most_x - plot->least_x);
}

double ddp_plot_y(const ddp_plot_t *plot, double y)
{
    const double inside = fmin(fmax(y, plot->least_y), plot->most_y);
    const double share  = plot->is_log_y ? log(inside / plot->least_y) / log(plot->most_y / plot->least_y)
                                         : (inside - plot->least_y) / (plot->most_y - plot->least_y);

    return plot->bottom - (plot->bottom - plot->top) * share;
}

static void draw_mark_y(ddp_svg_t *svg, const ddp_plot_t *plot, double y)
{
    char text[DDP_CELL];

    ddp_svg_line(svg, "grid", plot->left, ddp_plot_y(plot, y), plot->right, ddp_plot_y(plot, y));
    ddp_svg_text(svg, "soft", plot->left - 5, ddp_plot_y(plot, y) + 4, DDP_SVG_END, "%s",
                 ddp_cell_short(y, text));
}

/* 1, 2 and 5 times powers of ten; only the powers where there are many. */
static void draw_scale_log(ddp_svg_t *svg, const ddp_plot_t *plot)
{
    static const double steps[] = {1, 2, 5};
    const double        decades = log10(plot->most_y / plot->least_y);
    const size_t        n       = decades > 2 ? 1 : 3;
    const int           every   = decades > 2 * MARKS ? (int)ceil(decades / MARKS) : 1;
    const int           first   = (int)floor(log10(plot->least_y));
    const int           last    = (int)ceil(log10(plot->most_y));

    for (int power = first; power <= last; power += every) {
        for (size_t i = 0; i < n; i++) {
            const double y = steps[i] * pow(10, power);

            if (y >= plot->least_y && y <= plot->most_y) {
                draw_mark_y(svg, plot, y);
            }
        }
    }
}

void ddp_plot_scale_y(ddp_svg_t *svg, const ddp_plot_t *plot)
{
    const double range = plot->most_y - plot->least_y;
    const double tick  = ddp_svg_tick(range, MARKS);
    const double first = ceil(plot->least_y / tick - A_LITTLE) + 0.0; /* no "-0" */

    if (plot->is_log_y) {
        draw_scale_log(svg, plot);
        return;
    }
    for (int i = 0; i < MOST_MARKS && (first + i) * tick <= plot->most_y + A_LITTLE * range; i++) {
        draw_mark_y(svg, plot, (first + i) * tick);
    }
}

void ddp_plot_scale_x(ddp_svg_t *svg, const ddp_plot_t *plot, const char *unit)
{
    const double range = plot->most_x - plot->least_x;
    const double tick  = ddp_svg_tick(range, MARKS);
    const double first = ceil(plot->least_x / tick - A_LITTLE) + 0.0;
    char         text[DDP_CELL];

    ddp_svg_line(svg, "axis", plot->left, plot->bottom, plot->right, plot->bottom);
    for (int i = 0; i < MOST_MARKS && (first + i) * tick <= plot->most_x + A_LITTLE * range; i++) {
        ddp_svg_text(svg, "soft", ddp_plot_x(plot, (first + i) * tick), plot->bottom + 15, DDP_SVG_MIDDLE,
                     "%s", ddp_cell_short((first + i) * tick, text));
    }
    ddp_svg_text(svg, "soft", (plot->left + plot->right) / 2, plot->bottom + 32, DDP_SVG_MIDDLE, "%s", unit);
}
