#include "kernels/ops_seq.h"
#include "tests/kernels/kernel_fixture.h"

typedef struct sizes {
    size_t sequences, length, heads, width;
} sizes_t;

static const sizes_t cases[] = {{1, 1, 1, 8},  {2, 5, 2, 16}, {1, 64, 1, 32}, {2, 65, 3, 64},
                                {1, 90, 2, 3}, {2, 7, 1, 1},  {1, 33, 2, 33}, {1, 20, 1, 200}};
#define N_CASES (sizeof(cases) / sizeof(cases[0]))

/* Row i of one head, as kernels/ops_seq.h defines it, in float64; qkv is that of its sequence. */
static void define(const sizes_t *size, const float *qkv, size_t i, size_t h, double *y)
{
    const size_t c   = size->heads * size->width;
    const float *q   = qkv + i * 3 * c + h * size->width;
    double       sum = 0.0;

    memset(y, 0, size->width * sizeof(*y));
    for (size_t j = 0; j <= i; j++) {
        const float *k     = qkv + j * 3 * c + c + h * size->width;
        double       score = 0.0;

        for (size_t d = 0; d < size->width; d++) {
            score += (double)q[d] * (double)k[d];
        }
        score = exp(score / sqrt((double)size->width));
        sum += score;
        for (size_t d = 0; d < size->width; d++) {
            y[d] += score * (double)k[c + d];
        }
    }
    for (size_t d = 0; d < size->width; d++) {
        y[d] /= sum;
    }
}

typedef struct run {
    sizes_t size;
    size_t  c, capacity;
    float  *all; /* [sequences, length, 3 c] */
    float  *keys, *values;
} run_t;

static void run_open(run_t *run, sizes_t size)
{
    run->size     = size;
    run->c        = size.heads * size.width;
    run->capacity = size.length + 3;
    run->all      = fixture_random(size.sequences * size.length * 3 * run->c, 1, 1.5F);
    run->keys     = fixture_new(size.sequences * run->capacity * run->c);
    run->values   = fixture_new(size.sequences * run->capacity * run->c);
}

static void run_close(run_t *run)
{
    fixture_free(run->all);
    fixture_free(run->keys);
    fixture_free(run->values);
}

static ddp_attention_cached_args_t args_of(const run_t *run, const float *qkv, float *y, size_t past,
                                           size_t n)
{
    return (ddp_attention_cached_args_t){.qkv       = qkv,
                                         .sequences = run->size.sequences,
                                         .length    = n,
                                         .heads     = run->size.heads,
                                         .channels  = run->c,
                                         .past      = past,
                                         .capacity  = run->capacity,
                                         .keys      = run->keys,
                                         .values    = run->values,
                                         .y         = y};
}

/* Rows past .. past + n - 1 of every sequence, side by side. */
static float *part_of(const run_t *run, size_t past, size_t n)
{
    const size_t row  = 3 * run->c;
    float       *part = fixture_new(run->size.sequences * n * row);

    for (size_t s = 0; s < run->size.sequences; s++) {
        memcpy(part + s * n * row, run->all + (s * run->size.length + past) * row, n * row * sizeof(float));
    }
    return part;
}

static void check_part(const run_t *run, ddp_stream_t *stream, size_t past, size_t n)
{
    const size_t                count = run->size.sequences * n * run->c;
    float                      *part  = part_of(run, past, n);
    float                      *y     = fixture_new(count);
    double                      wanted[256];
    ddp_attention_cached_args_t args = args_of(run, part, y, past, n);

    ddp_assert_ok(ddp_op_attention_cached(stream, &args));
    ddp_assert_ok(ddp_stream_synchronize(stream, -1));
    for (size_t at = 0; at < run->size.sequences * n * run->size.heads; at++) {
        const size_t h = at % run->size.heads;
        const size_t t = at / run->size.heads % n;
        const size_t s = at / run->size.heads / n;

        define(&run->size, run->all + s * run->size.length * 3 * run->c, past + t, h, wanted);
        ck_assert_double_le(
            fixture_error(y + (s * n + t) * run->c + h * run->size.width, wanted, run->size.width, 1.0),
            2e-6);
    }
    fixture_free(y);
    fixture_free(part);
}

START_TEST(rows_in_any_parts_equal_the_definition)
{
    ddp_stream_t *stream = fixture_open(_i);

    for (size_t k = 0; k < N_CASES; k++) {
        run_t run;

        run_open(&run, cases[k]);
        for (size_t past = 0, n = 1; past < cases[k].length; past += n, n = n * 2 + 1) {
            n = n < cases[k].length - past ? n : cases[k].length - past;
            check_part(&run, stream, past, n);
        }
        run_close(&run);
    }
    fixture_close(stream);
}
END_TEST

START_TEST(what_is_kept_is_what_came_and_nothing_else)
{
    ddp_stream_t               *stream = fixture_open(_i);
    run_t                       run;
    float                      *part;
    ddp_attention_cached_args_t args;

    run_open(&run, (sizes_t){2, 6, 2, 5});
    part = part_of(&run, 2, 3);
    args = args_of(&run, part, NULL, 2, 3);
    ddp_assert_ok(ddp_op_attention_keep(stream, &args));
    ddp_assert_ok(ddp_stream_synchronize(stream, -1));
    for (size_t i = 0; i < 2 * run.capacity * run.c; i++) {
        const size_t t   = i / run.c % run.capacity;
        const float *row = run.all + (i / run.c / run.capacity * 6 + t) * 3 * run.c + i % run.c;

        if (t >= 2 && t < 5) {
            ck_assert(run.keys[i] == row[run.c] && run.values[i] == row[2 * run.c]);
        } else {
            ck_assert(isnan(run.keys[i]) && isnan(run.values[i])); /* as fixture_new() made them */
        }
    }
    fixture_free(part);
    run_close(&run);
    fixture_close(stream);
}
END_TEST

START_TEST(what_is_not_finite_stays_visible)
{
    static const float bad[]  = {NAN, INFINITY, -INFINITY};
    ddp_stream_t      *stream = fixture_open(_i);

    for (size_t k = 0; k < 2; k++) {
        run_t                       run;
        float                       y[10];
        ddp_attention_cached_args_t args;

        run_open(&run, (sizes_t){1, 2, 2, 5});
        run.all[3 * run.c]         = 1.0F;   /* the query of row 1 in head 0 */
        run.all[3 * run.c + run.c] = bad[k]; /* and its key */
        args                       = args_of(&run, run.all, y, 0, 1);
        ddp_assert_ok(ddp_op_attention_cached(stream, &args));
        args = args_of(&run, run.all + 3 * run.c, y, 1, 1);
        ddp_assert_ok(ddp_op_attention_cached(stream, &args));
        ddp_assert_ok(ddp_stream_synchronize(stream, -1));
        for (size_t i = 0; i < 10; i++) {
            ck_assert(i < 5 ? isnan(y[i]) : isfinite(y[i]));
        }
        run_close(&run);
    }
    fixture_close(stream);
}
END_TEST

START_TEST(arguments_that_will_not_do_are_refused)
{
    ddp_stream_t               *stream = fixture_open(_i);
    run_t                       run;
    float                       y[64];
    ddp_attention_cached_args_t args, other;

    run_open(&run, (sizes_t){1, 4, 2, 5});
    args  = args_of(&run, run.all, y, 4, 4); /* capacity 7 */
    other = args;
    ddp_assert_fails(ddp_op_attention_cached(stream, &other), DDP_ERR_INVALID_ARG,
                     "4 new rows behind 4, but room for 7");
    ddp_assert_fails(ddp_op_attention_keep(stream, &other), DDP_ERR_INVALID_ARG, "room for 7");
    other.past = (size_t)-2;
    ddp_assert_fails(ddp_op_attention_cached(stream, &other), DDP_ERR_INVALID_ARG, "room for 7");
    args.past   = 0;
    other       = args;
    other.heads = 3;
    ddp_assert_fails(ddp_op_attention_cached(stream, &other), DDP_ERR_INVALID_ARG,
                     "do not divide into 3 heads");
    other      = args;
    other.keys = NULL;
    ddp_assert_fails(ddp_op_attention_cached(stream, &other), DDP_ERR_INVALID_ARG, "keys");
    other   = args;
    other.y = NULL;
    ddp_assert_fails(ddp_op_attention_cached(stream, &other), DDP_ERR_INVALID_ARG, "y");
    other        = args;
    other.length = 0;
    other.y      = NULL;
    ddp_assert_ok(ddp_op_attention_cached(stream, &other));
    run_close(&run);
    fixture_close(stream);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("attention_cached");
    TCase *tcase = tcase_create("all");

    tcase_add_loop_test(tcase, rows_in_any_parts_equal_the_definition, 0, fixture_isas());
    tcase_add_loop_test(tcase, what_is_kept_is_what_came_and_nothing_else, 0, fixture_isas());
    tcase_add_loop_test(tcase, what_is_not_finite_stays_visible, 0, fixture_isas());
    tcase_add_loop_test(tcase, arguments_that_will_not_do_are_refused, 0, 1);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
