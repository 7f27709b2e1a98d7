#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "nn/model.h"
#include "tests/nn/nn_program.h"
#include "tests/support/ddp_test.h"

/* float32 against float64 on small networks; see docs of nn_check_program(). */
#define TOLERANCE 1e-5

static const int32_t labels[] = {2, 0, 1, 1, 2};

START_TEST(gradients_of_a_norm_of_rows_equal_differences)
{
    const nn_param_t   params[] = {{"a.weight", 2, {11, 5}, 5},
                                   {"bn.weight", 1, {11}, 4},
                                   {"bn.bias", 1, {11}, 0},
                                   {"b.weight", 2, {3, 11}, 11},
                                   {"b.bias", 1, {3}, 0}};
    const nn_step_t    steps[]  = {{.op = NN_LINEAR, .x = 0, .weight = 0, .bias = NN_NONE},
                                   {.op = NN_NORM, .x = 1, .weight = 1, .bias = 2, .act = DDP_ACT_RELU},
                                   {.op = NN_LINEAR, .x = 2, .weight = 3, .bias = 4}};
    const nn_program_t program  = {.n_params = 5,
                                   .params   = params,
                                   .n_steps  = 3,
                                   .steps    = steps,
                                   .ndim     = 2,
                                   .shape    = {5, 5},
                                   .labels   = labels};

    nn_check_program_on_all_isas(&program, 1, 1, TOLERANCE);
}
END_TEST

static const nn_param_t block_params[] = {
    {"stem.weight", 4, {6, 2, 3, 3}, 18},  {"bn0.weight", 1, {6}, 2}, {"bn0.bias", 1, {6}, 0},
    {"conv1.weight", 4, {6, 6, 3, 3}, 54}, {"bn1.weight", 1, {6}, 2}, {"bn1.bias", 1, {6}, 0},
    {"conv2.weight", 4, {9, 6, 3, 3}, 54}, {"bn2.weight", 1, {9}, 2}, {"bn2.bias", 1, {9}, 0},
    {"short.weight", 4, {9, 6, 1, 1}, 6},  {"bn3.weight", 1, {9}, 2}, {"bn3.bias", 1, {9}, 0},
    {"fc.weight", 2, {3, 9}, 9},           {"fc.bias", 1, {3}, 0}};

/* A block whose residual is its input, then one with a shortcut of its own: what ResNets are made of. */
START_TEST(gradients_of_residual_blocks_equal_differences)
{
    const nn_step_t steps[] = {{.op = NN_CONV, .x = 0, .weight = 0, .bias = NN_NONE, .stride = 1, .pad = 1},
                               {.op = NN_NORM, .x = 1, .weight = 1, .bias = 2, .act = DDP_ACT_RELU},
                               {.op = NN_CONV, .x = 2, .weight = 3, .bias = NN_NONE, .stride = 1, .pad = 1},
                               {.op = NN_NORM, .x = 3, .x2 = 2, .weight = 4, .bias = 5, .act = DDP_ACT_RELU},
                               {.op = NN_CONV, .x = 4, .weight = 6, .bias = NN_NONE, .stride = 2, .pad = 1},
                               {.op = NN_CONV, .x = 4, .weight = 9, .bias = NN_NONE, .stride = 2, .pad = 0},
                               {.op = NN_NORM, .x = 6, .weight = 10, .bias = 11},
                               {.op = NN_NORM, .x = 5, .x2 = 7, .weight = 7, .bias = 8, .act = DDP_ACT_RELU},
                               {.op = NN_GLOBAL_POOL, .x = 8},
                               {.op = NN_LINEAR, .x = 9, .weight = 12, .bias = 13}};
    const nn_program_t program = {.n_params = 14,
                                  .params   = block_params,
                                  .n_steps  = 10,
                                  .steps    = steps,
                                  .ndim     = 4,
                                  .shape    = {5, 5, 6, 2},
                                  .labels   = labels};

    nn_check_program_on_all_isas(&program, 3, 5, TOLERANCE);
}
END_TEST

/* Gradients of x and of the residual that are there already, or come from two norms, are added up. */
START_TEST(gradients_of_values_that_are_used_twice_equal_differences)
{
    const nn_step_t steps[] = {
        {.op = NN_CONV, .x = 0, .weight = 0, .bias = NN_NONE, .stride = 1, .pad = 1},
        {.op = NN_NORM, .x = 1, .weight = 1, .bias = 2, .act = DDP_ACT_RELU},
        {.op = NN_CONV, .x = 2, .weight = 3, .bias = NN_NONE, .stride = 1, .pad = 1},
        {.op = NN_NORM, .x = 3, .x2 = 2, .weight = 4, .bias = 5}, /* the residual's comes last */
        {.op = NN_ADD, .x = 4, .x2 = 3},                          /* so 3 has a gradient */
        {.op = NN_ADD, .x = 5, .x2 = 1},                          /* and 1 */
        {.op = NN_NORM, .x = 6, .x2 = 2, .weight = 4, .bias = 5, .act = DDP_ACT_RELU}, /* shared gamma, beta
                                                                                        */
        {.op = NN_CONV, .x = 7, .weight = 6, .bias = NN_NONE, .stride = 1, .pad = 0},
        {.op = NN_GLOBAL_POOL, .x = 8},
        {.op = NN_LINEAR, .x = 9, .weight = 7, .bias = 8}};
    nn_param_t         params[9];
    const nn_program_t program = {.n_params = 9,
                                  .params   = params,
                                  .n_steps  = 10,
                                  .steps    = steps,
                                  .ndim     = 4,
                                  .shape    = {5, 4, 4, 2},
                                  .labels   = labels};

    memcpy(params, block_params, 6 * sizeof(params[0]));
    params[6] = block_params[9];
    params[7] = block_params[12];
    params[8] = block_params[13];
    nn_check_program_on_all_isas(&program, 2, 5, TOLERANCE);
}
END_TEST

#define ROWS 6
#define C    19

/* A norm of the input [ROWS, C] and a mean squared error; the input is the same in all tests. */
static const nn_param_t   plain_params[] = {{"bn.weight", 1, {C}, 1}, {"bn.bias", 1, {C}, 0}};
static const nn_step_t    plain_steps[]  = {{.op = NN_NORM, .x = 0, .weight = 0, .bias = 1}};
static float              plain_input[ROWS * C], plain_target[ROWS * C];
static const nn_program_t plain = {.n_params = 2,
                                   .params   = plain_params,
                                   .n_steps  = 1,
                                   .steps    = plain_steps,
                                   .ndim     = 2,
                                   .shape    = {ROWS, C},
                                   .target   = plain_target};

static void plain_open(nn_world_t *world, int isa)
{
    nn_noise(plain_input, (size_t)ROWS * C, 7);
    nn_world_open(world, (ddp_isa_t)isa);
    nn_program_start(&plain, world, 1);
}

static ddp_tensor_t *plain_forward(nn_world_t *world, const ddp_tape_begin_t *begin)
{
    ddp_tensor_t *values[NN_MAX_STEPS + 1];

    ck_assert_int_eq(ddp_tape_begin(world->tape, begin), DDP_OK);
    nn_program_forward(&plain, world, plain_input, values);
    nn_world_wait(world);
    return values[1];
}

static void column_moments(size_t j, double *mean, double *variance)
{
    *mean     = 0;
    *variance = 0;
    for (size_t i = 0; i < ROWS; i++) {
        *mean += (double)plain_input[i * C + j] / ROWS;
    }
    for (size_t i = 0; i < ROWS; i++) {
        const double d = (double)plain_input[i * C + j] - *mean;

        *variance += d * d / (ROWS - 1);
    }
}

/* `times` the statistics are where the averages' gradients would be. */
static void check_statistics(const nn_world_t *world, double times)
{
    for (size_t j = 0; j < C; j++) {
        double mean;
        double variance;

        column_moments(j, &mean, &variance);
        ck_assert_double_eq_tol((double)ddp_params_grad(world->params, 2)[j], times * mean, 1e-6);
        ck_assert_double_eq_tol((double)ddp_params_grad(world->params, 3)[j], times * variance, 1e-6);
    }
    for (size_t j = C; j < ddp_block_round(C); j++) {
        ck_assert_float_eq(ddp_params_grad(world->params, 3)[j], 0.0F);
    }
}

typedef struct log {
    size_t count;
    size_t index[8];
} log_t;

static ddp_status_t take_ready(void *ctx, size_t index)
{
    log_t *log = ctx;

    log->index[log->count++] = index;
    return DDP_OK;
}

START_TEST(training_gives_statistics_to_the_averages_once)
{
    const ddp_tape_begin_t first  = {.training = true};
    const ddp_tape_begin_t second = {.training = true, .accumulate_grads = true};
    uint8_t                used[4];
    log_t                  log = {0};
    nn_world_t             world;

    plain_open(&world, _i);
    ddp_tape_set_ready(world.tape, take_ready, &log);
    plain_forward(&world, &first);
    ddp_tape_used(world.tape, used);
    ck_assert_mem_eq(used, ((uint8_t[4]){1, 1, 1, 1}), 4);
    ck_assert_int_eq(ddp_tape_backward(world.tape), DDP_OK);
    nn_world_wait(&world);
    check_statistics(&world, 1.0);
    ck_assert_uint_eq(log.count, 4);
    for (size_t i = 0; i < 4; i++) { /* each of them once */
        used[log.index[i]]++;
    }
    ck_assert_mem_eq(used, ((uint8_t[4]){2, 2, 2, 2}), 4);
    plain_forward(&world, &second);
    ck_assert_int_eq(ddp_tape_backward(world.tape), DDP_OK);
    nn_world_wait(&world);
    check_statistics(&world, 2.0);
    nn_world_close(&world);
}
END_TEST

START_TEST(evaluation_normalises_with_the_averages)
{
    const ddp_tape_begin_t begin = {.training = false};
    uint8_t                used[4];
    const ddp_tensor_t    *y;
    nn_world_t             world;

    plain_open(&world, _i);
    for (size_t j = 0; j < C; j++) {
        ddp_params_value(world.params, 2)[j] = 0.01F * (float)j - 0.1F;
        ddp_params_value(world.params, 3)[j] = 0.5F + 0.02F * (float)j;
        ddp_params_grad(world.params, 2)[j]  = 77.0F;
    }
    y = plain_forward(&world, &begin);
    ddp_tape_used(world.tape, used);
    ck_assert_uint_eq(used[2] + used[3], 0);
    for (size_t i = 0; i < (size_t)ROWS * C; i++) {
        const size_t j     = i % C;
        const double scale = 1 / sqrt((double)ddp_params_value(world.params, 3)[j] + NN_EPS);
        const double h     = ((double)plain_input[i] - (double)ddp_params_value(world.params, 2)[j]) * scale;

        ck_assert_double_eq_tol((double)y->data[i], h * (double)ddp_params_value(world.params, 0)[j] + 0.25,
                                2e-6);
        ck_assert_float_eq(ddp_params_grad(world.params, 2)[j], 77.0F);
    }
    nn_world_close(&world);
}
END_TEST

/* A ResNet's step with its blocks kept, or run twice: every gradient and statistic has the same bits. */
START_TEST(blocks_that_run_again_give_statistics_once)
{
    const ddp_model_config_t config = {
        .kind = DDP_MODEL_RESNET, .depth = 20, .height = 8, .width = 8, .channels = 3, .classes = 3};
    const ddp_tape_begin_t begin    = {.training = true};
    const size_t           shape[4] = {5, 8, 8, 3};
    float                  images[5 * 8 * 8 * 3];
    float                 *kept  = NULL;
    size_t                 bytes = 0;
    nn_world_t             world;
    ddp_model_t           *model;

    nn_noise(images, sizeof(images) / sizeof(images[0]), 5);
    nn_world_open(&world, ddp_isa_detect());
    ck_assert_int_eq(ddp_model_create(&config, world.params, &model), DDP_OK);
    nn_world_start(&world, 1);
    bytes = ddp_params_total(world.params) * sizeof(float);
    kept  = malloc(bytes);
    for (int again = 0; again < 2; again++) {
        ddp_tensor_t     *x      = NULL;
        ddp_tensor_t     *logits = NULL;
        ddp_loss_stats_t *stats  = NULL;

        ddp_tape_set_recompute(world.tape, again == 1);
        ck_assert_int_eq(ddp_tape_begin(world.tape, &begin), DDP_OK);
        ck_assert_int_eq(ddp_tape_input(world.tape, images, 4, shape, &x), DDP_OK);
        ck_assert_int_eq(ddp_model_forward(model, world.tape, x, &logits), DDP_OK);
        ck_assert_int_eq(ddp_nn_cross_entropy(world.tape, logits, labels, NULL, -1, &stats), DDP_OK);
        ck_assert_int_eq(ddp_tape_backward(world.tape), DDP_OK);
        nn_world_wait(&world);
        if (again == 0) {
            memcpy(kept, ddp_params_grad(world.params, 0) - ddp_params_descs(world.params)[0].offset, bytes);
        }
    }
    ck_assert_mem_eq(kept, ddp_params_grad(world.params, 0) - ddp_params_descs(world.params)[0].offset,
                     bytes);
    free(kept);
    ddp_model_destroy(&model);
    nn_world_close(&world);
}
END_TEST

START_TEST(what_does_not_fit_is_refused)
{
    const ddp_tape_begin_t begin   = {.training = true};
    ddp_batch_norm_t       norm    = {0, 1, 2, 3, 1e-5F};
    const size_t           wide[2] = {ROWS, C - 1};
    const size_t           one[2]  = {1, C};
    const size_t           tall[2] = {ROWS + 1, C};
    ddp_tensor_t          *x = NULL, *y = NULL, *other = NULL;
    nn_world_t             world;

    plain_open(&world, 0);
    ck_assert_int_eq(ddp_tape_begin(world.tape, &begin), DDP_OK);
    ck_assert_int_eq(ddp_tape_input(world.tape, plain_input, 2, wide, &x), DDP_OK);
    ddp_assert_fails(ddp_nn_batch_norm(world.tape, x, &norm, NULL, DDP_ACT_NONE, &y), DDP_ERR_INVALID_ARG,
                     "batch norm: 'bn.weight' has 19 elements, the input 18 channels");
    ddp_assert_fails(ddp_nn_global_avg_pool(world.tape, x, &y), DDP_ERR_INVALID_ARG,
                     "global average pool: an input of [6, 18] is not images");
    ck_assert_int_eq(ddp_tape_input(world.tape, plain_input, 2, one, &x), DDP_OK);
    ddp_assert_fails(ddp_nn_batch_norm(world.tape, x, &norm, x, DDP_ACT_NONE, &y), DDP_ERR_INVALID_ARG,
                     "its input can not be its residual");
    ck_assert_int_eq(ddp_tape_input(world.tape, plain_target, 2, tall, &other), DDP_OK);
    ddp_assert_fails(ddp_nn_batch_norm(world.tape, x, &norm, other, DDP_ACT_NONE, &y), DDP_ERR_INVALID_ARG,
                     "a residual of [7, 19] does not fit an input of [1, 19]");
    ddp_assert_fails(ddp_nn_batch_norm(world.tape, x, &norm, NULL, DDP_ACT_NONE, &y), DDP_ERR_INVALID_ARG,
                     "a single value in each of 19 channels has no variance");
    ddp_assert_fails(ddp_nn_batch_norm(world.tape, x, &norm, NULL, DDP_ACT_NONE, &y), DDP_ERR_STATE,
                     "'norm0.running_mean' has two statistics");
    norm.running_mean = 1;
    ddp_assert_fails(ddp_nn_batch_norm(world.tape, x, &norm, NULL, DDP_ACT_NONE, &y), DDP_ERR_INVALID_ARG,
                     "'bn.bias' is not a running average");
    norm.gamma = 9;
    ddp_assert_fails(ddp_nn_batch_norm(world.tape, x, &norm, NULL, DDP_ACT_NONE, &y), DDP_ERR_INVALID_ARG,
                     "parameter 9 of 4 does not exist");
    nn_world_close(&world);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("batch_norm");
    TCase *tcase = tcase_create("all");

    tcase_add_test(tcase, gradients_of_a_norm_of_rows_equal_differences);
    tcase_add_test(tcase, gradients_of_residual_blocks_equal_differences);
    tcase_add_test(tcase, gradients_of_values_that_are_used_twice_equal_differences);
    tcase_add_loop_test(tcase, training_gives_statistics_to_the_averages_once, 0, nn_isas());
    tcase_add_loop_test(tcase, evaluation_normalises_with_the_averages, 0, nn_isas());
    tcase_add_test(tcase, blocks_that_run_again_give_statistics_once);
    tcase_add_test(tcase, what_does_not_fit_is_refused);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
