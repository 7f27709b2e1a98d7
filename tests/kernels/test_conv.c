#include "tests/kernels/kernel_fixture.h"

/* n, height, width, channels in and out, kernel height and width, stride, padding */
#define SHAPE(N, H, W, C, O, KH, KW, S, P)                                                                   \
    {                                                                                                        \
        .n = (N), .in_h = (H), .in_w = (W), .in_c = (C), .out_c = (O), .kernel_h = (KH), .kernel_w = (KW),   \
        .stride = (S), .pad = (P)                                                                            \
    }

/* A convolution with all its buffers, and what a plain loop in float64 gives for them. */
typedef struct layer {
    ddp_conv2d_shape_t s;
    size_t             x_count, w_count, y_count;
    float             *x, *w, *bias, *y, *dy, *dx, *dw, *db;
    float             *scratch;
    double            *y_want, *dx_want, *dw_want, *db_want;
    double y_size, dx_size, dw_size, db_size; /* sum of magnitudes of the largest element: for bounds */
} layer_t;

static void layer_open(layer_t *l, ddp_stream_t *stream, ddp_conv2d_shape_t shape)
{
    ddp_assert_ok(ddp_conv2d_shape_fill(&shape));
    l->s       = shape;
    l->x_count = shape.n * shape.in_h * shape.in_w * shape.in_c;
    l->w_count = shape.out_c * shape.in_c * shape.kernel_h * shape.kernel_w;
    l->y_count = shape.n * shape.out_h * shape.out_w * shape.out_c;
    l->x       = fixture_random(l->x_count, 1, 1.0F);
    l->w       = fixture_random(l->w_count, 2, 1.0F);
    l->bias    = fixture_random(shape.out_c, 3, 1.0F);
    l->dy      = fixture_random(l->y_count, 4, 1.0F);
    l->y       = fixture_new(l->y_count);
    l->dx      = fixture_new(l->x_count);
    l->dw      = fixture_new(l->w_count);
    l->db      = fixture_new(shape.out_c);
    l->scratch = fixture_new(ddp_conv2d_scratch_bytes(ddp_stream_device(stream), &shape) / sizeof(float));
    l->y_want  = calloc(l->y_count + 1, sizeof(double));
    l->dx_want = calloc(l->x_count + 1, sizeof(double));
    l->dw_want = calloc(l->w_count + 1, sizeof(double));
    l->db_want = calloc(shape.out_c, sizeof(double));
    ck_assert(l->y_want != NULL && l->dx_want != NULL && l->dw_want != NULL && l->db_want != NULL);
    l->y_size  = (double)(shape.in_c * shape.kernel_h * shape.kernel_w + 1);
    l->dx_size = (double)(shape.out_c * shape.kernel_h * shape.kernel_w);
    l->dw_size = l->db_size = (double)(shape.n * shape.out_h * shape.out_w + 1);
}

static void layer_close(layer_t *l)
{
    float *buffers[] = {l->x, l->w, l->bias, l->dy, l->y, l->dx, l->dw, l->db, l->scratch};

    for (size_t i = 0; i < sizeof(buffers) / sizeof(buffers[0]); i++) {
        fixture_free(buffers[i]);
    }
    free(l->y_want);
    free(l->dx_want);
    free(l->dw_want);
    free(l->db_want);
}

/* One product x * w of the sum for one output element, and its share in all three results. */
static void plain_tap(layer_t *l, size_t image, size_t oy, size_t ox, size_t o, size_t ky, size_t kx)
{
    const ddp_conv2d_shape_t *s  = &l->s;
    const size_t              iy = oy * s->stride + ky - s->pad; /* wraps below 0 */
    const size_t              ix = ox * s->stride + kx - s->pad;
    const size_t              to = ((image * s->out_h + oy) * s->out_w + ox) * s->out_c + o;

    if (iy >= s->in_h || ix >= s->in_w) {
        return;
    }
    for (size_t c = 0; c < s->in_c; c++) {
        const size_t from = ((image * s->in_h + iy) * s->in_w + ix) * s->in_c + c;
        const size_t at   = ((o * s->in_c + c) * s->kernel_h + ky) * s->kernel_w + kx;

        l->y_want[to] += (double)l->x[from] * (double)l->w[at];
        l->dx_want[from] += (double)l->dy[to] * (double)l->w[at];
        l->dw_want[at] += (double)l->dy[to] * (double)l->x[from];
    }
}

static void plain_loop(layer_t *l, bool bias)
{
    const ddp_conv2d_shape_t *s = &l->s;

    for (size_t at = 0; at < l->y_count; at++) {
        const size_t o  = at % s->out_c;
        const size_t ox = at / s->out_c % s->out_w;
        const size_t oy = at / s->out_c / s->out_w % s->out_h;

        l->y_want[at] += bias ? (double)l->bias[o] : 0.0;
        l->db_want[o] += (double)l->dy[at];
        for (size_t tap = 0; tap < s->kernel_h * s->kernel_w; tap++) {
            plain_tap(l, at / s->out_c / s->out_w / s->out_h, oy, ox, o, tap / s->kernel_w,
                      tap % s->kernel_w);
        }
    }
}

/* Sums of `size` products of numbers in [-1, 1]: rounding is at most size * eps * their magnitude; with
 * random signs far less, so a wrong tap is seen. */
static bool close_enough(const char *what, const float *got, const double *want, size_t count, double size)
{
    const double bound = 1e-7 * (size + 8.0);

    for (size_t i = 0; i < count; i++) {
        if (!(fabs((double)got[i] - want[i]) <= bound)) {
            fprintf(stderr, "%s[%zu]: %.9g instead of %.9g (bound %g)\n", what, i, (double)got[i], want[i],
                    bound);
            return false;
        }
    }
    return true;
}

static bool layer_is_right(layer_t *l)
{
    return close_enough("y", l->y, l->y_want, l->y_count, l->y_size) &&
           close_enough("dx", l->dx, l->dx_want, l->x_count, l->dx_size) &&
           close_enough("dw", l->dw, l->dw_want, l->w_count, l->dw_size) &&
           close_enough("db", l->db, l->db_want, l->s.out_c, l->db_size);
}

static ddp_conv2d_args_t forward_args(const layer_t *l)
{
    return (ddp_conv2d_args_t){
        .shape = l->s, .x = l->x, .w = l->w, .bias = l->bias, .y = l->y, .scratch = l->scratch};
}

static ddp_conv2d_backward_args_t backward_args(const layer_t *l)
{
    return (ddp_conv2d_backward_args_t){.shape   = l->s,
                                        .x       = l->x,
                                        .w       = l->w,
                                        .dy      = l->dy,
                                        .dx      = l->dx,
                                        .dw      = l->dw,
                                        .db      = l->db,
                                        .scratch = l->scratch};
}

static void check_layer(ddp_stream_t *stream, ddp_conv2d_shape_t shape)
{
    layer_t                    l;
    ddp_conv2d_args_t          forward;
    ddp_conv2d_backward_args_t backward;

    layer_open(&l, stream, shape);
    forward  = forward_args(&l);
    backward = backward_args(&l);
    plain_loop(&l, true);
    ddp_assert_ok(ddp_op_conv2d(stream, &forward));
    ddp_assert_ok(ddp_op_conv2d_backward(stream, &backward));
    ddp_assert_ok(ddp_stream_synchronize(stream, -1));
    ck_assert_msg(layer_is_right(&l), "%zux%zux%zu -> %zu, kernel %zux%zu, stride %zu, pad %zu", shape.in_h,
                  shape.in_w, shape.in_c, shape.out_c, shape.kernel_h, shape.kernel_w, shape.stride,
                  shape.pad);
    layer_close(&l);
}

START_TEST(every_kernel_stride_and_padding_equals_the_plain_loop)
{
    static const size_t channels[][2] = {{1, 1}, {3, 10}, {10, 3}, {17, 16}, {5, 33}, {16, 1}, {1, 17}};
    ddp_stream_t       *stream        = fixture_open(_i);
    size_t              at            = 0;

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
    ddp_stream_t *stream = fixture_open(_i);

    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        check_layer(stream, shapes[i]);
    }
    fixture_close(stream);
}
END_TEST

/* All numbers are multiples of 1/8 or small integers, so that differences of the loss are exact. */
static void make_coarse(float *x, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        x[i] = (float)((int)(x[i] * 8.0F)) / 8.0F;
    }
}

static double loss_of(ddp_stream_t *stream, const layer_t *l)
{
    const ddp_conv2d_args_t forward = forward_args(l);
    double                  loss    = 0.0;

    ddp_assert_ok(ddp_op_conv2d(stream, &forward));
    ddp_assert_ok(ddp_stream_synchronize(stream, -1));
    for (size_t i = 0; i < l->y_count; i++) {
        loss += (double)l->y[i] * (double)l->dy[i];
    }
    return loss;
}

/* The loss sum(y * dy) is linear in each operand: with exact numbers a difference is the derivative. */
static bool differences_agree(ddp_stream_t *stream, layer_t *l, float *operand, const float *gradient,
                              size_t count)
{
    bool agree = true;

    for (size_t i = 0; i < count; i += 1 + count / 50) {
        const float  before = operand[i];
        const double loss   = loss_of(stream, l);

        operand[i] = before + 1.0F;
        agree      = agree && loss_of(stream, l) - loss == (double)gradient[i];
        operand[i] = before;
    }
    return agree;
}

START_TEST(gradients_are_the_differences_of_the_forward_pass)
{
    ddp_stream_t              *stream = fixture_open(_i);
    ddp_conv2d_backward_args_t backward;
    layer_t                    l;

    for (size_t stride = 1; stride <= 2; stride++) {
        layer_open(&l, stream, (ddp_conv2d_shape_t)SHAPE(2, 7, 6, 3, 18, 3, 2, stride, 1));
        make_coarse(l.x, l.x_count);
        make_coarse(l.w, l.w_count);
        make_coarse(l.dy, l.y_count);
        make_coarse(l.bias, l.s.out_c);
        backward = backward_args(&l);
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
    ddp_stream_t     *stream = fixture_open(_i);
    ddp_conv2d_args_t forward;
    layer_t           l;

    for (int bias = 0; bias < 2; bias++) {
        layer_open(&l, stream, (ddp_conv2d_shape_t)SHAPE(2, 8, 8, 4, 19, 3, 3, 1, 1));
        plain_loop(&l, bias == 1);
        for (size_t i = 0; i < l.y_count; i++) {
            l.y_want[i] = l.y_want[i] > 0.0 ? l.y_want[i] : 0.0;
        }
        forward      = forward_args(&l);
        forward.act  = DDP_ACT_RELU;
        forward.bias = bias == 1 ? l.bias : NULL;
        ddp_assert_ok(ddp_op_conv2d(stream, &forward));
        ddp_assert_ok(ddp_stream_synchronize(stream, -1));
        ck_assert(close_enough("y", l.y, l.y_want, l.y_count, l.y_size));
        layer_close(&l);
    }
    fixture_close(stream);
}
END_TEST

START_TEST(gradients_are_added_where_asked_and_left_out_where_null)
{
    ddp_stream_t              *stream = fixture_open(_i);
    ddp_conv2d_backward_args_t backward;
    layer_t                    l;

    for (size_t stride = 1; stride <= 2; stride++) {
        layer_open(&l, stream, (ddp_conv2d_shape_t)SHAPE(2, 6, 9, 5, 11, 1, 3, stride, 1));
        plain_loop(&l, true);
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
            backward    = backward_args(&l);
            backward.dx = part == 0 ? l.dx : NULL;
            backward.dw = part == 1 ? l.dw : NULL;
            backward.db = part == 2 ? l.db : NULL;
            backward.w  = part == 0 ? l.w : NULL;
            backward.x  = part == 1 ? l.x : NULL;

            backward.accumulate_dx = backward.accumulate_dw = true;
            ddp_assert_ok(ddp_op_conv2d_backward(stream, &backward));
        }
        ddp_assert_ok(ddp_stream_synchronize(stream, -1));
        ck_assert(close_enough("dx", l.dx, l.dx_want, l.x_count, l.dx_size));
        ck_assert(close_enough("dw", l.dw, l.dw_want, l.w_count, l.dw_size));
        ck_assert(close_enough("db", l.db, l.db_want, l.s.out_c, l.db_size));
        layer_close(&l);
    }
    fixture_close(stream);
}
END_TEST

START_TEST(the_bits_depend_on_the_arguments_alone)
{
    static const ddp_conv2d_shape_t shape  = SHAPE(3, 10, 11, 6, 20, 3, 3, 2, 1);
    ddp_stream_t                   *stream = fixture_open(_i);
    layer_t                         first;
    layer_t                         second;

    layer_open(&first, stream, shape);
    layer_open(&second, stream, shape);
    for (int pass = 0; pass < 2; pass++) {
        layer_t                         *l        = pass == 0 ? &first : &second;
        const ddp_conv2d_args_t          forward  = forward_args(l);
        const ddp_conv2d_backward_args_t backward = backward_args(l);

        ddp_assert_ok(ddp_op_conv2d(stream, &forward));
        ddp_assert_ok(ddp_op_conv2d_backward(stream, &backward));
        ddp_assert_ok(ddp_stream_synchronize(stream, -1));
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
    ddp_stream_t              *stream = fixture_open(_i);
    float                      dw[4]  = {1, 2, 3, 4};
    float                      db[1]  = {5};
    ddp_conv2d_backward_args_t backward;
    ddp_conv2d_args_t          forward = {
                 .shape = {.in_h = 4, .in_w = 4, .in_c = 1, .out_c = 1, .kernel_h = 2, .kernel_w = 2, .stride = 1}};

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
    TCase *tcase = tcase_create("all sets");
    int    isas  = fixture_isas();

    tcase_add_loop_test(tcase, every_kernel_stride_and_padding_equals_the_plain_loop, 0, isas);
    tcase_add_loop_test(tcase, layers_as_networks_have_them_equal_the_plain_loop, 0, isas);
    tcase_add_loop_test(tcase, gradients_are_the_differences_of_the_forward_pass, 0, isas);
    tcase_add_loop_test(tcase, relu_is_fused_and_the_bias_may_be_absent, 0, isas);
    tcase_add_loop_test(tcase, gradients_are_added_where_asked_and_left_out_where_null, 0, isas);
    tcase_add_loop_test(tcase, the_bits_depend_on_the_arguments_alone, 0, isas);
    tcase_add_loop_test(tcase, a_batch_of_no_images_has_gradients_of_zero, 0, isas);
    tcase_add_test(tcase, wrong_arguments_are_named);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
