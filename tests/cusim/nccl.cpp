/* Collectives are operations of a stream that poll the other ranks' mailboxes, piece by piece; a rank that
 * never comes leaves the others waiting, as a real one inside a machine does. */
#include "tests/cusim/nccl_world.h"

#include "tests/cusim/runtime.h"
#include "tests/cusim/sanitizer.h"
#include <fcntl.h>
#include <new>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

enum { JOIN_STEP_US = 100, JOIN_STEPS = 100000 };

/* An operation on its way. */
typedef struct progress {
    ncclComm    *comm;
    cusim_call_t call;
    const char  *in;
    char        *out;
    size_t       offset; /* bytes done */
    bool         is_posted;
} progress_t;

static thread_local int                                 group_depth;
static thread_local std::vector<std::function<void()>> *group_calls;

static bool is_all(const ncclComm *comm, std::atomic<uint64_t> cusim_rank_t::*what, uint64_t least)
{
    for (int i = 0; i < comm->size; i++) {
        if ((comm->world->ranks[i].*what).load() < least) {
            return false;
        }
    }
    return true;
}

static bool is_same(const cusim_call_t &a, const cusim_call_t &b)
{
    return a.number == b.number && a.kind == b.kind && a.type == b.type && a.reduction == b.reduction &&
           a.root == b.root && a.count == b.count;
}

/* The first rank whose call is another one, or -1. */
static int find_other(const ncclComm *comm, const cusim_call_t &call)
{
    for (int i = 0; i < comm->size; i++) {
        const cusim_call_t &other = comm->world->ranks[i].call;
        if (!is_same(other, call)) {
            fprintf(stderr,
                    "cusim-nccl: rank %d operation %lu {kind %d type %d red %d root %d count %zu} but rank "
                    "%d operation %lu "
                    "{kind %d type %d red %d root %d count %zu}\n",
                    comm->rank, (unsigned long)call.number, call.kind, call.type, call.reduction, call.root,
                    call.count, i, (unsigned long)other.number, other.kind, other.type, other.reduction,
                    other.root, other.count);
            return i;
        }
    }
    return -1;
}

static void post(progress_t *p, size_t bytes)
{
    ncclComm     *comm = p->comm;
    cusim_rank_t *self = &comm->world->ranks[comm->rank];

    if (p->call.kind != CUSIM_BROADCAST || comm->rank == p->call.root) {
        cusim_touch(p->in + p->offset, bytes, false);
        memcpy(comm->world->pieces + (size_t)comm->rank * CUSIM_PIECE_BYTES, p->in + p->offset, bytes);
    }
    self->call = p->call;
    self->posted.store(comm->pieces + 1);
    p->is_posted = true;
}

static void take(progress_t *p, size_t bytes)
{
    ncclComm *comm  = p->comm;
    size_t    size  = cusim_nccl_bytes(p->call.type);
    size_t    total = p->call.count * size;
    char     *in[CUSIM_MAX_RANKS];

    for (int i = 0; i < comm->size; i++) {
        in[i] = comm->world->pieces + (size_t)i * CUSIM_PIECE_BYTES;
    }
    switch (p->call.kind) {
    case CUSIM_ALL_REDUCE:
        cusim_touch(p->out + p->offset, bytes, true);
        cusim_nccl_reduce(p->call.type, p->call.reduction, p->out + p->offset, in, comm->size,
                          p->offset / size, bytes / size, p->call.count);
        break;
    case CUSIM_BROADCAST:
        cusim_touch(p->out + p->offset, bytes, true);
        memcpy(p->out + p->offset, in[p->call.root], bytes);
        break;
    default:
        for (int i = 0; i < comm->size; i++) {
            cusim_touch(p->out + (size_t)i * total + p->offset, bytes, true);
            memcpy(p->out + (size_t)i * total + p->offset, in[i], bytes);
        }
        break;
    }
}

static int poll(progress_t *p)
{
    ncclComm *comm  = p->comm;
    size_t    total = p->call.count * cusim_nccl_bytes(p->call.type);
    size_t    bytes = total - p->offset < CUSIM_PIECE_BYTES ? total - p->offset : (size_t)CUSIM_PIECE_BYTES;

    if (comm->is_aborted != 0 || comm->error != 0) { /* operations of a dead communicator end at once */
        return 1;
    }
    if (!p->is_posted) {
        if (!is_all(comm, &cusim_rank_t::done, comm->pieces)) {
            return 0;
        }
        post(p, bytes);
    }
    if (!is_all(comm, &cusim_rank_t::posted, comm->pieces + 1)) {
        return 0;
    }
    if (find_other(comm, p->call) >= 0) {
        comm->error = ncclInvalidUsage;
        return -(int)cudaErrorUnknown;
    }
    take(p, bytes);
    comm->pieces++;
    comm->world->ranks[comm->rank].done.store(comm->pieces);
    p->offset += bytes;
    p->is_posted = false;
    return p->offset >= total ? 1 : 0;
}

static ncclResult_t submit(const char *name, cusim_call_t call, const void *in, void *out, ncclComm *comm,
                           cudaStream_t stream)
{
    std::function<void()> later;

    if (comm == NULL || in == NULL || out == NULL) {
        return ncclInvalidArgument;
    }
    if (comm->error != 0) {
        return (ncclResult_t)comm->error.load();
    }
    if (cusim_memory_kind(in) != CUSIM_DEVICE_MEMORY || cusim_memory_kind(out) != CUSIM_DEVICE_MEMORY) {
        fprintf(stderr, "cusim-nccl: %s on a host pointer\n", name);
        return ncclInvalidArgument;
    }
    call.number = comm->calls++;
    later       = [=] {
        progress_t p = {comm, call, static_cast<const char *>(in), static_cast<char *>(out), 0, false};
        cusim_enqueue(stream, name, [p]() mutable { return poll(&p); });
    };
    if (group_depth > 0) {
        group_calls = group_calls != NULL ? group_calls : new std::vector<std::function<void()>>;
        group_calls->push_back(later);
    } else {
        later();
    }
    return ncclSuccess;
}

extern "C" {

ncclResult_t ncclGetVersion(int *version)
{
    *version = NCCL_VERSION_CODE;
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

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm_p, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    size_t    bytes = sizeof(cusim_world_t) + (size_t)size * CUSIM_PIECE_BYTES;
    ncclComm *comm;
    void     *memory;
    int       fd;

    (void)config;
    cusim_start();
    if (size > CUSIM_MAX_RANKS || rank < 0 || rank >= size) {
        return ncclInvalidArgument;
    }
    fd = shm_open(id.internal, O_CREAT | O_RDWR, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0) {
        return ncclSystemError;
    }
    memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (memory == MAP_FAILED) {
        return ncclSystemError;
    }
    comm        = new ncclComm();
    comm->world = static_cast<cusim_world_t *>(memory);
    comm->rank  = rank;
    comm->size  = size;
    comm->world->joined++;
    for (int i = 0; comm->world->joined < size; i++) {
        usleep(JOIN_STEP_US);
        if (i >= JOIN_STEPS) {
            fprintf(stderr, "cusim-nccl: rank %d: only %d of %d ranks joined\n", rank,
                    comm->world->joined.load(), size);
            return ncclSystemError;
        }
    }
    shm_unlink(id.internal);
    *comm_p = comm;
    return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm_p, int size, ncclUniqueId id, int rank)
{
    return ncclCommInitRankConfig(comm_p, size, id, rank, NULL);
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    return comm != NULL ? ncclSuccess : ncclInvalidArgument;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    if (comm == NULL) {
        return ncclInvalidArgument;
    }
    munmap(comm->world, sizeof(cusim_world_t) + (size_t)comm->size * CUSIM_PIECE_BYTES);
    delete comm;
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    comm->is_aborted = 1;
    cudaDeviceSynchronize();
    return ncclCommDestroy(comm);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
    *error = (ncclResult_t)comm->error.load();
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

ncclResult_t ncclGroupStart(void)
{
    group_depth++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    std::vector<std::function<void()>> calls;

    group_depth--;
    if (group_depth == 0 && group_calls != NULL) {
        calls.swap(*group_calls);
        for (const std::function<void()> &call : calls) {
            call();
        }
    }
    return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void *in, void *out, size_t count, ncclDataType_t type,
                           ncclRedOp_t reduction, ncclComm_t comm, cudaStream_t stream)
{
    return submit("allreduce", {0, CUSIM_ALL_REDUCE, type, reduction, 0, count}, in, out, comm, stream);
}

ncclResult_t ncclBroadcast(const void *in, void *out, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream)
{
    return submit("broadcast", {0, CUSIM_BROADCAST, type, 0, root, count}, in, out, comm, stream);
}

ncclResult_t ncclAllGather(const void *in, void *out, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream)
{
    return submit("allgather", {0, CUSIM_ALL_GATHER, type, 0, 0, count}, in, out, comm, stream);
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
