/* What the figures say, in words. Two medians differ if they are further apart than the larger of the two
 * spreads (the middle half of the steps); else the measurement cannot tell. Numbers of devices beyond that of
 * cores are reported, but do not decide where smaller ones were measured. */
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "base/utf8.h"
#include "launcher/compare.h"

#define UNEVEN 1.15 /* device 0 holds so much more than the others: worth a line */
#define NOISY  0.25 /* a spread of so much of the median */
#define NAME   64

typedef enum winner { NOBODY, SAME, DP, DDP, DP_ALONE, DDP_ALONE } winner_t;

static void say(ddp_compare_t *compare, const char *fmt, ...) DDP_PRINTF(2, 3);
static void say(ddp_compare_t *compare, const char *fmt, ...)
{
    va_list args;
    char   *reason;

    if (compare->n_reasons == DDP_COMPARE_MAX_NOTES) {
        return;
    }
    reason = compare->reasons[compare->n_reasons++];
    va_start(args, fmt);
    (void)vsnprintf(reason, DDP_COMPARE_LINE, fmt, args);
    va_end(args);
    ddp_utf8_clean(reason);
}

static double larger_spread(const ddp_compare_result_t *a, const ddp_compare_result_t *b)
{
    return fmax(a->spread.q3 - a->spread.q1, b->spread.q3 - b->spread.q1);
}

/* `a` takes less time than `b`, by more than what the measurement leaves open. */
static bool is_faster(const ddp_compare_result_t *a, const ddp_compare_result_t *b)
{
    return ddp_compare_is_measured(a) && ddp_compare_is_measured(b) &&
           b->spread.median - a->spread.median > larger_spread(a, b);
}

static winner_t winner_of(const ddp_compare_t *compare, size_t devices)
{
    const ddp_compare_result_t *dp  = ddp_compare_find(compare, DDP_COMPARE_DP, devices);
    const ddp_compare_result_t *ddp = ddp_compare_find(compare, DDP_COMPARE_DDP, devices);

    if (!ddp_compare_is_measured(dp)) {
        return ddp_compare_is_measured(ddp) ? DDP_ALONE : NOBODY;
    }
    if (!ddp_compare_is_measured(ddp)) {
        return DP_ALONE;
    }
    return is_faster(ddp, dp) ? DDP : is_faster(dp, ddp) ? DP : SAME;
}

static const char *why(const ddp_compare_result_t *result)
{
    return result != NULL ? result->error : "it was not run";
}

static void say_times(ddp_compare_t *compare, size_t devices)
{
    const ddp_compare_result_t *dp   = ddp_compare_find(compare, DDP_COMPARE_DP, devices);
    const ddp_compare_result_t *ddp  = ddp_compare_find(compare, DDP_COMPARE_DDP, devices);
    const winner_t              won  = winner_of(compare, devices);
    const ddp_compare_result_t *fast = won == DDP ? ddp : dp;
    const ddp_compare_result_t *slow = won == DDP ? dp : ddp;
    char                        a[DDP_CELL];
    char                        b[DDP_CELL];
    char                        c[DDP_CELL];

    switch (won) {
    case NOBODY:
        say(compare, "%zu devices: neither way could be measured.", devices);
        break;
    case DP_ALONE:
        say(compare, "%zu devices: DDP could not be measured (%.300s).", devices, why(ddp));
        break;
    case DDP_ALONE:
        say(compare, "%zu devices: DataParallel could not be measured (%.300s).", devices, why(dp));
        break;
    case SAME:
        say(compare,
            "%zu devices: no difference that this measurement can see: a step of DataParallel takes %s ms, "
            "of DDP %s ms, and the middle half of the steps spreads over %s ms.",
            devices, ddp_cell_ms(dp->spread.median, a), ddp_cell_ms(ddp->spread.median, b),
            ddp_cell_ms(larger_spread(dp, ddp), c));
        break;
    case DP:
    case DDP:
        say(compare, "%zu devices: %s is %.2f times as fast: a step takes %s ms instead of %s ms.", devices,
            ddp_compare_way_name(fast->way), slow->spread.median / fast->spread.median,
            ddp_cell_ms(fast->spread.median, a), ddp_cell_ms(slow->spread.median, b));
        break;
    }
}

static void say_one_device(ddp_compare_t *compare, const ddp_compare_result_t *one,
                           const ddp_compare_result_t *best)
{
    char name[NAME];
    char a[DDP_CELL];
    char b[DDP_CELL];

    if (!ddp_compare_is_measured(one)) {
        say(compare, "One device could not be measured (%.300s): there are no speed-ups.", one->error);
        return;
    }
    if (best == NULL) {
        return;
    }
    (void)ddp_compare_result_text(best, name, sizeof(name));
    if (is_faster(best, one)) {
        say(compare,
            "Against one device (%s ms a step) the fastest, %s, is %.2f times as fast: %.0f %% of what so "
            "many devices could do at best.",
            ddp_cell_ms(one->spread.median, a), name, best->speedup, 100 * best->efficiency);
    } else {
        say(compare, "A step of one device takes %s ms, of the fastest with more of them, %s, %s ms.",
            ddp_cell_ms(one->spread.median, a), name, ddp_cell_ms(best->spread.median, b));
    }
}

/* The largest of a result's devices. */
static double most_bytes(const ddp_compare_result_t *result)
{
    double most = NAN;

    for (size_t d = 0; d < result->devices; d++) {
        most = fmax(most, result->device[d].total); /* fmax() passes over a NaN */
    }
    return most;
}

static void say_memory(ddp_compare_t *compare, size_t devices)
{
    const ddp_compare_result_t *dp  = ddp_compare_find(compare, DDP_COMPARE_DP, devices);
    const ddp_compare_result_t *ddp = ddp_compare_find(compare, DDP_COMPARE_DDP, devices);
    double                      of_dp;
    double                      of_ddp;
    char                        a[DDP_CELL];
    char                        b[DDP_CELL];

    if (!ddp_compare_is_measured(dp) || isnan(dp->memory_ratio)) {
        return;
    }
    of_dp = dp->device[0].total;
    if (dp->memory_ratio > UNEVEN) {
        say(compare,
            "With DataParallel device 0 is the limit: of %zu devices it holds %s, %.1f times as much as the "
            "others do in the mean.",
            devices, ddp_cell_bytes(of_dp, a), dp->memory_ratio);
    }
    of_ddp = ddp_compare_is_measured(ddp) ? most_bytes(ddp) : NAN;
    if (!isnan(of_ddp) && of_dp > UNEVEN * of_ddp) {
        say(compare,
            "Where memory is the limit, use DDP: its fullest rank holds %s where DataParallel's device 0 "
            "holds %s.",
            ddp_cell_bytes(of_ddp, a), ddp_cell_bytes(of_dp, b));
    }
}

static void say_weights(ddp_compare_t *compare)
{
    size_t measured    = 0;
    size_t different   = 0;
    char   first[NAME] = "";

    for (size_t i = 0; i < compare->n_results; i++) {
        const ddp_compare_result_t *result = &compare->results[i];

        if (!ddp_compare_is_measured(result)) {
            continue;
        }
        measured++;
        if (!result->is_equal) {
            different++;
            if (first[0] == '\0') {
                (void)ddp_compare_result_text(result, first, sizeof(first));
            }
        }
    }
    if (measured < 2 || !ddp_compare_is_measured(&compare->results[0])) {
        return;
    }
    if (different == 0) {
        say(compare,
            "All %zu of them end with the same weights, bit for bit: the choice is one of speed and "
            "memory alone.",
            measured);
        return;
    }
    say(compare, "The weights of %zu of these %zu differ from those of one device (the first: %s)%s.",
        different, measured, first,
        compare->config.model.kind == DDP_MODEL_RESNET
            ? ": with DataParallel the running averages of batch normalisation are those of the first device"
        : compare->config.ddp.average == (int)DDP_AVERAGE_RANKS
            ? ": ddp.average ranks is another mean for each number of ranks"
            : "");
}

/* Where steps of the same run take very different times, something else is at work. */
static void say_noise(ddp_compare_t *compare)
{
    const size_t n     = ddp_compare_roomy(compare);
    const size_t most  = n > 0 ? compare->options.counts[n - 1] : 1;
    double       worst = 0;

    for (size_t i = 0; i < compare->n_results; i++) {
        const ddp_compare_result_t *result = &compare->results[i];

        if (ddp_compare_is_measured(result) && result->devices <= most) {
            worst = fmax(worst, (result->spread.q3 - result->spread.q1) / result->spread.median);
        }
    }
    if (worst > NOISY) {
        say(compare,
            "The middle half of the steps spreads over up to %.0f %% of their median: something else runs on "
            "this machine; without it, or with more --rounds, more could be told.",
            100 * worst);
    }
}

/* The fastest result on more than one device, of those that count for the headline. */
static const ddp_compare_result_t *fastest(const ddp_compare_t *compare)
{
    const size_t                n    = ddp_compare_roomy(compare);
    const size_t                most = n > 0 ? compare->options.counts[n - 1] : 0;
    const ddp_compare_result_t *best = NULL;

    for (size_t i = 0; i < compare->n_results; i++) {
        const ddp_compare_result_t *result = &compare->results[i];

        if (result->devices > 1 && result->devices <= most && ddp_compare_is_measured(result) &&
            (best == NULL || result->spread.median < best->spread.median)) {
            best = result;
        }
    }
    return best;
}

/* The smallest number of devices from which on DDP was the better way, 0: there is none. */
static size_t ddp_from(const ddp_compare_t *compare)
{
    size_t from = 0;

    for (size_t i = ddp_compare_roomy(compare); i-- > 0;) {
        const winner_t won = winner_of(compare, compare->options.counts[i]);

        if (won != DDP && won != DDP_ALONE) {
            break;
        }
        from = compare->options.counts[i];
    }
    return from;
}

static void headline(ddp_compare_t *compare, const char *fmt, ...) DDP_PRINTF(2, 3);
static void headline(ddp_compare_t *compare, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(compare->headline, sizeof(compare->headline), fmt, args);
    va_end(args);
}

static void decide(ddp_compare_t *compare, const ddp_compare_result_t *one, const ddp_compare_result_t *best)
{
    const size_t  *counts = compare->options.counts;
    const size_t   n      = ddp_compare_roomy(compare);
    const size_t   from   = ddp_from(compare);
    const winner_t last   = n > 0 ? winner_of(compare, counts[n - 1]) : NOBODY;

    if (best == NULL) {
        headline(compare, "No verdict: nothing could be measured on more than one device");
    } else if (ddp_compare_is_measured(one) && !is_faster(best, one)) {
        headline(compare, "Use one device: on up to %zu devices nothing was faster by more than the spread",
                 counts[n - 1]);
    } else if (from > 0 && from == counts[0]) {
        headline(compare, "Use DDP, from %zu devices on", from);
    } else if (from > 0) {
        headline(compare, "Use DDP from %zu devices on; for fewer DataParallel may do", from);
    } else if (last == DP) {
        headline(compare, "Use DataParallel: on %zu devices it was the faster way", counts[n - 1]);
    } else if (last == DP_ALONE) {
        headline(compare, "Use DataParallel for %zu devices: DDP could not be measured", counts[n - 1]);
    } else if (last == NOBODY) {
        headline(compare, "No verdict for %zu devices: neither way could be measured there", counts[n - 1]);
    } else {
        headline(compare,
                 "Either way will do: on %zu devices there is no difference that this measurement "
                 "can see",
                 counts[n - 1]);
    }
}

void ddp_compare_verdict(ddp_compare_t *compare)
{
    const ddp_compare_result_t *one  = ddp_compare_find(compare, DDP_COMPARE_ONE, 1);
    const ddp_compare_result_t *best = fastest(compare);
    const size_t                n    = compare->options.n_counts;

    compare->n_reasons = 0;
    decide(compare, one, best);
    for (size_t i = 0; i < n; i++) {
        say_times(compare, compare->options.counts[i]);
    }
    say_one_device(compare, one, best);
    for (size_t i = n; i-- > 0;) {
        const size_t k = compare->options.counts[i];

        if (ddp_compare_is_measured(ddp_compare_find(compare, DDP_COMPARE_DP, k))) {
            say_memory(compare, k);
            break;
        }
    }
    say_weights(compare);
    say_noise(compare);
    for (size_t i = 0; i < compare->n_notes; i++) {
        say(compare, "%.500s.", compare->notes[i]);
    }
}
