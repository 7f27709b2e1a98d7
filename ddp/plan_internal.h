/**
 * @file What the reducer knows before step 1: buckets, micro-batch ranges, and which arena holds which
 * subtree. Private; pure functions.
 */
#ifndef DDP_PLAN_INTERNAL_H_
#define DDP_PLAN_INTERNAL_H_

#include "ddp/reducer.h"

/** A subtree of the reduction tree and the gradient arena of its rank that holds its sum. */
typedef struct ddp_node {
    uint32_t level, index; /* covers micro-batches [index << level, (index + 1) << level) */
    uint32_t arena;
} ddp_node_t;

/** Most open subtrees of one rank: 2 * log2 of the largest V (2^31), rounded up. */
#define DDP_MAX_NODES 64

/** The open subtrees of one rank while it works through its micro-batches. */
typedef struct ddp_stack {
    ddp_node_t node[DDP_MAX_NODES];
    size_t     depth;
    uint64_t   arenas_taken; /* bit a: arena a holds an open subtree */
} ddp_stack_t;

/** Two subtrees become one: arena `left` += arena `right`. */
typedef struct ddp_merge {
    uint32_t left, right;
} ddp_merge_t;

/**
 * Put the next micro-batch on the stack.
 * @param [in]  leaves    micro-batches present in this step: 0 .. leaves - 1
 * @param [in]  leaf      the micro-batch; the one after the stack's last
 * @param [out] merges    [DDP_MAX_NODES] in order, to be done on each bucket when the leaf's gradient of it
 * is there
 * @return the arena to write the leaf's gradient to
 */
uint32_t ddp_stack_push(ddp_stack_t *stack, size_t leaves, size_t leaf, ddp_merge_t *merges,
                        size_t *n_merges_p);

/** The open subtrees of micro-batches [first, first + count) in the end, and how many arenas that took at
 * most. */
void ddp_stack_plan(size_t leaves, size_t first, size_t count, ddp_stack_t *stack, size_t *arenas_p);

/** Gradient arenas that rank `rank` of `size` needs for a step with all micro-batches; others need no more.
 */
size_t ddp_arenas_of(const ddp_reducer_params_t *params, int size, int rank);

/** Open subtrees that rank `rank` gets from the others to sum a slice exactly, when every micro-batch is
 * present. */
size_t ddp_received_of(const ddp_reducer_params_t *params, int size, int rank);

/** A bucket: whole tensors, neighbours in the layout. */
typedef struct ddp_bucket_range {
    size_t offset, count; /* floats, padding included */
    size_t first, n;      /* positions in layout order */
} ddp_bucket_range_t;

/**
 * Cut tensors into buckets.
 * @param [in]  padded  [n] floats of each tensor, padding included, in layout order
 * @param [out] buckets [n]
 * @return number of buckets
 */
size_t ddp_bucket_plan(const size_t *padded, size_t n, size_t cap_bytes, size_t tail_bytes,
                       ddp_bucket_range_t *buckets);

#endif
