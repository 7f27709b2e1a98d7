/* Convolutions of the CUDA device against a loop in float64 over rounded inputs, the cpu's, and ONNX's. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda/rounding.h"
#include "tests/cuda/support.h"
#include "tests/kernels/conv_layer.h"
#include "tests/kernels/onnx_node.h"

#define PRECISIONS 4

/* A layer and its operands and results on the device. The wanted values are of rounded inputs. */
typedef struct bench {
    support_t s;
    layer_t   l;
    float    *x, *w, *bias, *dy, *y, *dx, *dw, *db; /* device */
    void     *scratch;
} bench_t;

static void round_all(ddp_precision_t precision, float *x, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        x[i] = (float)rounding_nearest(precision, (double)x[i]);
    }
}

static void upload_all(bench_t *b)
{
    layer_t     *l     = &b->l;
    const size_t bytes = ddp_conv2d_scratch_bytes(b->s.cuda, &l->s);

    b->x       = support_upload(&b->s, l->x, l->x_count * sizeof(float));
    b->w       = support_upload(&b->s, l->w, l->w_count * sizeof(float));
    b->bias    = support_upload(&b->s, l->bias, l->s.out_c * sizeof(float));
    b->dy      = support_upload(&b->s, l->dy, l->y_count * sizeof(float));
    b->y       = support_upload(&b->s, NULL, l->y_count * sizeof(float));
    b->dx      = support_upload(&b->s, NULL, l->x_count * sizeof(float));
    b->dw      = support_upload(&b->s, NULL, l->w_count * sizeof(float));
    b->db      = support_upload(&b->s, NULL, l->s.out_c * sizeof(float));
    b->scratch = support_upload(&b->s, NULL, bytes);
}

static void bench_open(bench_t *b, ddp_conv2d_shape_t shape, ddp_precision_t precision)
{
    layer_t *l = &b->l;

    support_open(&b->s);
    layer_open(l, b->s.on_cpu, shape);
    l->s.precision = precision;
    upload_all(b);
    for (size_t i = 0; i < l->y_count; i++) { /* a sum, no product: of dy as it is */
        l->db_want[i % l->s.out_c] += (double)l->dy[i];
    }
    round_all(precision, l->x, l->x_count);
    round_all(precision, l->w, l->w_count);
    round_all(precision, l->dy, l->y_count);
}

static void bench_close(bench_t *b)
{
    layer_close(&b->l);
    support_close(&b->s);
}

static ddp_conv2d_args_t forward_args(const bench_t *b)
{
    return (ddp_conv2d_args_t){
        .shape = b->l.s, .x = b->x, .w = b->w, .bias = b->bias, .y = b->y, .scratch = b->scratch};
}

static ddp_conv2d_backward_args_t backward_args(const bench_t *b)
{
    return (ddp_conv2d_backward_args_t){.shape   = b->l.s,
                                        .x       = b->x,
                                        .w       = b->w,
                                        .dy      = b->dy,
                                        .dx      = b->dx,
                                        .dw      = b->dw,
                                        .db      = b->db,
                                        .scratch = b->scratch};
}

static void run(bench_t *b)
{
    const ddp_conv2d_args_t          forward  = forward_args(b);
    const ddp_conv2d_backward_args_t backward = backward_args(b);

    ddp_assert_ok(ddp_op_conv2d(b->s.on_cuda, &forward));
    ddp_assert_ok(ddp_op_conv2d_backward(b->s.on_cuda, &backward));
}

static void fetch(bench_t *b)
{
    layer_t *l = &b->l;

    support_download(&b->s, l->y, b->y, l->y_count * sizeof(float));
    support_download(&b->s, l->dx, b->dx, l->x_count * sizeof(float));
    support_download(&b->s, l->dw, b->dw, l->w_count * sizeof(float));
    support_download(&b->s, l->db, b->db, l->s.out_c * sizeof(float));
}

/* Adds what the loop gives to y, dx and dw; db is there already. */
static void want(bench_t *b)
{
    double *db = b->l.db_want;

    b->l.db_want = calloc(b->l.s.out_c, sizeof(double));
    ck_assert_ptr_nonnull(b->l.db_want);
    layer_plain_loop(&b->l, true);
    free(b->l.db_want);
    b->l.db_want = db;
}

static void check_layer(ddp_conv2d_shape_t shape, ddp_precision_t precision)
{
    static bench_t b;
    bool           right;

    bench_open(&b, shape, precision);
    want(&b);
    run(&b);
    fetch(&b);
    right = layer_close_enough("y", b.l.y, b.l.y_want, b.l.y_count, b.l.y_size) &&
            layer_close_enough("dx", b.l.dx, b.l.dx_want, b.l.x_count, b.l.dx_size) &&
            layer_close_enough("dw", b.l.dw, b.l.dw_want, b.l.w_count, b.l.dw_size) &&
            layer_close_enough("db", b.l.db, b.l.db_want, b.l.s.out_c, b.l.db_size);
    ck_assert_msg(right, "precision %d, %zu of %zux%zux%zu -> %zu, kernel %zux%zu, stride %zu, pad %zu",
                  (int)precision, shape.n, shape.in_h, shape.in_w, shape.in_c, shape.out_c, shape.kernel_h,
                  shape.kernel_w, shape.stride, shape.pad);
    bench_close(&b);
}

START_TEST(every_kernel_stride_and_padding_equals_the_plain_loop)
{
    static const size_t channels[][2] = {{1, 1}, {3, 10}, {10, 3}, {17, 16}, {5, 33}, {16, 1}, {1, 17}};

    for (size_t at = 0; at < 36; at++) {
        const ddp_conv2d_shape_t shape =
            SHAPE(1 + at % 3, 5 + at % 4, 5 + at % 7, channels[at % 7][0], channels[at % 7][1], 1 + at % 5,
                  1 + at / 3 % 5, 1 + at / 2 % 3, at / 4 % 3);

        check_layer(shape, (ddp_precision_t)_i);
    }
}
END_TEST

START_TEST(layers_as_networks_have_them_equal_the_plain_loop)
{
    static const ddp_conv2d_shape_t shapes[] = {
        SHAPE(1, 28, 28, 1, 32, 3, 3, 1, 1), SHAPE(1, 14, 14, 16, 70, 3, 3, 1, 1),
        SHAPE(1, 16, 16, 3, 16, 3, 3, 2, 1), SHAPE(2, 16, 16, 16, 32, 1, 1, 2, 0),
        SHAPE(3, 1, 1, 4, 4, 3, 3, 1, 1),    SHAPE(1, 5, 5, 2, 2, 5, 5, 4, 3),
    };

    check_layer(shapes[_i], (ddp_precision_t)(_i % PRECISIONS));
}
END_TEST

START_TEST(long_sums_of_the_weights_gradient_are_cut_and_keep_their_bits)
{
    const ddp_conv2d_shape_t shape = SHAPE(5, 16, 16, 2, 3, 3, 3, 1, 1);
    static bench_t           b;
    float                    first[2 * 3 * 9];

    check_layer(shape, DDP_PRECISION_FLOAT32);
    bench_open(&b, shape, DDP_PRECISION_FLOAT32);
    ck_assert(ddp_conv2d_scratch_bytes(b.s.cuda, &b.l.s) >= 5 * sizeof(first));
    run(&b);
    fetch(&b);
    memcpy(first, b.l.dw, sizeof(first));
    run(&b);
    fetch(&b);
    support_assert_same(first, b.l.dw, sizeof(first), "dw");
    bench_close(&b);
}
END_TEST

START_TEST(gradients_are_added_where_that_is_asked_for_and_left_out_where_there_is_no_place)
{
    const ddp_conv2d_shape_t   shape = SHAPE(_i == 0 ? 1 : 3, 16, 16, 3, 5, 3, 3, 1, 1); /* cut or not */
    ddp_conv2d_backward_args_t backward;
    static bench_t             b;

    bench_open(&b, shape, DDP_PRECISION_FLOAT32);
    want(&b);
    want(&b); /* twice: y is not looked at */
    run(&b);
    backward               = backward_args(&b);
    backward.accumulate_dx = backward.accumulate_dw = true;
    ddp_assert_ok(ddp_op_conv2d_backward(b.s.on_cuda, &backward));
    backward.dx = backward.dw = backward.db = NULL;
    ddp_assert_ok(ddp_op_conv2d_backward(b.s.on_cuda, &backward));
    fetch(&b);
    for (size_t o = 0; o < b.l.s.out_c; o++) {
        b.l.db_want[o] *= 2.0;
    }
    ck_assert(layer_close_enough("dx", b.l.dx, b.l.dx_want, b.l.x_count, 2.0 * b.l.dx_size));
    ck_assert(layer_close_enough("dw", b.l.dw, b.l.dw_want, b.l.w_count, 2.0 * b.l.dw_size));
    ck_assert(layer_close_enough("db", b.l.db, b.l.db_want, b.l.s.out_c, 2.0 * b.l.db_size));
    bench_close(&b);
}
END_TEST

START_TEST(relu_is_fused_and_the_bias_may_be_absent)
{
    const ddp_conv2d_shape_t shape = SHAPE(1, 8, 8, 4, 19, 3, 3, 1, 1);
    ddp_conv2d_args_t        forward;
    static bench_t           b;

    bench_open(&b, shape, DDP_PRECISION_FLOAT32);
    layer_plain_loop(&b.l, false);
    for (size_t i = 0; i < b.l.y_count; i++) {
        b.l.y_want[i] = b.l.y_want[i] > 0.0 ? b.l.y_want[i] : 0.0;
    }
    forward      = forward_args(&b);
    forward.act  = DDP_ACT_RELU;
    forward.bias = NULL;
    ddp_assert_ok(ddp_op_conv2d(b.s.on_cuda, &forward));
    fetch(&b);
    ck_assert(layer_close_enough("y", b.l.y, b.l.y_want, b.l.y_count, b.l.y_size));
    bench_close(&b);
}
END_TEST

START_TEST(no_image_leaves_gradients_of_0)
{
    ddp_conv2d_shape_t shape = SHAPE(1, 4, 4, 2, 3, 3, 3, 1, 1);
    static bench_t     b;

    bench_open(&b, shape, DDP_PRECISION_FLOAT32);
    b.l.s.n = 0;
    run(&b);
    fetch(&b);
    for (size_t i = 0; i < b.l.w_count; i++) {
        ck_assert(b.l.dw[i] == 0.0F);
    }
    for (size_t i = 0; i < b.l.s.out_c; i++) {
        ck_assert(b.l.db[i] == 0.0F);
    }
    bench_close(&b);
}
END_TEST

/* Whatever way the cpu takes, Winograd's too. */
START_TEST(results_are_those_of_the_cpu_device)
{
    ddp_conv2d_shape_t shape = SHAPE(2, 8, 8, 16, 17, 3, 3, 1, 1);
    static bench_t     b;
    float             *got[4];
    size_t             count[4];
    layer_t           *l = &b.l;

    shape.algo = (ddp_conv_algo_t)_i;
    bench_open(&b, shape, DDP_PRECISION_FLOAT32);
    count[0] = l->y_count;
    count[1] = l->x_count;
    count[2] = l->w_count;
    count[3] = l->s.out_c;
    run(&b);
    fetch(&b);
    for (int i = 0; i < 4; i++) {
        const float *from[] = {l->y, l->dx, l->dw, l->db};

        got[i] = malloc(count[i] * sizeof(float));
        ck_assert_ptr_nonnull(got[i]);
        memcpy(got[i], from[i], count[i] * sizeof(float));
    }
    layer_run(b.s.on_cpu, l);
    for (int i = 0; i < 4; i++) {
        const float      *from[] = {l->y, l->dx, l->dw, l->db};
        const char *const name[] = {"y", "dx", "dw", "db"};

        support_assert_near(got[i], from[i], count[i], 1e-5, name[i]);
        free(got[i]);
    }
    bench_close(&b);
}
END_TEST

START_TEST(convolution_equals_onnx)
{
    static const struct {
        const char *name;
        size_t      stride, pad;
    } cases[] = {
        {"test_basic_conv_with_padding", 1, 1},
        {"test_basic_conv_without_padding", 1, 0},
        {"test_conv_with_strides_padding", 2, 1},
        {"test_conv_with_strides_no_padding", 2, 0},
    };
    node_t            node;
    ddp_conv2d_args_t args = {0};
    support_t         s;
    float            *x;
    float            *y;

    node_open(cases[_i].name, 2, 1, &node);
    support_open(&s);
    args.shape = (ddp_conv2d_shape_t){.n        = node.in[0].dim[0],
                                      .in_c     = node.in[0].dim[1],
                                      .in_h     = node.in[0].dim[2],
                                      .in_w     = node.in[0].dim[3],
                                      .out_c    = node.in[1].dim[0],
                                      .kernel_h = node.in[1].dim[2],
                                      .kernel_w = node.in[1].dim[3],
                                      .stride   = cases[_i].stride,
                                      .pad      = cases[_i].pad};
    ddp_assert_ok(ddp_conv2d_shape_fill(&args.shape));
    x      = to_nhwc(&node.in[0]);
    args.x = support_upload(&s, x, node.in[0].count * sizeof(float));
    fixture_free(x);
    x      = to_float(&node.in[1]);
    args.w = support_upload(&s, x, node.in[1].count * sizeof(float));
    fixture_free(x);
    args.y       = support_upload(&s, NULL, node.out[0].count * sizeof(float));
    args.scratch = support_upload(&s, NULL, ddp_conv2d_scratch_bytes(s.cuda, &args.shape));
    ddp_assert_ok(ddp_op_conv2d(s.on_cuda, &args));
    y = fixture_new(node.out[0].count);
    support_download(&s, y, args.y, node.out[0].count * sizeof(float));
    check_nhwc(cases[_i].name, y, &node.out[0], 1e-6);
    fixture_free(y);
    support_close(&s);
    node_close(&node);
}
END_TEST

START_TEST(too_many_images_for_the_kernels_are_refused)
{
    ddp_conv2d_shape_t shape   = SHAPE(1, 65536, 65536, 1, 1, 1, 1, 1, 0);
    float              byte[1] = {0};
    support_t          s;
    ddp_conv2d_args_t  args = {0};

    support_open(&s);
    ddp_assert_ok(ddp_conv2d_shape_fill(&shape));
    args.shape = shape;
    args.x = args.w = args.y = args.scratch = support_upload(&s, byte, sizeof(byte));
    ddp_assert_fails(ddp_op_conv2d(s.on_cuda, &args), DDP_ERR_UNSUPPORTED, "too many for the plain kernels");
    support_close(&s);
}
END_TEST

static const size_t tall[][2] = {{0, 5}, {1, 1}, {63, 33}, {128, 32}, {500, 3}, {300, 70}};

START_TEST(the_gradient_of_a_bias_is_the_sum_over_rows)
{
    const size_t         m    = tall[_i][0];
    const size_t         n    = tall[_i][1];
    float               *dy   = malloc((m * n + 1) * sizeof(float));
    ddp_bias_grad_args_t args = {.m = m, .n = n};
    float                db[128];
    support_t            s;

    ck_assert_ptr_nonnull(dy);
    support_fill(dy, m * n, 3);
    support_open(&s);
    args.dy = support_upload(&s, dy, m * n * sizeof(float));
    args.db = support_upload(&s, NULL, n * sizeof(float));
    for (int times = 1; times <= 2; times++) {
        args.accumulate = times == 2;
        ddp_assert_ok(ddp_op_bias_grad(s.on_cuda, &args));
        support_download(&s, db, args.db, n * sizeof(float));
        for (size_t j = 0; j < n; j++) {
            double sum = 0.0;

            for (size_t i = 0; i < m; i++) {
                sum += (double)dy[i * n + j];
            }
            ck_assert_msg(fabs((double)db[j] - times * sum) <= 1e-7 * (double)(m + 1), "%zux%zu, column %zu",
                          m, n, j);
        }
    }
    support_close(&s);
    free(dy);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cuda conv");
    TCase *tc    = tcase_create("conv");

    tcase_add_loop_test(tc, every_kernel_stride_and_padding_equals_the_plain_loop, 0, PRECISIONS);
    tcase_add_loop_test(tc, layers_as_networks_have_them_equal_the_plain_loop, 0, 6);
    tcase_add_test(tc, long_sums_of_the_weights_gradient_are_cut_and_keep_their_bits);
    tcase_add_loop_test(tc, gradients_are_added_where_that_is_asked_for_and_left_out_where_there_is_no_place,
                        0, 2);
    tcase_add_test(tc, relu_is_fused_and_the_bias_may_be_absent);
    tcase_add_test(tc, no_image_leaves_gradients_of_0);
    tcase_add_loop_test(tc, results_are_those_of_the_cpu_device, 0, 4);
    if (DDP_ONNX_DATA[0] != '\0') {
        tcase_add_loop_test(tc, convolution_equals_onnx, 0, 4);
    }
    tcase_add_test(tc, too_many_images_for_the_kernels_are_refused);
    tcase_add_loop_test(tc, the_gradient_of_a_bias_is_the_sum_over_rows, 0,
                        (int)(sizeof(tall) / sizeof(*tall)));
    suite_add_tcase(suite, tc);
    return ddp_test_run(suite);
}
