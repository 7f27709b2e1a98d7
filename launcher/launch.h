/** @file How this process was started: what mpirun and srun leave in the environment, known before MPI is up.
 */
#ifndef DDP_LAUNCH_H_
#define DDP_LAUNCH_H_

#include <stdbool.h>

#include "base/export.h"
#include "base/status.h"

/** Started by mpirun, srun or the like. */
bool ddp_launch_is_managed(void);
/** The first of the processes started together (or the only one). */
bool ddp_launch_is_first(void);
/**
 * N processes that do not know of each other would train N times.
 * @param [in] size  ranks that MPI joined
 * @return DDP_ERR_CONFIG with the right way to start them
 */
ddp_status_t ddp_launch_check(int size) DDP_NODISCARD;

#endif
