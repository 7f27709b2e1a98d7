#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/convert.h"
#include "base/error.h"
#include "launcher/json_read.h"
#include "launcher/report.h"

/* Make `n` of `old` values; new ones are 0. @return false: no memory */
static bool grow(double **list_p, size_t old, size_t n)
{
    double *more = realloc(*list_p, n * sizeof(*more));

    if (more == NULL) {
        return false;
    }
    for (size_t i = old; i < n; i++) {
        more[i] = 0;
    }
    *list_p = more;
    return true;
}

static ddp_status_t make_room(ddp_report_heat_t *heat, size_t ranks)
{
    ddp_status_t status = DDP_OK;
    const size_t old    = heat->ranks;

    if (ranks <= old) {
        return status;
    }
    DDP_REQUIRE(grow(&heat->own, old * DDP_REPORT_COLUMNS, ranks * DDP_REPORT_COLUMNS) &&
                    grow(&heat->computed, old, ranks) && grow(&heat->waited, old, ranks) &&
                    grow(&heat->communicated, old, ranks) && grow(&heat->slowest, old, ranks) &&
                    grow(&heat->told, old, ranks),
                DDP_ERR_NO_MEMORY, "no memory for the times of %zu ranks", ranks);
    heat->ranks = ranks;
out:
    return status;
}

/* Each pair of neighbouring columns becomes one. */
static void merge(ddp_report_heat_t *heat)
{
    for (size_t c = 0; c < DDP_REPORT_COLUMNS / 2; c++) {
        heat->first_x[c] = heat->first_x[2 * c];
        heat->last_x[c]  = heat->last_x[2 * c + 1];
        heat->count[c]   = heat->count[2 * c] + heat->count[2 * c + 1];
    }
    for (size_t r = 0; r < heat->ranks; r++) {
        double *row = heat->own + r * DDP_REPORT_COLUMNS;

        for (size_t c = 0; c < DDP_REPORT_COLUMNS / 2; c++) {
            row[c] = row[2 * c] + row[2 * c + 1];
        }
        memset(row + DDP_REPORT_COLUMNS / 2, 0, DDP_REPORT_COLUMNS / 2 * sizeof(*row));
    }
    heat->n /= 2;
    heat->per_column *= 2;
}

/* The column of a new event. */
static size_t take_column(ddp_report_heat_t *heat, double step)
{
    heat->per_column = heat->per_column == 0 ? 1 : heat->per_column;
    if (heat->n == 0 || heat->count[heat->n - 1] == heat->per_column) {
        if (heat->n == DDP_REPORT_COLUMNS) {
            merge(heat);
        }
        heat->first_x[heat->n] = step;
        heat->count[heat->n]   = 0;
        heat->n++;
    }
    heat->last_x[heat->n - 1] = step;
    heat->count[heat->n - 1]++;
    return heat->n - 1;
}

/* Within what a time may be; a NaN is nothing. */
static double take_ms(double value)
{
    return value > 0 ? fmin(value, DDP_SERIES_MOST) : 0;
}

/* What is told of rank `r`, in the order of ranks; lists may be of any length. */
static void take_rank(ddp_report_heat_t *heat, size_t r, size_t column, double compute, double wait,
                      double comm)
{
    if (isnan(compute)) {
        return;
    }
    heat->own[r * DDP_REPORT_COLUMNS + column] += take_ms(compute) + take_ms(wait);
    heat->computed[r] += take_ms(compute);
    heat->waited[r] += take_ms(wait);
    heat->communicated[r] += take_ms(comm);
    heat->told[r]++;
}

static const cJSON *next(const cJSON *item)
{
    return item != NULL ? item->next : NULL;
}

static const cJSON *list_of(const cJSON *event, const char *name)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(event, name);

    return cJSON_IsArray(list) ? list->child : NULL;
}

static double value_of(const cJSON *item)
{
    return cJSON_IsNumber(item) ? item->valuedouble : NAN;
}

ddp_status_t ddp_report_heat_add(ddp_report_heat_t *heat, const cJSON *event)
{
    ddp_status_t status  = DDP_OK;
    const cJSON *compute = list_of(event, "compute_ms");
    const cJSON *wait    = list_of(event, "wait_ms");
    const cJSON *comm    = list_of(event, "comm_ms");
    const double step    = ddp_json_number(event, "step");
    const double slowest = ddp_json_number(event, "slowest_rank");
    const int    told    = cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(event, "compute_ms"));
    const size_t ranks   = told < DDP_REPORT_MAX_RANKS ? (size_t)told : DDP_REPORT_MAX_RANKS;
    size_t       column;

    DDP_REQUIRE(step >= 0 && step <= DDP_REPORT_MAX_STEP && compute != NULL, DDP_ERR_FORMAT,
                "a straggler event without step or ranks");
    DDP_TRY(make_room(heat, ranks));
    column = take_column(heat, step);
    for (size_t r = 0; r < ranks; r++) {
        take_rank(heat, r, column, value_of(compute), value_of(wait), value_of(comm));
        compute = next(compute);
        wait    = next(wait);
        comm    = next(comm);
    }
    if (slowest >= 0 && slowest < (double)ranks) {
        heat->slowest[(size_t)slowest]++;
    }
    heat->events++;
out:
    return status;
}

double ddp_report_heat_median(const ddp_report_heat_t *heat, size_t column)
{
    double all[DDP_REPORT_MAX_RANKS];
    size_t n = 0;

    for (size_t r = 0; r < heat->ranks; r++) {
        const double ms = heat->own[r * DDP_REPORT_COLUMNS + column];

        if (ms > 0) {
            all[n++] = ms;
        }
    }
    qsort(all, n, sizeof(all[0]), ddp_ascending);
    return n > 0 ? all[(n - 1) / 2] : NAN;
}

void ddp_report_heat_free(ddp_report_heat_t *heat)
{
    free(heat->own);
    free(heat->computed);
    free(heat->waited);
    free(heat->communicated);
    free(heat->slowest);
    free(heat->told);
    *heat = (ddp_report_heat_t){0};
}
