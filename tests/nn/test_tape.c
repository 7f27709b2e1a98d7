#include <stdlib.h>
#include <string.h>

#include "tests/nn/nn_program.h"
#include "tests/support/ddp_test.h"

/* A network in which everything happens: images, a view, a residual, dropout, a parameter used twice. */
static const nn_step_t steps[] = {
    {.op = NN_CONV, .x = 0, .weight = 0, .bias = 1, .stride = 1, .pad = 1, .act = DDP_ACT_RELU},
    {.op = NN_MAX_POOL, .x = 1, .kernel = 2, .stride = 2},
    {.op = NN_FLATTEN, .x = 2},
    {.op = NN_LINEAR, .x = 3, .weight = 2, .bias = 3, .act = DDP_ACT_RELU},
    {.op = NN_DROPOUT, .x = 4, .p = 0.3F},
    {.op = NN_LINEAR, .x = 5, .weight = 4, .bias = 5, .act = DDP_ACT_GELU},
    {.op = NN_ADD, .x = 6, .x2 = 5},
    {.op = NN_DROPOUT, .x = 7, .p = 0.3F},
    {.op = NN_LINEAR, .x = 8, .weight = 4, .bias = NN_NONE},
    {.op = NN_LINEAR, .x = 9, .weight = 7, .bias = 8}};
static const nn_param_t params[] = {{"conv.weight", 4, {4, 3, 3, 3}, 27},
                                    {"conv.bias", 1, {4}, 0},
                                    {"a.weight", 2, {16, 36}, 36},
                                    {"a.bias", 1, {16}, 0},
                                    {"tied.weight", 2, {16, 16}, 16},
                                    {"tied.bias", 1, {16}, 0},
                                    {"unused.weight", 2, {9, 9}, 9},
                                    {"b.weight", 2, {5, 16}, 16},
                                    {"b.bias", 1, {5}, 0}};
static const int32_t    labels[] = {0, 1, 2, 3, 4, 0};
#define N_PARAMS    9
#define UNUSED      6
#define TIED        4
#define IMAGE_COUNT (6 * 6 * 6 * 3)

static const ddp_tape_begin_t training = {.training = true, .seed = 4, .step = 1, .first_row = 12};

static nn_program_t net(size_t rows)
{
    return (nn_program_t){.n_params = N_PARAMS,
                          .params   = params,
                          .n_steps  = sizeof(steps) / sizeof(steps[0]),
                          .steps    = steps,
                          .ndim     = 4,
                          .shape    = {rows, 6, 6, 3},
                          .labels   = labels};
}

static void open_world(nn_world_t *world)
{
    const nn_program_t program = net(6);

    nn_world_open(world, ddp_isa_detect());
    nn_program_start(&program, world, 1);
}

/** One micro-batch of `rows` images that start at `first` of the noise. */
static void micro_batch(nn_world_t *world, const ddp_tape_begin_t *begin, size_t rows, size_t first)
{
    static float       images[2 * IMAGE_COUNT];
    const nn_program_t program = net(rows);
    ddp_tensor_t      *values[NN_MAX_STEPS + 1];

    nn_noise(images, 2 * IMAGE_COUNT, 8);
    ck_assert_int_eq(ddp_tape_begin(world->tape, begin), DDP_OK);
    (void)nn_program_forward(&program, world, images + first * 108, values);
    if (begin->training) {
        ck_assert_msg(ddp_tape_backward(world->tape) == DDP_OK, "%s", ddp_error_line());
    }
    nn_world_wait(world);
}

static float *copy_grads(const nn_world_t *world)
{
    const size_t bytes = ddp_params_total(world->params) * sizeof(float);
    float       *copy  = malloc(bytes);

    memcpy(copy, ddp_params_grad(world->params, N_PARAMS - 1), bytes); /* the last one lies first */
    return copy;
}

typedef struct order {
    size_t       n;
    size_t       index[2 * N_PARAMS];
    size_t       fail_at;
    ddp_tape_t  *tape;
    ddp_status_t status;
} order_t;

static ddp_status_t note_ready(void *ctx, size_t index)
{
    order_t *order = ctx;

    if (order->n < 2 * N_PARAMS) {
        order->index[order->n] = index;
    }
    order->n++;
    return order->n == order->fail_at ? ddp_fail(DDP_ERR_REMOTE, "planted") : DDP_OK;
}

START_TEST(each_used_parameter_is_ready_once_in_the_reverse_order_of_registration)
{
    static const size_t expected[] = {8, 7, 5, 4, 3, 2, 1, 0};
    nn_world_t          world;
    order_t             order = {0};
    uint8_t             used[N_PARAMS];

    open_world(&world);
    ddp_tape_set_ready(world.tape, note_ready, &order);
    micro_batch(&world, &training, 6, 0);
    ck_assert_uint_eq(order.n, 8);
    ck_assert_mem_eq(order.index, expected, sizeof(expected));
    ddp_tape_used(world.tape, used);
    for (size_t i = 0; i < N_PARAMS; i++) {
        ck_assert_uint_eq(used[i], i == UNUSED ? 0 : 1);
    }
    nn_world_close(&world);
}
END_TEST

START_TEST(an_unused_parameter_keeps_what_its_gradient_was)
{
    nn_world_t world;
    float     *grad;

    open_world(&world);
    grad = ddp_params_grad(world.params, UNUSED);
    for (size_t i = 0; i < 81; i++) {
        grad[i] = 7;
    }
    micro_batch(&world, &training, 6, 0);
    for (size_t i = 0; i < 81; i++) {
        ck_assert(grad[i] == 7.0F);
    }
    nn_world_close(&world);
}
END_TEST

START_TEST(the_status_of_the_listener_ends_backward)
{
    nn_world_t         world;
    order_t            order = {.fail_at = 3};
    static float       images[IMAGE_COUNT];
    const nn_program_t program = net(6);
    ddp_tensor_t      *values[NN_MAX_STEPS + 1];

    open_world(&world);
    ddp_tape_set_ready(world.tape, note_ready, &order);
    ck_assert_int_eq(ddp_tape_begin(world.tape, &training), DDP_OK);
    (void)nn_program_forward(&program, &world, images, values);
    ck_assert_int_eq(ddp_tape_backward(world.tape), DDP_ERR_REMOTE);
    ck_assert_str_eq(ddp_error_line(), "planted");
    ck_assert_uint_eq(order.n, 3);
    nn_world_close(&world);
}
END_TEST

/* Used in forward, but not on the way to the loss: reported, with a gradient of zero. */
START_TEST(a_parameter_that_the_loss_does_not_depend_on_is_ready_with_a_zero_gradient)
{
    static const nn_step_t  side[]     = {{.op = NN_LINEAR, .x = 0, .weight = 0, .bias = NN_NONE},
                                          {.op = NN_LINEAR, .x = 1, .weight = 1, .bias = NN_NONE},
                                          {.op = NN_LINEAR, .x = 0, .weight = 0, .bias = NN_NONE}};
    static const nn_param_t pair[]     = {{"a", 2, {5, 5}, 5}, {"b", 2, {3, 5}, 5}};
    static const size_t     expected[] = {1, 0};
    static const float      input[10]  = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    const nn_program_t      program    = {.n_params = 2,
                                          .params   = pair,
                                          .n_steps  = 3,
                                          .steps    = side,
                                          .ndim     = 2,
                                          .shape    = {2, 5},
                                          .labels   = labels};
    ddp_tensor_t           *values[NN_MAX_STEPS + 1];
    nn_world_t              world;
    order_t                 order = {0};
    float                  *grad;

    nn_world_open(&world, ddp_isa_detect());
    nn_program_start(&program, &world, 1);
    ddp_tape_set_ready(world.tape, note_ready, &order);
    grad = ddp_params_grad(world.params, 1);
    memset(grad, 0xff, 15 * sizeof(float));
    ck_assert_int_eq(ddp_tape_begin(world.tape, &training), DDP_OK);
    (void)nn_program_forward(&program, &world, input, values);
    ck_assert_int_eq(ddp_tape_backward(world.tape), DDP_OK);
    nn_world_wait(&world);
    ck_assert_uint_eq(order.n, 2);
    ck_assert_mem_eq(order.index, expected, sizeof(expected));
    for (size_t i = 0; i < 15; i++) {
        ck_assert(grad[i] == 0.0F);
    }
    ck_assert(ddp_params_grad(world.params, 0)[0] != 0.0F);
    nn_world_close(&world);
}
END_TEST

START_TEST(a_layer_that_is_skipped_every_other_time_is_used_and_ready_only_when_it_runs)
{
    static const nn_step_t  with[]         = {{.op = NN_LINEAR, .x = 0, .weight = 0, .bias = NN_NONE},
                                              {.op = NN_LINEAR, .x = 1, .weight = 1, .bias = NN_NONE},
                                              {.op = NN_LINEAR, .x = 2, .weight = 2, .bias = NN_NONE}};
    static const nn_step_t  without[]      = {{.op = NN_LINEAR, .x = 0, .weight = 0, .bias = NN_NONE},
                                              {.op = NN_LINEAR, .x = 1, .weight = 2, .bias = NN_NONE}};
    static const nn_param_t three[]        = {{"a", 2, {5, 5}, 5}, {"b", 2, {5, 5}, 5}, {"c", 2, {3, 5}, 5}};
    static const size_t     expected[2][3] = {{2, 0}, {2, 1, 0}};
    static const float      input[10]      = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    nn_program_t  program = {.n_params = 3, .params = three, .ndim = 2, .shape = {2, 5}, .labels = labels};
    ddp_tensor_t *values[NN_MAX_STEPS + 1];
    nn_world_t    world;
    order_t       order;
    uint8_t       used[3];

    nn_world_open(&world, ddp_isa_detect());
    nn_program_start(&program, &world, 1);
    ddp_tape_set_ready(world.tape, note_ready, &order);
    for (size_t step = 0; step < 6; step++) {
        const size_t runs = step % 2;

        memset(&order, 0, sizeof(order));
        program.steps   = runs ? with : without;
        program.n_steps = runs ? 3 : 2;
        ck_assert_int_eq(ddp_tape_begin(world.tape, &training), DDP_OK);
        (void)nn_program_forward(&program, &world, input, values);
        ddp_tape_used(world.tape, used);
        ck_assert(used[0] == 1 && used[1] == runs && used[2] == 1);
        ck_assert_int_eq(ddp_tape_backward(world.tape), DDP_OK);
        ck_assert_uint_eq(order.n, 2 + runs);
        ck_assert_mem_eq(order.index, expected[runs], order.n * sizeof(size_t));
    }
    nn_world_close(&world);
}
END_TEST

START_TEST(a_loss_scale_multiplies_every_gradient)
{
    nn_world_t world;
    float     *plain;

    open_world(&world);
    micro_batch(&world, &training, 6, 0);
    plain = copy_grads(&world);
    ddp_tape_set_loss_scale(world.tape, 4096.0F);
    micro_batch(&world, &training, 6, 0);
    for (size_t i = 0; i < N_PARAMS; i++) {
        const ddp_tensor_desc_t *desc = &ddp_params_descs(world.params)[i];

        for (size_t e = 0; e < desc->count && i != UNUSED; e++) {
            ck_assert(ddp_params_grad(world.params, i)[e] == 4096.0F * plain[desc->offset + e]);
        }
    }
    free(plain);
    nn_world_close(&world);
}
END_TEST

START_TEST(nothing_is_allocated_after_the_first_step)
{
    const ddp_tape_begin_t evaluation = {.training = false};
    nn_world_t             world;
    size_t                 allocations, bytes;

    open_world(&world);
    ck_assert_uint_eq(ddp_tape_allocations(world.tape), 0);
    micro_batch(&world, &training, 6, 0);
    allocations = ddp_tape_allocations(world.tape);
    bytes       = ddp_tape_activation_bytes(world.tape);
    ck_assert_uint_gt(allocations, 0);
    ck_assert_uint_gt(bytes, 6 * 36 * 4 * 2 * sizeof(float)); /* the convolution's result and its gradient */
    for (size_t rows = 6; rows > 0; rows--) {
        micro_batch(&world, &training, rows, 0);
        ck_assert_uint_eq(ddp_tape_allocations(world.tape), allocations);
    }
    ck_assert_uint_lt(ddp_tape_activation_bytes(world.tape), bytes);
    for (size_t i = 0; i < 1000; i++) { /* more than a chunk of nodes and tensors together */
        micro_batch(&world, &evaluation, 1, 0);
    }
    micro_batch(&world, &training, 6, 0);
    ck_assert_uint_eq(ddp_tape_allocations(world.tape), allocations);
    ck_assert_uint_eq(ddp_tape_activation_bytes(world.tape), bytes);
    nn_world_close(&world);
}
END_TEST

/* Layers large enough that the arena has to grow several times in the first step. */
START_TEST(an_arena_of_several_chunks_is_reused_for_smaller_batches_too)
{
    static const nn_step_t wide[] = {
        {.op = NN_LINEAR, .x = 0, .weight = 0, .bias = NN_NONE, .act = DDP_ACT_RELU},
        {.op = NN_LINEAR, .x = 1, .weight = 1, .bias = NN_NONE, .act = DDP_ACT_GELU},
        {.op = NN_LINEAR, .x = 2, .weight = 2, .bias = NN_NONE}};
    static const nn_param_t four[] = {
        {"a", 2, {700, 3}, 3}, {"b", 2, {1500, 700}, 700}, {"c", 2, {2, 1500}, 1500}};
    static float  input[300 * 3];
    int32_t       zeros[300] = {0};
    nn_program_t  program    = {.n_params = 3,
                                .params   = four,
                                .n_steps  = 3,
                                .steps    = wide,
                                .ndim     = 2,
                                .shape    = {300, 3},
                                .labels   = zeros};
    ddp_tensor_t *values[NN_MAX_STEPS + 1];
    nn_world_t    world;
    size_t        allocations = 0;

    nn_noise(input, 900, 3);
    nn_world_open(&world, ddp_isa_detect());
    nn_program_start(&program, &world, 1);
    for (size_t rows = 300; rows > 20; rows -= 23) {
        program.shape[0] = rows;
        ck_assert_int_eq(ddp_tape_begin(world.tape, &training), DDP_OK);
        (void)nn_program_forward(&program, &world, input, values);
        ck_assert_int_eq(ddp_tape_backward(world.tape), DDP_OK);
        nn_world_wait(&world);
        allocations = rows == 300 ? ddp_tape_allocations(world.tape) : allocations;
        ck_assert_uint_eq(ddp_tape_allocations(world.tape), allocations);
    }
    ck_assert_uint_ge(allocations, 4);
    nn_world_close(&world);
}
END_TEST

START_TEST(a_micro_batch_has_the_same_bits_whatever_ran_before)
{
    const size_t           bytes      = sizeof(float);
    const ddp_tape_begin_t evaluation = {.training = false};
    nn_world_t             world;
    float                 *fresh, *later;

    open_world(&world);
    micro_batch(&world, &training, 5, 3);
    fresh = copy_grads(&world);
    micro_batch(&world, &training, 6, 0);
    micro_batch(&world, &evaluation, 3, 1);
    memset(ddp_params_grad(world.params, N_PARAMS - 1), 0xff, 2 * bytes);
    micro_batch(&world, &training, 5, 3);
    later = copy_grads(&world);
    ck_assert_mem_eq(fresh, later, ddp_params_total(world.params) * bytes);
    free(fresh);
    free(later);
    nn_world_close(&world);
}
END_TEST

START_TEST(running_work_later_gives_the_same_bits)
{
    nn_world_t world;
    float     *now, *later;
    size_t     bytes;

    open_world(&world);
    micro_batch(&world, &training, 6, 0);
    now   = copy_grads(&world);
    bytes = ddp_params_total(world.params) * sizeof(float);
    nn_world_close(&world);

    ck_assert_int_eq(setenv("DDP_DEVICE_SCHEDULE", "defer", 1), 0);
    open_world(&world);
    micro_batch(&world, &training, 6, 0);
    later = copy_grads(&world);
    nn_world_close(&world);
    ck_assert_int_eq(unsetenv("DDP_DEVICE_SCHEDULE"), 0);
    ck_assert_mem_eq(now, later, bytes);
    free(now);
    free(later);
}
END_TEST

START_TEST(accumulating_adds_to_what_the_arena_holds)
{
    ddp_tape_begin_t more = training;
    nn_world_t       world;
    float           *first, *second, *both;
    double           largest = 0, worst = 0;

    open_world(&world);
    micro_batch(&world, &training, 6, 0);
    first = copy_grads(&world);
    micro_batch(&world, &training, 6, 6);
    second = copy_grads(&world);
    micro_batch(&world, &training, 6, 0);
    more.accumulate_grads = true;
    micro_batch(&world, &more, 6, 6);
    both = copy_grads(&world);
    for (size_t i = 0; i < ddp_params_total(world.params); i++) {
        const double sum   = (double)first[i] + (double)second[i];
        const double error = (double)both[i] > sum ? (double)both[i] - sum : sum - (double)both[i];

        largest = sum > largest ? sum : largest;
        worst   = error > worst || error != error ? error : worst;
    }
    /* A product may add its terms to the old value one by one; 300 of them at most: 300 * 2^-24. */
    ck_assert_double_gt(largest, 0);
    ck_assert_double_le(worst, 2e-5 * largest);
    free(first);
    free(second);
    free(both);
    nn_world_close(&world);
}
END_TEST

START_TEST(the_last_loss_is_the_one_that_is_differentiated)
{
    static const int32_t other[] = {4, 4, 4, 4, 4, 4};
    static float         images[IMAGE_COUNT];
    const nn_program_t   program = net(6);
    ddp_tensor_t        *values[NN_MAX_STEPS + 1];
    ddp_loss_stats_t    *stats = NULL;
    nn_world_t           world;
    float               *alone;

    nn_noise(images, IMAGE_COUNT, 8);
    open_world(&world);
    micro_batch(&world, &training, 6, 0);
    alone = copy_grads(&world);
    for (int last = 0; last < 2; last++) {
        ck_assert_int_eq(ddp_tape_begin(world.tape, &training), DDP_OK);
        (void)nn_program_forward(&program, &world, images, values);
        ck_assert_int_eq(ddp_nn_cross_entropy(world.tape, values[program.n_steps], last ? labels : other,
                                              NULL, -1, &stats),
                         DDP_OK);
        ck_assert_int_eq(ddp_tape_backward(world.tape), DDP_OK);
        nn_world_wait(&world);
        ck_assert((memcmp(alone, ddp_params_grad(world.params, N_PARAMS - 1),
                          ddp_params_total(world.params) * sizeof(float)) == 0) == (last == 1));
    }
    free(alone);
    nn_world_close(&world);
}
END_TEST

START_TEST(calls_out_of_order_are_errors_of_the_state)
{
    const ddp_tape_begin_t evaluation = {.training = false};
    static float           images[IMAGE_COUNT];
    const nn_program_t     program = net(6);
    ddp_tape_params_t      wrong   = DDP_TAPE_PARAMS_INIT;
    ddp_tensor_t          *values[NN_MAX_STEPS + 1];
    ddp_tensor_t          *x    = NULL;
    ddp_tape_t            *tape = NULL;
    nn_world_t             world;

    open_world(&world);
    ck_assert_int_eq(ddp_tape_input(world.tape, images, 4, program.shape, &x), DDP_ERR_STATE);
    ck_assert_int_eq(ddp_tape_backward(world.tape), DDP_ERR_STATE);
    ck_assert_int_eq(ddp_tape_begin(world.tape, &training), DDP_OK);
    ck_assert_int_eq(ddp_tape_backward(world.tape), DDP_ERR_STATE);
    ck_assert_str_eq(ddp_error_line(), "backward needs a loss since ddp_tape_begin()");
    (void)nn_program_forward(&program, &world, images, values);
    ck_assert_int_eq(ddp_tape_backward(world.tape), DDP_OK);
    ck_assert_int_eq(ddp_tape_backward(world.tape), DDP_ERR_STATE);
    ck_assert_int_eq(ddp_tape_begin(world.tape, &evaluation), DDP_OK);
    (void)nn_program_forward(&program, &world, images, values);
    ck_assert_int_eq(ddp_tape_backward(world.tape), DDP_ERR_STATE);
    ck_assert_int_eq(ddp_tape_create(&wrong, &tape), DDP_ERR_INVALID_ARG);
    wrong.struct_size = 1;
    ck_assert_int_eq(ddp_tape_create(&wrong, &tape), DDP_ERR_INVALID_ARG);
    nn_world_close(&world);
}
END_TEST

START_TEST(an_empty_micro_batch_gives_zero_gradients)
{
    nn_world_t world;

    open_world(&world);
    memset(ddp_params_grad(world.params, N_PARAMS - 1), 0xff, 9 * sizeof(float));
    micro_batch(&world, &training, 0, 0);
    for (size_t i = 0; i < N_PARAMS; i++) {
        const float *grad = ddp_params_grad(world.params, i);

        for (size_t j = 0; j < ddp_params_descs(world.params)[i].count && i != UNUSED; j++) {
            ck_assert(grad[j] == 0.0F);
        }
    }
    nn_world_close(&world);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tape");
    TCase *tcase = tcase_create("all");

    tcase_add_test(tcase, each_used_parameter_is_ready_once_in_the_reverse_order_of_registration);
    tcase_add_test(tcase, an_unused_parameter_keeps_what_its_gradient_was);
    tcase_add_test(tcase, the_status_of_the_listener_ends_backward);
    tcase_add_test(tcase, a_parameter_that_the_loss_does_not_depend_on_is_ready_with_a_zero_gradient);
    tcase_add_test(tcase, a_layer_that_is_skipped_every_other_time_is_used_and_ready_only_when_it_runs);
    tcase_add_test(tcase, nothing_is_allocated_after_the_first_step);
    tcase_add_test(tcase, an_arena_of_several_chunks_is_reused_for_smaller_batches_too);
    tcase_add_test(tcase, a_micro_batch_has_the_same_bits_whatever_ran_before);
    tcase_add_test(tcase, running_work_later_gives_the_same_bits);
    tcase_add_test(tcase, accumulating_adds_to_what_the_arena_holds);
    tcase_add_test(tcase, the_last_loss_is_the_one_that_is_differentiated);
    tcase_add_test(tcase, calls_out_of_order_are_errors_of_the_state);
    tcase_add_test(tcase, a_loss_scale_multiplies_every_gradient);
    tcase_add_test(tcase, an_empty_micro_batch_gives_zero_gradients);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
