/* Collectives in order of a stream, and memory that NCCL knows. */
#include <string.h>

#include "base/error.h"
#include "ddp/nccl_internal.h"
#include "kernels/cuda/device.h"

/* The other ranks of the machine see how far this one is, so that the one that is behind can be named. */
static void count(ddp_nccl_t *nccl)
{
    nccl->operations++;
    ddp_comm_flag_set(nccl->comm, &nccl->done[ddp_comm_local_rank(nccl->comm)], nccl->operations);
}

ddp_status_t ddp_nccl_group_start(ddp_nccl_t *nccl)
{
    const ncclResult_t result = nccl->table->GroupStart();

    nccl->is_grouped = result == ncclSuccess;
    return ddp_nccl_result(nccl, result, "ncclGroupStart");
}

ddp_status_t ddp_nccl_group_end(ddp_nccl_t *nccl)
{
    ncclResult_t result = ncclSuccess;

    if (nccl->is_grouped) { /* else an abort has closed it */
        count(nccl);
        nccl->is_grouped = false;
        result           = nccl->table->GroupEnd();
    }
    return ddp_nccl_result(nccl, result, "ncclGroupEnd");
}

ddp_status_t ddp_nccl_all_reduce(ddp_nccl_t *nccl, ddp_stream_t *stream, void *buffer, size_t count_,
                                 ncclDataType_t type, ncclRedOp_t op)
{
    count(nccl);
    return ddp_nccl_result(
        nccl, nccl->table->AllReduce(buffer, buffer, count_, type, op, nccl->nccl, ddp_cuda_stream(stream)),
        "ncclAllReduce");
}

static size_t bytes_of(ncclDataType_t type)
{
    switch (type) {
    case ncclFloat64:
    case ncclUint64:
        return 8;
    case ncclBfloat16:
        return 2;
    default:
        return 4;
    }
}

/* This rank's part of a buffer of all ranks. */
static void *own_part(const ddp_nccl_t *nccl, void *all, size_t count_, ncclDataType_t type)
{
    return (char *)all + (size_t)nccl->rank * count_ * bytes_of(type);
}

ddp_status_t ddp_nccl_all_gather(ddp_nccl_t *nccl, ddp_stream_t *stream, void *all, size_t count_,
                                 ncclDataType_t type)
{
    count(nccl);
    return ddp_nccl_result(nccl,
                           nccl->table->AllGather(own_part(nccl, all, count_, type), all, count_, type,
                                                  nccl->nccl, ddp_cuda_stream(stream)),
                           "ncclAllGather");
}

ddp_status_t ddp_nccl_reduce_scatter(ddp_nccl_t *nccl, ddp_stream_t *stream, void *all, size_t count_,
                                     ncclDataType_t type)
{
    count(nccl);
    return ddp_nccl_result(nccl,
                           nccl->table->ReduceScatter(all, own_part(nccl, all, count_, type), count_, type,
                                                      ncclSum, nccl->nccl, ddp_cuda_stream(stream)),
                           "ncclReduceScatter");
}

ddp_status_t ddp_nccl_broadcast(ddp_nccl_t *nccl, ddp_stream_t *stream, void *buffer, size_t count_,
                                ncclDataType_t type, int root)
{
    count(nccl);
    return ddp_nccl_result(
        nccl, nccl->table->Broadcast(buffer, buffer, count_, type, root, nccl->nccl, ddp_cuda_stream(stream)),
        "ncclBroadcast");
}

ddp_status_t ddp_nccl_send(ddp_nccl_t *nccl, ddp_stream_t *stream, const float *from, size_t count_, int to)
{
    return ddp_nccl_result(
        nccl, nccl->table->Send(from, count_, ncclFloat32, to, nccl->nccl, ddp_cuda_stream(stream)),
        "ncclSend");
}

ddp_status_t ddp_nccl_receive(ddp_nccl_t *nccl, ddp_stream_t *stream, float *to, size_t count_, int from)
{
    return ddp_nccl_result(
        nccl, nccl->table->Recv(to, count_, ncclFloat32, from, nccl->nccl, ddp_cuda_stream(stream)),
        "ncclRecv");
}

static ddp_status_t check_free(const ddp_nccl_t *nccl, const char *label, size_t bytes)
{
    ddp_status_t status = DDP_OK;
    size_t       left   = 0;
    size_t       total  = 0;

    DDP_TRY(ddp_nccl_cuda(cudaMemGetInfo(&left, &total), "cudaMemGetInfo"));
    DDP_REQUIRE(bytes <= left, DDP_ERR_NO_MEMORY,
                "rank %d: %s need %.1f MB; %.1f of %.1f MB of its GPU are free", nccl->rank, label,
                (double)bytes / 1e6, (double)left / 1e6, (double)total / 1e6);
out:
    return status;
}

/* ncclMemAlloc's, or NULL where the library is too old. */
static ddp_status_t acquire_registered(ddp_nccl_t *nccl, const char *label, ddp_nccl_memory_t *memory)
{
    ddp_status_t status = DDP_OK;
    ncclResult_t result;

    DDP_TRY(ddp_device_charge(nccl->device, label, memory->bytes));
    result = nccl->table->MemAlloc(&memory->memory, memory->bytes);
    if (result != ncclSuccess) {
        ddp_device_discharge(nccl->device, memory->bytes);
        return ddp_fail(DDP_ERR_NO_MEMORY,
                        "rank %d: %s need %.1f MB, which NCCL did not get on its GPU, though they were free: "
                        "%s; another process may use that GPU",
                        nccl->rank, label, (double)memory->bytes / 1e6, nccl->table->GetErrorString(result));
    }
    memory->is_nccls = true;
    if (nccl->table->CommRegister != NULL && nccl->table->CommDeregister != NULL) {
        DDP_TRY(ddp_nccl_result(
            nccl, nccl->table->CommRegister(nccl->nccl, memory->memory, memory->bytes, &memory->handle),
            "ncclCommRegister"));
    }
out:
    return status;
}

ddp_status_t ddp_nccl_acquire(ddp_nccl_t *nccl, ddp_stream_t *stream, const char *label, size_t bytes,
                              void **memory_p)
{
    ddp_status_t           status    = DDP_OK;
    const ddp_allocator_t *allocator = ddp_device_allocator(nccl->device);
    ddp_nccl_memory_t     *memory    = &nccl->memory[nccl->n_memory];

    DDP_REQUIRE(nccl->n_memory < DDP_NCCL_MEMORIES, DDP_ERR_STATE, "nccl: %s: no room to register it", label);
    *memory = (ddp_nccl_memory_t){.bytes = bytes};
    DDP_TRY(check_free(nccl, label, bytes));
    if (nccl->table->MemAlloc != NULL && nccl->table->MemFree != NULL) {
        status = acquire_registered(nccl, label, memory);
        nccl->n_memory += memory->memory != NULL;
        DDP_TRY(status);
        DDP_TRY(ddp_nccl_cuda(cudaMemsetAsync(memory->memory, 0, bytes, ddp_cuda_stream(stream)), label));
    } else {
        DDP_TRY(allocator->acquire(allocator->ctx, label, bytes, &memory->memory));
        nccl->n_memory++;
    }
    *memory_p = memory->memory;
out:
    return status;
}
