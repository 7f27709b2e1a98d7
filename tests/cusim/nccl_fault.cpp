/* Planted failures: CUSIM_NCCL_FAULT=<kind>:<rank>[:<n>], see nccl_world.h. */
#include "tests/cusim/nccl_world.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Whether this is the place: `n` counts collectives from 0. */
static bool is_here(const char *kind, int rank, uint64_t n)
{
    const char        *text     = getenv("CUSIM_NCCL_FAULT");
    char               name[16] = "";
    int                on       = -1;
    unsigned long long at       = 0;

    if (text == NULL || sscanf(text, "%15[a-z]:%d:%llu", name, &on, &at) < 2) {
        return false;
    }
    return strcmp(name, kind) == 0 && on == rank && at == n;
}

bool cusim_nccl_never_joins(int rank)
{
    return is_here("init", rank, 0);
}

ncclResult_t cusim_nccl_plant(ncclComm *comm, cusim_call_t *call)
{
    const uint64_t n = comm->collectives++;

    if (is_here("async", comm->rank, n)) {
        comm->error = ncclRemoteError;
    } else if (is_here("hang", comm->rank, n)) {
        comm->is_stuck = 1;
    } else if (is_here("gone", comm->rank, n)) {
        kill(getpid(), SIGKILL);
    } else if (is_here("count", comm->rank, n) && call != NULL) {
        call->count -= 1;
    } else if (is_here("call", comm->rank, n)) {
        return ncclInternalError;
    }
    return ncclSuccess;
}
