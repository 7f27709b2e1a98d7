/* Pooling on the CUDA device against the cpu's. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda/support.h"
#include "tests/support/ddp_test.h"

typedef struct pool_case {
    size_t n, h, w, c, kernel, stride, pad;
} pool_case_t;

/* Windows side by side, overlapping, with gaps, with padding, larger than half an image, of one element; the
 * last has more elements than the largest grid takes at once. */
static const pool_case_t cases[] = {
    {2, 4, 4, 3, 2, 2, 0},    {1, 5, 7, 33, 2, 2, 0},   {2, 7, 6, 5, 3, 2, 1}, {1, 6, 6, 4, 3, 1, 1},
    {1, 7, 7, 2, 2, 3, 0},    {2, 4, 5, 1, 4, 4, 2},    {1, 3, 3, 8, 1, 1, 0}, {0, 4, 4, 3, 2, 2, 0},
    {1, 17, 16, 2, 15, 1, 7}, {1, 33, 35, 16, 2, 1, 0},
};
#define CASES ((int)(sizeof(cases) / sizeof(*cases)))
#define MOST  18480

static float     x[MOST], dy[MOST], y[MOST], dx[MOST], got[MOST];
static uint8_t   index_[MOST], got_index[MOST];
static support_t s;

static void set_up(void)
{
    support_open(&s);
    support_fill(x, MOST, 1);
    support_fill(dy, MOST, 2);
}

static void tear_down(void)
{
    support_close(&s);
}

static ddp_pool2d_args_t args_of(const pool_case_t *c, bool is_max)
{
    ddp_pool2d_args_t args = {.is_max = is_max, .n = c->n, .in_h = c->h, .in_w = c->w, .c = c->c};

    args.kernel = c->kernel;
    args.stride = c->stride;
    args.pad    = c->pad;
    args.out_h  = (c->h + 2 * c->pad - c->kernel) / c->stride + 1;
    args.out_w  = (c->w + 2 * c->pad - c->kernel) / c->stride + 1;
    args.x      = x;
    args.y      = y;
    args.index  = index_;
    return args;
}

static size_t outputs(const ddp_pool2d_args_t *args)
{
    return args->n * args->out_h * args->out_w * args->c;
}

/* Forward on both; the cpu's is in y and index_. */
static void run_forward(const ddp_pool2d_args_t *args)
{
    const size_t      count = outputs(args);
    ddp_pool2d_args_t cuda  = *args;

    ck_assert(count <= MOST && args->n * args->in_h * args->in_w * args->c <= MOST);
    cuda.x     = support_upload(&s, x, args->n * args->in_h * args->in_w * args->c * sizeof(float));
    cuda.y     = support_upload(&s, NULL, count * sizeof(float));
    cuda.index = args->is_max ? support_upload(&s, NULL, count) : NULL;
    ddp_assert_ok(ddp_op_pool2d(s.on_cuda, &cuda));
    ddp_assert_ok(ddp_op_pool2d(s.on_cpu, args));
    ddp_assert_ok(ddp_stream_synchronize(s.on_cpu, -1));
    support_download(&s, got, cuda.y, count * sizeof(float));
    if (args->is_max) {
        support_download(&s, got_index, cuda.index, count);
    }
}

START_TEST(max_pooling_finds_the_element_that_the_cpu_finds)
{
    const ddp_pool2d_args_t args = args_of(&cases[_i], true);

    for (size_t i = 0; i < MOST; i += 3) {
        x[i] = roundf(x[i]); /* equal ones: the first counts */
    }
    run_forward(&args);
    support_assert_same(got, y, outputs(&args) * sizeof(float), "max pool");
    support_assert_same(got_index, index_, outputs(&args), "max pool's index");
}
END_TEST

START_TEST(max_pooling_passes_on_what_is_no_number)
{
    const ddp_pool2d_args_t args = args_of(&cases[2], true);

    for (size_t i = 0; i < MOST; i++) {
        x[i] = i % 7 == 0 ? NAN : i % 5 != 0 ? -INFINITY : x[i];
    }
    run_forward(&args);
    for (size_t i = 0; i < outputs(&args); i++) {
        ck_assert(isnan(y[i]) ? isnan(got[i]) : got[i] == y[i]);
    }
    support_assert_same(got_index, index_, outputs(&args), "max pool's index");
}
END_TEST

START_TEST(average_pooling_has_the_bits_of_the_cpu)
{
    const ddp_pool2d_args_t args = args_of(&cases[_i], false);

    run_forward(&args);
    support_assert_same(got, y, outputs(&args) * sizeof(float), "average pool");
}
END_TEST

START_TEST(gradients_of_pooling_add_up_as_on_the_cpu)
{
    for (int form = 0; form < 4; form++) {
        const ddp_pool2d_args_t forward = args_of(&cases[_i], form % 2 != 0);
        const size_t            bytes   = forward.n * forward.in_h * forward.in_w * forward.c * sizeof(float);
        ddp_pool2d_backward_args_t args = {
            .forward = forward, .dy = dy, .dx = dx, .accumulate = form / 2 != 0};
        float *d_dx;

        ddp_assert_ok(ddp_op_pool2d(s.on_cpu, &forward));
        memcpy(dx, x, sizeof(dx));
        ddp_assert_ok(ddp_op_pool2d_backward(s.on_cpu, &args));
        ddp_assert_ok(ddp_stream_synchronize(s.on_cpu, -1));
        d_dx               = support_upload(&s, x, bytes);
        args.dx            = d_dx;
        args.dy            = support_upload(&s, dy, outputs(&forward) * sizeof(float));
        args.forward.index = forward.is_max ? support_upload(&s, index_, outputs(&forward)) : NULL;
        ddp_assert_ok(ddp_op_pool2d_backward(s.on_cuda, &args));
        support_download(&s, got, d_dx, bytes);
        support_assert_near(got, dx, bytes / sizeof(float), 0.0, "pool2d_backward");
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cuda pool");
    TCase *tc    = tcase_create("pool");

    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(tc, max_pooling_finds_the_element_that_the_cpu_finds, 0, CASES);
    tcase_add_test(tc, max_pooling_passes_on_what_is_no_number);
    tcase_add_loop_test(tc, average_pooling_has_the_bits_of_the_cpu, 0, CASES);
    tcase_add_loop_test(tc, gradients_of_pooling_add_up_as_on_the_cpu, 0, CASES);
    suite_add_tcase(suite, tc);
    return ddp_test_run(suite);
}
