/* Every kind of fault as a table of ranks, without processes: three machines of 2, 3 and 1 ranks. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "ddp/monitor_internal.h"
#include "tests/support/ddp_test.h"

#define SIZE    6
#define SECOND  (1000 * DDP_NS_PER_MS)
#define NOW     (1000 * SECOND)
#define LIMIT_S 60
#define DEAF_S  2

static const int  machine_of[SIZE] = {0, 0, 1, 1, 1, 2};
static ddp_view_t view[SIZE];
static bool       is_drowsy;
static double     limit_s = LIMIT_S;

static int64_t ago(double seconds)
{
    return NOW - (int64_t)(seconds * (double)SECOND);
}

/* All ranks work, and were heard of and got on just now. */
static void begin(void)
{
    for (int r = 0; r < SIZE; r++) {
        view[r] = (ddp_view_t){.moved_ns    = ago(0.1),
                               .beat_ns     = ago(0.1),
                               .heard_ns    = ago(0.2),
                               .life_ns     = ago(500),
                               .step        = 17,
                               .phase       = DDP_STAGE_BACKWARD,
                               .bucket      = 2,
                               .waits_for   = -1,
                               .wait_status = DDP_EXIT_UNKNOWN};
    }
}

static void set_life(int rank, ddp_life_t life, double seconds)
{
    view[rank].life    = life;
    view[rank].life_ns = ago(seconds);
}

static void wait_for(int rank, int other, double seconds)
{
    view[rank].waits_for = other;
    view[rank].moved_ns  = ago(seconds);
}

static ddp_verdict_t judge(void)
{
    const ddp_court_t court = {
        view, machine_of, SIZE, NOW, (int64_t)(limit_s * (double)SECOND), DEAF_S * SECOND, is_drowsy};
    ddp_verdict_t verdict = {.kind = DDP_FAULT_NONE, .rank = -1};

    if (!ddp_monitor_judge(&court, &verdict)) {
        verdict.kind = DDP_FAULT_NONE;
    }
    return verdict;
}

static ddp_verdict_t expect(ddp_fault_kind_t kind, int rank)
{
    const ddp_verdict_t verdict = judge();

    ck_assert_int_eq(verdict.kind, kind);
    if (kind != DDP_FAULT_NONE) {
        ck_assert_int_eq(verdict.rank, rank);
    }
    return verdict;
}

START_TEST(a_limit_shorter_than_reports_are_apart_misses_nobody)
{
    begin();
    limit_s = 0.1;
    for (int r = 0; r < SIZE; r++) {
        view[r].heard_ns = ago(1.9);
    }
    (void)expect(DDP_FAULT_NONE, -1);
    view[5].heard_ns = ago(2.1);
    (void)expect(DDP_FAULT_SILENT, 5);
    limit_s = LIMIT_S;
}
END_TEST

START_TEST(nothing_is_wrong_with_ranks_that_move)
{
    begin();
    expect(DDP_FAULT_NONE, -1);
}
END_TEST

START_TEST(a_rank_that_has_ended_is_named_with_its_signal_and_place)
{
    ddp_verdict_t verdict;

    begin();
    set_life(3, DDP_LIFE_ENDED, 0.3);
    view[3].wait_status = 9; /* as waitpid() has it: signal 9 */
    verdict             = expect(DDP_FAULT_ENDED, 3);
    ck_assert_int_eq(verdict.signal, 9);
    ck_assert_uint_eq(verdict.step, 17);
    ck_assert_int_eq(verdict.phase, DDP_STAGE_BACKWARD);
    ck_assert_uint_eq(verdict.bucket, 2);
    ck_assert(!verdict.is_whole_machine);
    view[3].wait_status = 3 << 8; /* exit(3) */
    verdict             = expect(DDP_FAULT_ENDED, 3);
    ck_assert_int_eq(verdict.signal, 0);
    ck_assert_int_eq(verdict.code, 3);
}
END_TEST

START_TEST(who_has_just_ended_may_still_have_said_why)
{
    begin();
    set_life(3, DDP_LIFE_ENDED, 0.01);
    expect(DDP_FAULT_NONE, -1);
    set_life(3, DDP_LIFE_FAILED, 0.01);
    expect(DDP_FAULT_FAILED, 3);
}
END_TEST

/* It should have said that it is done; but a port that is closed does not tell who was not done. */
START_TEST(who_ends_in_the_shutdown_is_named_at_once_where_that_was_seen)
{
    begin();
    set_life(3, DDP_LIFE_ENDED, 0.1);
    view[3].phase = DDP_STAGE_SHUTDOWN;
    expect(DDP_FAULT_ENDED, 3);
    view[3].is_inferred = true;
    expect(DDP_FAULT_NONE, -1);
    set_life(3, DDP_LIFE_ENDED, 2.1);
    expect(DDP_FAULT_ENDED, 3);
}
END_TEST

START_TEST(the_first_that_ended_is_named_not_who_followed)
{
    begin();
    set_life(1, DDP_LIFE_ENDED, 0.2);
    set_life(4, DDP_LIFE_ENDED, 0.7);
    expect(DDP_FAULT_ENDED, 4);
    set_life(0, DDP_LIFE_GAVE_UP, 0.9);
    expect(DDP_FAULT_ENDED, 4);
}
END_TEST

START_TEST(a_whole_machine_that_has_ended_is_called_so)
{
    begin();
    set_life(2, DDP_LIFE_ENDED, 0.5);
    set_life(3, DDP_LIFE_ENDED, 0.5);
    ck_assert(!expect(DDP_FAULT_ENDED, 2).is_whole_machine);
    set_life(4, DDP_LIFE_ENDED, 0.5);
    ck_assert(expect(DDP_FAULT_ENDED, 2).is_whole_machine);
}
END_TEST

START_TEST(whose_work_is_over_may_end)
{
    begin();
    for (int r = 0; r < SIZE; r++) {
        set_life(r, DDP_LIFE_DONE, 100);
        view[r].moved_ns = ago(100);
        view[r].heard_ns = ago(100);
    }
    expect(DDP_FAULT_NONE, -1);
}
END_TEST

START_TEST(a_stopped_rank_has_the_whole_limit_to_go_on)
{
    begin();
    set_life(4, DDP_LIFE_STOPPED, 50);
    view[4].moved_ns = ago(50);
    wait_for(0, 4, 50);
    expect(DDP_FAULT_NONE, -1);
    view[4].moved_ns = ago(61);
    ck_assert_double_eq_tol(expect(DDP_FAULT_STOPPED, 4).seconds, 61, 0.01);
}
END_TEST

START_TEST(a_silent_machine_is_named_by_its_first_rank)
{
    begin();
    view[2].heard_ns = view[3].heard_ns = view[4].heard_ns = ago(30);
    expect(DDP_FAULT_NONE, -1);
    view[2].heard_ns = view[3].heard_ns = view[4].heard_ns = ago(61);
    expect(DDP_FAULT_SILENT, 2);
}
END_TEST

/* Its host has no power, and mpirun has found that before the limit. */
START_TEST(a_machine_lost_to_mpirun_is_named_as_soon_as_mpirun_ends_others)
{
    begin();
    view[5].heard_ns = ago(1.5);
    expect(DDP_FAULT_NONE, -1);
    view[0].is_sent_away = true;
    expect(DDP_FAULT_NONE, -1);
    view[5].heard_ns = ago(2.5);
    ck_assert_double_eq_tol(expect(DDP_FAULT_SILENT, 5).seconds, 2.5, 0.01);
    view[0].is_sent_away = false; /* the user has asked for a stop */
    expect(DDP_FAULT_NONE, -1);
    view[3].is_sent_away = true; /* mpirun is on another machine than who judges */
    expect(DDP_FAULT_SILENT, 5);
    is_drowsy = true;
    expect(DDP_FAULT_NONE, -1);
    is_drowsy = false;
    set_life(3, DDP_LIFE_DONE, 1);
    expect(DDP_FAULT_NONE, -1);
}
END_TEST

START_TEST(whom_mpirun_ends_is_not_named_before_the_cause)
{
    begin();
    set_life(0, DDP_LIFE_ENDED, 0.3);
    set_life(1, DDP_LIFE_ENDED, 0.3);
    view[0].is_sent_away = view[1].is_sent_away = true;
    view[0].wait_status = view[1].wait_status = 9;
    expect(DDP_FAULT_NONE, -1);
    view[5].heard_ns = ago(2.1);
    expect(DDP_FAULT_SILENT, 5);
    view[5].heard_ns = ago(0.1);
    set_life(5, DDP_LIFE_ENDED, 0.1); /* the cause is heard of late */
    expect(DDP_FAULT_ENDED, 5);
    set_life(5, DDP_LIFE_RUNS, 500);
    set_life(0, DDP_LIFE_ENDED, 3.1); /* nothing else is the matter */
    set_life(1, DDP_LIFE_ENDED, 3.1);
    ck_assert(expect(DDP_FAULT_ENDED, 0).is_whole_machine);
}
END_TEST

/* TCP has given up a host before the limit, and MPI ends the rank that misses it. */
START_TEST(who_ends_because_it_misses_a_silent_machine_is_not_the_cause)
{
    begin();
    set_life(1, DDP_LIFE_ENDED, 0.1);
    view[1].wait_status = 14 << 8;
    view[5].heard_ns    = ago(2.05); /* it was not so long when that happened */
    expect(DDP_FAULT_ENDED, 1);
    view[5].heard_ns = ago(30);
    expect(DDP_FAULT_SILENT, 5);
    view[1].wait_status = DDP_EXIT_UNKNOWN;
    expect(DDP_FAULT_SILENT, 5);
    view[1].wait_status = 15;
    expect(DDP_FAULT_SILENT, 5);
    view[1].wait_status = 9; /* out of memory, say: by itself */
    expect(DDP_FAULT_ENDED, 1);
}
END_TEST

START_TEST(who_hangs_is_found_at_the_end_of_the_chain_over_machines)
{
    begin();
    wait_for(0, 1, 70);
    wait_for(1, 5, 70);
    wait_for(2, 0, 70);
    view[5].moved_ns = ago(70);
    expect(DDP_FAULT_STUCK, 5);
    view[5].moved_ns = ago(59);
    expect(DDP_FAULT_NONE, -1);
}
END_TEST

START_TEST(slow_but_moving_is_no_fault)
{
    begin();
    for (int r = 0; r < SIZE - 1; r++) {
        wait_for(r, 5, 300);
    }
    view[5].moved_ns = ago(20);
    expect(DDP_FAULT_NONE, -1);
}
END_TEST

START_TEST(nobody_is_judged_for_whom_nobody_waits)
{
    begin();
    for (int r = 0; r < SIZE; r++) {
        view[r].moved_ns = ago(100); /* all load their data, say */
    }
    expect(DDP_FAULT_NONE, -1);
}
END_TEST

START_TEST(ranks_that_wait_for_each_other_are_both_named)
{
    ddp_verdict_t verdict;

    begin();
    wait_for(3, 4, 61);
    wait_for(4, 3, 61);
    wait_for(0, 3, 61);
    verdict = judge();
    ck_assert_int_eq(verdict.kind, DDP_FAULT_CIRCLE);
    ck_assert(verdict.rank == 3 || verdict.rank == 4);
    ck_assert_int_eq(verdict.other, 7 - verdict.rank);
    view[3].moved_ns = ago(1);
    view[4].moved_ns = ago(1);
    expect(DDP_FAULT_NONE, -1);
}
END_TEST

START_TEST(in_a_collective_the_one_is_named_that_does_not_wait)
{
    begin();
    for (int r = 0; r < SIZE; r++) {
        wait_for(r, r == 4 ? -1 : DDP_WAIT_ALL, 61);
    }
    expect(DDP_FAULT_STUCK, 4);
    view[4].waits_for = DDP_WAIT_ALL; /* the library itself hangs: nobody's fault */
    expect(DDP_FAULT_NONE, -1);
}
END_TEST

START_TEST(who_gives_up_makes_the_judge_decide)
{
    begin();
    set_life(0, DDP_LIFE_GAVE_UP, 2.1);
    wait_for(0, 4, 59);
    view[4].moved_ns = ago(59);
    expect(DDP_FAULT_NONE, -1); /* it may be the end of another that rank 0 has seen */
    view[4].moved_ns = ago(61);
    expect(DDP_FAULT_STUCK, 4);
    set_life(4, DDP_LIFE_STOPPED, 3);
    expect(DDP_FAULT_STOPPED, 4);
}
END_TEST

START_TEST(where_nobody_is_found_who_gave_up_says_what_it_knows)
{
    begin();
    set_life(2, DDP_LIFE_GAVE_UP, 2);
    set_life(3, DDP_LIFE_GAVE_UP, 4);
    expect(DDP_FAULT_FAILED, 3);
}
END_TEST

START_TEST(who_was_stopped_itself_is_sure_of_ends_only)
{
    begin();
    is_drowsy        = true;
    view[4].heard_ns = ago(100);
    set_life(3, DDP_LIFE_STOPPED, 100);
    view[3].moved_ns = ago(100);
    expect(DDP_FAULT_NONE, -1);
    set_life(2, DDP_LIFE_ENDED, 1);
    expect(DDP_FAULT_ENDED, 2);
    is_drowsy = false;
}
END_TEST

START_TEST(a_launcher_that_has_ended_is_a_fault)
{
    begin();
    set_life(5, DDP_LIFE_ORPHAN, 0);
    expect(DDP_FAULT_LAUNCHER, 5);
}
END_TEST

START_TEST(the_slowest_is_who_has_most_work_of_its_own)
{
    ddp_shares_t    before[3] = {{10, 100, 10, 1000}, {20, 0, 0, 0}, {0, 0, 0, 0}};
    ddp_shares_t    after[3]  = {{20, 80100, 20010, 11000}, {30, 90000, 50000, 0}, {10, 90000, 30000, 5000}};
    double          step_ms[3][3];
    ddp_straggler_t result = ddp_straggler_look(before, after, 3, step_ms);

    ck_assert(result.is_whole);
    ck_assert_int_eq(result.slowest, 1); /* 9 + 5 ms, the others 8 + 2 and 9 + 3 */
    ck_assert_double_eq_tol(result.slowest_ms, 14, 1e-9);
    ck_assert_double_eq_tol(result.median_ms, 12, 1e-9);
    ck_assert_double_eq_tol(step_ms[0][0], 8, 1e-9);
    ck_assert_double_eq_tol(step_ms[0][1], 2, 1e-9);
    ck_assert_double_eq_tol(step_ms[0][2], 1, 1e-9);
    after[2] = before[2];
    ck_assert(!ddp_straggler_look(before, after, 3, step_ms).is_whole);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("monitor_judge");
    TCase *ends  = tcase_create("ends");
    TCase *waits = tcase_create("waits");

    tcase_add_test(ends, nothing_is_wrong_with_ranks_that_move);
    tcase_add_test(ends, a_limit_shorter_than_reports_are_apart_misses_nobody);
    tcase_add_test(ends, a_rank_that_has_ended_is_named_with_its_signal_and_place);
    tcase_add_test(ends, who_has_just_ended_may_still_have_said_why);
    tcase_add_test(ends, who_ends_in_the_shutdown_is_named_at_once_where_that_was_seen);
    tcase_add_test(ends, the_first_that_ended_is_named_not_who_followed);
    tcase_add_test(ends, a_whole_machine_that_has_ended_is_called_so);
    tcase_add_test(ends, whose_work_is_over_may_end);
    tcase_add_test(ends, who_was_stopped_itself_is_sure_of_ends_only);
    tcase_add_test(ends, a_launcher_that_has_ended_is_a_fault);
    tcase_add_test(waits, a_stopped_rank_has_the_whole_limit_to_go_on);
    tcase_add_test(waits, a_silent_machine_is_named_by_its_first_rank);
    tcase_add_test(waits, a_machine_lost_to_mpirun_is_named_as_soon_as_mpirun_ends_others);
    tcase_add_test(waits, whom_mpirun_ends_is_not_named_before_the_cause);
    tcase_add_test(waits, who_ends_because_it_misses_a_silent_machine_is_not_the_cause);
    tcase_add_test(waits, who_hangs_is_found_at_the_end_of_the_chain_over_machines);
    tcase_add_test(waits, slow_but_moving_is_no_fault);
    tcase_add_test(waits, nobody_is_judged_for_whom_nobody_waits);
    tcase_add_test(waits, ranks_that_wait_for_each_other_are_both_named);
    tcase_add_test(waits, in_a_collective_the_one_is_named_that_does_not_wait);
    tcase_add_test(waits, who_gives_up_makes_the_judge_decide);
    tcase_add_test(waits, where_nobody_is_found_who_gave_up_says_what_it_knows);
    tcase_add_test(waits, the_slowest_is_who_has_most_work_of_its_own);
    suite_add_tcase(suite, ends);
    suite_add_tcase(suite, waits);
    return suite;
}

int main(void)
{
    return ddp_test_run(make_suite());
}
