#include "base/clock.h"
#include "kernels/cpu/table.h"
#include "kernels/device_internal.h"
#include "kernels/ops.h"
#include "tests/kernels/work_test.h"

START_TEST(work_of_a_stream_runs_in_order)
{
    bench_t bench;
    long    number = 0;
    int     left   = 3;
    int     calls  = 0;

    open_schedule(&bench, schedules[_i]);
    ddp_assert_ok(submit_digit(bench.stream, &number, 1));
    ck_assert_int_eq(number, _i == 0 ? 1 : 0);
    ddp_assert_ok(submit_polled(bench.stream, &left, &calls));
    ddp_assert_ok(submit_digit(bench.stream, &number, 2));
    ddp_assert_ok(submit_digit(bench.stream, &number, 3));
    ddp_assert_ok(ddp_stream_synchronize(bench.stream, -1));
    ck_assert_int_eq(number, 123);
    ck_assert_int_eq(calls, 4);
    bench_close(&bench);
}
END_TEST

START_TEST(an_event_orders_two_streams_and_means_the_point_it_was_recorded_at)
{
    bench_t       bench;
    ddp_stream_t *younger = NULL;
    ddp_event_t  *event   = NULL;
    long          number  = 0;
    int           left    = 2;
    int           calls   = 0;

    open_schedule(&bench, schedules[_i]);
    ddp_assert_ok(ddp_stream_create(bench.device, "younger", &younger));
    ddp_assert_ok(ddp_event_create(bench.device, &event));
    ddp_assert_ok(ddp_event_synchronize(event, 0));            /* never recorded: done */
    ddp_assert_ok(ddp_stream_wait_event(younger, event));      /* the same */
    ddp_assert_ok(submit_polled(bench.stream, &left, &calls)); /* holds the older stream up */
    ddp_assert_ok(submit_digit(bench.stream, &number, 1));
    ddp_assert_ok(ddp_event_record(event, bench.stream));
    ddp_assert_ok(ddp_stream_wait_event(younger, event));
    ddp_assert_ok(submit_digit(younger, &number, 2));
    ddp_assert_ok(ddp_event_record(event, younger)); /* does not move the wait above */
    ddp_assert_ok(ddp_stream_wait_event(bench.stream, event));
    ddp_assert_ok(submit_digit(bench.stream, &number, 3));
    ddp_assert_ok(ddp_event_synchronize(event, -1));
    ck_assert(number == 12 || number == 123);
    ddp_assert_ok(ddp_stream_synchronize(bench.stream, -1));
    ck_assert_int_eq(number, 123);
    ddp_event_destroy(&event);
    ddp_stream_destroy(&younger);
    bench_close(&bench);
}
END_TEST

START_TEST(an_error_sticks_to_its_stream_and_to_those_that_wait_for_it)
{
    bench_t       bench;
    ddp_stream_t *younger = NULL;
    ddp_event_t  *event   = NULL;
    ddp_status_t  status;
    long          number = 0;
    int           left   = 1;
    int           calls  = 0;

    open_schedule(&bench, schedules[_i]);
    ddp_assert_ok(ddp_stream_create(bench.device, "younger", &younger));
    ddp_assert_ok(ddp_event_create(bench.device, &event));
    ddp_assert_ok(submit_polled(bench.stream, &left, &calls));
    status = ddp_stream_submit(bench.stream, "fails", failing_run, NULL, 0);
    ck_assert(status == (_i == 0 ? DDP_ERR_IO : DDP_OK));
    if (_i == 0) {
        ck_assert_str_eq(ddp_error_line(), "the tape is torn");
    } else {
        ddp_assert_ok(ddp_event_record(event, bench.stream));
        ddp_assert_ok(ddp_stream_wait_event(younger, event));
        ddp_assert_ok(submit_digit(younger, &number, 1));
        ddp_assert_ok(submit_digit(bench.stream, &number, 2));
        ddp_assert_fails(ddp_stream_synchronize(younger, -1), DDP_ERR_IO, "the tape is torn");
        ddp_assert_fails(ddp_event_synchronize(event, -1), DDP_ERR_IO, "the tape is torn");
    }
    ddp_error_clear();
    ddp_assert_fails(submit_digit(bench.stream, &number, 3), DDP_ERR_IO, "the tape is torn");
    ddp_assert_fails(ddp_stream_synchronize(bench.stream, -1), DDP_ERR_IO, "the tape is torn");
    ck_assert_int_eq(number, 0);
    ddp_event_destroy(&event);
    ddp_stream_destroy(&younger);
    bench_close(&bench);
}
END_TEST

START_TEST(a_wait_ends_at_its_deadline_with_the_name_of_the_work)
{
    bench_t bench;
    int     left  = 1 << 30;
    int     calls = 0;
    int64_t start;

    open_schedule(&bench, schedules[_i]);
    ddp_assert_ok(submit_polled(bench.stream, &left, &calls));
    ck_assert_int_eq(ddp_stream_synchronize(bench.stream, 0), DDP_IN_PROGRESS);
    start = ddp_clock_ns();
    ddp_assert_fails(ddp_stream_synchronize(bench.stream, 20), DDP_ERR_TIMEOUT,
                     "stream 'test': 'polled' was not done within 20 ms");
    ck_assert_int_ge(ddp_clock_ns() - start, 20 * DDP_NS_PER_MS);
    left = 0;
    ddp_assert_ok(ddp_stream_synchronize(bench.stream, 1000)); /* a deadline is no failure of the stream */
    bench_close(&bench);
}
END_TEST

typedef struct idle_log {
    int     calls;
    int    *left;
    int64_t longest;
} idle_log_t;

static ddp_status_t idle_run(void *ctx, int64_t waited_ns)
{
    idle_log_t *idle = ctx;

    idle->calls++;
    idle->longest = waited_ns > idle->longest ? waited_ns : idle->longest;
    if (idle->calls == 5) {
        return ddp_fail(DDP_ERR_REMOTE, "rank 3 has ended");
    }
    return DDP_OK;
}

START_TEST(the_idle_function_is_called_while_nothing_can_go_on_and_its_error_ends_the_wait)
{
    bench_t    bench;
    int        left  = 4; /* submitting asks twice */
    int        calls = 0;
    idle_log_t idle  = {0};

    open_schedule(&bench, schedules[_i]);
    ddp_device_set_idle(bench.device, idle_run, &idle);
    ddp_assert_ok(submit_polled(bench.stream, &left, &calls));
    ddp_assert_ok(ddp_stream_synchronize(bench.stream, -1));
    ck_assert_int_ge(idle.calls, 1);
    ck_assert_int_le(idle.calls, 4);
    left = 1 << 30;
    ddp_assert_ok(submit_polled(bench.stream, &left, &calls));
    ddp_assert_fails(ddp_stream_synchronize(bench.stream, -1), DDP_ERR_REMOTE, "rank 3 has ended");
    ck_assert_int_ge(idle.longest, 0);
    left = 0;
    ddp_device_set_idle(bench.device, NULL, NULL);
    ddp_assert_ok(ddp_stream_synchronize(bench.stream, -1));
    bench_close(&bench);
}
END_TEST

static void count_moved(void *ctx)
{
    ++*(int *)ctx;
}

/* Keeps a kernel's progress points busy for some milliseconds. */
static ddp_status_t work_long(void *args)
{
    const int64_t end = ddp_clock_ns() + *(const int64_t *)args;

    while (ddp_clock_ns() < end) {
        ddp_cpu_progress_point();
    }
    return DDP_OK;
}

START_TEST(work_that_gets_on_is_told_and_work_that_asks_is_not)
{
    bench_t       bench;
    long          number = 0;
    int           left   = 5;
    int           calls  = 0;
    int           moved  = 0;
    const int64_t ns     = 20 * DDP_NS_PER_MS;

    open_schedule(&bench, schedules[_i]);
    ddp_device_set_moved(bench.device, count_moved, &moved);
    ddp_assert_ok(submit_digit(bench.stream, &number, 1));
    ddp_assert_ok(submit_polled(bench.stream, &left, &calls));
    ddp_assert_ok(submit_digit(bench.stream, &number, 2));
    ddp_assert_ok(ddp_stream_synchronize(bench.stream, -1));
    ck_assert_int_eq(calls, 6);
    ck_assert_int_eq(moved, 3);
    ddp_assert_ok(ddp_stream_submit(bench.stream, "long", work_long, &ns, sizeof(ns)));
    ddp_assert_ok(ddp_stream_synchronize(bench.stream, -1));
    ck_assert_int_ge(moved, 3 + 1 + 2); /* at most every 0.5 ms, on a busy machine seldom */
    ck_assert_int_le(moved, 3 + 1 + 41);
    ddp_device_set_moved(bench.device, NULL, NULL);
    ddp_assert_ok(submit_digit(bench.stream, &number, 3));
    ddp_assert_ok(ddp_stream_synchronize(bench.stream, -1));
    bench_close(&bench);
}
END_TEST

START_TEST(a_destroyed_stream_drops_its_work_and_fails_those_that_wait_for_it)
{
    bench_t       bench;
    ddp_stream_t *younger = NULL;
    ddp_event_t  *event   = NULL;
    long          number  = 0;
    int           left    = 1 << 30;
    int           calls   = 0;

    open_schedule(&bench, schedules[_i]);
    ddp_assert_ok(ddp_stream_create(bench.device, "younger", &younger));
    ddp_assert_ok(ddp_event_create(bench.device, &event));
    ddp_assert_ok(submit_polled(younger, &left, &calls));
    ddp_assert_ok(submit_digit(younger, &number, 1));
    ddp_assert_ok(ddp_event_record(event, younger));
    ddp_assert_ok(ddp_stream_wait_event(bench.stream, event));
    ddp_assert_ok(submit_digit(bench.stream, &number, 2));
    ddp_stream_destroy(&younger);
    ck_assert_ptr_null(younger);
    ddp_assert_fails(ddp_event_synchronize(event, -1), DDP_ERR_STATE,
                     "'younger' was destroyed before 'polled'");
    ddp_assert_fails(ddp_stream_synchronize(bench.stream, -1), DDP_ERR_STATE, "'younger' was destroyed");
    ck_assert_int_eq(number, 0);
    ddp_event_destroy(&event);
    ddp_stream_destroy(&younger);
    bench_close(&bench);
}
END_TEST

START_TEST(an_event_outlives_its_stream)
{
    bench_t       bench;
    ddp_stream_t *younger = NULL;
    ddp_event_t  *event   = NULL;
    long          number  = 0;

    open_schedule(&bench, "now");
    ddp_assert_ok(ddp_stream_create(bench.device, "younger", &younger));
    ddp_assert_ok(ddp_event_create(bench.device, &event));
    ddp_assert_ok(submit_digit(younger, &number, 1));
    ddp_assert_ok(ddp_event_record(event, younger));
    ddp_stream_destroy(&younger);
    ddp_assert_ok(ddp_event_synchronize(event, -1));
    ddp_assert_ok(ddp_stream_wait_event(bench.stream, event));
    ddp_assert_ok(submit_digit(bench.stream, &number, 2));
    ck_assert_int_eq(number, 12);
    ddp_event_destroy(&event);
    bench_close(&bench);
}
END_TEST

START_TEST(after_warm_up_submitting_allocates_nothing)
{
    bench_t       bench;
    ddp_stream_t *younger = NULL;
    ddp_event_t  *event   = NULL;
    size_t        items   = 0;
    long          number  = 0;

    open_schedule(&bench, schedules[_i]);
    ddp_assert_ok(ddp_stream_create(bench.device, "younger", &younger));
    ddp_assert_ok(ddp_event_create(bench.device, &event));
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < 500; i++) {
            ddp_assert_ok(submit_digit(bench.stream, &number, 0));
            ddp_assert_ok(ddp_event_record(event, bench.stream));
            ddp_assert_ok(ddp_stream_wait_event(younger, event));
            ddp_assert_ok(submit_digit(younger, &number, 0));
        }
        ddp_assert_ok(ddp_stream_synchronize(younger, -1));
        if (round == 0) {
            items = bench.device->items;
        }
    }
    ck_assert_uint_gt(items, 0);
    ck_assert_uint_eq(bench.device->items, items);
    ddp_event_destroy(&event);
    ddp_stream_destroy(&younger);
    bench_close(&bench);
}
END_TEST

START_TEST(copies_run_in_stream_order)
{
    bench_t bench;
    float   a[3] = {1, 2, 3};
    float   b[3] = {0};
    float   c[3] = {0};

    open_schedule(&bench, schedules[_i]);
    ddp_assert_ok(ddp_stream_copy(bench.stream, b, a, sizeof(a)));
    ddp_assert_ok(ddp_stream_copy(bench.stream, c, b, sizeof(b)));
    ddp_assert_ok(ddp_stream_copy(bench.stream, NULL, NULL, 0));
    ddp_assert_fails(ddp_stream_copy(bench.stream, NULL, a, 4), DDP_ERR_INVALID_ARG, "copy");
    ddp_assert_ok(ddp_stream_synchronize(bench.stream, -1));
    ck_assert_mem_eq(a, c, sizeof(a));
    bench_close(&bench);
}
END_TEST

START_TEST(wrong_arguments_and_environments_are_named)
{
    ddp_device_params_t params = DDP_DEVICE_PARAMS_INIT;
    ddp_device_t       *device = NULL;
    bench_t             bench;
    char                args[DDP_WORK_ARGS_BYTES + 1] = {0};

    params.struct_size = 1;
    ddp_assert_fails(ddp_device_create(&params, &device), DDP_ERR_INVALID_ARG, "DDP_DEVICE_PARAMS_INIT");
    params     = (ddp_device_params_t)DDP_DEVICE_PARAMS_INIT;
    params.isa = (ddp_isa_t)7;
    ddp_assert_fails(ddp_device_create(&params, &device), DDP_ERR_INVALID_ARG, "instruction set 7");
    params.isa = DDP_ISA_PLAIN;
    ck_assert_int_eq(setenv("DDP_DEVICE_SCHEDULE", "defer:x", 1), 0);
    ddp_assert_fails(ddp_device_create(&params, &device), DDP_ERR_UNSUPPORTED, "DDP_DEVICE_SCHEDULE=defer:x");
    ck_assert_int_eq(setenv("DDP_DEVICE_SCHEDULE", "later", 1), 0);
    ddp_assert_fails(ddp_device_create(&params, &device), DDP_ERR_UNSUPPORTED, "no such schedule");
    ck_assert_ptr_null(device);
    ddp_device_destroy(&device);
    open_schedule(&bench, "now");
    ddp_assert_fails(ddp_stream_submit(bench.stream, "large", failing_run, args, sizeof(args)),
                     DDP_ERR_INVALID_ARG, "'large' has 257 bytes");
    ddp_assert_ok(ddp_stream_synchronize(bench.stream, 0));
    ck_assert(ddp_device_is_host_memory(bench.device));
    ck_assert_ptr_nonnull(ddp_device_allocator(bench.device));
    bench_close(&bench);
}
END_TEST

START_TEST(the_instruction_set_can_be_lowered_but_not_raised)
{
    const ddp_isa_t best = ddp_isa_detect();

    ck_assert_int_eq(setenv("DDP_ISA", "plain", 1), 0);
    ck_assert_int_eq(ddp_isa_detect(), DDP_ISA_PLAIN);
    ddp_assert_ok(ddp_isa_check());
    ck_assert_int_eq(setenv("DDP_ISA", "sse9", 1), 0);
    ck_assert_int_eq(ddp_isa_detect(), best);
    ddp_assert_fails(ddp_isa_check(), DDP_ERR_UNSUPPORTED, "DDP_ISA=sse9: no such set");
    if (best < DDP_ISA_AVX512) {
        ck_assert_int_eq(setenv("DDP_ISA", "avx512", 1), 0);
        ddp_assert_fails(ddp_isa_check(), DDP_ERR_UNSUPPORTED, "has at most");
        ck_assert_int_eq(ddp_isa_detect(), best);
    }
    ck_assert_int_eq(unsetenv("DDP_ISA"), 0);
    ddp_assert_ok(ddp_isa_check());
    ck_assert_str_eq(ddp_isa_name(DDP_ISA_AVX2), "avx2");
    for (ddp_isa_t isa = DDP_ISA_PLAIN; isa <= best; isa++) {
        ck_assert_str_eq(ddp_cpu_kernels(isa)->name, ddp_isa_name(isa));
    }
}
END_TEST

START_TEST(a_dry_device_checks_work_and_drops_it)
{
    ddp_device_params_t params    = DDP_DEVICE_PARAMS_INIT;
    ddp_device_t       *device    = NULL;
    ddp_stream_t       *stream    = NULL;
    ddp_event_t        *event     = NULL;
    void               *memory[2] = {NULL, NULL};
    void               *none      = NULL;
    long                number    = 0;

    params.dry = true;
    ddp_assert_ok(ddp_device_create(&params, &device));
    ck_assert(!ddp_device_is_host_memory(device));
    ddp_assert_ok(ddp_stream_create(device, "dry", &stream));
    ddp_assert_ok(ddp_event_create(device, &event));
    for (int i = 0; i < 2; i++) {
        const ddp_allocator_t *allocator = ddp_device_allocator(device);

        ddp_assert_ok(allocator->acquire(allocator->ctx, "much", (size_t)1 << 50, &memory[i]));
        ck_assert_uint_eq((size_t)memory[i] % DDP_ALIGNMENT, 0);
    }
    ck_assert_uint_eq((size_t)((char *)memory[1] - (char *)memory[0]), (size_t)1 << 50);
    ddp_assert_ok(submit_digit(stream, &number, 1));
    ddp_assert_ok(ddp_stream_copy(stream, memory[0], memory[1], (size_t)1 << 40));
    ddp_assert_ok(ddp_op_fill(stream, memory[0], (size_t)1 << 40, 1.0F));
    ck_assert_int_eq(ddp_op_fill(stream, NULL, 1, 1.0F), DDP_ERR_INVALID_ARG);
    ddp_assert_ok(ddp_event_record(event, stream));
    ddp_assert_ok(ddp_event_synchronize(event, -1));
    ddp_assert_ok(ddp_stream_synchronize(stream, -1));
    ck_assert_int_eq(number, 0);
    ck_assert_int_eq(ddp_device_allocator(device)->acquire(ddp_device_allocator(device)->ctx, "too much",
                                                           (size_t)1 << 62, &none),
                     DDP_ERR_NO_MEMORY);
    for (int i = 0; i < 2; i++) {
        ddp_device_allocator(device)->release(ddp_device_allocator(device)->ctx, memory[i]);
    }
    ddp_event_destroy(&event);
    ddp_stream_destroy(&stream);
    ddp_device_destroy(&device);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("device");
    TCase *every = tcase_create("every schedule");
    TCase *one   = tcase_create("one schedule");

    tcase_add_loop_test(every, work_of_a_stream_runs_in_order, 0, 3);
    tcase_add_loop_test(every, an_event_orders_two_streams_and_means_the_point_it_was_recorded_at, 0, 3);
    tcase_add_loop_test(every, an_error_sticks_to_its_stream_and_to_those_that_wait_for_it, 0, 3);
    tcase_add_loop_test(every, a_wait_ends_at_its_deadline_with_the_name_of_the_work, 0, 3);
    tcase_add_loop_test(
        every, the_idle_function_is_called_while_nothing_can_go_on_and_its_error_ends_the_wait, 0, 3);
    tcase_add_loop_test(every, work_that_gets_on_is_told_and_work_that_asks_is_not, 0, 3);
    tcase_add_loop_test(every, a_destroyed_stream_drops_its_work_and_fails_those_that_wait_for_it, 0, 3);
    tcase_add_loop_test(every, after_warm_up_submitting_allocates_nothing, 0, 3);
    tcase_add_loop_test(every, copies_run_in_stream_order, 0, 3);
    suite_add_tcase(suite, every);
    tcase_add_test(one, an_event_outlives_its_stream);
    tcase_add_test(one, wrong_arguments_and_environments_are_named);
    tcase_add_test(one, the_instruction_set_can_be_lowered_but_not_raised);
    tcase_add_test(one, a_dry_device_checks_work_and_drops_it);
    suite_add_tcase(suite, one);
    return ddp_test_run(suite);
}
