/** @file What a person at the terminal sees of the training loop: a bar there, plain lines elsewhere. */
#ifndef DDP_PROGRESS_H_
#define DDP_PROGRESS_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ddp_progress {
    bool         is_terminal;
    _Atomic bool is_drawn; /* a bar stands on the current line; the monitor's thread takes it away too */
    int64_t      drawn_ns;
} ddp_progress_t;

/** Where training is. */
typedef struct ddp_progress_state {
    uint64_t step, total_steps;
    uint64_t epoch, epochs; /* epoch from 1; epochs 0: not known */
    double   loss, samples_per_s, seconds_left;
    double   tokens_per_s; /* shown instead of samples_per_s; 0: no tokens */
} ddp_progress_state_t;

/** Finds out whether stderr ends at a terminal, also behind mpirun (whose ranks always write to a pipe). */
void ddp_progress_init(ddp_progress_t *progress);
/** Draw the bar, at most ten times a second. Nothing where there is no terminal. */
void ddp_progress_draw(ddp_progress_t *progress, const ddp_progress_state_t *state);
/** Write `text` in the bar's place, at most ten times a second; nothing where there is no terminal. */
void ddp_progress_write(ddp_progress_t *progress, const char *text);
/** Take the bar away before another line is written. */
void ddp_progress_clear(ddp_progress_t *progress);
/** The bar's text without control characters, for ddp_progress_draw(). */
void ddp_progress_text(const ddp_progress_state_t *state, char *text, size_t size);

#endif
