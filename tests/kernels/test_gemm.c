#include <cblas.h>

#include "kernels/ops.h"
#include "tests/kernels/bf16_test.h"
#include "tests/kernels/kernel_test.h"

/* Rounding of k products, and of the few operations of the epilogue, on sums of numbers in [-1, 1]: the usual
 * bound is k * eps * sum of magnitudes; random signs leave far less. */
static double bound_of(size_t k, double magnitude)
{
    return (double)(k + 8) * 6e-8 * (magnitude + 1.0);
}

typedef struct product {
    ddp_gemm_args_t args;
    size_t          a_count, b_count, c_count;
    float          *a, *b, *c, *c_before, *bias, *pre;
    size_t          shift;
} product_t;

static void product_open(product_t *p, ddp_gemm_args_t args, size_t extra, size_t shift)
{
    const size_t a_rows = args.transpose_a ? args.k : args.m;
    const size_t b_rows = args.transpose_b ? args.n : args.k;

    args.lda = (args.transpose_a ? args.m : args.k) + extra;
    args.ldb = (args.transpose_b ? args.k : args.n) + extra;
    args.ldc = args.n + extra;
    p->shift = shift;
    /* Nothing behind the last element of the last row belongs to an operand. */
    p->a_count  = a_rows > 0 ? a_rows * args.lda - extra : 0;
    p->b_count  = b_rows > 0 ? b_rows * args.ldb - extra : 0;
    p->c_count  = args.m > 0 ? args.m * args.ldc - extra : 0;
    p->a        = guarded_new(p->a_count, shift, 1);
    p->b        = guarded_new(p->b_count, shift, 2);
    p->c        = guarded_new(p->c_count, shift, 3);
    p->pre      = guarded_new(p->c_count, shift, 3);
    p->c_before = guarded_new(p->c_count, shift, 3);
    p->bias     = guarded_new(args.n, shift, 4);
    if (args.precision != DDP_PRECISION_FLOAT32) {
        bf16_nearest_all(p->a, p->a_count);
        bf16_nearest_all(p->b, p->b_count);
    }
    p->args   = args;
    p->args.a = p->a;
    p->args.b = p->b;
    p->args.c = p->c;
    if (args.bias != NULL) {
        p->args.bias = p->bias;
    }
    if (args.add != NULL) {
        p->args.add = p->c_before;
    }
    if (args.pre_activation != NULL) {
        p->args.pre_activation = p->pre;
    }
}

static void product_close(product_t *p)
{
    float *all[] = {p->a, p->b, p->c, p->pre, p->c_before, p->bias};

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        guarded_free(all[i], p->shift);
    }
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

/* The plain loop, in float64. `magnitude` is the sum of |products|, for the bound. */
static double element(const product_t *p, size_t i, size_t j, double *magnitude)
{
    const ddp_gemm_args_t *g   = &p->args;
    double                 sum = 0.0;

    *magnitude = 0.0;
    for (size_t l = 0; l < g->k; l++) {
        double x = (double)(g->transpose_a ? p->a[l * g->lda + i] : p->a[i * g->lda + l]) *
                   (double)(g->transpose_b ? p->b[j * g->ldb + l] : p->b[l * g->ldb + j]);
        sum += x;
        *magnitude += fabs(x);
    }
    sum *= (double)g->alpha;
    if (g->beta != 0.0F) {
        sum += (double)g->beta * (double)p->c_before[i * g->ldc + j];
    }
    if (g->add != NULL) {
        sum += (double)p->c_before[i * g->ldc + j];
    }
    return sum + (g->bias != NULL ? (double)p->bias[j] : 0.0);
}

static bool product_is_right(const product_t *p, const char *set)
{
    const ddp_gemm_args_t *g = &p->args;

    for (size_t i = 0; i < g->m; i++) {
        for (size_t j = 0; j < g->ldc && i * g->ldc + j < p->c_count; j++) {
            const size_t at = i * g->ldc + j;
            double       magnitude;
            double       wanted;

            if (j >= g->n) { /* between the rows */
                if (p->c[at] != p->c_before[at] || p->pre[at] != p->c_before[at]) {
                    fprintf(stderr, "%s: written between rows at %zu, %zu\n", set, i, j);
                    return false;
                }
                continue;
            }
            wanted = element(p, i, j, &magnitude);
            if (!(fabs((double)p->c[at] - act_of(g->act, wanted)) <= bound_of(g->k, magnitude)) ||
                (g->pre_activation != NULL &&
                 !(fabs((double)p->pre[at] - wanted) <= bound_of(g->k, magnitude)))) {
                fprintf(stderr, "%s: %zux%zux%zu %d%d at %zu, %zu: %.9g instead of %.9g\n", set, g->m, g->n,
                        g->k, g->transpose_a, g->transpose_b, i, j, (double)p->c[at], act_of(g->act, wanted));
                return false;
            }
        }
    }
    return guards_are_whole(p->c, p->c_count, p->shift) && guards_are_whole(p->pre, p->c_count, p->shift);
}

static void check_product(bench_t *bench, ddp_gemm_args_t args, size_t extra, size_t shift)
{
    product_t product;

    product_open(&product, args, extra, shift);
    if (args.beta == 0.0F) { /* must not be read */
        for (size_t i = 0; i < product.args.m; i++) {
            for (size_t j = 0; j < product.args.n; j++) {
                product.c[i * product.args.ldc + j] = NAN;
            }
        }
    }
    ddp_assert_ok(ddp_op_gemm(bench->stream, &product.args));
    ddp_assert_ok(ddp_stream_synchronize(bench->stream, -1));
    ck_assert(product_is_right(&product, ddp_isa_name(ddp_device_isa(bench->device))));
    product_close(&product);
}

static bool open_mode(bench_t *bench, int mode, ddp_precision_t *precision)
{
    bench->stream = mode_open(mode, precision);
    if (bench->stream != NULL) {
        bench->device = ddp_stream_device(bench->stream);
    }
    return bench->stream != NULL;
}

static void set_transposes(ddp_gemm_args_t *args, int kind)
{
    args->transpose_a = kind == 1;
    args->transpose_b = kind == 2;
}

START_TEST(gemm_equals_the_plain_loop_for_every_size_and_transpose)
{
    static const size_t sizes[] = {0, 1, 3, 6, 7, 14, 16, 17, 33, 100};
    const size_t        count   = sizeof(sizes) / sizeof(sizes[0]);
    ddp_precision_t     precision;
    bench_t             bench;

    if (!open_mode(&bench, _i, &precision)) {
        return;
    }
    for (size_t c = 0; c < count * count * count; c++) {
        ddp_gemm_args_t args = {.m         = sizes[c % count],
                                .n         = sizes[c / count % count],
                                .k         = sizes[c / count / count],
                                .alpha     = 1.0F,
                                .precision = precision};

        set_transposes(&args, (int)(c % 3));
        check_product(&bench, args, c % 2, c % 5);
        set_transposes(&args, (int)((c + 1) % 3));
        args.alpha = -0.75F;
        args.beta  = c % 4 == 0 ? 1.0F : 0.5F;
        check_product(&bench, args, 2 + c % 3, 0);
    }
    bench_close(&bench);
}
END_TEST

START_TEST(gemm_is_right_where_blocks_and_parts_of_k_end)
{
    static const size_t shapes[][3] = {{300, 70, 257},  {600, 70, 600},  {267, 33, 513},
                                       {15, 2100, 300}, {259, 2081, 40}, {1, 10, 1025},
                                       {64, 10, 784},   {513, 1, 256},   {14, 64, 255}};
    ddp_precision_t     precision;
    bench_t             bench;

    if (!open_mode(&bench, _i, &precision)) {
        return;
    }
    for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++) {
        for (int kind = 0; kind < 3; kind++) {
            ddp_gemm_args_t args = {.m         = shapes[s][0],
                                    .n         = shapes[s][1],
                                    .k         = shapes[s][2],
                                    .alpha     = 1.0F,
                                    .beta      = (float)(s % 2),
                                    .precision = precision};

            set_transposes(&args, kind);
            check_product(&bench, args, s % 3, kind == 0);
        }
    }
    bench_close(&bench);
}
END_TEST

START_TEST(epilogue_adds_the_bias_applies_the_activation_and_keeps_what_it_was_applied_to)
{
    static const float  present     = 0.0F;
    static const size_t shapes[][3] = {{29, 37, 20}, {29, 64, 300}, {31, 10, 50}, {8, 40, 33}};
    ddp_precision_t     precision;
    bench_t             bench;

    if (!open_mode(&bench, _i, &precision)) {
        return;
    }
    for (int c = 0; c < 4 * 3 * 4 * 4; c++) {
        const size_t   *shape = shapes[c / 48];
        ddp_gemm_args_t args  = {.m         = shape[0],
                                 .n         = shape[1],
                                 .k         = shape[2],
                                 .alpha     = 0.25F,
                                 .act       = (ddp_act_t)(c % 4),
                                 .precision = precision};
        float           other;

        set_transposes(&args, c / 4 % 3);
        args.bias           = c / 12 % 2 ? &present : NULL;
        args.pre_activation = c / 24 % 2 ? &other : NULL;
        args.beta           = c % 5 == 0 ? 2.0F : 0.0F;
        args.add            = c % 7 < 3 ? &present : NULL;
        check_product(&bench, args, (size_t)(c % 3), (size_t)(c % 2));
    }
    bench_close(&bench);
}
END_TEST

START_TEST(without_a_sum_gemm_gives_beta_c_plus_bias)
{
    float           c[6]    = {1, 2, 3, 4, 5, 6};
    float           bias[2] = {10, -20};
    float           pre[6]  = {0};
    ddp_gemm_args_t args    = {.m              = 3,
                               .n              = 2,
                               .alpha          = 1.0F,
                               .beta           = 2.0F,
                               .c              = c,
                               .ldc            = 2,
                               .bias           = bias,
                               .act            = DDP_ACT_RELU,
                               .pre_activation = pre};
    ddp_precision_t precision;
    bench_t         bench;

    if (!open_mode(&bench, _i, &precision)) {
        return;
    }
    args.precision = precision;
    ddp_assert_ok(ddp_op_gemm(bench.stream, &args));
    ddp_assert_ok(ddp_stream_synchronize(bench.stream, -1));
    for (int i = 0; i < 3; i++) {
        ck_assert(c[2 * i] == 2.0F * (float)(2 * i + 1) + 10.0F && c[2 * i + 1] == 0.0F);
        ck_assert(pre[2 * i + 1] == 2.0F * (float)(2 * i + 2) - 20.0F);
    }
    args.m = 0;
    args.c = NULL;
    ddp_assert_ok(ddp_op_gemm(bench.stream, &args));
    ddp_assert_ok(ddp_stream_synchronize(bench.stream, -1));
    bench_close(&bench);
}
END_TEST

START_TEST(gemm_gives_the_same_bits_at_any_address_and_after_other_work)
{
    static const size_t shapes[][3] = {{64, 512, 784}, {100, 61, 300}, {7, 33, 512}, {300, 40, 17}};
    ddp_precision_t     precision;
    bench_t             bench;

    if (!open_mode(&bench, _i, &precision)) {
        return;
    }
    for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++) {
        for (int kind = 0; kind < 3; kind++) {
            ddp_gemm_args_t args = {.m         = shapes[s][0],
                                    .n         = shapes[s][1],
                                    .k         = shapes[s][2],
                                    .alpha     = 1.0F,
                                    .precision = precision};
            product_t       first;
            product_t       other;

            set_transposes(&args, kind);
            product_open(&first, args, 0, 0);
            ddp_assert_ok(ddp_op_gemm(bench.stream, &first.args));
            ddp_assert_ok(ddp_stream_synchronize(bench.stream, -1));
            for (size_t shift = 1; shift < 4; shift++) {
                product_open(&other, args, 3 * shift, shift);
                for (size_t i = 0; i < args.m; i++) { /* the same numbers in other places */
                    for (size_t l = 0; l < args.k; l++) {
                        other.a[kind == 1 ? l * other.args.lda + i : i * other.args.lda + l] =
                            first.a[kind == 1 ? l * first.args.lda + i : i * first.args.lda + l];
                    }
                }
                for (size_t j = 0; j < args.n; j++) {
                    for (size_t l = 0; l < args.k; l++) {
                        other.b[kind == 2 ? j * other.args.ldb + l : l * other.args.ldb + j] =
                            first.b[kind == 2 ? j * first.args.ldb + l : l * first.args.ldb + j];
                    }
                }
                ddp_assert_ok(ddp_op_gemm(bench.stream, &other.args));
                ddp_assert_ok(ddp_stream_synchronize(bench.stream, -1));
                for (size_t i = 0; i < args.m; i++) {
                    ck_assert_int_eq(memcmp(first.c + i * first.args.ldc, other.c + i * other.args.ldc,
                                            args.n * sizeof(float)),
                                     0);
                }
                product_close(&other);
            }
            product_close(&first);
        }
    }
    bench_close(&bench);
}
END_TEST

START_TEST(gemm_agrees_with_openblas)
{
    static const size_t shapes[][3] = {{64, 512, 784}, {512, 784, 64}, {128, 10, 512}, {333, 222, 111}};
    bench_t             bench;

    if (!bench_open(&bench, (ddp_isa_t)_i)) {
        return;
    }
    for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++) {
        for (int kind = 0; kind < 3; kind++) {
            ddp_gemm_args_t args = {
                .m = shapes[s][0], .n = shapes[s][1], .k = shapes[s][2], .alpha = 0.5F, .beta = -1.0F};
            double    worst = 0.0;
            product_t p;

            set_transposes(&args, kind);
            product_open(&p, args, 1, 0);
            ddp_assert_ok(ddp_op_gemm(bench.stream, &p.args));
            ddp_assert_ok(ddp_stream_synchronize(bench.stream, -1));
            cblas_sgemm(CblasRowMajor, kind == 1 ? CblasTrans : CblasNoTrans,
                        kind == 2 ? CblasTrans : CblasNoTrans, (int)args.m, (int)args.n, (int)args.k, 0.5F,
                        p.a, (int)p.args.lda, p.b, (int)p.args.ldb, -1.0F, p.c_before, (int)p.args.ldc);
            for (size_t i = 0; i < p.c_count; i++) {
                const double gap = fabs((double)p.c[i] - (double)p.c_before[i]);

                worst = gap > worst ? gap : worst;
            }
            /* both sides round; the sum of |products| is about k / 8 with alpha */
            ck_assert_double_le(worst, 2.0 * bound_of(args.k, (double)args.k / 8.0));
            product_close(&p);
        }
    }
    bench_close(&bench);
}
END_TEST

START_TEST(wrong_arguments_are_named_and_nothing_runs)
{
    float           x[16] = {0};
    ddp_gemm_args_t good  = {
         .m = 2, .n = 3, .k = 4, .alpha = 1.0F, .a = x, .lda = 4, .b = x, .ldb = 3, .c = x, .ldc = 3};
    ddp_gemm_args_t bad;
    bench_t         bench;

    ck_assert(bench_open(&bench, DDP_ISA_PLAIN));
    bad             = good;
    bad.transpose_a = bad.transpose_b = true;
    ddp_assert_fails(ddp_op_gemm(bench.stream, &bad), DDP_ERR_INVALID_ARG, "at most one");
    bad     = good;
    bad.lda = 3;
    ddp_assert_fails(ddp_op_gemm(bench.stream, &bad), DDP_ERR_INVALID_ARG,
                     "rows of A are 3 floats apart but 4");
    bad   = good;
    bad.b = NULL;
    ddp_assert_fails(ddp_op_gemm(bench.stream, &bad), DDP_ERR_INVALID_ARG, "no memory for B");
    bad     = good;
    bad.act = (ddp_act_t)17;
    ddp_assert_fails(ddp_op_gemm(bench.stream, &bad), DDP_ERR_INVALID_ARG, "no activation");
    bad           = good;
    bad.precision = (ddp_precision_t)4;
    ddp_assert_fails(ddp_op_gemm(bench.stream, &bad), DDP_ERR_INVALID_ARG, "no precision");
    for (int p = DDP_PRECISION_TF32; p <= DDP_PRECISION_FP16; p++) {
        bad.precision = (ddp_precision_t)p;
        ddp_assert_fails(ddp_op_gemm(bench.stream, &bad), DDP_ERR_UNSUPPORTED, "float32 or bf16 only");
    }
    bad   = good;
    bad.m = SIZE_MAX / 4;
    ddp_assert_fails(ddp_op_gemm(bench.stream, &bad), DDP_ERR_INVALID_ARG, "gemm");
    ddp_assert_fails(ddp_op_gemm(NULL, &good), DDP_ERR_INVALID_ARG, "no stream");
    ddp_assert_ok(ddp_stream_synchronize(bench.stream, 0));
    bench_close(&bench);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gemm");
    TCase *tcase = tcase_create("all sets and precisions");

    tcase_add_loop_test(tcase, gemm_equals_the_plain_loop_for_every_size_and_transpose, 0, MODES);
    tcase_add_loop_test(tcase, gemm_is_right_where_blocks_and_parts_of_k_end, 0, MODES);
    tcase_add_loop_test(tcase, epilogue_adds_the_bias_applies_the_activation_and_keeps_what_it_was_applied_to,
                        0, MODES);
    tcase_add_loop_test(tcase, without_a_sum_gemm_gives_beta_c_plus_bias, 0, MODES);
    tcase_add_loop_test(tcase, gemm_gives_the_same_bits_at_any_address_and_after_other_work, 0, MODES);
    tcase_add_loop_test(tcase, gemm_agrees_with_openblas, 0, 3);
    tcase_add_test(tcase, wrong_arguments_are_named_and_nothing_runs);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
