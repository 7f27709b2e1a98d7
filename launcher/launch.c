#include "launcher/launch.h"

#include <stdlib.h>

#include "base/error.h"

/* Slurm's own steps (batch, interactive ...) have numbers from here on. */
#define SLURM_OWN_STEPS 0xfffffff0L

/* @return the first of two variables that holds a number, -1 if none does */
static long env_number(const char *name, const char *other)
{
    const char *text = getenv(name);

    if (text == NULL) {
        text = getenv(other);
    }
    return text != NULL ? strtol(text, NULL, 10) : -1;
}

ddp_launch_t ddp_launch_read(void)
{
    const long         rank   = env_number("OMPI_COMM_WORLD_RANK", "PMIX_RANK");
    const long         other  = env_number("PMI_RANK", "PMI_RANK");
    const long         step   = env_number("SLURM_STEP_ID", "SLURM_STEPID");
    const ddp_launch_t launch = {.is_managed = rank >= 0 || other >= 0,
                                 .is_first   = rank <= 0 && other <= 0,
                                 .ranks      = env_number("OMPI_COMM_WORLD_SIZE", "PMI_SIZE"),
                                 .tasks      = env_number("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"),
                                 .is_step    = step >= 0 && step < SLURM_OWN_STEPS};

    return launch;
}

ddp_status_t ddp_launch_check(const ddp_launch_t *launch, int size)
{
    if (size > 1 || launch->ranks == 1) {
        return DDP_OK;
    }
    if (launch->tasks > 1) {
        return ddp_fail(
            DDP_ERR_CONFIG,
            "%ld tasks, but MPI joins 1: start with srun --mpi=pmix, or with mpirun inside the allocation",
            launch->tasks);
    }
    if (launch->ranks > 1) {
        return ddp_fail(
            DDP_ERR_CONFIG,
            "%ld processes, but MPI joins 1: start with the mpirun of the Open MPI that ddptrain was "
            "built with",
            launch->ranks);
    }
    return DDP_OK;
}
