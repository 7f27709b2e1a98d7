#include <stdlib.h>
#include <string.h>

#include "nn/model.h"
#include "tests/nn/nn_program.h"
#include "tests/support/ddp_test.h"

static const int32_t labels[] = {1, 0, 2};

/* The models again, written down a second time. */
static const nn_step_t          mlp_steps[]  = {{.op = NN_FLATTEN, .x = 0},
                                                {.op = NN_LINEAR, .x = 1, .weight = 0, .bias = 1, .act = DDP_ACT_RELU},
                                                {.op = NN_DROPOUT, .x = 2, .p = 0.2F},
                                                {.op = NN_LINEAR, .x = 3, .weight = 2, .bias = 3, .act = DDP_ACT_RELU},
                                                {.op = NN_DROPOUT, .x = 4, .p = 0.2F},
                                                {.op = NN_LINEAR, .x = 5, .weight = 4, .bias = 5}};
static const nn_param_t         mlp_params[] = {{"fc1.weight", 2, {10, 24}, 24}, {"fc1.bias", 1, {10}, 24},
                                                {"fc2.weight", 2, {7, 10}, 10},  {"fc2.bias", 1, {7}, 10},
                                                {"fc3.weight", 2, {3, 7}, 7},    {"fc3.bias", 1, {3}, 7}};
static const nn_program_t       mlp          = {.n_params = 6,
                                                .params   = mlp_params,
                                                .n_steps  = 6,
                                                .steps    = mlp_steps,
                                                .ndim     = 4,
                                                .shape    = {3, 4, 3, 2},
                                                .labels   = labels};
static const ddp_model_config_t mlp_config   = {.kind     = DDP_MODEL_MLP,
                                                .height   = 4,
                                                .width    = 3,
                                                .channels = 2,
                                                .classes  = 3,
                                                .n_hidden = 2,
                                                .hidden   = {10, 7},
                                                .dropout  = 0.2F};

static const nn_step_t cnn_steps[] = {
    {.op = NN_CONV, .x = 0, .weight = 0, .bias = 1, .stride = 1, .pad = 1, .act = DDP_ACT_RELU},
    {.op = NN_MAX_POOL, .x = 1, .kernel = 2, .stride = 2},
    {.op = NN_CONV, .x = 2, .weight = 2, .bias = 3, .stride = 1, .pad = 1, .act = DDP_ACT_RELU},
    {.op = NN_MAX_POOL, .x = 3, .kernel = 2, .stride = 2},
    {.op = NN_FLATTEN, .x = 4},
    {.op = NN_LINEAR, .x = 5, .weight = 4, .bias = 5, .act = DDP_ACT_RELU},
    {.op = NN_DROPOUT, .x = 6, .p = 0.5F},
    {.op = NN_LINEAR, .x = 7, .weight = 6, .bias = 7}};
static const nn_param_t cnn_params[] = {
    {"conv1.weight", 4, {32, 2, 3, 3}, 18},   {"conv1.bias", 1, {32}, 18},
    {"conv2.weight", 4, {64, 32, 3, 3}, 288}, {"conv2.bias", 1, {64}, 288},
    {"fc1.weight", 2, {128, 128}, 128},       {"fc1.bias", 1, {128}, 128},
    {"fc2.weight", 2, {3, 128}, 128},         {"fc2.bias", 1, {3}, 128}};
static const nn_program_t       cnn        = {.n_params = 8,
                                              .params   = cnn_params,
                                              .n_steps  = 8,
                                              .steps    = cnn_steps,
                                              .ndim     = 4,
                                              .shape    = {2, 5, 9, 2},
                                              .labels   = labels};
static const ddp_model_config_t cnn_config = {
    .kind = DDP_MODEL_CNN, .height = 5, .width = 9, .channels = 2, .classes = 3, .dropout = 0.5F};

START_TEST(gradients_of_the_mlp_equal_differences_on_every_instruction_set)
{
    nn_check_program_on_all_isas(&mlp, 1, 1, 1e-5);
}
END_TEST

START_TEST(gradients_of_the_cnn_equal_differences_on_every_instruction_set)
{
    nn_check_program_on_all_isas(&cnn, 2, 401, 1e-5);
}
END_TEST

/** Logits and gradients of the model have the bits of the program's, from the same seed. */
static void expect_same(const ddp_model_config_t *config, const nn_program_t *program)
{
    const ddp_tape_begin_t begin = {.training = true, .seed = 3, .step = 9, .first_row = 2};
    float                  images[2 * 5 * 9 * 2];
    nn_world_t             ours, theirs;
    ddp_model_t           *model = NULL;
    ddp_tensor_t          *x = NULL, *logits = NULL, *values[NN_MAX_STEPS + 1];
    ddp_loss_stats_t      *stats = NULL;
    const size_t           last  = program->n_params - 1;

    nn_noise(images, sizeof(images) / sizeof(images[0]), 5);
    nn_world_open(&ours, ddp_isa_detect());
    nn_world_open(&theirs, ddp_isa_detect());
    ck_assert_msg(ddp_model_create(config, ours.params, &model) == DDP_OK, "%s", ddp_error_line());
    nn_world_start(&ours, 7);
    nn_program_start(program, &theirs, 7);
    ck_assert_uint_eq(ddp_params_count(ours.params), program->n_params);
    for (size_t i = 0; i <= last; i++) {
        ck_assert_str_eq(ddp_params_descs(ours.params)[i].name, program->params[i].name);
    }
    ck_assert_int_eq(ddp_tape_begin(ours.tape, &begin), DDP_OK);
    ck_assert_int_eq(ddp_tape_input(ours.tape, images, program->ndim, program->shape, &x), DDP_OK);
    ck_assert_msg(ddp_model_forward(model, ours.tape, x, &logits) == DDP_OK, "%s", ddp_error_line());
    ck_assert_int_eq(ddp_nn_cross_entropy(ours.tape, logits, labels, NULL, -1, &stats), DDP_OK);
    ck_assert_int_eq(ddp_tape_backward(ours.tape), DDP_OK);
    ck_assert_int_eq(ddp_tape_begin(theirs.tape, &begin), DDP_OK);
    (void)nn_program_forward(program, &theirs, images, values);
    ck_assert_int_eq(ddp_tape_backward(theirs.tape), DDP_OK);
    nn_world_wait(&ours);
    nn_world_wait(&theirs);
    ck_assert_uint_eq(logits->shape[0], program->shape[0]);
    ck_assert_uint_eq(logits->shape[1], 3);
    ck_assert_mem_eq(logits->data, values[program->n_steps]->data, logits->count * sizeof(float));
    ck_assert_mem_eq(ddp_params_grad(ours.params, last), ddp_params_grad(theirs.params, last),
                     ddp_params_total(ours.params) * sizeof(float));
    ddp_model_destroy(&model);
    nn_world_close(&ours);
    nn_world_close(&theirs);
}

START_TEST(the_mlp_is_the_network_it_is_described_as)
{
    expect_same(&mlp_config, &mlp);
}
END_TEST

START_TEST(the_cnn_is_the_network_it_is_described_as)
{
    expect_same(&cnn_config, &cnn);
}
END_TEST

/** Logits of the cnn, as computed with `conv`. */
static void logits_with(ddp_conv_algo_t conv, float *logits)
{
    const ddp_tape_begin_t begin  = {.training = false};
    ddp_model_config_t     config = cnn_config;
    float                  images[2 * 5 * 9 * 2];
    nn_world_t             world;
    ddp_model_t           *model = NULL;
    ddp_tensor_t          *x = NULL, *y = NULL;

    config.conv = conv;
    nn_noise(images, sizeof(images) / sizeof(images[0]), 5);
    nn_world_open(&world, ddp_isa_detect());
    ck_assert_int_eq(ddp_model_create(&config, world.params, &model), DDP_OK);
    nn_world_start(&world, 7);
    ck_assert_int_eq(ddp_tape_begin(world.tape, &begin), DDP_OK);
    ck_assert_int_eq(ddp_tape_input(world.tape, images, 4, cnn.shape, &x), DDP_OK);
    ck_assert_int_eq(ddp_model_forward(model, world.tape, x, &y), DDP_OK);
    nn_world_wait(&world);
    ck_assert_uint_eq(y->count, 6);
    memcpy(logits, y->data, 6 * sizeof(float));
    ddp_model_destroy(&model);
    nn_world_close(&world);
}

/* conv2 sees 2x4 pixels and 32 channels: the last bits tell the algorithms apart. */
START_TEST(the_configuration_says_how_convolutions_are_computed)
{
    float logits[DDP_CONV_WINOGRAD4 + 1][6];

    for (int conv = DDP_CONV_AUTO; conv <= DDP_CONV_WINOGRAD4; conv++) {
        logits_with((ddp_conv_algo_t)conv, logits[conv]);
    }
    ck_assert_mem_eq(logits[DDP_CONV_AUTO], logits[DDP_CONV_WINOGRAD4], sizeof(logits[0]));
    ck_assert_mem_ne(logits[DDP_CONV_DIRECT], logits[DDP_CONV_WINOGRAD4], sizeof(logits[0]));
    ck_assert_mem_ne(logits[DDP_CONV_DIRECT], logits[DDP_CONV_WINOGRAD2], sizeof(logits[0]));
    ck_assert_mem_ne(logits[DDP_CONV_WINOGRAD2], logits[DDP_CONV_WINOGRAD4], sizeof(logits[0]));
    for (int i = 0; i < 6; i++) {
        ck_assert(fabsf(logits[DDP_CONV_DIRECT][i] - logits[DDP_CONV_WINOGRAD4][i]) < 1e-5F);
    }
}
END_TEST

/* Names and shapes of named_parameters() of the PyTorch modules in tests/data/make_training.py, for 28x28. */
START_TEST(the_cnn_has_the_names_and_shapes_of_a_pytorch_module)
{
    static const struct {
        const char *name;
        size_t      ndim, shape[4];
    } expected[]                    = {{"conv1.weight", 4, {32, 1, 3, 3}},  {"conv1.bias", 1, {32}},
                                       {"conv2.weight", 4, {64, 32, 3, 3}}, {"conv2.bias", 1, {64}},
                                       {"fc1.weight", 2, {128, 3136}},      {"fc1.bias", 1, {128}},
                                       {"fc2.weight", 2, {10, 128}},        {"fc2.bias", 1, {10}}};
    const ddp_model_config_t config = {
        .kind = DDP_MODEL_CNN, .height = 28, .width = 28, .channels = 1, .classes = 10};
    ddp_params_t *params = NULL;
    ddp_model_t  *model  = NULL;

    ck_assert_int_eq(ddp_params_create(&params), DDP_OK);
    ck_assert_int_eq(ddp_model_create(&config, params, &model), DDP_OK);
    ck_assert_uint_eq(ddp_params_count(params), 8);
    ck_assert_uint_eq(ddp_params_elements(params), 421642);
    for (size_t i = 0; i < 8; i++) {
        const ddp_tensor_desc_t *desc = &ddp_params_descs(params)[i];

        ck_assert_str_eq(desc->name, expected[i].name);
        ck_assert_uint_eq(desc->ndim, expected[i].ndim);
        ck_assert_mem_eq(desc->shape, expected[i].shape, desc->ndim * sizeof(size_t));
    }
    ddp_model_destroy(&model);
    ddp_params_destroy(&params);
}
END_TEST

START_TEST(the_layer_table_counts_all_parameters)
{
    const ddp_model_config_t config = {
        .kind = DDP_MODEL_CNN, .height = 28, .width = 28, .channels = 1, .classes = 10, .dropout = 0.25F};
    static const char *names[] = {"conv1", "pool1", "conv2", "pool2", "flatten", "fc1", "dropout1", "fc2"};
    ddp_layer_info_t   layers[16];
    ddp_params_t      *params = NULL;
    ddp_model_t       *model  = NULL;
    size_t             total  = 0;

    ck_assert_int_eq(ddp_params_create(&params), DDP_OK);
    ck_assert_int_eq(ddp_model_create(&config, params, &model), DDP_OK);
    ck_assert_uint_eq(ddp_model_layers(model, NULL, 0), 8);
    ck_assert_uint_eq(ddp_model_layers(model, layers, 16), 8);
    for (size_t i = 0; i < 8; i++) {
        ck_assert_str_eq(layers[i].name, names[i]);
        total += layers[i].parameters;
    }
    ck_assert_uint_eq(total, ddp_params_elements(params));
    ck_assert_str_eq(layers[0].kind, "conv2d 3x3 pad 1 relu");
    ck_assert_str_eq(layers[6].kind, "dropout 0.25");
    ck_assert_uint_eq(layers[3].ndim, 3);
    ck_assert_uint_eq(layers[3].shape[0] * layers[3].shape[1] * layers[3].shape[2], 3136);
    /* conv1 2 x, the rest 3 x (2 x multiply-adds): 225792, 3612672, 401408, 1280 multiply-adds. */
    ck_assert_double_eq(ddp_model_flops(model), 2.0 * (2 * 225792.0 + 3 * (3612672.0 + 401408.0 + 1280.0)));
    ddp_model_destroy(&model);
    ddp_params_destroy(&params);
}
END_TEST

START_TEST(an_mlp_without_hidden_layers_is_one_linear_layer)
{
    const ddp_model_config_t config = {
        .kind = DDP_MODEL_MLP, .height = 28, .width = 28, .channels = 1, .classes = 10};
    ddp_params_t *params = NULL;
    ddp_model_t  *model  = NULL;

    ck_assert_int_eq(ddp_params_create(&params), DDP_OK);
    ck_assert_int_eq(ddp_model_create(&config, params, &model), DDP_OK);
    ck_assert_uint_eq(ddp_params_count(params), 2);
    ck_assert_str_eq(ddp_params_descs(params)[0].name, "fc1.weight");
    ck_assert_double_eq(ddp_model_flops(model), 4.0 * 7840);
    ddp_model_destroy(&model);
    ddp_params_destroy(&params);
}
END_TEST

static void expect_refused(ddp_model_config_t config, const char *line)
{
    ddp_params_t *params = NULL;
    ddp_model_t  *model  = NULL;

    ck_assert_int_eq(ddp_params_create(&params), DDP_OK);
    ck_assert_int_eq(ddp_model_create(&config, params, &model), DDP_ERR_CONFIG);
    ck_assert_str_eq(ddp_error_line(), line);
    ck_assert_ptr_null(model);
    ddp_params_destroy(&params);
}

START_TEST(configurations_that_make_no_model_are_refused)
{
    ddp_model_config_t config = cnn_config;

    config.height = 3;
    expect_refused(config, "model: cnn halves an image twice; 3 x 9 is smaller than 4 x 4, use mlp");
    config         = mlp_config;
    config.classes = 0;
    expect_refused(config, "model: no classes");
    config          = mlp_config;
    config.channels = 0;
    expect_refused(config, "model: images of 4 x 3 with 0 channels have no pixels");
    config           = mlp_config;
    config.hidden[1] = 0;
    expect_refused(config, "model: hidden layer 2 has no width");
    config         = mlp_config;
    config.dropout = 1.0F;
    expect_refused(config, "model: dropout 1 is not in [0, 1)");
    config          = mlp_config;
    config.n_hidden = 17;
    expect_refused(config, "model: 17 hidden layers, at most 16 are possible");
    config      = mlp_config;
    config.kind = (ddp_model_kind_t)7;
    expect_refused(config, "model: kind 7 is not known");
    config      = cnn_config;
    config.conv = (ddp_conv_algo_t)4;
    expect_refused(config, "model: convolution algorithm 4 is not known");
}
END_TEST

START_TEST(images_of_another_size_are_refused)
{
    const ddp_tape_begin_t begin = {.training = true};
    float                  images[24];
    nn_world_t             world;
    ddp_model_t           *model = NULL;
    ddp_tensor_t          *x = NULL, *logits = NULL;

    nn_noise(images, 24, 1);
    nn_world_open(&world, DDP_ISA_PLAIN);
    ck_assert_int_eq(ddp_model_create(&mlp_config, world.params, &model), DDP_OK);
    nn_world_start(&world, 1);
    ck_assert_int_eq(ddp_tape_begin(world.tape, &begin), DDP_OK);
    ck_assert_int_eq(ddp_tape_input(world.tape, images, 4, (const size_t[]){1, 3, 4, 2}, &x), DDP_OK);
    ck_assert_int_eq(ddp_model_forward(model, world.tape, x, &logits), DDP_ERR_INVALID_ARG);
    ck_assert_str_eq(ddp_error_line(), "model: made for images of [n, 4, 3, 2], given [1, 3, 4, 2]");
    ddp_model_destroy(&model);
    nn_world_close(&world);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("model");
    TCase *tcase = tcase_create("all");

    tcase_add_test(tcase, gradients_of_the_mlp_equal_differences_on_every_instruction_set);
    tcase_add_test(tcase, gradients_of_the_cnn_equal_differences_on_every_instruction_set);
    tcase_add_test(tcase, the_mlp_is_the_network_it_is_described_as);
    tcase_add_test(tcase, the_cnn_is_the_network_it_is_described_as);
    tcase_add_test(tcase, the_configuration_says_how_convolutions_are_computed);
    tcase_add_test(tcase, the_cnn_has_the_names_and_shapes_of_a_pytorch_module);
    tcase_add_test(tcase, the_layer_table_counts_all_parameters);
    tcase_add_test(tcase, an_mlp_without_hidden_layers_is_one_linear_layer);
    tcase_add_test(tcase, configurations_that_make_no_model_are_refused);
    tcase_add_test(tcase, images_of_another_size_are_refused);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
