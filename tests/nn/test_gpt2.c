/* A tiny GPT-2 of Hugging Face's transformers; the values and how they were made: tests/data/make_gpt2.py. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nn/model.h"
#include "tests/nn/nn_values.h"
#include "tests/support/ddp_test.h"

#define STEPS  10
#define N      3
#define T      24
#define VOCAB  61
#define SAMPLE 7 /* every SAMPLE-th weight is in the file */
#define N_KEPT 3

static const size_t kept_steps[N_KEPT] = {1, 5, 10};

static const ddp_model_config_t config = {
    .kind = DDP_MODEL_GPT2, .channels = 32, .layers = 2, .heads = 2, .context = T, .vocab = VOCAB};

static void read_file(void)
{
    nn_values_open(DDP_TEST_DATA_DIR "/gpt2.bin");
}

typedef struct run {
    nn_world_t   world;
    ddp_model_t *model;
    int32_t     *tokens, *targets;
    nn_adamw_t   adamw;
    double       losses[STEPS];
    float        weight;
} run_t;

static void open_run(run_t *run, ddp_isa_t isa)
{
    nn_world_open(&run->world, isa);
    ck_assert_msg(ddp_model_create(&config, run->world.params, &run->model) == DDP_OK, "%s",
                  ddp_error_line());
    nn_world_start(&run->world, 1);
    nn_world_wait(&run->world);
    run->tokens  = nn_values_load("", "tokens", NN_INT32, (size_t)STEPS * N * T);
    run->targets = nn_values_load("", "targets", NN_INT32, (size_t)STEPS * N * T);
    for (size_t i = 0; i < ddp_params_count(run->world.params); i++) {
        const ddp_tensor_desc_t *desc  = &ddp_params_descs(run->world.params)[i];
        float                   *start = nn_values_load("start.", desc->name, NN_FLOAT32, desc->count);

        memcpy(ddp_params_value(run->world.params, i), start, desc->count * sizeof(float));
        free(start);
    }
    nn_adamw_open(&run->adamw, run->world.params);
}

static void close_run(run_t *run)
{
    nn_adamw_close(&run->adamw);
    free(run->tokens);
    free(run->targets);
    ddp_model_destroy(&run->model);
    nn_world_close(&run->world);
}

static void check_logits(run_t *run)
{
    const ddp_tape_begin_t begin  = {.training = false};
    double                *wanted = nn_values_load("", "logits", NN_FLOAT64, (size_t)N * T * VOCAB);
    ddp_tensor_t          *logits = NULL;

    ck_assert_int_eq(ddp_tape_begin(run->world.tape, &begin), DDP_OK);
    ck_assert_msg(ddp_model_logits(run->model, run->world.tape, run->tokens, N, T, &logits) == DDP_OK, "%s",
                  ddp_error_line());
    nn_world_wait(&run->world);
    ck_assert_uint_eq(logits->count, (size_t)N * T * VOCAB);
    for (size_t i = 0; i < logits->count; i++) {
        ck_assert_double_le(fabs((double)logits->data[i] - wanted[i]), 1e-5);
    }
    free(wanted);
}

static void backward(run_t *run, size_t step)
{
    const ddp_tape_begin_t begin = {.training = true, .step = step};
    ddp_tape_t            *tape  = run->world.tape;
    ddp_loss_stats_t      *stats = NULL;

    ck_assert_int_eq(ddp_tape_begin(tape, &begin), DDP_OK);
    ck_assert_msg(ddp_model_forward_tokens(run->model, tape, run->tokens + step * N * T,
                                           run->targets + step * N * T, N, T, &stats) == DDP_OK,
                  "%s", ddp_error_line());
    ck_assert_int_eq(ddp_tape_backward(tape), DDP_OK);
    nn_world_wait(&run->world);
    run->losses[step] = (double)stats->loss / (double)stats->weight;
    run->weight       = stats->weight;
}

static void check_gradients(const run_t *run)
{
    for (size_t i = 0; i < ddp_params_count(run->world.params); i++) {
        const ddp_tensor_desc_t *desc    = &ddp_params_descs(run->world.params)[i];
        const float             *grad    = ddp_params_grad(run->world.params, i);
        float                   *wanted  = nn_values_load("grad.", desc->name, NN_FLOAT32, desc->count);
        double                   largest = 0, worst = 0;

        for (size_t j = 0; j < desc->count; j++) {
            const double error = fabs((double)grad[j] - (double)wanted[j]);

            largest = fmax(largest, fabs((double)wanted[j]));
            worst   = isnan(error) ? INFINITY : fmax(worst, error);
        }
        free(wanted);
        ck_assert_msg(worst <= 1e-5 * largest, "%s: gradient off by %g, largest entry %g", desc->name, worst,
                      largest);
    }
}

/** The distance of the sampled weights from PyTorch's float64 run, and the length of its weights. */
static double distance(const run_t *run, size_t step, double *length_p)
{
    double sum = 0, length = 0;

    for (size_t i = 0; i < ddp_params_count(run->world.params); i++) {
        const ddp_tensor_desc_t *desc  = &ddp_params_descs(run->world.params)[i];
        const size_t             count = (desc->count + SAMPLE - 1) / SAMPLE;
        char                     kind[16];
        double                  *wanted;

        if (strstr(desc->name, "c_attn.bias") != NULL) {
            continue; /* the gradient of the keys' bias is rounding alone: make_gpt2.py */
        }
        snprintf(kind, sizeof(kind), "step%zu.", step);
        wanted = nn_values_load(kind, desc->name, NN_FLOAT64, count);
        for (size_t j = 0; j < count; j++) {
            const double error = (double)ddp_params_value(run->world.params, i)[j * SAMPLE] - wanted[j];

            sum += error * error;
            length += wanted[j] * wanted[j];
        }
        free(wanted);
    }
    *length_p = sqrt(length);
    return sqrt(sum);
}

/** Twice PyTorch's float32 distance from its float64 run, and the floor that test_training.c explains. */
static void check_kept_step(const run_t *run, size_t k)
{
    const size_t step        = kept_steps[k];
    double      *losses64    = nn_values_load("", "losses64", NN_FLOAT64, STEPS);
    double      *losses32    = nn_values_load("", "losses32", NN_FLOAT64, STEPS);
    double      *distances32 = nn_values_load("", "distances32", NN_FLOAT64, N_KEPT);
    double       length      = 0;
    const double ours        = distance(run, step, &length);
    const double bound       = 2 * distances32[k] + length * 0x1p-24;
    const double loss_error  = fabs(run->losses[step - 1] - losses64[step - 1]);
    const double loss_bound =
        2 * fabs(losses32[step - 1] - losses64[step - 1]) + losses64[step - 1] * 0x1p-22;

    free(losses64);
    free(losses32);
    free(distances32);
    ck_assert_msg(ours <= bound, "step %zu: weights off by %g, bound %g", step, ours, bound);
    ck_assert_msg(loss_error <= loss_bound, "step %zu: loss off by %g, bound %g", step, loss_error,
                  loss_bound);
}

START_TEST(ten_steps_of_gpt2_stay_near_pytorch)
{
    size_t kept = 0;
    run_t  run;

    open_run(&run, (ddp_isa_t)_i);
    check_logits(&run);
    for (size_t step = 0; step < STEPS; step++) {
        backward(&run, step);
        if (step == 0) {
            ck_assert_float_eq(run.weight, N * T - 1); /* one target counts nothing */
            check_gradients(&run);
        }
        nn_adamw_update(&run.adamw, &run.world, step + 1, 0x1p-8F, run.weight);
        if (kept < N_KEPT && kept_steps[kept] == step + 1) {
            check_kept_step(&run, kept++);
        }
    }
    ck_assert_uint_eq(kept, N_KEPT);
    close_run(&run);
}
END_TEST

/* What PyTorch's autocast to bfloat16 gives for the same run: make_gpt2_bf16.py. */
typedef struct bf16_values {
    double *losses, *distances;
    double *grads[40]; /* one number each */
} bf16_values_t;

static void bf16_values_read(const run_t *run, bf16_values_t *values)
{
    nn_values_close();
    nn_values_open(DDP_TEST_DATA_DIR "/gpt2_bf16.bin");
    values->losses    = nn_values_load("", "losses16", NN_FLOAT64, STEPS);
    values->distances = nn_values_load("", "distances16", NN_FLOAT64, N_KEPT);
    for (size_t i = 0; i < ddp_params_count(run->world.params); i++) {
        values->grads[i] =
            nn_values_load("grad.", ddp_params_descs(run->world.params)[i].name, NN_FLOAT64, 1);
    }
    nn_values_close();
    read_file();
}

static void bf16_values_free(const run_t *run, bf16_values_t *values)
{
    for (size_t i = 0; i < ddp_params_count(run->world.params); i++) {
        free(values->grads[i]);
    }
    free(values->losses);
    free(values->distances);
}

/* A gradient may be a little further off by chance, not all of them. */
static void check_bf16_gradients(const run_t *run, const bf16_values_t *values)
{
    double ours = 0, theirs = 0;

    for (size_t i = 0; i < ddp_params_count(run->world.params); i++) {
        const ddp_tensor_desc_t *desc   = &ddp_params_descs(run->world.params)[i];
        const float             *grad   = ddp_params_grad(run->world.params, i);
        float                   *wanted = nn_values_load("grad.", desc->name, NN_FLOAT32, desc->count);
        double                   gap = 0, length = 0;

        for (size_t j = 0; j < desc->count; j++) {
            const double error = (double)grad[j] - (double)wanted[j];

            gap += error * error;
            length += (double)wanted[j] * (double)wanted[j];
        }
        free(wanted);
        gap = sqrt(gap / length);
        ours += gap * gap;
        theirs += *values->grads[i] * *values->grads[i];
        ck_assert_msg(gap <= 1.1 * *values->grads[i], "%s: gradient off by %g, PyTorch's by %g", desc->name,
                      gap, *values->grads[i]);
        ck_assert_msg(gap >= 1e-4, "%s: gradient off by %g, nothing was rounded", desc->name, gap);
    }
    ck_assert_double_le(ours, theirs);
}

/* Products alone are rounded here, in PyTorch's autocast what they give as well. */
START_TEST(in_bf16_gpt2_is_nearer_to_float64_than_pytorch_is)
{
    double       *losses64 = nn_values_load("", "losses64", NN_FLOAT64, STEPS);
    double        length   = 0;
    double        ours = 0, theirs = 0;
    size_t        kept = 0;
    bf16_values_t values;
    run_t         run;

    open_run(&run, (ddp_isa_t)_i);
    bf16_values_read(&run, &values);
    ddp_tape_set_precision(run.world.tape, DDP_PRECISION_BF16);
    for (size_t step = 0; step < STEPS; step++) {
        backward(&run, step);
        ours += fabs(run.losses[step] - losses64[step]);
        theirs += fabs(values.losses[step] - losses64[step]);
        if (step == 0) {
            check_bf16_gradients(&run, &values);
        }
        nn_adamw_update(&run.adamw, &run.world, step + 1, 0x1p-8F, run.weight);
        if (kept < N_KEPT && kept_steps[kept] == step + 1) {
            ck_assert_double_le(distance(&run, step + 1, &length), 1.1 * values.distances[kept]);
            kept++;
        }
    }
    ck_assert_double_le(ours, theirs);
    ck_assert_uint_eq(kept, N_KEPT);
    bf16_values_free(&run, &values);
    free(losses64);
    close_run(&run);
}
END_TEST

/* y = r + x W + b in one layer or in two; x and r are embeddings, so that both get a gradient. The gradients,
 * behind them y. */
static float *residual_step(int isa, bool is_one, size_t *count_p)
{
    static const ddp_init_t init           = {.kind = DDP_INIT_UNIFORM, .fan_in = 3};
    static const int32_t    tokens[]       = {2, 0, 1, 1};
    static const size_t     shape[][2]     = {{3, 19}, {3, 21}, {19, 21}, {21, 0}};
    static const float      target[4 * 21] = {1.0F};
    const ddp_tape_begin_t  begin          = {.training = true};
    nn_world_t              world;
    ddp_tensor_t           *x = NULL, *r = NULL, *y = NULL;
    ddp_loss_stats_t       *stats = NULL;
    float                  *result;
    size_t                  i;

    nn_world_open(&world, (ddp_isa_t)isa);
    for (size_t p = 0; p < 4; p++) {
        char name[2] = {(char)('a' + p), 0};

        ck_assert_int_eq(ddp_params_add(world.params, name, p < 3 ? 2 : 1, shape[p], init, &i), DDP_OK);
    }
    ck_assert_int_eq(ddp_params_finish(world.params), DDP_OK);
    nn_world_start(&world, 5);
    ddp_assert_ok(ddp_tape_begin(world.tape, &begin));
    ddp_assert_ok(ddp_nn_embedding(world.tape, tokens, 2, 2, 0, DDP_NO_PARAM, &x));
    ddp_assert_ok(ddp_nn_embedding(world.tape, tokens, 2, 2, 1, DDP_NO_PARAM, &r));
    ddp_assert_fails(ddp_nn_linear_add(world.tape, x, 2, 3, x, &y), DDP_ERR_INVALID_ARG,
                     "residual [2, 2, 19]");
    if (is_one) {
        ddp_assert_ok(ddp_nn_linear_add(world.tape, x, 2, 3, r, &y));
    } else {
        ddp_assert_ok(ddp_nn_linear_in_out(world.tape, x, 2, 3, DDP_ACT_NONE, &y));
        ddp_assert_ok(ddp_nn_add(world.tape, r, y, &y));
    }
    ddp_assert_ok(ddp_nn_mse(world.tape, y, target, NULL, &stats));
    nn_world_wait(&world);
    *count_p = ddp_params_total(world.params) + y->count;
    result   = malloc(*count_p * sizeof(float));
    memcpy(result + ddp_params_total(world.params), y->data, y->count * sizeof(float));
    ddp_assert_ok(ddp_tape_backward(world.tape));
    nn_world_wait(&world);
    memset(result, 0, ddp_params_total(world.params) * sizeof(float));
    for (size_t p = 0; p < 4; p++) {
        const ddp_tensor_desc_t *desc = &ddp_params_descs(world.params)[p];

        memcpy(result + desc->offset, ddp_params_grad(world.params, p), desc->count * sizeof(float));
    }
    nn_world_close(&world);
    return result;
}

START_TEST(a_projection_onto_a_residual_has_the_bits_of_projection_and_addition)
{
    size_t count = 0;
    float *one   = residual_step(_i, true, &count);
    float *two   = residual_step(_i, false, &count);

    ck_assert_mem_eq(one, two, count * sizeof(float));
    free(one);
    free(two);
}
END_TEST

static ddp_status_t note(void *ctx, size_t index)
{
    size_t *order = ctx;

    order[1 + order[0]++] = index;
    return DDP_OK;
}

START_TEST(parameters_are_ready_in_the_reverse_order_of_registration)
{
    size_t order[40] = {0};
    run_t  run;

    open_run(&run, DDP_ISA_PLAIN);
    ddp_tape_set_ready(run.world.tape, note, order);
    backward(&run, 0);
    ck_assert_uint_eq(order[0], ddp_params_count(run.world.params));
    for (size_t i = 0; i < order[0]; i++) {
        ck_assert_uint_eq(order[1 + i], order[0] - 1 - i);
    }
    close_run(&run);
}
END_TEST

START_TEST(initial_values_are_those_of_the_paper)
{
    nn_world_t   world;
    ddp_model_t *model = NULL;

    nn_world_open(&world, ddp_isa_detect());
    ck_assert_int_eq(ddp_model_create(&config, world.params, &model), DDP_OK);
    nn_world_start(&world, 1);
    nn_world_wait(&world);
    for (size_t i = 0; i < ddp_params_count(world.params); i++) {
        const ddp_tensor_desc_t *desc   = &ddp_params_descs(world.params)[i];
        const bool               small  = strstr(desc->name, "c_proj.weight") != NULL;
        const double             std    = small ? 0.02 / sqrt(4.0) : 0.02;
        double                   square = 0;

        for (size_t j = 0; j < desc->count; j++) {
            const double value = (double)ddp_params_value(world.params, i)[j];

            square += value * value / (double)desc->count;
            if (desc->ndim == 1) {
                ck_assert_double_eq(
                    value,
                    strstr(desc->name, "ln_") != NULL && strstr(desc->name, "weight") != NULL ? 1.0 : 0.0);
            }
        }
        if (desc->ndim == 2) { /* five standard errors */
            ck_assert_double_le(fabs(sqrt(square) / std - 1.0), 5.0 / sqrt(2.0 * (double)desc->count));
        }
    }
    ddp_model_destroy(&model);
    nn_world_close(&world);
}
END_TEST

/* OpenAI's and Hugging Face's counts. */
START_TEST(presets_have_the_known_numbers_of_parameters)
{
    static const struct {
        const char *name;
        size_t      parameters;
    } known[] = {{"gpt2-124m", 124439808},
                 {"gpt2-355m", 354823168},
                 {"gpt2-774m", 774030080},
                 {"gpt2-1558m", 1557611200}};

    for (size_t i = 0; i < 4; i++) {
        ddp_model_config_t preset = {.kind = DDP_MODEL_GPT2};
        ddp_params_t      *params = NULL;
        ddp_model_t       *model  = NULL;

        ck_assert_int_eq(ddp_model_gpt2_preset(known[i].name, &preset), DDP_OK);
        ck_assert_int_eq(ddp_params_create(&params), DDP_OK);
        ck_assert_msg(ddp_model_create(&preset, params, &model) == DDP_OK, "%s", ddp_error_line());
        ck_assert_uint_eq(ddp_params_elements(params), known[i].parameters);
        ddp_model_destroy(&model);
        ddp_params_destroy(&params);
    }
}
END_TEST

START_TEST(what_does_not_fit_is_named)
{
    const ddp_tape_begin_t begin     = {.training = true};
    ddp_loss_stats_t      *stats     = NULL;
    ddp_tensor_t          *x         = NULL;
    ddp_tensor_t          *y         = NULL;
    const size_t           shape[4]  = {1, 1, 1, 32};
    const float            image[32] = {0};
    ddp_model_config_t     bad       = config;
    ddp_params_t          *params    = NULL;
    ddp_model_t           *model     = NULL;
    run_t                  run;

    open_run(&run, DDP_ISA_PLAIN);
    ck_assert_int_eq(ddp_tape_begin(run.world.tape, &begin), DDP_OK);
    ddp_assert_fails(
        ddp_model_forward_tokens(run.model, run.world.tape, run.tokens, run.targets, 1, T + 1, &stats),
        DDP_ERR_INVALID_ARG, "longer than the context of 24");
    ck_assert_int_eq(ddp_tape_input(run.world.tape, image, 4, shape, &x), DDP_OK);
    ddp_assert_fails(ddp_model_forward(run.model, run.world.tape, x, &y), DDP_ERR_INVALID_ARG,
                     "made for tokens");
    ddp_assert_fails(ddp_nn_attention(run.world.tape, x, 2, 0.0F, &y), DDP_ERR_INVALID_ARG, "[1, 1, 1, 32]");
    ddp_assert_fails(ddp_nn_layer_norm(run.world.tape, x, 0, 1, 0.0F, &y), DDP_ERR_INVALID_ARG, "1952");
    close_run(&run);

    ck_assert_int_eq(ddp_params_create(&params), DDP_OK);
    bad.heads = 5;
    ddp_assert_fails(ddp_model_create(&bad, params, &model), DDP_ERR_CONFIG,
                     "32 channels do not divide into 5 heads");
    ddp_assert_fails(ddp_model_gpt2_preset("gpt3", &bad), DDP_ERR_CONFIG, "gpt2-124m");
    ddp_params_destroy(&params);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gpt2");
    TCase *tcase = tcase_create("all");

    tcase_add_unchecked_fixture(tcase, read_file, nn_values_close);
    tcase_add_loop_test(tcase, ten_steps_of_gpt2_stay_near_pytorch, 0, nn_isas());
    tcase_add_loop_test(tcase, in_bf16_gpt2_is_nearer_to_float64_than_pytorch_is, 0, nn_isas());
    tcase_add_loop_test(tcase, a_projection_onto_a_residual_has_the_bits_of_projection_and_addition, 0,
                        nn_isas());
    tcase_add_test(tcase, parameters_are_ready_in_the_reverse_order_of_registration);
    tcase_add_test(tcase, initial_values_are_those_of_the_paper);
    tcase_add_test(tcase, presets_have_the_known_numbers_of_parameters);
    tcase_add_test(tcase, what_does_not_fit_is_named);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
