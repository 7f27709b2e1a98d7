/* A network cut in two at a tensor: its second part runs on another tape, as that of another device would. */
#include "tests/nn/nn_other.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define ROWS         6

static const int32_t          labels[ROWS] = {0, 1, -1, 3, 4, 0};
static const ddp_tape_begin_t training     = {.training = true, .seed = 4, .step = 1, .first_row = 12};

/* mlp: cut at 1, 2 (behind a dropout) or 3 */
static const nn_step_t  mlp_steps[] = {{.op = NN_LINEAR, .x = 0, .weight = 0, .bias = 1, .act = DDP_ACT_RELU},
                                       {.op = NN_DROPOUT, .x = 1, .p = 0.3F},
                                       {.op = NN_LINEAR, .x = 2, .weight = 2, .bias = 3, .act = DDP_ACT_GELU},
                                       {.op = NN_LINEAR, .x = 3, .weight = 4, .bias = 5}};
static const nn_param_t mlp_params[] = {{"a.weight", 2, {16, 36}, 36}, {"a.bias", 1, {16}, 0},
                                        {"b.weight", 2, {9, 16}, 16},  {"b.bias", 1, {9}, 0},
                                        {"c.weight", 2, {5, 9}, 9},    {"c.bias", 1, {5}, 0}};

/* cnn: cut before and behind pooling and a flatten that moves, with batch normalisation before */
static const nn_step_t cnn_steps[] = {
    {.op = NN_CONV, .x = 0, .weight = 0, .bias = NN_NONE, .stride = 1, .pad = 1},
    {.op = NN_NORM, .x = 1, .weight = 1, .bias = 2, .act = DDP_ACT_RELU},
    {.op = NN_MAX_POOL, .x = 2, .kernel = 2, .stride = 2},
    {.op = NN_CONV, .x = 3, .weight = 3, .bias = 4, .stride = 1, .pad = 1, .act = DDP_ACT_RELU},
    {.op = NN_FLATTEN, .x = 4},
    {.op = NN_LINEAR, .x = 5, .weight = 5, .bias = 6}};
static const nn_param_t cnn_params[] = {{"conv1.weight", 4, {4, 3, 3, 3}, 27},
                                        {"norm.weight", 1, {4}, 0},
                                        {"norm.bias", 1, {4}, 0},
                                        {"conv2.weight", 4, {5, 4, 3, 3}, 36},
                                        {"conv2.bias", 1, {5}, 0},
                                        {"fc.weight", 2, {5, 45}, 45},
                                        {"fc.bias", 1, {5}, 0}};

/* residual: cut at 1, which three operations of the second part read */
static const nn_step_t residual_steps[] = {
    {.op = NN_LINEAR, .x = 0, .weight = 0, .bias = 1, .act = DDP_ACT_RELU},
    {.op = NN_LINEAR, .x = 1, .weight = 2, .bias = 3, .act = DDP_ACT_GELU},
    {.op = NN_ADD, .x = 2, .x2 = 1},
    {.op = NN_LINEAR, .x = 3, .weight = 4, .bias = NN_NONE},
    {.op = NN_ADD, .x = 1, .x2 = 4},
    {.op = NN_LINEAR, .x = 5, .weight = 5, .bias = 6}};
static const nn_param_t residual_params[] = {{"a.weight", 2, {16, 36}, 36}, {"a.bias", 1, {16}, 0},
                                             {"b.weight", 2, {16, 16}, 16}, {"b.bias", 1, {16}, 0},
                                             {"c.weight", 2, {16, 16}, 16}, {"d.weight", 2, {5, 16}, 16},
                                             {"d.bias", 1, {5}, 0}};

static const nn_program_t programs[] = {{.n_params = COUNT(mlp_params),
                                         .params   = mlp_params,
                                         .n_steps  = COUNT(mlp_steps),
                                         .steps    = mlp_steps,
                                         .ndim     = 2,
                                         .shape    = {ROWS, 36},
                                         .labels   = labels},
                                        {.n_params = COUNT(cnn_params),
                                         .params   = cnn_params,
                                         .n_steps  = COUNT(cnn_steps),
                                         .steps    = cnn_steps,
                                         .ndim     = 4,
                                         .shape    = {ROWS, 6, 6, 3},
                                         .labels   = labels},
                                        {.n_params = COUNT(residual_params),
                                         .params   = residual_params,
                                         .n_steps  = COUNT(residual_steps),
                                         .steps    = residual_steps,
                                         .ndim     = 2,
                                         .shape    = {ROWS, 36},
                                         .labels   = labels}};
/* All steps behind a cut read nothing that is older than the cut. */
static const struct cut {
    size_t program, at;
} cuts[] = {{0, 1}, {0, 2}, {0, 3}, {0, 4}, {1, 2}, {1, 3}, {1, 4}, {1, 5}, {1, 6}, {2, 1}, {2, 5}};

static float input[ROWS * 108];

/* ddp_block_fn_t: some steps of a program. */
typedef struct part {
    const nn_program_t *program;
    size_t              first, last;
} part_t;

static ddp_status_t run_part(const void *ctx, ddp_tape_t *tape, ddp_tensor_t *x, ddp_tensor_t **y_p)
{
    const part_t *part = ctx;
    ddp_status_t  status;
    ddp_tensor_t *values[NN_MAX_STEPS + 1] = {NULL};

    values[part->first] = x;
    status              = nn_program_steps(part->program, tape, part->first, part->last, values);
    *y_p                = values[part->last];
    return status;
}

static void start(const nn_program_t *program, nn_world_t *world, int isa)
{
    nn_noise(input, COUNT(input), 8);
    nn_world_open(world, (ddp_isa_t)isa);
    nn_program_start(program, world, 1);
    nn_world_wait(world);
}

static float *grads_in_one_piece(const nn_program_t *program, nn_world_t *world)
{
    ddp_tensor_t *values[NN_MAX_STEPS + 1];

    nn_grads_spoil(world);
    ddp_assert_ok(ddp_tape_begin(world->tape, &training));
    (void)nn_program_forward(program, world, input, values);
    ddp_assert_ok(ddp_tape_backward(world->tape));
    nn_world_wait(world);
    return nn_grads_copy(world);
}

static void run_cut(const nn_program_t *program, size_t at, nn_world_t *world, nn_other_t *other)
{
    const part_t      parts[2] = {{program, 0, at}, {program, at, program->n_steps}};
    ddp_tensor_t     *x        = NULL;
    ddp_tensor_t     *y        = NULL;
    ddp_tensor_t     *z        = NULL;
    ddp_loss_stats_t *stats    = NULL;

    ddp_assert_ok(ddp_tape_begin(world->tape, &training));
    ddp_assert_ok(ddp_tape_input(world->tape, input, program->ndim, program->shape, &x));
    ddp_assert_ok(ddp_tape_block(world->tape, run_part, &parts[0], x, &y));
    ddp_assert_ok(ddp_tape_begin(other->tape, &training));
    ddp_assert_ok(ddp_tape_variable(other->tape, y->data, y->ndim, y->shape, &x));
    ddp_assert_ok(ddp_tape_block(other->tape, run_part, &parts[1], x, &z));
    ddp_assert_ok(ddp_nn_cross_entropy(other->tape, z, program->labels, NULL, -1, &stats));
    ddp_assert_ok(ddp_tape_backward(other->tape));
    ck_assert_ptr_nonnull(x->grad);
    ddp_assert_ok(ddp_tape_backward_from(world->tape, y, x->grad));
    nn_world_wait(world);
}

START_TEST(a_network_in_two_parts_has_the_gradients_of_one_piece_bit_for_bit)
{
    for (size_t i = 0; i < COUNT(cuts); i++) {
        const nn_program_t *program = &programs[cuts[i].program];
        nn_world_t          world;
        nn_other_t          other;
        float              *expected;

        start(program, &world, _i);
        nn_other_open(&other, &world);
        expected = grads_in_one_piece(program, &world);
        for (int recompute = 0; recompute < 2; recompute++) {
            ddp_tape_set_recompute(world.tape, recompute == 1);
            ddp_tape_set_recompute(other.tape, recompute == 1);
            nn_grads_spoil(&world);
            run_cut(program, cuts[i].at, &world, &other);
            ck_assert_msg(nn_grads_equal(&world, expected), "program %zu, cut at %zu, recompute %d",
                          cuts[i].program, cuts[i].at, recompute);
        }
        free(expected);
        nn_other_close(&other);
        nn_world_close(&world);
    }
}
END_TEST

/* Each micro-batch the same places, and the gradient that is handed over is not written. */
START_TEST(nothing_is_allocated_after_the_first_step_and_a_given_gradient_stays_as_it_is)
{
    static const float  grad[ROWS * 9] = {1, 2, 3};
    const nn_program_t *program        = &programs[0];
    ddp_tensor_t       *values[NN_MAX_STEPS + 1];
    size_t              allocations = 0;
    nn_world_t          world;

    start(program, &world, (int)ddp_isa_detect());
    for (size_t i = 0; i < 5; i++) {
        ddp_assert_ok(ddp_tape_begin(world.tape, &training));
        ddp_assert_ok(ddp_tape_variable(world.tape, input, 2, program->shape, &values[0]));
        ddp_assert_ok(nn_program_steps(program, world.tape, 0, 3, values)); /* ends in a GELU */
        ddp_assert_ok(ddp_tape_backward_from(world.tape, values[3], grad)); /* in memory that is read-only */
        nn_world_wait(&world);
        ck_assert_ptr_nonnull(values[0]->grad);
        allocations = i == 0 ? ddp_tape_allocations(world.tape) : allocations;
        ck_assert_uint_eq(ddp_tape_allocations(world.tape), allocations);
    }
    nn_world_close(&world);
}
END_TEST

/* The gradient of sum(g * y), y = W x: dx = W^T g, here with numbers that are exact. */
START_TEST(a_gradient_from_elsewhere_goes_back_as_the_definition_says)
{
    static const nn_step_t  one[]    = {{.op = NN_LINEAR, .x = 0, .weight = 0, .bias = NN_NONE}};
    static const nn_param_t matrix[] = {{"w", 2, {2, 3}, 3}};
    static const float      x[6]     = {1, 2, 3, 4, 5, 6};
    static const float      w[6]     = {1, -2, 3, 4, 5, -6};
    static const float      g[4]     = {1, 2, -1, 3};
    static const float      dx[6]    = {9, 8, -9, 11, 17, -21};
    static const float      dw[6]    = {-3, -3, -3, 14, 19, 24};
    const nn_program_t      program  = {
              .n_params = 1, .params = matrix, .n_steps = 1, .steps = one, .ndim = 2, .shape = {2, 3}};
    ddp_tensor_t *values[NN_MAX_STEPS + 1];
    nn_world_t    world;

    start(&program, &world, _i);
    memcpy(ddp_params_value(world.params, 0), w, sizeof(w));
    ddp_assert_ok(ddp_tape_begin(world.tape, &training));
    ddp_assert_ok(ddp_tape_variable(world.tape, x, 2, program.shape, &values[0]));
    ddp_assert_ok(nn_program_steps(&program, world.tape, 0, 1, values));
    ddp_assert_ok(ddp_tape_backward_from(world.tape, values[1], g));
    nn_world_wait(&world);
    ck_assert_mem_eq(values[0]->grad, dx, sizeof(dx));
    ck_assert_mem_eq(ddp_params_grad(world.params, 0), dw, sizeof(dw));
    nn_world_close(&world);
}
END_TEST

START_TEST(variables_and_outputs_that_do_not_fit_are_refused)
{
    static const float     grad[ROWS * 16];
    const ddp_tape_begin_t evaluation = {.training = false};
    const nn_program_t    *program    = &programs[0];
    const size_t           wrong[2]   = {ROWS, 35};
    ddp_tensor_t          *values[NN_MAX_STEPS + 1];
    ddp_tensor_t          *elsewhere = NULL;
    ddp_loss_stats_t      *stats     = NULL;
    nn_world_t             world;
    nn_other_t             other;

    start(program, &world, (int)ddp_isa_detect());
    nn_other_open(&other, &world);
    ddp_assert_fails(ddp_tape_variable(world.tape, input, 2, wrong, &values[0]), DDP_ERR_STATE,
                     "ddp_tape_begin() comes before any layer");
    ddp_assert_ok(ddp_tape_begin(world.tape, &evaluation));
    ddp_assert_fails(ddp_tape_variable(world.tape, input, 2, program->shape, &values[0]), DDP_ERR_STATE,
                     "a variable needs a ddp_tape_begin() with training = true");
    ddp_assert_ok(ddp_tape_input(world.tape, input, 2, program->shape, &values[0]));
    ddp_assert_ok(nn_program_steps(program, world.tape, 0, 1, values));
    ddp_assert_fails(ddp_tape_backward_from(world.tape, values[1], grad), DDP_ERR_STATE,
                     "backward needs a ddp_tape_begin() with training = true");

    ddp_assert_ok(ddp_tape_begin(world.tape, &training));
    ddp_assert_fails(ddp_tape_variable(world.tape, NULL, 2, wrong, &values[0]), DDP_ERR_INVALID_ARG,
                     "an input needs data");
    ddp_assert_ok(ddp_tape_variable(world.tape, input, 2, wrong, &values[0]));
    ddp_assert_fails(nn_program_steps(program, world.tape, 0, 1, values), DDP_ERR_INVALID_ARG,
                     "weight 'a.weight' [16, 36] does not fit an input of [6, 35]");
    ddp_assert_ok(ddp_tape_input(world.tape, input, 2, program->shape, &values[0]));
    ddp_assert_fails(ddp_tape_backward_from(world.tape, values[0], grad), DDP_ERR_INVALID_ARG,
                     "it needs no gradient");
    ddp_assert_ok(nn_program_steps(program, world.tape, 0, 1, values));
    ddp_assert_fails(ddp_tape_backward_from(world.tape, NULL, grad), DDP_ERR_INVALID_ARG,
                     "needs that output");
    ddp_assert_fails(ddp_tape_backward_from(world.tape, values[1], NULL), DDP_ERR_INVALID_ARG,
                     "needs that output and its gradient");
    ddp_assert_ok(ddp_tape_begin(other.tape, &training));
    ddp_assert_ok(ddp_tape_variable(other.tape, input, 2, program->shape, &elsewhere));
    ddp_assert_fails(ddp_tape_backward_from(world.tape, elsewhere, grad), DDP_ERR_INVALID_ARG,
                     "it is a tensor of another tape");
    ddp_assert_ok(ddp_tape_backward_from(world.tape, values[1], grad));
    ddp_assert_fails(ddp_tape_backward_from(world.tape, values[1], grad), DDP_ERR_STATE,
                     "backward ran already since ddp_tape_begin()");
    ddp_assert_fails(ddp_tape_backward(world.tape), DDP_ERR_STATE, "backward ran already");

    ddp_assert_ok(ddp_nn_cross_entropy(other.tape, elsewhere, labels, NULL, -1, &stats));
    ddp_assert_fails(ddp_tape_backward_from(other.tape, elsewhere, input), DDP_ERR_STATE, "a loss was taken");
    ddp_assert_ok(ddp_tape_backward(other.tape));
    ddp_assert_fails(ddp_tape_backward_from(other.tape, elsewhere, input), DDP_ERR_STATE,
                     "backward ran already");
    nn_other_close(&other);
    nn_world_close(&world);
}
END_TEST

/* Parameters need memory for gradients only where one is used: the tape of a loss has none. */
START_TEST(a_loss_alone_needs_no_memory_for_parameters)
{
    const size_t      shape[2] = {ROWS, 5};
    ddp_tape_params_t setup    = DDP_TAPE_PARAMS_INIT;
    ddp_params_t     *clone    = NULL;
    ddp_tape_t       *tape     = NULL;
    ddp_tensor_t     *x        = NULL;
    ddp_loss_stats_t *stats    = NULL;
    nn_world_t        world;
    double            sum = 0;

    start(&programs[0], &world, (int)ddp_isa_detect());
    ddp_assert_ok(ddp_params_clone(world.params, &clone));
    setup.stream = world.stream;
    setup.params = clone;
    ddp_assert_ok(ddp_tape_create(&setup, &tape));
    ddp_assert_ok(ddp_tape_begin(tape, &training));
    ddp_assert_ok(ddp_tape_variable(tape, input, 2, shape, &x));
    ddp_assert_ok(ddp_nn_cross_entropy(tape, x, labels, NULL, -1, &stats));
    ddp_assert_ok(ddp_tape_backward(tape));
    nn_world_wait(&world);
    for (size_t i = 0; i < 5; i++) { /* each row of softmax - one hot adds up to 0, of an ignored one too */
        sum += (double)x->grad[i];
        ck_assert(x->grad[2 * 5 + i] == 0.0F);
    }
    ck_assert_double_le(sum < 0 ? -sum : sum, 1e-6);
    ddp_tape_destroy(&tape);
    ddp_params_destroy(&clone);
    nn_world_close(&world);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cut");
    TCase *tcase = tcase_create("all");

    tcase_add_loop_test(tcase, a_network_in_two_parts_has_the_gradients_of_one_piece_bit_for_bit, 0,
                        nn_isas());
    tcase_add_loop_test(tcase, a_gradient_from_elsewhere_goes_back_as_the_definition_says, 0, nn_isas());
    tcase_add_test(tcase, nothing_is_allocated_after_the_first_step_and_a_given_gradient_stays_as_it_is);
    tcase_add_test(tcase, variables_and_outputs_that_do_not_fit_are_refused);
    tcase_add_test(tcase, a_loss_alone_needs_no_memory_for_parameters);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
