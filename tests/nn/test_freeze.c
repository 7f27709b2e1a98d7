/* Frozen parameters: the others' gradients keep their bits, and what lies below nothing trained is not
 * differentiated. */
#include <stdlib.h>
#include <string.h>

#include "nn/model.h"
#include "nn/tape_internal.h"
#include "tests/nn/nn_program.h"
#include "tests/support/ddp_test.h"

#define N        3
#define SENTINEL (-77.0F)
#define MOST     128 /* parameters */

static const ddp_model_config_t mlp = {.kind     = DDP_MODEL_MLP,
                                       .height   = 5,
                                       .width    = 5,
                                       .channels = 3,
                                       .classes  = 4,
                                       .n_hidden = 2,
                                       .hidden   = {17, 9},
                                       .dropout  = 0.25F};
static const ddp_model_config_t cnn = {
    .kind = DDP_MODEL_CNN, .height = 9, .width = 8, .channels = 3, .classes = 4};
static const ddp_model_config_t gpt2 = {.kind     = DDP_MODEL_GPT2,
                                        .channels = 24,
                                        .layers   = 2,
                                        .heads    = 2,
                                        .context  = 12,
                                        .vocab    = 31,
                                        .dropout  = 0.1F};

static const ddp_model_config_t resnet = {
    .kind = DDP_MODEL_RESNET, .depth = 20, .height = 9, .width = 8, .channels = 3, .classes = 4};

typedef struct run {
    nn_world_t   world;
    ddp_model_t *model;
    float        images[N * 9 * 8 * 3];
    int32_t      tokens[N * 12], targets[N * 12];
    size_t       ready[MOST], n_ready;
} run_t;

static ddp_status_t note_ready(void *ctx, size_t index)
{
    run_t *run = ctx;

    ck_assert_uint_lt(run->n_ready, MOST);
    run->ready[run->n_ready++] = index;
    return DDP_OK;
}

static void open_run(run_t *run, const ddp_model_config_t *config, ddp_isa_t isa)
{
    memset(run, 0, sizeof(*run));
    nn_world_open(&run->world, isa);
    ck_assert_msg(ddp_model_create(config, run->world.params, &run->model) == DDP_OK, "%s", ddp_error_line());
    nn_world_start(&run->world, 3);
    nn_world_wait(&run->world);
    ddp_tape_set_ready(run->world.tape, note_ready, run);
    nn_noise(run->images, N * 9 * 8 * 3, 5);
    for (size_t i = 0; i < N * 12; i++) {
        run->tokens[i]  = (int32_t)(i * 7 % 31);
        run->targets[i] = (int32_t)(i * 5 % 31);
    }
}

static void close_run(run_t *run)
{
    ddp_model_destroy(&run->model);
    nn_world_close(&run->world);
}

static void forward_images(run_t *run, const ddp_model_config_t *config)
{
    static const int32_t labels[N] = {0, 3, 1};
    const size_t         shape[4]  = {N, config->height, config->width, config->channels};
    ddp_tensor_t        *x         = NULL;
    ddp_tensor_t        *logits    = NULL;
    ddp_loss_stats_t    *stats     = NULL;

    ck_assert_int_eq(ddp_tape_input(run->world.tape, run->images, 4, shape, &x), DDP_OK);
    ck_assert_int_eq(ddp_model_forward(run->model, run->world.tape, x, &logits), DDP_OK);
    ck_assert_int_eq(ddp_nn_cross_entropy(run->world.tape, logits, labels, NULL, -1, &stats), DDP_OK);
}

/* Forward and backward into gradients that hold nothing but sentinels. */
static void micro_batch(run_t *run, const ddp_model_config_t *config, bool recompute)
{
    const ddp_tape_begin_t begin = {.training = true, .seed = 4, .step = 1, .first_row = 6};
    ddp_loss_stats_t      *stats = NULL;
    float *grads = ddp_params_grad(run->world.params, ddp_params_count(run->world.params) - 1);

    for (size_t i = 0; i < ddp_params_total(run->world.params); i++) {
        grads[i] = SENTINEL;
    }
    run->n_ready = 0;
    ddp_tape_set_recompute(run->world.tape, recompute);
    ck_assert_int_eq(ddp_tape_begin(run->world.tape, &begin), DDP_OK);
    if (config->kind == DDP_MODEL_GPT2) {
        ck_assert_int_eq(
            ddp_model_forward_tokens(run->model, run->world.tape, run->tokens, run->targets, N, 12, &stats),
            DDP_OK);
    } else {
        forward_images(run, config);
    }
    ck_assert_msg(ddp_tape_backward(run->world.tape) == DDP_OK, "%s", ddp_error_line());
    nn_world_wait(&run->world);
}

static bool was_ready(const run_t *run, size_t index)
{
    size_t times = 0;

    for (size_t i = 0; i < run->n_ready; i++) {
        times += run->ready[i] == index;
    }
    ck_assert_uint_le(times, 1);
    return times == 1;
}

/* The gradients of `whole`, which froze nothing, or what was there before. */
static void check_grads(const run_t *run, const run_t *whole)
{
    uint8_t used[MOST];

    ddp_tape_used(run->world.tape, used);
    for (size_t i = 0; i < ddp_params_count(run->world.params); i++) {
        const ddp_tensor_desc_t *desc    = &ddp_params_descs(run->world.params)[i];
        const float             *got     = ddp_params_grad(run->world.params, i);
        const float             *wanted  = ddp_params_grad(whole->world.params, i);
        const bool               trained = !desc->frozen; /* or a running average, which goes on */

        ck_assert_int_eq(used[i], trained);
        ck_assert_int_eq(was_ready(run, i), trained);
        for (size_t e = 0; e < desc->count; e++) {
            ck_assert_msg(got[e] == (trained ? wanted[e] : SENTINEL), "%s[%zu]: %g, not %g (frozen %zu)",
                          desc->name, e, (double)got[e], (double)wanted[e], run->n_ready);
        }
    }
}

static void check_patterns(const ddp_model_config_t *config, const char *const *patterns, ddp_isa_t isa)
{
    run_t *whole = malloc(sizeof(*whole));
    run_t *run   = malloc(sizeof(*run));

    open_run(whole, config, isa);
    micro_batch(whole, config, false);
    for (size_t k = 0; patterns[k] != NULL; k++) {
        for (int recompute = 0; recompute < (k < 2 ? 2 : 1); recompute++) { /* blocks below, and in part */
            size_t count = 0;

            open_run(run, config, isa);
            ck_assert_int_eq(ddp_params_freeze(run->world.params, patterns[k], &count), DDP_OK);
            ck_assert_uint_gt(count, 0);
            micro_batch(run, config, recompute != 0);
            check_grads(run, whole);
            close_run(run);
        }
    }
    close_run(whole);
    free(run);
    free(whole);
}

START_TEST(frozen_parameters_of_an_mlp_leave_the_others_gradients)
{
    static const char *const patterns[] = {"fc1.*", "*.weight", "*.bias", "fc2.*", "fc[12].*", "fc3.*", NULL};

    check_patterns(&mlp, patterns, (ddp_isa_t)_i);
}
END_TEST

START_TEST(frozen_parameters_of_a_cnn_leave_the_others_gradients)
{
    static const char *const patterns[] = {"conv1.*", "*.weight", "*.bias", "conv2.weight",
                                           "conv*",   "fc*",      NULL};

    check_patterns(&cnn, patterns, (ddp_isa_t)_i);
}
END_TEST

/* wte is embedding and head at once; gamma and beta of a norm apart. */
START_TEST(frozen_parameters_of_a_gpt2_leave_the_others_gradients)
{
    static const char *const patterns[] = {
        "transformer.w*", "*.h.0.*", "transformer.wte.weight", "transformer.wpe.weight",
        "*.weight",       "*.bias",  "*ln_*.weight",           "*ln_*.bias",
        "*ln_*",          NULL};

    check_patterns(&gpt2, patterns, (ddp_isa_t)_i);
}
END_TEST

START_TEST(frozen_parameters_of_a_resnet_leave_the_others_gradients)
{
    static const char *const patterns[] = {"layer1.*", "*conv*", "*bn?.weight", "*.bias", "[cbl]*", NULL};

    check_patterns(&resnet, patterns, ddp_isa_detect());
}
END_TEST

START_TEST(below_the_first_trained_parameter_nothing_is_differentiated)
{
    const size_t      shape[]  = {7, 5};
    const size_t      square[] = {5, 5};
    const ddp_init_t  init     = {.kind = DDP_INIT_UNIFORM, .fan_in = 5};
    ddp_tape_begin_t  begin    = {.training = true};
    float            *x        = malloc(35 * sizeof(*x));
    nn_world_t        world;
    ddp_tensor_t     *value[4];
    size_t            weight[3];
    size_t            count = 0;
    ddp_loss_stats_t *stats = NULL;

    nn_world_open(&world, ddp_isa_detect());
    ck_assert_int_eq(ddp_params_add(world.params, "a", 2, square, init, &weight[0]), DDP_OK);
    ck_assert_int_eq(ddp_params_add(world.params, "b", 2, square, init, &weight[1]), DDP_OK);
    ck_assert_int_eq(ddp_params_add(world.params, "c", 2, square, init, &weight[2]), DDP_OK);
    ck_assert_int_eq(ddp_params_finish(world.params), DDP_OK);
    ck_assert_int_eq(ddp_params_freeze(world.params, "[ac]", &count), DDP_OK);
    nn_world_start(&world, 1);
    nn_noise(x, 35, 2);
    ck_assert_int_eq(ddp_tape_begin(world.tape, &begin), DDP_OK);
    ck_assert_int_eq(ddp_tape_input(world.tape, x, 2, shape, &value[0]), DDP_OK);
    for (size_t i = 0; i < 3; i++) {
        ck_assert_int_eq(
            ddp_nn_linear(world.tape, value[i], weight[i], DDP_NO_PARAM, DDP_ACT_GELU, &value[i + 1]),
            DDP_OK);
    }
    ck_assert_int_eq(ddp_nn_mse(world.tape, value[3], x, NULL, &stats), DDP_OK);
    ck_assert(!value[1]->needs_grad && value[2]->needs_grad && value[3]->needs_grad);
    ck_assert_int_eq(ddp_tape_backward(world.tape), DDP_OK);
    nn_world_wait(&world);
    ck_assert(!value[1]->has_grad && value[2]->has_grad);
    nn_world_close(&world);
    free(x);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("freeze");
    TCase *tcase = tcase_create("core");

    tcase_add_loop_test(tcase, frozen_parameters_of_an_mlp_leave_the_others_gradients, 0, nn_isas());
    tcase_add_loop_test(tcase, frozen_parameters_of_a_cnn_leave_the_others_gradients, 0, nn_isas());
    tcase_add_loop_test(tcase, frozen_parameters_of_a_gpt2_leave_the_others_gradients, 0, nn_isas());
    tcase_add_test(tcase, frozen_parameters_of_a_resnet_leave_the_others_gradients);
    tcase_add_test(tcase, below_the_first_trained_parameter_nothing_is_differentiated);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
