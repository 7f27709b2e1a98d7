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

/* What is called between ncclGroupStart() and ncclGroupEnd(). */
typedef struct group {
    ncclComm                          *comm;
    cudaStream_t                       stream; /* of the messages */
    std::vector<std::function<void()>> calls;
    std::vector<cusim_message_t>       messages;
} group_t;

static thread_local int      group_depth;
static thread_local group_t *group;

/* The communicator counts what is on streams: it does not end before that. */
static void enqueue(ncclComm *comm, cudaStream_t stream, const char *name, cusim_poll_t poll)
{
    comm->running++;
    cusim_enqueue(stream, name, [=]() mutable {
        const int result = poll();

        comm->running -= result != 0;
        return result;
    });
}

/* To the streams now, or when the host has asked often enough. */
static ncclResult_t start(ncclComm *comm, std::vector<std::function<void()>> &&calls)
{
    if (!comm->blocks && ++comm->submissions % 3 == 0) {
        comm->pending = std::move(calls);
        comm->polls   = 2;
        return ncclInProgress;
    }
    for (const std::function<void()> &call : calls) {
        call();
    }
    return ncclSuccess;
}

static ncclResult_t give(ncclComm *comm, std::function<void()> call)
{
    if (group_depth == 0) {
        return start(comm, {call});
    }
    group       = group != NULL ? group : new group_t();
    group->comm = comm;
    group->calls.push_back(call);
    return ncclSuccess;
}

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

/* Of a piece of all parts what lies in this rank's own. */
static void take_part(progress_t *p, char *const *in, size_t bytes)
{
    const size_t size  = cusim_nccl_bytes(p->call.type);
    const size_t total = p->call.count * size / (size_t)p->comm->size;
    const size_t first = (size_t)p->comm->rank * total;
    const size_t begin = p->offset > first ? p->offset : first;
    const size_t end   = p->offset + bytes < first + total ? p->offset + bytes : first + total;
    char        *part[CUSIM_MAX_RANKS];

    if (begin >= end) {
        return;
    }
    for (int i = 0; i < p->comm->size; i++) {
        part[i] = in[i] + (begin - p->offset);
    }
    cusim_touch(p->out + (begin - first), end - begin, true);
    cusim_nccl_reduce(p->call.type, p->call.reduction, p->out + (begin - first), part, p->comm->size,
                      begin / size, (end - begin) / size, p->call.count);
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
    case CUSIM_REDUCE_SCATTER:
        take_part(p, in, bytes);
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
    if (comm->is_stuck != 0) {
        return 0;
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
    ncclResult_t planted;

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
    if (!comm->pending.empty() || comm->is_joining) {
        fprintf(stderr, "cusim-nccl: %s while the call before it is in progress\n", name);
        return ncclInvalidUsage;
    }
    planted = cusim_nccl_plant(comm, &call);
    if (planted != ncclSuccess) {
        return planted;
    }
    call.number = comm->calls++;
    return give(comm, [=] {
        progress_t p = {comm, call, static_cast<const char *>(in), static_cast<char *>(out), 0, false};
        enqueue(comm, stream, name, [p]() mutable { return poll(&p); });
    });
}

static ncclResult_t send_or_receive(bool is_send, const void *memory, size_t count, ncclDataType_t type,
                                    int peer, ncclComm *comm, cudaStream_t stream)
{
    ncclResult_t planted;

    if (comm == NULL || memory == NULL || peer < 0 || peer >= comm->size || peer == comm->rank) {
        return ncclInvalidArgument;
    }
    if (cusim_memory_kind(memory) != CUSIM_DEVICE_MEMORY) {
        fprintf(stderr, "cusim-nccl: send or receive on a host pointer\n");
        return ncclInvalidArgument;
    }
    if (group_depth == 0) {
        fprintf(stderr, "cusim-nccl: send or receive outside of a group would wait for ever\n");
        return ncclInvalidUsage;
    }
    if (group == NULL) {
        group = new group_t();
    }
    planted = cusim_nccl_plant(comm, NULL);
    if (planted != ncclSuccess) {
        return planted;
    }
    group->comm   = comm;
    group->stream = stream;
    group->messages.push_back(
        {is_send, peer, static_cast<char *>(const_cast<void *>(memory)), count * cusim_nccl_bytes(type), 0});
    return comm->error != 0 ? (ncclResult_t)comm->error.load() : ncclSuccess;
}

extern "C" {

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm_p, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    size_t    bytes = cusim_nccl_world_bytes(size);
    ncclComm *comm;
    void     *memory;
    int       fd;

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
    comm         = new ncclComm();
    comm->world  = static_cast<cusim_world_t *>(memory);
    comm->rank   = rank;
    comm->size   = size;
    comm->blocks = config == NULL || config->blocking != 0;
    memcpy(comm->name, id.internal, sizeof(comm->name));
    if (!cusim_nccl_never_joins(rank)) {
        comm->world->joined++;
    }
    *comm_p          = comm;
    comm->is_joining = true;
    if (!comm->blocks) {
        return ncclInProgress;
    }
    for (int i = 0; comm->world->joined < size; i++) {
        usleep(JOIN_STEP_US);
        if (i >= JOIN_STEPS) {
            fprintf(stderr, "cusim-nccl: rank %d: only %d of %d ranks joined\n", rank,
                    comm->world->joined.load(), size);
            return ncclSystemError;
        }
    }
    comm->is_joining = false;
    shm_unlink(id.internal);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm_p, int size, ncclUniqueId id, int rank)
{
    return ncclCommInitRankConfig(comm_p, size, id, rank, NULL);
}

/* All that was called is done, here and there. */
static bool has_left(ncclComm *comm)
{
    if (comm->is_leaving && comm->running == 0) {
        comm->is_leaving = false;
        comm->has_left   = true;
        comm->world->left++;
    }
    return comm->has_left && comm->world->left >= comm->size;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    if (comm == NULL || comm->is_leaving || comm->has_left) {
        return ncclInvalidArgument;
    }
    comm->is_leaving = true;
    while (comm->blocks && !has_left(comm)) {
        usleep(JOIN_STEP_US);
    }
    return has_left(comm) ? ncclSuccess : ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    if (comm == NULL) {
        return ncclInvalidArgument;
    }
    if (comm->running > 0) {
        fprintf(stderr, "cusim-nccl: rank %d: destroyed with %d operations on streams\n", comm->rank,
                comm->running.load());
        abort();
    }
    if (comm->is_joining) {
        shm_unlink(comm->name);
    }
    munmap(comm->world, cusim_nccl_world_bytes(comm->size));
    delete comm;
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    if (group_depth > 0) {
        fprintf(stderr, "cusim-nccl: rank %d: aborted inside of a group\n", comm->rank);
        abort();
    }
    comm->is_aborted = 1;
    cudaDeviceSynchronize();
    return ncclCommDestroy(comm);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
    if (comm->is_joining && comm->world->joined >= comm->size) {
        comm->is_joining = false;
        shm_unlink(comm->name);
    }
    if (!comm->pending.empty() && --comm->polls <= 0) {
        std::vector<std::function<void()>> calls;

        calls.swap(comm->pending);
        for (const std::function<void()> &call : calls) {
            call();
        }
    }
    *error = (ncclResult_t)comm->error.load();
    if (*error == ncclSuccess && (comm->is_joining || !comm->pending.empty() ||
                                  ((comm->is_leaving || comm->has_left) && !has_left(comm)))) {
        *error = ncclInProgress;
    }
    return ncclSuccess;
}

ncclResult_t ncclGroupStart(void)
{
    group_depth++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    group_t     *all = group;
    ncclResult_t result;

    group_depth--;
    if (group_depth > 0 || all == NULL) {
        return ncclSuccess;
    }
    group = NULL;
    if (!all->messages.empty()) {
        ncclComm                    *comm     = all->comm;
        cudaStream_t                 stream   = all->stream;
        std::vector<cusim_message_t> messages = all->messages;

        all->calls.push_back([=] {
            enqueue(comm, stream, "send and receive",
                    [=]() mutable { return cusim_nccl_exchange(comm, messages); });
        });
    }
    result = start(all->comm, std::move(all->calls));
    delete all;
    return result;
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

ncclResult_t ncclReduceScatter(const void *in, void *out, size_t count, ncclDataType_t type,
                               ncclRedOp_t reduction, ncclComm_t comm, cudaStream_t stream)
{
    if (comm == NULL) {
        return ncclInvalidArgument;
    }
    return submit("reducescatter", {0, CUSIM_REDUCE_SCATTER, type, reduction, 0, count * (size_t)comm->size},
                  in, out, comm, stream);
}

ncclResult_t ncclSend(const void *memory, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    return send_or_receive(true, memory, count, type, peer, comm, stream);
}

ncclResult_t ncclRecv(void *memory, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    return send_or_receive(false, memory, count, type, peer, comm, stream);
}
}
