/* Sums between machines: schedules played through in memory, bfloat16, and exchanges of every kind over MPI.
 */
#include <float.h>
#include <math.h>
#include <mpi.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "ddp/exchange_internal.h"
#include "tests/support/ddp_test.h"

#define MOST 20 /* machines */

static const ddp_exchange_kind_t kinds[] = {DDP_EXCHANGE_RING, DDP_EXCHANGE_HALVING, DDP_EXCHANGE_DIRECT};

/* Bit m of a piece: the summand of machine m is in it. */
typedef struct world {
    uint32_t piece[MOST][MOST];
} world_t;

/* What a machine gets in a round must be what the other one sends. */
static void play_round(const ddp_schedule_t *schedule, int machines, int t, const world_t *before,
                       world_t *after)
{
    *after = *before;
    for (int m = 0; m < machines; m++) {
        const ddp_round_t get = schedule->round(machines, m, t);
        ddp_round_t       send;

        if (get.from < 0) {
            continue;
        }
        send = schedule->round(machines, get.from, t);
        ck_assert_int_eq(send.to, m);
        ck_assert_int_eq(send.send_first, get.receive_first);
        ck_assert_int_eq(send.send_end, get.receive_end);
        for (int p = get.receive_first; p < get.receive_end; p++) {
            const uint32_t sent = before->piece[get.from][p];

            if (get.adds) {
                ck_assert_uint_eq(sent & before->piece[m][p], 0); /* nobody twice */
            }
            after->piece[m][p] = get.adds ? before->piece[m][p] | sent : sent;
        }
    }
    for (int m = 0; m < machines; m++) { /* and whoever sends is heard */
        const ddp_round_t send = schedule->round(machines, m, t);

        ck_assert(send.to < 0 || schedule->round(machines, send.to, t).from == m);
    }
}

START_TEST(every_schedule_ends_with_every_summand_once_on_all_machines)
{
    for (int k = 0; k < 2; k++) {
        const ddp_schedule_t *schedule = ddp_exchange_schedule(kinds[k]);

        for (int machines = 2; machines <= MOST; machines++) {
            world_t now = {{{0}}};
            world_t next;

            for (int m = 0; m < machines; m++) {
                for (int p = 0; p < schedule->pieces(machines); p++) {
                    now.piece[m][p] = 1U << m;
                }
            }
            for (int t = 0; t < schedule->rounds(machines); t++) {
                play_round(schedule, machines, t, &now, &next);
                now = next;
            }
            for (int m = 0; m < machines; m++) {
                for (int p = 0; p < schedule->pieces(machines); p++) {
                    ck_assert_uint_eq(now.piece[m][p], (1U << machines) - 1);
                }
            }
        }
    }
}
END_TEST

START_TEST(schedules_have_the_rounds_of_the_model)
{
    ck_assert_int_eq(ddp_exchange_schedule(DDP_EXCHANGE_RING)->rounds(5), 8);
    ck_assert_int_eq(ddp_exchange_schedule(DDP_EXCHANGE_HALVING)->rounds(8), 6);
    ck_assert_int_eq(ddp_exchange_schedule(DDP_EXCHANGE_HALVING)->rounds(9), 8);
}
END_TEST

START_TEST(bfloat16_is_the_nearest_with_ties_to_even)
{
    const float    values[]   = {1.0F, 1.00390625F, 1.01171875F, -3.0e-3F, 0.0F, -0.0F, INFINITY, 1.0e-40F};
    const float    expected[] = {1.0F, 1.0F, 1.015625F, -0x1.8ap-9F, 0.0F, -0.0F, INFINITY, 0x1p-133F};
    const size_t   n          = sizeof(values) / sizeof(values[0]);
    uint16_t       narrow[8];
    float          wide[8];
    const float    nan_in = NAN;
    float          nan_out;
    const uint64_t overflows = ddp_exchange_narrow(values, narrow, n);

    ck_assert_uint_eq(overflows, 0);
    ddp_exchange_widen(narrow, wide, n);
    ck_assert(memcmp(wide, expected, sizeof(expected)) == 0);
    ck_assert_uint_eq(ddp_exchange_narrow(&nan_in, narrow, 1), 0);
    ddp_exchange_widen(narrow, &nan_out, 1);
    ck_assert(isnan(nan_out));
}
END_TEST

START_TEST(values_that_become_infinite_are_counted)
{
    const float values[] = {FLT_MAX, -FLT_MAX, 3.38e38F, INFINITY, NAN, 1.0F};
    uint16_t    narrow[6];
    float       wide[6];

    ck_assert_uint_eq(ddp_exchange_narrow(values, narrow, 6), 2);
    ddp_exchange_widen(narrow, wide, 6);
    ck_assert(isinf(wide[0]) && isinf(wide[1]) && wide[1] < 0 && isfinite(wide[2]));
}
END_TEST

static ddp_comm_t *comm;
static float      *memory; /* of the machine */

#define MOST_BLOCKS ((size_t)3000)

static void open_comm(void)
{
    ddp_comm_params_t params = DDP_COMM_PARAMS_INIT;
    void             *shared = NULL;

    params.parent     = MPI_COMM_WORLD;
    params.timeout_ms = 20000;
    ddp_assert_ok(ddp_comm_create(&params, &comm));
    ddp_assert_ok(ddp_comm_shared(comm, "test", MOST_BLOCKS * DDP_BLOCK * sizeof(float), &shared));
    memory = shared;
}

static void close_comm(void)
{
    ddp_comm_destroy(&comm);
}

static ddp_blocks_t my_slice(size_t blocks)
{
    return ddp_blocks_cut((ddp_blocks_t){0, blocks}, ddp_comm_local_size(comm), ddp_comm_local_rank(comm));
}

static float value_of(int machine, size_t i, int use)
{
    return (float)((i * 7 + (size_t)machine * 3 + (size_t)use) % 11) - 5.0F;
}

/* One summand for each machine, or none of a machine that is `absent`. */
static ddp_status_t run_once(ddp_exchange_t *x, const size_t *nodes, const int32_t *op, size_t length,
                             int use, size_t blocks)
{
    const ddp_blocks_t slice  = my_slice(blocks);
    ddp_status_t       status = DDP_OK;
    int64_t            waited = 0;

    for (size_t i = slice.first * DDP_BLOCK; i < slice.end * DDP_BLOCK; i++) {
        memory[i] = value_of(ddp_comm_machine(comm), i, use);
    }
    DDP_TRY(ddp_exchange_start(x, &(ddp_exchange_data_t){.isa       = ddp_isa_detect(),
                                                         .node      = &memory,
                                                         .nodes     = nodes,
                                                         .op        = op,
                                                         .op_length = length,
                                                         .total     = memory}));
    while ((status = ddp_exchange_poll(x)) == DDP_IN_PROGRESS) {
        DDP_TRY(ddp_comm_idle(comm, waited));
        waited += 1000;
    }
out:
    return status;
}

static size_t count_wrong(const size_t *nodes, int use, size_t blocks)
{
    const ddp_blocks_t slice = my_slice(blocks);
    size_t             wrong = 0;

    for (size_t i = slice.first * DDP_BLOCK; i < slice.end * DDP_BLOCK; i++) {
        float sum = 0;

        for (int m = 0; m < ddp_comm_machines(comm); m++) {
            sum += nodes[m] > 0 ? value_of(m, i, use) : 0;
        }
        wrong += memory[i] != sum;
    }
    return wrong;
}

/* ((n0 + n1) + n2) ... of the machines that have something */
static size_t make_program(const size_t *nodes, int32_t *op)
{
    size_t  length = 0;
    int32_t n      = 0;

    for (int m = 0; m < ddp_comm_machines(comm); m++) {
        if (nodes[m] > 0) {
            op[length++] = n++;
            if (n > 1) {
                op[length++] = DDP_TREE_ADD;
            }
        }
    }
    return length;
}

static bool sums_are_right(ddp_exchange_kind_t kind, bool bf16, size_t blocks, int absent)
{
    size_t                nodes[MOST];
    int32_t               op[2 * MOST];
    ddp_exchange_t       *x      = NULL;
    ddp_exchange_params_t params = {
        .comm = comm, .kind = kind, .blocks = blocks, .bf16 = bf16, .first_tag = 7};
    bool   is_ok = ddp_exchange_create(&params, &x) == DDP_OK;
    size_t length;

    for (int m = 0; m < ddp_comm_machines(comm); m++) {
        nodes[m] = m == absent ? 0 : 1;
    }
    length = make_program(nodes, op);
    for (int use = 0; use < 3 && is_ok; use++) {
        is_ok = run_once(x, nodes, op, length, use, blocks) == DDP_OK && count_wrong(nodes, use, blocks) == 0;
    }
    is_ok = is_ok && ddp_exchange_take_overflows(x) == 0;
    ddp_exchange_destroy(&x, !is_ok);
    return is_ok;
}

START_TEST(all_kinds_sum_ranges_of_any_size)
{
    const size_t sizes[] = {1, 3, 131, 1000, MOST_BLOCKS};

    for (size_t s = 0; ddp_comm_machines(comm) > 1 && s < 5; s++) {
        for (size_t k = 0; k < 3; k++) {
            ddp_assert_all(sums_are_right(kinds[k], false, sizes[s], -1));
            ddp_assert_all(sums_are_right(kinds[k], true, sizes[s], -1));
        }
    }
}
END_TEST

START_TEST(a_machine_without_a_summand_gets_the_sum_of_the_others)
{
    for (int absent = 0; ddp_comm_machines(comm) > 1 && absent < ddp_comm_machines(comm); absent++) {
        for (size_t k = 0; k < 3; k++) {
            ddp_assert_all(sums_are_right(kinds[k], false, 700, absent));
        }
    }
}
END_TEST

/* What a rank gets and what its buffers need, against the bytes that no way can avoid: (p - 1) / p of its
 * slice to be added, and as much of the total. */
START_TEST(traffic_is_that_of_the_model)
{
    const size_t blocks   = 840;
    const int    machines = ddp_comm_machines(comm);
    const double slice =
        (double)((my_slice(blocks).end - my_slice(blocks).first) * DDP_BLOCK * sizeof(float));
    size_t   nodes[MOST];
    uint64_t from[MOST];

    for (int m = 0; m < machines; m++) {
        nodes[m] = 1;
    }
    for (size_t k = 0; machines > 1 && k < 3; k += 2) { /* of ring and direct all machines have alike */
        ddp_exchange_t       *x      = NULL;
        ddp_exchange_params_t params = {.comm = comm, .kind = kinds[k], .blocks = blocks};
        double                bytes  = 0;
        double                all    = 0;

        memset(from, 0, sizeof(from));
        ddp_assert_ok(ddp_exchange_create(&params, &x));
        ddp_exchange_traffic(x, nodes, from);
        ck_assert_uint_eq(from[ddp_comm_rank(comm)], 0);
        for (int r = 0; r < ddp_comm_size(comm); r++) {
            bytes += (double)from[r];
        }
        MPI_Allreduce(&bytes, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        ck_assert(all == 2.0 * (machines - 1) * (double)(blocks * DDP_BLOCK * sizeof(float)));
        ck_assert(bytes <= 2 * slice);
        ddp_exchange_destroy(&x, false);
    }
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite    = suite_create("exchange");
    TCase *local    = tcase_create("local");
    TCase *machines = tcase_create("machines");

    tcase_add_test(local, every_schedule_ends_with_every_summand_once_on_all_machines);
    tcase_add_test(local, schedules_have_the_rounds_of_the_model);
    tcase_add_test(local, bfloat16_is_the_nearest_with_ties_to_even);
    tcase_add_test(local, values_that_become_infinite_are_counted);
    suite_add_tcase(suite, local);
    tcase_add_checked_fixture(machines, open_comm, close_comm);
    tcase_add_test(machines, all_kinds_sum_ranges_of_any_size);
    tcase_add_test(machines, a_machine_without_a_summand_gets_the_sum_of_the_others);
    tcase_add_test(machines, traffic_is_that_of_the_model);
    suite_add_tcase(suite, machines);
    return suite;
}

int main(int argc, char **argv)
{
    return ddp_test_run_mpi(&argc, &argv, make_suite);
}
