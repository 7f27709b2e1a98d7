/** @file A process that is started, watched and ended, with all that it starts: one at a time. */
#ifndef DDP_CHILD_H_
#define DDP_CHILD_H_

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/export.h"
#include "base/status.h"

/**
 * The environment of a process that starts an MPI program of its own: this process's without what an
 * mpirun, srun or PMIx that started it left there (OMPI_*, PMIX_*, PMI_*), without what says that a job was
 * started again, and with what Open MPI wants to be told by root. OMPI_MCA_* stays unless `is_managed`: then
 * it is mpirun's, not the user's.
 * @param [in] is_alone  the process starts no others: without what Slurm says of tasks and steps too
 * @return NULL-terminated, freed by ddp_child_free_environment(); NULL: no memory
 */
char **ddp_child_environment(bool is_managed, bool is_alone);
/** One more, "NAME=value", copied. @return DDP_ERR_NO_MEMORY: all is as it was */
ddp_status_t ddp_child_environment_add(char ***environment_p, const char *variable) DDP_NODISCARD;
void         ddp_child_free_environment(char **environment);

typedef struct ddp_child {
    char *const *argv; /* argv[0] is found in PATH; NULL-terminated */
    char *const *environment;
    const char  *log;      /* file for stdout and stderr, created; NULL: stdout is this process's */
    int          err;      /* stderr, where there is no log */
    const char  *progress; /* a file that grows as long as all is well; need not exist yet */
    double       timeout_s;
} ddp_child_t;

typedef enum ddp_child_end {
    DDP_CHILD_EXITED,      /* `code` is its exit status */
    DDP_CHILD_KILLED,      /* `code` is the signal */
    DDP_CHILD_STUCK,       /* `progress` did not grow for timeout_s, so it was ended */
    DDP_CHILD_INTERRUPTED, /* this process got signal `code`, which was passed on */
} ddp_child_end_t;

/**
 * Run it to its end. SIGINT, SIGTERM and SIGHUP are passed on, and what does not end then is killed, as is
 * what it leaves behind on this machine: when this returns nothing of it is running. Where this process is
 * killed, it and all of its session are killed too (srun is told to end). Blocking. Thread: the only one of
 * the process, which must have no other children.
 * @return DDP_ERR_SYSTEM: it could not be started
 */
ddp_status_t ddp_child_run(const ddp_child_t *child, ddp_child_end_t *end_p, int *code_p) DDP_NODISCARD;

/**
 * The parts of ddp_child_run(), for who watches in another way: start it, in a session of its own and with
 * nothing to read (`progress` and `timeout_s` are not used), and, when it has ended and was waited for,
 * kill and bury what it left behind on this machine. Signals are the caller's affair; the process has none
 * caught or blocked.
 * @return DDP_ERR_SYSTEM: it could not be started, or not be guarded; nothing of it is running
 */
ddp_status_t ddp_child_start(const ddp_child_t *child, pid_t *pid_p) DDP_NODISCARD;
void         ddp_child_clean_up(void);

/** How many processes run here that `parent` started and whose names (15 characters at most) begin so. */
size_t ddp_child_count(pid_t parent, const char *name);

/** The signal that this process was told to end by, 0: none. */
int ddp_child_interrupted(void);

/** Why a run failed: the last line that this program itself wrote to its log; else the first one that says
 * something. */
void ddp_child_last_line(const char *path, char *text, size_t size);

/** Is there a program of this name in PATH (or at this path)? */
bool ddp_child_is_program(const char *name);

#endif
