/* Token by token against the logits of PyTorch (tests/data/make_gpt2.py), and against the whole sequence. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "nn/decode.h"
#include "tests/nn/nn_values.h"
#include "tests/support/ddp_test.h"

#define N     3
#define T     24
#define VOCAB 61

static const ddp_model_config_t config = {
    .kind = DDP_MODEL_GPT2, .channels = 32, .layers = 2, .heads = 2, .context = T, .vocab = VOCAB};

static void read_file(void)
{
    nn_values_open(DDP_TEST_DATA_DIR "/gpt2.bin");
}

typedef struct run {
    nn_world_t     world;
    ddp_model_t   *model;
    ddp_decoder_t *decoder;
    int32_t       *tokens; /* [N, T] */
    double        *wanted; /* [N, T, VOCAB], by PyTorch */
    float          logits[VOCAB + 1];
} run_t;

static void open_run(run_t *run, int isa)
{
    nn_world_open(&run->world, (ddp_isa_t)isa);
    ddp_assert_ok(ddp_model_create(&config, run->world.params, &run->model));
    nn_world_start(&run->world, 1);
    nn_world_wait(&run->world);
    run->tokens = nn_values_load("", "tokens", NN_INT32, (size_t)10 * N * T);
    run->wanted = nn_values_load("", "logits", NN_FLOAT64, (size_t)N * T * VOCAB);
    for (size_t i = 0; i < ddp_params_count(run->world.params); i++) {
        const ddp_tensor_desc_t *desc  = &ddp_params_descs(run->world.params)[i];
        float                   *start = nn_values_load("start.", desc->name, NN_FLOAT32, desc->count);

        memcpy(ddp_params_value(run->world.params, i), start, desc->count * sizeof(float));
        free(start);
    }
    run->decoder = NULL;
    ddp_assert_ok(ddp_decoder_create(run->model, run->world.params, run->world.stream, &run->decoder));
    run->logits[VOCAB] = 123.0F;
}

static void close_run(run_t *run)
{
    ck_assert(run->logits[VOCAB] == 123.0F);
    ddp_decoder_destroy(&run->decoder);
    free(run->tokens);
    free(run->wanted);
    ddp_model_destroy(&run->model);
    nn_world_close(&run->world);
}

/* The last token fed was token t of sequence s. */
static void assert_logits(const run_t *run, size_t s, size_t t)
{
    for (size_t i = 0; i < VOCAB; i++) {
        const double wanted = run->wanted[(s * T + t) * VOCAB + i];

        ck_assert_msg(fabs((double)run->logits[i] - wanted) <= 1e-5, "sequence %zu, token %zu: %g, not %g", s,
                      t, (double)run->logits[i], wanted);
    }
}

START_TEST(every_position_has_the_logits_of_pytorch)
{
    run_t run;

    open_run(&run, _i);
    for (size_t s = 0; s < N; s++) {
        ddp_decoder_reset(run.decoder);
        for (size_t t = 0; t < T; t++) {
            ddp_assert_ok(ddp_decoder_feed(run.decoder, run.tokens + s * T + t, 1, run.logits));
            ck_assert_uint_eq(ddp_decoder_length(run.decoder), t + 1);
            assert_logits(&run, s, t);
        }
    }
    close_run(&run);
}
END_TEST

START_TEST(a_prompt_of_any_length_and_parts_behind_it_change_nothing)
{
    run_t run;

    open_run(&run, _i);
    for (size_t prompt = 1; prompt <= T; prompt++) {
        ddp_decoder_reset(run.decoder);
        ddp_assert_ok(ddp_decoder_feed(run.decoder, run.tokens, prompt, run.logits));
        assert_logits(&run, 0, prompt - 1);
        for (size_t t = prompt; t < T; t += 3) {
            const size_t n = T - t < 3 ? T - t : 3;

            ddp_assert_ok(ddp_decoder_feed(run.decoder, run.tokens + t, n, t + n < T ? NULL : run.logits));
        }
        assert_logits(&run, 0, T - 1);
    }
    close_run(&run);
}
END_TEST

/* The logits behind `n` tokens as the whole model has them. */
static void whole(run_t *run, const int32_t *tokens, size_t n)
{
    const ddp_tape_begin_t begin  = {.training = false};
    ddp_tensor_t          *logits = NULL;

    ddp_assert_ok(ddp_tape_begin(run->world.tape, &begin));
    ddp_assert_ok(ddp_model_logits(run->model, run->world.tape, tokens, 1, n, &logits));
    nn_world_wait(&run->world);
    for (size_t i = 0; i < VOCAB; i++) {
        ck_assert_double_le(fabs((double)(run->logits[i] - logits->data[(n - 1) * VOCAB + i])), 1e-5);
    }
}

START_TEST(beyond_the_context_the_window_moves_by_half)
{
    run_t  run;
    size_t length = 0;

    open_run(&run, _i);
    for (size_t t = 0; t < (size_t)N * T; t++) { /* three contexts in a row */
        length = length < T ? length + 1 : T / 2;
        ddp_assert_ok(ddp_decoder_feed(run.decoder, run.tokens + t, 1, run.logits));
        ck_assert_uint_eq(ddp_decoder_length(run.decoder), length);
        whole(&run, run.tokens + t + 1 - length, length);
    }
    /* many at once: they alone where they fill more than the half */
    ddp_assert_ok(ddp_decoder_feed(run.decoder, run.tokens, T - 2, run.logits));
    ck_assert_uint_eq(ddp_decoder_length(run.decoder), T - 2);
    whole(&run, run.tokens, T - 2);
    ddp_assert_ok(ddp_decoder_feed(run.decoder, run.tokens + T - 2, 5, run.logits));
    ck_assert_uint_eq(ddp_decoder_length(run.decoder), T / 2);
    whole(&run, run.tokens + T + 3 - T / 2, T / 2);
    close_run(&run);
}
END_TEST

START_TEST(what_cannot_be_fed_is_refused_and_forgets_nothing)
{
    run_t   run;
    int32_t bad[2] = {1, VOCAB};

    open_run(&run, _i);
    ddp_assert_ok(ddp_decoder_feed(run.decoder, run.tokens, 5, NULL));
    ddp_assert_fails(ddp_decoder_feed(run.decoder, bad, 2, run.logits), DDP_ERR_INVALID_ARG,
                     "token 61 is not below the vocabulary of 61");
    bad[1] = -1;
    ddp_assert_fails(ddp_decoder_feed(run.decoder, bad, 2, run.logits), DDP_ERR_INVALID_ARG, "token -1");
    ddp_assert_fails(ddp_decoder_feed(run.decoder, bad, 0, run.logits), DDP_ERR_INVALID_ARG,
                     "0 tokens at once");
    ddp_assert_fails(ddp_decoder_feed(run.decoder, run.tokens, T + 1, run.logits), DDP_ERR_INVALID_ARG,
                     "25 tokens at once; 1 .. 24");
    ck_assert_uint_eq(ddp_decoder_length(run.decoder), 5);
    ddp_assert_ok(ddp_decoder_feed(run.decoder, run.tokens + 5, 1, run.logits));
    assert_logits(&run, 0, 5);
    close_run(&run);
}
END_TEST

START_TEST(a_model_for_pictures_is_refused)
{
    const ddp_model_config_t mlp = {
        .kind = DDP_MODEL_MLP, .height = 2, .width = 2, .channels = 1, .classes = 2};
    nn_world_t     world;
    ddp_model_t   *model   = NULL;
    ddp_decoder_t *decoder = NULL;

    nn_world_open(&world, DDP_ISA_PLAIN);
    ddp_assert_ok(ddp_model_create(&mlp, world.params, &model));
    nn_world_start(&world, 1);
    ddp_assert_fails(ddp_decoder_create(model, world.params, world.stream, &decoder), DDP_ERR_INVALID_ARG,
                     "made for images");
    ddp_model_destroy(&model);
    nn_world_close(&world);
}
END_TEST

int main(void)
{
    Suite    *suite = suite_create("decode");
    TCase    *tcase = tcase_create("all");
    const int sets  = (int)ddp_isa_detect() + 1;

    tcase_add_unchecked_fixture(tcase, read_file, nn_values_close);
    tcase_add_loop_test(tcase, every_position_has_the_logits_of_pytorch, 0, sets);
    tcase_add_loop_test(tcase, a_prompt_of_any_length_and_parts_behind_it_change_nothing, 0, sets);
    tcase_add_loop_test(tcase, beyond_the_context_the_window_moves_by_half, 0, sets);
    tcase_add_loop_test(tcase, what_cannot_be_fed_is_refused_and_forgets_nothing, 0, 1);
    tcase_add_test(tcase, a_model_for_pictures_is_refused);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
