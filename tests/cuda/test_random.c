/* Drawn numbers of the CUDA device against the cpu's. */
#include <check.h>
#include <math.h>
#include <string.h>

#include "kernels/ops_seq.h"
#include "tests/cuda/support.h"
#include "tests/support/ddp_test.h"

static const size_t widths[] = {1, 15, 16, 17, 63, 64, 65, 200, 0, 7001};
#define WIDTHS ((int)(sizeof(widths) / sizeof(*widths)))
#define ROWS   5
#define MOST   (ROWS * 7001)

static const ddp_rng_key_t key = {.seed = 0x123456789abcdefULL, .step = 0x300000007ULL, .layer = 9};

static float     x[MOST], y[MOST], wanted[MOST], got[MOST];
static support_t s;

static void set_up(void)
{
    support_open(&s);
    support_fill(x, MOST, 1);
    support_fill(y, MOST, 2);
}

static void tear_down(void)
{
    support_close(&s);
}

/* Rows behind 2^32, where the high half of the counter is not 0. */
static ddp_dropout_args_t dropout(size_t width, float p)
{
    return (ddp_dropout_args_t){.rows = ROWS, .width = width, .first_row = 0xfffffffeULL, .p = p, .key = key};
}

static void run_dropout(ddp_dropout_args_t args, bool in_place)
{
    const size_t bytes = args.rows * args.width * sizeof(float);
    float       *d_x   = support_upload(&s, x, bytes);
    float       *d_y   = in_place ? d_x : support_upload(&s, y, bytes);

    memcpy(wanted, y, sizeof(wanted));
    args.x = x;
    args.y = wanted;
    ddp_assert_ok(ddp_op_dropout(s.on_cpu, &args));
    args.x = d_x;
    args.y = d_y;
    ddp_assert_ok(ddp_op_dropout(s.on_cuda, &args));
    ddp_assert_ok(ddp_stream_synchronize(s.on_cpu, -1));
    support_download(&s, got, d_y, bytes);
}

START_TEST(dropout_keeps_what_the_cpu_keeps)
{
    const size_t       width = widths[_i];
    ddp_dropout_args_t args  = dropout(width, 0.3F);
    const size_t       bytes = ROWS * width * sizeof(float);

    run_dropout(args, false);
    support_assert_same(got, wanted, bytes, "dropout");
    run_dropout(args, true);
    support_assert_same(got, wanted, bytes, "dropout in place");
    args.accumulate = true;
    run_dropout(args, false);
    support_assert_near(got, wanted, bytes / sizeof(float), 6e-8, "dropout that adds"); /* the cpu may fuse */
    run_dropout(dropout(width, 0.0F), false);
    support_assert_same(got, x, bytes, "dropout of nothing");
}
END_TEST

static const size_t counts[] = {0, 1, 3, 4, 64, 65, 321, 1000, 33001};
#define COUNTS ((int)(sizeof(counts) / sizeof(*counts)))

START_TEST(uniform_numbers_have_the_bits_of_the_cpu)
{
    const size_t       count = counts[_i];
    float             *d_y   = support_upload(&s, NULL, count * sizeof(float));
    ddp_uniform_args_t args  = {.y = d_y, .count = count, .low = -0.7F, .high = 1.3F, .key = key};

    ddp_assert_ok(ddp_op_uniform(s.on_cuda, &args));
    args.y = wanted;
    ddp_assert_ok(ddp_op_uniform(s.on_cpu, &args));
    ddp_assert_ok(ddp_stream_synchronize(s.on_cpu, -1));
    support_download(&s, got, d_y, count * sizeof(float));
    support_assert_same(got, wanted, count * sizeof(float), "uniform");
}
END_TEST

START_TEST(uniform_numbers_stay_below_the_upper_bound)
{
    const float        low  = 1.0F;
    const float        high = nextafterf(1.0F, 2.0F);
    float             *d_y  = support_upload(&s, NULL, sizeof(got));
    ddp_uniform_args_t args = {.y = d_y, .count = MOST, .low = low, .high = high, .key = key};

    ddp_assert_ok(ddp_op_uniform(s.on_cuda, &args));
    support_download(&s, got, d_y, sizeof(got));
    for (size_t i = 0; i < MOST; i++) {
        ck_assert(got[i] == low);
    }
}
END_TEST

START_TEST(normal_numbers_are_those_of_the_cpu_to_rounding)
{
    const size_t      count = counts[_i];
    float            *d_y   = support_upload(&s, NULL, count * sizeof(float));
    ddp_normal_args_t args  = {.y = d_y, .count = count, .std = 0.02F, .key = key};

    ddp_assert_ok(ddp_op_normal(s.on_cuda, &args));
    args.y = wanted;
    ddp_assert_ok(ddp_op_normal(s.on_cpu, &args));
    ddp_assert_ok(ddp_stream_synchronize(s.on_cpu, -1));
    support_download(&s, got, d_y, count * sizeof(float));
    /* a logarithm within 1 ulp, its root, and the series of sine and cosine: 5 roundings of 6e-8 */
    support_assert_near(got, wanted, count, 3e-7, "normal");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cuda random");
    TCase *tc    = tcase_create("random");

    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(tc, dropout_keeps_what_the_cpu_keeps, 0, WIDTHS);
    tcase_add_loop_test(tc, uniform_numbers_have_the_bits_of_the_cpu, 0, COUNTS);
    tcase_add_test(tc, uniform_numbers_stay_below_the_upper_bound);
    tcase_add_loop_test(tc, normal_numbers_are_those_of_the_cpu_to_rounding, 0, COUNTS);
    suite_add_tcase(suite, tc);
    return ddp_test_run(suite);
}
