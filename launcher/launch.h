/**
 * @file How this process was started: what mpirun and srun leave in the environment. Read before MPI_Init,
 * which sets the same variables in a process that was started alone.
 */
#ifndef DDP_LAUNCH_H_
#define DDP_LAUNCH_H_

#include <stdbool.h>
#include <sys/types.h>

#include "base/export.h"
#include "base/status.h"

typedef struct ddp_launch {
    bool is_managed; /* by mpirun, srun or the like */
    bool is_first;   /* the first of the processes started together, or the only one */
    long ranks;      /* of mpirun; -1: not known */
    long tasks;      /* of Slurm; -1: not known */
    bool is_step;    /* inside a step of Slurm, as srun makes one */
    bool is_pmix;    /* PMIx joins the processes, which is what Open MPI speaks by itself */
    bool is_pmi;     /* PMI or PMI-2, which Open MPI speaks only where it was built so */
} ddp_launch_t;

ddp_launch_t ddp_launch_read(void);

/** Tasks of srun that MPI cannot join, before MPI_Init says so at length.
 * @return DDP_ERR_CONFIG with the right way to start them */
ddp_status_t ddp_launch_check_early(const ddp_launch_t *launch) DDP_NODISCARD;

/** srun --mpi=pmi2: an MPI_Init that cannot join the tasks ends the process, and says nothing that helps. */
bool ddp_launch_is_doubtful(const ddp_launch_t *launch);

/**
 * N processes that do not know of each other would train N times, and one alone wastes the places of the
 * others.
 * @param [in] size    ranks that MPI joined
 * @param [in] is_one  the work is for one process, which may have the whole allocation
 * @return DDP_ERR_CONFIG with the right way to start them
 */
ddp_status_t ddp_launch_check(const ddp_launch_t *launch, int size, bool is_one) DDP_NODISCARD;

/** Is it a process of Open MPI that starts ranks: mpirun, or its daemon? */
bool ddp_launch_is_launcher(pid_t pid);

/** If this process is a child of one: end it, without waiting for hosts that do not
 * answer. Half a second.
 */
void ddp_launch_end_launcher(void);

/** The same if it is still there after ten seconds, by a process that outlives this one, which is about to
 * leave: mpirun ends its ranks where it reaches them, and is left the time for it. Returns at once. */
void ddp_launch_end_launcher_later(void);

/** Wait until a launcher has read what this process wrote to stderr, which it passes on; three seconds at
 * most. */
void ddp_launch_await_read(void);
/** Wait until the launcher of this process has ended, so many seconds at most. */
void ddp_launch_await_end(int seconds);

#endif
