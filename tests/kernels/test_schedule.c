#include "base/clock.h"
#include "kernels/cpu/table.h"
#include "tests/kernels/work_test.h"

START_TEST(under_defer_a_missing_event_wait_gives_another_value)
{
    bench_t       bench;
    ddp_stream_t *younger = NULL;
    long          number  = 0;

    open_schedule(&bench, "defer");
    ddp_assert_ok(ddp_stream_create(bench.device, "younger", &younger));
    ddp_assert_ok(submit_digit(bench.stream, &number, 1));
    ddp_assert_ok(submit_digit(younger, &number, 2)); /* should have waited for the 1 */
    ddp_device_progress(bench.device);                /* between operations: nobody waits */
    ck_assert_int_eq(number, 0);
    ddp_assert_ok(ddp_stream_synchronize(bench.stream, -1));
    ck_assert_int_eq(number, 21);
    ddp_stream_destroy(&younger);
    bench_close(&bench);
}
END_TEST

START_TEST(seeds_of_defer_give_several_orders)
{
    bool seen[2] = {false, false};

    for (int seed = 0; seed < 20; seed++) {
        ddp_stream_t *younger = NULL;
        bench_t       bench;
        long          number = 0;
        char          schedule[32];

        (void)snprintf(schedule, sizeof(schedule), "defer:%d", seed);
        open_schedule(&bench, schedule);
        ddp_assert_ok(ddp_stream_create(bench.device, "younger", &younger));
        ddp_assert_ok(submit_digit(bench.stream, &number, 1));
        ddp_assert_ok(submit_digit(younger, &number, 2));
        ddp_assert_ok(ddp_stream_synchronize(bench.stream, -1));
        ddp_assert_ok(ddp_stream_synchronize(younger, -1));
        seen[number == 12] = true;
        ddp_stream_destroy(&younger);
        bench_close(&bench);
    }
    ck_assert(seen[0] && seen[1]);
}
END_TEST

START_TEST(a_loop_of_progress_calls_gets_somewhere_under_every_schedule)
{
    bench_t bench;
    long    number = 0;
    int     left   = 5;
    int     calls  = 0;

    open_schedule(&bench, schedules[_i]);
    ddp_assert_ok(submit_polled(bench.stream, &left, &calls));
    ddp_assert_ok(submit_digit(bench.stream, &number, 1));
    for (int i = 0; i < 20 && number == 0; i++) {
        ddp_device_progress(bench.device);
    }
    ck_assert_int_eq(number, 1);
    bench_close(&bench);
}
END_TEST

/* Work that submits, waits and asks for progress from inside. */
typedef struct nested_args {
    ddp_stream_t *own, *other;
    long         *number;
    ddp_status_t *waited;
} nested_args_t;

static ddp_status_t nested_run(void *args)
{
    const nested_args_t *a      = args;
    ddp_status_t         status = DDP_OK;

    DDP_TRY(submit_digit(a->own, a->number, 3));
    DDP_TRY(submit_digit(a->other, a->number, 2));
    *a->number = 1;
    ddp_device_progress(ddp_stream_device(a->own)); /* may run the 2, never the 3: that is behind this */
    *a->waited = ddp_stream_synchronize(a->own, -1);
out:
    return status;
}

START_TEST(work_may_submit_and_progress_but_not_wait)
{
    bench_t       bench;
    ddp_stream_t *other  = NULL;
    long          number = 0;
    ddp_status_t  waited = DDP_OK;

    open_schedule(&bench, schedules[_i]);
    ddp_assert_ok(ddp_stream_create(bench.device, "other", &other));
    ddp_assert_ok(ddp_stream_submit(bench.stream, "nested", nested_run,
                                    &(nested_args_t){bench.stream, other, &number, &waited},
                                    sizeof(nested_args_t)));
    ddp_assert_ok(ddp_stream_synchronize(bench.stream, -1)); /* the 3 comes after this call */
    ddp_assert_ok(ddp_stream_synchronize(bench.stream, -1));
    ddp_assert_ok(ddp_stream_synchronize(other, -1));
    ck_assert_int_eq(waited, DDP_ERR_STATE);
    ck_assert(number == 123 || (_i > 0 && number == 132));
    ddp_stream_destroy(&other);
    bench_close(&bench);
}
END_TEST

/* A digit, a call of progress, another digit. */
typedef struct inside_args {
    ddp_device_t *device;
    long         *number;
} inside_args_t;

static ddp_status_t inside_run(void *args)
{
    const inside_args_t *a = args;

    *a->number = *a->number * 10 + 1;
    ddp_device_progress(a->device);
    *a->number = *a->number * 10 + 2;
    return DDP_OK;
}

START_TEST(progress_does_nothing_inside_work_that_progress_runs)
{
    bench_t       bench;
    long          number = 0;
    ddp_stream_t *second = NULL;
    ddp_event_t  *event  = NULL;
    int           left   = 100;
    int           calls  = 0;

    open_schedule(&bench, "now");
    ddp_assert_ok(ddp_stream_create(bench.device, "second", &second));
    ddp_assert_ok(ddp_event_create(bench.device, &event));
    /* Both streams are held up by the polled work. When it ends, progress runs "inside", and the call in
     * there must not run the 3, which waits for nothing any more. */
    ddp_assert_ok(submit_polled(bench.stream, &left, &calls));
    ddp_assert_ok(ddp_event_record(event, bench.stream));
    ddp_assert_ok(ddp_stream_wait_event(second, event));
    ddp_assert_ok(ddp_stream_submit(bench.stream, "inside", inside_run,
                                    &(inside_args_t){bench.device, &number}, sizeof(inside_args_t)));
    ddp_assert_ok(submit_digit(second, &number, 3));
    ck_assert_int_eq(number, 0);
    left = 0;
    ddp_device_progress(bench.device);
    ck_assert_int_eq(number, 123);
    ddp_event_destroy(&event);
    ddp_stream_destroy(&second);
    bench_close(&bench);
}
END_TEST

typedef struct busy_args {
    int     *calls_p;
    int      wanted;
    int64_t *elapsed_ns_p;
} busy_args_t;

/* A long kernel: it goes on until other work had its turn often enough (or 10 s; a busy machine only makes it
 * longer). */
static ddp_status_t busy_run(void *args)
{
    const busy_args_t *a     = args;
    const int64_t      start = ddp_clock_ns();
    const int          until = *a->calls_p + a->wanted;

    while (*a->calls_p < until && ddp_clock_ns() - start < 10000 * DDP_NS_PER_MS) {
        ddp_cpu_progress_point();
    }
    *a->elapsed_ns_p = ddp_clock_ns() - start;
    return DDP_OK;
}

/* Nothing to run elsewhere: the point calls nobody. */
static ddp_status_t lonely_run(void *args)
{
    const int64_t end = ddp_clock_ns() + DDP_NS_PER_MS;

    (void)args;
    while (ddp_clock_ns() < end) {
        ddp_cpu_progress_point();
    }
    return DDP_OK;
}

START_TEST(a_long_kernel_lets_other_streams_run_at_most_every_half_millisecond)
{
    bench_t       bench;
    ddp_stream_t *comm    = NULL;
    int           left    = 1 << 30;
    int           calls   = 0;
    int64_t       elapsed = 0;

    open_schedule(&bench, "now");
    ddp_assert_ok(ddp_stream_create(bench.device, "comm", &comm));
    ddp_assert_ok(submit_polled(comm, &left, &calls));
    ddp_assert_ok(ddp_stream_submit(bench.stream, "busy", busy_run, &(busy_args_t){&calls, 8, &elapsed},
                                    sizeof(busy_args_t)));
    ck_assert_int_ge(calls, 8);
    ck_assert_int_ge(elapsed, 7 * DDP_NS_PER_MS / 2);
    left = 0;
    ddp_assert_ok(ddp_stream_synchronize(comm, -1));
    calls = 0;
    ddp_assert_ok(ddp_stream_submit(bench.stream, "lonely", lonely_run, &calls, sizeof(calls)));
    ck_assert_int_eq(calls, 0);
    ddp_stream_destroy(&comm);
    bench_close(&bench);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("schedule");
    TCase *tcase = tcase_create("core");

    tcase_add_test(tcase, under_defer_a_missing_event_wait_gives_another_value);
    tcase_add_test(tcase, seeds_of_defer_give_several_orders);
    tcase_add_loop_test(tcase, a_loop_of_progress_calls_gets_somewhere_under_every_schedule, 0, 3);
    tcase_add_loop_test(tcase, work_may_submit_and_progress_but_not_wait, 0, 3);
    tcase_add_test(tcase, progress_does_nothing_inside_work_that_progress_runs);
    tcase_add_test(tcase, a_long_kernel_lets_other_streams_run_at_most_every_half_millisecond);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
