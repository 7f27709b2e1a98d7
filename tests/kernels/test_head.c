/* The head that never holds all its logits: against the plain product followed by the plain cross-entropy. */
#include "kernels/cpu/scratch.h"
#include "kernels/ops_seq.h"
#include "tests/kernels/kernel_fixture.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define IGNORED      (-1)

typedef struct sizes {
    size_t rows, width, vocab;
} sizes_t;

/* More rows than one part, more words than one block, and neither. */
static const sizes_t cases[] = {{1, 1, 1},      {5, 8, 61},    {65, 32, 1024},
                                {300, 16, 257}, {3, 20, 2100}, {257, 5, 1025}};

typedef struct run {
    sizes_t                       s;
    float                        *x, *w, *weights, *dx, *dw;
    double                       *dx64, *dw64;
    int32_t                      *labels;
    double                        loss, weight, correct, counted;
    ddp_loss_stats_t              stats;
    ddp_head_cross_entropy_args_t args;
} run_t;

static double logit(const run_t *r, size_t i, size_t v)
{
    double sum = 0.0;

    for (size_t j = 0; j < r->s.width; j++) {
        sum += (double)r->x[i * r->s.width + j] * (double)r->w[v * r->s.width + j];
    }
    return sum;
}

/* Row i of the definition, and its gradients, in float64. */
static void definition_row(run_t *r, size_t i, double *p)
{
    const size_t width  = r->s.width;
    const size_t label  = (size_t)r->labels[i];
    const double weight = (double)r->weights[i];
    double       sum    = 0.0;
    size_t       best   = 0;

    for (size_t v = 0; v < r->s.vocab; v++) {
        p[v] = logit(r, i, v);
        best = p[v] > p[best] ? v : best;
    }
    r->loss -= weight * p[label];
    for (size_t v = 0; v < r->s.vocab; v++) {
        p[v] = exp(p[v]);
        sum += p[v];
    }
    r->loss += weight * log(sum);
    r->weight += weight;
    r->counted += 1.0;
    r->correct += best == label ? 1.0 : 0.0;
    for (size_t v = 0; v < r->s.vocab; v++) {
        const double d = weight * (p[v] / sum - (v == label ? 1.0 : 0.0));

        for (size_t j = 0; j < width; j++) {
            r->dx64[i * width + j] += d * (double)r->w[v * width + j];
            r->dw64[v * width + j] += d * (double)r->x[i * width + j];
        }
    }
}

static void run_open(run_t *r, sizes_t s)
{
    uint64_t state = s.vocab + 1;
    double  *p     = malloc(s.vocab * sizeof(*p));

    memset(r, 0, sizeof(*r));
    r->s       = s;
    r->x       = fixture_random(s.rows * s.width, 1, 1.0F);
    r->w       = fixture_random(s.vocab * s.width, 2, 1.0F);
    r->weights = fixture_random(s.rows, 3, 1.0F);
    r->dx      = fixture_new(s.rows * s.width);
    r->dw      = fixture_new(s.vocab * s.width);
    r->dx64    = calloc(s.rows * s.width, sizeof(double));
    r->dw64    = calloc(s.vocab * s.width, sizeof(double));
    r->labels  = malloc(s.rows * sizeof(int32_t));
    for (size_t i = 0; i < s.rows; i++) {
        r->labels[i]  = i % 7 == 3 ? IGNORED : (int32_t)(fixture_next(&state) * (double)s.vocab);
        r->weights[i] = fabsf(r->weights[i]) + 0.25F;
        if (i % 7 == 4) { /* some answers are right */
            for (size_t v = 0; v < s.vocab; v++) {
                r->labels[i] = logit(r, i, v) > logit(r, i, (size_t)r->labels[i]) ? (int32_t)v : r->labels[i];
            }
        }
        if (r->labels[i] != IGNORED) {
            definition_row(r, i, p);
        }
    }
    r->args = (ddp_head_cross_entropy_args_t){.head         = {.x     = r->x,
                                                               .w     = r->w,
                                                               .rows  = s.rows,
                                                               .width = s.width,
                                                               .vocab = s.vocab,
                                                               .dx    = r->dx,
                                                               .dw    = r->dw},
                                              .labels       = r->labels,
                                              .weights      = r->weights,
                                              .ignore_index = IGNORED,
                                              .stats        = &r->stats};
    free(p);
}

static void run_close(run_t *r)
{
    fixture_free(r->x);
    fixture_free(r->w);
    fixture_free(r->weights);
    fixture_free(r->dx);
    fixture_free(r->dw);
    free(r->dx64);
    free(r->dw64);
    free(r->labels);
}

START_TEST(head_and_loss_equal_their_definition)
{
    ddp_stream_t *stream = fixture_open(_i);

    for (size_t k = 0; k < COUNT(cases); k++) {
        run_t            r;
        ddp_loss_stats_t with_gradients;

        run_open(&r, cases[k]);
        ddp_assert_ok(ddp_op_head_cross_entropy(stream, &r.args));
        ddp_assert_ok(ddp_stream_synchronize(stream, -1));
        ck_assert_double_le(fixture_error(&r.stats.loss, &r.loss, 1, 1e-2), 1e-6);
        ck_assert_double_le(fixture_error(&r.stats.weight, &r.weight, 1, 0.0), 1e-7);
        ck_assert_double_eq((double)r.stats.correct, r.correct);
        ck_assert_double_eq((double)r.stats.counted, r.counted);
        ck_assert_double_le(fixture_error(r.dx, r.dx64, cases[k].rows * cases[k].width, 1.0), 2e-6);
        ck_assert_double_le(fixture_error(r.dw, r.dw64, cases[k].vocab * cases[k].width, 1.0), 4e-6);

        with_gradients = r.stats;
        r.args.head.dx = NULL;
        r.args.head.dw = NULL;
        ddp_assert_ok(ddp_op_head_cross_entropy(stream, &r.args));
        ddp_assert_ok(ddp_stream_synchronize(stream, -1));
        ck_assert_mem_eq(&r.stats, &with_gradients, sizeof(r.stats));
        run_close(&r);
    }
    fixture_close(stream);
}
END_TEST

/* One gradient by central differences of the loss that the kernel itself gives. */
START_TEST(the_definition_of_the_test_has_the_gradient_of_its_loss)
{
    ddp_stream_t *stream = fixture_open(_i);
    const float   h      = 0x1p-8F;
    run_t         r;

    run_open(&r, (sizes_t){9, 8, 61});
    r.args.head.dx = NULL;
    r.args.head.dw = NULL;
    for (size_t i = 0; i < 9 * 8; i += 5) {
        const float kept = r.x[i];
        double      difference;

        r.x[i] = kept + h;
        ddp_assert_ok(ddp_op_head_cross_entropy(stream, &r.args));
        ddp_assert_ok(ddp_stream_synchronize(stream, -1));
        difference = (double)r.stats.loss;
        r.x[i]     = kept - h;
        ddp_assert_ok(ddp_op_head_cross_entropy(stream, &r.args));
        ddp_assert_ok(ddp_stream_synchronize(stream, -1));
        difference = (difference - (double)r.stats.loss) / (2.0 * (double)h);
        r.x[i]     = kept;
        ck_assert_double_le(fabs(difference - r.dx64[i]), 2e-3); /* float32 losses of about 30 */
    }
    run_close(&r);
    fixture_close(stream);
}
END_TEST

START_TEST(a_weight_gradient_that_accumulates_is_added)
{
    ddp_stream_t *stream = fixture_open(_i);
    run_t         r;

    run_open(&r, (sizes_t){300, 8, 61});
    ddp_assert_ok(ddp_op_fill(stream, r.dw, 61 * 8, 3.0F));
    r.args.head.accumulate_dw = true;
    ddp_assert_ok(ddp_op_head_cross_entropy(stream, &r.args));
    ddp_assert_ok(ddp_stream_synchronize(stream, -1));
    for (size_t i = 0; i < 61 * 8; i++) {
        ck_assert_double_le(fabs((double)r.dw[i] - 3.0 - r.dw64[i]), 1e-5);
    }
    run_close(&r);
    fixture_close(stream);
}
END_TEST

START_TEST(of_equal_largest_logits_the_first_is_the_answer_across_blocks)
{
    ddp_stream_t *stream   = fixture_open(_i);
    const size_t  vocab    = 2100;
    const size_t  equal[2] = {5, 2050};
    run_t         r;

    run_open(&r, (sizes_t){1, 4, vocab});
    memset(r.w, 0, vocab * 4 * sizeof(float));
    for (size_t k = 0; k < 2; k++) {
        for (size_t j = 0; j < 4; j++) {
            r.w[equal[k] * 4 + j] = r.x[j];
        }
    }
    for (size_t k = 0; k < 2; k++) {
        r.labels[0] = (int32_t)equal[k];
        ddp_assert_ok(ddp_op_head_cross_entropy(stream, &r.args));
        ddp_assert_ok(ddp_stream_synchronize(stream, -1));
        ck_assert_double_eq((double)r.stats.correct, k == 0 ? 1.0 : 0.0);
    }
    run_close(&r);
    fixture_close(stream);
}
END_TEST

START_TEST(logits_that_are_not_finite_give_a_loss_and_gradients_that_are_not)
{
    static const float bad[]  = {NAN, INFINITY, -INFINITY};
    ddp_stream_t      *stream = fixture_open(_i);

    for (size_t k = 0; k < COUNT(bad); k++) {
        run_t r;

        run_open(&r, (sizes_t){5, 8, 1100});
        r.x[2 * 8] = bad[k];
        ddp_assert_ok(ddp_op_head_cross_entropy(stream, &r.args));
        ddp_assert_ok(ddp_stream_synchronize(stream, -1));
        ck_assert(isnan(r.stats.loss));
        for (size_t i = 0; i < 5 * 8; i++) {
            ck_assert(isnan(r.dx[i]) == (i / 8 == 2));
        }
        run_close(&r);
    }
    fixture_close(stream);
}
END_TEST

START_TEST(a_label_beyond_the_vocabulary_is_named_and_no_rows_give_zero)
{
    ddp_stream_t *stream = fixture_open(_i);
    ddp_device_t *device = ddp_stream_device(stream);
    ddp_status_t  status;
    run_t         r;

    run_open(&r, (sizes_t){5, 8, 61});
    r.args.head.rows = 0;
    ddp_assert_ok(ddp_op_head_cross_entropy(stream, &r.args));
    ddp_assert_ok(ddp_stream_synchronize(stream, -1));
    ck_assert_double_eq((double)r.stats.loss + (double)r.stats.weight, 0.0);
    ck_assert_double_eq((double)r.dw[60 * 8 + 7], 0.0);
    r.args.head.rows = 5;
    r.labels[4]      = 61;
    status           = ddp_op_head_cross_entropy(stream, &r.args);
    if (status == DDP_OK) {
        status = ddp_stream_synchronize(stream, -1);
    }
    ddp_assert_fails(status, DDP_ERR_INVALID_ARG, "label of row 4 is 61");
    run_close(&r);
    ddp_stream_destroy(&stream);
    ddp_device_destroy(&device);
}
END_TEST

START_TEST(kernels_keep_the_scratch_that_they_tell)
{
    const float   one    = 1.0F;
    ddp_stream_t *stream = fixture_open(_i);
    ddp_device_t *device = ddp_stream_device(stream);
    float         y[2]   = {0};
    run_t         r;

    run_open(&r, (sizes_t){2, 3, 2100});
    ddp_assert_ok(ddp_op_gemm(stream, &(ddp_gemm_args_t){.m     = 2,
                                                         .n     = 1,
                                                         .k     = 1,
                                                         .alpha = 1.0F,
                                                         .a     = r.x,
                                                         .lda   = 1,
                                                         .b     = &one,
                                                         .ldb   = 1,
                                                         .c     = y,
                                                         .ldc   = 1}));
    ddp_assert_ok(ddp_stream_synchronize(stream, -1));
    ck_assert_uint_eq(ddp_cpu_scratch_held(device), ddp_kernel_scratch_bytes(device, 0));
    ddp_assert_ok(ddp_op_head_cross_entropy(stream, &r.args));
    ddp_assert_ok(ddp_stream_synchronize(stream, -1));
    ck_assert_uint_eq(ddp_cpu_scratch_held(device), ddp_kernel_scratch_bytes(device, 2100));
    ck_assert_uint_eq(ddp_device_memory(device).held, ddp_kernel_scratch_bytes(device, 2100));
    run_close(&r);
    fixture_close(stream);
}
END_TEST

/* More rows than two parts that do not divide, one row, no label but ignored ones, blocks of words. */
static const sizes_t apart_cases[] = {{1, 1, 1},     {5, 8, 61},      {255, 12, 61},  {257, 16, 1024},
                                      {513, 9, 257}, {300, 20, 2100}, {17, 33, 1025}, {0, 4, 10}};

/* Logits, loss and back, each on its own; the loss in place or not. */
static void run_apart(ddp_stream_t *stream, const run_t *r, bool in_place, float *dx, float *dw,
                      ddp_loss_stats_t *stats)
{
    const size_t             count   = r->s.rows * r->s.vocab;
    float                   *logits  = fixture_new(count);
    float                   *dlogits = in_place ? logits : fixture_new(count);
    ddp_head_logits_args_t   forward = {.head = r->args.head, .logits = logits};
    ddp_head_backward_args_t back    = {.head = r->args.head, .dlogits = dlogits};
    ddp_cross_entropy_args_t loss    = {.logits       = logits,
                                        .labels       = r->labels,
                                        .weights      = r->args.weights,
                                        .rows         = r->s.rows,
                                        .classes      = r->s.vocab,
                                        .ignore_index = IGNORED,
                                        .dlogits      = dlogits,
                                        .stats        = stats};

    back.head.dx = dx;
    back.head.dw = dw;
    ddp_assert_ok(ddp_op_head_logits(stream, &forward));
    ddp_assert_ok(ddp_op_cross_entropy(stream, &loss));
    ddp_assert_ok(ddp_op_head_backward(stream, &back));
    ddp_assert_ok(ddp_stream_synchronize(stream, -1));
    fixture_free(logits);
    if (!in_place) {
        fixture_free(dlogits);
    }
}

START_TEST(logits_loss_and_back_apart_have_the_bits_of_one_pass)
{
    ddp_stream_t *stream = fixture_open(_i);

    for (size_t k = 0; k < COUNT(apart_cases) * 4; k++) {
        const sizes_t    s = apart_cases[k / 4];
        run_t            r;
        float           *dx, *dw;
        ddp_loss_stats_t stats;

        run_open(&r, s);
        r.args.head.precision     = k % 2 == 0 ? DDP_PRECISION_FLOAT32 : DDP_PRECISION_BF16;
        r.args.head.accumulate_dw = k % 4 >= 2;
        r.args.weights            = k % 4 >= 2 ? NULL : r.weights;
        if (k / 4 == 1 && k % 4 == 3) {
            for (size_t i = 0; i < s.rows; i++) {
                r.labels[i] = IGNORED;
            }
        }
        dx = fixture_new(s.rows * s.width);
        dw = fixture_new(s.vocab * s.width);
        for (size_t i = 0; i < s.vocab * s.width; i++) {
            r.dw[i] = dw[i] = (float)i;
        }
        ddp_assert_ok(ddp_op_head_cross_entropy(stream, &r.args));
        ddp_assert_ok(ddp_stream_synchronize(stream, -1));
        run_apart(stream, &r, k % 3 == 0, dx, dw, &stats);
        ck_assert_mem_eq(&stats, &r.stats, sizeof(stats));
        ck_assert_mem_eq(dx, r.dx, s.rows * s.width * sizeof(float));
        ck_assert_mem_eq(dw, r.dw, s.vocab * s.width * sizeof(float));
        fixture_free(dx);
        fixture_free(dw);
        run_close(&r);
    }
    fixture_close(stream);
}
END_TEST

START_TEST(an_input_gradient_of_logits_from_elsewhere_may_be_added)
{
    ddp_stream_t            *stream  = fixture_open(_i);
    float                   *dlogits = fixture_random((size_t)300 * 61, 9, 1.0F);
    run_t                    r;
    ddp_head_backward_args_t back;

    run_open(&r, (sizes_t){300, 8, 61});
    back         = (ddp_head_backward_args_t){.head = r.args.head, .dlogits = dlogits};
    back.head.dw = NULL;
    ddp_assert_ok(ddp_op_fill(stream, r.dx, (size_t)300 * 8, 3.0F));
    back.head.accumulate_dx = true;
    ddp_assert_ok(ddp_op_head_backward(stream, &back));
    ddp_assert_ok(ddp_stream_synchronize(stream, -1));
    for (size_t i = 0; i < 300; i++) {
        for (size_t j = 0; j < 8; j++) {
            double sum = 3.0;

            for (size_t v = 0; v < 61; v++) {
                sum += (double)dlogits[i * 61 + v] * (double)r.w[v * 8 + j];
            }
            ck_assert_double_le(fabs((double)r.dx[i * 8 + j] - sum), 1e-5);
        }
    }
    run_close(&r);
    fixture_free(dlogits);
    fixture_close(stream);
}
END_TEST

START_TEST(heads_without_operands_are_refused)
{
    ddp_stream_t            *stream = fixture_open(_i);
    float                    x[4]   = {0};
    ddp_head_logits_args_t   a = {.head = {.x = x, .w = x, .rows = 1, .width = 2, .vocab = 2}, .logits = x};
    ddp_head_backward_args_t b = {.head = a.head};

    ddp_assert_fails(ddp_op_head_backward(stream, &b), DDP_ERR_INVALID_ARG,
                     "head backward: no memory for dlogits");
    a.logits = NULL;
    ddp_assert_fails(ddp_op_head_logits(stream, &a), DDP_ERR_INVALID_ARG,
                     "head logits: no memory for logits");
    a.head.w = NULL;
    ddp_assert_fails(ddp_op_head_logits(stream, &a), DDP_ERR_INVALID_ARG, "head logits: no memory for w");
    a.head.vocab = 0;
    ddp_assert_fails(ddp_op_head_logits(stream, &a), DDP_ERR_INVALID_ARG, "head logits: no words");
    fixture_close(stream);
}
END_TEST

/* A row that counts nothing says nothing, whatever its logits are. */
START_TEST(an_ignored_row_that_is_not_finite_gives_no_gradient)
{
    ddp_stream_t *stream = fixture_open(_i);
    run_t         r;

    run_open(&r, (sizes_t){5, 8, 1100});
    r.labels[2]    = IGNORED;
    r.x[2 * 8]     = NAN;
    r.args.head.dw = NULL;
    ddp_assert_ok(ddp_op_head_cross_entropy(stream, &r.args));
    ddp_assert_ok(ddp_stream_synchronize(stream, -1));
    ck_assert(isfinite(r.stats.loss));
    for (size_t i = 0; i < 5 * 8; i++) {
        ck_assert(i / 8 == 2 ? r.dx[i] == 0.0F : isfinite(r.dx[i]));
    }
    run_close(&r);
    fixture_close(stream);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("head");
    TCase *tcase = tcase_create("each instruction set");

    tcase_add_loop_test(tcase, head_and_loss_equal_their_definition, 0, fixture_isas());
    tcase_add_loop_test(tcase, the_definition_of_the_test_has_the_gradient_of_its_loss, 0, fixture_isas());
    tcase_add_loop_test(tcase, a_weight_gradient_that_accumulates_is_added, 0, fixture_isas());
    tcase_add_loop_test(tcase, of_equal_largest_logits_the_first_is_the_answer_across_blocks, 0,
                        fixture_isas());
    tcase_add_loop_test(tcase, logits_that_are_not_finite_give_a_loss_and_gradients_that_are_not, 0,
                        fixture_isas());
    tcase_add_loop_test(tcase, a_label_beyond_the_vocabulary_is_named_and_no_rows_give_zero, 0,
                        fixture_isas());
    tcase_add_loop_test(tcase, logits_loss_and_back_apart_have_the_bits_of_one_pass, 0, fixture_isas());
    tcase_add_loop_test(tcase, an_input_gradient_of_logits_from_elsewhere_may_be_added, 0, fixture_isas());
    tcase_add_loop_test(tcase, heads_without_operands_are_refused, 0, fixture_isas());
    tcase_add_loop_test(tcase, an_ignored_row_that_is_not_finite_gives_no_gradient, 0, fixture_isas());
    tcase_add_loop_test(tcase, kernels_keep_the_scratch_that_they_tell, 0, fixture_isas());
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
