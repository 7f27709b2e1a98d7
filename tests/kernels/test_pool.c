#include "kernels/ops_norm.h"
#include "tests/kernels/kernel_fixture.h"

/* n, in_h, in_w, c, kernel, stride, pad */
static const size_t shapes[][7] = {
    {2, 4, 4, 16, 2, 2, 0},  {3, 7, 5, 33, 2, 2, 0}, {1, 28, 28, 32, 2, 2, 0}, {2, 6, 6, 3, 3, 2, 1},
    {1, 9, 8, 17, 3, 1, 1},  {2, 8, 8, 20, 4, 4, 0}, {1, 5, 5, 1, 5, 1, 2},    {1, 2, 3, 7, 1, 1, 0},
    {1, 10, 11, 5, 3, 4, 0}, {0, 4, 4, 8, 2, 2, 0},  {1, 31, 31, 2, 15, 8, 7}, {2, 3, 3, 1, 2, 2, 1},
};
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static ddp_pool2d_args_t shape_args(size_t k, bool is_max)
{
    const size_t     *s = shapes[k];
    ddp_pool2d_args_t a = {.is_max = is_max,
                           .n      = s[0],
                           .in_h   = s[1],
                           .in_w   = s[2],
                           .c      = s[3],
                           .kernel = s[4],
                           .stride = s[5],
                           .pad    = s[6]};

    a.out_h = (a.in_h + 2 * a.pad - a.kernel) / a.stride + 1;
    a.out_w = (a.in_w + 2 * a.pad - a.kernel) / a.stride + 1;
    return a;
}

static size_t in_count(const ddp_pool2d_args_t *a)
{
    return a->n * a->in_h * a->in_w * a->c;
}

static size_t out_count(const ddp_pool2d_args_t *a)
{
    return a->n * a->out_h * a->out_w * a->c;
}

/* Where in x the pixel `position` of a window is; false: in the padding. */
static bool window_pixel(const ddp_pool2d_args_t *a, size_t out, size_t position, size_t *at)
{
    const size_t    c   = out % a->c;
    const size_t    col = out / a->c % a->out_w;
    const size_t    row = out / a->c / a->out_w % a->out_h;
    const size_t    n   = out / a->c / a->out_w / a->out_h;
    const ptrdiff_t i   = (ptrdiff_t)(row * a->stride + position / a->kernel) - (ptrdiff_t)a->pad;
    const ptrdiff_t j   = (ptrdiff_t)(col * a->stride + position % a->kernel) - (ptrdiff_t)a->pad;

    if (i < 0 || j < 0 || i >= (ptrdiff_t)a->in_h || j >= (ptrdiff_t)a->in_w) {
        return false;
    }
    *at = ((n * a->in_h + (size_t)i) * a->in_w + (size_t)j) * a->c + c;
    return true;
}

/* The plain loop: value of one output and, for the maximum, which position won. */
static double pool_value(const ddp_pool2d_args_t *a, const double *x, size_t out, size_t *winner)
{
    double largest = -INFINITY;
    double sum     = 0.0;
    size_t at;

    *winner = SIZE_MAX;
    for (size_t p = 0; p < a->kernel * a->kernel; p++) {
        if (window_pixel(a, out, p, &at)) {
            sum += x[at];
            if (*winner == SIZE_MAX || x[at] > largest || isnan(x[at])) {
                largest = x[at];
                *winner = p;
            }
        }
    }
    return a->is_max ? largest : sum / (double)(a->kernel * a->kernel);
}

/* Sum over outputs of dy * pooled: what finite differences are taken of. */
static double pool_sum(const ddp_pool2d_args_t *a, const double *x, const float *dy)
{
    double sum = 0.0;
    size_t winner;

    for (size_t o = 0; o < out_count(a); o++) {
        sum += (double)dy[o] * pool_value(a, x, o, &winner);
    }
    return sum;
}

static double *to_double(const float *x, size_t count)
{
    double *copy = malloc((count + 1) * sizeof(*copy));

    for (size_t i = 0; i < count; i++) {
        copy[i] = (double)x[i];
    }
    return copy;
}

START_TEST(pooling_equals_a_plain_loop)
{
    ddp_stream_t *stream = fixture_open(_i);

    for (size_t k = 0; k < 2 * COUNT(shapes); k++) {
        ddp_pool2d_args_t a      = shape_args(k / 2, k % 2 == 0);
        float            *x      = fixture_random(in_count(&a), (uint32_t)k, 2.0F);
        float            *y      = fixture_new(out_count(&a));
        uint8_t          *index  = fixture_bytes(out_count(&a));
        double           *wide   = NULL;
        double           *wanted = malloc((out_count(&a) + 1) * sizeof(*wanted));
        size_t            wrong  = 0;

        for (size_t i = 0; i < in_count(&a); i++) {
            x[i] = roundf(4.0F * x[i]) / 4.0F; /* many equals; sums are exact */
        }
        wide    = to_double(x, in_count(&a));
        a.x     = x;
        a.y     = y;
        a.index = a.is_max ? index : NULL;
        ddp_assert_ok(ddp_op_pool2d(stream, &a));
        ddp_assert_ok(ddp_stream_synchronize(stream, -1));
        for (size_t o = 0; o < out_count(&a); o++) {
            size_t winner;

            wanted[o] = pool_value(&a, wide, o, &winner);
            wrong += a.is_max && index[o] != winner;
        }
        ck_assert_uint_eq(wrong, 0);
        ck_assert_double_le(fixture_error(y, wanted, out_count(&a), 1e-3), a.is_max ? 0.0 : 2e-7);
        fixture_free(x);
        fixture_free(y);
        fixture_free(index);
        free(wide);
        free(wanted);
    }
    fixture_close(stream);
}
END_TEST

START_TEST(pooling_gradients_equal_finite_differences)
{
    ddp_stream_t *stream = fixture_open(_i);

    for (size_t k = 0; k < 2 * COUNT(shapes); k++) {
        ddp_pool2d_args_t a      = shape_args(k / 2, k % 2 == 0);
        const size_t      count  = in_count(&a);
        float            *x      = fixture_random(count, (uint32_t)k, 2.0F);
        float            *y      = fixture_new(out_count(&a));
        float            *dy     = fixture_random(out_count(&a), (uint32_t)k + 100, 1.0F);
        float            *dx     = fixture_new(count);
        uint8_t          *index  = fixture_bytes(out_count(&a));
        double           *wide   = to_double(x, count);
        double           *wanted = calloc(count + 1, sizeof(*wanted));
        const size_t      stride = count / 200 + 1; /* not every pixel of the large shapes */

        a.x     = x;
        a.y     = y;
        a.index = a.is_max ? index : NULL;
        ddp_assert_ok(ddp_op_pool2d(stream, &a));
        ddp_pool2d_backward_args_t back = {.forward = a, .dy = dy, .dx = dx};

        ddp_assert_ok(ddp_op_pool2d_backward(stream, &back));
        ddp_assert_ok(ddp_stream_synchronize(stream, -1));
        for (size_t i = 0; i < count; i++) {
            const double h = 1e-7; /* less than any gap between two random values but rare ones */

            if (i % stride == 0) {
                wide[i] += h;
                wanted[i] = pool_sum(&a, wide, dy);
                wide[i] -= 2.0 * h;
                wanted[i] = (wanted[i] - pool_sum(&a, wide, dy)) / (2.0 * h);
                wide[i] += h;
            } else {
                wanted[i] = (double)dx[i];
            }
        }
        /* the sums are some 1e2, so the quotient has 1e2 * 2e-16 / 1e-7 */
        ck_assert_double_le(fixture_error(dx, wanted, count, 1.0), 2e-6);
        memcpy(x, dx, count * sizeof(*x));
        back.accumulate = true;
        ddp_assert_ok(ddp_op_pool2d_backward(stream, &back));
        ddp_assert_ok(ddp_stream_synchronize(stream, -1));
        for (size_t i = 0; i < count; i++) {
            wanted[i] = 2.0 * (double)x[i];
        }
        ck_assert_double_le(fixture_error(dx, wanted, count, 1.0), 1e-6);
        fixture_free(x);
        fixture_free(y);
        fixture_free(dy);
        fixture_free(dx);
        fixture_free(index);
        free(wide);
        free(wanted);
    }
    fixture_close(stream);
}
END_TEST

START_TEST(a_nan_wins_and_padding_never_does)
{
    ddp_stream_t *stream = fixture_open(_i);

    for (size_t k = 0; k < COUNT(shapes); k++) {
        ddp_pool2d_args_t a     = shape_args(k, true);
        const size_t      count = in_count(&a);
        float            *x     = fixture_random(count, (uint32_t)k, 1.0F);
        float            *y     = fixture_new(out_count(&a));
        uint8_t          *index = fixture_bytes(out_count(&a));
        double           *wide;
        size_t            wrong = 0;

        for (size_t i = 0; i < count; i++) {
            x[i] =
                i % 7 == 3 ? NAN : (i % 5 == 0 ? -INFINITY : x[i] - 10.0F); /* all less than padding's zero */
        }
        wide    = to_double(x, count);
        a.x     = x;
        a.y     = y;
        a.index = index;
        ddp_assert_ok(ddp_op_pool2d(stream, &a));
        ddp_assert_ok(ddp_stream_synchronize(stream, -1));
        for (size_t o = 0; o < out_count(&a); o++) {
            size_t       winner;
            const double wanted = pool_value(&a, wide, o, &winner);

            wrong += index[o] != winner || (isnan(wanted) ? !isnan(y[o]) : (double)y[o] != wanted);
        }
        ck_assert_uint_eq(wrong, 0);
        fixture_free(x);
        fixture_free(y);
        fixture_free(index);
        free(wide);
    }
    fixture_close(stream);
}
END_TEST

START_TEST(global_average_pool_is_exact_on_small_numbers)
{
    static const size_t sizes[][3] = {{1, 1, 1}, {3, 4, 5}, {2, 64, 16}, {2, 256, 70}, {1, 1024, 33}};
    ddp_stream_t       *stream     = fixture_open(_i);

    for (size_t k = 0; k < COUNT(sizes); k++) {
        const size_t n      = sizes[k][0];
        const size_t pixels = sizes[k][1];
        const size_t c      = sizes[k][2];
        float       *x      = fixture_new(n * pixels * c);
        float       *y      = fixture_new(n * c);
        float       *dx     = fixture_new(n * pixels * c);

        for (size_t i = 0; i < n * pixels * c; i++) {
            x[i] = (float)(i * 7 % 31) - 15.0F;
        }
        ddp_assert_ok(ddp_op_global_avg_pool(stream, &(ddp_global_avg_pool_args_t){x, n, pixels, c, y}));
        ddp_assert_ok(ddp_op_global_avg_pool_backward(
            stream, &(ddp_global_avg_pool_backward_args_t){y, n, pixels, c, dx, false}));
        ddp_assert_ok(ddp_op_global_avg_pool_backward(
            stream, &(ddp_global_avg_pool_backward_args_t){y, n, pixels, c, dx, true}));
        ddp_assert_ok(ddp_stream_synchronize(stream, -1));
        for (size_t i = 0; i < n * c; i++) {
            double sum = 0.0;

            for (size_t p = 0; p < pixels; p++) {
                sum += (double)x[(i / c * pixels + p) * c + i % c];
                ck_assert_float_eq(dx[(i / c * pixels + p) * c + i % c], 2.0F * y[i] / (float)pixels);
            }
            ck_assert_double_eq((double)y[i], sum / (double)pixels);
        }
        fixture_free(x);
        fixture_free(y);
        fixture_free(dx);
    }
    fixture_close(stream);
}
END_TEST

START_TEST(a_global_average_needs_pixels)
{
    ddp_stream_t *stream = fixture_open(_i);
    float         x[6]   = {0};

    ddp_assert_fails(
        ddp_op_global_avg_pool(stream, &(ddp_global_avg_pool_args_t){.x = x, .n = 2, .c = 3, .y = x}),
        DDP_ERR_INVALID_ARG, "images have no pixels");
    ddp_assert_fails(
        ddp_op_global_avg_pool(stream, &(ddp_global_avg_pool_args_t){.x = x, .n = 2, .pixels = 1, .c = 3}),
        DDP_ERR_INVALID_ARG, "no memory for y");
    ddp_assert_ok(ddp_op_global_avg_pool(stream, &(ddp_global_avg_pool_args_t){.pixels = 4, .c = 5}));
    ddp_assert_ok(ddp_op_global_avg_pool_backward(
        stream, &(ddp_global_avg_pool_backward_args_t){.n = 3, .pixels = 4, .c = 0}));
    fixture_close(stream);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("pool");
    TCase *tcase = tcase_create("each instruction set");

    tcase_add_loop_test(tcase, pooling_equals_a_plain_loop, 0, fixture_isas());
    tcase_add_loop_test(tcase, pooling_gradients_equal_finite_differences, 0, fixture_isas());
    tcase_add_loop_test(tcase, a_nan_wins_and_padding_never_does, 0, fixture_isas());
    tcase_add_loop_test(tcase, global_average_pool_is_exact_on_small_numbers, 0, fixture_isas());
    tcase_add_loop_test(tcase, a_global_average_needs_pixels, 0, fixture_isas());
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
