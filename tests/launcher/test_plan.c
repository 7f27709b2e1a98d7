#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launcher/plan.h"
#include "tests/support/ddp_test.h"

#define MIB 1048576.0
#define FEW 1e-12

static ddp_plan_bucket_t two[] = {{4 * MIB, 0.06}, {4 * MIB, 0}};

/* 8 micro-batches, each 0.04 s forward and 0.08 s backward, two buckets of 4 MiB. */
static ddp_plan_run_t make_run(void)
{
    return (ddp_plan_run_t){.ranks         = 1,
                            .machines      = 1,
                            .micro_batches = 8,
                            .batch         = 64,
                            .forward_s     = 0.04,
                            .backward_s    = 0.08,
                            .cap_bytes     = 4 * MIB,
                            .bucket        = two,
                            .n             = 2};
}

static ddp_plan_place_t make_place(size_t nodes, size_t ranks, size_t most)
{
    return (ddp_plan_place_t){.nodes     = nodes,
                              .ranks     = ranks,
                              .link      = {.bytes_per_s = 1e9, .spread_per_s = 1e9},
                              .cap_bytes = 4 * MIB,
                              .most      = most};
}

static ddp_plan_time_t step_of(const ddp_plan_run_t *run, const ddp_plan_place_t *place)
{
    ddp_plan_time_t time;

    ddp_assert_ok(ddp_plan_step(run, place, &time));
    return time;
}

START_TEST(without_work_and_links_a_step_is_what_it_computes)
{
    ddp_plan_run_t   run   = make_run();
    ddp_plan_place_t place = make_place(1, 4, 2);

    run.rest_s = 0.01;
    ck_assert_double_eq_tol(step_of(&run, &place).step_s, 2 * 0.12 + 0.01, FEW);
    ck_assert_double_eq_tol(step_of(&run, &place).exposed_s, 0, FEW);
}
END_TEST

/* Two nodes: half of a bucket goes out and as much comes back, twice over the latency; sums of losses before.
 */
START_TEST(a_bucket_that_is_ready_at_the_end_is_exposed)
{
    ddp_plan_run_t   run   = make_run();
    ddp_plan_place_t place = make_place(2, 1, 4);
    ddp_plan_time_t  time;

    run.bucket           = &two[1];
    run.n                = 1;
    place.link.latency_s = 0.001;
    time                 = step_of(&run, &place);
    ck_assert_double_eq_tol(time.wire_s, 4 * MIB / 1e9 + 2 * 0.001, FEW);
    ck_assert_double_eq_tol(time.exposed_s, time.wire_s + 2 * 0.001, FEW);
    ck_assert_double_eq_tol(time.step_s, 4 * 0.12 + time.exposed_s, FEW);
}
END_TEST

START_TEST(what_goes_between_nodes_during_backward_is_hidden)
{
    ddp_plan_run_t   run   = make_run();
    ddp_plan_place_t place = make_place(2, 1, 4);
    const double     one   = 4 * MIB / 1e9; /* of a bucket; the first has 0.06 s */

    ck_assert_double_eq_tol(step_of(&run, &place).exposed_s, one, FEW);
    place.link.spread_per_s = place.link.bytes_per_s = 1e9 / 20; /* 0.084 s each: the first is late as well */
    ck_assert_double_eq_tol(step_of(&run, &place).exposed_s, 2 * 20 * one - 0.06, FEW);
    run.is_gpu = true; /* without work it makes no difference who does it */
    ck_assert_double_eq_tol(step_of(&run, &place).exposed_s, 2 * 20 * one - 0.06, FEW);
}
END_TEST

/* Latencies of 8 nodes one after the other: direct two, halving six, ring fourteen. */
START_TEST(buckets_go_between_nodes_as_configured)
{
    static const struct {
        ddp_exchange_kind_t asked, used;
        double              latencies;
    } cases[]              = {{DDP_EXCHANGE_AUTO, DDP_EXCHANGE_DIRECT, 2},
                              {DDP_EXCHANGE_DIRECT, DDP_EXCHANGE_DIRECT, 2},
                              {DDP_EXCHANGE_HALVING, DDP_EXCHANGE_HALVING, 6},
                              {DDP_EXCHANGE_RING, DDP_EXCHANGE_RING, 14}};
    ddp_plan_run_t   run   = make_run();
    ddp_plan_place_t place = make_place(8, 1, 1);

    run.bucket           = &two[1];
    run.n                = 1;
    place.link.latency_s = 1;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        run.exchange = cases[i].asked;
        ck_assert_int_eq((int)step_of(&run, &place).kind, (int)cases[i].used);
        ck_assert_double_eq_tol(step_of(&run, &place).wire_s, cases[i].latencies + 2 * 4 * MIB / 1e9 * 7 / 8,
                                FEW);
    }
    place.link   = (ddp_link_t){.bytes_per_s = 1e9, .spread_per_s = 1e6}; /* a crowded switch */
    run.exchange = DDP_EXCHANGE_AUTO;
    ck_assert_int_eq((int)step_of(&run, &place).kind, (int)DDP_EXCHANGE_DIRECT);
    run.exchange = DDP_EXCHANGE_MEASURED;
    ck_assert_int_eq((int)step_of(&run, &place).kind, (int)DDP_EXCHANGE_RING);
}
END_TEST

/* AdamW passes 7 times over memory; with two ranks each updates half of it and reads one summand more. */
START_TEST(work_goes_by_passes_over_memory)
{
    ddp_plan_run_t   run   = make_run();
    ddp_plan_place_t place = make_place(1, 1, 8);

    run.work_s = 0.028; /* of 8 micro-batches: 7 + 3 * 7 = 28 passes */
    ck_assert_double_eq_tol(step_of(&run, &place).work_s, 0.028, FEW);
    ck_assert_double_eq_tol(step_of(&run, &place).step_s, 8 * 0.12 + 0.028, FEW);
    place = make_place(1, 2, 4);
    ck_assert_double_eq_tol(step_of(&run, &place).work_s, 0.001 * (7.0 / 2 + 1.0 / 2 + 3 * 3), FEW);
    run.ranks = 2; /* measured by two ranks, with 13 passes each */
    ck_assert_double_eq_tol(step_of(&run, &place).work_s, 0.028, FEW);
}
END_TEST

/* Updates of the first bucket fit into backward, but clipping waits for the norm of all. */
START_TEST(updates_wait_for_all_buckets_with_clipping)
{
    ddp_plan_run_t   run   = make_run();
    ddp_plan_place_t place = make_place(2, 1, 4);
    double           early;

    run.micro_batches = 1;
    run.work_s        = 0.02; /* 0.01 each to update */
    place.most        = 1;
    early             = step_of(&run, &place).exposed_s;
    ck_assert_double_eq_tol(early, 4 * MIB / 1e9 + 0.01, FEW);
    run.is_late = true;
    ck_assert_double_eq_tol(step_of(&run, &place).exposed_s, 4 * MIB / 1e9 + 0.02, FEW);
}
END_TEST

START_TEST(buckets_are_joined_up_to_the_cap)
{
    ddp_plan_bucket_t small[] = {{MIB, 0.04}, {MIB, 0.03}, {MIB, 0.02}, {3 * MIB, 0.01}, {MIB, 0}};
    ddp_plan_run_t    run     = make_run();
    ddp_plan_place_t  place   = make_place(2, 1, 1);

    run.bucket      = small;
    run.n           = 5;
    place.cap_bytes = 2 * MIB; /* 1+1, 1, 3, 1 */
    ck_assert_uint_eq(step_of(&run, &place).buckets, 4);
    place.cap_bytes = 4 * MIB; /* 1+1+1, 3+1 */
    ck_assert_uint_eq(step_of(&run, &place).buckets, 2);
    place.cap_bytes = 0;
    ck_assert_uint_eq(step_of(&run, &place).buckets, 5);
}
END_TEST

START_TEST(rows_say_speed_up_efficiency_and_where_micro_batches_run_out)
{
    static ddp_plan_t plan;

    plan                          = (ddp_plan_t){.run = make_run()};
    plan.options.nodes[0]         = 1;
    plan.options.nodes[1]         = 4;
    plan.options.nodes[2]         = 8;
    plan.options.n_nodes          = 3;
    plan.options.ranks            = 2;
    plan.options.link.bytes_per_s = plan.options.link.spread_per_s = 1e15;
    ddp_assert_ok(ddp_plan_make(&plan));
    ck_assert_uint_eq(plan.n, 3);
    ck_assert_double_eq_tol(plan.row[0].speedup, 2, 1e-6);
    ck_assert_double_eq_tol(plan.row[1].speedup, 8, 1e-6);
    ck_assert_double_eq_tol(plan.row[1].efficiency, 1, 1e-6);
    ck_assert_double_eq_tol(plan.row[1].samples_per_s, 64 / 0.12, 1e-2);
    ck_assert(plan.row[2].is_too_many);
    ck_assert_double_eq_tol(plan.row[2].weak, 1, 1e-6);
    ck_assert_double_eq(plan.row[1].best_cap_bytes, 4 * MIB); /* among equals the one that is set */
}
END_TEST

START_TEST(a_link_is_a_rate_and_a_latency)
{
    static const char *const wrong[] = {"",
                                        "100Gbit",
                                        "100Gbit,",
                                        ",2us",
                                        "100,2us",
                                        "100Gbit,2",
                                        "0Gbit,2us",
                                        "-1Gbit,2us",
                                        "1Gbit;2us",
                                        "1Gbit,2us,",
                                        "infGbit,2us",
                                        "nan,nan",
                                        "1e400Gbit,1s",
                                        "1GBit,1us",
                                        "1 Gbit,1us",
                                        "1e300Gbit,1us",
                                        "1e-320Kbit,0us",
                                        "0.9Kbit,1us",
                                        "1Gbit,61s",
                                        "1Gbit,1e300s"};
    ddp_link_t               link;

    ddp_assert_ok(ddp_plan_parse_link("100Gbit,2us", &link));
    ck_assert_double_eq_tol(link.bytes_per_s, 12.5e9, 1);
    ck_assert_double_eq_tol(link.latency_s, 2e-6, 1e-15);
    ddp_assert_ok(ddp_plan_parse_link("2.5Mbit,0.3ms", &link));
    ck_assert_double_eq_tol(link.bytes_per_s, 312500, 1e-6);
    ck_assert_double_eq_tol(link.latency_s, 3e-4, 1e-12);
    ddp_assert_ok(ddp_plan_parse_link("1Kbit,60s", &link));
    ddp_assert_ok(ddp_plan_parse_link("1000000Tbit,0us", &link));
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        ddp_assert_fails(ddp_plan_parse_link(wrong[i], &link), DDP_ERR_CONFIG, "100Gbit,2us");
    }
}
END_TEST

/* Gigabit Ethernet carries at most 941 Mbit/s over TCP with time stamps, 990 with jumbo frames: figures that
 * iperf's users know. */
START_TEST(headers_of_tcp_take_their_part_of_the_rate)
{
    char *const        argv[] = {"plan", "--link", "1Gbit,50us", "--mtu", "1500"};
    ddp_plan_options_t options;

    ck_assert_double_eq_tol(ddp_plan_payload(1500), 0.9415, 1e-4);
    ck_assert_double_eq_tol(ddp_plan_payload(9000), 0.9900, 1e-4);
    ddp_assert_ok(ddp_plan_options_parse(5, argv, &options));
    ck_assert_double_eq_tol(options.link.bytes_per_s * 8, 941.5e6, 1e5);
    ck_assert_double_eq_tol(options.link.spread_per_s * 8, 941.5e6, 1e5);
    ddp_assert_ok(ddp_plan_options_parse(3, argv, &options));
    ck_assert_double_eq_tol(options.link.bytes_per_s * 8, 1e9, 1);
}
END_TEST

static void write_run(const char *folder, const char *text)
{
    char  path[128];
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s/metrics.jsonl", folder);
    file = fopen(path, "we");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs(text, file), 0);
    ck_assert_int_eq(fclose(file), 0);
}

#define START_ON(machines)                                                                                   \
    "{\"event\":\"start\",\"ranks\":2,\"machines\":" #machines                                               \
    ",\"micro_batches\":4,\"buckets\":2,\"parameters\":100,"                                                 \
    "\"config\":{\"train.mode\":\"ddp\",\"train.batch\":\"64\",\"ddp.bucket_cap_mb\":\"25\","                \
    "\"model.kind\":\"mlp\",\"optimizer.clip_norm\":\"0\",\"ddp.exchange\":\"measured\"}}\n"
#define START START_ON(1)
/* 2 micro-batches: forward 4 ms of it waiting 1, backward 10 of it 2 hidden, work 3, 1 of it exposed. */
#define STEP                                                                                                 \
    "{\"event\":\"step\",\"step\":1,\"step_ms\":15.5,\"forward_ms\":4,\"backward_ms\":10,\"comm_ms\":4,"     \
    "\"overlap\":0.5,\"exposed_comm_ms\":1,\"data_wait_ms\":1,\"bucket_times\":{\"bytes\":[1000,3000],"      \
    "\"ready_ms\":[9,14],\"launched_ms\":[9,14],\"done_ms\":[10,15]}}\n"

START_TEST(a_run_is_read_without_what_it_hides)
{
    char           folder[] = "/tmp/test_plan.XXXXXX";
    char           path[128];
    ddp_plan_run_t run;

    ck_assert_ptr_nonnull(mkdtemp(folder));
    write_run(folder, START STEP STEP "damaged\n" STEP "{\"event\":\"step\",\"step_ms\":");
    ddp_assert_ok(ddp_plan_read(folder, &run));
    ck_assert_uint_eq(run.ranks, 2);
    ck_assert_uint_eq(run.micro_batches, 4);
    ck_assert_int_eq((int)run.exchange, (int)DDP_EXCHANGE_MEASURED);
    ck_assert_double_eq_tol(run.forward_s, 1.5e-3, FEW);
    ck_assert_double_eq_tol(run.backward_s, 4e-3, FEW);
    ck_assert_double_eq_tol(run.work_s, 4e-3, FEW);
    ck_assert_double_eq_tol(run.rest_s, 0.5e-3, FEW);
    ck_assert_uint_eq(run.n, 2);
    ck_assert_double_eq(run.bucket[1].bytes, 3000);
    ck_assert_double_eq_tol(run.bucket[0].before_s, 5e-3 * 4 / 6, FEW); /* 4 of 6 ms are backward's own */
    ck_assert_double_eq(run.bucket[1].before_s, 0);
    ck_assert(!run.is_even);
    ddp_plan_run_free(&run);
    (void)snprintf(path, sizeof(path), "%s/metrics.jsonl", folder);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(rmdir(folder), 0);
}
END_TEST

START_TEST(a_run_that_does_not_tell_enough_is_refused)
{
    char           folder[] = "/tmp/test_plan.XXXXXX";
    char           path[128];
    ddp_plan_run_t run;

    ck_assert_ptr_nonnull(mkdtemp(folder));
    ddp_assert_fails(ddp_plan_read(folder, &run), DDP_ERR_IO, "metrics.jsonl");
    write_run(folder, STEP "[1,2]\n\"text\"\n");
    ddp_assert_fails(ddp_plan_read(folder, &run), DDP_ERR_FORMAT, "no run has begun");
    ddp_plan_run_free(&run);
    write_run(folder, START);
    ddp_assert_fails(ddp_plan_read(folder, &run), DDP_ERR_FORMAT, "no step");
    ddp_plan_run_free(&run);
    write_run(folder, START_ON(2) STEP); /* what it calls its work waits for a link */
    ddp_assert_fails(ddp_plan_read(folder, &run), DDP_ERR_FORMAT, "was made on 2 machines");
    ddp_plan_run_free(&run);
    (void)snprintf(path, sizeof(path), "%s/metrics.jsonl", folder);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(rmdir(folder), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("plan");
    TCase *tcase = tcase_create("all");

    tcase_add_test(tcase, without_work_and_links_a_step_is_what_it_computes);
    tcase_add_test(tcase, a_bucket_that_is_ready_at_the_end_is_exposed);
    tcase_add_test(tcase, what_goes_between_nodes_during_backward_is_hidden);
    tcase_add_test(tcase, buckets_go_between_nodes_as_configured);
    tcase_add_test(tcase, work_goes_by_passes_over_memory);
    tcase_add_test(tcase, updates_wait_for_all_buckets_with_clipping);
    tcase_add_test(tcase, buckets_are_joined_up_to_the_cap);
    tcase_add_test(tcase, rows_say_speed_up_efficiency_and_where_micro_batches_run_out);
    tcase_add_test(tcase, a_link_is_a_rate_and_a_latency);
    tcase_add_test(tcase, headers_of_tcp_take_their_part_of_the_rate);
    tcase_add_test(tcase, a_run_is_read_without_what_it_hides);
    tcase_add_test(tcase, a_run_that_does_not_tell_enough_is_refused);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
