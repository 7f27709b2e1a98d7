/* Speed-up over the number of ranks, both by their logarithm. */
#include <math.h>

#include "launcher/plan.h"
#include "launcher/plot.h"

#define HEIGHT 240.0

static void draw(const ddp_plan_t *plan, ddp_svg_t *svg, const ddp_plot_t *plot)
{
    double ideal[2][2] = {{plot->left, 0}, {plot->right, 0}};
    double line[DDP_PLAN_MAX_NODES][2];
    size_t n = 0;

    ideal[0][1] = ddp_plot_y(plot, exp2(plot->least_x));
    ideal[1][1] = ddp_plot_y(plot, exp2(plot->most_x));
    ddp_svg_path(svg, "ideal", (const double(*)[2])ideal, 2);
    for (size_t i = 0; i < plan->n; i++) {
        const ddp_plan_row_t *row = &plan->row[i];

        if (!row->is_too_many) {
            line[n][0] = ddp_plot_x(plot, log2((double)row->ranks));
            line[n][1] = ddp_plot_y(plot, row->speedup);
            n++;
        }
    }
    ddp_svg_path(svg, "planned", (const double(*)[2])line, n);
    for (size_t i = 0, at = 0; i < plan->n; i++) {
        const ddp_plan_row_t *row = &plan->row[i];
        char                  hint[DDP_PLAN_TEXT];

        if (!row->is_too_many) {
            (void)snprintf(hint, sizeof(hint), "%zu ranks: %.2f times one rank, %.1f ms a step", row->ranks,
                           row->speedup, row->time.step_s * 1e3);
            ddp_svg_circle(svg, "point", line[at][0], line[at][1], 3.5, hint);
            ddp_svg_text(svg, "soft", line[at][0], plot->bottom + 14, DDP_SVG_MIDDLE, "%zu", row->ranks);
            at++;
        }
    }
}

void ddp_plan_chart(const ddp_plan_t *plan, FILE *out)
{
    ddp_svg_t             svg = {out};
    char                  style[2048];
    ddp_plot_t            plot  = {.left     = 46,
                                   .right    = DDP_PLOT_WIDTH - 16,
                                   .top      = 24,
                                   .bottom   = HEIGHT - 40,
                                   .least_x  = INFINITY,
                                   .most_x   = 0,
                                   .least_y  = INFINITY,
                                   .most_y   = 1,
                                   .is_log_y = true};
    const ddp_svg_frame_t frame = {.width  = DDP_PLOT_WIDTH,
                                   .height = HEIGHT,
                                   .id     = "plan",
                                   .title  = "Speed-up to one rank",
                                   .text   = "Planned speed-up over the number of ranks; the dashed line "
                                             "would be perfect.",
                                   .style  = style};

    (void)snprintf(style, sizeof(style),
                   "%s.planned{fill:none;stroke:var(--blue);stroke-width:1.6}.point{fill:var(--blue)}"
                   ".ideal{fill:none;stroke:var(--soft);stroke-dasharray:4 3}",
                   ddp_plot_style());
    for (size_t i = 0; i < plan->n; i++) {
        const ddp_plan_row_t *row = &plan->row[i];

        if (!row->is_too_many) {
            plot.least_x = fmin(plot.least_x, log2((double)row->ranks));
            plot.most_x  = fmax(plot.most_x, log2((double)row->ranks));
            plot.least_y = fmin(plot.least_y, row->speedup);
            plot.most_y  = fmax(plot.most_y, (double)row->ranks);
        }
    }
    if (!isfinite(plot.least_x)) { /* there is nothing to draw */
        plot.least_x = 0;
        plot.least_y = 1;
    }
    plot.most_x = fmax(plot.most_x, plot.least_x + 1);
    plot.most_y = fmax(plot.most_y, 2 * plot.least_y);
    ddp_svg_open(&svg, &frame);
    ddp_plot_scale_y(&svg, &plot);
    ddp_svg_line(&svg, "axis", plot.left, plot.bottom, plot.right, plot.bottom);
    draw(plan, &svg, &plot);
    ddp_svg_text(&svg, "strong", plot.left, 14, DDP_SVG_START, "%s", frame.title);
    ddp_svg_text(&svg, "soft", (plot.left + plot.right) / 2, HEIGHT - 8, DDP_SVG_MIDDLE, "ranks");
    ddp_svg_close(&svg);
}
