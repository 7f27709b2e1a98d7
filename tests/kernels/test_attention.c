#include "kernels/ops_seq.h"
#include "tests/kernels/kernel_fixture.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

typedef struct sizes {
    size_t sequences, length, heads, width;
} sizes_t;

static const sizes_t cases[] = {{1, 1, 1, 8},   {3, 5, 2, 16},   {1, 64, 1, 32}, {2, 65, 3, 64},
                                {1, 130, 2, 8}, {1, 300, 1, 20}, {2, 7, 1, 1},   {1, 257, 2, 33}};

/* What the weight of (i, j) is multiplied by: ops_seq.h, in the order of numbers that dropout has too. */
static double kept(const ddp_attention_args_t *args, size_t sequence, size_t h, size_t i, size_t j)
{
    const uint64_t row        = args->first_row + sequence;
    const uint32_t stream[4]  = {(uint32_t)args->key.step, (uint32_t)(args->key.step >> 32), args->key.layer,
                                 4};
    const uint32_t counter[4] = {(uint32_t)(j / 64 * 16 + j % 16), (uint32_t)i, (uint32_t)row,
                                 (uint32_t)(row >> 32) + (uint32_t)(h << 16)};
    uint32_t       random[4];

    if (args->dropout == 0.0F) {
        return 1.0;
    }
    ddp_philox(args->key.seed, stream, random);
    ddp_philox((uint64_t)random[1] << 32 | random[0], counter, random);
    return random[j % 64 / 16] * 0x1p-32 >= (double)args->dropout ? 1.0 / (1.0 - (double)args->dropout) : 0.0;
}

/* The definition in float64. */
static void attention(const sizes_t *s, const ddp_attention_args_t *args, const double *qkv, double *y,
                      double *log_sum)
{
    const size_t c = s->heads * s->width;
    double      *p = malloc(s->length * sizeof(*p));

    for (size_t at = 0; at < s->sequences * s->heads * s->length; at++) {
        const size_t  i     = at % s->length;
        const size_t  h     = at / s->length % s->heads;
        const size_t  first = at / s->length / s->heads * s->length;
        const double *q     = qkv + (first + i) * 3 * c + h * s->width;
        double       *to    = y + (first + i) * c + h * s->width;
        double        sum   = 0.0;

        memset(to, 0, s->width * sizeof(*to));
        for (size_t j = 0; j <= i; j++) {
            const double *k     = qkv + (first + j) * 3 * c + c + h * s->width;
            double        score = 0.0;

            for (size_t d = 0; d < s->width; d++) {
                score += q[d] * k[d];
            }
            p[j] = exp(score / sqrt((double)s->width));
            sum += p[j];
        }
        for (size_t j = 0; j <= i; j++) {
            const double *v = qkv + (first + j) * 3 * c + 2 * c + h * s->width;

            p[j] *= kept(args, at / s->length / s->heads, h, i, j) / sum;
            for (size_t d = 0; d < s->width; d++) {
                to[d] += p[j] * v[d];
            }
        }
        log_sum[at] = log(sum);
    }
    free(p);
}

/* One case: buffers of the kernel, and the same in float64. */
typedef struct run {
    sizes_t s;
    size_t  rows, c;
    float  *qkv, *y, *log_sum, *dy, *dqkv;
    float   dropout;
    double *qkv64, *y64, *log_sum64;
} run_t;

static ddp_attention_args_t run_args(const run_t *r)
{
    return (ddp_attention_args_t){.qkv       = r->qkv,
                                  .sequences = r->s.sequences,
                                  .length    = r->s.length,
                                  .heads     = r->s.heads,
                                  .channels  = r->c,
                                  .y         = r->y,
                                  .log_sum   = r->log_sum,
                                  .dropout   = r->dropout,
                                  .first_row = ((uint64_t)1 << 32) - 1,
                                  .key       = {.seed = 9, .step = 4, .layer = 3}};
}

static void run_reference(run_t *r)
{
    const ddp_attention_args_t args = run_args(r);

    attention(&r->s, &args, r->qkv64, r->y64, r->log_sum64);
}

static void run_open(run_t *r, sizes_t s, float scale, float dropout)
{
    r->s         = s;
    r->dropout   = dropout;
    r->rows      = s.sequences * s.length;
    r->c         = s.heads * s.width;
    r->qkv       = fixture_random(r->rows * 3 * r->c, 1, scale);
    r->dy        = fixture_random(r->rows * r->c, 2, 1.0F);
    r->y         = fixture_new(r->rows * r->c);
    r->dqkv      = fixture_new(r->rows * 3 * r->c);
    r->log_sum   = fixture_new(s.heads * r->rows);
    r->qkv64     = malloc(r->rows * 3 * r->c * sizeof(double));
    r->y64       = malloc(r->rows * r->c * sizeof(double));
    r->log_sum64 = malloc(s.heads * r->rows * sizeof(double));
    for (size_t i = 0; i < r->rows * 3 * r->c; i++) {
        r->qkv64[i] = (double)r->qkv[i];
    }
    run_reference(r);
}

static void run_close(run_t *r)
{
    fixture_free(r->qkv);
    fixture_free(r->dy);
    fixture_free(r->y);
    fixture_free(r->dqkv);
    fixture_free(r->log_sum);
    free(r->qkv64);
    free(r->y64);
    free(r->log_sum64);
}

static double loss(run_t *r)
{
    double sum = 0.0;

    run_reference(r);
    for (size_t i = 0; i < r->rows * r->c; i++) {
        sum += r->y64[i] * (double)r->dy[i];
    }
    return sum;
}

/* Element i of the gradient by a central difference. */
static double gradient(run_t *r, size_t i)
{
    const double h    = 1e-5;
    const double kept = r->qkv64[i];
    double       wanted;

    r->qkv64[i] = kept + h;
    wanted      = loss(r);
    r->qkv64[i] = kept - h;
    wanted      = (wanted - loss(r)) / (2.0 * h);
    r->qkv64[i] = kept;
    return wanted;
}

static void check_cases(ddp_stream_t *stream, float dropout)
{
    for (size_t k = 0; k < COUNT(cases); k++) {
        run_t                         r;
        ddp_attention_backward_args_t back;
        size_t                        count;
        size_t                        stride;

        run_open(&r, cases[k], 1.5F, dropout);
        back = (ddp_attention_backward_args_t){.forward = run_args(&r), .dy = r.dy, .dqkv = r.dqkv};
        ddp_assert_ok(ddp_op_attention(stream, &back.forward));
        ddp_assert_ok(ddp_op_attention_backward(stream, &back));
        ddp_assert_ok(ddp_stream_synchronize(stream, -1));
        ck_assert_double_le(fixture_error(r.y, r.y64, r.rows * r.c, 1.0), 2e-6);
        ck_assert_double_le(fixture_error(r.log_sum, r.log_sum64, cases[k].heads * r.rows, 1.0), 1e-6);
        count  = r.rows * 3 * r.c;
        stride = count / 37 + 1;
        for (size_t i = k % stride; i < count; i += stride) {
            const double wanted = gradient(&r, i);
            const double error  = fabs((double)r.dqkv[i] - wanted);

            ck_assert_msg(error <= 5e-6 * (1.0 + fabs(wanted)), "case %zu, element %zu: %g, not %g", k, i,
                          (double)r.dqkv[i], wanted);
        }
        run_close(&r);
    }
}

START_TEST(attention_equals_its_definition_and_finite_differences)
{
    ddp_stream_t *stream = fixture_open(_i);

    check_cases(stream, 0.0F);
    check_cases(stream, 0.3F);
    fixture_close(stream);
}
END_TEST

/* One mask: q = 0 makes all weights of row i 1 / (i + 1), and v = 1 shows each of them in a column of y. */
START_TEST(weights_are_kept_with_their_probability_and_independently)
{
    const size_t         n      = 128;
    const float          p      = 0.2F;
    ddp_stream_t        *stream = fixture_open(_i);
    run_t                r;
    ddp_attention_args_t args;
    double               sum = 0.0, square = 0.0, count = 0.0;
    size_t               same[4] = {0}; /* as the next key, row, head and sequence has it */

    run_open(&r, (sizes_t){2, n, 2, n}, 0.0F, p);
    for (size_t i = 0; i < 2 * n; i++) {
        r.qkv[i * 6 * n + 4 * n + i % n] = r.qkv[i * 6 * n + 5 * n + i % n] = 1.0F;
    }
    args = run_args(&r);
    ddp_assert_ok(ddp_op_attention(stream, &args));
    ddp_assert_ok(ddp_stream_synchronize(stream, -1));
    for (size_t at = 0; at < 4 * n * n; at++) {
        const size_t i = at / (2 * n) % n, j = at % n;
        const double keep   = (double)r.y[at] * (double)(i + 1);
        const size_t next[] = {1, 2 * n, n, 2 * n * n};

        ck_assert(j <= i || r.y[at] == 0.0F);
        if (j >= i || i + 1 == n) {
            continue;
        }
        sum += keep;
        square += keep * keep;
        count += 1.0;
        for (size_t k = 0; k < 4; k++) { /* behind the last sequence comes the first */
            same[k] += (r.y[at] == 0.0F) == (r.y[(at + next[k]) % (4 * n * n)] == 0.0F);
        }
    }
    /* Each is 1 / (1 - p) with probability 1 - p: mean 1, variance p / (1 - p); five standard errors. */
    ck_assert_double_eq_tol(sum / count, 1.0, 5.0 * sqrt(0.25 / count));
    ck_assert_double_eq_tol(square / count, 1.25, 5.0 * sqrt(1.5625 * 0.25 / count));
    for (size_t k = 0; k < 4; k++) { /* both kept or both dropped: 0.68; a pair may count twice */
        ck_assert_double_eq_tol((double)same[k] / count, 0.68, 5.0 * sqrt(0.68 * 0.32 / count * 2.0));
    }
    run_close(&r);
    fixture_close(stream);
}
END_TEST

/* The same numbers however the batch is cut. */
START_TEST(pieces_of_a_batch_drop_what_the_whole_batch_drops)
{
    ddp_stream_t                 *stream = fixture_open(_i);
    run_t                         r;
    ddp_attention_backward_args_t back;
    float                        *y, *dqkv;
    size_t                        count;

    run_open(&r, (sizes_t){3, 70, 2, 8}, 1.0F, 0.1F);
    count = r.rows * r.c;
    y     = fixture_new(count);
    dqkv  = fixture_new(3 * count);
    back  = (ddp_attention_backward_args_t){.forward = run_args(&r), .dy = r.dy, .dqkv = dqkv};

    back.forward.y = y;
    ddp_assert_ok(ddp_op_attention(stream, &back.forward));
    ddp_assert_ok(ddp_op_attention_backward(stream, &back));
    for (size_t i = 0; i < 3; i++) {
        const size_t at = i * count / 3;

        back = (ddp_attention_backward_args_t){
            .forward = run_args(&r), .dy = r.dy + at, .dqkv = r.dqkv + 3 * at};
        back.forward.sequences = 1;
        back.forward.first_row += i;
        back.forward.qkv += 3 * at;
        back.forward.y += at;
        ddp_assert_ok(ddp_op_attention(stream, &back.forward));
        ddp_assert_ok(ddp_op_attention_backward(stream, &back));
    }
    ddp_assert_ok(ddp_stream_synchronize(stream, -1));
    ck_assert_mem_eq(r.y, y, count * sizeof(float));
    ck_assert_mem_eq(r.dqkv, dqkv, 3 * count * sizeof(float));
    fixture_free(y);
    fixture_free(dqkv);
    run_close(&r);
    fixture_close(stream);
}
END_TEST

START_TEST(a_gradient_that_accumulates_is_added)
{
    ddp_stream_t                 *stream = fixture_open(_i);
    run_t                         r;
    ddp_attention_backward_args_t back;
    float                        *once;
    size_t                        count;

    run_open(&r, (sizes_t){2, 65, 2, 8}, 1.0F, 0.0F);
    count = r.rows * 3 * r.c;
    once  = fixture_new(count);
    back  = (ddp_attention_backward_args_t){.forward = run_args(&r), .dy = r.dy, .dqkv = once};
    ddp_assert_ok(ddp_op_attention(stream, &back.forward));
    ddp_assert_ok(ddp_op_attention_backward(stream, &back));
    ddp_assert_ok(ddp_op_fill(stream, r.dqkv, count, 2.0F));
    back.dqkv       = r.dqkv;
    back.accumulate = true;
    ddp_assert_ok(ddp_op_attention_backward(stream, &back));
    ddp_assert_ok(ddp_stream_synchronize(stream, -1));
    for (size_t i = 0; i < count; i++) {
        ck_assert_float_le(fabsf(r.dqkv[i] - 2.0F - once[i]), 2e-6F * (1.0F + fabsf(once[i])));
    }
    fixture_free(once);
    run_close(&r);
    fixture_close(stream);
}
END_TEST

/* A later tile has the larger scores: what earlier ones left must be put on the new maximum. */
START_TEST(scores_that_grow_from_tile_to_tile_do_not_overflow)
{
    ddp_stream_t        *stream = fixture_open(_i);
    const size_t         length = 600;
    run_t                r;
    ddp_attention_args_t args;

    run_open(&r, (sizes_t){1, length, 1, 8}, 0.25F, 0.0F);
    for (size_t i = 0; i < length; i++) {
        r.qkv[i * 24]     = 10.0F;
        r.qkv[i * 24 + 8] = 0.1F * (float)i; /* scores of up to 212 */
    }
    for (size_t i = 0; i < length * 24; i++) {
        r.qkv64[i] = (double)r.qkv[i];
    }
    run_reference(&r);
    args = run_args(&r);
    ddp_assert_ok(ddp_op_attention(stream, &args));
    ddp_assert_ok(ddp_stream_synchronize(stream, -1));
    ck_assert_double_le(fixture_error(r.log_sum, r.log_sum64, length, 1.0), 1e-6);
    ck_assert_double_le(fixture_error(r.y, r.y64, length * 8, 0.01), 5e-3); /* of scores of 200: 1e-5 each */
    run_close(&r);
    fixture_close(stream);
}
END_TEST

START_TEST(later_rows_do_not_matter_and_a_nan_is_seen)
{
    ddp_stream_t        *stream = fixture_open(_i);
    const size_t         at     = 70; /* in the second block */
    run_t                r;
    ddp_attention_args_t args;
    float               *whole;

    run_open(&r, (sizes_t){1, 130, 1, 16}, 1.0F, 0.0F);
    whole = fixture_new(r.rows * r.c);
    args  = run_args(&r);
    ddp_assert_ok(ddp_op_attention(stream, &args));
    ddp_assert_ok(ddp_stream_copy(stream, whole, r.y, r.rows * r.c * sizeof(float)));
    r.qkv[at * 48 + 16] = NAN; /* a key */
    ddp_assert_ok(ddp_op_attention(stream, &args));
    ddp_assert_ok(ddp_stream_synchronize(stream, -1));
    ck_assert_mem_eq(r.y, whole, at * 16 * sizeof(float));
    for (size_t i = at * 16; i < 130 * 16; i++) {
        ck_assert(isnan(r.y[i]));
    }
    fixture_free(whole);
    run_close(&r);
    fixture_close(stream);
}
END_TEST

START_TEST(heads_that_do_not_divide_the_channels_are_an_invalid_arg)
{
    ddp_stream_t        *stream = fixture_open(_i);
    float                x[3]   = {0};
    ddp_attention_args_t args   = {.qkv = x, .y = x, .sequences = 1, .length = 1, .heads = 2, .channels = 3};

    ddp_assert_fails(ddp_op_attention(stream, &args), DDP_ERR_INVALID_ARG,
                     "3 channels do not divide into 2 heads");
    args.heads = 0;
    ddp_assert_fails(ddp_op_attention(stream, &args), DDP_ERR_INVALID_ARG, "0 heads");
    args.heads = 1;
    args.qkv   = NULL;
    ddp_assert_fails(ddp_op_attention(stream, &args), DDP_ERR_INVALID_ARG, "no memory for qkv");
    args.dropout = 1.0F;
    ddp_assert_fails(ddp_op_attention(stream, &args), DDP_ERR_INVALID_ARG, "dropout 1 is not in [0, 1)");
    args.dropout = 0.5F;
    args.length  = 0;
    ddp_assert_ok(ddp_op_attention(stream, &args));
    fixture_close(stream);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("attention");
    TCase *tcase = tcase_create("each instruction set");

    tcase_add_loop_test(tcase, attention_equals_its_definition_and_finite_differences, 0, fixture_isas());
    tcase_add_loop_test(tcase, weights_are_kept_with_their_probability_and_independently, 0, fixture_isas());
    tcase_add_loop_test(tcase, pieces_of_a_batch_drop_what_the_whole_batch_drops, 0, fixture_isas());
    tcase_add_loop_test(tcase, a_gradient_that_accumulates_is_added, 0, fixture_isas());
    tcase_add_loop_test(tcase, scores_that_grow_from_tile_to_tile_do_not_overflow, 0, fixture_isas());
    tcase_add_loop_test(tcase, later_rows_do_not_matter_and_a_nan_is_seen, 0, fixture_isas());
    tcase_add_loop_test(tcase, heads_that_do_not_divide_the_channels_are_an_invalid_arg, 0, fixture_isas());
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
