/* What is counted and averaged, and what follows from it. */
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/convert.h"
#include "base/utf8.h"
#include "launcher/compare.h"

bool ddp_compare_add(ddp_compare_series_t *series, double value)
{
    if (isnan(value)) {
        return true;
    }
    if (series->n == series->room) {
        const size_t room = 2 * series->room + 64;
        double      *more = realloc(series->value, room * sizeof(*more));

        if (more == NULL) {
            return false;
        }
        series->value = more;
        series->room  = room;
    }
    series->value[series->n++] = value;
    return true;
}

static double quantile(const double *value, size_t n, double share)
{
    const double at    = share * (double)(n - 1);
    const size_t below = (size_t)at;
    const size_t above = below + 1 < n ? below + 1 : below;

    return value[below] + (at - (double)below) * (value[above] - value[below]);
}

ddp_compare_spread_t ddp_compare_spread(ddp_compare_series_t *series)
{
    ddp_compare_spread_t spread = {.n = series->n, .median = NAN, .q1 = NAN, .q3 = NAN};

    if (series->n > 0) {
        qsort(series->value, series->n, sizeof(*series->value), ddp_ascending);
        spread.median = quantile(series->value, series->n, 0.5);
        spread.q1     = quantile(series->value, series->n, 0.25);
        spread.q3     = quantile(series->value, series->n, 0.75);
    }
    return spread;
}

const char *ddp_compare_way_name(ddp_compare_way_t way)
{
    return way == DDP_COMPARE_ONE ? "one device" : way == DDP_COMPARE_DP ? "DataParallel" : "DDP";
}

const char *ddp_compare_way_key(ddp_compare_way_t way)
{
    return way == DDP_COMPARE_ONE ? "one" : way == DDP_COMPARE_DP ? "dp" : "ddp";
}

const char *ddp_compare_memory_name(ddp_compare_memory_t kind)
{
    static const char *const names[] = {"parameters",  "gradients", "moments",
                                        "activations", "outputs",   "other"};

    return names[kind];
}

ddp_compare_result_t *ddp_compare_new(ddp_compare_t *compare, ddp_compare_way_t way, size_t devices)
{
    ddp_compare_result_t *result;

    if (compare->n_results == DDP_COMPARE_MAX_RESULTS) {
        return NULL;
    }
    result  = &compare->results[compare->n_results++];
    *result = (ddp_compare_result_t){.way           = way,
                                     .devices       = devices,
                                     .spread        = {.median = NAN, .q1 = NAN, .q3 = NAN},
                                     .samples_per_s = NAN,
                                     .speedup       = NAN,
                                     .efficiency    = NAN,
                                     .comm_ms       = NAN,
                                     .exposed_ms    = NAN,
                                     .data_ms       = NAN,
                                     .moved_bytes   = NAN,
                                     .memory_ratio  = NAN,
                                     .busy_ratio    = NAN};
    for (size_t d = 0; d < DDP_COMPARE_MAX_DEVICES; d++) {
        for (size_t kind = 0; kind < DDP_COMPARE_MEMORY_KINDS; kind++) {
            result->device[d].bytes[kind] = NAN;
        }
        result->device[d].total   = NAN;
        result->device[d].peak    = NAN;
        result->device[d].busy_ms = NAN;
    }
    return result;
}

void ddp_compare_drop(ddp_compare_result_t *result)
{
    free(result->step.value);
    free(result->comm.value);
    free(result->exposed.value);
    free(result->data.value);
    for (size_t p = 0; p < result->n_phases; p++) {
        free(result->phases[p].series.value);
    }
    free(result->links);
    free(result->spans);
    memset(result, 0, sizeof(*result));
}

void ddp_compare_free(ddp_compare_t *compare)
{
    for (size_t i = 0; i < compare->n_results; i++) {
        ddp_compare_drop(&compare->results[i]);
    }
    free(compare->results);
    compare->results   = NULL;
    compare->n_results = 0;
}

const ddp_compare_result_t *ddp_compare_find(const ddp_compare_t *compare, ddp_compare_way_t way,
                                             size_t devices)
{
    for (size_t i = 0; i < compare->n_results; i++) {
        if (compare->results[i].way == way && compare->results[i].devices == devices) {
            return &compare->results[i];
        }
    }
    return NULL;
}

size_t ddp_compare_roomy(const ddp_compare_t *compare)
{
    size_t n = 0;

    while (n < compare->options.n_counts &&
           (compare->room == 0 || compare->options.counts[n] <= compare->room)) {
        n++;
    }
    return n > 0 ? n : compare->options.n_counts;
}

bool ddp_compare_is_measured(const ddp_compare_result_t *result)
{
    return result != NULL && result->step.n > 0;
}

void ddp_compare_note(ddp_compare_t *compare, const char *fmt, ...)
{
    va_list args;
    char   *note;

    if (compare->n_notes == DDP_COMPARE_MAX_NOTES) {
        return;
    }
    note = compare->notes[compare->n_notes++];
    va_start(args, fmt);
    (void)vsnprintf(note, DDP_COMPARE_LINE, fmt, args);
    va_end(args);
    ddp_utf8_clean(note);
}

/* Device 0 to the mean of the others. */
static double ratio(const ddp_compare_result_t *result, double (*of)(const ddp_compare_device_t *device))
{
    double others = 0;

    for (size_t d = 1; d < result->devices; d++) {
        others += of(&result->device[d]) / (double)(result->devices - 1);
    }
    return result->devices > 1 && others > 0 ? of(&result->device[0]) / others : NAN;
}

static double total(const ddp_compare_device_t *device)
{
    return device->total;
}

static double busy(const ddp_compare_device_t *device)
{
    return device->busy_ms;
}

static void derive(const ddp_compare_t *compare, const ddp_compare_result_t *one,
                   ddp_compare_result_t *result)
{
    result->spread        = ddp_compare_spread(&result->step);
    result->comm_ms       = ddp_compare_spread(&result->comm).median;
    result->exposed_ms    = ddp_compare_spread(&result->exposed).median;
    result->data_ms       = ddp_compare_spread(&result->data).median;
    result->samples_per_s = (double)compare->config.train.batch * 1e3 / result->spread.median;
    for (size_t p = 0; p < result->n_phases; p++) {
        result->phases[p].ms = ddp_compare_spread(&result->phases[p].series).median;
    }
    result->memory_ratio = ratio(result, total);
    result->busy_ratio   = ratio(result, busy);
    if (ddp_compare_is_measured(one)) {
        result->speedup    = one->spread.median / result->spread.median;
        result->efficiency = result->speedup / (double)result->devices;
        result->is_equal   = one->weights[0] != '\0' && strcmp(one->weights, DDP_COMPARE_UNSTEADY) != 0 &&
                           strcmp(one->weights, result->weights) == 0;
    }
}

void ddp_compare_derive(ddp_compare_t *compare)
{
    const ddp_compare_result_t *one = ddp_compare_find(compare, DDP_COMPARE_ONE, 1);

    for (size_t i = 0; i < compare->n_results; i++) { /* one device is the first of them */
        derive(compare, one, &compare->results[i]);
    }
}
