/** @file Stopping early: signals and time limits, agreed by all ranks at one step. */
#ifndef DDP_STOP_H_
#define DDP_STOP_H_

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct ddp_run;

/** Exit status of a run that was stopped after its state was saved: start it again (EX_TEMPFAIL). */
#define DDP_EXIT_STOPPED 75

/** State of ddp_run_t; zeroed at the start. */
typedef struct ddp_stop {
    _Atomic uint64_t *at;          /* in shared memory of the machine: stop after so many steps; 0: do not */
    int64_t           deadline_ns; /* rank 0's clock; 0: none */
    bool              is_stopped;  /* the run has ended early, and its state is saved */
} ddp_stop_t;

/**
 * From now on SIGUSR1, SIGUSR2 and SIGTERM ask for a stop instead of ending the process; a second SIGTERM,
 * one second later or more, ends it at once.
 */
void ddp_stop_catch_signals(void);
/** Shared memory, and the time limit: --time-limit, or the end of the Slurm job. Collective. */
ddp_status_t ddp_stop_create(struct ddp_run *run) DDP_NODISCARD;
/**
 * Does the run end after this step? All ranks get the same answer. Collective where there are several
 * machines.
 * @param [in] done  steps done, the same on all ranks
 */
ddp_status_t ddp_stop_check(struct ddp_run *run, uint64_t done, bool *stop_p) DDP_NODISCARD;
/** Seconds of "90", "30m", "2h", "1:30:00". @return DDP_ERR_CONFIG */
ddp_status_t ddp_stop_parse_limit(const char *text, double *seconds_p) DDP_NODISCARD;

#endif
