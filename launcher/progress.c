#include "launcher/progress.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "launcher/launch.h"

#define BAR_WIDTH 24
#define REDRAW_NS (100 * DDP_NS_PER_MS)

static void write_all(const char *text)
{
    size_t length = strlen(text);

    while (length > 0) {
        ssize_t n = write(STDERR_FILENO, text, length);

        if (n <= 0) {
            return;
        }
        text += n;
        length -= (size_t)n;
    }
}

/* mpirun gives its ranks a pipe for stderr; where the user looks is mpirun's own stderr. */
static bool parent_has_terminal(void)
{
    char    path[64];
    char    target[64];
    ssize_t length;

    if (!ddp_launch_is_launcher(getppid())) {
        return false;
    }
    snprintf(path, sizeof(path), "/proc/%d/fd/2", (int)getppid());
    length = readlink(path, target, sizeof(target) - 1);
    if (length < 0) {
        return false;
    }
    target[length] = '\0';
    return strncmp(target, "/dev/pts/", 9) == 0 || strncmp(target, "/dev/tty", 8) == 0;
}

void ddp_progress_init(ddp_progress_t *progress)
{
    memset(progress, 0, sizeof(*progress));
    progress->is_terminal = isatty(STDERR_FILENO) != 0 || parent_has_terminal();
}

void ddp_progress_text(const ddp_progress_state_t *state, char *text, size_t size)
{
    char           bar[BAR_WIDTH + 1];
    char           epoch[64];
    const uint64_t left      = state->seconds_left > 0 ? (uint64_t)(state->seconds_left + 0.5) : 0;
    const bool     is_tokens = state->tokens_per_s > 0;
    const size_t   done =
        state->total_steps > 0 ? (size_t)((double)state->step * BAR_WIDTH / (double)state->total_steps) : 0;

    for (size_t i = 0; i < BAR_WIDTH; i++) {
        bar[i] = i < done ? '#' : '.';
    }
    bar[BAR_WIDTH] = '\0';
    if (state->epochs > 0) {
        snprintf(epoch, sizeof(epoch), "%" PRIu64 "/%" PRIu64, state->epoch, state->epochs);
    } else {
        snprintf(epoch, sizeof(epoch), "%" PRIu64, state->epoch);
    }
    snprintf(text, size, "epoch %s [%s] %3.0f%%  loss %.4f  %.0f %s/s  %" PRIu64 ":%02" PRIu64 " left", epoch,
             bar, state->total_steps > 0 ? 100.0 * (double)state->step / (double)state->total_steps : 0.0,
             state->loss, is_tokens ? state->tokens_per_s : state->samples_per_s,
             is_tokens ? "tokens" : "samples", left / 60, left % 60);
}

static bool is_due(const ddp_progress_t *progress)
{
    return progress->is_terminal && !(progress->is_drawn && ddp_clock_ns() - progress->drawn_ns < REDRAW_NS);
}

void ddp_progress_write(ddp_progress_t *progress, const char *text)
{
    char line[176];

    if (!is_due(progress)) {
        return;
    }
    snprintf(line, sizeof(line), "\r%s\033[K", text); /* and erase what a longer line left */
    write_all(line);
    progress->is_drawn = true;
    progress->drawn_ns = ddp_clock_ns();
}

void ddp_progress_draw(ddp_progress_t *progress, const ddp_progress_state_t *state)
{
    char text[160];

    if (is_due(progress)) {
        ddp_progress_text(state, text, sizeof(text));
        ddp_progress_write(progress, text);
    }
}

void ddp_progress_clear(ddp_progress_t *progress)
{
    if (atomic_exchange(&progress->is_drawn, false)) {
        write_all("\r\033[K");
    }
}
