#include "tests/kernels/conv_layer.h"

#define N_ALGOS 2

/*
 * Error against float64 relative to the 2-norm of the result, at most; about twice what is seen on the worst
 * of the layers here with plain C. Direct: 1e-7 to 4e-7.
 */
static const struct algo {
    ddp_conv_algo_t algo;
    double          y, dx, dw;
} algos[N_ALGOS] = {{DDP_CONV_WINOGRAD2, 8e-7, 8e-7, 8e-7}, {DDP_CONV_WINOGRAD4, 3e-6, 3e-6, 5e-6}};

/* By norm; and no element is off by more than 10 times its share of it, so that a wrong tap at a border is
 * seen. */
static bool norm_close(const char *what, const float *got, const double *want, size_t count, double bound)
{
    double error   = 0.0;
    double size    = 0.0;
    double largest = 0.0;
    double share;

    for (size_t i = 0; i < count; i++) {
        const double difference = fabs((double)got[i] - want[i]);

        largest = difference > largest || isnan(difference) ? difference : largest;
        error += difference * difference;
        size += want[i] * want[i];
    }
    share = sqrt(size / (double)count);
    if (sqrt(error) <= bound * sqrt(size) && largest <= 10.0 * bound * share) {
        return true;
    }
    fprintf(stderr, "%s: relative error %.2g, largest %.2g of the root mean square; bound %.2g\n", what,
            sqrt(error / size), largest / share, bound);
    return false;
}

static bool layer_is_right(const layer_t *l, const struct algo *algo)
{
    const bool y  = norm_close("y", l->y, l->y_want, l->y_count, algo->y);
    const bool dx = norm_close("dx", l->dx, l->dx_want, l->x_count, algo->dx);
    const bool dw = norm_close("dw", l->dw, l->dw_want, l->w_count, algo->dw);

    return layer_close_enough("db", l->db, l->db_want, l->s.out_c, l->db_size) && y && dx && dw;
}

/* Odd sizes, images smaller than a tile, tiles of several images in a block, blocks within an image, rows
 * longer than a block, and channels on both sides of whole vectors. */
static const ddp_conv2d_shape_t shapes[] = {
    SHAPE(2, 14, 14, 32, 64, 3, 3, 1, 1), SHAPE(3, 5, 7, 17, 33, 3, 3, 1, 1),
    SHAPE(70, 1, 1, 16, 16, 3, 3, 1, 1),  SHAPE(9, 8, 8, 20, 16, 3, 3, 1, 1),
    SHAPE(2, 3, 4, 16, 40, 3, 3, 1, 0),   SHAPE(1, 6, 5, 31, 18, 3, 3, 1, 2),
    SHAPE(1, 37, 34, 16, 16, 3, 3, 1, 1), SHAPE(2, 6, 261, 16, 17, 3, 3, 1, 0),
    SHAPE(30, 2, 2, 16, 24, 3, 3, 1, 1),
};
#define N_SHAPES (sizeof(shapes) / sizeof(shapes[0]))

START_TEST(results_and_gradients_equal_the_plain_loop)
{
    ddp_stream_t *stream = fixture_open(_i);

    for (size_t i = 0; i < N_SHAPES * N_ALGOS; i++) {
        const struct algo *algo  = &algos[i % N_ALGOS];
        ddp_conv2d_shape_t shape = shapes[i / N_ALGOS];
        layer_t            l;

        shape.algo = algo->algo;
        layer_open(&l, stream, shape);
        ck_assert_int_eq(ddp_conv2d_algo(&l.s), algo->algo);
        layer_plain_loop(&l, true);
        layer_run(stream, &l);
        ck_assert_msg(layer_is_right(&l, algo), "%zu images %zux%zux%zu -> %zu, pad %zu, algorithm %d",
                      shape.n, shape.in_h, shape.in_w, shape.in_c, shape.out_c, shape.pad, (int)shape.algo);
        layer_close(&l);
    }
    fixture_close(stream);
}
END_TEST

/* The loss sum(y * dy) is linear in each operand. F(2x2) is exact on coarse numbers; F(4x4) rounds the loss
 * by less than 1e-3. */
static void check_differences(ddp_stream_t *stream, layer_t *l, float *operand, const float *gradient,
                              size_t count)
{
    const double bound = l->s.algo == DDP_CONV_WINOGRAD2 ? 0.0 : 1e-3;

    for (size_t i = 0; i < count; i += 1 + count / 23) {
        const float  before = operand[i];
        const double loss   = layer_loss(stream, l);
        double       error;

        operand[i] = before + 1.0F;
        error      = fabs(layer_loss(stream, l) - loss - (double)gradient[i]);
        ck_assert_msg(error <= bound, "difference %zu: %g off", i, error);
        operand[i] = before;
    }
}

START_TEST(gradients_are_the_differences_of_the_forward_pass)
{
    ddp_stream_t              *stream = fixture_open(_i);
    ddp_conv2d_shape_t         shape  = SHAPE(2, 7, 6, 16, 18, 3, 3, 1, 1);
    ddp_conv2d_backward_args_t backward;
    layer_t                    l;

    for (size_t i = 0; i < N_ALGOS; i++) {
        shape.algo = algos[i].algo;
        layer_open(&l, stream, shape);
        layer_make_coarse(&l);
        backward = layer_backward(&l);
        ddp_assert_ok(ddp_op_conv2d_backward(stream, &backward));
        check_differences(stream, &l, l.x, l.dx, l.x_count);
        check_differences(stream, &l, l.w, l.dw, l.w_count);
        check_differences(stream, &l, l.bias, l.db, l.s.out_c);
        layer_close(&l);
    }
    fixture_close(stream);
}
END_TEST

START_TEST(relu_is_fused_and_the_bias_may_be_absent)
{
    ddp_stream_t      *stream = fixture_open(_i);
    ddp_conv2d_shape_t shape  = SHAPE(2, 9, 8, 16, 19, 3, 3, 1, 1);
    ddp_conv2d_args_t  forward;
    layer_t            l;

    for (int bias = 0; bias < 2; bias++) {
        shape.algo = algos[bias].algo;
        layer_open(&l, stream, shape);
        layer_plain_loop(&l, bias == 1);
        for (size_t i = 0; i < l.y_count; i++) {
            l.y_want[i] = l.y_want[i] > 0.0 ? l.y_want[i] : 0.0;
        }
        forward      = layer_forward(&l);
        forward.act  = DDP_ACT_RELU;
        forward.bias = bias == 1 ? l.bias : NULL;
        ddp_assert_ok(ddp_op_conv2d(stream, &forward));
        ddp_assert_ok(ddp_stream_synchronize(stream, -1));
        ck_assert(norm_close("y", l.y, l.y_want, l.y_count, algos[bias].y));
        layer_close(&l);
    }
    fixture_close(stream);
}
END_TEST

static void add_to_both(float *got, double *want, size_t count, float value)
{
    for (size_t i = 0; i < count; i++) {
        got[i] = value;
        want[i] += (double)value;
    }
}

START_TEST(gradients_are_added_where_asked_and_left_out_where_null)
{
    ddp_stream_t              *stream = fixture_open(_i);
    ddp_conv2d_shape_t         shape  = SHAPE(5, 6, 9, 18, 16, 3, 3, 1, 1);
    ddp_conv2d_backward_args_t backward;
    layer_t                    l;

    for (size_t i = 0; i < N_ALGOS; i++) {
        shape.algo = algos[i].algo;
        layer_open(&l, stream, shape);
        layer_plain_loop(&l, true);
        add_to_both(l.dx, l.dx_want, l.x_count, 0.5F);
        add_to_both(l.dw, l.dw_want, l.w_count, -2.0F);
        add_to_both(l.db, l.db_want, l.s.out_c, 3.0F);
        for (int part = 0; part < 3; part++) { /* one gradient at a time, with only what it needs */
            backward    = layer_backward(&l);
            backward.dx = part == 0 ? l.dx : NULL;
            backward.dw = part == 1 ? l.dw : NULL;
            backward.db = part == 2 ? l.db : NULL;
            backward.w  = part == 0 ? l.w : NULL;
            backward.x  = part == 1 ? l.x : NULL;

            backward.accumulate_dx = backward.accumulate_dw = true;
            ddp_assert_ok(ddp_op_conv2d_backward(stream, &backward));
            ddp_assert_ok(ddp_stream_synchronize(stream, -1));
        }
        ck_assert(norm_close("dx", l.dx, l.dx_want, l.x_count, algos[i].dx));
        ck_assert(norm_close("dw", l.dw, l.dw_want, l.w_count, algos[i].dw));
        ck_assert(layer_close_enough("db", l.db, l.db_want, l.s.out_c, l.db_size));
        layer_close(&l);
    }
    fixture_close(stream);
}
END_TEST

START_TEST(a_micro_batch_has_the_same_bits_before_and_after_another)
{
    ddp_stream_t      *stream = fixture_open(_i);
    ddp_conv2d_shape_t shape  = SHAPE(6, 10, 11, 16, 20, 3, 3, 1, 1);
    layer_t            first;
    layer_t            other;
    layer_t            again;

    for (size_t i = 0; i < N_ALGOS; i++) {
        shape.algo = algos[i].algo;
        layer_open(&first, stream, shape);
        layer_open(&other, stream, shape);
        layer_open(&again, stream, shape);
        memcpy(other.x, first.dy, other.x_count * sizeof(float));
        layer_run(stream, &first);
        fixture_free(again.scratch);
        again.scratch = other.scratch; /* with what the other left behind */
        layer_run(stream, &other);
        layer_run(stream, &again);
        ck_assert_mem_eq(first.y, again.y, first.y_count * sizeof(float));
        ck_assert_mem_eq(first.dx, again.dx, first.x_count * sizeof(float));
        ck_assert_mem_eq(first.dw, again.dw, first.w_count * sizeof(float));
        ck_assert_mem_eq(first.db, again.db, shape.out_c * sizeof(float));
        again.scratch = NULL;
        layer_close(&first);
        layer_close(&other);
        layer_close(&again);
    }
    fixture_close(stream);
}
END_TEST

/* Image `at` of a batch, alone, has the results it has in the batch. */
static void check_alone(ddp_stream_t *stream, const layer_t *batch, size_t at)
{
    ddp_conv2d_shape_t shape = batch->s;
    layer_t            alone;

    shape.n = 1;
    layer_open(&alone, stream, shape);
    memcpy(alone.x, batch->x + at * alone.x_count, alone.x_count * sizeof(float));
    memcpy(alone.dy, batch->dy + at * alone.y_count, alone.y_count * sizeof(float));
    layer_run(stream, &alone);
    ck_assert_mem_eq(alone.y, batch->y + at * alone.y_count, alone.y_count * sizeof(float));
    ck_assert_mem_eq(alone.dx, batch->dx + at * alone.x_count, alone.x_count * sizeof(float));
    layer_close(&alone);
}

START_TEST(the_results_of_a_sample_do_not_depend_on_the_others)
{
    ddp_stream_t      *stream = fixture_open(_i);
    ddp_conv2d_shape_t shape  = SHAPE(7, 13, 10, 20, 16, 3, 3, 1, 1);
    layer_t            l;

    for (size_t i = 0; i < N_ALGOS; i++) {
        shape.algo = algos[i].algo;
        layer_open(&l, stream, shape);
        layer_run(stream, &l);
        for (size_t at = 0; at < shape.n; at++) {
            check_alone(stream, &l, at);
        }
        layer_close(&l);
    }
    fixture_close(stream);
}
END_TEST

START_TEST(the_shape_decides_where_winograd_is_used)
{
    static const struct {
        ddp_conv2d_shape_t shape;
        ddp_conv_algo_t    by_default;
        bool               possible;
    } cases[] = {
        {SHAPE(8, 14, 14, 32, 64, 3, 3, 1, 1), DDP_CONV_WINOGRAD4, true},
        {SHAPE(8, 14, 14, 16, 16, 3, 3, 1, 1), DDP_CONV_WINOGRAD4, true},
        {SHAPE(8, 4, 4, 64, 64, 3, 3, 1, 1), DDP_CONV_WINOGRAD4, true},
        {SHAPE(8, 5, 5, 64, 64, 3, 3, 1, 1), DDP_CONV_DIRECT, true}, /* 144 of 225 multiplications */
        {SHAPE(8, 2, 2, 64, 64, 3, 3, 1, 1), DDP_CONV_DIRECT, true},
        {SHAPE(8, 28, 28, 1, 32, 3, 3, 1, 1), DDP_CONV_DIRECT, false},
        {SHAPE(8, 28, 28, 16, 15, 3, 3, 1, 1), DDP_CONV_DIRECT, false},
        {SHAPE(8, 32, 32, 16, 32, 3, 3, 2, 1), DDP_CONV_DIRECT, false},
        {SHAPE(8, 32, 32, 16, 32, 1, 1, 1, 0), DDP_CONV_DIRECT, false},
        {SHAPE(8, 32, 32, 16, 32, 3, 1, 1, 1), DDP_CONV_DIRECT, false},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ddp_conv2d_shape_t shape = cases[i].shape;

        ddp_assert_ok(ddp_conv2d_shape_fill(&shape));
        ck_assert_int_eq(ddp_conv2d_algo(&shape), cases[i].by_default);
        for (int algo = DDP_CONV_DIRECT; algo <= DDP_CONV_WINOGRAD4; algo++) {
            shape.algo = (ddp_conv_algo_t)algo;
            ck_assert_int_eq(ddp_conv2d_algo(&shape), cases[i].possible ? algo : DDP_CONV_DIRECT);
        }
    }
}
END_TEST

START_TEST(an_unknown_algorithm_is_refused)
{
    ddp_stream_t     *stream = fixture_open(0);
    float             x[64]  = {0};
    ddp_conv2d_args_t args   = {
          .shape = SHAPE(1, 4, 4, 1, 1, 3, 3, 1, 1), .x = x, .w = x, .y = x, .scratch = x};

    ddp_assert_ok(ddp_conv2d_shape_fill(&args.shape));
    args.shape.algo = (ddp_conv_algo_t)4;
    ddp_assert_fails(ddp_op_conv2d(stream, &args), DDP_ERR_INVALID_ARG, "algorithm 4 is not known");
    fixture_close(stream);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("conv winograd");
    TCase *tcase = tcase_create("all sets");
    int    isas  = fixture_isas();

    tcase_add_loop_test(tcase, results_and_gradients_equal_the_plain_loop, 0, isas);
    tcase_add_loop_test(tcase, gradients_are_the_differences_of_the_forward_pass, 0, isas);
    tcase_add_loop_test(tcase, relu_is_fused_and_the_bias_may_be_absent, 0, isas);
    tcase_add_loop_test(tcase, gradients_are_added_where_asked_and_left_out_where_null, 0, isas);
    tcase_add_loop_test(tcase, a_micro_batch_has_the_same_bits_before_and_after_another, 0, isas);
    tcase_add_loop_test(tcase, the_results_of_a_sample_do_not_depend_on_the_others, 0, isas);
    tcase_add_test(tcase, the_shape_decides_where_winograd_is_used);
    tcase_add_test(tcase, an_unknown_algorithm_is_refused);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
