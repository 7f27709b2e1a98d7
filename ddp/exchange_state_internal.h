/** @file What the files of the exchange share. Private to ddp/exchange*.c. */
#ifndef DDP_EXCHANGE_STATE_INTERNAL_H_
#define DDP_EXCHANGE_STATE_INTERNAL_H_

#include <mpi.h>

#include "base/convert.h"
#include "ddp/exchange_internal.h"

/** Segments under way at a time. More keep the wire busy through latencies, fewer need less memory. */
#define DDP_LANES 8

/** bf16: a message that has to be widened when it is there. */
typedef struct ddp_arrival {
    const uint16_t *from;
    float          *to;
    size_t          count;
} ddp_arrival_t;

/** A segment under way. */
typedef struct ddp_lane {
    bool           is_open;
    size_t         segment;
    ddp_blocks_t   blocks;
    int            round;
    MPI_Request   *request; /* owned */
    int           *peer;    /* owned */
    int            n;
    float         *received; /* owned: what is added to the total */
    uint16_t      *packed;   /* owned: bf16, in and out */
    size_t         n_packed;
    ddp_arrival_t *arrival; /* owned: bf16 */
    int            n_arrivals;
} ddp_lane_t;

/** How much a round takes; found by going through it without sending. */
typedef struct ddp_exchange_needs {
    size_t    messages, received, packed; /* of the largest round */
    size_t    n, now, packed_now;         /* of this one */
    uint64_t *from;                       /* [ranks] bytes of all rounds, or NULL */
} ddp_exchange_needs_t;

typedef struct ddp_exchange_ops {
    int (*rounds)(const ddp_exchange_t *x);
    /** Post the messages of a round. */
    ddp_status_t (*post)(ddp_exchange_t *x, ddp_lane_t *lane);
    /** They are there. */
    void (*take)(ddp_exchange_t *x, ddp_lane_t *lane);
} ddp_exchange_ops_t;
extern const ddp_exchange_ops_t ddp_exchange_direct_ops; /* exchange_direct.c */
extern const ddp_exchange_ops_t ddp_exchange_rounds_ops; /* exchange_rounds.c: by a schedule */

struct ddp_exchange {
    ddp_exchange_params_t     params;
    const ddp_exchange_ops_t *ops;
    const ddp_schedule_t     *schedule;   /* NULL with DIRECT */
    size_t                   *most_nodes; /* owned, [machines] */
    int                       machine, machines;
    ddp_blocks_t              slice; /* of this rank */
    size_t                    segments;
    ddp_exchange_data_t       data;   /* of this use; node is ours */
    float                   **node;   /* owned */
    const float             **source; /* owned, scratch: all machines' nodes */
    ddp_exchange_needs_t     *needs;  /* counting only: nothing is sent */
    ddp_lane_t                lane[DDP_LANES];
    size_t                    next;
    uint64_t                  overflows;
};

static inline ddp_blocks_t ddp_exchange_range(const ddp_exchange_t *x)
{
    return (ddp_blocks_t){0, x->params.blocks};
}
/** Most partial sums of machine m; while the exchange runs, what it has this time. */
static inline size_t ddp_exchange_nodes(const ddp_exchange_t *x, int m)
{
    return x->data.nodes != NULL ? x->data.nodes[m] : x->most_nodes[m];
}

/* exchange_messages.c */
/**
 * Blocks of this rank's slice to the ranks of machine m that own them there, or from them.
 * @param [in] at      where block `blocks.first` lies; not used while counting
 * @param [in] is_sum  bf16: what is sent is final, so it becomes here what arrives there
 */
ddp_status_t ddp_exchange_send(ddp_exchange_t *x, ddp_lane_t *lane, int m, ddp_blocks_t blocks, float *at,
                               bool is_sum) DDP_NODISCARD;
/** @param [in] is_added  it goes to lane->received first, which is counted */
ddp_status_t ddp_exchange_receive(ddp_exchange_t *x, ddp_lane_t *lane, int m, ddp_blocks_t blocks, float *at,
                                  bool is_added) DDP_NODISCARD;
/** All messages of the round are there: widen them. */
void ddp_exchange_unpack(ddp_lane_t *lane);

/** Where a block of the total lies; NULL while counting. */
static inline float *ddp_exchange_total(const ddp_exchange_t *x, size_t block)
{
    return x->needs != NULL ? NULL : x->data.total + block * DDP_BLOCK;
}

#endif
