/** @file A quantity over steps in bounded memory: where values become many, neighbours share a point that
 * keeps their mean, least and most. */
#ifndef DDP_SERIES_H_
#define DDP_SERIES_H_

#include <stddef.h>

#define DDP_SERIES_POINTS 512 /* at most, and from then on never less than half of it */

typedef struct ddp_series_point {
    double first_x, last_x;
    size_t n; /* values */
    double sum, least, most;
} ddp_series_point_t;

/** Zeroed at first. */
typedef struct ddp_series {
    ddp_series_point_t point[DDP_SERIES_POINTS];
    size_t             n;
    size_t             count;         /* values in all points */
    size_t             per_point;     /* values in each but the last; 0: there are no points yet */
    double             last_x, last;  /* the newest value */
    double             best_x, least; /* the least value, and where it was first */
    double             sum;
} ddp_series_t;

/** Beyond it a value is left out, as one that is not finite: no chart shows it beside others. */
#define DDP_SERIES_MOST 1e60

/** @param [in] x  not less than the last, up to DDP_SERIES_MOST as well */
void   ddp_series_add(ddp_series_t *series, double x, double y);
double ddp_series_mean(const ddp_series_point_t *point);
/** Mean of the point that `x` lies in or that is the last before it; NaN: there is none. */
double ddp_series_at(const ddp_series_t *series, double x);
/** Of the means of all points; NaN if there are none. */
double ddp_series_median(const ddp_series_t *series);

#endif
