/* Operations that come again and again as CUDA graphs: the same bits as one by one, in the same order with
 * what else the stream does, and nothing baked in that changes. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/layout.h"
#include "kernels/ops_seq.h"
#include "kernels/rounded.h"
#include "tests/cuda/support.h"
#include "tests/support/ddp_test.h"

#define COUNT  100
#define ROUNDS 5
#define PIECE  4 /* operations of run_piece() */

static support_t s;
static float    *d_x, *d_y;
static float     zeros[COUNT], got[COUNT];

/* x = value, y = (y + x) / 2 + 2 x: exact for small numbers. */
static void run_piece(float value)
{
    ddp_assert_ok(ddp_op_fill(s.on_cuda, d_x, COUNT, value));
    ddp_assert_ok(ddp_op_axpy(s.on_cuda, 1.0F, d_x, d_y, COUNT));
    ddp_assert_ok(ddp_op_scale(s.on_cuda, 0.5F, d_y, COUNT));
    ddp_assert_ok(ddp_op_axpy(s.on_cuda, 2.0F, d_x, d_y, COUNT));
}

static float after_piece(float y, float value)
{
    return (y + value) / 2 + 2 * value;
}

static void assert_y(float wanted)
{
    support_download(&s, got, d_y, sizeof(got));
    ck_assert_float_eq(got[0], wanted);
    ck_assert_float_eq(got[COUNT - 1], wanted);
}

START_TEST(what_comes_again_is_captured_and_launched)
{
    float               y = 0;
    ddp_graphs_report_t report;

    for (int i = 0; i < ROUNDS; i++) {
        run_piece(4.0F);
        y = after_piece(y, 4.0F);
        assert_y(y);
    }
    report = ddp_stream_graphs(s.on_cuda);
    ck_assert_uint_eq(report.graphs, 1);
    ck_assert_uint_eq(report.launches, ROUNDS - 1);
    ck_assert_uint_eq(report.launched, PIECE * (ROUNDS - 1));
    ck_assert_uint_eq(report.single, PIECE);
}
END_TEST

START_TEST(an_argument_that_changes_is_never_an_old_one)
{
    float               y = 0;
    ddp_graphs_report_t report;

    for (int round = 0; round < 3; round++) { /* new, seen, kept */
        for (int i = 0; i < ROUNDS; i++) {
            run_piece((float)i);
            y = after_piece(y, (float)i);
        }
        assert_y(y);
        report = ddp_stream_graphs(s.on_cuda);
        ck_assert_uint_eq(report.graphs, round == 0 ? 0 : 1);
        y = 0;
        ddp_assert_ok(ddp_stream_copy(s.on_cuda, d_y, zeros, sizeof(zeros)));
        ddp_assert_ok(ddp_stream_synchronize(s.on_cuda, -1));
    }
    ck_assert_uint_eq(report.launches, 2);
}
END_TEST

START_TEST(few_operations_run_one_by_one)
{
    for (int i = 0; i < ROUNDS; i++) {
        ddp_assert_ok(ddp_op_fill(s.on_cuda, d_y, COUNT, 7.0F));
        assert_y(7.0F);
    }
    ck_assert_uint_eq(ddp_stream_graphs(s.on_cuda).graphs, 0);
    ck_assert_uint_eq(ddp_stream_graphs(s.on_cuda).single, ROUNDS);
}
END_TEST

/* An event, a copy, a wait and kernels that are no operations come after what was kept back, and before what
 * follows. */
START_TEST(all_else_is_in_order_with_what_is_kept)
{
    ddp_stream_t *other = NULL;
    ddp_event_t  *done  = NULL;
    ddp_event_t  *ready = NULL;
    float        *d_z   = support_upload(&s, zeros, sizeof(zeros));
    double       *d_sum = support_upload(&s, NULL, sizeof(double));
    double        sum   = 0;
    float         y     = 0;

    ddp_assert_ok(ddp_stream_create(s.cuda, "another", &other));
    ddp_assert_ok(ddp_event_create(s.cuda, &done));
    ddp_assert_ok(ddp_event_create(s.cuda, &ready));
    for (int i = 0; i < ROUNDS; i++) {
        run_piece(2.0F);
        y = after_piece(y, 2.0F);
        ddp_assert_ok(ddp_event_record(done, s.on_cuda));
        ddp_assert_ok(ddp_stream_wait_event(other, done));
        ddp_assert_ok(ddp_stream_copy(other, d_z, d_y, sizeof(zeros)));
        ddp_assert_ok(ddp_op_scale(other, 8.0F, d_z, COUNT));
        ddp_assert_ok(ddp_event_record(ready, other));
        ddp_assert_ok(ddp_stream_wait_event(s.on_cuda, ready)); /* y has been read */
        run_piece(3.0F);
        y = after_piece(y, 3.0F);
        ddp_assert_ok(ddp_op_sumsq(s.on_cuda, d_y, COUNT, d_sum));
        ddp_assert_ok(ddp_op_axpy(s.on_cuda, 1.0F, d_z, d_y, COUNT));
        support_download(&s, &sum, d_sum, sizeof(sum));
        ck_assert_double_eq(sum, COUNT * (double)y * (double)y);
        ddp_assert_ok(ddp_stream_copy(s.on_cuda, d_y, zeros, sizeof(zeros)));
        ddp_assert_ok(ddp_stream_synchronize(s.on_cuda, -1));
        y = 0;
    }
    ck_assert_uint_eq(ddp_stream_graphs(s.on_cuda).graphs, 2);
    ddp_event_destroy(&done);
    ddp_event_destroy(&ready);
    ddp_stream_destroy(&other);
}
END_TEST

/* One line says so, and the bits are the same. */
START_TEST(what_cannot_be_captured_runs_one_by_one)
{
    float y = 0;

    ck_assert_int_eq(setenv("CUSIM_CAPTURE_FAULT", "1", 1), 0);
    for (int i = 0; i < ROUNDS; i++) {
        run_piece(4.0F);
        y = after_piece(y, 4.0F);
        assert_y(y);
    }
    ck_assert_int_eq(unsetenv("CUSIM_CAPTURE_FAULT"), 0);
    ck_assert_uint_eq(ddp_stream_graphs(s.on_cuda).graphs, 0);
    ck_assert_uint_eq(ddp_stream_graphs(s.on_cuda).single, PIECE * ROUNDS);
}
END_TEST

START_TEST(no_more_graphs_are_made_than_are_kept)
{
    float y = 0;

    for (int i = 0; i < DDP_GRAPHS_MOST + 3; i++) {
        for (int again = 0; again < 2; again++) {
            run_piece((float)i);
            y = after_piece(y, (float)i);
            ddp_assert_ok(ddp_stream_synchronize(s.on_cuda, -1));
        }
    }
    support_download(&s, got, d_y, sizeof(got));
    ck_assert_float_eq_tol(got[0], y, 1e-3F * y); /* no longer exact */
    ck_assert_uint_eq(ddp_stream_graphs(s.on_cuda).graphs, DDP_GRAPHS_MOST);
}
END_TEST

/* What kernels note of their data is told as without graphs. */
START_TEST(a_wrong_label_is_told_by_a_graph_too)
{
    const int32_t                  good[2] = {0, 1};
    const int32_t                  bad[2]  = {0, 3};
    int32_t                       *labels  = support_upload(&s, good, sizeof(good));
    const ddp_cross_entropy_args_t args    = {.logits       = d_x,
                                              .labels       = labels,
                                              .rows         = 2,
                                              .classes      = 3,
                                              .ignore_index = -1,
                                              .stats = support_upload(&s, NULL, sizeof(ddp_loss_stats_t))};

    for (int i = 0; i < ROUNDS; i++) {
        if (i == ROUNDS - 1) {
            ddp_assert_ok(ddp_stream_copy(s.on_cuda, labels, bad, sizeof(bad)));
            ddp_assert_ok(ddp_stream_synchronize(s.on_cuda, -1));
        }
        for (int k = 0; k < PIECE; k++) {
            ddp_assert_ok(ddp_op_cross_entropy(s.on_cuda, &args));
        }
        if (i < ROUNDS - 1) {
            ddp_assert_ok(ddp_stream_synchronize(s.on_cuda, -1));
        }
    }
    ddp_assert_fails(ddp_stream_synchronize(s.on_cuda, -1), DDP_ERR_INVALID_ARG, "label of row 1 is 3");
    ck_assert_uint_eq(ddp_stream_graphs(s.on_cuda).launches, ROUNDS - 1);
    s.n_buffers = 0; /* copies would be told of the fault again */
    ddp_device_keep_memory(s.cuda);
}
END_TEST

#define DROPPED 650 /* elements of a row */
#define ROWS    3

/* The place is in memory: the piece is the same each time, and its numbers are not. */
START_TEST(dropout_reads_its_place_when_it_runs)
{
    static float       x[ROWS * DROPPED], wanted[ROWS * DROPPED], numbers[ROWS * DROPPED];
    ddp_rng_place_t   *place = support_upload(&s, NULL, sizeof(*place));
    ddp_dropout_args_t args  = {
         .rows = ROWS, .width = DROPPED, .first_row = 1, .p = 0.3F, .key = {.seed = 5, .step = 2, .layer = 3}};
    const ddp_dropout_args_t plain = args;

    support_fill(x, ROWS * DROPPED, 1);
    args.x         = support_upload(&s, x, sizeof(x));
    args.y         = support_upload(&s, NULL, sizeof(x));
    args.key.place = place;
    for (int i = 0; i < ROUNDS; i++) {
        const ddp_rng_place_t now    = {.step      = (uint64_t)0xfffffffd + (uint64_t)i,
                                        .first_row = 10 * (uint64_t)i};
        ddp_dropout_args_t    on_cpu = plain;

        on_cpu.x = x;
        on_cpu.y = wanted;
        on_cpu.first_row += now.first_row;
        on_cpu.key.step += now.step;
        ddp_assert_ok(ddp_op_dropout(s.on_cpu, &on_cpu));
        ddp_assert_ok(ddp_stream_synchronize(s.on_cpu, -1));
        ddp_assert_ok(ddp_stream_copy(s.on_cuda, place, &now, sizeof(now)));
        ddp_assert_ok(ddp_stream_synchronize(s.on_cuda, -1));
        for (int k = 0; k < PIECE; k++) {
            ddp_assert_ok(ddp_op_dropout(s.on_cuda, &args));
        }
        support_download(&s, numbers, args.y, sizeof(numbers));
        support_assert_same(numbers, wanted, sizeof(numbers), "dropout");
    }
    ck_assert_uint_eq(ddp_stream_graphs(s.on_cuda).launches, ROUNDS - 1);
    args.x = x;
    args.y = wanted;
    ddp_assert_fails(ddp_op_dropout(s.on_cpu, &args), DDP_ERR_UNSUPPORTED,
                     "dropout: a place in device memory is for cuda devices");
}
END_TEST

#define LENGTH   5
#define CHANNELS 8

static ddp_attention_backward_args_t attention_args(const float *qkv, const float *dy)
{
    const size_t bytes = 2 * LENGTH * CHANNELS * sizeof(float);

    return (ddp_attention_backward_args_t){
        .forward = {.qkv       = support_upload(&s, qkv, 3 * bytes),
                    .sequences = 2,
                    .length    = LENGTH,
                    .heads     = 2,
                    .channels  = CHANNELS,
                    .y         = support_upload(&s, NULL, bytes),
                    .log_sum   = support_upload(&s, NULL, 2 * 2 * LENGTH * sizeof(float)),
                    .dropout   = 0.4F,
                    .key       = {.seed = 5, .layer = 3}},
        .dy      = support_upload(&s, dy, bytes),
        .dqkv    = support_upload(&s, NULL, 3 * bytes)};
}

/* The same bits as with the place in the arguments. */
START_TEST(attention_reads_its_place_when_it_runs)
{
    static float     qkv[6 * LENGTH * CHANNELS], dy[2 * LENGTH * CHANNELS];
    static float     a[6 * LENGTH * CHANNELS], b[6 * LENGTH * CHANNELS], before[6 * LENGTH * CHANNELS];
    ddp_rng_place_t *place = support_upload(&s, NULL, sizeof(*place));
    ddp_attention_backward_args_t kept;
    ddp_attention_backward_args_t plain;

    support_fill(qkv, 6 * LENGTH * CHANNELS, 1);
    support_fill(dy, 2 * LENGTH * CHANNELS, 2);
    kept                   = attention_args(qkv, dy);
    plain                  = attention_args(qkv, dy);
    kept.forward.key.place = place;
    for (int i = 0; i < ROUNDS; i++) {
        const ddp_rng_place_t now = {.step = (uint64_t)i, .first_row = 2 * (uint64_t)i};

        plain.forward.key.step  = now.step;
        plain.forward.first_row = now.first_row;
        ddp_assert_ok(ddp_stream_copy(s.on_cuda, place, &now, sizeof(now)));
        ddp_assert_ok(ddp_stream_synchronize(s.on_cuda, -1));
        for (int k = 0; k < PIECE / 2; k++) {
            ddp_assert_ok(ddp_op_attention(s.on_cuda, &kept.forward));
            ddp_assert_ok(ddp_op_attention_backward(s.on_cuda, &kept));
        }
        support_download(&s, a, kept.dqkv, sizeof(a));
        ddp_assert_ok(ddp_op_attention(s.on_cuda, &plain.forward));
        ddp_assert_ok(ddp_op_attention_backward(s.on_cuda, &plain));
        support_download(&s, b, plain.dqkv, sizeof(b));
        support_assert_same(a, b, sizeof(a), "gradients of attention");
        ck_assert(i == 0 || memcmp(a, before, sizeof(a)) != 0);
        memcpy(before, a, sizeof(a));
    }
    ck_assert_uint_eq(ddp_stream_graphs(s.on_cuda).launches, ROUNDS - 1);
}
END_TEST

#define SIDE 16 /* of square matrices: DDP_BLOCK numbers */

/* Products of parameters that lie rounded, and then do not: the arguments are the same, the pieces are not.
 */
START_TEST(a_graph_knows_whether_parameters_lie_rounded)
{
    static float    w[SIDE * SIDE], x[SIDE * SIDE], wanted[SIDE * SIDE], product[SIDE * SIDE];
    float          *d_w    = NULL;
    float          *d_c    = support_upload(&s, NULL, sizeof(w));
    ddp_stream_t   *single = NULL;
    ddp_gemm_args_t args   = {.m         = SIDE,
                              .n         = SIDE,
                              .k         = SIDE,
                              .alpha     = 1.0F,
                              .c         = d_c,
                              .lda       = SIDE,
                              .ldb       = SIDE,
                              .ldc       = SIDE,
                              .precision = DDP_PRECISION_BF16};

    support_fill(w, SIDE * SIDE, 1);
    support_fill(x, SIDE * SIDE, 2);
    d_w    = support_upload(&s, w, sizeof(w));
    args.a = support_upload(&s, x, sizeof(x));
    args.b = d_w;
    ddp_assert_ok(ddp_stream_create(s.cuda, "without graphs", &single));
    ddp_assert_ok(ddp_rounded_open(s.cuda, d_w, SIDE * SIDE, DDP_PRECISION_BF16));
    memset(product, 0, sizeof(product));
    for (int i = 0; i < 3 * ROUNDS; i++) {
        ddp_assert_ok(ddp_op_gemm(single, &args));
        ddp_assert_ok(ddp_stream_synchronize(single, -1));
        support_download(&s, wanted, d_c, sizeof(wanted));
        if (i % 3 != 2) { /* twice rounded, then not */
            ddp_assert_ok(ddp_rounded_take(s.on_cuda));
        }
        for (int k = 0; k < PIECE; k++) {
            ddp_assert_ok(ddp_op_gemm(s.on_cuda, &args));
        }
        if (_i == 0) { /* the products have gone to the device, or are kept */
            support_download(&s, product, d_c, sizeof(product));
        }
        ddp_rounded_drop(s.cuda);
        ddp_assert_ok(ddp_op_scale(s.on_cuda, -1.5F, d_w, SIDE * SIDE)); /* too late for the products */
        ddp_assert_ok(ddp_stream_synchronize(s.on_cuda, -1));
        if (_i == 1) {
            support_download(&s, product, d_c, sizeof(product));
        }
        support_assert_same(product, wanted, sizeof(product), "a product");
    }
    ck_assert_uint_eq(ddp_stream_graphs(s.on_cuda).graphs, 2);
    ddp_rounded_close(s.cuda);
    ddp_stream_destroy(&single);
}
END_TEST

START_TEST(a_cpu_stream_has_no_graphs)
{
    ddp_assert_ok(ddp_stream_use_graphs(s.on_cpu));
    ck_assert(!ddp_stream_has_graphs(s.on_cpu));
    ck_assert(ddp_stream_has_graphs(s.on_cuda));
    ck_assert_uint_eq(ddp_stream_graphs(s.on_cpu).launches, 0);
}
END_TEST

static void set_up(void)
{
    support_open(&s);
    ddp_assert_ok(ddp_stream_use_graphs(s.on_cuda));
    d_x = support_upload(&s, zeros, sizeof(zeros));
    d_y = support_upload(&s, zeros, sizeof(zeros));
}

static void tear_down(void)
{
    support_close(&s);
}

int main(void)
{
    Suite *suite = suite_create("graphs");
    TCase *tcase = tcase_create("core");

    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, what_comes_again_is_captured_and_launched);
    tcase_add_test(tcase, an_argument_that_changes_is_never_an_old_one);
    tcase_add_test(tcase, few_operations_run_one_by_one);
    tcase_add_test(tcase, all_else_is_in_order_with_what_is_kept);
    tcase_add_test(tcase, what_cannot_be_captured_runs_one_by_one);
    tcase_add_test(tcase, no_more_graphs_are_made_than_are_kept);
    tcase_add_test(tcase, a_wrong_label_is_told_by_a_graph_too);
    tcase_add_test(tcase, dropout_reads_its_place_when_it_runs);
    tcase_add_test(tcase, attention_reads_its_place_when_it_runs);
    tcase_add_loop_test(tcase, a_graph_knows_whether_parameters_lie_rounded, 0, 2);
    tcase_add_test(tcase, a_cpu_stream_has_no_graphs);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
