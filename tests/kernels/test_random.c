#include "tests/kernels/kernel_fixture.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

START_TEST(philox_gives_the_published_answers)
{
    /* kat_vectors of Random123, philox4x32 10: counter, key, answer */
    static const uint32_t known[][10] = {
        {0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
        {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0x408f276d, 0x41c83b0e,
         0xa20bc7c6, 0x6d5451fd},
        {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0, 0xd16cfe09, 0x94fdcceb,
         0x5001e420, 0x24126ea1},
    };

    for (size_t k = 0; k < COUNT(known); k++) {
        uint32_t random[4];

        ddp_philox((uint64_t)known[k][5] << 32 | known[k][4], known[k], random);
        ck_assert_mem_eq(random, known[k] + 6, sizeof(random));
    }
}
END_TEST

static ddp_dropout_args_t dropout_args(const float *x, float *y, size_t rows, size_t width)
{
    return (ddp_dropout_args_t){
        .x = x, .y = y, .rows = rows, .width = width, .p = 0.3F, .key = {.seed = 5, .step = 7, .layer = 2}};
}

START_TEST(dropout_of_pieces_equals_dropout_of_the_whole_batch)
{
    static const size_t widths[] = {1, 3, 10, 16, 17, 63, 64, 65, 130, 784};
    const size_t        rows     = 13;
    ddp_stream_t       *stream   = fixture_open(_i);

    for (size_t k = 0; k < COUNT(widths); k++) {
        const size_t       width  = widths[k];
        float             *x      = fixture_random(rows * width, 3, 1.0F);
        float             *whole  = fixture_new(rows * width);
        float             *pieces = fixture_new(rows * width);
        ddp_dropout_args_t args   = dropout_args(x, whole, rows, width);
        size_t             at     = 0;

        args.first_row = 1000;
        ddp_assert_ok(ddp_op_dropout(stream, &args));
        for (size_t piece = 0; at < rows; piece = 2 * piece + 1) { /* 0, 1, 3 and the rest */
            args.rows      = piece < rows - at ? piece : rows - at;
            args.x         = x + at * width;
            args.y         = pieces + at * width;
            args.first_row = 1000 + at;
            ddp_assert_ok(ddp_op_dropout(stream, &args));
            at += args.rows;
        }
        ddp_assert_ok(ddp_stream_synchronize(stream, -1));
        ck_assert_mem_eq(whole, pieces, rows * width * sizeof(*whole));
        fixture_free(x);
        fixture_free(whole);
        fixture_free(pieces);
    }
    fixture_close(stream);
}
END_TEST

START_TEST(dropout_keeps_with_its_probability_and_scales_what_it_keeps)
{
    const size_t       rows   = 400;
    const size_t       width  = 250;
    const double       factor = 1.0 / (1.0 - (double)0.3F);
    ddp_stream_t      *stream = fixture_open(_i);
    float             *x      = fixture_random(rows * width, 3, 1.0F);
    float             *y      = fixture_new(rows * width);
    ddp_dropout_args_t args   = dropout_args(x, y, rows, width);
    size_t             kept   = 0;
    double             worst  = 0.0;

    ddp_assert_ok(ddp_op_dropout(stream, &args));
    ddp_assert_ok(ddp_stream_synchronize(stream, -1));
    for (size_t i = 0; i < rows * width; i++) {
        if (y[i] != 0.0F) {
            kept++;
            worst = fmax(worst, fabs((double)y[i] - (double)x[i] * factor));
        }
    }
    ck_assert_double_le(worst, 2e-7);
    /* five standard deviations of a binomial: 5 sqrt(0.7 * 0.3 / 1e5) */
    ck_assert_double_eq_tol((double)kept / (double)(rows * width), 0.7, 0.0073);
    args.accumulate = true;
    for (size_t i = 0; i < rows * width; i++) {
        x[i] = 1.0F;
        y[i] = y[i] != 0.0F ? -1.0F : 0.5F;
    }
    ddp_assert_ok(ddp_op_dropout(stream, &args));
    ddp_assert_ok(ddp_stream_synchronize(stream, -1));
    for (size_t i = 0; i < rows * width; i++) {
        /* the same mask again: kept elements have -1 + 1 / 0.7, dropped ones stay */
        worst = fmax(worst, fmin(fabs((double)y[i] - 0.5), fabs((double)y[i] + 1.0 - factor)));
        kept -= y[i] != 0.5F;
    }
    ck_assert_double_le(worst, 2e-7);
    ck_assert_uint_eq(kept, 0);
    fixture_free(x);
    fixture_free(y);
    fixture_close(stream);
}
END_TEST

START_TEST(dropout_with_probability_zero_copies)
{
    ddp_stream_t      *stream = fixture_open(_i);
    float             *x      = fixture_random(77, 3, 1.0F);
    float             *y      = fixture_new(77);
    ddp_dropout_args_t args   = dropout_args(x, y, 7, 11);

    args.p = 0.0F;
    ddp_assert_ok(ddp_op_dropout(stream, &args));
    ddp_assert_ok(ddp_stream_synchronize(stream, -1));
    ck_assert_mem_eq(x, y, 77 * sizeof(*x));
    args.rows = 0;
    ddp_assert_ok(ddp_op_dropout(stream, &args));
    fixture_free(x);
    fixture_free(y);
    fixture_close(stream);
}
END_TEST

/* Number of elements that both masks keep or both drop. */
static size_t mask_agreement(ddp_stream_t *stream, const ddp_dropout_args_t *a, const ddp_dropout_args_t *b)
{
    const size_t count = a->rows * a->width;
    size_t       same  = 0;

    ddp_assert_ok(ddp_op_dropout(stream, a));
    ddp_assert_ok(ddp_op_dropout(stream, b));
    ddp_assert_ok(ddp_stream_synchronize(stream, -1));
    for (size_t i = 0; i < count; i++) {
        same += (a->y[i] == 0.0F) == (b->y[i] == 0.0F);
    }
    return same;
}

START_TEST(dropout_masks_of_other_seeds_steps_layers_and_rows_are_unrelated)
{
    const size_t       count  = 100 * 200;
    ddp_stream_t      *stream = fixture_open(_i);
    float             *x      = fixture_new(count);
    float             *y      = fixture_new(count);
    float             *z      = fixture_new(count);
    ddp_dropout_args_t a      = dropout_args(x, y, 100, 200);

    ddp_assert_ok(ddp_op_fill(stream, x, count, 1.0F));
    for (int k = 0; k < 8; k++) {
        ddp_dropout_args_t b = dropout_args(x, z, 100, 200);

        b.key.seed += k == 0 ? 1 : (k == 1 ? (uint64_t)1 << 32 : 0);
        b.key.step += k == 2 ? 1 : (k == 3 ? (uint64_t)1 << 32 : 0);
        b.key.layer += k == 4;
        b.first_row += k == 5 ? 1 : (k == 6 ? (uint64_t)1 << 32 : 0);
        if (k == 7) {
            ck_assert_uint_eq(mask_agreement(stream, &a, &b), count);
        } else {
            /* independent masks agree with 0.7^2 + 0.3^2; five standard deviations are 0.018 */
            ck_assert_double_eq_tol((double)mask_agreement(stream, &a, &b) / (double)count, 0.58, 0.018);
        }
    }
    fixture_free(x);
    fixture_free(y);
    fixture_free(z);
    fixture_close(stream);
}
END_TEST

START_TEST(dropout_and_uniform_have_the_same_bits_with_every_instruction_set)
{
    const size_t       count = 9 * 133;
    float             *x     = fixture_random(count, 8, 1.0F);
    float             *y[2]  = {fixture_new(count), fixture_new(count)};
    float             *u[2]  = {fixture_new(count), fixture_new(count)};
    ddp_dropout_args_t args  = dropout_args(x, y[0], 9, 133);
    ddp_uniform_args_t draw  = {.count = count, .low = -0.1F, .high = 0.3F, .key = {.seed = 3}};

    for (int k = 0; k < 2; k++) {
        ddp_stream_t *stream = fixture_open(k == 0 ? 0 : _i);

        args.y = y[k];
        draw.y = u[k];
        ddp_assert_ok(ddp_op_dropout(stream, &args));
        ddp_assert_ok(ddp_op_uniform(stream, &draw));
        fixture_close(stream);
    }
    ck_assert_mem_eq(y[0], y[1], count * sizeof(float));
    ck_assert_mem_eq(u[0], u[1], count * sizeof(float));
    fixture_free(x);
    fixture_free(y[0]);
    fixture_free(y[1]);
    fixture_free(u[0]);
    fixture_free(u[1]);
}
END_TEST

START_TEST(uniform_numbers_fill_their_range_evenly_and_never_reach_its_end)
{
    static const float ranges[][2] = {
        {-0.125F, 0.375F}, {0.0F, 1.0F}, {1.0F, 1.0000002F}, {-1e-3F, -0.9e-3F}, {16777216.0F, 16777218.0F}};
    const size_t  count  = 100000;
    ddp_stream_t *stream = fixture_open(_i);
    float        *y      = fixture_new(count);

    for (size_t k = 0; k < COUNT(ranges); k++) {
        const float        low   = ranges[k][0];
        const float        high  = ranges[k][1];
        double             sum   = 0.0;
        size_t             wrong = 0;
        ddp_uniform_args_t args  = {.y = y, .count = count, .low = low, .high = high, .key = {.seed = k}};

        ddp_assert_ok(ddp_op_uniform(stream, &args));
        ddp_assert_ok(ddp_stream_synchronize(stream, -1));
        for (size_t i = 0; i < count; i++) {
            wrong += !(y[i] >= low && y[i] < high);
            sum += ((double)y[i] - (double)low) / ((double)high - (double)low);
        }
        ck_assert_uint_eq(wrong, 0);
        if (k < 2) {
            /* five standard deviations of a mean of 1e5: 5 * 0.289 / 316 */
            ck_assert_double_eq_tol(sum / (double)count, 0.5, 0.0046);
        }
    }
    fixture_free(y);
    fixture_close(stream);
}
END_TEST

START_TEST(a_uniform_number_depends_on_its_index_alone)
{
    ddp_stream_t      *stream = fixture_open(_i);
    float             *y      = fixture_new(103);
    float             *z      = fixture_new(50);
    ddp_uniform_args_t args   = {
          .y = y, .count = 103, .low = 0.0F, .high = 1.0F, .key = {.seed = 1, .layer = 4}};

    ddp_assert_ok(ddp_op_uniform(stream, &args));
    args.y     = z;
    args.count = 50;
    ddp_assert_ok(ddp_op_uniform(stream, &args));
    ddp_assert_ok(ddp_stream_synchronize(stream, -1));
    ck_assert_mem_eq(y, z, 50 * sizeof(*z));
    args.count = 0;
    ddp_assert_ok(ddp_op_uniform(stream, &args));
    fixture_free(y);
    fixture_free(z);
    fixture_close(stream);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("random");
    TCase *tcase = tcase_create("each instruction set");

    tcase_add_test(tcase, philox_gives_the_published_answers);
    tcase_add_loop_test(tcase, dropout_of_pieces_equals_dropout_of_the_whole_batch, 0, fixture_isas());
    tcase_add_loop_test(tcase, dropout_keeps_with_its_probability_and_scales_what_it_keeps, 0,
                        fixture_isas());
    tcase_add_loop_test(tcase, dropout_with_probability_zero_copies, 0, fixture_isas());
    tcase_add_loop_test(tcase, dropout_masks_of_other_seeds_steps_layers_and_rows_are_unrelated, 0,
                        fixture_isas());
    tcase_add_loop_test(tcase, dropout_and_uniform_have_the_same_bits_with_every_instruction_set, 0,
                        fixture_isas());
    tcase_add_loop_test(tcase, uniform_numbers_fill_their_range_evenly_and_never_reach_its_end, 0,
                        fixture_isas());
    tcase_add_loop_test(tcase, a_uniform_number_depends_on_its_index_alone, 0, fixture_isas());
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
