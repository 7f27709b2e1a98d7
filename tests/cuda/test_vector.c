/* Element-wise kernels of the CUDA device, activations and the permutation, against the cpu's. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/layout.h"
#include "tests/cuda/support.h"
#include "tests/support/ddp_test.h"

/* The last is more than the threads of the stand-in's largest grid take at once. Every test runs for each,
 * with buffers at a multiple of 16 bytes, and 4 bytes behind it (`shift`). */
static const size_t counts[] = {0, 1, 3, 255, 256, 1000, 33333};
#define COUNTS (sizeof(counts) / sizeof(*counts))
#define MOST   33334

static float     x[MOST], y[MOST], z[MOST], wanted[MOST], got[MOST];
static support_t s;
static size_t    count, shift;

static void set_up(void)
{
    support_open(&s);
    support_fill(x, MOST, 1);
    support_fill(y, MOST, 2);
    support_fill(z, MOST, 3);
}

static void tear_down(void)
{
    support_close(&s);
}

static void pick(int i)
{
    count = counts[(size_t)i % COUNTS];
    shift = (size_t)i / COUNTS;
}

/* Device memory with `shift` + count elements, of which the caller's are the last. */
static float *on_device(const float *host)
{
    float *memory = support_upload(&s, NULL, (shift + count) * sizeof(float));

    ddp_assert_ok(ddp_stream_copy(s.on_cuda, memory + shift, host, count * sizeof(float)));
    ddp_assert_ok(ddp_stream_synchronize(s.on_cuda, -1));
    return memory + shift;
}

static void fetch(const float *device)
{
    ddp_assert_ok(ddp_stream_synchronize(s.on_cpu, -1));
    support_download(&s, got, device, count * sizeof(float));
}

static void assert_same(const char *what)
{
    support_assert_same(got, wanted, count * sizeof(float), what);
}

START_TEST(fill_writes_what_it_is_told_and_no_more)
{
    float *d_y;

    pick(_i);
    d_y = on_device(y);
    ddp_assert_ok(ddp_op_fill(s.on_cuda, d_y, count, 2.5F));
    fetch(d_y);
    for (size_t i = 0; i < count; i++) {
        ck_assert(got[i] == 2.5F);
    }
}
END_TEST

START_TEST(axpy_and_scale_round_as_plain_c_does)
{
    float *d_x;
    float *d_y;

    pick(_i);
    d_x = on_device(x);
    d_y = on_device(y);
    ddp_assert_ok(ddp_op_axpy(s.on_cuda, 0.3F, d_x, d_y, count));
    fetch(d_y);
    for (size_t i = 0; i < count; i++) {
        const volatile float product = 0.3F * x[i];

        wanted[i] = y[i] + product;
    }
    assert_same("axpy");
    ddp_assert_ok(ddp_op_scale(s.on_cuda, -1.7F, d_y, count));
    fetch(d_y);
    for (size_t i = 0; i < count; i++) {
        wanted[i] *= -1.7F;
    }
    assert_same("scale");
}
END_TEST

START_TEST(sum_of_squares_has_the_bits_of_the_cpu)
{
    double *d_sum = support_upload(&s, NULL, sizeof(double));
    double  on_cpu;
    double  on_cuda;

    pick(_i);
    ddp_assert_ok(ddp_op_sumsq(s.on_cuda, on_device(x), count, d_sum));
    ddp_assert_ok(ddp_op_sumsq(s.on_cpu, x, count, &on_cpu));
    ddp_assert_ok(ddp_stream_synchronize(s.on_cpu, -1));
    support_download(&s, &on_cuda, d_sum, sizeof(on_cuda));
    ck_assert(on_cuda == on_cpu);
}
END_TEST

START_TEST(sum_of_squares_of_many_blocks_adds_them_in_order)
{
    const size_t large = 33 * DDP_BLOCK * 32 + 5; /* more than one pass of the kernel */
    float       *data  = malloc(large * sizeof(float));
    double      *d_sum = support_upload(&s, NULL, sizeof(double));
    double       on_cpu;
    double       on_cuda;

    ck_assert_ptr_nonnull(data);
    support_fill(data, large, 5);
    ddp_assert_ok(ddp_op_sumsq(s.on_cuda, support_upload(&s, data, large * sizeof(float)), large, d_sum));
    ddp_assert_ok(ddp_op_sumsq(s.on_cpu, data, large, &on_cpu));
    ddp_assert_ok(ddp_stream_synchronize(s.on_cpu, -1));
    support_download(&s, &on_cuda, d_sum, sizeof(on_cuda));
    ck_assert(on_cuda == on_cpu);
    free(data);
}
END_TEST

/* The cpu's GELUs are within 7e-7 of the definition (tests/kernels/test_act.c), CUDA's erfcf() and expf()
 * within a few units in the last place. */
#define ACT_LIMIT 1e-6

START_TEST(activations_equal_those_of_the_cpu)
{
    pick(_i);
    for (size_t i = 0; i < count; i++) {
        x[i] *= 8.0F;
    }
    for (int act = DDP_ACT_NONE; act <= DDP_ACT_GELU_TANH; act++) {
        float         *d_x  = on_device(x);
        float         *d_y  = on_device(y);
        ddp_act_args_t args = {.act = (ddp_act_t)act, .x = d_x, .y = d_y, .count = count};

        ddp_assert_ok(ddp_op_act(s.on_cuda, &args));
        args.y = d_x; /* in place */
        ddp_assert_ok(ddp_op_act(s.on_cuda, &args));
        args.x = x;
        args.y = wanted;
        ddp_assert_ok(ddp_op_act(s.on_cpu, &args));
        fetch(d_y);
        support_assert_near(got, wanted, count, act <= DDP_ACT_RELU ? 0.0 : ACT_LIMIT / 8, "act");
        memcpy(wanted, got, sizeof(wanted));
        fetch(d_x);
        assert_same("act in place");
    }
}
END_TEST

START_TEST(gradients_of_activations_equal_those_of_the_cpu)
{
    pick(_i);
    for (size_t i = 0; i < count; i++) {
        x[i] *= 8.0F;
    }
    for (int act = DDP_ACT_NONE; act <= DDP_ACT_GELU_TANH; act++) {
        const float            *d_x  = act == DDP_ACT_NONE ? NULL : on_device(x);
        float                  *d_dy = on_device(y);
        float                  *d_dx = on_device(z);
        ddp_act_backward_args_t args = {.act = (ddp_act_t)act, .saved = d_x, .dy = d_dy, .count = count};

        args.dx         = d_dx;
        args.accumulate = true;
        ddp_assert_ok(ddp_op_act_backward(s.on_cuda, &args));
        args.dx         = d_dy; /* in place */
        args.accumulate = false;
        ddp_assert_ok(ddp_op_act_backward(s.on_cuda, &args));
        args.saved = x;
        args.dy    = y;
        args.dx    = wanted;
        ddp_assert_ok(ddp_op_act_backward(s.on_cpu, &args));
        fetch(d_dy);
        support_assert_near(got, wanted, count, act <= DDP_ACT_RELU ? 0.0 : ACT_LIMIT, "act_backward");
        for (size_t i = 0; i < count; i++) {
            wanted[i] = z[i] + got[i];
        }
        fetch(d_dx);
        assert_same("act_backward that adds");
    }
}
END_TEST

START_TEST(activations_of_what_is_no_number_are_those_of_the_cpu)
{
    static const float odd[] = {NAN, INFINITY, -INFINITY, -0.0F, 0.0F, 1e-40F, -1e-40F, 3e38F, -3e38F};

    count = sizeof(odd) / sizeof(*odd);
    shift = 0;
    memcpy(x, odd, sizeof(odd));
    for (int act = DDP_ACT_NONE; act <= DDP_ACT_GELU_TANH; act++) {
        float         *d_y  = on_device(y);
        ddp_act_args_t args = {.act = (ddp_act_t)act, .x = on_device(x), .y = d_y, .count = count};

        ddp_assert_ok(ddp_op_act(s.on_cuda, &args));
        args.x = x;
        args.y = wanted;
        ddp_assert_ok(ddp_op_act(s.on_cpu, &args));
        fetch(d_y);
        for (size_t i = 0; i < count; i++) {
            ck_assert_msg(isnan(wanted[i]) ? isnan(got[i])
                                           : got[i] == wanted[i] || fabsf(got[i] - wanted[i]) < 1e-30F,
                          "act %d of %g is %g, not %g", act, (double)x[i], (double)got[i], (double)wanted[i]);
        }
    }
}
END_TEST

typedef struct shape {
    size_t n, h, w, c;
} shape_t;
static const shape_t shapes[] = {{2, 1, 1, 1},  {1, 3, 5, 37}, {3, 8, 8, 10}, {2, 5, 7, 33},
                                 {40, 3, 2, 5}, {0, 2, 2, 2},  {1, 0, 3, 2}};

START_TEST(a_permutation_turns_images_over_and_back)
{
    const shape_t shape = shapes[_i];

    count = shape.n * shape.h * shape.w * shape.c;
    shift = 0;
    for (int form = 0; form < 4; form++) {
        float             *d_y  = on_device(y);
        ddp_permute_args_t args = {on_device(x), d_y,     shape.n,       shape.h,
                                   shape.w,      shape.c, form % 2 != 0, form / 2 != 0};

        ddp_assert_ok(ddp_op_nhwc_to_nchw(s.on_cuda, &args));
        memcpy(wanted, y, sizeof(wanted));
        args.x = x;
        args.y = wanted;
        ddp_assert_ok(ddp_op_nhwc_to_nchw(s.on_cpu, &args));
        fetch(d_y);
        assert_same("nhwc_to_nchw");
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cuda vector");
    TCase *tc    = tcase_create("vector");

    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(tc, fill_writes_what_it_is_told_and_no_more, 0, 2 * COUNTS);
    tcase_add_loop_test(tc, axpy_and_scale_round_as_plain_c_does, 0, 2 * COUNTS);
    tcase_add_loop_test(tc, sum_of_squares_has_the_bits_of_the_cpu, 0, 2 * COUNTS);
    tcase_add_test(tc, sum_of_squares_of_many_blocks_adds_them_in_order);
    tcase_add_loop_test(tc, activations_equal_those_of_the_cpu, 0, 2 * COUNTS);
    tcase_add_loop_test(tc, gradients_of_activations_equal_those_of_the_cpu, 0, 2 * COUNTS);
    tcase_add_test(tc, activations_of_what_is_no_number_are_those_of_the_cpu);
    tcase_add_loop_test(tc, a_permutation_turns_images_over_and_back, 0,
                        (int)(sizeof(shapes) / sizeof(*shapes)));
    suite_add_tcase(suite, tc);
    return ddp_test_run(suite);
}
