/* Softmax cross-entropy and the head of a language model on the CUDA device, against the cpu's. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/ops_seq.h"
#include "tests/cuda/both.h"
#include "tests/support/ddp_test.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof(*(array))))
#define IGNORED      (-7)
/* Of the largest result. */
#define LIMIT 2e-6
/* Sums of products of both signs cancel. */
#define SUM_LIMIT 1e-5

typedef struct sizes {
    size_t rows, classes, width;
} sizes_t;

/* Blocks of 32, 128 and 512 threads. */
static const sizes_t cases[] = {{7, 10, 5}, {5, 1, 3}, {3, 1030, 9}, {2, 9001, 4}, {33, 132, 16}, {0, 10, 4}};

static both_t draw_labels(support_t *s, const sizes_t *z)
{
    int32_t *labels = malloc((z->rows + 1) * sizeof(*labels));
    uint32_t random[4];
    both_t   both;

    for (size_t i = 0; i < z->rows; i++) {
        ddp_philox(6, (const uint32_t[4]){(uint32_t)i}, random);
        labels[i] = i % 5 == 3 ? IGNORED : (int32_t)(random[0] % z->classes);
    }
    both = both_bytes(s, labels, z->rows * sizeof(*labels));
    free(labels);
    return both;
}

static both_t draw_weights(support_t *s, size_t rows)
{
    both_t weights = both_floats(s, rows, 7);
    float *w       = weights.at[ON_CPU];

    for (size_t i = 0; i < rows; i++) {
        w[i] = fabsf(w[i]) * 2.0F;
    }
    ddp_assert_ok(ddp_stream_copy(s->on_cuda, weights.at[ON_CUDA], w, weights.bytes));
    return weights;
}

/* The first row's label gets the largest logit, so that something is correct. */
static void make_one_right(support_t *s, const sizes_t *z, const both_t *labels, both_t *logits)
{
    if (z->rows > 0) {
        ((float *)logits->at[ON_CPU])[*(const int32_t *)labels->at[ON_CPU]] = 2.0F;
        ddp_assert_ok(ddp_stream_copy(s->on_cuda, logits->at[ON_CUDA], logits->at[ON_CPU], logits->bytes));
    }
}

/* With weights or without; apart, in place, or without a gradient. */
START_TEST(cross_entropy_is_that_of_the_cpu)
{
    const sizes_t *z           = &cases[_i / 6];
    const bool     is_weighted = _i % 6 & 1;
    const int      to          = _i % 6 / 2;
    support_t      s;
    both_t         logits;
    both_t         labels;
    both_t         weights;
    both_t         dlogits;
    both_t         stats;

    support_open(&s);
    logits  = both_floats(&s, z->rows * z->classes, 1);
    dlogits = both_floats(&s, z->rows * z->classes, 0);
    stats   = both_floats(&s, 4, 0);
    labels  = draw_labels(&s, z);
    weights = draw_weights(&s, z->rows);
    make_one_right(&s, z, &labels, &logits);
    for (int side = 0; side < SIDES; side++) {
        const ddp_cross_entropy_args_t args = {.logits       = logits.at[side],
                                               .labels       = labels.at[side],
                                               .weights      = is_weighted ? weights.at[side] : NULL,
                                               .rows         = z->rows,
                                               .classes      = z->classes,
                                               .ignore_index = IGNORED,
                                               .dlogits      = to == 0   ? dlogits.at[side]
                                                               : to == 1 ? logits.at[side]
                                                                         : NULL,
                                               .stats        = stats.at[side]};

        ddp_assert_ok(ddp_op_cross_entropy(both_stream(&s, side), &args));
    }
    both_assert_near(&s, &logits, LIMIT, "logits");
    both_assert_near(&s, &dlogits, LIMIT, "dlogits");
    both_assert_near(&s, &stats, LIMIT, "stats");
    both_free(&logits), both_free(&dlogits), both_free(&stats), both_free(&labels), both_free(&weights);
    support_close(&s);
}
END_TEST

/* Large logits, equal ones (the first counts), one of -infinity, and what is no number: all of its row. */
START_TEST(odd_logits_give_what_the_cpu_gives)
{
    enum { ROWS = 6, CLASSES = 40 };
    static const int32_t label[ROWS] = {3, 0, 5, 1, 2, 4};
    support_t            s;
    both_t               logits;
    both_t               labels;
    both_t               stats;
    float                x[ROWS][CLASSES];
    float                d[ROWS][CLASSES];
    float                sums[4];

    support_open(&s);
    support_fill(&x[0][0], ROWS * CLASSES, 4);
    x[0][3] = 1e4F;
    for (size_t j = 0; j < CLASSES; j++) {
        x[1][j] = -3e4F;
        x[2][j] = j == 5 || j == 20 ? 2.0F : 0.0F;
    }
    x[3][7]  = -INFINITY;
    x[4][39] = _i == 0 ? 0.0F : NAN;
    x[5][2]  = _i == 0 ? 0.0F : INFINITY;
    logits   = both_bytes(&s, x, sizeof(x));
    labels   = both_bytes(&s, label, sizeof(label));
    stats    = both_floats(&s, 4, 0);
    for (int side = 0; side < SIDES; side++) {
        const ddp_cross_entropy_args_t args = {.logits       = logits.at[side],
                                               .labels       = labels.at[side],
                                               .rows         = ROWS,
                                               .classes      = CLASSES,
                                               .ignore_index = IGNORED,
                                               .dlogits      = logits.at[side],
                                               .stats        = stats.at[side]};

        ddp_assert_ok(ddp_op_cross_entropy(both_stream(&s, side), &args));
    }
    support_download(&s, d, logits.at[ON_CUDA], sizeof(d));
    support_download(&s, sums, stats.at[ON_CUDA], sizeof(sums));
    for (size_t i = 0; i < ROWS * CLASSES; i++) {
        const float expected = ((const float *)logits.at[ON_CPU])[i];

        ck_assert(isnan((&d[0][0])[i]) == isnan(expected));
        ck_assert(isnan(expected) || fabsf((&d[0][0])[i] - expected) < 1e-6F);
        ck_assert(isnan(expected) == (_i == 1 && i >= 4 * CLASSES));
    }
    for (size_t k = 0; k < 4; k++) {
        const float expected = ((const float *)stats.at[ON_CPU])[k];

        ck_assert(isnan(sums[k]) == isnan(expected) && (isnan(expected) || sums[k] == expected ||
                                                        fabsf(sums[k] - expected) < 1e-6F * fabsf(expected)));
    }
    both_free(&logits), both_free(&labels), both_free(&stats);
    support_close(&s);
}
END_TEST

static const sizes_t heads[] = {{7, 11, 5}, {3, 132, 16}, {1, 1, 1}, {1030, 9, 4}, {0, 10, 4}};

typedef struct head_run {
    support_t s;
    both_t    x, w, labels, weights, dx, dw, stats;
} head_run_t;

static void head_open(head_run_t *r, const sizes_t *z, bool accumulate)
{
    support_open(&r->s);
    r->x       = both_floats(&r->s, z->rows * z->width, 1);
    r->w       = both_floats(&r->s, z->classes * z->width, 2);
    r->dx      = both_floats(&r->s, z->rows * z->width, accumulate ? 3 : 0);
    r->dw      = both_floats(&r->s, z->classes * z->width, accumulate ? 4 : 0);
    r->stats   = both_floats(&r->s, 4, 0);
    r->labels  = draw_labels(&r->s, z);
    r->weights = draw_weights(&r->s, z->rows);
}

static void head_close(head_run_t *r)
{
    both_free(&r->x), both_free(&r->w), both_free(&r->dx), both_free(&r->dw), both_free(&r->stats);
    both_free(&r->labels), both_free(&r->weights);
    support_close(&r->s);
}

static ddp_head_cross_entropy_args_t head_args(const head_run_t *r, const sizes_t *z, int side,
                                               bool accumulate, ddp_precision_t precision)
{
    return (ddp_head_cross_entropy_args_t){.head         = {.x             = r->x.at[side],
                                                            .w             = r->w.at[side],
                                                            .rows          = z->rows,
                                                            .width         = z->width,
                                                            .vocab         = z->classes,
                                                            .dx            = r->dx.at[side],
                                                            .dw            = r->dw.at[side],
                                                            .accumulate_dx = accumulate,
                                                            .accumulate_dw = accumulate,
                                                            .precision     = precision},
                                           .labels       = r->labels.at[side],
                                           .weights      = r->weights.at[side],
                                           .ignore_index = IGNORED,
                                           .stats        = r->stats.at[side]};
}

/* Fresh, accumulating, without gradients, in bfloat16, and with a multiplied loss. */
#define HEAD_FORMS 5
START_TEST(a_head_with_its_loss_is_that_of_the_cpu)
{
    const sizes_t *z       = &heads[_i / HEAD_FORMS];
    const int      form    = _i % HEAD_FORMS;
    const bool     is_half = form == 3;
    head_run_t     r;

    head_open(&r, z, form == 1);
    for (int side = 0; side < SIDES; side++) {
        ddp_head_cross_entropy_args_t args =
            head_args(&r, z, side, form == 1, is_half ? DDP_PRECISION_BF16 : DDP_PRECISION_FLOAT32);

        args.grad_scale = form == 4 ? 8.0F : 0.0F;
        if (form == 2) {
            args.head.dx = NULL;
            args.head.dw = NULL;
        }
        ddp_assert_ok(ddp_op_head_cross_entropy(both_stream(&r.s, side), &args));
    }
    both_assert_near(&r.s, &r.stats, SUM_LIMIT, "stats");
    both_assert_near(&r.s, &r.dx, is_half ? 4e-3 : SUM_LIMIT, "dx"); /* gradients are rounded, too */
    both_assert_near(&r.s, &r.dw, is_half ? 4e-3 : SUM_LIMIT, "dw");
    head_close(&r);
}
END_TEST

/* Logits, loss and gradients in three calls have the bits of the one. */
START_TEST(a_head_in_three_calls_has_the_bits_of_one)
{
    const sizes_t *z = &heads[_i];
    head_run_t     one;
    head_run_t     three;
    both_t         logits;

    head_open(&one, z, false);
    head_open(&three, z, false);
    logits = both_floats(&three.s, z->rows * z->classes, 0);
    {
        const ddp_head_cross_entropy_args_t args = head_args(&one, z, ON_CUDA, false, DDP_PRECISION_FLOAT32);
        const ddp_head_cross_entropy_args_t same =
            head_args(&three, z, ON_CUDA, false, DDP_PRECISION_FLOAT32);
        const ddp_head_logits_args_t   make = {same.head, logits.at[ON_CUDA]};
        const ddp_head_backward_args_t back = {same.head, logits.at[ON_CUDA]};
        const ddp_cross_entropy_args_t loss = {.logits       = logits.at[ON_CUDA],
                                               .labels       = same.labels,
                                               .weights      = same.weights,
                                               .rows         = z->rows,
                                               .classes      = z->classes,
                                               .ignore_index = IGNORED,
                                               .dlogits      = logits.at[ON_CUDA],
                                               .stats        = same.stats};

        ddp_assert_ok(ddp_op_head_cross_entropy(one.s.on_cuda, &args));
        ddp_assert_ok(ddp_op_head_logits(three.s.on_cuda, &make));
        ddp_assert_ok(ddp_op_cross_entropy(three.s.on_cuda, &loss));
        ddp_assert_ok(ddp_op_head_backward(three.s.on_cuda, &back));
    }
    support_download(&one.s, three.dw.at[ON_CPU], one.dw.at[ON_CUDA], one.dw.bytes);
    support_download(&one.s, three.dx.at[ON_CPU], one.dx.at[ON_CUDA], one.dx.bytes);
    support_download(&one.s, three.stats.at[ON_CPU], one.stats.at[ON_CUDA], one.stats.bytes);
    both_assert_same(&three.s, &three.dw, "dw");
    both_assert_same(&three.s, &three.dx, "dx");
    both_assert_same(&three.s, &three.stats, "stats");
    both_free(&logits);
    head_close(&one);
    head_close(&three);
}
END_TEST

/* What a dry device says of the operation. */
static ddp_scratch_t dry_scratch(const ddp_head_cross_entropy_args_t *args)
{
    ddp_device_params_t params = DDP_DEVICE_PARAMS_INIT;
    ddp_device_t       *device = NULL;
    ddp_stream_t       *stream = NULL;
    ddp_scratch_t       scratch;

    params.kind = DDP_DEVICE_CUDA;
    params.dry  = true;
    ddp_assert_ok(ddp_device_create(&params, &device));
    ddp_assert_ok(ddp_stream_create(device, "dry", &stream));
    ddp_assert_ok(ddp_op_head_cross_entropy(stream, args));
    scratch = ddp_device_dry_scratch(device);
    ck_assert_uint_eq(ddp_kernel_scratch_bytes(device, 0), scratch.op + scratch.product);
    ddp_stream_destroy(&stream);
    ddp_device_destroy(&device);
    return scratch;
}

/* What was reserved is enough: the steps take no memory. In half precision products have scratch too. */
START_TEST(a_reserved_operation_takes_no_memory)
{
    const ddp_precision_t         precision = _i == 0 ? DDP_PRECISION_FLOAT32 : DDP_PRECISION_BF16;
    const sizes_t                 z         = {40, 300, 8};
    head_run_t                    r;
    ddp_head_cross_entropy_args_t args;
    ddp_scratch_t                 scratch;
    size_t                        held = 0;

    head_open(&r, &z, false);
    args    = head_args(&r, &z, ON_CUDA, false, precision);
    scratch = dry_scratch(&args);
    held    = ddp_device_memory(r.s.cuda).held;
    ddp_assert_ok(ddp_stream_reserve(r.s.on_cuda, &scratch));
    ck_assert_uint_eq(ddp_device_memory(r.s.cuda).held, held + scratch.op + scratch.product);
    held = ddp_device_memory(r.s.cuda).held;
    ck_assert_int_eq(setenv("DDP_CUDA_SCRATCH", "fixed", 1), 0);
    for (int step = 0; step < 3; step++) {
        ddp_assert_ok(ddp_op_head_cross_entropy(r.s.on_cuda, &args));
        ck_assert_uint_eq(ddp_device_memory(r.s.cuda).held, held);
    }
    ck_assert_int_eq(unsetenv("DDP_CUDA_SCRATCH"), 0);
    head_close(&r);
}
END_TEST

/* What was not reserved is an error for tests that ask for it; else it is taken, and the old memory stays. */
START_TEST(scratch_that_was_not_reserved_grows_without_giving_back)
{
    const sizes_t                 z      = {40, 300, 8};
    const ddp_scratch_t           little = {.op = 4096};
    head_run_t                    r;
    ddp_head_cross_entropy_args_t args;
    size_t                        held;

    head_open(&r, &z, false);
    args = head_args(&r, &z, ON_CUDA, false, DDP_PRECISION_FLOAT32);
    ddp_assert_ok(ddp_stream_reserve(r.s.on_cuda, &little));
    held = ddp_device_memory(r.s.cuda).held;
    ck_assert_int_eq(setenv("DDP_CUDA_SCRATCH", "fixed", 1), 0);
    ddp_assert_fails(ddp_op_head_cross_entropy(r.s.on_cuda, &args), DDP_ERR_STATE,
                     "scratch of kernels: 49280 bytes are needed, 4096 were reserved");
    ck_assert_int_eq(unsetenv("DDP_CUDA_SCRATCH"), 0);
    ddp_assert_ok(ddp_op_head_cross_entropy(r.s.on_cuda, &args));
    ck_assert_uint_ge(ddp_device_memory(r.s.cuda).held, held + 49280);
    held = ddp_device_memory(r.s.cuda).held;
    ddp_assert_ok(ddp_op_head_cross_entropy(r.s.on_cuda, &args));
    ck_assert_uint_eq(ddp_device_memory(r.s.cuda).held, held);
    head_close(&r);
}
END_TEST

START_TEST(a_wrong_label_gives_the_line_of_the_cpu)
{
    const sizes_t z = {5, 11, 3};
    head_run_t    r;
    char          line[DDP_ERROR_LINE_SIZE] = "";

    head_open(&r, &z, false);
    for (int side = 0; side < SIDES; side++) {
        const ddp_head_cross_entropy_args_t args   = head_args(&r, &z, side, false, DDP_PRECISION_FLOAT32);
        int32_t                            *labels = r.labels.at[ON_CPU];
        ddp_status_t                        status;

        labels[3] = 11;
        labels[4] = -1;
        ddp_assert_ok(side == ON_CPU ? DDP_OK : ddp_stream_copy(r.s.on_cuda, r.labels.at[side], labels, 20));
        status = ddp_op_head_cross_entropy(both_stream(&r.s, side), &args);
        status = status == DDP_OK ? ddp_stream_synchronize(both_stream(&r.s, side), -1) : status;
        ck_assert_int_eq(status, DDP_ERR_INVALID_ARG);
        if (side == ON_CPU) {
            (void)snprintf(line, sizeof(line), "%s", ddp_error_line());
        }
        ck_assert_str_eq(ddp_error_line(), line);
    }
    ck_assert_str_eq(line, "label of row 3 is 11: not in 0 .. 10 and not ignore_index -7");
    r.s.n_buffers = 0; /* copies would be told of the fault again */
    ddp_device_keep_memory(r.s.cuda);
    head_close(&r);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cuda head");
    TCase *tc    = tcase_create("head");

    tcase_add_loop_test(tc, cross_entropy_is_that_of_the_cpu, 0, 6 * COUNT(cases));
    tcase_add_loop_test(tc, odd_logits_give_what_the_cpu_gives, 0, 2);
    tcase_add_loop_test(tc, a_head_with_its_loss_is_that_of_the_cpu, 0, HEAD_FORMS * COUNT(heads));
    tcase_add_loop_test(tc, a_head_in_three_calls_has_the_bits_of_one, 0, COUNT(heads));
    tcase_add_test(tc, scratch_that_was_not_reserved_grows_without_giving_back);
    tcase_add_loop_test(tc, a_reserved_operation_takes_no_memory, 0, 2);
    tcase_add_test(tc, a_wrong_label_gives_the_line_of_the_cpu);
    suite_add_tcase(suite, tc);
    return ddp_test_run(suite);
}
