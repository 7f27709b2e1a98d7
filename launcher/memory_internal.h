/** @file The part of the memory plan that is about the devices of train.mode dp. Private to
 * launcher/memory*.c. */
#ifndef DDP_LAUNCHER_MEMORY_INTERNAL_H_
#define DDP_LAUNCHER_MEMORY_INTERNAL_H_

#include "launcher/run.h"

/**
 * A replica's micro-batch of `rows` samples and its chunk of evaluation, on tapes of a dry device; fills
 * `output` and `loss_tape` of `memory`.
 * @param [in] numbers  memory of the dry device, as much as anything needs
 */
ddp_status_t ddp_memory_dry_replica(const ddp_run_t *run, ddp_model_t *model, ddp_tape_t *tape,
                                    ddp_tape_t *loss_tape, const void *numbers, size_t rows,
                                    ddp_run_memory_t *memory) DDP_NODISCARD;
/** What each device needs, when the rest of `memory` is known; `devices` is their sum. */
void ddp_memory_plan_devices(const ddp_run_t *run, size_t rows, ddp_run_memory_t *memory);
/** With ddp.device cuda and a rank for each GPU: fill `gpu`, and take out of `shared` and `own` what lies
 * there. When the rest of `memory` is known. */
void ddp_memory_plan_gpu(const ddp_run_t *run, const ddp_reducer_plan_t *plan, ddp_run_memory_t *memory);
/** This rank's GPU has room. @param [in] changes  what would make it fit, or "" */
ddp_status_t ddp_memory_check_gpu(const ddp_run_t *run, const char *changes) DDP_NODISCARD;
bool         ddp_memory_fits_gpu(const ddp_run_t *run, const ddp_run_memory_t *memory);
void         ddp_memory_print_gpu(const ddp_run_t *run);
/** The table of --dry-run. */
void ddp_memory_print_devices(const ddp_run_t *run);

#endif
