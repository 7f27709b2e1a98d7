/**
 * @file Sums over machines of one range of blocks, again and again: what happens to a bucket between
 * machines, and to ddp_comm_allreduce_sum(). Private.
 *
 * Local rank l of a machine owns the l-th slice of the range, cut among its ranks by ddp_partition();
 * messages go between the owners of the same blocks, so machines may have unlike numbers of ranks. The range
 * is cut into segments that run through the rounds of the exchange on their own, a few at a time: while one
 * adds, others are on the wire. Nothing blocks and nothing allocates after create. Thread: the
 * communicator's.
 */
#ifndef DDP_EXCHANGE_INTERNAL_H_
#define DDP_EXCHANGE_INTERNAL_H_

#include "base/convert.h"
#include "ddp/comm_internal.h"
#include "ddp/link.h"
#include "kernels/layout.h"
#include "kernels/optim.h"

typedef struct ddp_exchange ddp_exchange_t;

/** What all ranks know alike when the exchange is made. */
typedef struct ddp_exchange_params {
    ddp_comm_t         *comm; /* borrowed, of two machines or more */
    ddp_exchange_kind_t kind; /* not AUTO */
    size_t              blocks;
    const size_t
        *most_nodes; /* DIRECT: [machines], partial sums that each sends at most; NULL: one. Copied */
    bool bf16;       /* messages are bfloat16, sums are not */
    int  first_tag;  /* of ddp_exchange_tags() on the data plane */
} ddp_exchange_params_t;

/** One use. Memory is that of the whole range, [blocks * DDP_BLOCK]; this rank touches its slice alone. */
typedef struct ddp_exchange_data {
    ddp_isa_t     isa;
    float *const *node;  /* [nodes[machine]] this machine's partial sums; copied */
    const size_t *nodes; /* [machines]; borrowed until the end */
    const int32_t
              *op; /* DIRECT: program over all machines' nodes in order, see ddp_tree_program_t; borrowed */
    size_t     op_length;
    float     *total; /* node[0] if there is one; the sum, in the end */
    ddp_wait_t wait;  /* what a wait is about; `what` and `rank` are filled in */
} ddp_exchange_data_t;

/** Most tags that exchanges use each. */
#define DDP_EXCHANGE_TAGS 32

/** Bytes of buffers that this rank would need. Pure. */
size_t ddp_exchange_bytes(const ddp_exchange_params_t *params);
/** Segments that a range is cut into. Pure. */
size_t ddp_exchange_segments(ddp_exchange_kind_t kind, int machines, size_t blocks);

/** Local. @return DDP_ERR_NO_MEMORY */
ddp_status_t ddp_exchange_create(const ddp_exchange_params_t *params, ddp_exchange_t **x_p) DDP_NODISCARD;
/** @param [in] keep  messages may still be on their way: what MPI reads and writes stays allocated */
void                ddp_exchange_destroy(ddp_exchange_t **x_p, bool keep);
ddp_exchange_kind_t ddp_exchange_kind(const ddp_exchange_t *x);

/** Send what can be sent. The one before must have ended. */
ddp_status_t ddp_exchange_start(ddp_exchange_t *x, const ddp_exchange_data_t *data) DDP_NODISCARD;
/** DDP_IN_PROGRESS, and ddp_comm_waiting() was told whom for; DDP_OK: total is there, and messages have left.
 */
ddp_status_t ddp_exchange_poll(ddp_exchange_t *x) DDP_NODISCARD;

/** bf16: finite values that this rank sent as infinite ones; counts from 0 again. */
uint64_t ddp_exchange_take_overflows(ddp_exchange_t *x);
/** Add to from[rank] the bytes that this rank gets from it in one use. @param [in] nodes  [machines] */
void ddp_exchange_traffic(ddp_exchange_t *x, const size_t *nodes, uint64_t *from);

/** Blocks of the range. */
typedef struct ddp_blocks {
    size_t first, end;
} ddp_blocks_t;
static inline ddp_blocks_t ddp_blocks_cut(ddp_blocks_t whole, int parts, int k)
{
    size_t first;
    size_t count;

    ddp_partition(whole.end - whole.first, (size_t)parts, (size_t)k, &first, &count);
    return (ddp_blocks_t){whole.first + first, whole.first + first + count};
}
static inline ddp_blocks_t ddp_blocks_overlap(ddp_blocks_t a, ddp_blocks_t b)
{
    ddp_blocks_t both = {a.first > b.first ? a.first : b.first, a.end < b.end ? a.end : b.end};

    if (both.end < both.first) {
        both.end = both.first;
    }
    return both;
}

/**
 * What a machine does in a round of RING or HALVING, in pieces of a segment. -1: nothing is sent, or
 * received. What comes is added, or takes the place of what is there.
 */
typedef struct ddp_round {
    int  to, send_first, send_end;
    int  from, receive_first, receive_end;
    bool adds;
} ddp_round_t;
/** A schedule: pure functions of the number of machines. */
typedef struct ddp_schedule {
    int (*rounds)(int machines);
    int (*pieces)(int machines);
    ddp_round_t (*round)(int machines, int machine, int t);
} ddp_schedule_t;
/** @return the schedule of RING or HALVING */
const ddp_schedule_t *ddp_exchange_schedule(ddp_exchange_kind_t kind);

/** To bfloat16, the nearest, ties to even. @return how many finite values became infinite */
uint64_t ddp_exchange_narrow(const float *from, uint16_t *to, size_t count);
void     ddp_exchange_widen(const uint16_t *from, float *to, size_t count);

#endif
