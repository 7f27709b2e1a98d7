/**
 * @file Ranks of this host as the kernel shows them, for the time in which MPI has not joined them yet:
 * children of the same launcher.
 */
#ifndef DDP_SIBLINGS_H_
#define DDP_SIBLINGS_H_

#include <stdbool.h>
#include <sys/types.h>

typedef struct ddp_siblings {
    long  stopped_rank; /* the lowest that is stopped (SIGSTOP, a debugger); -1: none */
    pid_t stopped_pid;
    bool  is_lowest; /* of those that are not stopped, this process is the lowest */
} ddp_siblings_t;

/**
 * Before or in MPI_Init; any thread. Only Linux's /proc is asked. Ranks that are started by a shell of their
 * own, or of another user, are not seen; nor is anything without Open MPI's launcher or Slurm's PMIx, which
 * say in the environment who has which rank.
 */
ddp_siblings_t ddp_siblings_look(void);

#endif
