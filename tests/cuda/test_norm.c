/* Layer norm, batch norm and global average pooling on the CUDA device, against the cpu's. */
#include <check.h>
#include <stdlib.h>

#include "kernels/ops_norm.h"
#include "kernels/ops_seq.h"
#include "tests/cuda/both.h"
#include "tests/support/ddp_test.h"

/* Of the largest result: sums of n rounded numbers in two orders differ by about sqrt(n) 2^-24 of it. */
#define LIMIT 2e-6
/* Sums of products of both signs cancel. */
#define SUM_LIMIT 1e-5

#define COUNT(array) ((int)(sizeof(array) / sizeof(*(array))))

typedef struct sizes {
    size_t rows, width;
} sizes_t;

static const sizes_t cases[] = {{1, 1}, {5, 8}, {9, 33}, {3, 132}, {150, 7}, {700, 36}, {0, 8}, {0, 0}};

START_TEST(layer_norm_is_that_of_the_cpu)
{
    const sizes_t *z = &cases[_i];
    support_t      s;
    both_t         x;
    both_t         gamma;
    both_t         beta;
    both_t         y;
    both_t         mean;
    both_t         rstd;

    support_open(&s);
    x     = both_floats(&s, z->rows * z->width, 1);
    gamma = both_floats(&s, z->width, 2);
    beta  = both_floats(&s, z->width, 3);
    y     = both_floats(&s, z->rows * z->width, 0);
    mean  = both_floats(&s, z->rows, 0);
    rstd  = both_floats(&s, z->rows, 0);
    for (int side = 0; side < SIDES; side++) {
        const ddp_layer_norm_args_t args = {.x     = x.at[side],
                                            .rows  = z->rows,
                                            .width = z->width,
                                            .gamma = gamma.at[side],
                                            .beta  = beta.at[side],
                                            .eps   = 1e-5F,
                                            .y     = y.at[side],
                                            .mean  = mean.at[side],
                                            .rstd  = rstd.at[side]};

        ddp_assert_ok(ddp_op_layer_norm(both_stream(&s, side), &args));
    }
    both_assert_near(&s, &y, LIMIT, "y");
    both_assert_near(&s, &mean, LIMIT, "mean");
    both_assert_near(&s, &rstd, LIMIT, "rstd");
    both_free(&x), both_free(&gamma), both_free(&beta), both_free(&y), both_free(&mean), both_free(&rstd);
    support_close(&s);
}
END_TEST

/* In place, without statistics, far from 0: the variance is that about the mean. */
START_TEST(layer_norm_of_large_numbers_keeps_their_differences)
{
    support_t s;
    both_t    x;
    both_t    gamma;
    both_t    beta;
    float     far[4 * 64];

    support_open(&s);
    support_fill(far, 4 * 64, 9);
    for (size_t i = 0; i < 4 * 64; i++) {
        far[i] = 1000.0F + far[i];
    }
    x     = both_bytes(&s, far, sizeof(far));
    gamma = both_floats(&s, 64, 2);
    beta  = both_floats(&s, 64, 3);
    for (int side = 0; side < SIDES; side++) {
        const ddp_layer_norm_args_t args = {.x     = x.at[side],
                                            .rows  = 4,
                                            .width = 64,
                                            .gamma = gamma.at[side],
                                            .beta  = beta.at[side],
                                            .eps   = 1e-5F,
                                            .y     = x.at[side]};

        ddp_assert_ok(ddp_op_layer_norm(both_stream(&s, side), &args));
    }
    both_assert_near(&s, &x, 2e-4, "y"); /* 1000 has units of 6e-5 */
    both_free(&x), both_free(&gamma), both_free(&beta);
    support_close(&s);
}
END_TEST

/* Fresh, accumulating, and without dx or without the parameters. */
START_TEST(layer_norm_gradients_are_those_of_the_cpu)
{
    const sizes_t *z          = &cases[_i / 4];
    const int      form       = _i % 4;
    const bool     accumulate = form == 1;
    support_t      s;
    both_t         x;
    both_t         dy;
    both_t         gamma;
    both_t         mean;
    both_t         rstd;
    both_t         dx;
    both_t         dgamma;
    both_t         dbeta;

    support_open(&s);
    x      = both_floats(&s, z->rows * z->width, 1);
    dy     = both_floats(&s, z->rows * z->width, 2);
    gamma  = both_floats(&s, z->width, 3);
    mean   = both_floats(&s, z->rows, 4);
    rstd   = both_floats(&s, z->rows, 5);
    dx     = both_floats(&s, z->rows * z->width, accumulate ? 6 : 0);
    dgamma = both_floats(&s, z->width, accumulate ? 7 : 0);
    dbeta  = both_floats(&s, z->width, accumulate ? 8 : 0);
    for (int side = 0; side < SIDES; side++) {
        const ddp_layer_norm_backward_args_t args = {.x                 = x.at[side],
                                                     .dy                = dy.at[side],
                                                     .rows              = z->rows,
                                                     .width             = z->width,
                                                     .gamma             = gamma.at[side],
                                                     .mean              = mean.at[side],
                                                     .rstd              = rstd.at[side],
                                                     .dx                = form == 2 ? NULL : dx.at[side],
                                                     .dgamma            = form == 3 ? NULL : dgamma.at[side],
                                                     .dbeta             = form == 3 ? NULL : dbeta.at[side],
                                                     .accumulate_dx     = accumulate,
                                                     .accumulate_dgamma = accumulate,
                                                     .accumulate_dbeta  = accumulate};

        ddp_assert_ok(ddp_op_layer_norm_backward(both_stream(&s, side), &args));
    }
    both_assert_near(&s, &dx, LIMIT, "dx");
    both_assert_near(&s, &dgamma, SUM_LIMIT, "dgamma");
    both_assert_near(&s, &dbeta, SUM_LIMIT, "dbeta");
    both_free(&x), both_free(&dy), both_free(&gamma), both_free(&mean), both_free(&rstd);
    both_free(&dx), both_free(&dgamma), both_free(&dbeta);
    support_close(&s);
}
END_TEST

static const sizes_t images[] = {{2, 1}, {6, 8}, {70, 33}, {700, 4}, {1500, 3}, {333, 68}, {0, 8}};

/* Bit 0: residual and RELU; bit 1: given statistics; bit 2: in place, and sums accumulate. */
START_TEST(batch_norm_is_that_of_the_cpu)
{
    const sizes_t *z    = &images[_i / 8];
    const bool     full = (_i & 1) != 0;
    const bool     eval = (_i & 2) != 0;
    const bool     more = (_i & 4) != 0;
    support_t      s;
    both_t         x;
    both_t         in[5]; /* gamma, beta, residual, running mean and variance */
    both_t         y;
    both_t         out[4]; /* mean, rstd, mean_sum, var_sum */

    support_open(&s);
    x = both_floats(&s, z->rows * z->width, 1);
    y = both_floats(&s, z->rows * z->width, 0);
    for (size_t k = 0; k < 5; k++) {
        in[k] = both_floats(&s, k == 2 ? z->rows * z->width : z->width, 2 + k);
    }
    for (size_t j = 0; j < z->width; j++) { /* a variance */
        ((float *)in[4].at[ON_CPU])[j] = 0.5F + (float)j;
    }
    ddp_assert_ok(ddp_stream_copy(s.on_cuda, in[4].at[ON_CUDA], in[4].at[ON_CPU], in[4].bytes));
    for (size_t k = 0; k < 4; k++) {
        out[k] = both_floats(&s, z->width, more ? 8 + k : 0);
    }
    for (int side = 0; side < SIDES; side++) {
        const ddp_batch_norm_args_t args = {.x               = x.at[side],
                                            .rows            = z->rows,
                                            .c               = z->width,
                                            .gamma           = in[0].at[side],
                                            .beta            = in[1].at[side],
                                            .eps             = 1e-5F,
                                            .residual        = full ? in[2].at[side] : NULL,
                                            .act             = full ? DDP_ACT_RELU : DDP_ACT_NONE,
                                            .y               = more ? x.at[side] : y.at[side],
                                            .running_mean    = eval ? in[3].at[side] : NULL,
                                            .running_var     = eval ? in[4].at[side] : NULL,
                                            .mean            = out[0].at[side],
                                            .rstd            = out[1].at[side],
                                            .mean_sum        = eval ? NULL : out[2].at[side],
                                            .var_sum         = eval ? NULL : out[3].at[side],
                                            .accumulate_mean = more,
                                            .accumulate_var  = more};

        ddp_assert_ok(ddp_op_batch_norm(both_stream(&s, side), &args));
    }
    both_assert_near(&s, more ? &x : &y, LIMIT, "y");
    both_assert_near(&s, &out[0], LIMIT, "mean");
    both_assert_near(&s, &out[1], LIMIT, "rstd");
    both_assert_near(&s, &out[2], LIMIT, "mean_sum");
    both_assert_near(&s, &out[3], LIMIT, "var_sum");
    both_free(&x), both_free(&y);
    for (size_t k = 0; k < 5; k++) {
        both_free(&in[k]);
    }
    for (size_t k = 0; k < 4; k++) {
        both_free(&out[k]);
    }
    support_close(&s);
}
END_TEST

/* A million and a little: sums of squares would have lost the variance. */
START_TEST(batch_norm_of_large_numbers_keeps_their_differences)
{
    enum { ROWS = 640, C = 3 };
    static float far[ROWS * C];
    support_t    s;
    both_t       x;
    both_t       gamma;
    both_t       rstd;
    both_t       mean;

    support_open(&s);
    support_fill(far, ROWS * C, 9);
    for (size_t i = 0; i < ROWS * C; i++) {
        far[i] = 1e6F + 100.0F * far[i];
    }
    x     = both_bytes(&s, far, sizeof(far));
    gamma = both_floats(&s, C, 2);
    mean  = both_floats(&s, C, 0);
    rstd  = both_floats(&s, C, 0);
    for (int side = 0; side < SIDES; side++) {
        const ddp_batch_norm_args_t args = {.x     = x.at[side],
                                            .rows  = ROWS,
                                            .c     = C,
                                            .gamma = gamma.at[side],
                                            .beta  = gamma.at[side],
                                            .y     = x.at[side],
                                            .mean  = mean.at[side],
                                            .rstd  = rstd.at[side]};

        ddp_assert_ok(ddp_op_batch_norm(both_stream(&s, side), &args));
    }
    both_assert_near(&s, &rstd, LIMIT, "rstd");
    both_assert_near(&s, &mean, 1e-7, "mean");
    both_free(&x), both_free(&gamma), both_free(&mean), both_free(&rstd);
    support_close(&s);
}
END_TEST

/* How it is known where RELU gave 0, times: fresh, accumulating, or in place of dy. */
START_TEST(batch_norm_gradients_are_those_of_the_cpu)
{
    const sizes_t *z    = &images[_i / 9];
    const int      mask = _i / 3 % 3; /* none, from x, from y with a residual */
    const int      form = _i % 3;
    const bool     more = form == 1;
    const size_t   all  = z->rows * z->width;
    support_t      s;
    both_t         x;
    both_t         dy;
    both_t         y;
    both_t         in[4]; /* gamma, beta, mean, rstd */
    both_t         dx;
    both_t         dresidual;
    both_t         dgamma;
    both_t         dbeta;

    support_open(&s);
    x         = both_floats(&s, all, 1);
    dy        = both_floats(&s, all, 2);
    y         = both_floats(&s, all, 3);
    dx        = both_floats(&s, all, more ? 4 : 0);
    dresidual = both_floats(&s, all, more ? 5 : 0);
    dgamma    = both_floats(&s, z->width, more ? 6 : 0);
    dbeta     = both_floats(&s, z->width, more ? 7 : 0);
    for (size_t k = 0; k < 4; k++) {
        in[k] = both_floats(&s, z->width, 8 + k);
    }
    for (int side = 0; side < SIDES; side++) {
        const ddp_batch_norm_backward_args_t args = {.x     = x.at[side],
                                                     .dy    = dy.at[side],
                                                     .rows  = z->rows,
                                                     .c     = z->width,
                                                     .gamma = in[0].at[side],
                                                     .beta  = in[1].at[side],
                                                     .mean  = in[2].at[side],
                                                     .rstd  = in[3].at[side],
                                                     .act   = mask == 0 ? DDP_ACT_NONE : DDP_ACT_RELU,
                                                     .y     = mask == 2 ? y.at[side] : NULL,
                                                     .dx = form == 2 && mask < 2 ? dy.at[side] : dx.at[side],
                                                     .dresidual            = mask < 2    ? NULL
                                                                             : form == 2 ? dy.at[side]
                                                                                         : dresidual.at[side],
                                                     .dgamma               = dgamma.at[side],
                                                     .dbeta                = dbeta.at[side],
                                                     .accumulate_dx        = more,
                                                     .accumulate_dresidual = more,
                                                     .accumulate_dgamma    = more,
                                                     .accumulate_dbeta     = more};

        ddp_assert_ok(ddp_op_batch_norm_backward(both_stream(&s, side), &args));
    }
    both_assert_near(&s, &dx, SUM_LIMIT, "dx");
    both_assert_near(&s, &dy, SUM_LIMIT, "dy");
    both_assert_near(&s, &dresidual, LIMIT, "dresidual");
    both_assert_near(&s, &dgamma, SUM_LIMIT, "dgamma");
    both_assert_near(&s, &dbeta, SUM_LIMIT, "dbeta");
    both_free(&x), both_free(&dy), both_free(&y), both_free(&dx), both_free(&dresidual);
    both_free(&dgamma), both_free(&dbeta);
    for (size_t k = 0; k < 4; k++) {
        both_free(&in[k]);
    }
    support_close(&s);
}
END_TEST

static const size_t pools[][3] = {
    {2, 49, 33}, {1, 1, 1}, {3, 300, 5}, {0, 4, 8}, {2, 4, 0}}; /* n, pixels, c */

START_TEST(global_average_pooling_is_that_of_the_cpu)
{
    const size_t *z    = pools[_i / 2];
    const bool    more = _i % 2 == 1;
    support_t     s;
    both_t        x;
    both_t        y;

    support_open(&s);
    x = both_floats(&s, z[0] * z[1] * z[2], 1);
    y = both_floats(&s, z[0] * z[2], 0);
    for (int side = 0; side < SIDES; side++) {
        const ddp_global_avg_pool_args_t          args = {x.at[side], z[0], z[1], z[2], y.at[side]};
        const ddp_global_avg_pool_backward_args_t back = {y.at[side], z[0], z[1], z[2], x.at[side], more};

        ddp_assert_ok(ddp_op_global_avg_pool(both_stream(&s, side), &args));
        ddp_assert_ok(ddp_op_global_avg_pool_backward(both_stream(&s, side), &back));
    }
    both_assert_near(&s, &y, LIMIT, "y");
    both_assert_near(&s, &x, LIMIT, "dx");
    both_free(&x), both_free(&y);
    support_close(&s);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cuda norm");
    TCase *tc    = tcase_create("norm");

    tcase_add_loop_test(tc, layer_norm_is_that_of_the_cpu, 0, COUNT(cases));
    tcase_add_test(tc, layer_norm_of_large_numbers_keeps_their_differences);
    tcase_add_loop_test(tc, layer_norm_gradients_are_those_of_the_cpu, 0, 4 * COUNT(cases));
    tcase_add_loop_test(tc, batch_norm_is_that_of_the_cpu, 0, 8 * COUNT(images));
    tcase_add_test(tc, batch_norm_of_large_numbers_keeps_their_differences);
    tcase_add_loop_test(tc, batch_norm_gradients_are_those_of_the_cpu, 0, 9 * COUNT(images));
    tcase_add_loop_test(tc, global_average_pooling_is_that_of_the_cpu, 0, 2 * COUNT(pools));
    suite_add_tcase(suite, tc);
    return ddp_test_run(suite);
}
