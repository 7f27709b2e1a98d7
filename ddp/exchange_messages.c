/* Messages of an exchange: to whom, and what becomes of them with bfloat16 on the wire. */
#include "base/call.h"
#include "base/error.h"
#include "ddp/exchange_state_internal.h"

#define INFINITE UINT32_C(0x7f800000)
#define ABSOLUTE UINT32_C(0x7fffffff)

static uint32_t bits_of(float value)
{
    union {
        float    value;
        uint32_t bits;
    } both = {.value = value};

    return both.bits;
}

uint64_t ddp_exchange_narrow(const float *from, uint16_t *to, size_t count)
{
    uint64_t overflows = 0;

    for (size_t i = 0; i < count; i++) {
        const uint32_t bits    = bits_of(from[i]);
        const uint32_t rounded = bits + 0x7fffU + ((bits >> 16) & 1U);
        const bool     is_nan  = (bits & ABSOLUTE) > INFINITE;

        to[i] = (uint16_t)((is_nan ? bits | UINT32_C(0x400000) : rounded) >> 16);
        overflows += (bits & ABSOLUTE) < INFINITE && (rounded & ABSOLUTE) >= INFINITE;
    }
    return overflows;
}

void ddp_exchange_widen(const uint16_t *from, float *to, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        union {
            uint32_t bits;
            float    value;
        } both = {.bits = (uint32_t)from[i] << 16};

        to[i] = both.value;
    }
}

static void count(ddp_exchange_t *x, size_t floats, int peer, bool is_receive, bool is_added)
{
    ddp_exchange_needs_t *needs = x->needs;

    needs->n++;
    needs->packed_now += floats;
    needs->now += is_added ? floats : 0;
    needs->messages = needs->n > needs->messages ? needs->n : needs->messages;
    needs->received = needs->now > needs->received ? needs->now : needs->received;
    needs->packed   = needs->packed_now > needs->packed ? needs->packed_now : needs->packed;
    if (is_receive && needs->from != NULL) {
        needs->from[peer] += floats * (x->params.bf16 ? sizeof(uint16_t) : sizeof(float));
    }
}

static ddp_status_t post(ddp_exchange_t *x, ddp_lane_t *lane, bool is_send, void *data, size_t floats,
                         int peer)
{
    ddp_status_t status  = DDP_OK;
    MPI_Comm     mpi     = ddp_comm_data_mpi(x->params.comm);
    MPI_Datatype type    = x->params.bf16 ? MPI_UINT16_T : MPI_FLOAT;
    const int    n       = (int)floats; /* a segment is small */
    const int    tag     = x->params.first_tag + (int)(lane->segment % DDP_EXCHANGE_TAGS);
    MPI_Request *request = &lane->request[lane->n];

    lane->peer[lane->n++] = peer;
    if (is_send) {
        DDP_TRY_MPI(MPI_Isend(data, n, type, peer, tag, mpi, request));
    } else {
        DDP_TRY_MPI(MPI_Irecv(data, n, type, peer, tag, mpi, request));
    }
out:
    return status;
}

static uint16_t *take_packed(ddp_lane_t *lane, size_t floats)
{
    lane->n_packed += floats;
    return lane->packed + lane->n_packed - floats;
}

static ddp_status_t send(ddp_exchange_t *x, ddp_lane_t *lane, float *data, size_t floats, int peer,
                         bool is_sum)
{
    uint16_t *packed;

    if (!x->params.bf16) {
        return post(x, lane, true, data, floats, peer);
    }
    packed = take_packed(lane, floats);
    x->overflows += ddp_exchange_narrow(data, packed, floats);
    if (is_sum) {
        ddp_exchange_widen(packed, data, floats);
    }
    return post(x, lane, true, packed, floats, peer);
}

static ddp_status_t receive(ddp_exchange_t *x, ddp_lane_t *lane, float *data, size_t floats, int peer)
{
    uint16_t *packed;

    if (!x->params.bf16) {
        return post(x, lane, false, data, floats, peer);
    }
    packed                            = take_packed(lane, floats);
    lane->arrival[lane->n_arrivals++] = (ddp_arrival_t){packed, data, floats};
    return post(x, lane, false, packed, floats, peer);
}

typedef struct transfer {
    bool is_send, is_added, is_sum;
} transfer_t;

/* The ranks of machine m, and which of the blocks they own. */
static ddp_status_t pass(ddp_exchange_t *x, ddp_lane_t *lane, int m, ddp_blocks_t blocks, float *at,
                         transfer_t how)
{
    ddp_status_t status = DDP_OK;
    const int    first  = ddp_comm_machine_first(x->params.comm, m);
    const int    size   = ddp_comm_machine_size(x->params.comm, m);

    for (int local = 0; local < size; local++) {
        const ddp_blocks_t theirs = ddp_blocks_cut(ddp_exchange_range(x), size, local);
        const ddp_blocks_t both   = ddp_blocks_overlap(blocks, theirs);
        const size_t       floats = (both.end - both.first) * DDP_BLOCK;

        if (floats == 0) {
            continue;
        }
        if (x->needs != NULL) {
            count(x, floats, first + local, !how.is_send, how.is_added);
        } else if (how.is_send) {
            DDP_TRY(send(x, lane, at + (both.first - blocks.first) * DDP_BLOCK, floats, first + local,
                         how.is_sum));
        } else {
            DDP_TRY(receive(x, lane, at + (both.first - blocks.first) * DDP_BLOCK, floats, first + local));
        }
    }
out:
    return status;
}

ddp_status_t ddp_exchange_send(ddp_exchange_t *x, ddp_lane_t *lane, int m, ddp_blocks_t blocks, float *at,
                               bool is_sum)
{
    return pass(x, lane, m, blocks, at, (transfer_t){.is_send = true, .is_sum = is_sum});
}

ddp_status_t ddp_exchange_receive(ddp_exchange_t *x, ddp_lane_t *lane, int m, ddp_blocks_t blocks, float *at,
                                  bool is_added)
{
    return pass(x, lane, m, blocks, at, (transfer_t){.is_added = is_added});
}

void ddp_exchange_unpack(ddp_lane_t *lane)
{
    for (int i = 0; i < lane->n_arrivals; i++) {
        ddp_exchange_widen(lane->arrival[i].from, lane->arrival[i].to, lane->arrival[i].count);
    }
}
