/**
 * @file The stand-in for NCCL: ranks are processes or threads that share one POSIX shared-memory object for
 * each unique id.
 */
#ifndef DDP_NCCL_WORLD_H_
#define DDP_NCCL_WORLD_H_

#include <atomic>
#include <nccl.h>
#include <stddef.h>
#include <stdint.h>

enum { CUSIM_MAX_RANKS = 16 };

/** What an operation is; the ranks compare theirs, and one that differs is named. */
typedef enum cusim_collective { CUSIM_ALL_REDUCE, CUSIM_BROADCAST, CUSIM_ALL_GATHER } cusim_collective_t;

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
    cusim_rank_t     ranks[CUSIM_MAX_RANKS];
    char             pieces[]; /* [ranks][CUSIM_PIECE_BYTES] */
} cusim_world_t;

enum { CUSIM_PIECE_BYTES = 1 << 20 };

struct ncclComm {
    cusim_world_t   *world;
    int              rank;
    int              size;
    uint64_t         pieces; /* passed */
    uint64_t         calls;  /* made */
    std::atomic<int> error;  /* asynchronous */
    std::atomic<int> is_aborted;
};

/** Bytes of one element. */
size_t cusim_nccl_bytes(int type);
/** Reduces elements [first, first + count) of an operation over `total`: in[rank] and out point at the first.
 * The order is that of NCCL's ring: the rank that an element's sum begins at depends on its place; every hop
 * rounds. */
void cusim_nccl_reduce(int type, int reduction, char *out, char *const *in, int ranks, size_t first,
                       size_t count, size_t total);

#endif /* DDP_NCCL_WORLD_H_ */
