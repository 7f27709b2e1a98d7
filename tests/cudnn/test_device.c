/*
 * The operations that go through cuDNN on the stand-in for a GPU, the interpreter of graphs in libcudnn's
 * place: casts, scratch, addresses and turns, against the cpu backend.
 */
#include <check.h>
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdlib.h>

#include "kernels/cuda/cudnn_internal.h"
#include "kernels/cuda/device_internal.h"
#include "kernels/cuda/ops.h"
#include "tests/cuda/support.h"
#include "tests/cudnn/interpreter.h"
#include "tests/support/ddp_test.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* In place of the one that opens a library. */
ddp_status_t ddp_cudnn_table_open(ddp_cudnn_table_t *table)
{
    *table = *ddp_interpreter_table();
    return DDP_OK;
}

static void move(void *to, const void *from, size_t bytes)
{
    ck_assert_int_eq(cudaStreamSynchronize(ddp_interpreter.stream), cudaSuccess);
    ck_assert_int_eq(cudaMemcpy(to, from, bytes, cudaMemcpyDefault), cudaSuccess);
}

static support_t s;

static void open_devices(void)
{
    ddp_interpreter = (ddp_interpreter_t){.workspace = 300, .read = move, .write = move};
    support_open(&s);
}

static void close_devices(void)
{
    support_close(&s);
    ck_assert_int_eq(ddp_interpreter.descriptors, 0);
}

/* Numbers that all precisions hold: multiples of 1/64 in [-1, 1). */
static float *numbers(size_t count, uint64_t seed)
{
    float *x = malloc((count + 1) * sizeof(*x));

    support_fill(x, count, seed);
    for (size_t i = 0; i < count; i++) {
        x[i] = floorf(x[i] * 64.0F) / 64.0F;
    }
    return x;
}

/* What an operation wrote on the CUDA device, beside what the cpu wrote. */
static void compare(const float *on_device, const float *wanted, size_t count, double limit, const char *what)
{
    float *got = malloc((count + 1) * sizeof(*got));

    support_download(&s, got, on_device, count * sizeof(*got));
    support_assert_near(got, wanted, count, limit, what);
    free(got);
}

typedef struct attention_case {
    size_t          sequences, length, heads, width;
    ddp_precision_t precision;
    bool            is_exact, accumulate;
    size_t          turn_bytes; /* 0: as it is */
} attention_case_t;

static const attention_case_t attentions[] = {
    {1, 1, 1, 8, DDP_PRECISION_BF16, false, false, 0},    {3, 5, 2, 16, DDP_PRECISION_BF16, false, true, 0},
    {2, 33, 3, 8, DDP_PRECISION_FP16, false, false, 0},   {3, 7, 2, 8, DDP_PRECISION_FP16, true, true, 0},
    {11, 5, 1, 8, DDP_PRECISION_BF16, false, false, 700}, {9, 5, 2, 8, DDP_PRECISION_BF16, true, false, 220},
};

/* The cpu backend has no half: its float32 is near enough to either. */
static const double limit_of_16_bits = 0x1p-7;

static void run_attention(const attention_case_t *c, bool has_log_sum)
{
    const size_t channels = c->heads * c->width;
    const size_t rows     = c->sequences * c->length;
    const size_t count    = rows * channels;
    float       *qkv      = numbers(3 * count, 1);
    float       *dy       = numbers(count, 2);
    float       *dqkv     = numbers(3 * count, 3);
    float       *y        = malloc(count * sizeof(float));
    float       *log_sum  = malloc(rows * c->heads * sizeof(float));
    float       *d_dqkv   = support_upload(&s, dqkv, 3 * count * sizeof(float));

    ddp_attention_backward_args_t on_cpu  = {.forward    = {.qkv       = qkv,
                                                            .sequences = c->sequences,
                                                            .length    = c->length,
                                                            .heads     = c->heads,
                                                            .channels  = channels,
                                                            .y         = y,
                                                            .log_sum   = log_sum},
                                             .dy         = dy,
                                             .dqkv       = dqkv,
                                             .accumulate = c->accumulate};
    ddp_attention_backward_args_t args    = on_cpu;
    ddp_scratch_t                 scratch = {0, 0};

    args.forward.precision = c->precision;
    args.forward.qkv       = support_upload(&s, qkv, 3 * count * sizeof(float));
    args.forward.y         = support_upload(&s, NULL, count * sizeof(float));
    args.forward.log_sum   = has_log_sum ? support_upload(&s, NULL, rows * c->heads * sizeof(float)) : NULL;
    args.dy                = support_upload(&s, dy, count * sizeof(float));
    args.dqkv              = d_dqkv;
    ddp_assert_ok(ddp_op_attention(s.on_cpu, &on_cpu.forward));
    ddp_assert_ok(ddp_op_attention_backward(s.on_cpu, &on_cpu));

    ck_assert(ddp_cudnn_takes_attention(s.cuda, &args.forward));
    scratch.op = ddp_cudnn_attention_scratch_bytes(s.cuda, &args.forward);
    ddp_assert_ok(ddp_stream_reserve(s.on_cuda, &scratch)); /* which main() made fixed */
    ddp_assert_ok(ddp_cudnn_attention(s.on_cuda, &args.forward));
    compare(args.forward.y, y, count, limit_of_16_bits, "y");
    if (has_log_sum) {
        compare(args.forward.log_sum, log_sum, rows * c->heads, 1e-5, "log_sum");
        ddp_assert_ok(ddp_cudnn_attention_backward(s.on_cuda, &args));
        compare(d_dqkv, dqkv, 3 * count, limit_of_16_bits, "dqkv");
    }
    free(qkv);
    free(dy);
    free(dqkv);
    free(y);
    free(log_sum);
}

START_TEST(attention_and_its_gradient_are_the_cpus)
{
    const attention_case_t *c     = &attentions[_i];
    ddp_cudnn_t            *cudnn = NULL;

    ddp_assert_ok(ddp_cudnn_of(s.cuda, &cudnn));
    cudnn->is_exact   = c->is_exact;
    cudnn->turn_bytes = c->turn_bytes > 0 ? c->turn_bytes : cudnn->turn_bytes;
    run_attention(c, true);
    ck_assert_int_eq(ddp_interpreter.executed, c->turn_bytes == 0 ? 2 : 1 + (c->is_exact ? 3 : 3));
    run_attention(c, false);
}
END_TEST

START_TEST(attention_that_cudnn_has_not_is_not_taken)
{
    const ddp_attention_args_t good = {
        .sequences = 2, .length = 4, .heads = 2, .channels = 16, .precision = DDP_PRECISION_BF16};
    ddp_attention_args_t args  = good;
    ddp_cudnn_t         *cudnn = NULL;

    ck_assert(ddp_cudnn_takes_attention(s.cuda, &args));
    ck_assert_ptr_null(ddp_cudnn_absent(s.cuda));
    args.dropout = 0.1F;
    ck_assert(!ddp_cudnn_takes_attention(s.cuda, &args));
    args           = good;
    args.precision = DDP_PRECISION_TF32;
    ck_assert(!ddp_cudnn_takes_attention(s.cuda, &args));
    args          = good;
    args.channels = 24;
    ck_assert(!ddp_cudnn_takes_attention(s.cuda, &args));
    ck_assert_uint_eq(ddp_cudnn_attention_scratch_bytes(s.cuda, &args), 0);
    args        = good;
    args.length = 0;
    ck_assert(!ddp_cudnn_takes_attention(s.cuda, &args));
    args         = good;
    args.log_sum = (float *)4;
    ck_assert(!ddp_cudnn_takes_attention(s.cuda, &args));
    ddp_assert_ok(ddp_cudnn_of(s.cuda, &cudnn));
    cudnn->is_exact = true;
    cudnn->major    = 10;
    ck_assert(!ddp_cudnn_takes_attention(s.cuda, &good));
}
END_TEST

START_TEST(dry_device_learns_what_attention_takes)
{
    const ddp_device_params_t dry    = {.struct_size = sizeof(dry), .kind = DDP_DEVICE_CUDA, .dry = true};
    ddp_device_t             *device = NULL;
    ddp_stream_t             *stream = NULL;
    float                     memory[1];
    ddp_attention_args_t      args = {.qkv       = memory,
                                      .y         = memory,
                                      .sequences = 3,
                                      .length    = 40,
                                      .heads     = 2,
                                      .channels  = 32,
                                      .precision = DDP_PRECISION_BF16};
    size_t                    before, bytes;

    ddp_assert_ok(ddp_device_create(&dry, &device));
    ddp_assert_ok(ddp_stream_create(device, "dry", &stream));
    before = ddp_kernel_scratch_bytes(device, 0);
    bytes  = ddp_cudnn_attention_scratch_bytes(s.cuda, &args);
    ddp_assert_ok(ddp_op_attention(stream, &args));
    ck_assert_uint_gt(bytes, 0);
    ck_assert_uint_eq(before, 0);
    ck_assert_uint_eq(ddp_kernel_scratch_bytes(device, 0), bytes);
    ddp_stream_destroy(&stream);
    ddp_device_destroy(&device);
    ck_assert_int_eq(ddp_interpreter.executed, 0);
}
END_TEST

typedef struct conv_case {
    ddp_precision_t precision;
    bool            has_bias, has_relu, accumulate;
    int64_t         most_ops; /* 1: bias and activation are not fused */
} conv_case_t;

static const conv_case_t convs[] = {
    {DDP_PRECISION_FLOAT32, false, false, false, 0}, {DDP_PRECISION_FLOAT32, true, true, true, 0},
    {DDP_PRECISION_FLOAT32, true, true, true, 1},    {DDP_PRECISION_FLOAT32, false, true, false, 0},
    {DDP_PRECISION_TF32, true, false, true, 0},      {DDP_PRECISION_BF16, true, true, false, 0},
    {DDP_PRECISION_FP16, true, true, true, 0},
};

static const ddp_conv2d_shape_t conv_shapes[] = {
    {.n = 1, .in_h = 1, .in_w = 1, .in_c = 1, .out_c = 1, .kernel_h = 1, .kernel_w = 1, .stride = 1},
    {.n        = 3,
     .in_h     = 7,
     .in_w     = 6,
     .in_c     = 3,
     .out_c    = 5,
     .kernel_h = 3,
     .kernel_w = 3,
     .stride   = 2,
     .pad      = 1},
};

static void run_conv(const conv_case_t *c, ddp_conv2d_shape_t shape)
{
    ddp_assert_ok(ddp_conv2d_shape_fill(&shape));

    const size_t n_x  = shape.n * shape.in_h * shape.in_w * shape.in_c;
    const size_t n_w  = shape.out_c * shape.in_c * shape.kernel_h * shape.kernel_w;
    const size_t n_y  = shape.n * shape.out_h * shape.out_w * shape.out_c;
    float       *x    = numbers(n_x, 1);
    float       *w    = numbers(n_w, 2);
    float       *bias = numbers(shape.out_c, 3);
    float       *dy   = numbers(n_y, 4);
    float       *dx   = numbers(n_x, 5);
    float       *dw   = numbers(n_w, 6);
    float       *y    = malloc(n_y * sizeof(float));
    float       *d_dx = support_upload(&s, dx, n_x * sizeof(float));
    float       *d_dw = support_upload(&s, dw, n_w * sizeof(float));
    float       *d_y  = support_upload(&s, NULL, n_y * sizeof(float));

    ddp_conv2d_args_t          args = {.shape   = shape,
                                       .x       = x,
                                       .w       = w,
                                       .bias    = c->has_bias ? bias : NULL,
                                       .act     = c->has_relu ? DDP_ACT_RELU : DDP_ACT_NONE,
                                       .y       = y,
                                       .scratch = malloc(ddp_conv2d_scratch_bytes(s.cpu, &shape) + 1)};
    ddp_conv2d_backward_args_t back = {.shape         = shape,
                                       .x             = x,
                                       .w             = w,
                                       .dy            = dy,
                                       .dx            = dx,
                                       .dw            = dw,
                                       .accumulate_dx = c->accumulate,
                                       .accumulate_dw = c->accumulate,
                                       .scratch       = args.scratch};

    ddp_assert_ok(ddp_op_conv2d(s.on_cpu, &args));
    ddp_assert_ok(ddp_op_conv2d_backward(s.on_cpu, &back));
    free(args.scratch);
    shape.precision = c->precision;
    args.shape = back.shape = shape;
    args.scratch = back.scratch = support_upload(&s, NULL, ddp_cudnn_conv2d_scratch_bytes(s.cuda, &shape));
    args.x = back.x = support_upload(&s, x, n_x * sizeof(float));
    args.w = back.w = support_upload(&s, w, n_w * sizeof(float));
    args.bias       = c->has_bias ? support_upload(&s, bias, shape.out_c * sizeof(float)) : NULL;
    args.y          = d_y;
    back.dy         = support_upload(&s, dy, n_y * sizeof(float));
    back.dx         = d_dx;
    back.dw         = d_dw;
    ck_assert(ddp_cudnn_takes_conv2d(s.cuda, &shape));
    ddp_assert_ok(ddp_cudnn_conv2d(s.on_cuda, &args));
    ddp_assert_ok(ddp_cudnn_conv2d_backward(s.on_cuda, &back));
    compare(d_y, y, n_y, 1e-6, "y");
    compare(d_dx, dx, n_x, 1e-6, "dx");
    compare(d_dw, dw, n_w, 1e-6, "dw");
    free(x);
    free(w);
    free(bias);
    free(dy);
    free(dx);
    free(dw);
    free(y);
}

START_TEST(convolution_and_its_gradients_are_the_cpus)
{
    ddp_interpreter.most_ops = convs[_i].most_ops;
    for (size_t i = 0; i < COUNT(conv_shapes); i++) {
        run_conv(&convs[_i], conv_shapes[i]);
    }
    ck_assert_int_eq(ddp_interpreter.executed, 3 * (int)COUNT(conv_shapes));
}
END_TEST

/* Rounded inputs: what bfloat16 does not hold is not multiplied. */
START_TEST(convolution_rounds_its_inputs)
{
    ddp_conv2d_shape_t shape = conv_shapes[0];
    const float        one   = 1.0F;
    const float        x     = 1.0F + 0x1p-10F;
    float              y     = 0;
    ddp_conv2d_args_t  args;

    ddp_assert_ok(ddp_conv2d_shape_fill(&shape));
    shape.precision = DDP_PRECISION_BF16;
    args            = (ddp_conv2d_args_t){.shape = shape,
                                          .x     = support_upload(&s, &x, sizeof(x)),
                                          .w     = support_upload(&s, &one, sizeof(one)),
                                          .y     = support_upload(&s, NULL, sizeof(y)),
                                          .scratch =
                                              support_upload(&s, NULL, ddp_cudnn_conv2d_scratch_bytes(s.cuda, &shape))};
    ddp_assert_ok(ddp_cudnn_conv2d(s.on_cuda, &args));
    support_download(&s, &y, args.y, sizeof(y));
    ck_assert(y == 1.0F);
}
END_TEST

START_TEST(engines_that_do_not_compute_what_is_asked_are_not_taken)
{
    ddp_conv2d_shape_t shape = conv_shapes[1];

    ddp_assert_ok(ddp_conv2d_shape_fill(&shape));
    ddp_interpreter.notes = DDP_CUDNN_NOTE(TENSOR_CORE);
    ck_assert(!ddp_cudnn_takes_conv2d(s.cuda, &shape));
    shape.precision = DDP_PRECISION_TF32;
    ck_assert(ddp_cudnn_takes_conv2d(s.cuda, &shape));
    shape.n++;
    ddp_interpreter.notes = DDP_CUDNN_NOTE(WINOGRAD);
    ck_assert(!ddp_cudnn_takes_conv2d(s.cuda, &shape));
    shape.precision = DDP_PRECISION_FLOAT32;
    ck_assert(ddp_cudnn_takes_conv2d(s.cuda, &shape));
    shape.algo = DDP_CONV_DIRECT;
    ck_assert(!ddp_cudnn_takes_conv2d(s.cuda, &shape));
    ck_assert_uint_eq(ddp_cudnn_conv2d_scratch_bytes(s.cuda, &shape), 0);
}
END_TEST

START_TEST(exact_device_takes_deterministic_engines_only)
{
    ddp_conv2d_shape_t  shape  = conv_shapes[1];
    ddp_device_params_t params = DDP_DEVICE_PARAMS_INIT;
    ddp_device_t       *exact  = NULL;

    ddp_assert_ok(ddp_conv2d_shape_fill(&shape));
    params.kind     = DDP_DEVICE_CUDA;
    params.is_exact = true;
    params.dry      = true; /* asked for its scratch, it answers as a true one does */
    ddp_assert_ok(ddp_device_create(&params, &exact));
    ck_assert_uint_gt(ddp_cudnn_conv2d_scratch_bytes(exact, &shape), 0);
    shape.n++;
    ddp_interpreter.notes = DDP_CUDNN_NOTE(NONDETERMINISTIC);
    ck_assert(!ddp_cudnn_takes_conv2d(exact, &shape));
    ck_assert(ddp_cudnn_takes_conv2d(s.cuda, &shape));
    ddp_device_destroy(&exact);
}
END_TEST

START_TEST(memory_that_is_not_aligned_is_refused_before_anything_runs)
{
    ddp_conv2d_shape_t shape = conv_shapes[0];
    ddp_conv2d_args_t  args;

    ddp_assert_ok(ddp_conv2d_shape_fill(&shape));
    args = (ddp_conv2d_args_t){.shape = shape, .x = (float *)20};
    ddp_assert_fails(ddp_cudnn_conv2d(s.on_cuda, &args), DDP_ERR_UNSUPPORTED, "not aligned");
    ck_assert_int_eq(ddp_interpreter.executed, 0);
}
END_TEST

START_TEST(device_without_cudnn_says_why_and_takes_nothing)
{
    ddp_conv2d_shape_t shape = conv_shapes[1];

    ddp_assert_ok(ddp_conv2d_shape_fill(&shape));
    ddp_interpreter.create = CUDNN_STATUS_NOT_INITIALIZED;
    ck_assert(!ddp_cudnn_takes_conv2d(s.cuda, &shape));
    ck_assert_str_eq(ddp_cudnn_absent(s.cuda), "cudnnCreate: a failure: said by the interpreter");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cudnn device");
    TCase *tcase = tcase_create("operations");

    (void)setenv("DDP_CUDA_SCRATCH", "fixed", 1); /* more than was reserved is an error */
    tcase_add_checked_fixture(tcase, open_devices, close_devices);
    tcase_add_loop_test(tcase, attention_and_its_gradient_are_the_cpus, 0, (int)COUNT(attentions));
    tcase_add_test(tcase, attention_that_cudnn_has_not_is_not_taken);
    tcase_add_test(tcase, dry_device_learns_what_attention_takes);
    tcase_add_loop_test(tcase, convolution_and_its_gradients_are_the_cpus, 0, (int)COUNT(convs));
    tcase_add_test(tcase, convolution_rounds_its_inputs);
    tcase_add_test(tcase, engines_that_do_not_compute_what_is_asked_are_not_taken);
    tcase_add_test(tcase, exact_device_takes_deterministic_engines_only);
    tcase_add_test(tcase, memory_that_is_not_aligned_is_refused_before_anything_runs);
    tcase_add_test(tcase, device_without_cudnn_says_why_and_takes_nothing);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
