#include "tests/kernels/bf16_test.h"
#include "tests/kernels/conv_layer.h"

/* Of the running test. */
static ddp_precision_t precision;

static void open_layer(layer_t *l, ddp_stream_t *stream, ddp_conv2d_shape_t shape)
{
    shape.precision = precision;
    layer_open(l, stream, shape);
}

static bool layer_is_right(layer_t *l)
{
    return layer_close_enough("y", l->y, l->y_want, l->y_count, l->y_size) &&
           layer_close_enough("dx", l->dx, l->dx_want, l->x_count, l->dx_size) &&
           layer_close_enough("dw", l->dw, l->dw_want, l->w_count, l->dw_size) &&
           layer_close_enough("db", l->db, l->db_want, l->s.out_c, l->db_size);
}

static void check_layer(ddp_stream_t *stream, ddp_conv2d_shape_t shape)
{
    layer_t l;

    shape.algo = DDP_CONV_DIRECT; /* the others: test_conv_winograd.c */
    open_layer(&l, stream, shape);
    layer_plain_loop(&l, true);
    layer_run(stream, &l);
    ck_assert_msg(layer_is_right(&l), "%zux%zux%zu -> %zu, kernel %zux%zu, stride %zu, pad %zu", shape.in_h,
                  shape.in_w, shape.in_c, shape.out_c, shape.kernel_h, shape.kernel_w, shape.stride,
                  shape.pad);
    layer_close(&l);
}

START_TEST(every_kernel_stride_and_padding_equals_the_plain_loop)
{
    static const size_t channels[][2] = {{1, 1}, {3, 10}, {10, 3}, {17, 16}, {5, 33}, {16, 1}, {1, 17}};
    ddp_stream_t       *stream        = mode_open(_i, &precision);
    size_t              at            = 0;

    if (stream == NULL) {
        return;
    }
    for (size_t kh = 1; kh <= 5; kh++) {
        for (size_t kw = 1; kw <= 5; kw++) {
            for (size_t stride = 1; stride <= 3; stride++) {
                for (size_t pad = 0; pad <= 2; pad++, at++) {
                    check_layer(stream, (ddp_conv2d_shape_t)SHAPE(1 + at % 3, 5 + at % 4, 5 + at % 7,
                                                                  channels[at % 7][0], channels[at % 7][1],
                                                                  kh, kw, stride, pad));
                }
            }
        }
    }
    fixture_close(stream);
}
END_TEST

START_TEST(layers_as_networks_have_them_equal_the_plain_loop)
{
    static const ddp_conv2d_shape_t shapes[] = {
        SHAPE(2, 28, 28, 1, 32, 3, 3, 1, 1),  SHAPE(2, 14, 14, 32, 64, 3, 3, 1, 1),
        SHAPE(1, 32, 32, 3, 16, 3, 3, 1, 1),  SHAPE(2, 16, 16, 16, 32, 3, 3, 2, 1),
        SHAPE(2, 16, 16, 16, 32, 1, 1, 2, 0), SHAPE(2, 9, 7, 48, 80, 1, 1, 1, 0),
        SHAPE(3, 1, 1, 4, 4, 3, 3, 1, 1),     SHAPE(1, 5, 5, 2, 2, 5, 5, 4, 3),
    };
    ddp_stream_t *stream = mode_open(_i, &precision);

    if (stream == NULL) {
        return;
    }
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        check_layer(stream, shapes[i]);
    }
    fixture_close(stream);
}
END_TEST

/* The loss sum(y * dy) is linear in each operand: with exact numbers a difference is the derivative. */
static bool differences_agree(ddp_stream_t *stream, layer_t *l, float *operand, const float *gradient,
                              size_t count)
{
    bool agree = true;

    for (size_t i = 0; i < count; i += 1 + count / 50) {
        const float  before = operand[i];
        const double loss   = layer_loss(stream, l);

        operand[i] = before + 1.0F;
        agree      = agree && layer_loss(stream, l) - loss == (double)gradient[i];
        operand[i] = before;
    }
    return agree;
}

START_TEST(gradients_are_the_differences_of_the_forward_pass)
{
    ddp_stream_t              *stream = mode_open(_i, &precision);
    ddp_conv2d_backward_args_t backward;
    layer_t                    l;

    if (stream == NULL) {
        return;
    }
    for (size_t stride = 1; stride <= 2; stride++) {
        open_layer(&l, stream, (ddp_conv2d_shape_t)SHAPE(2, 7, 6, 3, 18, 3, 2, stride, 1));
        layer_make_coarse(&l);
        backward = layer_backward(&l);
        ddp_assert_ok(ddp_op_conv2d_backward(stream, &backward));
        ck_assert(differences_agree(stream, &l, l.x, l.dx, l.x_count));
        ck_assert(differences_agree(stream, &l, l.w, l.dw, l.w_count));
        ck_assert(differences_agree(stream, &l, l.bias, l.db, l.s.out_c));
        layer_close(&l);
    }
    fixture_close(stream);
}
END_TEST

START_TEST(relu_is_fused_and_the_bias_may_be_absent)
{
    ddp_stream_t     *stream = mode_open(_i, &precision);
    ddp_conv2d_args_t forward;
    layer_t           l;

    if (stream == NULL) {
        return;
    }
    for (int bias = 0; bias < 2; bias++) {
        open_layer(&l, stream, (ddp_conv2d_shape_t)SHAPE(2, 8, 8, 4, 19, 3, 3, 1, 1));
        layer_plain_loop(&l, bias == 1);
        for (size_t i = 0; i < l.y_count; i++) {
            l.y_want[i] = l.y_want[i] > 0.0 ? l.y_want[i] : 0.0;
        }
        forward      = layer_forward(&l);
        forward.act  = DDP_ACT_RELU;
        forward.bias = bias == 1 ? l.bias : NULL;
        ddp_assert_ok(ddp_op_conv2d(stream, &forward));
        ddp_assert_ok(ddp_stream_synchronize(stream, -1));
        ck_assert(layer_close_enough("y", l.y, l.y_want, l.y_count, l.y_size));
        layer_close(&l);
    }
    fixture_close(stream);
}
END_TEST

START_TEST(gradients_are_added_where_asked_and_left_out_where_null)
{
    ddp_stream_t              *stream = mode_open(_i, &precision);
    ddp_conv2d_backward_args_t backward;
    layer_t                    l;

    if (stream == NULL) {
        return;
    }
    for (size_t stride = 1; stride <= 2; stride++) {
        open_layer(&l, stream, (ddp_conv2d_shape_t)SHAPE(2, 6, 9, 5, 11, 1, 3, stride, 1));
        layer_plain_loop(&l, true);
        for (size_t i = 0; i < l.x_count; i++) {
            l.dx[i] = 0.5F;
            l.dx_want[i] += 0.5;
        }
        for (size_t i = 0; i < l.w_count; i++) {
            l.dw[i] = -2.0F;
            l.dw_want[i] -= 2.0;
        }
        for (size_t i = 0; i < l.s.out_c; i++) {
            l.db[i] = 3.0F;
            l.db_want[i] += 3.0;
        }
        for (int part = 0; part < 3; part++) { /* one gradient at a time, with only what it needs */
            backward    = layer_backward(&l);
            backward.dx = part == 0 ? l.dx : NULL;
            backward.dw = part == 1 ? l.dw : NULL;
            backward.db = part == 2 ? l.db : NULL;
            backward.w  = part == 0 ? l.w : NULL;
            backward.x  = part == 1 ? l.x : NULL;

            backward.accumulate_dx = backward.accumulate_dw = true;
            ddp_assert_ok(ddp_op_conv2d_backward(stream, &backward));
        }
        ddp_assert_ok(ddp_stream_synchronize(stream, -1));
        ck_assert(layer_close_enough("dx", l.dx, l.dx_want, l.x_count, l.dx_size));
        ck_assert(layer_close_enough("dw", l.dw, l.dw_want, l.w_count, l.dw_size));
        ck_assert(layer_close_enough("db", l.db, l.db_want, l.s.out_c, l.db_size));
        layer_close(&l);
    }
    fixture_close(stream);
}
END_TEST

START_TEST(the_bits_depend_on_the_arguments_alone)
{
    static const ddp_conv2d_shape_t shape  = SHAPE(3, 10, 11, 6, 20, 3, 3, 2, 1);
    ddp_stream_t                   *stream = mode_open(_i, &precision);
    layer_t                         first;
    layer_t                         second;

    if (stream == NULL) {
        return;
    }
    open_layer(&first, stream, shape);
    open_layer(&second, stream, shape);
    for (int pass = 0; pass < 2; pass++) {
        layer_run(stream, pass == 0 ? &first : &second);
        memcpy(second.scratch, first.scratch, 256); /* what an earlier call left behind does not matter */
    }
    ck_assert_mem_eq(first.y, second.y, first.y_count * sizeof(float));
    ck_assert_mem_eq(first.dx, second.dx, first.x_count * sizeof(float));
    ck_assert_mem_eq(first.dw, second.dw, first.w_count * sizeof(float));
    ck_assert_mem_eq(first.db, second.db, shape.out_c * sizeof(float));
    layer_close(&first);
    layer_close(&second);
    fixture_close(stream);
}
END_TEST

START_TEST(a_batch_of_no_images_has_gradients_of_zero)
{
    ddp_stream_t              *stream = mode_open(_i, &precision);
    float                      dw[4]  = {1, 2, 3, 4};
    float                      db[1]  = {5};
    ddp_conv2d_backward_args_t backward;
    ddp_conv2d_args_t          forward = {
                 .shape = {.in_h = 4, .in_w = 4, .in_c = 1, .out_c = 1, .kernel_h = 2, .kernel_w = 2, .stride = 1}};

    if (stream == NULL) {
        return;
    }
    ddp_assert_ok(ddp_conv2d_shape_fill(&forward.shape));
    backward =
        (ddp_conv2d_backward_args_t){.shape = forward.shape, .dw = dw, .db = db, .accumulate_dw = true};
    ddp_assert_ok(ddp_op_conv2d(stream, &forward));
    ddp_assert_ok(ddp_op_conv2d_backward(stream, &backward));
    ddp_assert_ok(ddp_stream_synchronize(stream, -1));
    ck_assert(dw[3] == 4.0F && db[0] == 5.0F);
    backward.accumulate_dw = false;
    ddp_assert_ok(ddp_op_conv2d_backward(stream, &backward));
    ddp_assert_ok(ddp_stream_synchronize(stream, -1));
    ck_assert(dw[0] == 0.0F && dw[3] == 0.0F && db[0] == 0.0F);
    fixture_close(stream);
}
END_TEST

START_TEST(wrong_arguments_are_named)
{
    ddp_stream_t      *stream = fixture_open(0);
    ddp_conv2d_shape_t good   = SHAPE(1, 4, 4, 1, 1, 3, 3, 1, 0);
    ddp_conv2d_shape_t shape  = good;
    ddp_conv2d_args_t  args;
    float              x[64] = {0};

    shape.kernel_h = 5;
    ddp_assert_fails(ddp_conv2d_shape_fill(&shape), DDP_ERR_INVALID_ARG, "a kernel of 5x3 does not fit");
    shape        = good;
    shape.stride = 0;
    ddp_assert_fails(ddp_conv2d_shape_fill(&shape), DDP_ERR_INVALID_ARG, "must not be 0");
    args = (ddp_conv2d_args_t){.shape = good, .x = x, .w = x, .y = x, .scratch = x};
    ddp_assert_fails(ddp_op_conv2d(stream, &args), DDP_ERR_INVALID_ARG, "call ddp_conv2d_shape_fill");
    ddp_assert_ok(ddp_conv2d_shape_fill(&args.shape));
    args.act = DDP_ACT_GELU;
    ddp_assert_fails(ddp_op_conv2d(stream, &args), DDP_ERR_INVALID_ARG, "only no activation or relu");
    args.act     = DDP_ACT_NONE;
    args.scratch = NULL;
    ddp_assert_fails(ddp_op_conv2d(stream, &args), DDP_ERR_INVALID_ARG, "scratch");
    args.shape.n = SIZE_MAX / 2;
    ddp_assert_fails(ddp_op_conv2d(stream, &args), DDP_ERR_INVALID_ARG, "conv2d");
    fixture_close(stream);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("conv");
    TCase *tcase = tcase_create("all sets and precisions");

    tcase_add_loop_test(tcase, every_kernel_stride_and_padding_equals_the_plain_loop, 0, MODES);
    tcase_add_loop_test(tcase, layers_as_networks_have_them_equal_the_plain_loop, 0, MODES);
    tcase_add_loop_test(tcase, gradients_are_the_differences_of_the_forward_pass, 0, MODES);
    tcase_add_loop_test(tcase, relu_is_fused_and_the_bias_may_be_absent, 0, MODES);
    tcase_add_loop_test(tcase, gradients_are_added_where_asked_and_left_out_where_null, 0, MODES);
    tcase_add_loop_test(tcase, the_bits_depend_on_the_arguments_alone, 0, MODES);
    tcase_add_loop_test(tcase, a_batch_of_no_images_has_gradients_of_zero, 0, MODES);
    tcase_add_test(tcase, wrong_arguments_are_named);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
