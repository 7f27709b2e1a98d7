/* Faults that were found by reading llm.c (github.com/karpathy/llm.c) and that its own tests pass over: each
 * of them would fail here. What is about updates and ranks is in the tests of the reducer. */
#include <check.h>
#include <math.h>
#include <stdlib.h>

#include "kernels/ops_seq.h"
#include "tests/cuda/both.h"
#include "tests/support/ddp_test.h"

#define LIMIT 1e-5

/* layernorm.cuh: the early return of what is behind the last row had > for >=, harmless only while the rows
 * are a multiple of those of a block. What lies behind the buffers is looked at by support_close(). */
START_TEST(layer_norm_of_rows_that_fill_no_block_writes_its_rows_only)
{
    enum { WIDTH = 8 };
    const size_t rows = (size_t)_i;
    support_t    s;
    both_t       x;
    both_t       gamma;
    both_t       y;
    both_t       mean;
    both_t       rstd;
    both_t       dx;

    support_open(&s);
    x     = both_floats(&s, rows * WIDTH, 1);
    gamma = both_floats(&s, WIDTH, 2);
    y     = both_floats(&s, rows * WIDTH, 0);
    mean  = both_floats(&s, rows, 0);
    rstd  = both_floats(&s, rows, 0);
    dx    = both_floats(&s, rows * WIDTH, 0);
    for (int side = 0; side < SIDES; side++) {
        const ddp_layer_norm_args_t          args = {.x     = x.at[side],
                                                     .rows  = rows,
                                                     .width = WIDTH,
                                                     .gamma = gamma.at[side],
                                                     .beta  = gamma.at[side],
                                                     .eps   = 1e-5F,
                                                     .y     = y.at[side],
                                                     .mean  = mean.at[side],
                                                     .rstd  = rstd.at[side]};
        const ddp_layer_norm_backward_args_t back = {.x     = x.at[side],
                                                     .dy    = x.at[side],
                                                     .rows  = rows,
                                                     .width = WIDTH,
                                                     .gamma = gamma.at[side],
                                                     .mean  = mean.at[side],
                                                     .rstd  = rstd.at[side],
                                                     .dx    = dx.at[side]};

        ddp_assert_ok(ddp_op_layer_norm(both_stream(&s, side), &args));
        ddp_assert_ok(ddp_op_layer_norm_backward(both_stream(&s, side), &back));
    }
    both_assert_near(&s, &y, LIMIT, "y");
    both_assert_near(&s, &dx, 1e-4, "dx"); /* dy is x: most of it cancels */
    both_free(&x), both_free(&gamma), both_free(&y), both_free(&mean), both_free(&rstd), both_free(&dx);
    support_close(&s);
}
END_TEST

/* cuda_common.h: a constant `False` was true, so that validation wrote the gradient of the logits. */
START_TEST(a_loss_without_gradients_leaves_the_logits_alone)
{
    enum { ROWS = 3, CLASSES = 40 };
    static const int32_t labels[ROWS] = {1, 39, 7};
    support_t            s;
    both_t               logits;
    both_t               at;
    both_t               stats;
    const float          zero[4] = {0};

    support_open(&s);
    logits = both_floats(&s, ROWS * CLASSES, 1);
    at     = both_bytes(&s, labels, sizeof(labels));
    stats  = both_bytes(&s, zero, sizeof(zero));
    {
        const ddp_cross_entropy_args_t args = {.logits       = logits.at[ON_CUDA],
                                               .labels       = at.at[ON_CUDA],
                                               .rows         = ROWS,
                                               .classes      = CLASSES,
                                               .ignore_index = -1,
                                               .stats        = stats.at[ON_CUDA]};

        ddp_assert_ok(ddp_op_cross_entropy(s.on_cuda, &args));
    }
    both_assert_same(&s, &logits, "logits");
    both_free(&logits), both_free(&at), both_free(&stats);
    support_close(&s);
}
END_TEST

/* matmul.cuh, by the same constant: the gradient of a bias replaced what earlier micro-batches had left, on
 * some devices and with more than 6912 outputs on others. */
START_TEST(gradients_of_a_wide_bias_add_up_over_micro_batches)
{
    enum { ROWS = 3, COLUMNS = 7001 };
    support_t s;
    both_t    dy;
    both_t    db;

    support_open(&s);
    dy = both_floats(&s, ROWS * COLUMNS, 1);
    db = both_floats(&s, COLUMNS, 0);
    for (int side = 0; side < SIDES; side++) {
        for (int micro = 0; micro < 3; micro++) {
            const ddp_bias_grad_args_t args = {
                .dy = dy.at[side], .m = ROWS, .n = COLUMNS, .db = db.at[side], .accumulate = micro > 0};

            ddp_assert_ok(ddp_op_bias_grad(both_stream(&s, side), &args));
        }
    }
    both_assert_near(&s, &db, LIMIT, "db");
    both_free(&dy), both_free(&db);
    support_close(&s);
}
END_TEST

/* train_gpt2.cu: a loss that is no number passed every test for outliers. It must come out as one. */
START_TEST(a_loss_that_is_no_number_comes_out_as_one)
{
    enum { ROWS = 3, CLASSES = 40 };
    static const int32_t labels[ROWS] = {1, 39, 7};
    support_t            s;
    both_t               logits;
    both_t               at;
    both_t               stats;
    float                x[ROWS * CLASSES] = {0};
    ddp_loss_stats_t     sums              = {0};

    support_open(&s);
    x[CLASSES + 5] = _i == 0 ? NAN : INFINITY;
    logits         = both_bytes(&s, x, sizeof(x));
    at             = both_bytes(&s, labels, sizeof(labels));
    stats          = both_bytes(&s, &sums, sizeof(sums));
    {
        const ddp_cross_entropy_args_t args = {.logits       = logits.at[ON_CUDA],
                                               .labels       = at.at[ON_CUDA],
                                               .rows         = ROWS,
                                               .classes      = CLASSES,
                                               .ignore_index = -1,
                                               .stats        = stats.at[ON_CUDA]};

        ddp_assert_ok(ddp_op_cross_entropy(s.on_cuda, &args));
    }
    support_download(&s, &sums, stats.at[ON_CUDA], sizeof(sums));
    ck_assert(isnan(sums.loss));
    ck_assert(sums.counted == 3.0F && sums.weight == 3.0F);
    both_free(&logits), both_free(&at), both_free(&stats);
    support_close(&s);
}
END_TEST

/* test_gpt2.cu: a difference that is no number is not larger than any tolerance. */
START_TEST(what_is_no_number_is_near_nothing)
{
    ck_assert(support_is_near(1.0F, 1.0F, 1e-6, 1.0));
    ck_assert(!support_is_near(NAN, 1.0F, 1e-6, 1.0));
    ck_assert(!support_is_near(1.0F, NAN, 1e-6, 1.0));
    ck_assert(!support_is_near(INFINITY, 1.0F, 1e-6, 1.0));
    ck_assert(!support_is_near(1.0F, 1.0F, 1e-6, (double)NAN));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cuda llm.c");
    TCase *tc    = tcase_create("llm.c");

    tcase_add_loop_test(tc, layer_norm_of_rows_that_fill_no_block_writes_its_rows_only, 1, 18);
    tcase_add_test(tc, a_loss_without_gradients_leaves_the_logits_alone);
    tcase_add_test(tc, gradients_of_a_wide_bias_add_up_over_micro_batches);
    tcase_add_loop_test(tc, a_loss_that_is_no_number_comes_out_as_one, 0, 2);
    tcase_add_test(tc, what_is_no_number_is_near_nothing);
    suite_add_tcase(suite, tc);
    return ddp_test_run(suite);
}
