/* Mean squared error on the CUDA device against the cpu's. */
#include <check.h>
#include <math.h>
#include <string.h>

#include "tests/cuda/support.h"
#include "tests/support/ddp_test.h"

typedef struct mse_case {
    size_t rows, width;
    bool   weights, gradient;
} mse_case_t;

static const mse_case_t cases[] = {{1, 1, false, true},   {5, 3, true, true},    {3, 33, true, false},
                                   {2, 1500, true, true}, {300, 7, false, true}, {0, 4, true, true}};
#define CASES ((int)(sizeof(cases) / sizeof(*cases)))
#define MOST  3000

static float     y[MOST], target[MOST], weights[300], wanted[MOST], got[MOST];
static support_t s;

static void set_up(void)
{
    support_open(&s);
    support_fill(y, MOST, 1);
    support_fill(target, MOST, 2);
    support_fill(weights, 300, 3);
}

static void tear_down(void)
{
    support_close(&s);
}

START_TEST(loss_and_gradient_equal_those_of_the_cpu)
{
    const mse_case_t *c     = &cases[_i];
    const size_t      bytes = c->rows * c->width * sizeof(float);
    ddp_loss_stats_t  on_cpu;
    ddp_loss_stats_t  on_cuda;
    ddp_mse_args_t    args = {.y = y, .target = target, .rows = c->rows, .width = c->width};

    args.weights = c->weights ? weights : NULL;
    args.dy      = c->gradient ? wanted : NULL;
    args.stats   = &on_cpu;
    ddp_assert_ok(ddp_op_mse(s.on_cpu, &args));
    ddp_assert_ok(ddp_stream_synchronize(s.on_cpu, -1));
    args.y       = support_upload(&s, y, bytes);
    args.target  = support_upload(&s, target, bytes);
    args.weights = c->weights ? support_upload(&s, weights, c->rows * sizeof(float)) : NULL;
    args.dy      = c->gradient ? support_upload(&s, NULL, bytes) : NULL;
    args.stats   = support_upload(&s, NULL, sizeof(on_cuda));
    ddp_assert_ok(ddp_op_mse(s.on_cuda, &args));
    support_download(&s, &on_cuda, args.stats, sizeof(on_cuda));
    /* float32 sums of at most 16 vectors on the cpu, float64 here */
    support_assert_near(&on_cuda.loss, &on_cpu.loss, 1, 1e-6, "mse");
    ck_assert(on_cuda.weight == on_cpu.weight && on_cuda.correct == 0.0F &&
              on_cuda.counted == (float)c->rows);
    if (c->gradient) {
        support_download(&s, got, args.dy, bytes);
        support_assert_same(got, wanted, bytes, "mse's gradient");
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cuda mse");
    TCase *tc    = tcase_create("mse");

    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(tc, loss_and_gradient_equal_those_of_the_cpu, 0, CASES);
    suite_add_tcase(suite, tc);
    return ddp_test_run(suite);
}
