#include "tests/kernels/kernel_fixture.h"

static const size_t class_counts[] = {1, 2, 3, 10, 15, 16, 17, 33, 100, 257, 1000, 1025, 2500};
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define ROWS         9
#define IGNORED      (-100)

/* -weight * log softmax(x)[label] by its definition, in float64 */
static double entropy(const double *x, size_t classes, size_t label, double weight)
{
    double largest = -INFINITY;
    double sum     = 0.0;

    for (size_t j = 0; j < classes; j++) {
        largest = fmax(largest, x[j]);
    }
    for (size_t j = 0; j < classes; j++) {
        sum += exp(x[j] - largest);
    }
    return weight * (log(sum) + largest - x[label]);
}

typedef struct batch {
    size_t           classes;
    float           *logits;
    float           *weights;
    int32_t          labels[ROWS];
    ddp_loss_stats_t stats;
} batch_t;

static void batch_make(batch_t *b, size_t classes, float scale)
{
    uint64_t state = classes;

    b->classes = classes;
    b->logits  = fixture_random(ROWS * classes, (uint32_t)classes, scale);
    b->weights = fixture_random(ROWS, 77, 1.0F);
    for (size_t i = 0; i < ROWS; i++) {
        b->labels[i]  = (int32_t)(fixture_next(&state) * (double)classes);
        b->weights[i] = fabsf(b->weights[i]) + 0.25F;
    }
    b->labels[2] = IGNORED;
    b->labels[8] = IGNORED;
}

static void batch_free(batch_t *b)
{
    fixture_free(b->logits);
    fixture_free(b->weights);
}

static ddp_cross_entropy_args_t batch_args(batch_t *b, float *dlogits)
{
    return (ddp_cross_entropy_args_t){.logits       = b->logits,
                                      .labels       = b->labels,
                                      .weights      = b->weights,
                                      .rows         = ROWS,
                                      .classes      = b->classes,
                                      .ignore_index = IGNORED,
                                      .dlogits      = dlogits,
                                      .stats        = &b->stats};
}

static void check_stats(const batch_t *b)
{
    double  loss    = 0.0;
    double  weight  = 0.0;
    double  correct = 0.0;
    double *row     = malloc(b->classes * sizeof(*row));

    for (size_t i = 0; i < ROWS; i++) {
        size_t best = 0;

        if (b->labels[i] == IGNORED) {
            continue;
        }
        for (size_t j = 0; j < b->classes; j++) {
            row[j] = (double)b->logits[i * b->classes + j];
            best   = row[j] > row[best] ? j : best;
        }
        loss += entropy(row, b->classes, (size_t)b->labels[i], (double)b->weights[i]);
        weight += (double)b->weights[i];
        correct += best == (size_t)b->labels[i] ? 1.0 : 0.0;
    }
    ck_assert_double_le(fixture_error(&b->stats.loss, &loss, 1, 1e-3), 1e-6);
    ck_assert_double_le(fixture_error(&b->stats.weight, &weight, 1, 0.0), 1e-7);
    ck_assert_double_eq((double)b->stats.correct, correct);
    ck_assert_double_eq((double)b->stats.counted, ROWS - 2);
    free(row);
}

/* Gradient by central differences of the float64 definition. */
static double *batch_gradient(const batch_t *b)
{
    const double h      = 1e-5;
    double      *wanted = calloc(ROWS * b->classes, sizeof(*wanted));
    double      *row    = malloc(b->classes * sizeof(*row));

    for (size_t i = 0; i < ROWS; i++) {
        for (size_t j = 0; j < b->classes && b->labels[i] != IGNORED; j++) {
            double *to = &wanted[i * b->classes + j];

            for (size_t c = 0; c < b->classes; c++) {
                row[c] = (double)b->logits[i * b->classes + c];
            }
            row[j] += h;
            *to = entropy(row, b->classes, (size_t)b->labels[i], (double)b->weights[i]);
            row[j] -= 2.0 * h;
            *to -= entropy(row, b->classes, (size_t)b->labels[i], (double)b->weights[i]);
            *to /= 2.0 * h;
        }
    }
    free(row);
    return wanted;
}

START_TEST(cross_entropy_equals_its_definition_and_finite_differences)
{
    ddp_stream_t *stream = fixture_open(_i);

    for (size_t k = 0; k < COUNT(class_counts); k++) {
        batch_t                  b;
        float                   *dlogits = fixture_new(ROWS * class_counts[k]);
        ddp_cross_entropy_args_t args;
        ddp_loss_stats_t         first;
        double                  *wanted;

        batch_make(&b, class_counts[k], 4.0F);
        wanted = batch_gradient(&b);
        args   = batch_args(&b, dlogits);
        ddp_assert_ok(ddp_op_cross_entropy(stream, &args));
        ddp_assert_ok(ddp_stream_synchronize(stream, -1));
        check_stats(&b);
        ck_assert_double_le(fixture_error(dlogits, wanted, ROWS * b.classes, 1.0), 5e-7);
        first = b.stats;
        /* without a gradient, and in place: the same bits */
        args.dlogits = NULL;
        ddp_assert_ok(ddp_op_cross_entropy(stream, &args));
        ddp_assert_ok(ddp_stream_synchronize(stream, -1));
        ck_assert_mem_eq(&first, &b.stats, sizeof(first));
        args.dlogits = b.logits;
        ddp_assert_ok(ddp_op_cross_entropy(stream, &args));
        ddp_assert_ok(ddp_stream_synchronize(stream, -1));
        ck_assert_mem_eq(&first, &b.stats, sizeof(first));
        ck_assert_mem_eq(dlogits, b.logits, ROWS * b.classes * sizeof(*dlogits));
        batch_free(&b);
        fixture_free(dlogits);
        free(wanted);
    }
    fixture_close(stream);
}
END_TEST

/* With logits 0 and -t the second gradient is exp(-t) / (1 + exp(-t)): the exponential itself. */
START_TEST(softmax_keeps_its_relative_accuracy)
{
    const size_t                   rows    = 8600;
    ddp_stream_t                  *stream  = fixture_open(_i);
    float                         *logits  = fixture_new(2 * rows);
    float                         *dlogits = fixture_new(2 * rows);
    int32_t                       *labels  = calloc(rows, sizeof(*labels));
    double                         worst   = 0.0;
    ddp_loss_stats_t               stats;
    const ddp_cross_entropy_args_t args = {.logits       = logits,
                                           .labels       = labels,
                                           .rows         = rows,
                                           .classes      = 2,
                                           .ignore_index = -1,
                                           .dlogits      = dlogits,
                                           .stats        = &stats};

    for (size_t i = 0; i < rows; i++) {
        logits[2 * i]     = 0.0F;
        logits[2 * i + 1] = -0.01F * (float)i;
    }
    ddp_assert_ok(ddp_op_cross_entropy(stream, &args));
    ddp_assert_ok(ddp_stream_synchronize(stream, -1));
    for (size_t i = 0; i < rows; i++) {
        const double e = exp((double)logits[2 * i + 1]);

        worst = fmax(worst, fabs((double)dlogits[2 * i + 1] * (1.0 + e) / e - 1.0));
    }
    /* 1.5 ulp of the exponential, one each of the sum, the factor and the product */
    ck_assert_double_le(worst, 3e-7);
    fixture_free(logits);
    fixture_free(dlogits);
    free(labels);
    fixture_close(stream);
}
END_TEST

START_TEST(cross_entropy_of_large_logits_does_not_overflow)
{
    ddp_stream_t            *stream  = fixture_open(_i);
    float                   *dlogits = fixture_new(ROWS * 10);
    batch_t                  b;
    ddp_cross_entropy_args_t args;

    batch_make(&b, 10, 1e4F);
    args = batch_args(&b, dlogits);
    ddp_assert_ok(ddp_op_cross_entropy(stream, &args));
    ddp_assert_ok(ddp_stream_synchronize(stream, -1));
    check_stats(&b);
    for (size_t j = 0; j < ROWS * 10; j++) {
        ck_assert(isfinite(dlogits[j]));
    }
    batch_free(&b);
    fixture_free(dlogits);
    fixture_close(stream);
}
END_TEST

START_TEST(not_finite_logits_give_a_not_finite_loss)
{
    static const float bad[]  = {NAN, INFINITY, -NAN};
    ddp_stream_t      *stream = fixture_open(_i);

    for (size_t k = 0; k < COUNT(class_counts) * COUNT(bad); k++) {
        const size_t             classes = class_counts[k / COUNT(bad)];
        float                   *dlogits = fixture_new(ROWS * classes);
        batch_t                  b;
        ddp_cross_entropy_args_t args;

        batch_make(&b, classes, 1.0F);
        b.logits[3 * classes + (k * 31) % classes] = bad[k % COUNT(bad)];
        args                                       = batch_args(&b, dlogits);
        ddp_assert_ok(ddp_op_cross_entropy(stream, &args));
        ddp_assert_ok(ddp_stream_synchronize(stream, -1));
        ck_assert(!isfinite(b.stats.loss));
        ck_assert(isnan(dlogits[3 * classes]));
        ck_assert(isfinite(dlogits[4 * classes]));
        batch_free(&b);
        fixture_free(dlogits);
    }
    fixture_close(stream);
}
END_TEST

START_TEST(a_class_ruled_out_by_minus_infinity_has_probability_zero)
{
    ddp_stream_t            *stream   = fixture_open(_i);
    float                    logits[] = {-INFINITY, 1.0F, 1.0F};
    float                    dlogits[3];
    int32_t                  label = 1;
    ddp_loss_stats_t         stats;
    ddp_cross_entropy_args_t args = {.logits       = logits,
                                     .labels       = &label,
                                     .rows         = 1,
                                     .classes      = 3,
                                     .dlogits      = dlogits,
                                     .stats        = &stats,
                                     .ignore_index = -1};

    ddp_assert_ok(ddp_op_cross_entropy(stream, &args));
    ddp_assert_ok(ddp_stream_synchronize(stream, -1));
    ck_assert_double_eq_tol((double)stats.loss, log(2.0), 1e-7);
    ck_assert_double_eq_tol((double)dlogits[0], 0.0, 1e-30);
    ck_assert_double_eq_tol((double)dlogits[1], -0.5, 1e-7);
    label = 0;
    ddp_assert_ok(ddp_op_cross_entropy(stream, &args));
    ddp_assert_ok(ddp_stream_synchronize(stream, -1));
    ck_assert(isinf(stats.loss));
    fixture_close(stream);
}
END_TEST

START_TEST(of_equal_largest_logits_the_first_counts_as_the_answer)
{
    ddp_stream_t            *stream = fixture_open(_i);
    float                    logits[40];
    int32_t                  labels[] = {18, 19};
    ddp_loss_stats_t         stats;
    ddp_cross_entropy_args_t args = {
        .logits = logits, .labels = labels, .rows = 2, .classes = 20, .stats = &stats, .ignore_index = -1};

    for (size_t j = 0; j < 40; j++) {
        logits[j] = j % 20 >= 18 ? 1.0F : 0.0F;
    }
    ddp_assert_ok(ddp_op_cross_entropy(stream, &args));
    ddp_assert_ok(ddp_stream_synchronize(stream, -1));
    ck_assert_double_eq((double)stats.correct, 1.0);
    fixture_close(stream);
}
END_TEST

START_TEST(a_label_out_of_range_is_named_with_its_row)
{
    static const int32_t     wrong[] = {10, -1, INT32_MAX, INT32_MIN};
    float                   *dlogits = fixture_new(ROWS * 10);
    batch_t                  b;
    ddp_cross_entropy_args_t args;

    batch_make(&b, 10, 1.0F);
    args = batch_args(&b, dlogits);
    for (size_t k = 0; k < COUNT(wrong); k++) {
        ddp_stream_t *stream = fixture_open(_i);
        ddp_device_t *device = ddp_stream_device(stream);
        ddp_status_t  status;
        char          text[64];

        b.labels[5] = wrong[k];
        snprintf(text, sizeof(text), "label of row 5 is %d", (int)wrong[k]);
        status = ddp_op_cross_entropy(stream, &args);
        if (status == DDP_OK) {
            status = ddp_stream_synchronize(stream, -1);
        }
        ddp_assert_fails(status, DDP_ERR_INVALID_ARG, text);
        ck_assert(isnan(dlogits[0]));
        ddp_stream_destroy(&stream);
        ddp_device_destroy(&device);
    }
    batch_free(&b);
    fixture_free(dlogits);
}
END_TEST

START_TEST(no_rows_give_sums_of_zero)
{
    static const ddp_loss_stats_t zero   = {0};
    ddp_stream_t                 *stream = fixture_open(_i);
    float                         x[4]   = {0};
    int32_t                       label  = 0;
    ddp_loss_stats_t              stats  = {NAN, NAN, NAN, NAN};

    ddp_assert_ok(ddp_op_cross_entropy(
        stream, &(ddp_cross_entropy_args_t){
                    .logits = x, .labels = &label, .rows = 0, .classes = 4, .stats = &stats}));
    ddp_assert_ok(ddp_stream_synchronize(stream, -1));
    ck_assert_mem_eq(&stats, &zero, sizeof(zero));
    stats.loss = NAN;
    ddp_assert_ok(
        ddp_op_mse(stream, &(ddp_mse_args_t){.y = x, .target = x, .rows = 0, .width = 4, .stats = &stats}));
    ddp_assert_ok(ddp_stream_synchronize(stream, -1));
    ck_assert_mem_eq(&stats, &zero, sizeof(zero));
    fixture_close(stream);
}
END_TEST

START_TEST(mean_squared_error_equals_its_definition)
{
    ddp_stream_t *stream = fixture_open(_i);

    for (size_t k = 0; k < COUNT(class_counts); k++) {
        const size_t     width   = class_counts[k];
        float           *y       = fixture_random(ROWS * width, 1, 1.0F);
        float           *target  = fixture_random(ROWS * width, 2, 1.0F);
        float           *weights = fixture_random(ROWS, 3, 1.0F);
        float           *dy      = fixture_new(ROWS * width);
        double          *wanted  = malloc(ROWS * width * sizeof(*wanted));
        double           loss    = 0.0;
        double           weight  = 0.0;
        ddp_loss_stats_t stats;
        ddp_loss_stats_t again;
        ddp_mse_args_t   args = {.y       = y,
                                 .target  = target,
                                 .weights = weights,
                                 .rows    = ROWS,
                                 .width   = width,
                                 .dy      = dy,
                                 .stats   = &stats};

        for (size_t i = 0; i < ROWS; i++) {
            weights[i] = fabsf(weights[i]);
            weight += (double)weights[i];
        }
        for (size_t i = 0; i < ROWS * width; i++) {
            const double share = (double)weights[i / width] / (double)width;
            const double d     = (double)y[i] - (double)target[i];

            loss += share * d * d;
            wanted[i] = 2.0 * share * d; /* the derivative of a square */
        }
        ddp_assert_ok(ddp_op_mse(stream, &args));
        ddp_assert_ok(ddp_stream_synchronize(stream, -1));
        ck_assert_double_le(fixture_error(&stats.loss, &loss, 1, 0.0), 1e-6);
        ck_assert_double_le(fixture_error(&stats.weight, &weight, 1, 0.0), 1e-7);
        ck_assert_double_eq((double)stats.counted, ROWS);
        ck_assert_double_eq((double)stats.correct, 0.0);
        ck_assert_double_le(fixture_error(dy, wanted, ROWS * width, 1e-3), 1e-6);
        args.dy    = NULL;
        args.stats = &again;
        ddp_assert_ok(ddp_op_mse(stream, &args));
        ddp_assert_ok(ddp_stream_synchronize(stream, -1));
        ck_assert_mem_eq(&stats, &again, sizeof(again));
        fixture_free(y);
        fixture_free(target);
        fixture_free(weights);
        fixture_free(dy);
        free(wanted);
    }
    fixture_close(stream);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("loss");
    TCase *tcase = tcase_create("each instruction set");

    tcase_add_loop_test(tcase, cross_entropy_equals_its_definition_and_finite_differences, 0, fixture_isas());
    tcase_add_loop_test(tcase, softmax_keeps_its_relative_accuracy, 0, fixture_isas());
    tcase_add_loop_test(tcase, cross_entropy_of_large_logits_does_not_overflow, 0, fixture_isas());
    tcase_add_loop_test(tcase, not_finite_logits_give_a_not_finite_loss, 0, fixture_isas());
    tcase_add_loop_test(tcase, a_class_ruled_out_by_minus_infinity_has_probability_zero, 0, fixture_isas());
    tcase_add_loop_test(tcase, of_equal_largest_logits_the_first_counts_as_the_answer, 0, fixture_isas());
    tcase_add_loop_test(tcase, a_label_out_of_range_is_named_with_its_row, 0, fixture_isas());
    tcase_add_loop_test(tcase, no_rows_give_sums_of_zero, 0, fixture_isas());
    tcase_add_loop_test(tcase, mean_squared_error_equals_its_definition, 0, fixture_isas());
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
