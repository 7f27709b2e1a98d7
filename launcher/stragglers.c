/* Which rank is slowest, and at what: an event every ddp.straggler_every steps, and a warning where it is the
 * same one for long. */
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <string.h>

#include "base/log.h"
#include "launcher/events_internal.h"

/* Much slower: by a fifth of what the rank in the middle takes, and not by what a clock cannot tell. */
#define MUCH        1.2
#define LEAST_MS    0.5
#define WARN_AT     5 /* events in a row */
#define MICROSECOND 1000

static cJSON *add_list(cJSON *event, const char *name, const ddp_watch_run_t *watch, int ranks, int column)
{
    cJSON *list = event != NULL ? cJSON_AddArrayToObject(event, name) : NULL;

    for (int r = 0; list != NULL && r < ranks; r++) {
        const double rounded = (double)(int64_t)(watch->step_ms[r][column] * 1e3 + 0.5) / 1e3;

        (void)cJSON_AddItemToArray(list, cJSON_CreateNumber(rounded));
    }
    return list;
}

static void write_event(ddp_run_t *run, uint64_t done, const ddp_straggler_t *found)
{
    const int              ranks = ddp_comm_size(run->comm);
    const ddp_watch_run_t *watch = &run->watch;
    cJSON                 *event = ddp_metrics_event("straggler");

    ddp_events_number(event, "step", (double)done);
    ddp_events_number(event, "steps", (double)(watch->now[0].steps - watch->before[0].steps));
    (void)add_list(event, "compute_ms", watch, ranks, 0);
    (void)add_list(event, "wait_ms", watch, ranks, 1);
    (void)add_list(event, "comm_ms", watch, ranks, 2);
    ddp_events_number(event, "slowest_rank", found->slowest);
    ddp_events_number(event, "slowest_ms", found->slowest_ms);
    ddp_events_number(event, "median_ms", found->median_ms);
    ddp_events_write(run, event);
}

/* Once for each rank that is much slower than the others for long. */
static void warn(ddp_run_t *run, uint64_t done, const ddp_straggler_t *found)
{
    ddp_watch_run_t *watch = &run->watch;
    const bool       is_much =
        found->slowest_ms > MUCH * found->median_ms && found->slowest_ms > found->median_ms + LEAST_MS;

    if (!is_much || found->slowest != watch->slowest) {
        watch->times     = 0;
        watch->is_warned = false;
        watch->since     = done;
        watch->slowest   = found->slowest;
    }
    watch->times += is_much ? 1 : 0;
    if (watch->times < WARN_AT || watch->is_warned) {
        return;
    }
    watch->is_warned = true;
    ddp_progress_clear(&run->progress);
    ddp_log(DDP_LOG_WARN,
            "rank %d on %s is the slowest since step %" PRIu64
            ": %.3g ms of work a step (%.3g forward and backward, %.3g waiting for data), the median is "
            "%.3g ms",
            found->slowest, ddp_comm_host(run->comm, found->slowest), watch->since, found->slowest_ms,
            watch->step_ms[found->slowest][0], watch->step_ms[found->slowest][1], found->median_ms);
}

void ddp_watch_step(ddp_run_t *run, uint64_t done, int64_t wait_ns, int64_t busy_ns, int64_t step_ns)
{
    ddp_watch_run_t *watch   = &run->watch;
    const uint64_t   every   = run->config.ddp.straggler_every;
    const int        ranks   = ddp_comm_size(run->comm);
    const int64_t    compute = busy_ns > wait_ns ? busy_ns - wait_ns : 0;
    const int64_t    rest    = step_ns - compute - wait_ns;
    ddp_straggler_t  found;

    if (watch->monitor == NULL || every == 0) {
        return;
    }
    watch->mine.steps++;
    watch->mine.compute_us += (uint64_t)compute / MICROSECOND;
    watch->mine.wait_us += (uint64_t)wait_ns / MICROSECOND;
    watch->mine.comm_us += (uint64_t)(rest > 0 ? rest : 0) / MICROSECOND;
    ddp_monitor_count(watch->monitor, &watch->mine);
    if (ddp_comm_rank(run->comm) != 0 || ranks < 2 || done % every != 0) {
        return;
    }
    ddp_monitor_shares(watch->monitor, watch->now);
    found = ddp_straggler_look(watch->before, watch->now, ranks, watch->step_ms);
    if (found.is_whole) { /* else what comes from other machines is too old: another time */
        write_event(run, done, &found);
        warn(run, done, &found);
        memcpy(watch->before, watch->now, (size_t)ranks * sizeof(*watch->now));
    }
}
