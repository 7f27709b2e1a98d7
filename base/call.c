#include "base/call.h"

#include <errno.h>
#include <mpi.h>
#include <string.h>

/* "DDP_TRY_MPI(MPI_Comm_dup(a, b))" reads best as "MPI_Comm_dup failed": the arguments are C, not news to a
 * user. */
static int name_length(const char *call)
{
    return (int)strcspn(call, "(");
}

ddp_status_t ddp_from_mpi(int code, const char *call)
{
    char text[MPI_MAX_ERROR_STRING] = "unknown error";
    int  length                     = 0;
    int  up                         = 0;
    int  down                       = 0;

    if (code == MPI_SUCCESS) {
        return DDP_OK;
    }
    /* outside of MPI_Init .. MPI_Finalize Open MPI aborts the process when asked for a text */
    if (MPI_Initialized(&up) == MPI_SUCCESS && up && MPI_Finalized(&down) == MPI_SUCCESS && !down) {
        (void)MPI_Error_string(code, text, &length); /* keeps "unknown error" */
    }
    return ddp_fail(DDP_ERR_MPI, "%.*s failed: %s", name_length(call), call, text);
}

ddp_status_t ddp_from_errno(long result, const char *call)
{
    if (result >= 0) {
        return DDP_OK;
    }
    return ddp_fail(DDP_ERR_SYSTEM, "%.*s failed: %s", name_length(call), call, ddp_errno_text(errno));
}

ddp_status_t ddp_from_pthread(int code, const char *call)
{
    if (code == 0) {
        return DDP_OK;
    }
    return ddp_fail(DDP_ERR_SYSTEM, "%.*s failed: %s", name_length(call), call, ddp_errno_text(code));
}
