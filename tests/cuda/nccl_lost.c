/* A training run over NCCL in which rank 1 fails: by CUSIM_NCCL_FAULT (tests/cusim/nccl_world.h), or as
 * argv[1] says (late: it does not come to step 3; same: all ranks have one GPU; version: it has an older
 * NCCL). nccl_lost.sh looks at what the ranks say. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "tests/ddp/toy.h"

int main(int argc, char **argv)
{
    toy_params_t      params = TOY_PARAMS_INIT;
    toy_t             toy;
    ddp_step_result_t result;
    ddp_status_t      status = DDP_OK;
    int               level  = 0;
    int               rank   = 0;

    if (argc < 2 || MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level) != MPI_SUCCESS) {
        return 2;
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 1 && strcmp(argv[1], "version") == 0) {
        setenv("CUSIM_NCCL_VERSION", "21903", 1);
    }
    params.timeout_ms        = 3000;
    params.cuda              = 1;
    params.integers          = 1;
    params.one_device        = strcmp(argv[1], "same") == 0;
    params.reducer.backend   = DDP_REDUCER_NCCL;
    params.reducer.reduction = DDP_REDUCTION_FAST;
    status                   = toy_create(&params, &toy);
    for (int s = 0; s < 6 && status == DDP_OK; s++) {
        if (s == 3 && rank == 1 && strcmp(argv[1], "late") == 0) {
            sleep(20); /* alive, but it does not arrive */
        }
        status = toy_step(&toy, 0.01F, 64, NULL, &result);
    }
    status = status == DDP_OK ? ddp_reducer_finish(toy.reducer) : status;
    fprintf(stderr, "rank %d says: %s\n", rank, status == DDP_OK ? "all done" : ddp_error_line());
    if (status != DDP_OK) {
        sleep(1); /* mpirun ends the others as soon as one has ended: let them say what they know */
    }
    toy_destroy(&toy);
    _exit(status == DDP_OK ? 0 : 1);
}
