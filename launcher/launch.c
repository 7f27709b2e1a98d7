#include "launcher/launch.h"

#include <stdlib.h>

#include "base/error.h"

static long env_number(const char *name)
{
    const char *text = getenv(name);

    return text != NULL ? strtol(text, NULL, 10) : -1;
}

bool ddp_launch_is_managed(void)
{
    return getenv("OMPI_COMM_WORLD_RANK") != NULL || getenv("PMIX_RANK") != NULL ||
           getenv("PMI_RANK") != NULL;
}

bool ddp_launch_is_first(void)
{
    return env_number("OMPI_COMM_WORLD_RANK") <= 0 && env_number("PMIX_RANK") <= 0 &&
           env_number("PMI_RANK") <= 0;
}

ddp_status_t ddp_launch_check(int size)
{
    const long slurm = env_number("SLURM_STEP_NUM_TASKS") > 0 ? env_number("SLURM_STEP_NUM_TASKS")
                                                              : env_number("SLURM_NTASKS");
    const long ompi  = env_number("OMPI_COMM_WORLD_SIZE");
    const long pmi   = env_number("PMI_SIZE");

    if (size > 1 || ompi == 1) {
        return DDP_OK;
    }
    if (slurm > 1) {
        return ddp_fail(
            DDP_ERR_CONFIG,
            "%ld tasks, but MPI joins 1: start with srun --mpi=pmix, or with mpirun inside the allocation",
            slurm);
    }
    if (ompi > 1 || pmi > 1) {
        return ddp_fail(
            DDP_ERR_CONFIG,
            "%ld processes, but MPI joins 1: start with the mpirun of the Open MPI that ddptrain was built "
            "with",
            ompi > 1 ? ompi : pmi);
    }
    return DDP_OK;
}
