/** @file train.mode dp: what a run does through dp_compat/data_parallel.h. Nothing here is collective. */
#ifndef DDP_LAUNCHER_DATA_PARALLEL_H_
#define DDP_LAUNCHER_DATA_PARALLEL_H_

#include "launcher/run.h"

/** Make run->dp of run->devices, and what the run borrows from it. run->device is the first of them. */
ddp_status_t ddp_run_dp_create(ddp_run_t *run) DDP_NODISCARD;
/** Of the last step. */
void ddp_run_dp_measure(const ddp_run_t *run, const ddp_step_result_t *result, ddp_measure_t *measure_p);
ddp_status_t ddp_run_dp_use(const ddp_run_t *run, const ddp_measure_t *sum, ddp_use_t *use_p) DDP_NODISCARD;
ddp_status_t ddp_run_dp_spans(const ddp_run_t *run, ddp_span_t **spans_p, size_t *n_p) DDP_NODISCARD;
/** Sums of all chunks of the evaluation, into run->eval.mine. */
ddp_status_t ddp_run_dp_eval(ddp_run_t *run) DDP_NODISCARD;

#endif
