#include "launcher/watch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "launcher/run.h"

#define OTHERS_S  5   /* for one rank to end it */
#define MOST_OUT  160 /* of these characters are in a hint; a name is never cut */
#define MOST_PATH 200

/* On the monitor's thread, of the one rank that speaks. */
static void say(void *ctx, const ddp_verdict_t *verdict, const char *text)
{
    ddp_run_t *run = ctx;
    char       hint[DDP_WATCH_HINT_SIZE + 16];

    (void)verdict;
    if (run->spoken != NULL && atomic_exchange(run->spoken, 1) != 0) {
        return;
    }
    ddp_watch_hint(run, hint, sizeof(hint));
    ddp_progress_clear(&run->progress);
    ddp_log(DDP_LOG_ERROR, "%s%s", text, hint);
    ddp_event_fail(run, text);
}

/* mpirun's SIGTERM is no wish to stop: it kills a second later. */
static bool is_sent_away(void *ctx)
{
    const pid_t sender = ddp_stop_sender();

    (void)ctx;
    return sender > 0 && ddp_launch_is_launcher(sender);
}

/* mpirun would wait for a host that is gone. One rank ends it, or its daemon here, but not before it has
 * passed on what was said; if it ends the ranks itself, it is given some time. */
static void end_launcher(void *ctx, bool is_speaker)
{
    if (!is_speaker) {
        ddp_launch_await_end(OTHERS_S);
        return;
    }
    ddp_launch_end_launcher_later();
    ddp_launch_await_read();
    if (!is_sent_away(ctx)) {
        ddp_launch_end_launcher();
    }
}

/* On the monitor's thread: the main thread may hang in anything. */
static void leave(void *ctx, const ddp_verdict_t *verdict, bool is_speaker)
{
    const ddp_run_t *run = ctx;

    if (verdict->kind == DDP_FAULT_SILENT && run->launch.is_managed) {
        end_launcher(ctx, is_speaker);
    }
    ddp_run_leave(ctx, EXIT_FAILURE);
}

ddp_status_t ddp_watch_start(ddp_run_t *run)
{
    ddp_status_t         status = DDP_OK;
    ddp_watch_run_t     *watch  = &run->watch;
    ddp_monitor_params_t params = DDP_MONITOR_PARAMS_INIT;
    const size_t         size   = (size_t)ddp_comm_size(run->comm);

    if (!run->config.ddp.monitor || (size == 1 && !run->launch.is_managed)) {
        return DDP_OK;
    }
    (void)pthread_mutex_init(&watch->lock, NULL); /* does not fail without attributes */
    watch->before  = calloc(size, sizeof(*watch->before));
    watch->now     = calloc(size, sizeof(*watch->now));
    watch->step_ms = calloc(size, sizeof(*watch->step_ms));
    if (watch->before == NULL || watch->now == NULL || watch->step_ms == NULL) {
        status = ddp_fail(DDP_ERR_NO_MEMORY, "no memory to watch %zu ranks", size);
    }
    DDP_TRY(ddp_comm_agree(run->comm, status));
    params.comm         = run->comm;
    params.is_managed   = run->launch.is_managed;
    params.say          = say;
    params.leave        = leave;
    params.is_sent_away = is_sent_away;
    params.ctx          = run;
    params.interfaces   = run->config.ddp.interfaces;
    DDP_TRY(ddp_monitor_create(&params, &watch->monitor));
out:
    return status;
}

void ddp_watch_end(ddp_run_t *run)
{
    ddp_watch_run_t *watch = &run->watch;

    ddp_monitor_destroy(&watch->monitor);
    free(watch->before);
    free(watch->now);
    free(watch->step_ms);
    watch->before  = NULL;
    watch->now     = NULL;
    watch->step_ms = NULL;
}

void ddp_watch_at(ddp_run_t *run, uint64_t step, ddp_stage_t phase)
{
    ddp_monitor_at(run->watch.monitor, step, phase, DDP_NO_BUCKET);
}

void ddp_watch_saved(ddp_run_t *run, const char *path)
{
    ddp_watch_run_t *watch    = &run->watch;
    const char      *out      = run->options->out;
    const bool       is_named = out != NULL && strlen(out) <= MOST_OUT;
    const char      *saved    = strlen(path) <= MOST_PATH ? path : "a checkpoint";

    if (watch->monitor == NULL || !ddp_checkpoints_wanted(run)) {
        return;
    }
    pthread_mutex_lock(&watch->lock);
    snprintf(watch->hint, sizeof(watch->hint), "go on with --resume auto%s%s%s%s%s",
             is_named      ? " --out "
             : out != NULL ? " and the same --out"
                           : "",
             is_named ? out : "", path[0] != '\0' ? " (" : "", saved, path[0] != '\0' ? " is saved)" : "");
    pthread_mutex_unlock(&watch->lock);
}

void ddp_watch_hint(ddp_run_t *run, char *text, size_t size)
{
    ddp_watch_run_t *watch = &run->watch;

    text[0] = '\0';
    if (watch->monitor == NULL) {
        return;
    }
    pthread_mutex_lock(&watch->lock);
    if (watch->hint[0] != '\0') {
        snprintf(text, size, "; %s", watch->hint);
    }
    pthread_mutex_unlock(&watch->lock);
}
