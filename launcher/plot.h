/** @file What charts have in common: where data lie in a drawing, axes, and the style sheet. Colours are
 * those of Okabe and Ito (2008), which people with any kind of colour vision tell apart; shapes, dashes and
 * labels say the same once more. */
#ifndef DDP_PLOT_H_
#define DDP_PLOT_H_

#include <stdbool.h>
#include <stddef.h>

#include "launcher/svg.h"

#define DDP_PLOT_WIDTH 360.0 /* of a drawing, in its units */

/** Data [least_x, most_x] lie from `left` to `right`, [least_y, most_y] from `bottom` to `top`. */
typedef struct ddp_plot {
    double left, right, top, bottom;
    double least_x, most_x, least_y, most_y;
    bool   is_log_y; /* least_y > 0 */
} ddp_plot_t;

double ddp_plot_x(const ddp_plot_t *plot, double x);
/** What lies outside is drawn at the border. */
double ddp_plot_y(const ddp_plot_t *plot, double y);
/** Lines and numbers at round values. */
void ddp_plot_scale_y(ddp_svg_t *svg, const ddp_plot_t *plot);
/** The axis with numbers at round values, and `unit` below. */
void ddp_plot_scale_x(ddp_svg_t *svg, const ddp_plot_t *plot, const char *unit);

/** Rules of all charts: --paper --ink --soft --grid --blue --orange --other; text, axes, phases of a step. */
const char *ddp_plot_style(void);
/** Class of a phase, which is its name where the style sheet knows it, else "other". */
const char *ddp_plot_phase(const char *phase);

#endif
