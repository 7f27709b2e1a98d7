#include <math.h>

#include "nn/schedule.h"
#include "tests/nn/schedule_values.h"
#include "tests/support/ddp_test.h"

/* First ten rates of torch.optim.lr_scheduler at lr 0.1, PyTorch 2.13; written by
 * tests/data/make_schedules.py. */
static void expect_rates(const ddp_schedule_t *schedule, const double *rates, size_t n)
{
    ck_assert_int_eq(ddp_schedule_check(schedule), DDP_OK);
    for (size_t i = 0; i < n; i++) {
        ck_assert_double_eq_tol(ddp_schedule_lr(schedule, i), rates[i], 1e-14);
    }
}

START_TEST(a_constant_rate_warms_up_as_pytorch_linear_lr)
{
    const ddp_schedule_t schedule = {.kind = DDP_SCHEDULE_CONSTANT, .lr = 0.1, .warmup_steps = 4};

    expect_rates(&schedule, torch_warmup, 10);
    ck_assert_double_eq(ddp_schedule_lr(&schedule, UINT64_MAX), 0.1);
}
END_TEST

START_TEST(a_linear_rate_equals_pytorch_linear_lr)
{
    const ddp_schedule_t schedule = {
        .kind = DDP_SCHEDULE_LINEAR, .lr = 0.1, .total_steps = 8, .min_ratio = 0.25};

    expect_rates(&schedule, torch_linear, 10);
}
END_TEST

START_TEST(a_cosine_rate_equals_pytorch_cosine_annealing_lr)
{
    const ddp_schedule_t schedule = {
        .kind = DDP_SCHEDULE_COSINE, .lr = 0.1, .total_steps = 9, .min_ratio = 0.1};

    expect_rates(&schedule, torch_cosine, 10);
}
END_TEST

START_TEST(a_cosine_rate_after_warm_up_equals_pytorch_sequential_lr)
{
    const ddp_schedule_t schedule = {
        .kind = DDP_SCHEDULE_COSINE, .lr = 0.1, .warmup_steps = 3, .total_steps = 9, .min_ratio = 0.1};

    expect_rates(&schedule, torch_warmup_cosine, 10);
}
END_TEST

START_TEST(a_step_rate_equals_pytorch_step_lr)
{
    const ddp_schedule_t schedule = {.kind = DDP_SCHEDULE_STEP, .lr = 0.1, .step_size = 3, .gamma = 0.5};
    ddp_schedule_t       bounded  = schedule;

    expect_rates(&schedule, torch_step, 10);
    bounded.total_steps = 6;
    ck_assert_double_eq(ddp_schedule_lr(&bounded, 1000), torch_step[6]);
}
END_TEST

START_TEST(warm_up_stable_decay_has_its_three_parts)
{
    const ddp_schedule_t schedule = {.kind         = DDP_SCHEDULE_WSD,
                                     .lr           = 1,
                                     .warmup_steps = 4,
                                     .total_steps  = 20,
                                     .decay_steps  = 8,
                                     .min_ratio    = 0.5};
    ddp_schedule_t       flat     = schedule;

    ck_assert_int_eq(ddp_schedule_check(&schedule), DDP_OK);
    for (uint64_t step = 0; step < 30; step++) {
        double rate = 1;

        rate = step < 4 ? (double)(step + 1) / 4 : rate;
        rate = step > 12 ? 1 - 0.5 * (double)(step - 12) / 8 : rate;
        rate = step >= 20 ? 0.5 : rate;
        ck_assert_double_eq_tol(ddp_schedule_lr(&schedule, step), rate, 1e-15);
    }
    flat.decay_steps = 0;
    ck_assert_double_eq(ddp_schedule_lr(&flat, 100), 1);
}
END_TEST

START_TEST(a_run_that_is_all_warm_up_ends_at_the_final_rate)
{
    const ddp_schedule_t schedule = {
        .kind = DDP_SCHEDULE_LINEAR, .lr = 1, .warmup_steps = 5, .total_steps = 5, .min_ratio = 0.5};

    ck_assert_int_eq(ddp_schedule_check(&schedule), DDP_OK);
    ck_assert_double_eq(ddp_schedule_lr(&schedule, 4), 1);
    ck_assert_double_eq(ddp_schedule_lr(&schedule, 5), 0.5);
}
END_TEST

static void expect_refused(ddp_schedule_t schedule, const char *line)
{
    ck_assert_int_eq(ddp_schedule_check(&schedule), DDP_ERR_CONFIG);
    ck_assert_str_eq(ddp_error_line(), line);
}

START_TEST(values_out_of_range_are_refused_with_the_value)
{
    const ddp_schedule_t ok = {.kind         = DDP_SCHEDULE_WSD,
                               .lr           = 1,
                               .warmup_steps = 4,
                               .total_steps  = 20,
                               .decay_steps  = 8,
                               .step_size    = 1,
                               .gamma        = 0.5};
    ddp_schedule_t       bad;

    bad    = ok;
    bad.lr = -0.5;
    expect_refused(bad, "learning rate -0.5 is not a finite number >= 0");
    bad.lr = (double)INFINITY;
    expect_refused(bad, "learning rate inf is not a finite number >= 0");
    bad           = ok;
    bad.min_ratio = 1.5;
    expect_refused(bad, "schedule: min_ratio 1.5 is not in 0 .. 1");
    bad             = ok;
    bad.total_steps = 0;
    expect_refused(bad, "schedule: linear, cosine and wsd need the total number of steps");
    bad              = ok;
    bad.warmup_steps = 21;
    expect_refused(bad, "schedule: warmup_steps 21 is more than the 20 steps of the run");
    bad             = ok;
    bad.decay_steps = 17;
    expect_refused(bad, "schedule: decay_steps 17 is more than the 16 steps after warm-up");
    bad           = ok;
    bad.kind      = DDP_SCHEDULE_STEP;
    bad.step_size = 0;
    expect_refused(bad, "schedule: step_size 0 is not > 0");
    bad.step_size = 1;
    bad.gamma     = 0;
    expect_refused(bad, "schedule: gamma 0 is not a finite number > 0");
    bad.kind = (ddp_schedule_kind_t)9;
    expect_refused(bad, "schedule: kind 9 is not known");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("schedule");
    TCase *tcase = tcase_create("all");

    tcase_add_test(tcase, a_constant_rate_warms_up_as_pytorch_linear_lr);
    tcase_add_test(tcase, a_linear_rate_equals_pytorch_linear_lr);
    tcase_add_test(tcase, a_cosine_rate_equals_pytorch_cosine_annealing_lr);
    tcase_add_test(tcase, a_cosine_rate_after_warm_up_equals_pytorch_sequential_lr);
    tcase_add_test(tcase, a_step_rate_equals_pytorch_step_lr);
    tcase_add_test(tcase, warm_up_stable_decay_has_its_three_parts);
    tcase_add_test(tcase, a_run_that_is_all_warm_up_ends_at_the_final_rate);
    tcase_add_test(tcase, values_out_of_range_are_refused_with_the_value);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
