/**
 * @file The stand-in for NCCL: ranks are processes or threads that share one POSIX shared-memory object for
 * each unique id.
 *
 * A communicator with blocking = 0 answers "in progress" where a real one may: until all have joined, after
 * every third call, and until all have finalized; what was called is on its stream only once
 * ncclCommGetAsyncError() has said otherwise.
 *
 * CUSIM_NCCL_FAULT=<kind>:<rank>[:<n>] plants one failure, n counting that rank's collectives (a group is
 * one for each of its members) from 0:
 *   init   the rank never joins           async  an error in the background
 *   hang   the operation never ends       gone   the process is killed
 *   count  the call has an element less    call   the call itself fails, and says so
 * CUSIM_NCCL_VERSION=22809 makes this process have another version.
 */
#ifndef DDP_NCCL_WORLD_H_
#define DDP_NCCL_WORLD_H_

#include <atomic>
#include <functional>
#include <nccl.h>
#include <stddef.h>
#include <stdint.h>
#include <vector>

enum { CUSIM_MAX_RANKS = 16 };

/** What an operation is; the ranks compare theirs, and one that differs is named. */
typedef enum cusim_collective {
    CUSIM_ALL_REDUCE,
    CUSIM_BROADCAST,
    CUSIM_ALL_GATHER,
    CUSIM_REDUCE_SCATTER
} cusim_collective_t;

typedef struct cusim_call {
    uint64_t number; /* of the communicator's operations */
    int      kind;   /* CUSIM_ALL_REDUCE ... */
    int      type;
    int      reduction;
    int      root;
    size_t   count;
} cusim_call_t;

/** In shared memory: one rank's mailbox. A piece of an operation is posted, and done once the rank has read
 * all others'. */
typedef struct cusim_rank {
    alignas(64) std::atomic<uint64_t> posted; /* pieces */
    std::atomic<uint64_t> done;
    cusim_call_t          call;
} cusim_rank_t;

typedef struct cusim_world {
    std::atomic<int> joined;
    std::atomic<int> left; /* finalized */
    cusim_rank_t     ranks[CUSIM_MAX_RANKS];
    alignas(64) char pieces[]; /* [ranks][CUSIM_PIECE_BYTES], then [ranks][ranks] cusim_channel_t */
} cusim_world_t;

enum { CUSIM_PIECE_BYTES = 1 << 20, CUSIM_CHANNEL_BYTES = 1 << 16 };

/** In shared memory: what one rank sends another, a piece at a time. */
typedef struct cusim_channel {
    alignas(64) std::atomic<uint64_t> posted; /* pieces */
    std::atomic<uint64_t> taken;
    size_t                bytes; /* of the whole message */
    char                  piece[CUSIM_CHANNEL_BYTES];
} cusim_channel_t;

/** A send or receive on its way. */
typedef struct cusim_message {
    bool   is_send;
    int    peer;
    char  *memory;
    size_t bytes, offset;
} cusim_message_t;

struct ncclComm {
    cusim_world_t   *world;
    int              rank;
    int              size;
    uint64_t         pieces; /* passed */
    uint64_t         calls;  /* made */
    std::atomic<int> error;  /* asynchronous */
    std::atomic<int> is_aborted;
    std::atomic<int> is_stuck; /* planted: operations never end */

    /* of the host's thread */
    bool                               blocks;
    bool                               is_joining, is_leaving, has_left;
    std::atomic<int>                   running; /* operations on streams */
    uint64_t                           collectives, submissions;
    int                                polls;   /* left until `pending` goes to its streams */
    std::vector<std::function<void()>> pending; /* "in progress" */
    char                               name[sizeof(ncclUniqueId)];
};

size_t cusim_nccl_world_bytes(int size);
/** As a poll of an operation, runtime.h. */
int  cusim_nccl_exchange(ncclComm *comm, std::vector<cusim_message_t> &messages);
bool cusim_nccl_never_joins(int rank);
/** At each collective; `call` is NULL for a send or receive. @return what the call answers; ncclSuccess: go
 * on */
ncclResult_t cusim_nccl_plant(ncclComm *comm, cusim_call_t *call);

/** Bytes of one element. */
size_t cusim_nccl_bytes(int type);
/** Reduces elements [first, first + count) of an operation over `total`: in[rank] and out point at the first.
 * The order is that of NCCL's ring: the rank that an element's sum begins at depends on its place; every hop
 * rounds. */
void cusim_nccl_reduce(int type, int reduction, char *out, char *const *in, int ranks, size_t first,
                       size_t count, size_t total);

#endif /* DDP_NCCL_WORLD_H_ */
