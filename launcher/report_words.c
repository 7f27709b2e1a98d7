/* What happened, in words. */
#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>

#include "launcher/report.h"

#define MINUTE 60.0
#define HOUR   3600.0
#define DAY    86400.0

#define FRESH_S     120.0 /* a file that was written to so lately is being written to */
#define FRESH_LINES 4.0   /* or not longer ago than so many lines take */
#define OFTEN       0.5   /* share of the reports in which a straggler was the slowest */
#define FEW         5     /* reports that say nothing yet */
#define LATE        1.1   /* times what the rank in the middle computes */

static void note(ddp_report_run_t *run, const char *fmt, ...) DDP_PRINTF(2, 3);

static void note(ddp_report_run_t *run, const char *fmt, ...)
{
    va_list args;

    if (run->n_notes < DDP_REPORT_MAX_NOTES) {
        va_start(args, fmt);
        (void)vsnprintf(run->notes[run->n_notes++], DDP_REPORT_LINE, fmt, args);
        va_end(args);
    }
}

const char *ddp_report_duration(double seconds, char text[DDP_CELL])
{
    if (!(seconds >= 0)) {
        return ddp_cell_number(NAN, 0, text);
    }
    if (seconds < MINUTE) {
        (void)snprintf(text, DDP_CELL, seconds < 9.95 ? "%.1f s" : "%.0f s", seconds);
    } else if (seconds < HOUR) {
        (void)snprintf(text, DDP_CELL, "%.0f min %.0f s", floor(seconds / MINUTE),
                       floor(fmod(seconds, MINUTE)));
    } else if (seconds < DAY) {
        (void)snprintf(text, DDP_CELL, "%.0f h %.0f min", floor(seconds / HOUR),
                       floor(fmod(seconds, HOUR) / MINUTE));
    } else {
        (void)snprintf(text, DDP_CELL, "%.0f d %.0f h", floor(seconds / DAY),
                       floor(fmod(seconds, DAY) / HOUR));
    }
    return text;
}

const char *ddp_report_time(double seconds, char text[DDP_CELL])
{
    const time_t whole = isfinite(seconds) && fabs(seconds) < 1e11 ? (time_t)seconds : 0;
    struct tm    tm;

    if (whole == 0 || gmtime_r(&whole, &tm) == NULL ||
        strftime(text, DDP_CELL, "%Y-%m-%d %H:%M UTC", &tm) == 0) {
        return ddp_cell_number(NAN, 0, text);
    }
    return text;
}

const char *ddp_report_quoted(const char *path, char *text, size_t size)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./+-=:,@%";
    size_t            used    = 0;

    if (path[0] != '-' && strspn(path, plain) == strlen(path)) {
        (void)snprintf(text, size, "%s", path);
        return text;
    }
    used += (size_t)snprintf(text, size, "'%s", path[0] == '-' ? "./" : "");
    for (; *path != '\0' && used + 6 < size; path++) {
        used += (size_t)snprintf(text + used, size - used, *path == '\'' ? "'\\''" : "%c", *path);
    }
    (void)snprintf(text + used, size - used, "'");
    return text;
}

static const ddp_report_start_t *newest_start(const ddp_report_run_t *run)
{
    return run->n_starts > 0 ? &run->start[run->n_starts - 1] : NULL;
}

/* Is it still going on, as far as this machine can tell? */
static bool is_going_on(const ddp_report_run_t *run, double now_s)
{
    const ddp_series_t *step_ms = &run->field[DDP_REPORT_STEP_MS];
    double              between = 0;

    if (step_ms->count > 1) {
        between =
            (run->step - step_ms->point[0].first_x) / (double)(step_ms->count - 1) * step_ms->last / 1e3;
    }
    return run->is_locked || now_s - run->last_s < fmax(FRESH_S, FRESH_LINES * between);
}

/* " of 300", or nothing. */
static const char *of_all(const ddp_report_run_t *run, char text[DDP_CELL + 8])
{
    text[0] = '\0';
    if (run->total_steps > 0) {
        (void)snprintf(text, DDP_CELL + 8, " of %.0f", run->total_steps);
    }
    return text;
}

static void say_done(ddp_report_run_t *run)
{
    double seconds = 0;
    char   text[DDP_CELL];

    for (size_t i = 0; i < run->n_starts; i++) {
        seconds += run->start[i].end_s - run->start[i].time_s;
    }
    (void)snprintf(run->headline, sizeof(run->headline), "Done: %.0f steps", run->step);
    if (!isnan(seconds) && run->all_starts == run->n_starts) {
        (void)snprintf(run->headline, sizeof(run->headline), "Done: %.0f steps in %s", run->step,
                       ddp_report_duration(seconds, text));
    }
}

static void say_running(ddp_report_run_t *run, double now_s)
{
    const double left = (run->total_steps - run->step) * run->field[DDP_REPORT_STEP_MS].last / 1e3;
    char         all[DDP_CELL + 8];
    char         text[DDP_CELL];

    if (run->step == 0) {
        (void)snprintf(run->headline, sizeof(run->headline), "Going on: no step is told of yet");
    } else if (left >= 0 && run->field[DDP_REPORT_STEP_MS].count > 0) {
        (void)snprintf(run->headline, sizeof(run->headline),
                       "Going on: step %.0f%s (%.0f %%), %s of training left at the last steps' pace",
                       run->step, of_all(run, all), 100 * run->step / run->total_steps,
                       ddp_report_duration(left, text));
    } else {
        (void)snprintf(run->headline, sizeof(run->headline), "Going on: step %.0f%s", run->step,
                       of_all(run, all));
    }
    if (!run->is_locked) {
        note(run,
             "No process of this machine is training in the folder, but metrics.jsonl was written to %s ago.",
             ddp_report_duration(now_s - run->last_s, text));
    }
}

/* Nothing in the run's own file says that it ended; who supervised it may know. */
static void say_broken(ddp_report_run_t *run, double now_s)
{
    const char *line = run->n_attempts > 0 ? run->attempt[run->n_attempts - 1].line : "";
    char        all[DDP_CELL + 8];
    char        text[DDP_CELL];

    (void)snprintf(run->headline, sizeof(run->headline), "Broke off after step %.0f%s or soon after it%s%s",
                   run->step, of_all(run, all), line[0] != '\0' ? ": " : "", line);
    note(run, "metrics.jsonl was last written to %s ago.", ddp_report_duration(now_s - run->last_s, text));
    if (line[0] == '\0') {
        note(run, "The folder does not tell why: rank 0 had no time to. A killed process, a host that is "
                  "gone and the "
                  "end of a job leave it so; what stderr or the job's log said last tells more.");
    }
}

static void say_headline(ddp_report_run_t *run, double now_s)
{
    char all[DDP_CELL + 8];

    switch (run->end) {
    case DDP_REPORT_DONE:
        say_done(run);
        break;
    case DDP_REPORT_STOPPED:
        (void)snprintf(run->headline, sizeof(run->headline),
                       "Stopped early, after step %.0f%s, with its state saved", run->step, of_all(run, all));
        break;
    case DDP_REPORT_FAILED:
        (void)snprintf(run->headline, sizeof(run->headline), "Failed after step %.0f%s or soon after it: %s",
                       run->step, of_all(run, all), run->why);
        break;
    case DDP_REPORT_OPEN:
        if (is_going_on(run, now_s)) {
            say_running(run, now_s);
            break;
        }
        say_broken(run, now_s);
        break;
    }
}

/* The command that goes on. */
static void say_how(ddp_report_run_t *run, double now_s)
{
    const ddp_report_start_t *start = newest_start(run);
    char                      folder[DDP_REPORT_LINE / 3];
    char                      mpirun[DDP_CELL + 16] = "";

    if (run->end == DDP_REPORT_DONE || (run->end == DDP_REPORT_OPEN && is_going_on(run, now_s))) {
        return;
    }
    if (run->newest[0] == '\0') {
        note(run, "There is no checkpoint in the folder, so a new run has to begin at step 0.");
        return;
    }
    if (start != NULL && !start->is_dp && start->ranks > 1) {
        (void)snprintf(mpirun, sizeof(mpirun), "mpirun -np %.0f ", start->ranks);
    }
    (void)ddp_report_quoted(run->folder, folder, sizeof(folder));
    note(run, "Go on from %s, on any number of ranks: %sddptrain %s/config.yaml --out %s --resume auto",
         run->newest, mpirun, folder, folder);
}

static void say_results(ddp_report_run_t *run)
{
    const ddp_series_t *loss     = &run->field[DDP_REPORT_LOSS];
    const ddp_series_t *test     = &run->field[DDP_REPORT_TEST_LOSS];
    const ddp_series_t *accuracy = &run->field[DDP_REPORT_ACCURACY];
    const ddp_series_t *words    = &run->field[DDP_REPORT_PERPLEXITY];

    if (test->count > 0) {
        char more[96] = "";

        if (words->count > 0) {
            (void)snprintf(more, sizeof(more), ", perplexity %.4g", words->last);
        } else if (accuracy->count > 0) {
            (void)snprintf(more, sizeof(more), ", accuracy %.1f %%", 100 * accuracy->last);
        }
        note(run, "Test loss %.4g after step %.0f%s; the least was %.4g after step %.0f.", test->last,
             test->last_x, more, test->least, test->best_x);
    }
    if (loss->count > 0) {
        note(run, "Training loss %.4g at step %.0f; %.4g at step %.0f.", loss->last, loss->last_x,
             ddp_series_mean(&loss->point[0]), loss->point[0].last_x);
    }
}

static const ddp_series_t *phase_of(const ddp_report_run_t *run, const char *name)
{
    for (size_t p = 0; p < run->n_phases; p++) {
        if (strcmp(run->phase[p].name, name) == 0) {
            return &run->phase[p].series;
        }
    }
    return NULL;
}

static void say_speed(ddp_report_run_t *run)
{
    const double        step    = ddp_series_median(&run->field[DDP_REPORT_STEP_MS]);
    const double        samples = ddp_series_median(&run->field[DDP_REPORT_SAMPLES]);
    const double        tokens  = ddp_series_median(&run->field[DDP_REPORT_TOKENS]);
    const ddp_series_t *exposed = phase_of(run, "exposed");
    const ddp_series_t *data    = phase_of(run, "data-wait");
    char                ms[DDP_CELL];
    char                count[DDP_CELL];

    if (isnan(step)) {
        return;
    }
    note(run, "A step took %s ms: %s %s a second (medians).", ddp_cell_ms(step, ms),
         ddp_cell_short(isnan(tokens) ? samples : tokens, count), isnan(tokens) ? "samples" : "tokens");
    if (exposed != NULL && data != NULL) {
        note(run,
             "Of it %.0f %% passed from the end of backward to the end of the step (communication and "
             "updates that "
             "backward did not hide), %.0f %% waiting for samples.",
             100 * ddp_series_median(exposed) / step, 100 * ddp_series_median(data) / step);
    }
}

static void say_straggler(ddp_report_run_t *run)
{
    const ddp_report_heat_t *heat = &run->heat;
    double                   most = 0;
    size_t                   rank = 0;
    double                   own  = 0;
    double                   half = 0;

    for (size_t r = 0; r < heat->ranks; r++) {
        if (heat->slowest[r] > most) {
            most = heat->slowest[r];
            rank = r;
        }
    }
    if (heat->events < FEW || most < OFTEN * (double)heat->events) {
        return;
    }
    for (size_t c = 0; c < heat->n; c++) {
        const double median = ddp_report_heat_median(heat, c);

        half += isnan(median) ? 0 : median;
        own += heat->own[rank * DDP_REPORT_COLUMNS + c];
    }
    if (half > 0 && own > LATE * half) {
        note(run,
             "Rank %zu was the slowest in %.0f %% of the reports and worked %.2f times as long as the rank "
             "in the "
             "middle: look at what else runs on its host, at its cores and its clock.",
             rank, 100 * most / (double)heat->events, own / half);
    }
}

static void say_trouble(ddp_report_run_t *run)
{
    if (run->all_starts > 1) {
        note(run, "It was started %zu times; what was trained after a checkpoint and lost is not shown.",
             run->all_starts);
    }
    if (run->all_attempts > 1) {
        note(run, "supervise started it %zu times.", run->all_attempts);
    }
    if (run->skipped > 0) {
        note(run, "%.0f steps were not finite and changed nothing.", run->skipped);
    }
    if (run->failed_saves > 0) {
        note(run, "%zu of %zu saves failed.", run->failed_saves, run->all_saves);
    }
    if (run->damaged > 0) {
        note(run, "%zu line%s of metrics.jsonl cannot be read and %s left out, first line %zu.", run->damaged,
             run->damaged == 1 ? "" : "s", run->damaged == 1 ? "is" : "are", run->first_damaged);
    }
    if (run->is_cut && !run->is_locked) {
        note(run, "The last line of metrics.jsonl is cut off.");
    }
}

void ddp_report_words(ddp_report_run_t *run, double now_s)
{
    run->n_notes = 0;
    say_headline(run, now_s);
    say_how(run, now_s);
    say_results(run);
    say_speed(run);
    say_straggler(run);
    say_trouble(run);
}
