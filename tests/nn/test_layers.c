#include <stdint.h>
#include <string.h>

#include "tests/nn/nn_program.h"
#include "tests/support/ddp_test.h"

/* float32 against float64 on small networks; see docs of nn_check_program(). */
#define TOLERANCE 1e-5

static const int32_t labels[]  = {2, 0, -1, 1, 2, 1, 0}; /* one row is ignored */
static const float   weights[] = {1.0F, 0.5F, 1.0F, 2.0F, 0.25F, 1.0F, 1.5F};

static const nn_param_t mlp_params[] = {
    {"a.weight", 2, {11, 5}, 5}, {"a.bias", 1, {11}, 0}, {"b.weight", 2, {3, 11}, 11}, {"b.bias", 1, {3}, 0}};

static void check_mlp(ddp_act_t act, bool use_bias, uint64_t seed)
{
    const nn_step_t steps[] = {
        {.op = NN_LINEAR, .x = 0, .weight = 0, .bias = use_bias ? 1 : NN_NONE, .act = act},
        {.op = NN_LINEAR, .x = 1, .weight = 2, .bias = 3}};
    const nn_param_t   no_bias[]       = {mlp_params[0], {"b.weight", 2, {3, 11}, 11}};
    const nn_step_t    no_bias_steps[] = {{.op = NN_LINEAR, .x = 0, .weight = 0, .bias = NN_NONE, .act = act},
                                          {.op = NN_LINEAR, .x = 1, .weight = 1, .bias = NN_NONE}};
    const nn_program_t program         = {.n_params = use_bias ? 4 : 2,
                                          .params   = use_bias ? mlp_params : no_bias,
                                          .n_steps  = 2,
                                          .steps    = use_bias ? steps : no_bias_steps,
                                          .ndim     = 2,
                                          .shape    = {7, 5},
                                          .labels   = labels,
                                          .weights  = weights};

    nn_check_program_on_all_isas(&program, seed, 1, TOLERANCE);
}

START_TEST(gradients_of_linear_layers_with_each_activation_equal_differences)
{
    check_mlp(DDP_ACT_NONE, true, 1);
    check_mlp(DDP_ACT_RELU, true, 2);
    check_mlp(DDP_ACT_GELU, true, 3);
    check_mlp(DDP_ACT_GELU_TANH, true, 4);
    check_mlp(DDP_ACT_RELU, false, 5);
}
END_TEST

START_TEST(a_linear_layer_works_on_the_last_of_three_dimensions)
{
    static const int32_t rows[]  = {0, 1, 2, 0, 1, 2};
    const nn_step_t      steps[] = {{.op = NN_LINEAR, .x = 0, .weight = 0, .bias = 1, .act = DDP_ACT_GELU},
                                    {.op = NN_LINEAR, .x = 1, .weight = 2, .bias = 3}};
    const nn_program_t   program = {.n_params = 4,
                                    .params   = mlp_params,
                                    .n_steps  = 2,
                                    .steps    = steps,
                                    .ndim     = 3,
                                    .shape    = {2, 3, 5},
                                    .labels   = rows};

    nn_check_program_on_all_isas(&program, 6, 1, TOLERANCE);
}
END_TEST

START_TEST(gradients_of_separate_activations_equal_differences)
{
    static const ddp_act_t acts[] = {DDP_ACT_RELU, DDP_ACT_GELU, DDP_ACT_GELU_TANH, DDP_ACT_NONE};

    for (size_t i = 0; i < sizeof(acts) / sizeof(acts[0]); i++) {
        const nn_step_t    steps[] = {{.op = NN_LINEAR, .x = 0, .weight = 0, .bias = 1},
                                      {.op = NN_ACT, .x = 1, .act = acts[i]},
                                      {.op = NN_LINEAR, .x = 2, .weight = 2, .bias = 3}};
        const nn_program_t program = {.n_params = 4,
                                      .params   = mlp_params,
                                      .n_steps  = 3,
                                      .steps    = steps,
                                      .ndim     = 2,
                                      .shape    = {7, 5},
                                      .labels   = labels,
                                      .weights  = weights};

        nn_check_program_on_all_isas(&program, 10 + i, 1, TOLERANCE);
    }
}
END_TEST

START_TEST(gradients_of_mean_squared_error_equal_differences)
{
    float              target[7 * 3];
    const nn_step_t    steps[] = {{.op = NN_LINEAR, .x = 0, .weight = 0, .bias = 1, .act = DDP_ACT_GELU},
                                  {.op = NN_LINEAR, .x = 1, .weight = 2, .bias = 3}};
    const nn_program_t program = {.n_params = 4,
                                  .params   = mlp_params,
                                  .n_steps  = 2,
                                  .steps    = steps,
                                  .ndim     = 2,
                                  .shape    = {7, 5},
                                  .target   = target,
                                  .weights  = weights};

    nn_noise(target, 21, 99);
    nn_check_program_on_all_isas(&program, 20, 1, TOLERANCE);
}
END_TEST

/* Two convolutions, so that the second one's input gradient is seen in the first one's parameters. */
static const nn_param_t conv_params[] = {{"a.weight", 4, {5, 3, 3, 3}, 27}, {"a.bias", 1, {5}, 0},
                                         {"b.weight", 4, {4, 5, 3, 3}, 45}, {"b.bias", 1, {4}, 0},
                                         {"c.weight", 2, {3, 0}, 9},        {"c.bias", 1, {3}, 0}};

static void check_conv(size_t stride, size_t pad, ddp_act_t act, size_t flat, uint64_t seed)
{
    const nn_step_t steps[] = {
        {.op = NN_CONV, .x = 0, .weight = 0, .bias = 1, .stride = 1, .pad = 1, .act = act},
        {.op = NN_CONV, .x = 1, .weight = 2, .bias = 3, .stride = stride, .pad = pad},
        {.op = NN_FLATTEN, .x = 2},
        {.op = NN_LINEAR, .x = 3, .weight = 4, .bias = 5}};
    nn_param_t         params[6];
    const nn_program_t program = {.n_params = 6,
                                  .params   = params,
                                  .n_steps  = 4,
                                  .steps    = steps,
                                  .ndim     = 4,
                                  .shape    = {2, 7, 6, 3},
                                  .labels   = labels};

    memcpy(params, conv_params, sizeof(params));
    params[4].shape[1] = flat;
    params[4].fan_in   = flat;
    nn_check_program_on_all_isas(&program, seed, 3, TOLERANCE);
}

START_TEST(gradients_of_convolutions_equal_differences)
{
    check_conv(1, 1, DDP_ACT_NONE, 7 * 6 * 4, 30);
    check_conv(1, 0, DDP_ACT_RELU, 5 * 4 * 4, 31);
    check_conv(2, 1, DDP_ACT_RELU, 4 * 3 * 4, 32);
}
END_TEST

static void check_pool(nn_op_t op, size_t kernel, size_t stride, size_t pad, size_t flat, uint64_t seed)
{
    const nn_step_t  steps[]  = {{.op = NN_CONV, .x = 0, .weight = 0, .bias = NN_NONE, .stride = 1, .pad = 1},
                                 {.op = op, .x = 1, .kernel = kernel, .stride = stride, .pad = pad},
                                 {.op = NN_FLATTEN, .x = 2},
                                 {.op = NN_LINEAR, .x = 3, .weight = 1, .bias = 2}};
    const nn_param_t params[] = {
        {"a.weight", 4, {5, 3, 3, 3}, 27}, {"c.weight", 2, {3, flat}, flat}, {"c.bias", 1, {3}, 0}};
    const nn_program_t program = {.n_params = 3,
                                  .params   = params,
                                  .n_steps  = 4,
                                  .steps    = steps,
                                  .ndim     = 4,
                                  .shape    = {2, 7, 6, 3},
                                  .labels   = labels};

    nn_check_program_on_all_isas(&program, seed, 2, TOLERANCE);
}

START_TEST(gradients_of_pooling_equal_differences)
{
    check_pool(NN_MAX_POOL, 2, 2, 0, 3 * 3 * 5, 40);
    check_pool(NN_MAX_POOL, 3, 2, 1, 4 * 3 * 5, 41);
    check_pool(NN_AVG_POOL, 2, 2, 0, 3 * 3 * 5, 42);
    check_pool(NN_AVG_POOL, 3, 1, 1, 7 * 6 * 5, 43);
}
END_TEST

START_TEST(flattening_images_of_one_pixel_or_one_channel_copies_nothing)
{
    static const size_t    shapes[3][4] = {{2, 1, 1, 6}, {2, 3, 2, 1}, {2, 3, 2, 4}};
    const ddp_tape_begin_t begin        = {.training = true};
    const size_t           shape[]      = {1, 6};
    float                  data[48];
    nn_world_t             world;
    size_t                 index;

    nn_noise(data, 48, 1);
    nn_world_open(&world, DDP_ISA_PLAIN);
    ck_assert_int_eq(
        ddp_params_add(world.params, "w", 2, shape, (ddp_init_t){.kind = DDP_INIT_ONE, .fan_in = 0}, &index),
        DDP_OK);
    ck_assert_int_eq(ddp_params_finish(world.params), DDP_OK);
    nn_world_start(&world, 1);
    ck_assert_int_eq(ddp_tape_begin(world.tape, &begin), DDP_OK);
    for (size_t i = 0; i < 3; i++) {
        ddp_tensor_t *x = NULL, *y = NULL;

        ck_assert_int_eq(ddp_tape_input(world.tape, data, 4, shapes[i], &x), DDP_OK);
        ck_assert_int_eq(ddp_nn_flatten(world.tape, x, &y), DDP_OK);
        nn_world_wait(&world);
        ck_assert_uint_eq(y->ndim, 2);
        ck_assert_uint_eq(y->shape[1], x->count / 2);
        ck_assert((y->data == x->data) == (i < 2));
    }
    nn_world_close(&world);
}
END_TEST

START_TEST(gradients_pass_through_a_flatten_that_is_a_view)
{
    const nn_step_t steps[] = {
        {.op = NN_CONV, .x = 0, .weight = 0, .bias = 1, .stride = 1, .pad = 0, .act = DDP_ACT_RELU},
        {.op = NN_FLATTEN, .x = 1},
        {.op = NN_LINEAR, .x = 2, .weight = 2, .bias = 3}};
    const nn_param_t   params[] = {{"a.weight", 4, {6, 2, 3, 3}, 18},
                                   {"a.bias", 1, {6}, 0},
                                   {"c.weight", 2, {3, 6}, 6},
                                   {"c.bias", 1, {3}, 0}};
    const nn_program_t program  = {.n_params = 4,
                                   .params   = params,
                                   .n_steps  = 3,
                                   .steps    = steps,
                                   .ndim     = 4,
                                   .shape    = {2, 3, 3, 2},
                                   .labels   = labels};

    nn_check_program_on_all_isas(&program, 50, 1, TOLERANCE);
}
END_TEST

START_TEST(gradients_through_dropout_equal_differences_with_its_mask)
{
    const nn_step_t    steps[] = {{.op = NN_LINEAR, .x = 0, .weight = 0, .bias = 1, .act = DDP_ACT_RELU},
                                  {.op = NN_DROPOUT, .x = 1, .p = 0.4F},
                                  {.op = NN_LINEAR, .x = 2, .weight = 2, .bias = 3},
                                  {.op = NN_DROPOUT, .x = 3, .p = 0.25F}};
    const nn_program_t program = {.n_params = 4,
                                  .params   = mlp_params,
                                  .n_steps  = 4,
                                  .steps    = steps,
                                  .ndim     = 2,
                                  .shape    = {7, 5},
                                  .labels   = labels,
                                  .weights  = weights};

    nn_check_program_on_all_isas(&program, 60, 1, TOLERANCE);
}
END_TEST

/** A world with one parameter, for layers that have none. */
static void open_small_world(nn_world_t *world)
{
    size_t index;

    nn_world_open(world, ddp_isa_detect());
    ck_assert_int_eq(ddp_params_add(world->params, "a", 1, (const size_t[]){1},
                                    (ddp_init_t){.kind = DDP_INIT_ZERO, .fan_in = 0}, &index),
                     DDP_OK);
    ck_assert_int_eq(ddp_params_finish(world->params), DDP_OK);
    nn_world_start(world, 1);
}

/** Values of each dropout in a forward at `begin`. */
static void run_dropouts(nn_world_t *world, const ddp_tape_begin_t *begin, float *ones, ddp_tensor_t *y[2])
{
    ddp_tensor_t *x = NULL;

    ck_assert_int_eq(ddp_tape_begin(world->tape, begin), DDP_OK);
    ck_assert_int_eq(ddp_tape_input(world->tape, ones, 2, (const size_t[]){4, 64}, &x), DDP_OK);
    ck_assert_int_eq(ddp_nn_dropout(world->tape, x, 0.5F, &y[0]), DDP_OK);
    ck_assert_int_eq(ddp_nn_dropout(world->tape, x, 0.5F, &y[1]), DDP_OK);
    nn_world_wait(world);
}

START_TEST(each_dropout_of_a_forward_draws_its_own_numbers_and_rows_keep_theirs)
{
    ddp_tape_begin_t begin = {.training = true, .seed = 4, .step = 1, .first_row = 12};
    nn_world_t       world;
    float            ones[256], first[256], second[256];
    ddp_tensor_t    *y[2];

    for (size_t i = 0; i < 256; i++) {
        ones[i] = 1;
    }
    open_small_world(&world);
    run_dropouts(&world, &begin, ones, y);
    memcpy(first, y[0]->data, sizeof(first));
    memcpy(second, y[1]->data, sizeof(second));
    ck_assert_mem_ne(first, second, sizeof(first));
    run_dropouts(&world, &begin, ones, y); /* the same forward again: the same numbers */
    ck_assert_mem_eq(first, y[0]->data, sizeof(first));
    ck_assert_mem_eq(second, y[1]->data, sizeof(second));
    begin.first_row += 2; /* row 2 of the old batch is row 0 of this one */
    run_dropouts(&world, &begin, ones, y);
    ck_assert_mem_eq(first + 128, y[0]->data, 128 * sizeof(float));
    begin.step++;
    run_dropouts(&world, &begin, ones, y);
    ck_assert_mem_ne(first + 128, y[0]->data, 128 * sizeof(float));
    begin.training = false;
    run_dropouts(&world, &begin, ones, y);
    ck_assert_mem_eq(ones, y[0]->data, sizeof(ones));
    ck_assert_ptr_eq(y[0], y[1]); /* nothing was copied */
    nn_world_close(&world);
}
END_TEST

/* A value that is used by three layers, once twice by the same one. */
START_TEST(gradients_of_a_value_used_several_times_add_up)
{
    const nn_step_t    steps[]  = {{.op = NN_LINEAR, .x = 0, .weight = 0, .bias = 1, .act = DDP_ACT_RELU},
                                   {.op = NN_LINEAR, .x = 1, .weight = 2, .bias = 3, .act = DDP_ACT_GELU},
                                   {.op = NN_ADD, .x = 1, .x2 = 2},
                                   {.op = NN_ADD, .x = 3, .x2 = 1},
                                   {.op = NN_ADD, .x = 4, .x2 = 4},
                                   {.op = NN_ACT, .x = 5, .act = DDP_ACT_GELU},
                                   {.op = NN_ADD, .x = 5, .x2 = 6},
                                   {.op = NN_LINEAR, .x = 7, .weight = 4, .bias = 5}};
    const nn_param_t   params[] = {{"a.weight", 2, {11, 5}, 5},   {"a.bias", 1, {11}, 0},
                                   {"b.weight", 2, {11, 11}, 11}, {"b.bias", 1, {11}, 0},
                                   {"c.weight", 2, {3, 11}, 11},  {"c.bias", 1, {3}, 0}};
    const nn_program_t program  = {.n_params = 6,
                                   .params   = params,
                                   .n_steps  = 8,
                                   .steps    = steps,
                                   .ndim     = 2,
                                   .shape    = {7, 5},
                                   .labels   = labels,
                                   .weights  = weights};

    nn_check_program_on_all_isas(&program, 70, 1, TOLERANCE);
}
END_TEST

/* Images used twice: a residual around a convolution, as flatten, pool and convolution all add up. */
START_TEST(gradients_of_images_used_several_times_add_up)
{
    const nn_step_t steps[] = {
        {.op = NN_CONV, .x = 0, .weight = 0, .bias = 1, .stride = 1, .pad = 1, .act = DDP_ACT_RELU},
        {.op = NN_CONV, .x = 1, .weight = 2, .bias = 3, .stride = 1, .pad = 1},
        {.op = NN_ADD, .x = 2, .x2 = 1},
        {.op = NN_AVG_POOL, .x = 3, .kernel = 3, .stride = 1, .pad = 1},
        {.op = NN_MAX_POOL, .x = 3, .kernel = 3, .stride = 1, .pad = 1},
        {.op = NN_ADD, .x = 4, .x2 = 5},
        {.op = NN_ADD, .x = 6, .x2 = 3},
        {.op = NN_FLATTEN, .x = 7},
        {.op = NN_LINEAR, .x = 8, .weight = 4, .bias = 5}};
    const nn_param_t   params[] = {{"a.weight", 4, {4, 3, 3, 3}, 27}, {"a.bias", 1, {4}, 0},
                                   {"b.weight", 4, {4, 4, 3, 3}, 36}, {"b.bias", 1, {4}, 0},
                                   {"c.weight", 2, {3, 120}, 120},    {"c.bias", 1, {3}, 0}};
    const nn_program_t program  = {.n_params = 6,
                                   .params   = params,
                                   .n_steps  = 9,
                                   .steps    = steps,
                                   .ndim     = 4,
                                   .shape    = {2, 6, 5, 3},
                                   .labels   = labels};

    nn_check_program_on_all_isas(&program, 80, 3, TOLERANCE);
}
END_TEST

/* Tied: the same matrix twice, and once more where its bias is not shared. */
START_TEST(gradients_of_a_parameter_used_several_times_add_up)
{
    const nn_step_t  steps[]  = {{.op = NN_LINEAR, .x = 0, .weight = 0, .bias = 1, .act = DDP_ACT_RELU},
                                 {.op = NN_LINEAR, .x = 1, .weight = 0, .bias = 1, .act = DDP_ACT_GELU},
                                 {.op = NN_LINEAR, .x = 2, .weight = 0, .bias = 2},
                                 {.op = NN_LINEAR, .x = 3, .weight = 3, .bias = NN_NONE}};
    const nn_param_t params[] = {
        {"a.weight", 2, {5, 5}, 5}, {"a.bias", 1, {5}, 0}, {"b.bias", 1, {5}, 0}, {"c.weight", 2, {3, 5}, 5}};
    const nn_program_t program = {.n_params = 4,
                                  .params   = params,
                                  .n_steps  = 4,
                                  .steps    = steps,
                                  .ndim     = 2,
                                  .shape    = {7, 5},
                                  .labels   = labels,
                                  .weights  = weights};

    nn_check_program_on_all_isas(&program, 90, 1, TOLERANCE);
}
END_TEST

/* The shared kernel or the shared bias is written first, and the other one not yet: both orders. */
START_TEST(gradients_of_convolutions_that_share_a_kernel_or_a_bias_add_up)
{
    for (int share_bias = 0; share_bias < 2; share_bias++) {
        const nn_step_t steps[] = {
            {.op = NN_CONV, .x = 0, .weight = 0, .bias = 2, .stride = 1, .pad = 1, .act = DDP_ACT_RELU},
            {.op     = NN_CONV,
             .x      = 1,
             .weight = share_bias ? 1 : 0,
             .bias   = share_bias ? 2 : 3,
             .stride = 1,
             .pad    = 1},
            {.op = NN_FLATTEN, .x = 2},
            {.op = NN_LINEAR, .x = 3, .weight = share_bias ? 3 : 1, .bias = NN_NONE}};
        const nn_param_t   kernel[] = {{"a.weight", 4, {3, 3, 3, 3}, 27},
                                       {"c.weight", 2, {3, 90}, 90},
                                       {"a.bias", 1, {3}, 0},
                                       {"b.bias", 1, {3}, 0}};
        const nn_param_t   bias[]   = {{"a.weight", 4, {3, 3, 3, 3}, 27},
                                       {"b.weight", 4, {3, 3, 3, 3}, 27},
                                       {"a.bias", 1, {3}, 0},
                                       {"c.weight", 2, {3, 90}, 90}};
        const nn_program_t program  = {.n_params = 4,
                                       .params   = share_bias ? bias : kernel,
                                       .n_steps  = 4,
                                       .steps    = steps,
                                       .ndim     = 4,
                                       .shape    = {2, 6, 5, 3},
                                       .labels   = labels};

        nn_check_program_on_all_isas(&program, 100, 3, TOLERANCE);
    }
}
END_TEST

START_TEST(a_label_out_of_range_is_reported_by_the_stream)
{
    static const int32_t   bad[] = {0, 1, 9, 3, 4, 0};
    const ddp_tape_begin_t begin = {.training = true};
    float                  data[6 * 5];
    ddp_loss_stats_t      *stats = NULL;
    ddp_tensor_t          *x     = NULL;
    nn_world_t             world;
    ddp_status_t           status;

    nn_noise(data, 30, 1);
    open_small_world(&world);
    ck_assert_int_eq(ddp_tape_begin(world.tape, &begin), DDP_OK);
    ck_assert_int_eq(ddp_tape_input(world.tape, data, 2, (const size_t[]){6, 5}, &x), DDP_OK);
    status = ddp_nn_cross_entropy(world.tape, x, bad, NULL, -1, &stats);
    status = status == DDP_OK ? ddp_stream_synchronize(world.stream, 1000) : status;
    ck_assert_int_eq(status, DDP_ERR_INVALID_ARG);
    ddp_tape_destroy(&world.tape);
    ddp_params_destroy(&world.params);
    ddp_stream_destroy(&world.stream);
    ddp_device_destroy(&world.device);
}
END_TEST

static void expect_line(ddp_status_t status, const char *line)
{
    ck_assert_int_eq(status, DDP_ERR_INVALID_ARG);
    ck_assert_str_eq(ddp_error_line(), line);
}

START_TEST(shapes_that_do_not_fit_are_named_with_both_sides)
{
    const ddp_tape_begin_t begin   = {.training = true};
    const size_t           image[] = {2, 5, 4, 3}, kernel[] = {6, 2, 3, 3}, matrix[] = {7, 9}, small[] = {5};
    static float           data[120];
    nn_world_t             world;
    ddp_tensor_t          *x = NULL, *flat = NULL, *y = NULL;
    size_t                 conv, linear, bias;
    const ddp_init_t       zero = {.kind = DDP_INIT_ZERO, .fan_in = 0};

    nn_world_open(&world, DDP_ISA_PLAIN);
    ck_assert_int_eq(ddp_params_add(world.params, "c", 4, kernel, zero, &conv), DDP_OK);
    ck_assert_int_eq(ddp_params_add(world.params, "w", 2, matrix, zero, &linear), DDP_OK);
    ck_assert_int_eq(ddp_params_add(world.params, "b", 1, small, zero, &bias), DDP_OK);
    ck_assert_int_eq(ddp_params_finish(world.params), DDP_OK);
    nn_world_start(&world, 1);
    ck_assert_int_eq(ddp_tape_begin(world.tape, &begin), DDP_OK);
    ck_assert_int_eq(ddp_tape_input(world.tape, data, 4, image, &x), DDP_OK);
    ck_assert_int_eq(ddp_tape_input(world.tape, data, 2, (const size_t[]){2, 9}, &flat), DDP_OK);
    expect_line(ddp_nn_linear(world.tape, x, linear, DDP_NO_PARAM, DDP_ACT_NONE, &y),
                "linear: weight 'w' [7, 9] does not fit an input of [2, 5, 4, 3]");
    expect_line(ddp_nn_linear(world.tape, flat, linear, bias, DDP_ACT_NONE, &y),
                "linear: bias 'b' [5] does not fit weight 'w' [7, 9]");
    expect_line(ddp_nn_linear(world.tape, flat, 3, bias, DDP_ACT_NONE, &y),
                "linear: parameter 3 of 3 does not exist");
    expect_line(
        ddp_nn_conv2d(world.tape, x, conv, DDP_NO_PARAM, 1, 1, DDP_ACT_NONE, &y),
        "conv2d: weight 'c' [6, 2, 3, 3] (out, in, height, width) does not fit images of [2, 5, 4, 3] (n, "
        "height, width, channels)");
    expect_line(ddp_nn_max_pool2d(world.tape, x, 5, 1, 0, &y),
                "pool2d: kernel 5 is larger than images of [2, 5, 4, 3] with pad 0");
    expect_line(ddp_nn_max_pool2d(world.tape, flat, 2, 1, 0, &y),
                "pool2d: an input of [2, 9] is not images (n, height, width, channels)");
    expect_line(ddp_nn_add(world.tape, x, flat, &y), "add: [2, 5, 4, 3] and [2, 9] differ");
    expect_line(ddp_nn_dropout(world.tape, x, 1.0F, &y), "dropout: probability 1 is not in [0, 1)");
    ck_assert_ptr_null(y);
    nn_world_close(&world);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("layers");
    TCase *tcase = tcase_create("gradients");

    tcase_add_test(tcase, gradients_of_linear_layers_with_each_activation_equal_differences);
    tcase_add_test(tcase, a_linear_layer_works_on_the_last_of_three_dimensions);
    tcase_add_test(tcase, gradients_of_separate_activations_equal_differences);
    tcase_add_test(tcase, gradients_of_mean_squared_error_equal_differences);
    tcase_add_test(tcase, gradients_of_convolutions_equal_differences);
    tcase_add_test(tcase, gradients_of_pooling_equal_differences);
    tcase_add_test(tcase, flattening_images_of_one_pixel_or_one_channel_copies_nothing);
    tcase_add_test(tcase, gradients_pass_through_a_flatten_that_is_a_view);
    tcase_add_test(tcase, gradients_through_dropout_equal_differences_with_its_mask);
    tcase_add_test(tcase, each_dropout_of_a_forward_draws_its_own_numbers_and_rows_keep_theirs);
    tcase_add_test(tcase, gradients_of_a_value_used_several_times_add_up);
    tcase_add_test(tcase, gradients_of_images_used_several_times_add_up);
    tcase_add_test(tcase, gradients_of_a_parameter_used_several_times_add_up);
    tcase_add_test(tcase, gradients_of_convolutions_that_share_a_kernel_or_a_bias_add_up);
    tcase_add_test(tcase, a_label_out_of_range_is_reported_by_the_stream);
    tcase_add_test(tcase, shapes_that_do_not_fit_are_named_with_both_sides);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
