/* Attention on the CUDA device by the plain kernels, against the cpu's. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/ops_seq.h"
#include "tests/cuda/both.h"
#include "tests/support/ddp_test.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof(*(array))))
/* Of the largest result, for sums of a few hundred float32 products. */
#define LIMIT 1e-5

typedef struct sizes {
    size_t sequences, length, heads, width;
} sizes_t;

static const sizes_t cases[] = {{1, 1, 1, 8},   {3, 5, 2, 16}, {1, 64, 1, 32}, {2, 65, 3, 64},
                                {1, 130, 2, 8}, {2, 7, 1, 1},  {1, 67, 2, 33}, {1, 20, 1, 70},
                                {1, 9, 2, 130}, {0, 8, 2, 8},  {2, 0, 2, 8}};

/* One case on both sides. */
typedef struct run {
    support_t s;
    sizes_t   z;
    both_t    qkv, y, log_sum, dy, dqkv;
} run_t;

static void run_open(run_t *r, const sizes_t *z, bool accumulate)
{
    const size_t rows = z->sequences * z->length;
    const size_t c    = z->heads * z->width;

    r->z = *z;
    support_open(&r->s);
    r->qkv     = both_floats(&r->s, rows * 3 * c, 1);
    r->y       = both_floats(&r->s, rows * c, 0);
    r->log_sum = both_floats(&r->s, rows * z->heads, 0);
    r->dy      = both_floats(&r->s, rows * c, 2);
    r->dqkv    = both_floats(&r->s, rows * 3 * c, accumulate ? 3 : 0);
}

static void run_close(run_t *r)
{
    both_free(&r->qkv), both_free(&r->y), both_free(&r->log_sum), both_free(&r->dy), both_free(&r->dqkv);
    support_close(&r->s);
}

static ddp_attention_args_t run_args(const run_t *r, int side, float dropout, ddp_precision_t precision)
{
    return (ddp_attention_args_t){.qkv       = r->qkv.at[side],
                                  .sequences = r->z.sequences,
                                  .length    = r->z.length,
                                  .heads     = r->z.heads,
                                  .channels  = r->z.heads * r->z.width,
                                  .y         = r->y.at[side],
                                  .log_sum   = r->log_sum.at[side],
                                  .precision = precision,
                                  .dropout   = dropout,
                                  .first_row = 0x100000003,
                                  .key       = {.seed = 11, .step = 0x200000005, .layer = 3}};
}

static void run_both(run_t *r, float dropout, ddp_precision_t precision, bool accumulate)
{
    for (int side = 0; side < SIDES; side++) {
        const ddp_attention_args_t          args = run_args(r, side, dropout, precision);
        const ddp_attention_backward_args_t back = {args, r->dy.at[side], r->dqkv.at[side], accumulate};

        ddp_assert_ok(ddp_op_attention(both_stream(&r->s, side), &args));
        ddp_assert_ok(ddp_op_attention_backward(both_stream(&r->s, side), &back));
    }
}

/* Forward and backward; every other time backward adds. */
START_TEST(attention_is_that_of_the_cpu)
{
    const bool accumulate = _i % 2 == 1;
    run_t      r;

    run_open(&r, &cases[_i / 2], accumulate);
    run_both(&r, 0.0F, DDP_PRECISION_FLOAT32, accumulate);
    both_assert_near(&r.s, &r.y, LIMIT, "y");
    both_assert_near(&r.s, &r.log_sum, LIMIT, "log_sum");
    both_assert_near(&r.s, &r.dqkv, LIMIT, "dqkv");
    run_close(&r);
}
END_TEST

START_TEST(attention_with_dropout_is_that_of_the_cpu)
{
    run_t r;

    run_open(&r, &cases[_i], false);
    run_both(&r, 0.3F, DDP_PRECISION_FLOAT32, false);
    both_assert_near(&r.s, &r.y, LIMIT, "y");
    both_assert_near(&r.s, &r.dqkv, LIMIT, "dqkv");
    run_close(&r);
}
END_TEST

/* With equal scores and the unit vectors as values, y shows the kept weights themselves: they are as many,
 * and the same, to the last bit. */
START_TEST(the_dropped_weights_are_the_ones_of_the_cpu)
{
    enum { LENGTH = 80 };
    const sizes_t z = {2, LENGTH, 1, LENGTH};
    run_t         r;
    float        *qkv;
    float        *y;
    size_t        dropped = 0;

    run_open(&r, &z, false);
    qkv = r.qkv.at[ON_CPU];
    memset(qkv, 0, r.qkv.bytes);
    for (size_t i = 0; i < 2 * LENGTH; i++) {
        qkv[i * 3 * LENGTH + 2 * LENGTH + i % LENGTH] = 1.0F;
    }
    ddp_assert_ok(ddp_stream_copy(r.s.on_cuda, r.qkv.at[ON_CUDA], qkv, r.qkv.bytes));
    for (int side = 0; side < SIDES; side++) {
        const ddp_attention_args_t args = run_args(&r, side, 0.5F, DDP_PRECISION_FLOAT32);

        ddp_assert_ok(ddp_op_attention(both_stream(&r.s, side), &args));
    }
    y = malloc(r.y.bytes);
    support_download(&r.s, y, r.y.at[ON_CUDA], r.y.bytes);
    for (size_t i = 0; i < 2 * LENGTH * LENGTH; i++) {
        const bool is_seen = i % LENGTH <= i / LENGTH % LENGTH;

        ck_assert((y[i] == 0.0F) == (((const float *)r.y.at[ON_CPU])[i] == 0.0F));
        ck_assert(is_seen || y[i] == 0.0F);
        dropped += is_seen && y[i] == 0.0F;
    }
    ck_assert_uint_gt(dropped, LENGTH * LENGTH / 3); /* of LENGTH (LENGTH + 1), half */
    ck_assert_uint_lt(dropped, LENGTH * LENGTH * 2 / 3);
    free(y);
    run_close(&r);
}
END_TEST

/* Weights are rounded, too: now and then to the other neighbour, 2^-8 off. */
START_TEST(attention_in_bfloat16_is_that_of_the_cpu)
{
    run_t r;

    run_open(&r, &cases[_i], false);
    run_both(&r, 0.0F, DDP_PRECISION_BF16, false);
    both_assert_near(&r.s, &r.y, 2e-3, "y");
    both_assert_near(&r.s, &r.log_sum, LIMIT, "log_sum");
    both_assert_near(&r.s, &r.dqkv, 4e-3, "dqkv");
    run_close(&r);
}
END_TEST

/* The cpu has neither: float32 is what they are near to, and not equal to. */
START_TEST(attention_in_other_precisions_is_near_float32)
{
    static const ddp_precision_t precision[] = {DDP_PRECISION_TF32, DDP_PRECISION_FP16};
    const sizes_t                z           = {1, 70, 2, 16};
    run_t                        r;
    float                       *y;

    run_open(&r, &z, false);
    for (int side = 0; side < SIDES; side++) {
        const ddp_attention_args_t args =
            run_args(&r, side, 0.0F, side == ON_CPU ? DDP_PRECISION_FLOAT32 : precision[_i]);

        ddp_assert_ok(ddp_op_attention(both_stream(&r.s, side), &args));
    }
    both_assert_near(&r.s, &r.y, 1e-3, "y");
    y = malloc(r.y.bytes);
    support_download(&r.s, y, r.y.at[ON_CUDA], r.y.bytes);
    ck_assert(memcmp(y, r.y.at[ON_CPU], r.y.bytes) != 0);
    free(y);
    run_close(&r);
}
END_TEST

/* As on the cpu, a score that is not finite is seen in every column of its row, and in no row before it. */
START_TEST(a_score_that_is_no_number_spoils_its_row)
{
    const float   bad = _i == 0 ? NAN : INFINITY;
    const sizes_t z   = {1, 70, 1, 8};
    run_t         r;
    float         y[70 * 8];
    float         log_sum[70];

    run_open(&r, &z, false);
    ((float *)r.qkv.at[ON_CPU])[66 * 24 + 3]     = 1.0F; /* a query */
    ((float *)r.qkv.at[ON_CPU])[66 * 24 + 8 + 3] = bad;  /* and its own key */
    ddp_assert_ok(ddp_stream_copy(r.s.on_cuda, r.qkv.at[ON_CUDA], r.qkv.at[ON_CPU], r.qkv.bytes));
    for (int side = 0; side < SIDES; side++) {
        const ddp_attention_args_t args = run_args(&r, side, 0.0F, DDP_PRECISION_FLOAT32);

        ddp_assert_ok(ddp_op_attention(both_stream(&r.s, side), &args));
    }
    support_download(&r.s, y, r.y.at[ON_CUDA], sizeof(y));
    support_download(&r.s, log_sum, r.log_sum.at[ON_CUDA], sizeof(log_sum));
    for (size_t i = 0; i < 70 * 8; i++) {
        ck_assert(isnan(y[i]) == isnan(((const float *)r.y.at[ON_CPU])[i]));
        ck_assert(i >= 66 * 8 || !isnan(y[i]));
    }
    for (size_t i = 0; i < 70; i++) {
        ck_assert(isnan(log_sum[i]) == isnan(((const float *)r.log_sum.at[ON_CPU])[i]));
    }
    ck_assert(isnan(y[66 * 8]));
    run_close(&r);
}
END_TEST

typedef struct cached {
    size_t sequences, length, heads, width, past, capacity;
} cached_t;

static const cached_t caches[] = {{1, 1, 1, 8, 0, 4},
                                  {2, 3, 2, 33, 5, 9},
                                  {1, 1, 2, 140, 300, 301},
                                  {2, 130, 1, 4, 0, 130},
                                  {0, 1, 1, 8, 0, 1}};

START_TEST(cached_attention_is_that_of_the_cpu)
{
    const cached_t *z = &caches[_i / 2];
    const size_t    c = z->heads * z->width;
    support_t       s;
    both_t          qkv;
    both_t          keys;
    both_t          values;
    both_t          y;

    support_open(&s);
    qkv    = both_floats(&s, z->sequences * z->length * 3 * c, 1);
    keys   = both_floats(&s, z->sequences * z->capacity * c, 2);
    values = both_floats(&s, z->sequences * z->capacity * c, 3);
    y      = both_floats(&s, z->sequences * z->length * c, 0);
    for (int side = 0; side < SIDES; side++) {
        const ddp_attention_cached_args_t args = {.qkv       = qkv.at[side],
                                                  .sequences = z->sequences,
                                                  .length    = z->length,
                                                  .heads     = z->heads,
                                                  .channels  = c,
                                                  .past      = z->past,
                                                  .capacity  = z->capacity,
                                                  .keys      = keys.at[side],
                                                  .values    = values.at[side],
                                                  .y         = y.at[side]};

        ddp_assert_ok(_i % 2 == 0 ? ddp_op_attention_cached(both_stream(&s, side), &args)
                                  : ddp_op_attention_keep(both_stream(&s, side), &args));
    }
    both_assert_near(&s, &y, LIMIT, "y");
    both_assert_same(&s, &keys, "keys");
    both_assert_same(&s, &values, "values");
    both_free(&qkv), both_free(&keys), both_free(&values), both_free(&y);
    support_close(&s);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cuda attention");
    TCase *tc    = tcase_create("attention");

    tcase_add_loop_test(tc, attention_is_that_of_the_cpu, 0, 2 * COUNT(cases));
    tcase_add_loop_test(tc, attention_with_dropout_is_that_of_the_cpu, 0, COUNT(cases));
    tcase_add_test(tc, the_dropped_weights_are_the_ones_of_the_cpu);
    tcase_add_loop_test(tc, attention_in_bfloat16_is_that_of_the_cpu, 0, COUNT(cases));
    tcase_add_loop_test(tc, attention_in_other_precisions_is_near_float32, 0, 2);
    tcase_add_loop_test(tc, a_score_that_is_no_number_spoils_its_row, 0, 2);
    tcase_add_loop_test(tc, cached_attention_is_that_of_the_cpu, 0, 2 * COUNT(caches));
    suite_add_tcase(suite, tc);
    return ddp_test_run(suite);
}
