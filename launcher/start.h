/** @file Into MPI and out again: what all commands share that run on several ranks. */
#ifndef DDP_START_H_
#define DDP_START_H_

#include "launcher/run.h"

/** What a command does on every rank. @param [in] early  as ddp_run_join() takes it */
typedef ddp_status_t ddp_body_fn_t(ddp_run_t *run, ddp_status_t early);

/** The configuration that the command line asks for: run.yaml or a checkpoint's, then --set and the like.
 * @param [in,out] config  at its defaults */
ddp_status_t ddp_start_read_config(const ddp_options_t *options, ddp_config_t *config) DDP_NODISCARD;

/**
 * Read the configuration, start MPI, call `body`, say once what failed, end MPI.
 * @param [in] run      zeroed; too large for the stack
 * @param [in] options  borrowed
 * @param [in] early    how reading the options ended, its line recorded
 * @return exit status
 */
int ddp_start(ddp_run_t *run, const ddp_options_t *options, ddp_status_t early, ddp_body_fn_t *body, int argc,
              char **argv);

#endif
