/* One call into each library, so that the order of archives and their dependencies is tried by a real link.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "ddp/comm.h"
#include "io/sampler.h"
#include "kernels/device.h"
#include "nn/schedule.h"

static ddp_status_t use_all(void)
{
    ddp_status_t        status      = DDP_OK;
    ddp_comm_params_t   comm_params = DDP_COMM_PARAMS_INIT;
    ddp_device_params_t params      = DDP_DEVICE_PARAMS_INIT;
    ddp_schedule_t      schedule    = {.kind = DDP_SCHEDULE_COSINE, .lr = 1.0, .total_steps = 10};
    ddp_comm_t         *comm        = NULL;
    ddp_device_t       *device      = NULL;

    comm_params.parent = MPI_COMM_SELF;
    DDP_TRY(ddp_comm_create(&comm_params, &comm));
    DDP_TRY(ddp_device_create(&params, &device));
    ddp_comm_attach(comm, device);
    DDP_TRY(ddp_schedule_check(&schedule));
    DDP_REQUIRE(ddp_comm_size(comm) == 1 && ddp_schedule_lr(&schedule, 0) > 0.0 &&
                    ddp_sampler_index(1, 0, 10, 3) < 10,
                DDP_ERR_STATE, "a library gives a wrong answer");
    printf("instruction set %s\n", ddp_isa_name(ddp_device_isa(device)));
out:
    ddp_device_destroy(&device);
    ddp_comm_destroy(&comm);
    return status;
}

int main(int argc, char **argv)
{
    int          provided = 0;
    ddp_status_t status   = DDP_ERR_MPI;

    if (MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided) == MPI_SUCCESS) {
        status = use_all();
        if (status != DDP_OK) {
            fprintf(stderr, "%s: %s\n", ddp_status_name(status), ddp_error_line());
        }
        MPI_Finalize();
    }
    return status == DDP_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
