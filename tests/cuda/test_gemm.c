/* Products of the CUDA device, by the library and by the plain kernel, against loops in float64 and the cpu.
 */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda.h"
#include "kernels/cuda/gemm_lt.h"
#include "tests/cuda/rounding.h"
#include "tests/cuda/support.h"
#include "tests/support/ddp_test.h"

#define WAYS       2
#define PRECISIONS 4
#define MOST       16384 /* floats of an operand */

static const char *const way_names[WAYS] = {"plain", "cublaslt"};

/* A test that runs for each way, or each way and precision. */
static void open_way(support_t *s, int way)
{
    setenv("DDP_CUDA_GEMM", way_names[way], 1);
    support_open(s);
}

static void close_way(support_t *s)
{
    support_close(s);
    unsetenv("DDP_CUDA_GEMM");
}

/* One product: `host` holds its operands, `args` those of the device. */
typedef struct product {
    ddp_gemm_args_t host, args;
    size_t          a_count, b_count, c_count;
    float          *a, *b, *c, *add, *bias, *pre; /* host, [MOST] each */
    float          *on[6];                        /* the same on the device */
    size_t          shift;                        /* floats that all of them are off */
    float           before[MOST], c_got[MOST], pre_got[MOST];
} product_t;

static float     operands[6][MOST];
static product_t the_product; /* too large for a stack */

/* Numbers in [-1, 1) without ties, whose rounding is a matter of taste in tf32. */
static void draw(float *x, size_t count, uint64_t seed)
{
    support_fill(x, count, seed);
    for (size_t i = 0; i < count; i++) {
        if (rounding_is_tie(DDP_PRECISION_TF32, (double)x[i])) {
            x[i] = nextafterf(x[i], 2.0F);
        }
    }
}

static void product_open(support_t *s, product_t *p, const ddp_gemm_args_t *args, size_t extra, size_t shift)
{
    const size_t    a_rows   = args->transpose_a ? args->k : args->m;
    const size_t    b_rows   = args->transpose_b ? args->n : args->k;
    ddp_gemm_args_t g        = *args;
    size_t          count[6] = {0};

    g.lda = (g.transpose_a ? g.m : g.k) + extra;
    g.ldb = (g.transpose_b ? g.k : g.n) + extra;
    g.ldc = g.n + extra;
    /* nothing behind the last row belongs to an operand */
    p->a_count = count[0] = a_rows > 0 ? a_rows * g.lda - extra : 0;
    p->b_count = count[1] = b_rows > 0 ? b_rows * g.ldb - extra : 0;
    p->c_count = count[2] = count[3] = count[5] = g.m > 0 ? g.m * g.ldc - extra : 0;
    count[4]                                    = g.n;
    p->shift                                    = shift;
    for (size_t i = 0; i < 6; i++) {
        ck_assert(count[i] + shift <= MOST);
        draw(operands[i], count[i] + shift, i + 1);
        p->on[i] = (float *)support_upload(s, operands[i], (count[i] + shift) * sizeof(float)) + shift;
    }
    memcpy(p->before, operands[2] + shift, p->c_count * sizeof(float));
    p->host   = g;
    p->args   = g;
    p->args.a = p->on[0];
    p->args.b = p->on[1];
    p->args.c = p->on[2];
    if (g.add != NULL) {
        p->args.add = p->on[3];
    }
    if (g.bias != NULL) {
        p->args.bias = p->on[4];
    }
    if (g.pre_activation != NULL) {
        p->args.pre_activation = p->on[5];
    }
    p->a    = operands[0] + shift;
    p->b    = operands[1] + shift;
    p->c    = operands[2] + shift;
    p->add  = operands[3] + shift;
    p->bias = operands[4] + shift;
    p->pre  = operands[5] + shift;
}

static void product_fetch(support_t *s, product_t *p)
{
    support_download(s, p->c_got, p->on[2], p->c_count * sizeof(float));
    support_download(s, p->pre_got, p->on[5], p->c_count * sizeof(float));
}

static double act_of(ddp_act_t act, double x)
{
    switch (act) {
    case DDP_ACT_RELU:
        return x > 0.0 ? x : 0.0;
    case DDP_ACT_GELU:
        return 0.5 * x * (1.0 + erf(x / sqrt(2.0)));
    case DDP_ACT_GELU_TANH:
        return 0.5 * x * (1.0 + tanh(sqrt(2.0 / acos(-1.0)) * (x + 0.044715 * x * x * x)));
    case DDP_ACT_NONE:
        break;
    }
    return x;
}

/* Element i, j in float64, before the activation. `magnitude`: the sum of |products|, for the bound. */
static double element(const product_t *p, size_t i, size_t j, double *magnitude)
{
    const ddp_gemm_args_t *g   = &p->host;
    double                 sum = 0.0;

    *magnitude = 0.0;
    for (size_t l = 0; l < g->k; l++) {
        const float  a = g->transpose_a ? p->a[l * g->lda + i] : p->a[i * g->lda + l];
        const float  b = g->transpose_b ? p->b[j * g->ldb + l] : p->b[l * g->ldb + j];
        const double x =
            rounding_nearest(g->precision, (double)a) * rounding_nearest(g->precision, (double)b);

        sum += x;
        *magnitude += fabs(x);
    }
    sum *= (double)g->alpha;
    if (g->beta != 0.0F) {
        sum += (double)g->beta * (double)p->before[i * g->ldc + j];
    }
    if (g->add != NULL) {
        sum += (double)p->add[i * g->ldc + j];
    }
    return sum + (g->bias != NULL ? (double)p->bias[j] : 0.0);
}

/* No stand-in: tensor cores may cut TF32 off instead of rounding it, and the library's GELU is an
 * approximation. */
static bool is_gpu(void)
{
    ddp_cuda_device_info_t info;

    ddp_assert_ok(ddp_cuda_describe(0, &info));
    return strcmp(info.name, "cusim") != 0;
}

/* Rounding of k sums, and of the few operations of the epilogue: k * eps * sum of magnitudes at most. */
static bool is_near(const ddp_gemm_args_t *g, double got, double wanted, double magnitude)
{
    const bool is_rough = g->precision == DDP_PRECISION_TF32 ||
                          (g->act == DDP_ACT_GELU_TANH && g->precision != DDP_PRECISION_FLOAT32);
    const double limit = is_rough && is_gpu() ? 1e-3 : (double)(g->k + 16) * 6e-8;

    return fabs(got - wanted) <= limit * (magnitude + 1.0);
}

static void product_check(const product_t *p, const char *what)
{
    const ddp_gemm_args_t *g = &p->host;

    for (size_t at = 0; at < p->c_count; at++) {
        const size_t i = at / g->ldc;
        const size_t j = at % g->ldc;
        double       magnitude;
        double       wanted;

        if (j >= g->n) {
            ck_assert_msg(p->c_got[at] == p->before[at] && p->pre_got[at] == p->pre[at],
                          "%s: written between rows at %zu, %zu", what, i, j);
            continue;
        }
        wanted = element(p, i, j, &magnitude);
        ck_assert_msg(is_near(g, (double)p->c_got[at], act_of(g->act, wanted), magnitude),
                      "%s: %zux%zux%zu %d%d at %zu, %zu: %.9g instead of %.9g", what, g->m, g->n, g->k,
                      g->transpose_a, g->transpose_b, i, j, (double)p->c_got[at], act_of(g->act, wanted));
        ck_assert_msg(g->pre_activation == NULL ? p->pre_got[at] == p->pre[at]
                                                : is_near(g, (double)p->pre_got[at], wanted, magnitude),
                      "%s: pre-activation at %zu, %zu: %.9g instead of %.9g", what, i, j,
                      (double)p->pre_got[at], wanted);
    }
}

static const float something[1]; /* "not NULL" of a description */

/* Description number `i`: sizes and options in many combinations. */
static ddp_gemm_args_t drawn_args(size_t i, ddp_precision_t precision)
{
    static const size_t sizes[] = {1, 3, 8, 16, 17, 64, 65, 81};
    const size_t        count   = sizeof(sizes) / sizeof(sizes[0]);
    const size_t        random  = i * 2654435761U >> 7;
    ddp_gemm_args_t     args    = {.transpose_a = i % 3 == 1,
                                   .transpose_b = i % 3 == 2,
                                   .m           = sizes[random % count],
                                   .n           = sizes[random / 8 % count],
                                   .k           = sizes[random / 64 % count],
                                   .alpha       = i % 2 == 0 ? 1.0F : -0.75F,
                                   .beta        = i % 4 == 3 ? 0.5F : 0.0F,
                                   .act         = (ddp_act_t)(i / 2 % 4),
                                   .precision   = precision};

    args.bias           = i % 5 < 3 ? something : NULL;
    args.add            = i % 7 < 3 ? something : NULL;
    args.pre_activation = i % 11 < 6 ? (float *)(uintptr_t)something : NULL;
    return args;
}

static void run_drawn(int way, ddp_precision_t precision, size_t i)
{
    const ddp_gemm_args_t args = drawn_args(i, precision);
    support_t             s;
    char                  what[64];

    (void)snprintf(what, sizeof(what), "%s, precision %d, case %zu", way_names[way], (int)precision, i);
    open_way(&s, way);
    product_open(&s, &the_product, &args, i % 4 == 0 ? 0 : i % 4 == 1 ? 8 : i % 5, i % 3 == 0 ? i % 4 : 0);
    ddp_assert_ok(ddp_op_gemm(s.on_cuda, &the_product.args));
    product_fetch(&s, &the_product);
    product_check(&the_product, what);
    close_way(&s);
}

START_TEST(every_way_and_precision_equals_a_loop_over_rounded_inputs)
{
    for (size_t i = 0; i < 44; i++) {
        run_drawn(_i % WAYS, (ddp_precision_t)(_i / WAYS), i);
    }
}
END_TEST

/* The same operands by the cpu's kernel; C on return. */
static void run_on_cpu(support_t *s, product_t *p, float *c, float *pre)
{
    ddp_gemm_args_t args = p->host;

    memcpy(c, p->before, p->c_count * sizeof(float));
    args.a    = p->a;
    args.b    = p->b;
    args.c    = c;
    args.bias = args.bias != NULL ? p->bias : NULL;
    args.add  = args.add != NULL ? p->add : NULL;
    if (args.pre_activation != NULL) {
        args.pre_activation = pre;
    }
    ddp_assert_ok(ddp_op_gemm(s->on_cpu, &args));
    ddp_assert_ok(ddp_stream_synchronize(s->on_cpu, -1));
}

START_TEST(products_are_those_of_the_cpu_device)
{
    static float c[MOST];
    static float pre[MOST];
    support_t    s;

    for (int act = DDP_ACT_NONE; act <= DDP_ACT_GELU_TANH; act++) {
        const ddp_gemm_args_t args = {.transpose_b    = true,
                                      .m              = 70,
                                      .n              = 72,
                                      .k              = 100,
                                      .alpha          = 1.0F,
                                      .bias           = something,
                                      .act            = (ddp_act_t)act,
                                      .pre_activation = (float *)(uintptr_t)something,
                                      .precision = act % 2 == 0 ? DDP_PRECISION_FLOAT32 : DDP_PRECISION_BF16};

        open_way(&s, _i);
        product_open(&s, &the_product, &args, 0, 0);
        ddp_assert_ok(ddp_op_gemm(s.on_cuda, &the_product.args));
        product_fetch(&s, &the_product);
        run_on_cpu(&s, &the_product, c, pre);
        support_assert_near(the_product.c_got, c, the_product.c_count, 2e-6, "C");
        support_assert_near(the_product.pre_got, pre, the_product.c_count, 2e-6, "pre-activation");
        close_way(&s);
    }
}
END_TEST

START_TEST(with_beta_0_what_was_there_is_not_read)
{
    const ddp_gemm_args_t args = {.m = 5, .n = 67, .k = 9, .alpha = 1.0F, .act = DDP_ACT_GELU};
    static float          nan[MOST];
    support_t             s;

    for (size_t i = 0; i < MOST; i++) {
        nan[i] = NAN;
    }
    open_way(&s, _i);
    product_open(&s, &the_product, &args, 0, 0);
    ddp_assert_ok(ddp_stream_copy(s.on_cuda, the_product.on[2], nan, the_product.c_count * sizeof(float)));
    ddp_assert_ok(ddp_op_gemm(s.on_cuda, &the_product.args));
    product_fetch(&s, &the_product);
    product_check(&the_product, way_names[_i]);
    close_way(&s);
}
END_TEST

START_TEST(a_sum_over_nothing_is_0_and_a_result_of_nothing_is_left_alone)
{
    ddp_gemm_args_t args = {.m = 3, .n = 5, .k = 0, .alpha = 1.0F, .beta = 0.5F};
    support_t       s;

    args.bias = something;
    args.add  = something;
    open_way(&s, _i);
    product_open(&s, &the_product, &args, 1, 0);
    ddp_assert_ok(ddp_op_gemm(s.on_cuda, &the_product.args));
    product_fetch(&s, &the_product);
    product_check(&the_product, "k = 0");
    args.k = 4;
    for (int empty = 0; empty < 2; empty++) {
        args.m = empty == 0 ? 0 : 3;
        args.n = empty == 0 ? 5 : 0;
        product_open(&s, &the_product, &args, 1, 0);
        ddp_assert_ok(ddp_op_gemm(s.on_cuda, &the_product.args));
        product_fetch(&s, &the_product);
        support_assert_same(the_product.c_got, the_product.before, the_product.c_count * sizeof(float), "C");
    }
    close_way(&s);
}
END_TEST

START_TEST(a_second_time_has_the_same_bits_and_takes_no_memory)
{
    static float          first[MOST];
    const ddp_gemm_args_t args = {.m = 65, .n = 70, .k = 130, .alpha = 1.0F, .precision = DDP_PRECISION_BF16};
    ddp_device_memory_t   memory;
    support_t             s;

    open_way(&s, _i);
    product_open(&s, &the_product, &args, 3, 0);
    ddp_assert_ok(ddp_op_gemm(s.on_cuda, &the_product.args));
    product_fetch(&s, &the_product);
    memcpy(first, the_product.c_got, sizeof(first));
    memory = ddp_device_memory(s.cuda);
    for (int i = 0; i < 3; i++) {
        ddp_assert_ok(ddp_op_gemm(s.on_cuda, &the_product.args));
    }
    product_fetch(&s, &the_product);
    support_assert_same(the_product.c_got, first, the_product.c_count * sizeof(float), "C");
    ck_assert(ddp_device_memory(s.cuda).peak == memory.peak);
    close_way(&s);
}
END_TEST

START_TEST(a_plan_is_kept_for_a_shape_and_not_for_the_places_of_its_vectors)
{
    const ddp_gemm_args_t args = {.m              = 9,
                                  .n              = 16,
                                  .k              = 8,
                                  .alpha          = 1.0F,
                                  .bias           = something,
                                  .act            = DDP_ACT_GELU_TANH,
                                  .pre_activation = (float *)(uintptr_t)something,
                                  .precision      = DDP_PRECISION_FP16};
    support_t             s;

    open_way(&s, _i);
    for (int time = 0; time < 2; time++) {
        product_open(&s, &the_product, &args, 0, 0);
        ddp_assert_ok(ddp_op_gemm(s.on_cuda, &the_product.args));
        product_fetch(&s, &the_product);
        product_check(&the_product, time == 0 ? "first" : "second");
    }
    close_way(&s);
}
END_TEST

START_TEST(a_way_that_does_not_exist_is_named)
{
    const ddp_gemm_args_t args = {.m = 1, .n = 1, .k = 1, .alpha = 1.0F};
    support_t             s;

    setenv("DDP_CUDA_GEMM", "fast", 1);
    support_open(&s);
    product_open(&s, &the_product, &args, 0, 0);
    ddp_assert_fails(ddp_op_gemm(s.on_cuda, &the_product.args), DDP_ERR_UNSUPPORTED,
                     "DDP_CUDA_GEMM=fast is neither cublaslt nor plain");
    close_way(&s);
}
END_TEST

/* A library that refuses the first `refusals` products it is asked about. */
static int                  refusals;
static ddp_cublaslt_table_t library;

static cublasStatus_t refuse_some(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                                  cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                  cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                  cublasLtMatmulPreference_t preference, int room,
                                  cublasLtMatmulHeuristicResult_t results[], int *count_p)
{
    *count_p = 0;
    return refusals-- > 0
               ? CUBLAS_STATUS_NOT_SUPPORTED
               : library.heuristic(handle, product, a, b, c, d, preference, room, results, count_p);
}

START_TEST(an_epilogue_that_the_library_has_not_is_done_afterwards)
{
    const ddp_gemm_args_t args = {
        .m = 20, .n = 24, .k = 32, .alpha = 2.0F, .bias = something, .add = something, .act = DDP_ACT_RELU};
    ddp_cuda_plans_t plans;
    bool             is_done;
    support_t        s;

    support_open(&s);
    ddp_assert_ok(ddp_cuda_plans_open(&plans));
    library               = plans.table;
    plans.table.heuristic = refuse_some;
    for (refusals = _i; refusals >= 0; refusals = -1) {
        product_open(&s, &the_product, &args, 0, 0);
        ddp_assert_ok(ddp_cuda_gemm_lt(&plans, s.on_cuda, &the_product.args, &is_done));
        ck_assert_int_eq(is_done, _i < 2);
        product_fetch(&s, &the_product);
        if (is_done) {
            product_check(&the_product, "refused");
        } else {
            support_assert_same(the_product.c_got, the_product.before, the_product.c_count * sizeof(float),
                                "C");
        }
    }
    ck_assert_uint_eq(plans.n, _i == 0 ? 1 : 2);
    ddp_cuda_plans_close(&plans);
    support_close(&s);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cuda gemm");
    TCase *tc    = tcase_create("gemm");

    tcase_add_loop_test(tc, every_way_and_precision_equals_a_loop_over_rounded_inputs, 0, WAYS * PRECISIONS);
    tcase_add_loop_test(tc, products_are_those_of_the_cpu_device, 0, WAYS);
    tcase_add_loop_test(tc, with_beta_0_what_was_there_is_not_read, 0, WAYS);
    tcase_add_loop_test(tc, a_sum_over_nothing_is_0_and_a_result_of_nothing_is_left_alone, 0, WAYS);
    tcase_add_loop_test(tc, a_second_time_has_the_same_bits_and_takes_no_memory, 0, WAYS);
    tcase_add_loop_test(tc, a_plan_is_kept_for_a_shape_and_not_for_the_places_of_its_vectors, 0, WAYS);
    tcase_add_test(tc, a_way_that_does_not_exist_is_named);
    tcase_add_loop_test(tc, an_epilogue_that_the_library_has_not_is_done_afterwards, 0, 3);
    suite_add_tcase(suite, tc);
    return ddp_test_run(suite);
}
