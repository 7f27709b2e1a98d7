/* Messages of the data plane: looked at without blocking, and waited for with a deadline. */
#include "base/call.h"
#include "base/clock.h"
#include "ddp/comm_state_internal.h"

ddp_status_t ddp_comm_test_messages(ddp_comm_t *comm, MPI_Request *requests, const int *peers, int n,
                                    ddp_wait_t wait)
{
    ddp_status_t status = DDP_OK;
    int          done   = 0;

    for (int i = 0; i < n; i++) {
        if (requests[i] == MPI_REQUEST_NULL) {
            continue; /* else each look at one that is done costs a look at all of MPI's connections */
        }
        DDP_TRY_MPI(MPI_Test(&requests[i], &done, MPI_STATUS_IGNORE));
        if (!done) {
            wait.rank = peers[i];
            ddp_comm_waiting(comm, wait);
            return DDP_IN_PROGRESS;
        }
    }
out:
    return status;
}

ddp_status_t ddp_comm_wait_messages(ddp_comm_t *comm, MPI_Request *requests, const int *peers, int n,
                                    ddp_wait_t wait)
{
    const int64_t start  = ddp_clock_ns();
    int64_t       waited = 0;
    ddp_status_t  status = DDP_OK;

    while ((status = ddp_comm_test_messages(comm, requests, peers, n, wait)) == DDP_IN_PROGRESS) {
        DDP_TRY(ddp_comm_idle(comm, waited));
        waited = ddp_clock_ns() - start;
    }
    DDP_TRY(status);
    ddp_comm_progressed(comm);
out:
    return status;
}
