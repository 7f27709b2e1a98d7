#include "ddp/plan_internal.h"

#include "base/convert.h"

static uint32_t take_arena(ddp_stack_t *stack)
{
    uint32_t arena = 0;

    while ((stack->arenas_taken >> arena) & 1) {
        arena++;
    }
    stack->arenas_taken |= UINT64_C(1) << arena;
    return arena;
}

uint32_t ddp_stack_push(ddp_stack_t *stack, size_t leaves, size_t leaf, ddp_merge_t *merges,
                        size_t *n_merges_p)
{
    const uint32_t arena = take_arena(stack);
    ddp_node_t     node  = {0, (uint32_t)leaf, arena};
    size_t         n     = 0;

    for (;;) {
        if (node.index % 2 == 1) {
            const ddp_node_t *left = stack->depth > 0 ? &stack->node[stack->depth - 1] : NULL;

            if (left == NULL || left->level != node.level || left->index != node.index - 1) {
                break; /* the left half belongs to another rank */
            }
            merges[n++] = (ddp_merge_t){left->arena, node.arena};
            stack->arenas_taken &= ~(UINT64_C(1) << node.arena);
            node.arena = left->arena;
            stack->depth--;
        } else if (((size_t)node.index + 1) << node.level < leaves || (size_t)1 << node.level >= leaves) {
            break; /* a right half will follow, or this is the root */
        }          /* else: no right half in this step, the left one is the sum */
        node.level++;
        node.index /= 2;
    }
    stack->node[stack->depth++] = node;
    *n_merges_p                 = n;
    return arena;
}

void ddp_stack_plan(size_t leaves, size_t first, size_t count, ddp_stack_t *stack, size_t *arenas_p)
{
    ddp_merge_t merges[DDP_MAX_NODES];
    size_t      n_merges;
    size_t      arenas = 0;

    *stack = (ddp_stack_t){.depth = 0};
    for (size_t leaf = first; leaf < first + count && leaf < leaves; leaf++) {
        const uint32_t arena = ddp_stack_push(stack, leaves, leaf, merges, &n_merges);

        arenas = arena + (size_t)1 > arenas ? arena + (size_t)1 : arenas;
    }
    *arenas_p = arenas;
}

size_t ddp_received_of(const ddp_reducer_params_t *params, int size, int rank)
{
    ddp_stack_t stack;
    size_t      received = 0;
    size_t      first;
    size_t      count;
    size_t      arenas;

    for (int q = 0; q < size; q++) {
        ddp_partition(params->micro_batches, (size_t)size, (size_t)q, &first, &count);
        ddp_stack_plan(params->micro_batches, first, count, &stack, &arenas);
        received += q == rank ? 0 : stack.depth;
    }
    return received;
}

/* Buckets over tensors [first, end), each closed before it passes the cap. */
static size_t fill_buckets(const size_t *padded, size_t first, size_t end, size_t offset, size_t cap_bytes,
                           ddp_bucket_range_t *buckets)
{
    size_t n = 0;

    for (size_t i = first; i < end; i++) {
        const size_t bytes = padded[i] * sizeof(float);

        if (n == 0 || buckets[n - 1].count * sizeof(float) + bytes > cap_bytes) {
            buckets[n++] = (ddp_bucket_range_t){.offset = offset, .first = i};
        }
        buckets[n - 1].count += padded[i];
        buckets[n - 1].n++;
        offset += padded[i];
    }
    return n;
}

size_t ddp_bucket_plan(const size_t *padded, size_t n, size_t cap_bytes, size_t tail_bytes,
                       ddp_bucket_range_t *buckets)
{
    size_t tail   = n; /* first tensor of the tail bucket */
    size_t floats = 0;
    size_t offset = 0;
    size_t made;

    if (tail_bytes > 0 && tail_bytes < cap_bytes) {
        do { /* one tensor that is larger than the tail's cap is a tail alone */
            floats += padded[--tail];
        } while (tail > 0 && (floats + padded[tail - 1]) * sizeof(float) <= tail_bytes);
    }
    for (size_t i = 0; i < tail; i++) {
        offset += padded[i];
    }
    made = fill_buckets(padded, 0, tail, 0, cap_bytes, buckets);
    return made + fill_buckets(padded, tail, n, offset, SIZE_MAX, buckets + made);
}

size_t ddp_arenas_of(const ddp_reducer_params_t *params, int size, int rank)
{
    ddp_stack_t stack;
    size_t      first;
    size_t      count;
    size_t      arenas = 1;

    ddp_partition(params->micro_batches, (size_t)size, (size_t)rank, &first, &count);
    if (params->reduction == DDP_REDUCTION_EXACT) {
        ddp_stack_plan(params->micro_batches, first, count, &stack, &arenas);
    }
    return arenas;
}
