/* What an end deserves: a restart and when, or none. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "launcher/stop.h"
#include "launcher/supervise.h"

#define USAGE       2
#define OF_MPIRUN_S 110 /* mpirun --timeout */
#define NO_PROGRAM  126
#define NOT_FOUND   127
#define LONG_RUN_S  300.0
#define LEAST_SHARE 0.5 /* of a wait: the rest is drawn, so that many jobs do not come back at once */

static void say(char *reason, const char *fmt, ...) DDP_PRINTF(2, 3);
static void say(char *reason, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(reason, DDP_SUPERVISE_REASON, fmt, args);
    va_end(args);
}

/* Ends that no restart mends. */
static bool is_final(const ddp_supervise_place_t *place, const ddp_supervise_end_t *end, char *reason)
{
    switch (end->code) {
    case 0:
        say(reason, "done");
        return true;
    case USAGE:
        say(reason, "wrong usage, which a restart does not mend");
        return true;
    case OF_MPIRUN_S:
        say(reason, "mpirun's own --timeout has passed");
        return true;
    case NO_PROGRAM:
    case NOT_FOUND:
        say(reason, "the command cannot be run");
        return true;
    case DDP_EXIT_STOPPED:
        say(reason, "stopped and saved%s",
            place->is_limited ? ": the limit of time"
                              : ": the job script is told, and may ask for a requeue");
        return place->is_limited || place->in_slurm;
    default:
        return false;
    }
}

/* Where checkpoints are not seen, a run of some minutes counts as one that saved. */
static void note(const ddp_supervise_place_t *place, ddp_supervise_past_t *past,
                 const ddp_supervise_end_t *end, int64_t step)
{
    const bool is_progress = place->is_seen ? step > past->step : end->seconds >= LONG_RUN_S;
    const bool is_first    = past->restarts == 0 || is_progress;

    past->idle     = is_first ? 0 : past->idle + 1;
    past->failures = is_first ? 1 : past->failures + 1;
    past->is_same  = is_first || (past->is_same && ddp_supervise_clue_is_same(past->line, end->clue.line));
    past->step     = step > past->step ? step : past->step;
    (void)snprintf(past->line, sizeof(past->line), "%s", end->clue.line);
}

/* Have there been as many restarts within the window as there may be? */
static bool is_used_up(const ddp_supervise_options_t *options, const ddp_supervise_past_t *past, double now_s)
{
    const uint64_t most = options->max_restarts;

    return most == 0 ||
           (past->restarts >= most && now_s - past->restart_s[past->restarts % most] < options->window_s);
}

ddp_supervise_next_t ddp_supervise_decide(const ddp_supervise_options_t *options,
                                          const ddp_supervise_place_t *place, ddp_supervise_past_t *past,
                                          const ddp_supervise_end_t *end, double now_s, int64_t step,
                                          double random, double *wait_s, char *reason)
{
    double wait = 0;

    *wait_s = 0;
    if (end->asked != 0) {
        say(reason, "was asked to stop by %s", ddp_supervise_signal_name(end->asked));
        return DDP_SUPERVISE_DONE;
    }
    if (is_final(place, end, reason)) {
        return end->code == 0 || end->code == DDP_EXIT_STOPPED ? DDP_SUPERVISE_DONE : DDP_SUPERVISE_GIVE_UP;
    }
    note(place, past, end, step);
    if (past->idle >= options->max_idle) {
        say(reason, "%" PRIu64 " restarts in a row brought no new checkpoint%s", past->idle,
            past->is_same && past->line[0] != '\0' ? ", and each ended with the same line" : "");
        return DDP_SUPERVISE_GIVE_UP;
    }
    if (is_used_up(options, past, now_s)) {
        say(reason, "%" PRIu64 " restarts within %g s are the most (--max-restarts)", options->max_restarts,
            options->window_s);
        return DDP_SUPERVISE_GIVE_UP;
    }
    past->restart_s[past->restarts % options->max_restarts] = now_s;
    past->restarts++;
    wait    = options->backoff_s * pow(2, past->failures > 60 ? 60 : (double)(past->failures - 1));
    wait    = wait < options->backoff_max_s ? wait : options->backoff_max_s;
    *wait_s = wait * (LEAST_SHARE + (1 - LEAST_SHARE) * random);
    say(reason, end->code == DDP_EXIT_STOPPED ? "stopped and saved, not by us" : "failed");
    return DDP_SUPERVISE_RESTART;
}
