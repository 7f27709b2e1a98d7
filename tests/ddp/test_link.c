/* The model of links against closed forms, and that measuring ends with the same figures everywhere. */
#include <math.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "ddp/comm.h"
#include "ddp/link.h"
#include "tests/support/ddp_test.h"

static ddp_comm_t *comm;

static void open_comm(void)
{
    ddp_comm_params_t params = DDP_COMM_PARAMS_INIT;

    params.parent     = MPI_COMM_WORLD;
    params.timeout_ms = 20000;
    ddp_assert_ok(ddp_comm_create(&params, &comm));
}

static void close_comm(void)
{
    ddp_comm_destroy(&comm);
}

static const ddp_exchange_kind_t kinds[] = {DDP_EXCHANGE_DIRECT, DDP_EXCHANGE_RING, DDP_EXCHANGE_HALVING};

static double between(const ddp_link_t *link, ddp_exchange_kind_t kind, int machines, double bytes,
                      int segments)
{
    const ddp_link_work_t work = {kind, machines, 1, bytes, 1, segments};

    return ddp_link_between_s(link, &work);
}

static void expect(double value, double wanted)
{
    ck_assert_msg(fabs(value - wanted) <= 1e-9 * fabs(wanted), "%.12g instead of %.12g", value, wanted);
}

/* 1 MB/s and 10 ms: a megabyte among 4 takes 1.5 s of sending, and 2, 6 or 4 latencies. */
START_TEST(times_of_four_machines_are_those_of_the_closed_forms)
{
    const ddp_link_t link = {.latency_s = 0.01, .bytes_per_s = 1e6};

    expect(between(&link, DDP_EXCHANGE_DIRECT, 4, 1e6, 1), 1.52);
    expect(between(&link, DDP_EXCHANGE_RING, 4, 1e6, 1), 1.56);
    expect(between(&link, DDP_EXCHANGE_HALVING, 4, 1e6, 1), 1.54);
}
END_TEST

START_TEST(without_latency_all_ways_move_the_bytes_that_no_way_can_avoid)
{
    const ddp_link_t link = {.bytes_per_s = 1e6, .spread_per_s = 1e6};

    for (int machines = 2; machines <= 64; machines *= 2) {
        for (size_t k = 0; k < 3; k++) {
            expect(between(&link, kinds[k], machines, 8e6, 3), 2 * (machines - 1.0) / machines * 8);
        }
    }
}
END_TEST

START_TEST(a_machine_beyond_a_power_of_two_moves_everything_twice_more)
{
    const ddp_link_t link = {.latency_s = 0.01, .bytes_per_s = 1e6};

    expect(between(&link, DDP_EXCHANGE_HALVING, 5, 1e6, 1),
           between(&link, DDP_EXCHANGE_HALVING, 4, 1e6, 1) + 0.02 + 2);
}
END_TEST

/* Segments hide sums, not the work of sending messages. */
START_TEST(segments_cost_overhead_and_hide_additions)
{
    const ddp_link_t link = {.overhead_s = 0.001, .bytes_per_s = 1e6, .added_bytes_per_s = 1e6};

    expect(between(&link, DDP_EXCHANGE_RING, 2, 1e6, 1), 2 * 0.001 + 1 + 0.5);
    expect(between(&link, DDP_EXCHANGE_RING, 2, 1e6, 5), 10 * 0.001 + 1 + 0.1);
    expect(between(&link, DDP_EXCHANGE_DIRECT, 3, 0, 2), 2 * 2 * 2 * 0.001);
}
END_TEST

START_TEST(partial_sums_of_a_tree_are_sent_each)
{
    const ddp_link_t      link = {.bytes_per_s = 2e6, .spread_per_s = 1e6};
    const ddp_link_work_t work = {DDP_EXCHANGE_DIRECT, 2, 1, 1e6, 3, 1};

    expect(ddp_link_between_s(&link, &work), 0.5 * 3 + 0.5);
}
END_TEST

START_TEST(ranks_of_a_machine_add_their_slices_first_and_share_the_work)
{
    const ddp_link_t      link = {.bytes_per_s = 1e6, .added_bytes_per_s = 1e6};
    const ddp_link_work_t work = {DDP_EXCHANGE_RING, 2, 4, 1e6, 1, 1};
    const ddp_link_work_t here = {DDP_EXCHANGE_RING, 1, 4, 1e6, 1, 1};

    expect(ddp_link_time_s(&link, &here), 3 * 0.25);
    expect(ddp_link_time_s(&link, &work), 3 * 0.25 + 1 + 0.5 / 4);
    ck_assert(ddp_link_between_s(&link, &here) == 0);
}
END_TEST

static ddp_exchange_kind_t choice(const ddp_link_t *link, int machines, double bytes)
{
    const ddp_link_work_t work = {DDP_EXCHANGE_AUTO, machines, 1, bytes, 1, 1};

    return ddp_link_choose(link, &work);
}

START_TEST(the_choice_is_the_least_time)
{
    const ddp_link_t fast    = {.latency_s         = 2e-6,
                                .overhead_s        = 1e-6,
                                .bytes_per_s       = 1e9,
                                .spread_per_s      = 1e9,
                                .added_bytes_per_s = 1e10};
    const ddp_link_t crowded = {
        .latency_s = 1e-4, .overhead_s = 1e-6, .bytes_per_s = 1e8, .spread_per_s = 4e7};

    ck_assert_int_eq(choice(&fast, 2, 1e6), DDP_EXCHANGE_DIRECT);
    ck_assert_int_eq(choice(&fast, 256, 1024), DDP_EXCHANGE_HALVING); /* 16 rounds, not 510 messages */
    ck_assert_int_eq(choice(&crowded, 6, 25e6),
                     DDP_EXCHANGE_RING); /* all at once share badly; 6 is no power of 2 */
    ck_assert_int_eq(choice(&(ddp_link_t){0}, 8, 1e6), DDP_EXCHANGE_DIRECT);
}
END_TEST

/* The least of all ways, whatever the link. */
START_TEST(no_other_kind_is_faster_than_the_chosen_one)
{
    for (int i = 0; i < 1000; i++) {
        const ddp_link_t      link = {.latency_s    = 1e-7 * pow(10, i % 5),
                                      .overhead_s   = 1e-7 * pow(10, i % 3),
                                      .bytes_per_s  = 1e7 * pow(10, i % 4),
                                      .spread_per_s = 0.7e7 * pow(10, i % 4)};
        const int             p    = 2 + i % 37;
        const ddp_link_work_t work = {choice(&link, p, 100.0 * i * i), p, 1, 100.0 * i * i, 1, 1};

        for (size_t k = 0; k < 3; k++) {
            ck_assert(ddp_link_between_s(&link, &work) <= between(&link, kinds[k], p, 100.0 * i * i, 1));
        }
    }
}
END_TEST

static bool is_same_everywhere(const void *data, size_t bytes)
{
    char *first   = calloc(1, bytes);
    bool  is_same = false;

    memcpy(first, data, bytes);
    ddp_assert_ok(ddp_comm_broadcast(comm, first, bytes, 0));
    is_same = memcmp(first, data, bytes) == 0;
    free(first);
    return is_same;
}

START_TEST(a_measured_link_is_the_same_on_all_ranks)
{
    ddp_link_params_t params = DDP_LINK_PARAMS_INIT;
    ddp_link_t        link;
    const bool        is_one = ddp_comm_machines(comm) == 1;

    params.most_bytes = 300000;
    params.rounds     = 2;
    params.limit_ms   = 100;
    ddp_assert_all(ddp_link_measure(comm, &params, &link) == DDP_OK);
    ddp_assert_all(is_same_everywhere(&link, sizeof(link)));
    ddp_assert_all(link.added_bytes_per_s > 0);
    ddp_assert_all((link.latency_s > 0) == !is_one);
    ddp_assert_all((link.bytes_per_s > 0) == !is_one && (link.spread_per_s > 0) == !is_one);
    ddp_assert_all(link.overhead_s >= 0);
}
END_TEST

START_TEST(measured_pairs_are_the_same_both_ways_and_on_all_ranks)
{
    ddp_link_params_t params = DDP_LINK_PARAMS_INIT;
    const int         n      = ddp_comm_machines(comm);
    ddp_link_t       *pairs  = calloc((size_t)n * (size_t)n, sizeof(*pairs));

    params.most_bytes = 70000;
    params.rounds     = 2;
    ddp_assert_all(ddp_link_measure_pairs(comm, &params, pairs) == DDP_OK);
    ddp_assert_all(is_same_everywhere(pairs, (size_t)n * (size_t)n * sizeof(*pairs)));
    for (int a = 0; a < n; a++) {
        for (int b = 0; b < n; b++) {
            const ddp_link_t *there = &pairs[a * n + b];

            ddp_assert_all((there->latency_s > 0 && there->bytes_per_s > 0) == (a != b));
            ddp_assert_all(memcmp(there, &pairs[b * n + a], sizeof(*there)) == 0);
        }
    }
    free(pairs);
}
END_TEST

START_TEST(parameters_without_sense_are_refused)
{
    ddp_link_params_t params = DDP_LINK_PARAMS_INIT;
    ddp_link_t        link   = {.latency_s = 7};

    params.rounds = 0;
    ddp_assert_all(ddp_link_measure(comm, &params, &link) == DDP_ERR_INVALID_ARG);
    params            = (ddp_link_params_t)DDP_LINK_PARAMS_INIT;
    params.most_bytes = 1;
    ddp_assert_all(ddp_link_measure(comm, &params, &link) == DDP_ERR_INVALID_ARG);
    ddp_assert_all(link.latency_s == 7);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite   = suite_create("link");
    TCase *model   = tcase_create("model");
    TCase *measure = tcase_create("measure");

    tcase_add_test(model, times_of_four_machines_are_those_of_the_closed_forms);
    tcase_add_test(model, without_latency_all_ways_move_the_bytes_that_no_way_can_avoid);
    tcase_add_test(model, a_machine_beyond_a_power_of_two_moves_everything_twice_more);
    tcase_add_test(model, segments_cost_overhead_and_hide_additions);
    tcase_add_test(model, partial_sums_of_a_tree_are_sent_each);
    tcase_add_test(model, ranks_of_a_machine_add_their_slices_first_and_share_the_work);
    tcase_add_test(model, the_choice_is_the_least_time);
    tcase_add_test(model, no_other_kind_is_faster_than_the_chosen_one);
    suite_add_tcase(suite, model);
    tcase_add_checked_fixture(measure, open_comm, close_comm);
    tcase_add_test(measure, a_measured_link_is_the_same_on_all_ranks);
    tcase_add_test(measure, measured_pairs_are_the_same_both_ways_and_on_all_ranks);
    tcase_add_test(measure, parameters_without_sense_are_refused);
    suite_add_tcase(suite, measure);
    return suite;
}

int main(int argc, char **argv)
{
    return ddp_test_run_mpi(&argc, &argv, make_suite);
}
