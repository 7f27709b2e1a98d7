/*
 * Round by round, by a schedule: each machine sends pieces of a segment to one other and gets pieces from one
 * other, which it adds or keeps. The total of a piece is made on one machine and passed on from there, so
 * that all have the same bits; the order of its summands depends on the number of machines and on the piece.
 */
#include "base/error.h"
#include "ddp/exchange_state_internal.h"

static int ring_rounds(int machines)
{
    return 2 * (machines - 1);
}

static int ring_pieces(int machines)
{
    return machines;
}

/* (k mod machines), of a k that may be below 0 */
static int around(int k, int machines)
{
    return (k % machines + machines) % machines;
}

/* Piece m begins at machine m and is complete at m - 1, which passes it on. */
static ddp_round_t ring_round(int machines, int machine, int t)
{
    const bool adds    = t < machines - 1;
    const int  send    = around(adds ? machine - t : machine + 1 - (t - (machines - 1)), machines);
    const int  receive = around(send - 1, machines);

    return (ddp_round_t){.to            = around(machine + 1, machines),
                         .send_first    = send,
                         .send_end      = send + 1,
                         .from          = around(machine - 1, machines),
                         .receive_first = receive,
                         .receive_end   = receive + 1,
                         .adds          = adds};
}

/* Largest power of two that is not larger. */
static int power_below(int machines)
{
    int power = 1;

    while (2 * power <= machines) {
        power *= 2;
    }
    return power;
}

static int halvings(int machines)
{
    int n = 0;

    while ((2 << n) <= machines) {
        n++;
    }
    return n;
}

static int halving_rounds(int machines)
{
    return 2 * halvings(machines) + (power_below(machines) < machines ? 2 : 0);
}

/* Who is beyond the power of two gives everything to a partner first, and gets everything back at the end. */
static ddp_round_t fold(int power, int machines, int machine, bool is_back)
{
    ddp_round_t round = {.to = -1, .from = -1, .adds = !is_back};
    const int   other = machine >= power ? machine - power : machine + power;

    if (other >= machines) {
        return round;
    }
    if ((machine >= power) != is_back) {
        round.to       = other;
        round.send_end = power;
    } else {
        round.from        = other;
        round.receive_end = power;
    }
    return round;
}

/* Of 2 * distance pieces around its own a machine keeps the half that its own is in; or it has that half, and
 * gets the other one. */
static ddp_round_t halve(int machine, int distance, bool adds)
{
    const int mine   = machine & ~(distance - 1);
    const int theirs = mine ^ distance;
    const int send   = adds ? theirs : mine;
    const int get    = adds ? mine : theirs;

    return (ddp_round_t){.to            = machine ^ distance,
                         .send_first    = send,
                         .send_end      = send + distance,
                         .from          = machine ^ distance,
                         .receive_first = get,
                         .receive_end   = get + distance,
                         .adds          = adds};
}

static ddp_round_t halving_round(int machines, int machine, int t)
{
    const int power = power_below(machines);
    const int n     = halvings(machines);
    const int i     = power < machines ? t - 1 : t; /* of the rounds among the power of two */

    if (i < 0 || i >= 2 * n) {
        return fold(power, machines, machine, i >= 0);
    }
    if (machine >= power) {
        return (ddp_round_t){.to = -1, .from = -1};
    }
    return i < n ? halve(machine, power >> (i + 1), true) : halve(machine, 1 << (i - n), false);
}

const ddp_schedule_t *ddp_exchange_schedule(ddp_exchange_kind_t kind)
{
    static const ddp_schedule_t ring    = {ring_rounds, ring_pieces, ring_round};
    static const ddp_schedule_t halving = {halving_rounds, power_below, halving_round};

    return kind == DDP_EXCHANGE_HALVING ? &halving : &ring;
}

static int rounds(const ddp_exchange_t *x)
{
    return x->schedule->rounds(x->machines);
}

/* Pieces of a segment that are this rank's. */
static ddp_blocks_t pieces(const ddp_exchange_t *x, const ddp_lane_t *lane, int first, int end)
{
    const int    n = x->schedule->pieces(x->machines);
    ddp_blocks_t blocks;

    if (first == end) {
        return (ddp_blocks_t){0, 0};
    }
    blocks.first = ddp_blocks_cut(lane->blocks, n, first).first;
    blocks.end   = ddp_blocks_cut(lane->blocks, n, end - 1).end;
    return ddp_blocks_overlap(x->slice, blocks);
}

static ddp_status_t post(ddp_exchange_t *x, ddp_lane_t *lane)
{
    ddp_status_t       status = DDP_OK;
    const ddp_round_t  round  = x->schedule->round(x->machines, x->machine, lane->round);
    const ddp_blocks_t in     = pieces(x, lane, round.receive_first, round.receive_end);
    const ddp_blocks_t out    = pieces(x, lane, round.send_first, round.send_end);

    if (round.from >= 0) {
        DDP_TRY(ddp_exchange_receive(x, lane, round.from, in,
                                     round.adds ? lane->received : ddp_exchange_total(x, in.first),
                                     round.adds));
    }
    if (round.to >= 0) {
        DDP_TRY(ddp_exchange_send(x, lane, round.to, out, ddp_exchange_total(x, out.first), !round.adds));
    }
out:
    return status;
}

static void take(ddp_exchange_t *x, ddp_lane_t *lane)
{
    const ddp_round_t  round = x->schedule->round(x->machines, x->machine, lane->round);
    const ddp_blocks_t in    = pieces(x, lane, round.receive_first, round.receive_end);

    if (round.from >= 0 && round.adds && in.first < in.end) {
        ddp_block_add(x->data.isa, ddp_exchange_total(x, in.first), lane->received, in.end - in.first);
    }
}

const ddp_exchange_ops_t ddp_exchange_rounds_ops = {.rounds = rounds, .post = post, .take = take};
