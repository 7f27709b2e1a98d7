#include "tests/kernels/kernel_fixture.h"

static const size_t sizes[] = {0, 1, 3, 8, 15, 16, 17, 255, 256, 257, 1000, 70001};
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

START_TEST(fill_sets_all_and_only_its_range)
{
    ddp_stream_t *stream = fixture_open(_i);

    for (size_t k = 0; k < COUNT(sizes); k++) {
        float *y     = fixture_new(sizes[k]);
        bool   right = true;

        ddp_assert_ok(ddp_op_fill(stream, y, sizes[k], 2.5F));
        ddp_assert_ok(ddp_stream_synchronize(stream, -1));
        for (size_t i = 0; i < sizes[k]; i++) {
            right = right && y[i] == 2.5F;
        }
        ck_assert(right);
        fixture_free(y);
    }
    fixture_close(stream);
}
END_TEST

START_TEST(axpy_and_scale_equal_a_plain_loop)
{
    ddp_stream_t *stream = fixture_open(_i);

    for (size_t k = 0; k < COUNT(sizes); k++) {
        const size_t count  = sizes[k];
        float       *x      = fixture_random(count, 1, 1.0F);
        float       *y      = fixture_random(count, 2, 1.0F);
        double      *wanted = malloc((count + 1) * sizeof(*wanted));

        for (size_t i = 0; i < count; i++) {
            wanted[i] = (double)y[i] + (double)0.7F * (double)x[i];
        }
        ddp_assert_ok(ddp_op_axpy(stream, 0.7F, x, y, count));
        ddp_assert_ok(ddp_stream_synchronize(stream, -1));
        /* one or two roundings of values up to 1.7 */
        ck_assert_double_le(fixture_error(y, wanted, count, 1.0), 2e-7);
        for (size_t i = 0; i < count; i++) {
            wanted[i] = (double)(0.3F * y[i]);
        }
        ddp_assert_ok(ddp_op_scale(stream, 0.3F, y, count));
        ddp_assert_ok(ddp_stream_synchronize(stream, -1));
        ck_assert_double_eq(fixture_error(y, wanted, count, 1.0), 0.0);
        fixture_free(x);
        fixture_free(y);
        free(wanted);
    }
    fixture_close(stream);
}
END_TEST

/* As the operation is documented: eight running sums per block of 256, added pairwise, then block after
 * block. */
static double sumsq_by_definition(const float *x, size_t count)
{
    double total = 0.0;

    for (size_t first = 0; first < count; first += 256) {
        double lane[8] = {0};

        for (size_t i = first; i < first + 256 && i < count; i++) {
            lane[i % 8] += (double)x[i] * (double)x[i];
        }
        for (size_t n = 4; n >= 1; n /= 2) {
            for (size_t i = 0; i < n; i++) {
                lane[i] += lane[i + n];
            }
        }
        total += lane[0];
    }
    return total;
}

START_TEST(sum_of_squares_has_the_same_bits_with_every_instruction_set)
{
    ddp_stream_t *stream = fixture_open(_i);

    for (size_t k = 0; k < COUNT(sizes); k++) {
        float *x   = fixture_random(sizes[k], 5, 3.0F);
        double sum = NAN;

        ddp_assert_ok(ddp_op_sumsq(stream, x, sizes[k], &sum));
        ddp_assert_ok(ddp_stream_synchronize(stream, -1));
        ck_assert_double_eq(sum, sumsq_by_definition(x, sizes[k]));
        fixture_free(x);
    }
    fixture_close(stream);
}
END_TEST

START_TEST(sum_of_squares_sees_what_is_not_finite)
{
    ddp_stream_t *stream = fixture_open(_i);
    float        *x      = fixture_random(300, 5, 3.0F);
    double        sum    = 0.0;

    x[299] = INFINITY;
    ddp_assert_ok(ddp_op_sumsq(stream, x, 300, &sum));
    ddp_assert_ok(ddp_stream_synchronize(stream, -1));
    ck_assert(isinf(sum));
    x[3] = NAN;
    ddp_assert_ok(ddp_op_sumsq(stream, x, 300, &sum));
    ddp_assert_ok(ddp_stream_synchronize(stream, -1));
    ck_assert(isnan(sum));
    fixture_free(x);
    fixture_close(stream);
}
END_TEST

START_TEST(permuting_to_nchw_and_back_equals_a_plain_loop)
{
    static const size_t shapes[][4] = {{2, 7, 7, 64}, {1, 1, 1, 1},   {3, 5, 4, 3},
                                       {0, 2, 2, 2},  {1, 33, 2, 37}, {2, 6, 6, 1}};
    ddp_stream_t       *stream      = fixture_open(_i);

    for (size_t k = 0; k < COUNT(shapes); k++) {
        const size_t       n      = shapes[k][0];
        const size_t       pixels = shapes[k][1] * shapes[k][2];
        const size_t       c      = shapes[k][3];
        const size_t       count  = n * pixels * c;
        float             *x      = fixture_random(count, 9, 1.0F);
        float             *y      = fixture_new(count);
        float             *back   = fixture_new(count);
        size_t             wrong  = 0;
        ddp_permute_args_t args   = {.x = x, .y = y, .n = n, .h = shapes[k][1], .w = shapes[k][2], .c = c};

        ddp_assert_ok(ddp_op_nhwc_to_nchw(stream, &args));
        args.x       = y;
        args.y       = back;
        args.inverse = true;
        ddp_assert_ok(ddp_op_nhwc_to_nchw(stream, &args));
        args.accumulate = true;
        ddp_assert_ok(ddp_op_nhwc_to_nchw(stream, &args));
        ddp_assert_ok(ddp_stream_synchronize(stream, -1));
        for (size_t i = 0; i < count; i++) {
            const size_t image = i / (pixels * c);
            const size_t pixel = i / c % pixels;

            wrong += y[(image * c + i % c) * pixels + pixel] != x[i];
            wrong += back[i] != 2.0F * x[i];
        }
        ck_assert_uint_eq(wrong, 0);
        fixture_free(x);
        fixture_free(y);
        fixture_free(back);
    }
    fixture_close(stream);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("elementwise");
    TCase *tcase = tcase_create("each instruction set");

    tcase_add_loop_test(tcase, fill_sets_all_and_only_its_range, 0, fixture_isas());
    tcase_add_loop_test(tcase, axpy_and_scale_equal_a_plain_loop, 0, fixture_isas());
    tcase_add_loop_test(tcase, sum_of_squares_has_the_same_bits_with_every_instruction_set, 0,
                        fixture_isas());
    tcase_add_loop_test(tcase, sum_of_squares_sees_what_is_not_finite, 0, fixture_isas());
    tcase_add_loop_test(tcase, permuting_to_nchw_and_back_equals_a_plain_loop, 0, fixture_isas());
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
