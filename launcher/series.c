#include "launcher/series.h"

#include <math.h>
#include <stdlib.h>

#include "base/convert.h"

/* Each pair of neighbours becomes one point. */
static void merge(ddp_series_t *series)
{
    for (size_t i = 0; i + 1 < series->n; i += 2) {
        const ddp_series_point_t *a = &series->point[i];
        const ddp_series_point_t *b = &series->point[i + 1];

        series->point[i / 2] = (ddp_series_point_t){.first_x = a->first_x,
                                                    .last_x  = b->last_x,
                                                    .n       = a->n + b->n,
                                                    .sum     = a->sum + b->sum,
                                                    .least   = fmin(a->least, b->least),
                                                    .most    = fmax(a->most, b->most)};
    }
    series->n /= 2;
    series->per_point *= 2;
}

void ddp_series_add(ddp_series_t *series, double x, double y)
{
    ddp_series_point_t *point;

    if (!(fabs(x) <= DDP_SERIES_MOST) || !(fabs(y) <= DDP_SERIES_MOST)) {
        return;
    }
    if (series->count == 0 || y < series->least) {
        series->least  = y;
        series->best_x = x;
    }
    series->per_point = series->per_point == 0 ? 1 : series->per_point;
    series->count++;
    series->sum += y;
    series->last_x = x;
    series->last   = y;
    if (series->n == 0 || series->point[series->n - 1].n == series->per_point) {
        if (series->n == DDP_SERIES_POINTS) {
            merge(series);
        }
        series->point[series->n++] =
            (ddp_series_point_t){.first_x = x, .last_x = x, .n = 1, .sum = y, .least = y, .most = y};
        return;
    }
    point         = &series->point[series->n - 1];
    point->last_x = x;
    point->n++;
    point->sum += y;
    point->least = fmin(point->least, y);
    point->most  = fmax(point->most, y);
}

double ddp_series_mean(const ddp_series_point_t *point)
{
    return point->sum / (double)point->n;
}

double ddp_series_at(const ddp_series_t *series, double x)
{
    size_t low  = 0;
    size_t high = series->n; /* the first that begins behind x */

    while (low < high) {
        const size_t middle = (low + high) / 2;

        if (series->point[middle].first_x <= x) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return high == 0 ? NAN : ddp_series_mean(&series->point[high - 1]);
}

double ddp_series_median(const ddp_series_t *series)
{
    double       mean[DDP_SERIES_POINTS];
    const size_t n = series->n;

    if (n == 0) {
        return NAN;
    }
    for (size_t i = 0; i < n; i++) {
        mean[i] = ddp_series_mean(&series->point[i]);
    }
    qsort(mean, n, sizeof(mean[0]), ddp_ascending);
    return n % 2 == 1 ? mean[n / 2] : (mean[n / 2 - 1] + mean[n / 2]) / 2;
}
