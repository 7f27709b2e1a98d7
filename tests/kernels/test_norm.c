/* Layer normalisation, embedding, and normal numbers. */
#include "kernels/ops_seq.h"
#include "tests/kernels/kernel_fixture.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define EPS          1e-5

static const size_t row_counts[] = {0, 1, 5, 130};
static const size_t widths[]     = {1, 8, 33, 256, 300};

/* sum of dy * layer_norm(x) for one row, in float64; y too if it is not NULL */
static double norm_row(const double *x, size_t n, const float *gamma, const float *beta, const float *dy,
                       double *y)
{
    double mean     = 0.0;
    double variance = 0.0;
    double loss     = 0.0;

    for (size_t j = 0; j < n; j++) {
        mean += x[j] / (double)n;
    }
    for (size_t j = 0; j < n; j++) {
        variance += (x[j] - mean) * (x[j] - mean) / (double)n;
    }
    for (size_t j = 0; j < n; j++) {
        const double h  = (x[j] - mean) / sqrt(variance + EPS);
        const double at = h * (double)gamma[j] + (double)beta[j];

        loss += at * (double)dy[j];
        if (y != NULL) {
            y[j] = at;
        }
    }
    return loss;
}

typedef struct norm {
    size_t  rows, width;
    float  *x, *dy, *gamma, *beta, *y, *mean, *rstd, *dx, *dgamma, *dbeta;
    double *y64, *dx64, *dgamma64, *dbeta64;
} norm_t;

/* What is wanted: y and its column sums by the definition, dx by central differences. */
static void norm_wanted(norm_t *m)
{
    const double h   = 1e-4;
    double      *row = malloc(m->width * sizeof(*row));

    for (size_t i = 0; i < m->rows; i++) {
        const float *dy = m->dy + i * m->width;
        double      *y  = m->y64 + i * m->width;

        for (size_t j = 0; j < m->width; j++) {
            row[j] = (double)m->x[i * m->width + j];
        }
        norm_row(row, m->width, m->gamma, m->beta, dy, y);
        for (size_t j = 0; j < m->width; j++) {
            const double kept = row[j];

            m->dbeta64[j] += (double)dy[j];
            m->dgamma64[j] += (double)dy[j] * (y[j] - (double)m->beta[j]) / (double)m->gamma[j];
            row[j]                    = kept + h;
            m->dx64[i * m->width + j] = norm_row(row, m->width, m->gamma, m->beta, dy, NULL) / (2.0 * h);
            row[j]                    = kept - h;
            m->dx64[i * m->width + j] -= norm_row(row, m->width, m->gamma, m->beta, dy, NULL) / (2.0 * h);
            row[j] = kept;
        }
    }
    free(row);
}

static void norm_open(norm_t *m, size_t rows, size_t width)
{
    const size_t count = rows * width;

    *m = (norm_t){.rows     = rows,
                  .width    = width,
                  .x        = fixture_random(count, 1, 2.0F),
                  .dy       = fixture_random(count, 2, 1.0F),
                  .gamma    = fixture_random(width, 3, 0.5F),
                  .beta     = fixture_random(width, 4, 1.0F),
                  .y        = fixture_new(count),
                  .mean     = fixture_new(rows),
                  .rstd     = fixture_new(rows),
                  .dx       = fixture_new(count),
                  .dgamma   = fixture_new(width),
                  .dbeta    = fixture_new(width),
                  .y64      = calloc(count + 1, sizeof(double)),
                  .dx64     = calloc(count + 1, sizeof(double)),
                  .dgamma64 = calloc(width, sizeof(double)),
                  .dbeta64  = calloc(width, sizeof(double))};
    for (size_t j = 0; j < width; j++) {
        m->gamma[j] += 1.0F;
    }
    for (size_t i = 0; i < count; i++) {
        m->x[i] += 3.0F; /* a mean that is not 0 */
    }
    norm_wanted(m);
}

static void norm_close(norm_t *m)
{
    float *const buffers[] = {m->x,    m->dy,   m->gamma, m->beta,   m->y,
                              m->mean, m->rstd, m->dx,    m->dgamma, m->dbeta};

    for (size_t i = 0; i < COUNT(buffers); i++) {
        fixture_free(buffers[i]);
    }
    free(m->y64);
    free(m->dx64);
    free(m->dgamma64);
    free(m->dbeta64);
}

static void norm_run(const norm_t *m, ddp_stream_t *stream, bool accumulate)
{
    const ddp_layer_norm_args_t          forward  = {.x     = m->x,
                                                     .rows  = m->rows,
                                                     .width = m->width,
                                                     .gamma = m->gamma,
                                                     .beta  = m->beta,
                                                     .eps   = (float)EPS,
                                                     .y     = m->y,
                                                     .mean  = m->mean,
                                                     .rstd  = m->rstd};
    const ddp_layer_norm_backward_args_t backward = {.x                 = m->x,
                                                     .dy                = m->dy,
                                                     .rows              = m->rows,
                                                     .width             = m->width,
                                                     .gamma             = m->gamma,
                                                     .mean              = m->mean,
                                                     .rstd              = m->rstd,
                                                     .dx                = m->dx,
                                                     .dgamma            = m->dgamma,
                                                     .dbeta             = m->dbeta,
                                                     .accumulate_dx     = accumulate,
                                                     .accumulate_dgamma = accumulate,
                                                     .accumulate_dbeta  = accumulate};

    ddp_assert_ok(ddp_op_layer_norm(stream, &forward));
    ddp_assert_ok(ddp_op_layer_norm_backward(stream, &backward));
    ddp_assert_ok(ddp_stream_synchronize(stream, -1));
}

static void add(double *to, size_t count, double value)
{
    for (size_t i = 0; i < count; i++) {
        to[i] += value;
    }
}

START_TEST(layer_norm_equals_its_definition_and_finite_differences)
{
    ddp_stream_t *stream = fixture_open(_i);

    for (size_t k = 0; k < COUNT(row_counts) * COUNT(widths); k++) {
        const size_t rows  = row_counts[k / COUNT(widths)];
        const size_t width = widths[k % COUNT(widths)];
        const size_t count = rows * width;
        norm_t       m;

        norm_open(&m, rows, width);
        norm_run(&m, stream, false);
        ck_assert_double_le(fixture_error(m.y, m.y64, count, 1.0), 2e-6);
        ck_assert_double_le(fixture_error(m.dx, m.dx64, count, 1.0), width == 1 ? 1e-4 : 4e-6);
        ck_assert_double_le(fixture_error(m.dgamma, m.dgamma64, width, 1.0), 4e-6);
        ck_assert_double_le(fixture_error(m.dbeta, m.dbeta64, width, 1.0), 2e-6);
        ddp_assert_ok(ddp_op_fill(stream, m.dx, count, 2.0F));
        ddp_assert_ok(ddp_op_fill(stream, m.dgamma, width, 2.0F));
        ddp_assert_ok(ddp_op_fill(stream, m.dbeta, width, 2.0F));
        norm_run(&m, stream, true);
        add(m.dx64, count, 2.0);
        add(m.dgamma64, width, 2.0);
        add(m.dbeta64, width, 2.0);
        ck_assert_double_le(fixture_error(m.dx, m.dx64, count, 1.0), width == 1 ? 1e-4 : 4e-6);
        ck_assert_double_le(fixture_error(m.dgamma, m.dgamma64, width, 1.0), 4e-6);
        ck_assert_double_le(fixture_error(m.dbeta, m.dbeta64, width, 1.0), 2e-6);
        norm_close(&m);
    }
    fixture_close(stream);
}
END_TEST

#define TOKENS 10
#define VOCAB  7

/* Small whole numbers: every sum is exact. */
START_TEST(embedding_and_its_gradient_are_exact)
{
    static const int32_t tokens[TOKENS] = {3, 0, 3, 6, 3, 1, 1, 0, 3, 6};
    static const size_t  wide[]         = {1, 5, 16, 35};
    ddp_stream_t        *stream         = fixture_open(_i);

    for (size_t k = 0; k < 2 * COUNT(wide); k++) {
        const size_t width      = wide[k / 2];
        const bool   accumulate = k % 2 == 1;
        float       *table      = fixture_new(VOCAB * width);
        float       *positions  = fixture_new(5 * width);
        float       *y          = fixture_new(TOKENS * width);
        float       *dtable     = fixture_new(VOCAB * width);
        float       *dpositions = fixture_new(6 * width);

        for (size_t i = 0; i < VOCAB * width; i++) {
            table[i] = (float)i;
        }
        for (size_t i = 0; i < 5 * width; i++) {
            positions[i] = 1000.0F * (float)(i / width);
        }
        ddp_assert_ok(ddp_op_embedding(
            stream, &(ddp_embedding_args_t){tokens, 2, 5, VOCAB, width, table, positions, y}));
        if (accumulate) {
            ddp_assert_ok(ddp_op_fill(stream, dtable, VOCAB * width, 0.5F));
            ddp_assert_ok(ddp_op_fill(stream, dpositions, 6 * width, 0.5F));
        }
        ddp_assert_ok(ddp_op_embedding_backward(
            stream, &(ddp_embedding_backward_args_t){tokens, 2, 5, VOCAB, width, 6, y, dtable, dpositions,
                                                     accumulate, accumulate}));
        ddp_assert_ok(ddp_stream_synchronize(stream, -1));
        for (size_t j = 0; j < width; j++) {
            for (size_t i = 0; i < TOKENS; i++) {
                ck_assert_float_eq(y[i * width + j], (float)((size_t)tokens[i] * width + j + 1000 * (i % 5)));
            }
            for (size_t v = 0; v < VOCAB; v++) {
                float wanted = accumulate ? 0.5F : 0.0F;

                for (size_t i = 0; i < TOKENS; i++) {
                    wanted += tokens[i] == (int32_t)v ? y[i * width + j] : 0.0F;
                }
                ck_assert_float_eq(dtable[v * width + j], wanted);
            }
            for (size_t t = 0; t < 6; t++) {
                ck_assert_float_eq(dpositions[t * width + j],
                                   (accumulate ? 0.5F : 0.0F) +
                                       (t < 5 ? y[t * width + j] + y[(t + 5) * width + j] : 0.0F));
            }
        }
        fixture_free(table);
        fixture_free(positions);
        fixture_free(y);
        fixture_free(dtable);
        fixture_free(dpositions);
    }
    fixture_close(stream);
}
END_TEST

START_TEST(a_token_beyond_the_vocabulary_is_named)
{
    static const int32_t wrong[] = {VOCAB, -1};

    for (size_t k = 0; k < COUNT(wrong); k++) {
        ddp_stream_t        *stream    = fixture_open(_i);
        ddp_device_t        *device    = ddp_stream_device(stream);
        const int32_t        tokens[3] = {0, 1, wrong[k]};
        float                x[VOCAB]  = {0};
        float                y[3];
        ddp_embedding_args_t args   = {tokens, 1, 3, VOCAB, 1, x, NULL, y};
        ddp_status_t         status = ddp_op_embedding(stream, &args);
        char                 text[64];

        snprintf(text, sizeof(text), "token 2 is %d: the vocabulary ends at 6", (int)wrong[k]);
        if (status == DDP_OK) {
            status = ddp_stream_synchronize(stream, -1);
        }
        ddp_assert_fails(status, DDP_ERR_INVALID_ARG, text);
        ddp_stream_destroy(&stream);
        ddp_device_destroy(&device);
    }
}
END_TEST

START_TEST(arguments_that_do_not_fit_are_invalid)
{
    static const int32_t  tokens[2] = {0, 0};
    ddp_stream_t         *stream    = fixture_open(_i);
    float                 x[4]      = {0};
    ddp_layer_norm_args_t norm      = {.x = x, .rows = 1, .gamma = x, .beta = x, .y = x};

    ddp_assert_fails(ddp_op_layer_norm(stream, &norm), DDP_ERR_INVALID_ARG, "rows have no elements");
    norm.width = 2;
    norm.mean  = x;
    ddp_assert_fails(ddp_op_layer_norm(stream, &norm), DDP_ERR_INVALID_ARG, "mean and rstd");
    ddp_assert_fails(
        ddp_op_embedding_backward(
            stream, &(ddp_embedding_backward_args_t){tokens, 1, 2, 1, 1, 1, x, NULL, x, false, false}),
        DDP_ERR_INVALID_ARG, "sequences of 2 tokens, but 1 positions");
    ddp_assert_fails(ddp_op_normal(stream, &(ddp_normal_args_t){.y = x, .count = 1, .std = -1.0F}),
                     DDP_ERR_INVALID_ARG, "below 0");
    fixture_close(stream);
}
END_TEST

#define NUMBERS ((size_t)100003)

static int by_value(const void *a, const void *b)
{
    const float x = *(const float *)a;
    const float y = *(const float *)b;

    return (x > y) - (x < y);
}

START_TEST(normal_numbers_are_normal)
{
    ddp_stream_t     *stream  = fixture_open(_i);
    float            *x       = fixture_new(NUMBERS);
    float            *part    = fixture_new(77);
    ddp_normal_args_t args    = {.y = x, .count = NUMBERS, .std = 0.02F, .key = {.seed = 5, .layer = 2}};
    double            mean    = 0.0;
    double            worst   = 0.0;
    double            product = 0.0;

    ddp_assert_ok(ddp_op_normal(stream, &args));
    args.y     = part;
    args.count = 77;
    ddp_assert_ok(ddp_op_normal(stream, &args));
    ddp_assert_ok(ddp_stream_synchronize(stream, -1));
    ck_assert_mem_eq(part, x, 77 * sizeof(float));
    for (size_t i = 0; i < NUMBERS; i++) {
        mean += (double)x[i] / (double)NUMBERS;
        product += i + 16 < NUMBERS ? (double)x[i] * (double)x[i + 16] / (4e-4 * (double)NUMBERS) : 0.0;
    }
    ck_assert_double_le(fabs(mean), 4.0 * 0.02 / sqrt((double)NUMBERS));
    ck_assert_double_le(fabs(product), 4.0 / sqrt((double)NUMBERS)); /* the two of a pair are unrelated */
    qsort(x, NUMBERS, sizeof(float), by_value);
    for (size_t i = 0; i < NUMBERS; i++) {
        const double wanted = 0.5 * erfc(-(double)x[i] / 0.02 / sqrt(2.0));

        worst = fmax(worst, fabs(wanted - ((double)i + 0.5) / (double)NUMBERS));
    }
    /* Kolmogorov and Smirnov: above 1.95 / sqrt(n) once in a thousand */
    ck_assert_double_le(worst, 1.95 / sqrt((double)NUMBERS));
    fixture_free(x);
    fixture_free(part);
    fixture_close(stream);
}
END_TEST

/* The first numbers by the formula in float64, from the key that the stream of (seed, step, layer, 3) has. */
START_TEST(normal_numbers_are_those_of_box_and_muller)
{
    ddp_stream_t  *stream     = fixture_open(_i);
    const uint32_t counter[4] = {9, 1, 4, 3}; /* low and high half of the step, layer, use */
    float         *x          = fixture_new(64);
    uint32_t       random[4];
    uint64_t       key;

    ddp_assert_ok(ddp_op_normal(
        stream, &(ddp_normal_args_t){x, 64, 1.0F, {.seed = 8, .step = (UINT64_C(1) << 32) + 9, .layer = 4}}));
    ddp_assert_ok(ddp_stream_synchronize(stream, -1));
    ddp_philox(8, counter, random);
    key = (uint64_t)random[1] << 32 | random[0];
    for (uint32_t i = 0; i < 16; i++) {
        const uint32_t at[4] = {i, 0, 0, 0};

        ddp_philox(key, at, random);
        for (size_t pair = 0; pair < 2; pair++) {
            const double u     = ((double)(random[2 * pair] >> 8) + 0.5) * 0x1p-24;
            const double r     = sqrt(-2.0 * log(u));
            const double angle = ((double)(random[2 * pair + 1] >> 8) * 0x1p-24 - 0.125) * 2.0 * acos(-1.0);

            ck_assert_double_le(fabs((double)x[32 * pair + i] - r * cos(angle)), 1e-6);
            ck_assert_double_le(fabs((double)x[32 * pair + 16 + i] - r * sin(angle)), 1e-6);
        }
    }
    fixture_free(x);
    fixture_close(stream);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("norm");
    TCase *tcase = tcase_create("each instruction set");

    tcase_add_loop_test(tcase, layer_norm_equals_its_definition_and_finite_differences, 0, fixture_isas());
    tcase_add_loop_test(tcase, embedding_and_its_gradient_are_exact, 0, fixture_isas());
    tcase_add_loop_test(tcase, a_token_beyond_the_vocabulary_is_named, 0, fixture_isas());
    tcase_add_loop_test(tcase, arguments_that_do_not_fit_are_invalid, 0, fixture_isas());
    tcase_add_loop_test(tcase, normal_numbers_are_normal, 0, fixture_isas());
    tcase_add_loop_test(tcase, normal_numbers_are_those_of_box_and_muller, 0, fixture_isas());
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
