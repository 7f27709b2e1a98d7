/**
 * @file How this process was started: what mpirun and srun leave in the environment. Read before MPI_Init,
 * which sets the same variables in a process that was started alone.
 */
#ifndef DDP_LAUNCH_H_
#define DDP_LAUNCH_H_

#include <stdbool.h>

#include "base/export.h"
#include "base/status.h"

typedef struct ddp_launch {
    bool is_managed; /* by mpirun, srun or the like */
    bool is_first;   /* the first of the processes started together, or the only one */
    long ranks;      /* of mpirun; -1: not known */
    long tasks;      /* of Slurm; -1: not known */
    bool is_step;    /* inside a step of Slurm, as srun makes one */
} ddp_launch_t;

ddp_launch_t ddp_launch_read(void);

/**
 * N processes that do not know of each other would train N times.
 * @param [in] size  ranks that MPI joined
 * @return DDP_ERR_CONFIG with the right way to start them
 */
ddp_status_t ddp_launch_check(const ddp_launch_t *launch, int size) DDP_NODISCARD;

#endif
