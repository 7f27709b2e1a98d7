/* Parameters that stay rounded for a step: the same bits, fewer conversions, and never those of a step
 * before. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "ddp/trainer.h"
#include "kernels/layout.h"
#include "kernels/rounded.h"
#include "nn/model.h"
#include "nn/tape.h"
#include "tests/cuda/support.h"
#include "tests/cusim/counts.h"
#include "tests/support/ddp_test.h"

#define COUNT 2048 /* of parameters, whole blocks */
#define MOST  4096 /* of what they are multiplied by, and of a result */
#define CASTS "cast_kernel"

static float values[COUNT], other[MOST], results[2][MOST];

/* A matrix of parameters at `at`, multiplied by another one. */
typedef struct product_case {
    bool   is_a, transpose_a, transpose_b;
    size_t m, n, k, at, more; /* `more`: what ld is beyond the columns */
    bool   is_kept;           /* products read it rounded */
} product_case_t;

static const product_case_t cases[] = {
    {false, false, false, 9, 24, 40, 0, 0, true},   {false, false, true, 9, 24, 40, 256, 0, true},
    {true, false, false, 24, 7, 40, 512, 0, true},  {true, true, false, 24, 7, 40, 8, 0, true},
    {false, false, true, 1, 51, 8, 1640, 0, true}, /* to the last one */
    {false, false, true, 9, 24, 41, 0, 0, false},  /* its rows have no multiple of 8 */
    {false, false, true, 9, 24, 40, 256, 8, false}, {false, false, true, 9, 24, 40, 4, 0, false},
};
#define CASES ((int)(sizeof(cases) / sizeof(cases[0])))

typedef struct place {
    support_t s;
    float    *values, *other, *result; /* of the device */
} place_t;

static void open_place(place_t *p, ddp_precision_t precision)
{
    memset(p, 0, sizeof(*p));
    support_open(&p->s);
    support_fill(values, COUNT, 1);
    support_fill(other, MOST, 2);
    p->values = support_upload(&p->s, values, sizeof(values));
    p->other  = support_upload(&p->s, other, sizeof(other));
    p->result = support_upload(&p->s, NULL, sizeof(results[0]));
    ddp_assert_ok(ddp_rounded_open(p->s.cuda, p->values, COUNT, precision));
}

static void close_place(place_t *p)
{
    ddp_rounded_close(p->s.cuda);
    support_close(&p->s);
}

/* @return how often numbers were converted for it */
static size_t multiply(place_t *p, const product_case_t *c, ddp_precision_t precision, float *result)
{
    const size_t    before = cusim_launches(CASTS);
    ddp_gemm_args_t args   = {.transpose_a = c->transpose_a,
                              .transpose_b = c->transpose_b,
                              .m           = c->m,
                              .n           = c->n,
                              .k           = c->k,
                              .alpha       = 1.0F,
                              .a           = c->is_a ? p->values + c->at : p->other,
                              .b           = c->is_a ? p->other : p->values + c->at,
                              .c           = p->result,
                              .lda         = c->transpose_a ? c->m : c->k,
                              .ldb         = c->transpose_b ? c->k : c->n,
                              .ldc         = c->n,
                              .precision   = precision};

    args.lda += c->is_a ? c->more : 0;
    args.ldb += c->is_a ? 0 : c->more;
    ddp_assert_ok(ddp_op_gemm(p->s.on_cuda, &args));
    support_download(&p->s, result, p->result, c->m * c->n * sizeof(float));
    return cusim_launches(CASTS) - before;
}

START_TEST(products_have_the_same_bits_and_convert_less)
{
    const ddp_precision_t precisions[] = {DDP_PRECISION_BF16, DDP_PRECISION_FP16};
    const ddp_precision_t precision    = precisions[_i / CASES];
    const product_case_t *c            = &cases[_i % CASES];
    place_t               p;

    open_place(&p, precision);
    ck_assert_uint_eq(multiply(&p, c, precision, results[0]), 2);
    ddp_assert_ok(ddp_rounded_take(p.s.on_cuda));
    ck_assert_uint_eq(multiply(&p, c, precision, results[1]), c->is_kept ? 1 : 2);
    support_assert_same(results[1], results[0], c->m * c->n * sizeof(float), "a product");
    ck_assert_uint_eq(multiply(&p, c, DDP_PRECISION_FLOAT32, results[1]), 0);
    ck_assert_int_ne(memcmp(results[1], results[0], c->m * c->n * sizeof(float)), 0);
    close_place(&p);
}
END_TEST

START_TEST(what_has_changed_is_rounded_anew)
{
    const product_case_t *c = &cases[0];
    place_t               p;

    open_place(&p, DDP_PRECISION_BF16);
    ddp_assert_ok(ddp_rounded_take(p.s.on_cuda));
    (void)multiply(&p, c, DDP_PRECISION_BF16, results[0]);
    ddp_rounded_drop(p.s.cuda);
    ddp_assert_ok(ddp_op_scale(p.s.on_cuda, -2.0F, p.values, COUNT));
    for (int i = 0; i < 2; i++) { /* by itself, and kept again */
        ck_assert_uint_eq(multiply(&p, c, DDP_PRECISION_BF16, results[1]), i == 0 ? 2 : 1);
        for (size_t j = 0; j < c->m * c->n; j++) {
            ck_assert(results[1][j] == -2.0F * results[0][j]);
        }
        ddp_assert_ok(ddp_rounded_take(p.s.on_cuda));
    }
    close_place(&p);
}
END_TEST

/* Nothing orders its work behind the rounding. */
START_TEST(another_stream_rounds_for_itself)
{
    place_t       p;
    ddp_stream_t *mine = NULL;

    open_place(&p, DDP_PRECISION_BF16);
    (void)multiply(&p, &cases[0], DDP_PRECISION_BF16, results[0]);
    ddp_assert_ok(ddp_stream_create(p.s.cuda, "another", &mine));
    ddp_assert_ok(ddp_rounded_take(mine));
    ck_assert_uint_eq(multiply(&p, &cases[0], DDP_PRECISION_BF16, results[1]), 2);
    ddp_assert_ok(ddp_stream_synchronize(mine, -1));
    ddp_stream_destroy(&mine);
    close_place(&p);
}
END_TEST

START_TEST(precisions_that_do_not_round_keep_nothing)
{
    place_t      p;
    const size_t before = cusim_launches(CASTS);

    ck_assert_uint_eq(ddp_rounded_bytes(DDP_DEVICE_CUDA, DDP_PRECISION_BF16, COUNT), 2 * COUNT);
    ck_assert_uint_eq(ddp_rounded_bytes(DDP_DEVICE_CUDA, DDP_PRECISION_TF32, COUNT), 0);
    ck_assert_uint_eq(ddp_rounded_bytes(DDP_DEVICE_CPU, DDP_PRECISION_BF16, COUNT), 0);
    open_place(&p, DDP_PRECISION_FLOAT32);
    ddp_assert_ok(ddp_rounded_take(p.s.on_cuda));
    ck_assert_uint_eq(cusim_launches(CASTS), before);
    ddp_assert_ok(ddp_rounded_open(p.s.cpu, values, COUNT, DDP_PRECISION_BF16));
    ddp_assert_ok(ddp_rounded_take(p.s.on_cpu));
    ddp_rounded_close(p.s.cpu);
    ddp_assert_ok(ddp_rounded_open(p.s.cuda, p.values, COUNT, DDP_PRECISION_FP16));
    ddp_assert_fails(ddp_rounded_open(p.s.cuda, p.values, COUNT, DDP_PRECISION_FP16), DDP_ERR_STATE,
                     "rounded already");
    ddp_assert_fails(ddp_rounded_open(p.s.cuda, p.values, COUNT - 1, DDP_PRECISION_FP16), DDP_ERR_INVALID_ARG,
                     "no whole blocks");
    close_place(&p);
}
END_TEST

#define WIDTH         16
#define LAYERS        3
#define SAMPLES       12
#define MICRO_BATCHES 4

/* A perceptron whose layers all have a multiple of 8 inputs. */
typedef struct job {
    ddp_model_t *model;
    float        x[SAMPLES][WIDTH];
    int32_t      labels[SAMPLES];
} job_t;

static ddp_status_t classify(void *ctx, ddp_tape_t *tape, const ddp_micro_t *micro,
                             ddp_loss_stats_t **stats_p)
{
    job_t        *job    = ctx;
    ddp_status_t  status = DDP_OK;
    ddp_tensor_t *x      = NULL;
    const void   *inputs = NULL;
    const void   *labels = NULL;

    DDP_TRY(ddp_tape_upload(tape, job->x[micro->first_row], micro->n * sizeof(job->x[0]), &inputs));
    DDP_TRY(ddp_tape_upload(tape, job->labels + micro->first_row, micro->n * sizeof(int32_t), &labels));
    DDP_TRY(ddp_tape_input(tape, inputs, 4, (size_t[]){micro->n, 1, WIDTH, 1}, &x));
    DDP_TRY(ddp_model_forward(job->model, tape, x, &x));
    DDP_TRY(ddp_nn_cross_entropy(tape, x, labels, NULL, -100, stats_p));
out:
    return status;
}

/* Three steps. @return conversions in the last one */
static size_t train(ddp_precision_t rounded, float *weights, size_t *count_p)
{
    const ddp_model_config_t config  = {.kind     = DDP_MODEL_MLP,
                                        .height   = 1,
                                        .width    = WIDTH,
                                        .channels = 1,
                                        .classes  = 5,
                                        .n_hidden = LAYERS - 1,
                                        .hidden   = {24, 32}};
    ddp_comm_params_t        alone   = DDP_COMM_PARAMS_INIT;
    ddp_trainer_params_t     setup   = DDP_TRAINER_PARAMS_INIT;
    ddp_trainer_t           *trainer = NULL;
    ddp_params_t            *params  = NULL;
    ddp_comm_t              *comm    = NULL;
    job_t                    job     = {.model = NULL};
    support_t                s;
    ddp_step_result_t        result;
    size_t                   casts = 0;

    support_open(&s);
    alone.alone = true;
    ddp_assert_ok(ddp_comm_create(&alone, &comm));
    ddp_assert_ok(ddp_params_create(&params));
    ddp_assert_ok(ddp_model_create(&config, params, &job.model));
    support_fill(job.x[0], SAMPLES * WIDTH, 3);
    for (int i = 0; i < SAMPLES; i++) {
        job.labels[i] = i % 5;
    }
    setup.params                = params;
    setup.forward               = classify;
    setup.ctx                   = &job;
    setup.rounded               = rounded;
    setup.reducer.comm          = comm;
    setup.reducer.compute       = s.on_cuda;
    setup.reducer.micro_batches = MICRO_BATCHES;
    setup.reducer.backend       = DDP_REDUCER_NCCL;
    ddp_assert_ok(ddp_trainer_create(&setup, &trainer));
    ddp_tape_set_precision(ddp_trainer_tape(trainer), DDP_PRECISION_BF16);
    for (int step = 0; step < 3; step++) {
        casts = cusim_launches(CASTS);
        ddp_assert_ok(ddp_trainer_step(trainer, &(ddp_step_t){.lr = 0.01F, .samples = SAMPLES}, &result));
        casts = cusim_launches(CASTS) - casts;
    }
    ddp_assert_ok(ddp_reducer_finish(ddp_trainer_reducer(trainer)));
    *count_p = ddp_params_total(params);
    ck_assert_uint_le(*count_p, MOST);
    support_download(&s, weights, ddp_reducer_values(ddp_trainer_reducer(trainer)), *count_p * sizeof(float));
    ddp_trainer_destroy(&trainer);
    ddp_model_destroy(&job.model);
    ddp_params_destroy(&params);
    ddp_comm_destroy(&comm);
    support_close(&s);
    return casts;
}

/* Of a micro-batch, a layer converts its input in forward, and its output's gradient twice and its input once
 * in backward; the first one needs no gradient of its input, which saves one. The weights come on top: in
 * each product with them, or once in all. */
START_TEST(a_step_rounds_its_parameters_once)
{
    const size_t activations = MICRO_BATCHES * (LAYERS + 2 * LAYERS + LAYERS - 1);
    const size_t weights     = MICRO_BATCHES * (LAYERS + LAYERS - 1);
    size_t       count       = 0;

    ck_assert_uint_eq(train(DDP_PRECISION_FLOAT32, results[0], &count), activations + weights);
    ck_assert_uint_eq(train(DDP_PRECISION_BF16, results[1], &count), activations + 1);
    support_assert_same(results[1], results[0], count * sizeof(float), "trained parameters");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cuda rounded");
    TCase *tcase = tcase_create("parameters");

    tcase_add_loop_test(tcase, products_have_the_same_bits_and_convert_less, 0, 2 * CASES);
    tcase_add_test(tcase, what_has_changed_is_rounded_anew);
    tcase_add_test(tcase, another_stream_rounds_for_itself);
    tcase_add_test(tcase, precisions_that_do_not_round_keep_nothing);
    tcase_add_test(tcase, a_step_rounds_its_parameters_once);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
