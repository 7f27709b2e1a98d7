/* What NCCL says of itself and of a communicator, and its memory. */
#include "tests/cusim/nccl_world.h"

#include "tests/cusim/runtime.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern "C" {

ncclResult_t ncclGetVersion(int *version)
{
    const char *other = getenv("CUSIM_NCCL_VERSION");

    *version = other != NULL ? atoi(other) : NCCL_VERSION_CODE;
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    switch (result) {
    case ncclSuccess:
        return "no error";
    case ncclInvalidArgument:
        return "invalid argument";
    case ncclInvalidUsage:
        return "invalid usage";
    case ncclRemoteError:
        return "remote process exited or there was a network error";
    case ncclInProgress:
        return "NCCL operation in progress";
    default:
        return "an error of NCCL";
    }
}

const char *ncclGetLastError(ncclComm_t comm)
{
    (void)comm;
    return "";
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    static std::atomic<int> count;

    memset(id, 0, sizeof(*id));
    snprintf(id->internal, sizeof(id->internal), "/cusim-%d-%d", (int)getpid(), count++);
    return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int *count)
{
    *count = comm->size;
    return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank)
{
    *rank = comm->rank;
    return ncclSuccess;
}

ncclResult_t ncclMemAlloc(void **address_p, size_t bytes)
{
    return cudaMalloc(address_p, bytes) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclMemFree(void *address)
{
    return cudaFree(address) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void *address, size_t bytes, void **handle)
{
    (void)comm;
    (void)bytes;
    *handle = address;
    return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle)
{
    (void)comm;
    (void)handle;
    return ncclSuccess;
}
}
