/*
 * All at once: the blocks of a segment are cut among machines. The owner of a slice on one machine sends the
 * partial sums (nodes) of its blocks that other machines sum, sums its own share from everybody's nodes in
 * the order of the tree, and sends that total to whoever owns those blocks on the other machines:
 * reduce-scatter, then all-gather.
 */
#include "base/error.h"
#include "ddp/exchange_state_internal.h"

static int rounds(const ddp_exchange_t *x)
{
    (void)x;
    return 2;
}

/* The blocks of this rank that machine m sums for all. */
static ddp_blocks_t part_of(const ddp_exchange_t *x, const ddp_lane_t *lane, int m)
{
    return ddp_blocks_overlap(x->slice, ddp_blocks_cut(lane->blocks, x->machines, m));
}

/* Where node k of machine m lies for the part that this rank sums. */
static float *node_at(const ddp_exchange_t *x, const ddp_lane_t *lane, int m, size_t k)
{
    const ddp_blocks_t home   = part_of(x, lane, x->machine);
    size_t             before = 0;

    if (x->needs != NULL) {
        return NULL;
    }
    if (m == x->machine) {
        return x->data.node[k] + home.first * DDP_BLOCK;
    }
    for (int other = 0; other < m; other++) {
        before += other == x->machine ? 0 : ddp_exchange_nodes(x, other);
    }
    return lane->received + (before + k) * (home.end - home.first) * DDP_BLOCK;
}

/* Who sends what to whom is in the same order on both sides: node by node. */
static ddp_status_t post_nodes(ddp_exchange_t *x, ddp_lane_t *lane)
{
    ddp_status_t       status = DDP_OK;
    const ddp_blocks_t home   = part_of(x, lane, x->machine);

    for (int step = 1; step < x->machines; step++) {
        const int m = (x->machine + x->machines - step) % x->machines;

        for (size_t k = 0; k < ddp_exchange_nodes(x, m); k++) {
            DDP_TRY(ddp_exchange_receive(x, lane, m, home, node_at(x, lane, m, k), true));
        }
    }
    for (int step = 1; step < x->machines; step++) { /* not all begin with the same one */
        const int          m    = (x->machine + step) % x->machines;
        const ddp_blocks_t away = part_of(x, lane, m);

        for (size_t k = 0; k < ddp_exchange_nodes(x, x->machine); k++) {
            float *at = x->needs != NULL ? NULL : x->data.node[k] + away.first * DDP_BLOCK;

            DDP_TRY(ddp_exchange_send(x, lane, m, away, at, false));
        }
    }
out:
    return status;
}

static ddp_status_t post_totals(ddp_exchange_t *x, ddp_lane_t *lane)
{
    ddp_status_t       status = DDP_OK;
    const ddp_blocks_t home   = part_of(x, lane, x->machine);

    for (int step = 1; step < x->machines; step++) {
        const int          m    = (x->machine + x->machines - step) % x->machines;
        const ddp_blocks_t away = part_of(x, lane, m);

        DDP_TRY(ddp_exchange_receive(x, lane, m, away, ddp_exchange_total(x, away.first), false));
    }
    for (int step = 1; step < x->machines; step++) {
        const int m = (x->machine + step) % x->machines;

        DDP_TRY(ddp_exchange_send(x, lane, m, home, ddp_exchange_total(x, home.first), true));
    }
out:
    return status;
}

static ddp_status_t post(ddp_exchange_t *x, ddp_lane_t *lane)
{
    return lane->round == 0 ? post_nodes(x, lane) : post_totals(x, lane);
}

static void take(ddp_exchange_t *x, ddp_lane_t *lane)
{
    const ddp_blocks_t home = part_of(x, lane, x->machine);
    size_t             n    = 0;
    ddp_tree_program_t program;

    if (lane->round > 0 || home.first == home.end) {
        return;
    }
    for (int m = 0; m < x->machines; m++) {
        for (size_t k = 0; k < ddp_exchange_nodes(x, m); k++) {
            x->source[n++] = node_at(x, lane, m, k);
        }
    }
    program = (ddp_tree_program_t){x->data.op, x->data.op_length, x->source, NULL};
    ddp_tree_sum(x->data.isa, &program, ddp_exchange_total(x, home.first), home.end - home.first);
}

const ddp_exchange_ops_t ddp_exchange_direct_ops = {.rounds = rounds, .post = post, .take = take};
