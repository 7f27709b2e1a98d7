/* An exchange: what it takes, and its segments on their way through the rounds. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "ddp/exchange_state_internal.h"

/* Of a message: below Open MPI's 64 KiB over TCP, up to which it needs no answer before it is sent. */
#define MESSAGE_BLOCKS ((size_t)48)

size_t ddp_exchange_segments(ddp_exchange_kind_t kind, int machines, size_t blocks)
{
    const int parts = kind == DDP_EXCHANGE_HALVING ? 2 : machines; /* halving sends half a segment at most */
    const size_t each = (size_t)parts * MESSAGE_BLOCKS;

    return blocks > each ? (blocks + each - 1) / each : 1;
}

static size_t all_nodes(const ddp_exchange_t *x)
{
    size_t n = 0;

    for (int m = 0; m < x->machines; m++) {
        n += x->most_nodes[m];
    }
    return n;
}

/* Go through all rounds of all segments without sending. */
static void go_through(ddp_exchange_t *x, ddp_exchange_needs_t *needs)
{
    x->needs = needs;
    for (size_t s = 0; s < x->segments; s++) {
        ddp_lane_t lane = {.segment = s,
                           .blocks  = ddp_blocks_cut(ddp_exchange_range(x), (int)x->segments, (int)s)};

        for (; lane.round < x->ops->rounds(x); lane.round++) {
            needs->n = needs->now = needs->packed_now = 0;
            ddp_ignore(x->ops->post(x, &lane), "nothing is sent that could fail");
        }
    }
    x->needs = NULL;
}

static size_t lanes_of(const ddp_exchange_t *x)
{
    return x->segments < DDP_LANES ? x->segments : DDP_LANES;
}

/* All but the memory. `most_nodes` has room for all machines. */
static void describe(ddp_exchange_t *x, const ddp_exchange_params_t *params, size_t *most_nodes)
{
    ddp_comm_t *comm = params->comm;

    x->params     = *params;
    x->machine    = ddp_comm_machine(comm);
    x->machines   = ddp_comm_machines(comm);
    x->most_nodes = most_nodes;
    x->schedule   = params->kind == DDP_EXCHANGE_DIRECT ? NULL : ddp_exchange_schedule(params->kind);
    x->ops        = x->schedule == NULL ? &ddp_exchange_direct_ops : &ddp_exchange_rounds_ops;
    x->segments   = ddp_exchange_segments(params->kind, x->machines, params->blocks);
    x->slice = ddp_blocks_cut(ddp_exchange_range(x), ddp_comm_local_size(comm), ddp_comm_local_rank(comm));
    for (int m = 0; m < x->machines; m++) {
        most_nodes[m] = params->most_nodes != NULL && params->most_nodes[m] > 1 ? params->most_nodes[m] : 1;
    }
}

size_t ddp_exchange_bytes(const ddp_exchange_params_t *params)
{
    ddp_exchange_t       x     = {0};
    ddp_exchange_needs_t needs = {0};
    size_t              *nodes = calloc((size_t)ddp_comm_machines(params->comm), sizeof(*nodes));
    size_t               bytes = 0;

    if (nodes == NULL) {
        return 0; /* an estimate; who makes one says so */
    }
    describe(&x, params, nodes);
    go_through(&x, &needs);
    bytes = lanes_of(&x) *
            (needs.received * sizeof(float) + (params->bf16 ? needs.packed * sizeof(uint16_t) : 0));
    free(nodes);
    return bytes;
}

static ddp_status_t make_lane(const ddp_exchange_t *x, const ddp_exchange_needs_t *needs, ddp_lane_t *lane)
{
    ddp_status_t status = DDP_OK;
    const size_t packed = x->params.bf16 ? needs->packed : 0;

    lane->request  = calloc(needs->messages + 1, sizeof(MPI_Request));
    lane->peer     = calloc(needs->messages + 1, sizeof(int));
    lane->received = aligned_alloc(64, (needs->received + DDP_BLOCK) * sizeof(float));
    lane->packed   = calloc(packed + 1, sizeof(uint16_t));
    lane->arrival  = calloc(needs->messages + 1, sizeof(ddp_arrival_t));
    DDP_REQUIRE(lane->request != NULL && lane->peer != NULL && lane->received != NULL &&
                    lane->packed != NULL && lane->arrival != NULL,
                DDP_ERR_NO_MEMORY, "no memory for what other machines send");
out:
    return status;
}

ddp_status_t ddp_exchange_create(const ddp_exchange_params_t *params, ddp_exchange_t **x_p)
{
    ddp_status_t         status = DDP_OK;
    ddp_exchange_needs_t needs  = {0};
    size_t              *nodes  = calloc((size_t)ddp_comm_machines(params->comm), sizeof(*nodes));
    ddp_exchange_t      *x      = calloc(1, sizeof(*x));

    if (nodes == NULL || x == NULL) {
        free(nodes);
        DDP_REQUIRE(nodes != NULL && x != NULL, DDP_ERR_NO_MEMORY, "no memory for an exchange");
    }
    describe(x, params, nodes);
    go_through(x, &needs);
    x->node   = calloc(x->most_nodes[x->machine], sizeof(*x->node));
    x->source = calloc(all_nodes(x), sizeof(*x->source));
    DDP_REQUIRE(x->node != NULL && x->source != NULL, DDP_ERR_NO_MEMORY, "no memory for an exchange");
    for (size_t l = 0; l < lanes_of(x); l++) {
        DDP_TRY(make_lane(x, &needs, &x->lane[l]));
    }
    *x_p = x;
    x    = NULL;
out:
    ddp_exchange_destroy(&x, false);
    return status;
}

void ddp_exchange_destroy(ddp_exchange_t **x_p, bool keep)
{
    ddp_exchange_t *x = *x_p;

    *x_p = NULL;
    if (x == NULL) {
        return;
    }
    for (size_t l = 0; l < DDP_LANES; l++) {
        ddp_lane_t *lane = &x->lane[l];

        free(lane->peer);
        free(lane->arrival);
        if (!keep) {
            free(lane->request);
            free(lane->received);
            free(lane->packed);
        }
    }
    free(x->most_nodes);
    free(x->node);
    free(x->source);
    free(x);
}

ddp_exchange_kind_t ddp_exchange_kind(const ddp_exchange_t *x)
{
    return x->params.kind;
}

static ddp_status_t post_round(ddp_exchange_t *x, ddp_lane_t *lane)
{
    lane->n          = 0;
    lane->n_packed   = 0;
    lane->n_arrivals = 0;
    return x->ops->post(x, lane);
}

/* Segments that share a tag are never open together, so that their messages come in the order in which they
 * are posted. */
static bool is_tag_free(const ddp_exchange_t *x)
{
    for (size_t l = 0; l < DDP_LANES; l++) {
        if (x->lane[l].is_open && x->next - x->lane[l].segment >= DDP_EXCHANGE_TAGS) {
            return false;
        }
    }
    return true;
}

/* The next segment that is this rank's too, if there is one; later, if its tag is still in use. */
static ddp_status_t open_next(ddp_exchange_t *x, ddp_lane_t *lane)
{
    lane->is_open = false;
    while (x->next < x->segments && is_tag_free(x)) {
        lane->segment = x->next++;
        lane->blocks  = ddp_blocks_cut(ddp_exchange_range(x), (int)x->segments, (int)lane->segment);
        if (lane->blocks.first < x->slice.end && x->slice.first < lane->blocks.end) {
            lane->is_open = true;
            lane->round   = 0;
            return post_round(x, lane);
        }
    }
    return DDP_OK;
}

ddp_status_t ddp_exchange_start(ddp_exchange_t *x, const ddp_exchange_data_t *data)
{
    ddp_status_t status = DDP_OK;
    const size_t slice  = x->slice.end - x->slice.first;

    x->data      = *data;
    x->data.node = x->node;
    for (size_t k = 0; k < data->nodes[x->machine]; k++) {
        x->node[k] = data->node[k];
    }
    if (x->schedule != NULL && data->nodes[x->machine] == 0) { /* this machine has no part in the sum */
        memset(x->data.total + x->slice.first * DDP_BLOCK, 0, slice * DDP_BLOCK * sizeof(float));
    }
    x->next = 0;
    for (size_t l = 0; l < lanes_of(x); l++) {
        DDP_TRY(open_next(x, &x->lane[l]));
    }
out:
    return status;
}

static ddp_status_t advance(ddp_exchange_t *x, ddp_lane_t *lane)
{
    ddp_status_t status = DDP_OK;
    ddp_wait_t   wait   = x->data.wait;

    while (lane->is_open) {
        wait.what = 2 * lane->round < x->ops->rounds(x) ? "partial sums" : "totals"; /* then they go back */
        status    = ddp_comm_test_messages(x->params.comm, lane->request, lane->peer, lane->n, wait);
        if (status != DDP_OK) {
            return status;
        }
        ddp_exchange_unpack(lane);
        x->ops->take(x, lane);
        lane->round++;
        DDP_TRY(lane->round < x->ops->rounds(x) ? post_round(x, lane) : open_next(x, lane));
        ddp_comm_progressed(x->params.comm);
    }
out:
    return status;
}

ddp_status_t ddp_exchange_poll(ddp_exchange_t *x)
{
    ddp_status_t result = DDP_OK;

    for (size_t l = 0; l < lanes_of(x); l++) {
        ddp_status_t status = x->lane[l].is_open ? DDP_OK : open_next(x, &x->lane[l]);

        status = status == DDP_OK ? advance(x, &x->lane[l]) : status;
        if (status != DDP_OK && status != DDP_IN_PROGRESS) {
            return status;
        }
        result = status == DDP_IN_PROGRESS ? status : result;
    }
    return result;
}

uint64_t ddp_exchange_take_overflows(ddp_exchange_t *x)
{
    const uint64_t overflows = x->overflows;

    x->overflows = 0;
    return overflows;
}

void ddp_exchange_traffic(ddp_exchange_t *x, const size_t *nodes, uint64_t *from)
{
    ddp_exchange_needs_t needs = {.from = from};
    const size_t        *now   = x->data.nodes;

    x->data.nodes = nodes;
    go_through(x, &needs);
    x->data.nodes = now;
}
