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
    r->args = (ddp_head_cross_entropy_args_t){.x            = r->x,
                                              .w            = r->w,
                                              .rows         = s.rows,
                                              .width        = s.width,
                                              .vocab        = s.vocab,
                                              .labels       = r->labels,
                                              .weights      = r->weights,
                                              .ignore_index = IGNORED,
                                              .stats        = &r->stats,
                                              .dx           = r->dx,
                                              .dw           = r->dw};
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
        r.args.dx      = NULL;
        r.args.dw      = NULL;
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
    r.args.dx = NULL;
    r.args.dw = NULL;
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
    r.args.accumulate_dw = true;
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
    r.args.rows = 0;
    ddp_assert_ok(ddp_op_head_cross_entropy(stream, &r.args));
    ddp_assert_ok(ddp_stream_synchronize(stream, -1));
    ck_assert_double_eq((double)r.stats.loss + (double)r.stats.weight, 0.0);
    ck_assert_double_eq((double)r.dw[60 * 8 + 7], 0.0);
    r.args.rows = 5;
    r.labels[4] = 61;
    status      = ddp_op_head_cross_entropy(stream, &r.args);
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
    tcase_add_loop_test(tcase, kernels_keep_the_scratch_that_they_tell, 0, fixture_isas());
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
