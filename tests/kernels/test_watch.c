/* What a watch is told of work, and what operations are said to cost. */
#include "base/allocator.h"
#include "base/clock.h"
#include "kernels/ops_cost.h"
#include "kernels/ops_norm.h"
#include "kernels/ops_seq.h"
#include "tests/kernels/kernel_test.h"

#define MOST 32

typedef struct log {
    size_t          n;
    ddp_work_seen_t seen[MOST];
    ddp_op_cost_t   cost[MOST];
    bool            is_op[MOST];
} log_t;

static void take_down(void *ctx, const ddp_work_seen_t *seen)
{
    log_t *log = ctx;

    ck_assert_uint_lt(log->n, MOST);
    log->seen[log->n]  = *seen;
    log->is_op[log->n] = ddp_op_cost(seen->work, seen->args, &log->cost[log->n]);
    log->n++;
}

static void open_watched(bench_t *bench, log_t *log)
{
    memset(log, 0, sizeof(*log));
    ck_assert(bench_open(bench, DDP_ISA_PLAIN));
    ddp_device_set_watch(bench->device, take_down, log);
}

static void expect(const log_t *log, size_t i, const char *work, const char *shape, double flop,
                   double floats)
{
    ck_assert_uint_lt(i, log->n);
    ck_assert_str_eq(log->seen[i].work, work);
    ck_assert_str_eq(log->seen[i].stream, "test");
    ck_assert(log->is_op[i] && log->seen[i].is_done);
    ck_assert_str_eq(log->cost[i].shape, shape);
    ck_assert_double_eq(log->cost[i].flop, flop);
    ck_assert_double_eq(log->cost[i].bytes, floats * (double)sizeof(float));
}

static float memory[8][4096];

START_TEST(products_cost_two_operations_for_each_triple)
{
    bench_t         bench;
    log_t           log;
    ddp_gemm_args_t gemm = {.m     = 3,
                            .n     = 5,
                            .k     = 7,
                            .alpha = 1,
                            .a     = memory[0],
                            .lda   = 7,
                            .b     = memory[1],
                            .ldb   = 5,
                            .c     = memory[2],
                            .ldc   = 5};

    open_watched(&bench, &log);
    ddp_assert_ok(ddp_op_gemm(bench.stream, &gemm));
    gemm.beta        = 1;
    gemm.transpose_b = true;
    gemm.ldb         = 7;
    gemm.precision   = DDP_PRECISION_BF16;
    ddp_assert_ok(ddp_op_gemm(bench.stream, &gemm));
    expect(&log, 0, "gemm", "3 x 5 x 7 NN", 210, 21 + 35 + 15);
    expect(&log, 1, "gemm", "3 x 5 x 7 NT bf16", 210, 21 + 35 + 2 * 15);
    bench_close(&bench);
}
END_TEST

START_TEST(a_convolution_costs_what_direct_would)
{
    bench_t                    bench;
    log_t                      log;
    ddp_conv2d_shape_t         shape = {.n        = 2,
                                        .in_h     = 4,
                                        .in_w     = 4,
                                        .in_c     = 3,
                                        .out_c    = 5,
                                        .kernel_h = 3,
                                        .kernel_w = 3,
                                        .stride   = 1,
                                        .pad      = 1};
    static char                scratch[1 << 20] __attribute__((aligned(DDP_ALIGNMENT)));
    ddp_conv2d_args_t          forward;
    ddp_conv2d_backward_args_t backward;

    open_watched(&bench, &log);
    ddp_assert_ok(ddp_conv2d_shape_fill(&shape));
    ck_assert_uint_le(ddp_conv2d_scratch_bytes(bench.device, &shape), sizeof(scratch));
    forward  = (ddp_conv2d_args_t){.shape = shape, .x = memory[0], .w = memory[1], .y = memory[2]};
    backward = (ddp_conv2d_backward_args_t){
        .shape = shape, .x = memory[0], .w = memory[1], .dy = memory[2], .dx = memory[3], .dw = memory[4]};
    forward.scratch = backward.scratch = scratch;
    ddp_assert_ok(ddp_op_conv2d(bench.stream, &forward));
    ddp_assert_ok(ddp_op_conv2d_backward(bench.stream, &backward));
    backward.dx            = NULL;
    backward.accumulate_dw = true;
    ddp_assert_ok(ddp_op_conv2d_backward(bench.stream, &backward));
    /* x 2 * 16 * 3 = 96, w 5 * 9 * 3 = 135, y 2 * 16 * 5 = 160; 160 * 27 multiplications */
    expect(&log, 0, "conv2d", "2 x 4x4, 3 -> 5, 3x3 /1", 2 * 160 * 27, 96 + 135 + 160);
    expect(&log, 1, "conv2d_backward", "2 x 4x4, 3 -> 5, 3x3 /1", 2 * 2 * 160 * 27, 2 * 96 + 2 * 135 + 160);
    expect(&log, 2, "conv2d_backward", "2 x 4x4, 3 -> 5, 3x3 /1", 2 * 160 * 27, 96 + 2 * 135 + 160);
    bench_close(&bench);
}
END_TEST

START_TEST(attention_costs_the_half_below_the_diagonal)
{
    bench_t                       bench;
    log_t                         log;
    ddp_attention_args_t          forward  = {.qkv       = memory[0],
                                              .sequences = 2,
                                              .length    = 3,
                                              .heads     = 2,
                                              .channels  = 8,
                                              .y         = memory[1],
                                              .log_sum   = memory[2]};
    ddp_attention_backward_args_t backward = {.forward = forward, .dy = memory[3], .dqkv = memory[4]};

    open_watched(&bench, &log);
    ddp_assert_ok(ddp_op_attention(bench.stream, &forward));
    ddp_assert_ok(ddp_op_attention_backward(bench.stream, &backward));
    /* 2 sequences of 1 + 2 + 3 pairs, 8 channels, 2 products (then 5) */
    expect(&log, 0, "attention", "2 x 3, 2 heads of 4", 2 * 2 * 12 * 8, 4 * 6 * 8);
    expect(&log, 1, "attention_backward", "2 x 3, 2 heads of 4", 2 * 5 * 12 * 8, 7 * 6 * 8);
    bench_close(&bench);
}
END_TEST

START_TEST(a_head_has_three_products)
{
    bench_t                        bench;
    log_t                          log;
    int32_t                        labels[2] = {1, 0};
    ddp_loss_stats_t               stats;
    ddp_head_cross_entropy_args_t  head   = {.head         = {.x     = memory[0],
                                                              .w     = memory[1],
                                                              .rows  = 2,
                                                              .width = 3,
                                                              .vocab = 4,
                                                              .dx    = memory[2],
                                                              .dw    = memory[3]},
                                             .labels       = labels,
                                             .ignore_index = -1,
                                             .stats        = &stats};
    const ddp_head_logits_args_t   logits = {.head = head.head, .logits = memory[4]};
    const ddp_head_backward_args_t back   = {.head = head.head, .dlogits = memory[4]};

    open_watched(&bench, &log);
    ddp_assert_ok(ddp_op_head_cross_entropy(bench.stream, &head));
    expect(&log, 0, "head_cross_entropy", "2 x 3, 4 words", 3 * 2 * 24, 2 * 6 + 2 * 12);
    ddp_assert_ok(ddp_op_head_logits(bench.stream, &logits));
    expect(&log, 1, "head_logits", "2 x 3, 4 words", 2 * 24, 6 + 12 + 8);
    ddp_assert_ok(ddp_op_head_backward(bench.stream, &back));
    expect(&log, 2, "head_backward", "2 x 3, 4 words", 2 * 2 * 24, 2 * 6 + 2 * 12 + 8);
    bench_close(&bench);
}
END_TEST

START_TEST(other_operations_move_memory)
{
    bench_t               bench;
    log_t                 log;
    ddp_layer_norm_args_t norm  = {.x = memory[0], .rows = 2, .width = 3, .gamma = memory[1]};
    ddp_batch_norm_args_t batch = {.x = memory[0], .rows = 4, .c = 3, .gamma = memory[1]};

    norm.beta = batch.beta = memory[2];
    norm.y = batch.y = memory[3];
    batch.residual   = memory[4];
    open_watched(&bench, &log);
    ddp_assert_ok(ddp_op_layer_norm(bench.stream, &norm));
    ddp_assert_ok(ddp_op_batch_norm(bench.stream, &batch));
    ddp_assert_ok(ddp_op_axpy(bench.stream, 1.0F, memory[0], memory[1], 10));
    expect(&log, 0, "layer_norm", "2 x 3", 0, 12);
    expect(&log, 1, "batch_norm", "4 x 3", 0, 36);
    expect(&log, 2, "axpy", "10 x 1", 0, 30);
    bench_close(&bench);
}
END_TEST

static ddp_status_t wait_a_while(void *args)
{
    int          *calls = *(int **)args;
    const int64_t until = ddp_clock_ns() + 2 * DDP_NS_PER_MS;

    while (ddp_clock_ns() < until) {
    }
    return (*calls)++ == 0 ? DDP_IN_PROGRESS : DDP_OK;
}

typedef struct outer {
    ddp_device_t *device;
    ddp_stream_t *other;
    int          *calls;
} outer_t;

static ddp_status_t run_another_inside(void *args)
{
    outer_t     *outer = args;
    ddp_status_t status =
        ddp_stream_submit(outer->other, "inner", wait_a_while, &outer->calls, sizeof(int *));

    ddp_device_progress(outer->device);
    ddp_device_progress(outer->device);
    return status;
}

START_TEST(work_inside_of_work_is_counted_apart)
{
    bench_t       bench;
    log_t         log;
    ddp_stream_t *other = NULL;
    int           calls = 0;
    outer_t       outer;
    int64_t       inside = 0;

    open_watched(&bench, &log);
    ddp_assert_ok(ddp_stream_create(bench.device, "other", &other));
    outer = (outer_t){bench.device, other, &calls};
    ddp_assert_ok(ddp_stream_submit(bench.stream, "outer", run_another_inside, &outer, sizeof(outer)));
    ddp_assert_ok(ddp_stream_synchronize(bench.stream, -1));
    ck_assert_uint_eq(log.n, 3); /* inner twice, then outer */
    ck_assert_str_eq(log.seen[0].work, "inner");
    ck_assert_str_eq(log.seen[0].stream, "other");
    ck_assert(!log.seen[0].is_done && log.seen[1].is_done && !log.is_op[0]);
    ck_assert_str_eq(log.seen[2].work, "outer");
    for (size_t i = 0; i < 2; i++) {
        ck_assert_int_eq(log.seen[i].inner_ns, 0);
        ck_assert_int_ge(log.seen[i].end_ns - log.seen[i].start_ns, 2 * DDP_NS_PER_MS);
        inside += log.seen[i].end_ns - log.seen[i].start_ns;
    }
    ck_assert_int_eq(log.seen[2].inner_ns, inside);
    ck_assert_int_ge(log.seen[2].end_ns - log.seen[2].start_ns, inside);
    ddp_device_set_watch(bench.device, NULL, NULL);
    ddp_assert_ok(ddp_op_fill(bench.stream, memory[0], 10, 0.0F));
    ck_assert_uint_eq(log.n, 3);
    ddp_stream_destroy(&other);
    bench_close(&bench);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("watch");
    TCase *tcase = tcase_create("all");

    tcase_add_test(tcase, products_cost_two_operations_for_each_triple);
    tcase_add_test(tcase, a_convolution_costs_what_direct_would);
    tcase_add_test(tcase, attention_costs_the_half_below_the_diagonal);
    tcase_add_test(tcase, a_head_has_three_products);
    tcase_add_test(tcase, other_operations_move_memory);
    tcase_add_test(tcase, work_inside_of_work_is_counted_apart);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
