/* A training run in which rank 1 leaves in step 3, as argv[1] says: exit, kill, stop or late. lost_rank.sh
 * looks at what the others say. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "tests/ddp/toy.h"

static void leave(const char *how)
{
    if (strcmp(how, "exit") == 0) {
        _exit(3);
    } else if (strcmp(how, "kill") == 0) {
        raise(SIGKILL);
    } else if (strcmp(how, "stop") == 0) {
        raise(SIGSTOP);
    } else {
        sleep(60); /* alive, but it does not arrive */
    }
}

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
    params.timeout_ms = 2000;
    status            = toy_create(&params, &toy);
    for (int s = 0; s < 5 && status == DDP_OK; s++) {
        if (s == 3 && rank == 1) {
            leave(argv[1]);
        }
        status = toy_step(&toy, 0.01F, 64, NULL, &result);
    }
    fprintf(stderr, "survivor %d: %s\n", rank, status == DDP_OK ? "all done" : ddp_error_line());
    _exit(status == DDP_OK ? 0 : 1);
}
