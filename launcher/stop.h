/** @file Stopping early: signals and time limits, agreed by all ranks at one step. */
#ifndef DDP_STOP_H_
#define DDP_STOP_H_

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/status.h"

struct ddp_run;

/** Exit status of a run that was stopped after its state was saved: start it again (EX_TEMPFAIL). */
#define DDP_EXIT_STOPPED 75

/** What asks for a stop, as ddp_step_t.request: of several the largest is told. */
enum { DDP_STOP_TIME = 1, DDP_STOP_USR1, DDP_STOP_USR2, DDP_STOP_TERM };

/** State of ddp_run_t; zeroed at the start. */
typedef struct ddp_stop {
    int64_t deadline_ns; /* rank 0's clock; 0: none */
    bool    is_stopped;  /* the run has ended early, and its state is saved */
} ddp_stop_t;

/**
 * From now on SIGUSR1, SIGUSR2 and SIGTERM ask for a stop instead of ending the process; a second SIGTERM,
 * one second later or more, ends it at once.
 */
void ddp_stop_catch_signals(void);
/** The process that sent the last SIGTERM; 0: there was none, or it is not known. Any thread. */
pid_t ddp_stop_sender(void);
/** Rank 0: from now on the limit of time is looked at: --time-limit, from the start of MPI on, or the end of
 * the Slurm job as it was known when the process started. Local. */
void ddp_stop_set_limit(struct ddp_run *run);
/**
 * What this rank asks for in its next step: ddp_step_t.request. It travels with the sums of the step, so all
 * ranks learn the largest of them from ddp_step_result_t.request, at the same step and without another
 * message. 0: nothing. Local, never waits.
 */
uint32_t ddp_stop_request(const struct ddp_run *run);
/** "SIGUSR1", "time limit"; of any value. */
const char *ddp_stop_reason(uint32_t request);
/** Seconds of "90", "30m", "2h", "1:30:00". @param [in] option  for the line. @return DDP_ERR_CONFIG */
ddp_status_t ddp_stop_parse_time(const char *option, const char *text, double *seconds_p) DDP_NODISCARD;

#endif
