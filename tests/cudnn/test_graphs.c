/*
 * What the graphs compute, by an interpreter of them, against the cpu backend: operands, strides, order of
 * operations and the numbers of tensors. That cuDNN takes the graphs is test_plans.c's part.
 */
#include "kernels/cuda/cudnn_graphs.h"
#include "kernels/ops_seq.h"
#include "tests/cudnn/interpreter.h"
#include "tests/kernels/kernel_fixture.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static ddp_cudnn_target_t target;

static void open_target(void)
{
    ddp_interpreter = (ddp_interpreter_t){.workspace = 0};
    ddp_assert_ok(ddp_cudnn_target_open(ddp_interpreter_table(), &target));
}

static void close_target(void)
{
    ddp_cudnn_target_close(&target);
    ck_assert_int_eq(ddp_interpreter.descriptors, 0);
}

static void execute(const ddp_cudnn_key_t *key, ddp_cudnn_build_fn_t *build, ddp_cudnn_pointers_t *pointers)
{
    ddp_cudnn_cache_t      *cache = NULL;
    const ddp_cudnn_plan_t *plan  = NULL;

    ddp_assert_ok(ddp_cudnn_cache_create(&target, &cache));
    ddp_assert_ok(ddp_cudnn_cache_get(cache, key, build, 0, &plan));
    ddp_assert_ok(ddp_cudnn_plan_execute(&target, plan, pointers, NULL, NULL));
    ddp_cudnn_cache_destroy(&cache);
}

/* Largest difference, by the largest wanted value. */
static double distance(const float *got, const float *wanted, size_t count)
{
    double most  = 0;
    double scale = 1e-30;

    for (size_t i = 0; i < count; i++) {
        const double d = fabs((double)got[i] - (double)wanted[i]);

        most  = !(d <= most) ? d : most;
        scale = fmax(scale, fabs((double)wanted[i]));
    }
    return most / scale;
}

/* `count` floats as the bits of bfloat16, or back; half of a float is cut away. */
static void *to_type(const float *from, size_t count, cudnnDataType_t type)
{
    float    *floats = malloc(count * sizeof(*floats));
    uint16_t *halves = (uint16_t *)floats;

    for (size_t i = 0; i < count; i++) {
        uint32_t bits;

        memcpy(&bits, &from[i], sizeof(bits));
        if (type == CUDNN_DATA_BFLOAT16) {
            halves[i] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
        } else {
            memcpy(&floats[i], &bits, sizeof(bits));
        }
    }
    return floats;
}

static void from_type(float *to, void *from, size_t count, cudnnDataType_t type)
{
    for (size_t i = 0; i < count; i++) {
        const uint32_t bits = (uint32_t)((uint16_t *)from)[i] << 16;

        memcpy(&to[i], type == CUDNN_DATA_BFLOAT16 ? (const void *)&bits : (const void *)&((float *)from)[i],
               sizeof(float));
    }
    free(from);
}

typedef struct sizes {
    size_t sequences, length, heads, width;
} sizes_t;

static const sizes_t cases[] = {{1, 1, 1, 8}, {3, 5, 2, 16}, {2, 33, 3, 8}};

/* Attention and its gradients by the cpu backend. */
typedef struct attention {
    size_t                rows, channels, heads; /* heads: rows of log_sum */
    float                *qkv, *dy, *y, *log_sum, *dqkv;
    ddp_precision_t       precision;
    ddp_cudnn_attention_t shape;
} attention_t;

static attention_t attention(const sizes_t *s, cudnnDataType_t type, bool is_exact)
{
    ddp_stream_t *stream   = fixture_open(0);
    const size_t  channels = s->heads * s->width;
    const size_t  rows     = s->sequences * s->length;
    attention_t   a        = {.rows      = rows,
                              .channels  = channels,
                              .heads     = rows * s->heads,
                              .precision = type == CUDNN_DATA_FLOAT ? DDP_PRECISION_FLOAT32 : DDP_PRECISION_BF16,
                              .shape     = {type, (int64_t)s->sequences, (int64_t)s->heads, (int64_t)s->length,
                                            (int64_t)s->width, is_exact}};

    a.qkv     = fixture_random(rows * 3 * channels, 1, 2.0F);
    a.dy      = fixture_random(rows * channels, 2, 1.0F);
    a.y       = fixture_new(rows * channels);
    a.log_sum = fixture_new(a.heads);
    a.dqkv    = fixture_new(rows * 3 * channels);

    ddp_attention_backward_args_t args = {
        .forward = {.qkv       = a.qkv,
                    .sequences = s->sequences,
                    .length    = s->length,
                    .heads     = s->heads,
                    .channels  = channels,
                    .y         = a.y,
                    .log_sum   = a.log_sum,
                    .precision = a.precision},
        .dy      = a.dy,
        .dqkv    = a.dqkv,
    };
    ddp_assert_ok(ddp_op_attention(stream, &args.forward));
    ddp_assert_ok(ddp_op_attention_backward(stream, &args));
    fixture_close(stream);
    return a;
}

static void attention_free(attention_t *a)
{
    fixture_free(a->qkv);
    fixture_free(a->dy);
    fixture_free(a->y);
    fixture_free(a->log_sum);
    fixture_free(a->dqkv);
}

static const float not_seen = -INFINITY;
static const float one      = 1.0F;

/* Addresses of q, k and v in qkv, beginning with the number `uid` of q. */
static void point_packed(ddp_cudnn_pointers_t *pointers, const attention_t *a, int64_t uid, const void *qkv)
{
    const size_t bytes = a->shape.type == CUDNN_DATA_FLOAT ? 4 : 2;

    for (size_t i = 0; i < 3; i++) {
        ddp_cudnn_point(pointers, uid + (int64_t)i, (const char *)qkv + i * a->channels * bytes);
    }
}

/* Run both graphs as the cpu backend ran, and compare. */
static void check_attention(const sizes_t *s, cudnnDataType_t type, bool is_exact, double tolerance)
{
    attention_t           a        = attention(s, type, is_exact);
    const size_t          count    = a.rows * a.channels;
    const ddp_cudnn_key_t forward  = ddp_cudnn_attention_key(DDP_CUDNN_ATTENTION, &a.shape);
    const ddp_cudnn_key_t backward = ddp_cudnn_attention_key(DDP_CUDNN_ATTENTION_BACKWARD, &a.shape);
    ddp_cudnn_pointers_t  p        = {.count = 0};
    const float           scale    = 1.0F / sqrtf((float)s->width);
    void                 *qkv      = to_type(a.qkv, 3 * count, type);
    void                 *dy       = to_type(a.dy, count, type);
    void                 *y        = to_type(a.dy, count, type); /* anything: it is replaced */
    void                 *dqkv     = to_type(a.qkv, 3 * count, type);
    float                *log_sum  = fixture_new(a.heads);
    float                *row_sum  = fixture_new(a.heads);
    float                *floats   = fixture_new(count);
    float                *got      = fixture_new(3 * count);

    point_packed(&p, &a, DDP_CUDNN_Q, qkv);
    ddp_cudnn_point(&p, DDP_CUDNN_Y, y);
    ddp_cudnn_point(&p, DDP_CUDNN_LOG_SUM, log_sum);
    ddp_cudnn_point(&p, DDP_CUDNN_SCALE, &scale);
    ddp_cudnn_point(&p, DDP_CUDNN_NOT_SEEN, &not_seen);
    execute(&forward, ddp_cudnn_attention_graph, &p);
    ddp_cudnn_point(&p, DDP_CUDNN_ONE, &one);
    ddp_cudnn_point(&p, DDP_CUDNN_DY, dy);
    point_packed(&p, &a, DDP_CUDNN_DQ, dqkv);
    ddp_cudnn_point(&p, DDP_CUDNN_ROW_SUM, row_sum);
    if (!is_exact) {
        ddp_cudnn_point(&p, DDP_CUDNN_DQ_FLOATS, floats);
    }
    execute(&backward, ddp_cudnn_attention_backward_graph, &p);
    ck_assert_double_le(distance(log_sum, a.log_sum, a.heads), fmin(tolerance, 1e-5));
    from_type(got, y, count, type);
    ck_assert_double_le(distance(got, a.y, count), tolerance);
    from_type(got, dqkv, 3 * count, type);
    ck_assert_double_le(distance(got, a.dqkv, 3 * count), tolerance);
    free(qkv);
    free(dy);
    fixture_free(log_sum);
    fixture_free(row_sum);
    fixture_free(floats);
    fixture_free(got);
    attention_free(&a);
}

START_TEST(attention_graphs_mean_what_the_cpu_computes)
{
    check_attention(&cases[_i], CUDNN_DATA_FLOAT, false, 2e-6);
    check_attention(&cases[_i], CUDNN_DATA_FLOAT, true, 2e-6);
}
END_TEST

/* Products of bfloat16; y and the gradients are rounded to it, too: 2^-9 of the largest and some of the
 * inner. */
START_TEST(attention_graphs_round_products_as_the_cpu_does)
{
    check_attention(&cases[_i], CUDNN_DATA_BFLOAT16, false, 0x1p-7);
    check_attention(&cases[_i], CUDNN_DATA_BFLOAT16, true, 0x1p-7);
}
END_TEST

static const ddp_conv2d_shape_t shapes[] = {
    {.n = 1, .in_h = 1, .in_w = 1, .in_c = 1, .out_c = 1, .kernel_h = 1, .kernel_w = 1, .stride = 1},
    {.n        = 2,
     .in_h     = 7,
     .in_w     = 5,
     .in_c     = 3,
     .out_c    = 4,
     .kernel_h = 3,
     .kernel_w = 3,
     .stride   = 1,
     .pad      = 1},
    {.n        = 3,
     .in_h     = 8,
     .in_w     = 6,
     .in_c     = 2,
     .out_c    = 5,
     .kernel_h = 3,
     .kernel_w = 2,
     .stride   = 2,
     .pad      = 1},
    {.n = 2, .in_h = 8, .in_w = 8, .in_c = 4, .out_c = 2, .kernel_h = 1, .kernel_w = 1, .stride = 2},
    {.n        = 1,
     .in_h     = 9,
     .in_w     = 9,
     .in_c     = 1,
     .out_c    = 3,
     .kernel_h = 5,
     .kernel_w = 5,
     .stride   = 3,
     .pad      = 2},
};

static void run_conv(ddp_cudnn_kind_t kind, const ddp_cudnn_conv_t *conv, const float *x, const float *w,
                     const float *y, const float *bias)
{
    const ddp_cudnn_key_t key = ddp_cudnn_conv_key(kind, conv);
    ddp_cudnn_pointers_t  p   = {.count = 0};

    ddp_cudnn_point(&p, DDP_CUDNN_X, x);
    ddp_cudnn_point(&p, DDP_CUDNN_W, w);
    ddp_cudnn_point(&p, DDP_CUDNN_OUT, y);
    if (bias != NULL) {
        ddp_cudnn_point(&p, DDP_CUDNN_BIAS, bias);
    }
    execute(&key, ddp_cudnn_conv_graph, &p);
}

START_TEST(convolution_graphs_mean_what_the_cpu_computes)
{
    ddp_stream_t      *stream = fixture_open(0);
    ddp_conv2d_shape_t s      = shapes[_i];

    s.algo = DDP_CONV_DIRECT;
    ddp_assert_ok(ddp_conv2d_shape_fill(&s));

    const size_t     n_x     = s.n * s.in_h * s.in_w * s.in_c;
    const size_t     n_w     = s.out_c * s.in_c * s.kernel_h * s.kernel_w;
    const size_t     n_y     = s.n * s.out_h * s.out_w * s.out_c;
    float           *x       = fixture_random(n_x, 1, 1.0F);
    float           *w       = fixture_random(n_w, 2, 1.0F);
    float           *bias    = fixture_random(s.out_c, 3, 1.0F);
    float           *dy      = fixture_random(n_y, 4, 1.0F);
    float           *y       = fixture_new(n_y);
    float           *got_y   = fixture_new(n_y);
    float           *dx      = fixture_random(n_x, 5, 1.0F);
    float           *got_dx  = fixture_random(n_x, 5, 1.0F);
    float           *dw      = fixture_random(n_w, 6, 1.0F);
    float           *got_dw  = fixture_random(n_w, 6, 1.0F);
    void            *scratch = malloc(ddp_conv2d_scratch_bytes(ddp_stream_device(stream), &s) + 1);
    ddp_cudnn_conv_t conv    = ddp_cudnn_conv_of(&s);

    for (int variant = 0; variant < 4; variant++) {
        ddp_conv2d_args_t          args = {.shape = s, .x = x, .w = w, .y = y, .scratch = scratch};
        ddp_conv2d_backward_args_t back = {
            .shape = s, .x = x, .w = w, .dy = dy, .dx = dx, .dw = dw, .scratch = scratch};

        conv.has_bias      = (variant & 1) != 0;
        conv.has_relu      = (variant & 2) != 0;
        conv.accumulate    = (variant & 1) != 0;
        args.bias          = conv.has_bias ? bias : NULL;
        args.act           = conv.has_relu ? DDP_ACT_RELU : DDP_ACT_NONE;
        back.accumulate_dx = back.accumulate_dw = conv.accumulate;
        ddp_assert_ok(ddp_op_conv2d(stream, &args));
        ddp_assert_ok(ddp_op_conv2d_backward(stream, &back));
        ddp_assert_ok(ddp_stream_synchronize(stream, -1));
        run_conv(DDP_CUDNN_CONV, &conv, x, w, got_y, args.bias);
        run_conv(DDP_CUDNN_CONV_DATA, &conv, got_dx, w, dy, NULL);
        run_conv(DDP_CUDNN_CONV_FILTER, &conv, x, got_dw, dy, NULL);
        ck_assert_double_le(distance(got_y, y, n_y), 1e-6);
        ck_assert_double_le(distance(got_dx, dx, n_x), 1e-6);
        ck_assert_double_le(distance(got_dw, dw, n_w), 1e-6);
    }
    free(scratch);
    fixture_free(x);
    fixture_free(w);
    fixture_free(bias);
    fixture_free(dy);
    fixture_free(y);
    fixture_free(got_y);
    fixture_free(dx);
    fixture_free(got_dx);
    fixture_free(dw);
    fixture_free(got_dw);
    fixture_close(stream);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("cudnn graphs");
    TCase *tcase = tcase_create("values");

    tcase_add_checked_fixture(tcase, open_target, close_target);
    tcase_add_loop_test(tcase, attention_graphs_mean_what_the_cpu_computes, 0, (int)COUNT(cases));
    tcase_add_loop_test(tcase, attention_graphs_round_products_as_the_cpu_does, 0, (int)COUNT(cases));
    tcase_add_loop_test(tcase, convolution_graphs_mean_what_the_cpu_computes, 0, (int)COUNT(shapes));
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return ddp_test_run(make_suite());
}
