/* Waits for NCCL: its asynchronous errors, peers that are behind or gone, and how all ranks end together. */
#include <stdio.h>
#include <string.h>

#include "base/call.h"
#include "base/clock.h"
#include "base/convert.h"
#include "base/error.h"
#include "base/log.h"
#include "ddp/nccl_internal.h"

#define CHECK_NS DDP_NS_PER_MS

/* The others wait for a collective that will not come. What MPI still has to send stays: nobody frees it. */
static void tell(ddp_nccl_t *nccl, const char *line)
{
    MPI_Comm mpi = ddp_comm_data_mpi(nccl->comm);

    (void)snprintf(nccl->told, DDP_ERROR_LINE_SIZE, "%s", line);
    for (int r = 0; r < nccl->size; r++) {
        if (r != nccl->rank && MPI_Isend(nccl->told, DDP_ERROR_LINE_SIZE, MPI_CHAR, r, DDP_NCCL_TAG, mpi,
                                         &nccl->telling[r]) != MPI_SUCCESS) {
            ddp_log(DDP_LOG_WARN, "nccl: rank %d could not be told of the error", r);
        }
    }
}

/* A group that stays open would take in what is called afterwards, the abort too. */
void ddp_nccl_abort(ddp_nccl_t *nccl)
{
    if (nccl->is_grouped) {
        nccl->is_grouped = false;
        (void)nccl->table->GroupEnd();
    }
    if (nccl->nccl != NULL) {
        (void)nccl->table->CommAbort(nccl->nccl);
        nccl->nccl = NULL;
    }
}

static ddp_status_t abort_now(ddp_nccl_t *nccl, ddp_status_t status)
{
    char line[DDP_ERROR_LINE_SIZE];

    (void)snprintf(line, sizeof(line), "%s", ddp_error_line());
    nccl->failed = status;
    ddp_nccl_abort(nccl);
    return ddp_fail(status, "%s", line);
}

static ddp_status_t describe(ddp_nccl_t *nccl, ncclResult_t result, const char *what)
{
    const char *last = nccl->nccl != NULL ? nccl->table->GetLastError(nccl->nccl) : "";
    const char *text = nccl->table->GetErrorString(result);
    const char *hint = last != NULL ? ddp_nccl_hint(last) : NULL;

    hint = hint != NULL ? hint : ddp_nccl_hint(text);
    return ddp_fail(DDP_ERR_DEVICE, "nccl: %.120s: %.80s%s%.160s%s%s", what, text,
                    last != NULL && last[0] != '\0' ? ": " : "", last != NULL ? last : "",
                    hint != NULL ? "; " : "", hint != NULL ? hint : "");
}

/* An operation of NCCL that fails leaves an error of the device too, which says less. */
static ddp_status_t prefer_own(ddp_nccl_t *nccl, ddp_status_t status)
{
    ncclResult_t result = ncclSuccess;

    if (status != DDP_ERR_DEVICE || nccl->nccl == NULL ||
        nccl->table->CommGetAsyncError(nccl->nccl, &result) != ncclSuccess || result == ncclSuccess ||
        result == ncclInProgress) {
        return status;
    }
    return describe(nccl, result, "in the background");
}

ddp_status_t ddp_nccl_fail(ddp_nccl_t *nccl, ddp_status_t status)
{
    if (nccl->failed == DDP_OK) {
        status = prefer_own(nccl, status);
        tell(nccl, ddp_error_line());
        return abort_now(nccl, status);
    }
    return status;
}

/* What another rank says; its line is given on with its name. */
static ddp_status_t listen(ddp_nccl_t *nccl)
{
    ddp_status_t status                    = DDP_OK;
    MPI_Comm     mpi                       = ddp_comm_data_mpi(nccl->comm);
    char         line[DDP_ERROR_LINE_SIZE] = "";
    int          is_there                  = 0;
    MPI_Status   from;

    if (nccl->size == 1) {
        return DDP_OK;
    }
    DDP_TRY_MPI(MPI_Iprobe(MPI_ANY_SOURCE, DDP_NCCL_TAG, mpi, &is_there, &from));
    if (!is_there) {
        return DDP_OK;
    }
    DDP_TRY_MPI(
        MPI_Recv(line, sizeof(line), MPI_CHAR, from.MPI_SOURCE, DDP_NCCL_TAG, mpi, MPI_STATUS_IGNORE));
    line[sizeof(line) - 1] = '\0';
    status                 = ddp_fail(DDP_ERR_REMOTE, "rank %d on %s: %s", from.MPI_SOURCE,
                                      ddp_comm_host(nccl->comm, from.MPI_SOURCE), line);
    status                 = abort_now(nccl, status);
out:
    return status;
}

/* NCCL's own errors, at most every millisecond, and what others say. */
static ddp_status_t check(ddp_nccl_t *nccl)
{
    ddp_status_t  status = DDP_OK;
    const int64_t now    = ddp_clock_ns();
    ncclResult_t  result = ncclSuccess;

    if (nccl->failed != DDP_OK || now - nccl->checked_ns < CHECK_NS) {
        return DDP_OK;
    }
    nccl->checked_ns = now;
    DDP_TRY(listen(nccl));
    if (nccl->nccl != NULL) {
        const ncclResult_t asked = nccl->table->CommGetAsyncError(nccl->nccl, &result);

        result = asked != ncclSuccess ? asked : result;
    }
    if (result != ncclSuccess && result != ncclInProgress) {
        status = ddp_nccl_fail(nccl, describe(nccl, result, "in the background"));
    }
out:
    return status;
}

void ddp_nccl_waiting(ddp_nccl_t *nccl, const char *what, uint64_t step, size_t bucket)
{
    nccl->wait = (ddp_wait_t){DDP_WAIT_ALL, what, step, bucket};
}

/* A rank of this machine that has begun fewer collectives than this one: it is the one waited for. */
static int find_behind(const ddp_nccl_t *nccl)
{
    const int first  = nccl->rank - ddp_comm_local_rank(nccl->comm);
    uint64_t  least  = nccl->operations;
    int       behind = DDP_WAIT_ALL;

    for (int local = 0; nccl->done != NULL && local < ddp_comm_local_size(nccl->comm); local++) {
        const uint64_t done = atomic_load_explicit(&nccl->done[local].value, memory_order_acquire);

        if (done < least) {
            least  = done;
            behind = first + local;
        }
    }
    return behind;
}

ddp_status_t ddp_nccl_idle(void *ctx, int64_t waited_ns)
{
    ddp_status_t status = DDP_OK;
    ddp_nccl_t  *nccl   = ctx;

    DDP_TRY(check(nccl));
    nccl->wait.rank = find_behind(nccl);
    ddp_comm_waiting(nccl->comm, nccl->wait);
    status = ddp_comm_idle(nccl->comm, waited_ns);
    if (status != DDP_OK) {
        const char *hint = status == DDP_ERR_TIMEOUT ? ddp_nccl_hint(ddp_error_line()) : NULL;
        char        line[DDP_ERROR_LINE_SIZE];

        (void)snprintf(line, sizeof(line), "%s", ddp_error_line());
        status = hint != NULL ? ddp_fail(status, "%s; %s", line, hint) : status;
        status = ddp_nccl_fail(nccl, status);
    }
out:
    return status;
}

ddp_status_t ddp_nccl_result(ddp_nccl_t *nccl, ncclResult_t result, const char *what)
{
    ddp_status_t  status = DDP_OK;
    const int64_t start  = ddp_clock_ns();

    DDP_REQUIRE(nccl->failed == DDP_OK, nccl->failed, "nccl: %s after an error", what);
    while (result == ncclInProgress && nccl->nccl != NULL) {
        const ncclResult_t asked = nccl->table->CommGetAsyncError(nccl->nccl, &result);

        result = asked != ncclSuccess ? asked : result;
        if (result == ncclInProgress) {
            DDP_TRY(ddp_nccl_idle(nccl, ddp_clock_ns() - start));
        }
    }
    if (result != ncclSuccess) {
        status = ddp_nccl_fail(nccl, describe(nccl, result, what));
    }
out:
    return status;
}
