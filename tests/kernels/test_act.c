#include "tests/kernels/kernel_fixture.h"

static const ddp_act_t acts[]  = {DDP_ACT_NONE, DDP_ACT_RELU, DDP_ACT_GELU, DDP_ACT_GELU_TANH};
static const size_t    sizes[] = {0, 1, 3, 4, 15, 16, 17, 100, 16384, 16391};
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* The definitions, in float64 with the C library. */
static double act_value(ddp_act_t act, double x)
{
    switch (act) {
    case DDP_ACT_RELU:
        return x > 0.0 ? x : 0.0;
    case DDP_ACT_GELU:
        return 0.5 * x * erfc(-x * M_SQRT1_2);
    case DDP_ACT_GELU_TANH:
        return 0.5 * x * (1.0 + tanh(sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
    case DDP_ACT_NONE:
        break;
    }
    return x;
}

static double act_slope(ddp_act_t act, double x)
{
    const double h = 1e-5;

    return (act_value(act, x + h) - act_value(act, x - h)) / (2.0 * h);
}

START_TEST(activations_equal_their_definition_in_float64)
{
    ddp_stream_t *stream = fixture_open(_i);

    for (size_t k = 0; k < COUNT(acts) * COUNT(sizes); k++) {
        const ddp_act_t act    = acts[k % COUNT(acts)];
        const size_t    count  = sizes[k / COUNT(acts)];
        float          *x      = fixture_random(count, (uint32_t)k, 6.0F);
        float          *y      = fixture_new(count);
        double         *wanted = malloc((count + 1) * sizeof(*wanted));
        ddp_act_args_t  args   = {.act = act, .x = x, .y = y, .count = count};

        for (size_t i = 0; i < count; i++) {
            wanted[i] = act_value(act, (double)x[i]);
        }
        ddp_assert_ok(ddp_op_act(stream, &args));
        ddp_assert_ok(ddp_stream_synchronize(stream, -1));
        /* seen: 5e-7. The tail has 4e-7 from exp, the polynomial and the rounding of t^2 / 2 */
        ck_assert_double_le(fixture_error(y, wanted, count, 0.01), 7e-7);
        args.y = x;
        ddp_assert_ok(ddp_op_act(stream, &args));
        ddp_assert_ok(ddp_stream_synchronize(stream, -1));
        ck_assert(count == 0 || memcmp(x, y, count * sizeof(*x)) == 0);
        fixture_free(x);
        fixture_free(y);
        free(wanted);
    }
    fixture_close(stream);
}
END_TEST

START_TEST(gelu_keeps_its_relative_accuracy_in_the_lower_tail)
{
    ddp_stream_t *stream = fixture_open(_i);
    float        *x      = fixture_new(600);
    float        *y      = fixture_new(600);
    double       *wanted = malloc(600 * sizeof(*wanted));

    for (size_t i = 0; i < 600; i++) {
        x[i]      = -0.01F * (float)i;
        wanted[i] = act_value(DDP_ACT_GELU, (double)x[i]);
    }
    ddp_assert_ok(ddp_op_act(stream, &(ddp_act_args_t){.act = DDP_ACT_GELU, .x = x, .y = y, .count = 600}));
    ddp_assert_ok(ddp_stream_synchronize(stream, -1));
    ck_assert_double_le(fixture_error(y, wanted, 600, 1e-30), 3e-6);
    fixture_free(x);
    fixture_free(y);
    free(wanted);
    fixture_close(stream);
}
END_TEST

START_TEST(activation_gradients_equal_finite_differences)
{
    ddp_stream_t *stream = fixture_open(_i);

    for (size_t k = 0; k < COUNT(acts) * COUNT(sizes); k++) {
        const ddp_act_t act    = acts[k % COUNT(acts)];
        const size_t    count  = sizes[k / COUNT(acts)];
        float          *x      = fixture_random(count, (uint32_t)k, 6.0F);
        float          *dy     = fixture_random(count, (uint32_t)k + 1000, 1.0F);
        float          *dx     = fixture_new(count);
        double         *wanted = malloc((count + 1) * sizeof(*wanted));

        ddp_act_backward_args_t args = {.act = act, .saved = x, .dy = dy, .dx = dx, .count = count};

        for (size_t i = 0; i < count; i++) {
            x[i]      = fabsf(x[i]) < 1e-4F ? 1e-4F : x[i]; /* not on the kink */
            wanted[i] = (double)dy[i] * act_slope(act, (double)x[i]);
        }
        ddp_assert_ok(ddp_op_act_backward(stream, &args));
        ddp_assert_ok(ddp_stream_synchronize(stream, -1));
        /* 1e-10 of the difference quotient, 6e-8 of float32, cancellation where the slope is near 0 */
        ck_assert_double_le(fixture_error(dx, wanted, count, 1.0), 5e-7);
        args.accumulate = true;
        ddp_assert_ok(ddp_op_act_backward(stream, &args));
        ddp_assert_ok(ddp_stream_synchronize(stream, -1));
        for (size_t i = 0; i < count; i++) {
            wanted[i] *= 2.0;
        }
        ck_assert_double_le(fixture_error(dx, wanted, count, 1.0), 1e-6);
        args.accumulate = false;
        args.dx         = dy;
        ddp_assert_ok(ddp_op_act_backward(stream, &args));
        ddp_assert_ok(ddp_stream_synchronize(stream, -1));
        for (size_t i = 0; i < count; i++) {
            wanted[i] *= 0.5;
        }
        ck_assert_double_le(fixture_error(dy, wanted, count, 1.0), 5e-7);
        fixture_free(x);
        fixture_free(dy);
        fixture_free(dx);
        free(wanted);
    }
    fixture_close(stream);
}
END_TEST

START_TEST(activations_of_huge_and_not_finite_values_are_their_limits)
{
    static const float input[] = {-INFINITY, -3e38F, -100.0F, -14.5F,   -0.0F,
                                  14.5F,     100.0F, 3e38F,   INFINITY, NAN};
    ddp_stream_t      *stream  = fixture_open(_i);
    const size_t       n       = COUNT(input);
    const float        one[]   = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    float             *y       = fixture_new(n);
    float             *dx      = fixture_new(n);

    for (size_t k = 1; k < COUNT(acts); k++) {
        const float *saved = acts[k] == DDP_ACT_RELU ? y : input;
        bool         right = true;

        ddp_assert_ok(ddp_op_act(stream, &(ddp_act_args_t){.act = acts[k], .x = input, .y = y, .count = n}));
        ddp_assert_ok(ddp_op_act_backward(
            stream,
            &(ddp_act_backward_args_t){.act = acts[k], .saved = saved, .dy = one, .dx = dx, .count = n}));
        ddp_assert_ok(ddp_stream_synchronize(stream, -1));
        for (size_t i = 0; i < 4; i++) {
            right = right && fabsf(y[i]) < 1e-34F && fabsf(dx[i]) < 1e-34F;
        }
        right = right && y[4] == 0.0F;
        for (size_t i = 5; i < 9; i++) {
            right = right && y[i] == input[i] && dx[i] == 1.0F;
        }
        ck_assert_msg(right && isnan(y[9]), "activation %d", (int)acts[k]);
        ck_assert(acts[k] == DDP_ACT_RELU ? dx[9] == 1.0F : isnan(dx[9]));
    }
    fixture_free(y);
    fixture_free(dx);
    fixture_close(stream);
}
END_TEST

START_TEST(bias_gradient_is_the_sum_of_the_rows)
{
    static const size_t shapes[][2] = {{0, 5},    {1, 1},    {7, 3},     {5, 16},
                                       {129, 17}, {300, 64}, {257, 100}, {40000, 2}};
    ddp_stream_t       *stream      = fixture_open(_i);

    for (size_t k = 0; k < COUNT(shapes); k++) {
        const size_t m       = shapes[k][0];
        const size_t n       = shapes[k][1];
        float       *dy      = fixture_random(m * n, (uint32_t)k, 1.0F);
        float       *db      = fixture_new(n);
        double      *wanted  = calloc(2 * n, sizeof(*wanted));
        double       largest = 0.0;

        ddp_bias_grad_args_t args = {.dy = dy, .m = m, .n = n, .db = db};

        for (size_t i = 0; i < m * n; i++) {
            dy[i] += 0.5F; /* sums that grow show a naive float32 sum's error */
            wanted[i % n] += (double)dy[i];
        }
        for (size_t j = 0; j < n; j++) {
            largest = fmax(largest, fabs(wanted[j]));
        }
        ddp_assert_ok(ddp_op_bias_grad(stream, &args));
        ddp_assert_ok(ddp_stream_synchronize(stream, -1));
        /* at most 128 + m / 128 additions of 6e-8, most of which cancel */
        ck_assert_double_le(fixture_error(db, wanted, n, largest), 2e-6);
        args.accumulate = true;
        ddp_assert_ok(ddp_op_bias_grad(stream, &args));
        ddp_assert_ok(ddp_stream_synchronize(stream, -1));
        for (size_t j = 0; j < n; j++) {
            wanted[j] *= 2.0;
        }
        ck_assert_double_le(fixture_error(db, wanted, n, largest), 2e-6);
        fixture_free(dy);
        fixture_free(db);
        free(wanted);
    }
    fixture_close(stream);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("act");
    TCase *tcase = tcase_create("each instruction set");

    tcase_add_loop_test(tcase, activations_equal_their_definition_in_float64, 0, fixture_isas());
    tcase_add_loop_test(tcase, gelu_keeps_its_relative_accuracy_in_the_lower_tail, 0, fixture_isas());
    tcase_add_loop_test(tcase, activation_gradients_equal_finite_differences, 0, fixture_isas());
    tcase_add_loop_test(tcase, activations_of_huge_and_not_finite_values_are_their_limits, 0, fixture_isas());
    tcase_add_loop_test(tcase, bias_gradient_is_the_sum_of_the_rows, 0, fixture_isas());
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
