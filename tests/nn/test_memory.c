/* Memory of activations: what backward gives back, blocks that are run twice, what a run needs. */
#include <stdlib.h>
#include <string.h>

#include "kernels/ops_seq.h"
#include "nn/model.h"
#include "nn/tape_internal.h"
#include "tests/nn/nn_program.h"
#include "tests/support/ddp_test.h"

#define WIDTH 48
#define ROWS  20
#define DEPTH 6

static const ddp_tape_begin_t training   = {.training = true, .seed = 4, .step = 1, .first_row = 12};
static const ddp_tape_begin_t evaluation = {.training = false};

/* A stack of residual blocks: x + dropout(b(gelu(a(x)))), the second matrix `b` shared by all blocks. */

typedef struct net {
    nn_world_t world;
    size_t     a[DEPTH], a_bias[DEPTH], tied, head;
    size_t     ready[2 * DEPTH + 8];
    size_t     n_ready;
    size_t     runs; /* of blocks */
    bool       nested;
} net_t;

typedef struct block {
    net_t *net;
    size_t i;
} block_t;

static ddp_status_t half(const void *ctx, ddp_tape_t *tape, ddp_tensor_t *x, ddp_tensor_t **y_p)
{
    const block_t *block  = ctx;
    ddp_status_t   status = DDP_OK;
    ddp_tensor_t  *y      = NULL;

    DDP_TRY(ddp_nn_linear(tape, x, block->net->a[block->i], block->net->a_bias[block->i], DDP_ACT_GELU, &y));
    DDP_TRY(ddp_nn_linear(tape, y, block->net->tied, DDP_NO_PARAM, DDP_ACT_NONE, y_p));
out:
    return status;
}

static ddp_status_t whole(const void *ctx, ddp_tape_t *tape, ddp_tensor_t *x, ddp_tensor_t **y_p)
{
    const block_t *block  = ctx;
    ddp_status_t   status = DDP_OK;
    ddp_tensor_t  *y      = NULL;

    block->net->runs++;
    DDP_TRY(block->net->nested ? ddp_tape_block(tape, half, ctx, x, &y) : half(ctx, tape, x, &y));
    DDP_TRY(ddp_nn_dropout(tape, y, 0.25F, &y));
    DDP_TRY(ddp_nn_add(tape, x, y, y_p));
out:
    return status;
}

static ddp_status_t note_ready(void *ctx, size_t index)
{
    net_t *net = ctx;

    ck_assert_uint_lt(net->n_ready, sizeof(net->ready) / sizeof(net->ready[0]));
    net->ready[net->n_ready++] = index;
    return DDP_OK;
}

static void net_open(net_t *net, bool recompute)
{
    const ddp_init_t init      = {.kind = DDP_INIT_UNIFORM, .fan_in = WIDTH};
    const size_t     square[2] = {WIDTH, WIDTH};

    memset(net, 0, sizeof(*net));
    nn_world_open(&net->world, ddp_isa_detect());
    ck_assert_int_eq(ddp_params_add(net->world.params, "tied", 2, square, init, &net->tied), DDP_OK);
    for (size_t i = 0; i < DEPTH; i++) {
        const char *const weight[DEPTH] = {"a0", "a1", "a2", "a3", "a4", "a5"};
        const char *const bias[DEPTH]   = {"b0", "b1", "b2", "b3", "b4", "b5"};

        ck_assert_int_eq(ddp_params_add(net->world.params, weight[i], 2, square, init, &net->a[i]), DDP_OK);
        ck_assert_int_eq(ddp_params_add(net->world.params, bias[i], 1, square, init, &net->a_bias[i]),
                         DDP_OK);
    }
    ck_assert_int_eq(ddp_params_add(net->world.params, "head", 2, square, init, &net->head), DDP_OK);
    ck_assert_int_eq(ddp_params_finish(net->world.params), DDP_OK);
    nn_world_start(&net->world, 1);
    ddp_tape_set_recompute(net->world.tape, recompute);
    ddp_tape_set_ready(net->world.tape, note_ready, net);
}

/* One micro-batch; a side block that leads nowhere after the first block. @return the loss */
static float net_run(net_t *net, const ddp_tape_begin_t *begin, size_t rows)
{
    static float      input[ROWS * WIDTH];
    static int32_t    labels[ROWS];
    static block_t    blocks[DEPTH]; /* as long as backward needs them */
    const size_t      shape[2] = {rows, WIDTH};
    ddp_tape_t       *tape     = net->world.tape;
    ddp_tensor_t     *x        = NULL;
    ddp_tensor_t     *side     = NULL;
    ddp_loss_stats_t *stats    = NULL;

    nn_noise(input, ROWS * WIDTH, 5);
    net->n_ready = 0;
    ck_assert_int_eq(ddp_tape_begin(tape, begin), DDP_OK);
    ck_assert_int_eq(ddp_tape_input(tape, input, 2, shape, &x), DDP_OK);
    for (size_t i = 0; i < DEPTH; i++) {
        blocks[i] = (block_t){net, i};
        if (i == DEPTH - 1) { /* its parameters are used and get a gradient of zero */
            ck_assert_int_eq(ddp_tape_block(tape, whole, &blocks[i], x, &side), DDP_OK);
            break;
        }
        ck_assert_msg(ddp_tape_block(tape, whole, &blocks[i], x, &x) == DDP_OK, "%s", ddp_error_line());
    }
    ck_assert_int_eq(ddp_nn_linear(tape, x, net->head, DDP_NO_PARAM, DDP_ACT_NONE, &x), DDP_OK);
    ck_assert_int_eq(ddp_nn_cross_entropy(tape, x, labels, NULL, -1, &stats), DDP_OK);
    if (begin->training) {
        ck_assert_msg(ddp_tape_backward(tape) == DDP_OK, "%s", ddp_error_line());
    }
    nn_world_wait(&net->world);
    return stats->loss;
}

static void check_same(net_t *one, net_t *two)
{
    const size_t last = ddp_params_count(one->world.params) - 1; /* lies first */

    ck_assert_mem_eq(ddp_params_grad(one->world.params, last), ddp_params_grad(two->world.params, last),
                     ddp_params_total(one->world.params) * sizeof(float));
    ck_assert_uint_eq(one->n_ready, 2 * DEPTH + 2);
    ck_assert_uint_eq(one->n_ready, two->n_ready);
    ck_assert_mem_eq(one->ready, two->ready, one->n_ready * sizeof(one->ready[0]));
}

START_TEST(a_block_run_twice_has_the_bits_of_one_that_was_kept)
{
    for (int nested = 0; nested < 2; nested++) {
        net_t kept, again;

        net_open(&kept, false);
        net_open(&again, true);
        kept.nested = again.nested = nested == 1;
        for (size_t rows = ROWS; rows > ROWS - 2; rows--) {
            const size_t before = again.runs;
            const float  loss   = net_run(&kept, &training, rows);

            ck_assert(loss == net_run(&again, &training, rows));
            check_same(&kept, &again);
            ck_assert_uint_eq(again.runs - before, 2 * DEPTH);
        }
        ck_assert_uint_eq(kept.runs, 2 * DEPTH);
        ck_assert(net_run(&kept, &evaluation, ROWS) == net_run(&again, &evaluation, ROWS));
        nn_world_close(&kept.world);
        nn_world_close(&again.world);
    }
}
END_TEST

/* A result, its gradient, a copy of it for the residual, and no more than the inside of one block. */
START_TEST(a_block_run_twice_costs_the_memory_of_its_result)
{
    const size_t one = ROWS * WIDTH * sizeof(float);
    net_t        kept, again;
    size_t       allocations;

    net_open(&kept, false);
    net_open(&again, true);
    (void)net_run(&kept, &training, ROWS);
    (void)net_run(&again, &training, ROWS);
    allocations = ddp_tape_allocations(again.world.tape);
    /* kept: a, its pre-activation, b, dropout, sum of each block, logits and their gradient, stats */
    ck_assert_uint_ge(ddp_tape_activation_bytes(kept.world.tape), (5 * DEPTH + 2) * one);
    ck_assert_uint_le(ddp_tape_activation_bytes(kept.world.tape), (5 * DEPTH + 4) * one + 256);
    ck_assert_uint_le(ddp_tape_activation_bytes(again.world.tape), (DEPTH + 9) * one + 256);
    (void)net_run(&kept, &evaluation, ROWS);
    (void)net_run(&again, &evaluation, ROWS);
    ck_assert_uint_le(ddp_tape_activation_bytes(kept.world.tape), (DEPTH + 6) * one + 256);
    ck_assert_uint_eq(ddp_tape_activation_bytes(kept.world.tape),
                      ddp_tape_activation_bytes(again.world.tape));
    for (size_t rows = ROWS; rows > 0; rows--) {
        (void)net_run(&again, &training, rows);
        ck_assert_uint_eq(ddp_tape_allocations(again.world.tape), allocations);
    }
    nn_world_close(&kept.world);
    nn_world_close(&again.world);
}
END_TEST

static ddp_status_t identity(const void *ctx, ddp_tape_t *tape, ddp_tensor_t *x, ddp_tensor_t **y_p)
{
    (void)ctx;
    (void)tape;
    *y_p = x;
    return DDP_OK;
}

static ddp_status_t failing(const void *ctx, ddp_tape_t *tape, ddp_tensor_t *x, ddp_tensor_t **y_p)
{
    (void)ctx;
    (void)tape;
    (void)x;
    (void)y_p;
    return ddp_fail(DDP_ERR_REMOTE, "planted");
}

START_TEST(a_block_may_be_empty_and_its_error_is_the_callers)
{
    static const float input[2] = {1, 2};
    const size_t       shape[2] = {1, 2};
    ddp_tensor_t      *x        = NULL;
    ddp_tensor_t      *y        = NULL;
    net_t              net;

    net_open(&net, true);
    ck_assert_int_eq(ddp_tape_block(net.world.tape, identity, NULL, x, &y), DDP_ERR_STATE);
    ck_assert_int_eq(ddp_tape_begin(net.world.tape, &training), DDP_OK);
    ck_assert_int_eq(ddp_tape_input(net.world.tape, input, 2, shape, &x), DDP_OK);
    ck_assert_int_eq(ddp_tape_block(net.world.tape, identity, NULL, x, &y), DDP_OK);
    ck_assert_ptr_eq(y, x);
    ck_assert_int_eq(ddp_tape_block(net.world.tape, failing, NULL, x, &y), DDP_ERR_REMOTE);
    ck_assert_str_eq(ddp_error_line(), "planted");
    nn_world_close(&net.world);
}
END_TEST

/* Gradients of a chain of equal layers: two at a time, whatever its length. */
START_TEST(gradients_of_a_chain_take_the_memory_of_two)
{
    nn_step_t        chain[NN_MAX_STEPS];
    const nn_param_t one      = {"a", 2, {64, 64}, 64};
    int32_t          zeros[8] = {0};
    float            input[8 * 64];
    nn_program_t     program = {
            .n_params = 1, .params = &one, .steps = chain, .ndim = 2, .shape = {8, 64}, .labels = zeros};
    ddp_tensor_t *values[NN_MAX_STEPS + 1];

    nn_noise(input, 8 * 64, 1);
    for (int i = 0; i < NN_MAX_STEPS; i++) {
        chain[i] = (nn_step_t){.op = NN_LINEAR, .x = i, .weight = 0, .bias = NN_NONE};
    }
    for (size_t n = 4; n <= NN_MAX_STEPS; n *= 2) {
        nn_world_t world;

        program.n_steps = n;
        nn_world_open(&world, ddp_isa_detect());
        nn_program_start(&program, &world, 1);
        ck_assert_int_eq(ddp_tape_begin(world.tape, &training), DDP_OK);
        (void)nn_program_forward(&program, &world, input, values);
        ck_assert_int_eq(ddp_tape_backward(world.tape), DDP_OK);
        nn_world_wait(&world);
        ck_assert_uint_eq(ddp_tape_activation_bytes(world.tape), (n + 2) * 8 * 64 * sizeof(float) + 64);
        nn_world_close(&world);
    }
}
END_TEST

/* GPT-2 with dropout: gradients and loss of one micro-batch. */
static float *gpt2_grads(bool recompute, float *loss_p, size_t *bytes_p, size_t *total_p)
{
    const ddp_model_config_t config = {.kind     = DDP_MODEL_GPT2,
                                       .layers   = 4,
                                       .heads    = 2,
                                       .channels = 32,
                                       .context  = 16,
                                       .vocab    = 40,
                                       .dropout  = 0.2F};
    int32_t                  tokens[3 * 16];
    ddp_model_t             *model = NULL;
    ddp_loss_stats_t        *stats = NULL;
    nn_world_t               world;
    float                   *copy;

    for (int32_t i = 0; i < 3 * 16; i++) {
        tokens[i] = i * 7 % 40;
    }
    nn_world_open(&world, ddp_isa_detect());
    ck_assert_int_eq(ddp_model_create(&config, world.params, &model), DDP_OK);
    nn_world_start(&world, 1);
    ddp_tape_set_recompute(world.tape, recompute);
    ck_assert_int_eq(ddp_tape_begin(world.tape, &training), DDP_OK);
    ck_assert_int_eq(ddp_model_forward_tokens(model, world.tape, tokens, tokens, 3, 16, &stats), DDP_OK);
    ck_assert_msg(ddp_tape_backward(world.tape) == DDP_OK, "%s", ddp_error_line());
    nn_world_wait(&world);
    *loss_p  = stats->loss;
    *bytes_p = ddp_tape_activation_bytes(world.tape);
    *total_p = ddp_params_total(world.params);
    copy     = malloc(*total_p * sizeof(float));
    memcpy(copy, ddp_params_grad(world.params, ddp_params_count(world.params) - 1), *total_p * sizeof(float));
    ddp_model_destroy(&model);
    nn_world_close(&world);
    return copy;
}

START_TEST(gpt2_has_the_same_bits_with_blocks_run_twice_and_less_memory)
{
    float  loss[2];
    size_t bytes[2], total;
    float *kept  = gpt2_grads(false, &loss[0], &bytes[0], &total);
    float *again = gpt2_grads(true, &loss[1], &bytes[1], &total);

    ck_assert(loss[0] == loss[1] && loss[0] > 0);
    ck_assert_mem_eq(kept, again, total * sizeof(float));
    ck_assert_uint_lt(2 * bytes[1], bytes[0]);
    free(kept);
    free(again);
}
END_TEST

/* Forward, loss and backward of a model, on memory that is there or only numbers. */
static ddp_tape_memory_t model_memory(const ddp_model_config_t *config, bool dry, bool recompute,
                                      const ddp_tape_memory_t *reserved, size_t *allocations_p)
{
    static float        images[4 * 28 * 28];
    static int32_t      numbers[4 * 16];
    const size_t        shape[4] = {4, 28, 28, 1};
    ddp_device_params_t device   = DDP_DEVICE_PARAMS_INIT;
    ddp_model_t        *model    = NULL;
    ddp_loss_stats_t   *stats    = NULL;
    ddp_tensor_t       *x        = NULL;
    ddp_tape_params_t   params   = DDP_TAPE_PARAMS_INIT;
    ddp_tape_memory_t   memory;
    size_t              held;
    nn_world_t          world;

    memset(&world, 0, sizeof(world));
    device.isa = ddp_isa_detect();
    device.dry = dry;
    ck_assert_int_eq(ddp_device_create(&device, &world.device), DDP_OK);
    ck_assert_int_eq(ddp_stream_create(world.device, "compute", &world.stream), DDP_OK);
    ck_assert_int_eq(ddp_params_create(&world.params), DDP_OK);
    ck_assert_int_eq(ddp_model_create(config, world.params, &model), DDP_OK);
    ck_assert_int_eq(ddp_params_allocate(world.params, ddp_device_allocator(world.device)), DDP_OK);
    params.stream = world.stream;
    params.params = world.params;
    ck_assert_int_eq(ddp_tape_create(&params, &world.tape), DDP_OK);
    ck_assert_int_eq(ddp_tape_reserve(world.tape, reserved), DDP_OK);
    ddp_tape_set_recompute(world.tape, recompute);
    for (size_t i = 0; i < 2; i++) {
        ck_assert_int_eq(ddp_tape_begin(world.tape, &training), DDP_OK);
        if (config->kind == DDP_MODEL_GPT2) {
            ck_assert_int_eq(ddp_model_forward_tokens(model, world.tape, numbers, numbers, 4, 16, &stats),
                             DDP_OK);
        } else {
            ck_assert_int_eq(ddp_tape_input(world.tape, images, 4, shape, &x), DDP_OK);
            ck_assert_int_eq(ddp_model_forward(model, world.tape, x, &x), DDP_OK);
            ck_assert_int_eq(ddp_nn_cross_entropy(world.tape, x, numbers, NULL, -1, &stats), DDP_OK);
        }
        ck_assert_msg(ddp_tape_backward(world.tape) == DDP_OK, "%s", ddp_error_line());
    }
    nn_world_wait(&world);
    memory         = ddp_tape_memory(world.tape);
    *allocations_p = ddp_tape_allocations(world.tape);
    held = ddp_device_memory(world.device).held - 2 * ddp_params_total(world.params) * sizeof(float) -
           memory.activations - memory.scratch;
    ck_assert(dry || (held > 0 && held <= ddp_kernel_scratch_bytes(world.device, config->vocab)));
    ddp_model_destroy(&model);
    nn_world_close(&world);
    return memory;
}

START_TEST(a_dry_run_tells_exactly_what_a_run_needs)
{
    static const ddp_tape_memory_t  plenty   = {.activations = (size_t)1 << 50, .scratch = (size_t)1 << 50};
    static const ddp_model_config_t models[] = {
        {.kind = DDP_MODEL_CNN, .height = 28, .width = 28, .channels = 1, .classes = 10},
        {.kind     = DDP_MODEL_GPT2,
         .layers   = 3,
         .heads    = 2,
         .channels = 96,
         .context  = 16,
         .vocab    = 40,
         .dropout  = 0.2F}};

    for (size_t i = 0; i < 3; i++) {
        const ddp_model_config_t *model     = &models[i > 0];
        size_t                    allocated = 0;
        const ddp_tape_memory_t   planned   = model_memory(model, true, i == 2, &plenty, &allocated);
        const ddp_tape_memory_t   used      = model_memory(model, false, i == 2, &planned, &allocated);

        ck_assert_uint_gt(planned.activations, 100000);
        ck_assert_uint_eq(planned.activations, used.activations);
        ck_assert_uint_eq(planned.scratch, used.scratch);
        ck_assert_uint_eq(planned.nodes, used.nodes);
        ck_assert_uint_eq(allocated, used.scratch > 0 ? 3 : 2); /* no more than what was reserved */
    }
}
END_TEST

/* Three micro-batches of a small gpt2 on a device that may hold `cap` bytes. */
static ddp_status_t train_below(size_t cap, ddp_device_memory_t *held_p)
{
    static const ddp_model_config_t config = {
        .kind = DDP_MODEL_GPT2, .layers = 3, .heads = 2, .channels = 96, .context = 16, .vocab = 40};
    static const int32_t tokens[12 * 16];
    ddp_device_params_t  device = DDP_DEVICE_PARAMS_INIT;
    ddp_tape_params_t    setup  = DDP_TAPE_PARAMS_INIT;
    ddp_model_t         *model  = NULL;
    ddp_loss_stats_t    *stats  = NULL;
    ddp_status_t         status = DDP_OK;
    nn_world_t           world;

    memset(&world, 0, sizeof(world));
    device.isa          = ddp_isa_detect();
    device.name         = "device 3";
    device.memory_bytes = cap;
    ddp_assert_ok(ddp_device_create(&device, &world.device));
    ddp_assert_ok(ddp_stream_create(world.device, "compute", &world.stream));
    ddp_assert_ok(ddp_params_create(&world.params));
    ddp_assert_ok(ddp_model_create(&config, world.params, &model));
    DDP_TRY(ddp_params_allocate(world.params, ddp_device_allocator(world.device)));
    DDP_TRY(ddp_params_initialize(world.params, world.stream, 1));
    setup.stream = world.stream;
    setup.params = world.params;
    DDP_TRY(ddp_tape_create(&setup, &world.tape));
    for (size_t i = 0; i < 3; i++) {
        DDP_TRY(ddp_tape_begin(world.tape, &training));
        DDP_TRY(ddp_model_forward_tokens(model, world.tape, tokens, tokens, 12, 16, &stats));
        DDP_TRY(ddp_tape_backward(world.tape));
        DDP_TRY(ddp_stream_synchronize(world.stream, -1));
    }
out:
    *held_p = ddp_device_memory(world.device);
    ddp_tape_destroy(&world.tape);
    ddp_model_destroy(&model);
    ddp_params_destroy(&world.params);
    ddp_stream_destroy(&world.stream);
    if (status == DDP_OK) {
        const ddp_device_memory_t rest = ddp_device_memory(world.device);

        ck_assert_uint_le(rest.held, ddp_kernel_scratch_bytes(world.device, 40));
    }
    ddp_device_destroy(&world.device);
    return status;
}

START_TEST(a_step_below_a_cap_has_less_memory_at_a_time_or_is_refused_by_name)
{
    static const char *const begin = "device 3: ";
    ddp_device_memory_t      free_run;
    ddp_device_memory_t      held;
    size_t                   refused = 0;
    size_t                   passed  = 0;

    ddp_assert_ok(train_below(0, &free_run));
    ck_assert_uint_eq(free_run.cap, 0);
    ddp_assert_ok(train_below(free_run.peak, &held));
    ck_assert_uint_eq(held.peak, free_run.peak);
    for (size_t i = 0; i < 30; i++) { /* far below, and a little */
        const size_t       cap    = i < 15 ? free_run.peak * i / 15 + 1 : free_run.peak - (i - 14) * 65536;
        const ddp_status_t status = train_below(cap, &held);

        ck_assert_uint_le(held.peak, cap);
        refused += status == DDP_ERR_NO_MEMORY ? 1 : 0;
        passed += status == DDP_OK ? 1 : 0;
        if (status != DDP_OK) {
            ck_assert_int_eq(status, DDP_ERR_NO_MEMORY);
            ck_assert_msg(strncmp(ddp_error_line(), begin, strlen(begin)) == 0 &&
                              strstr(ddp_error_line(), " MB are left") != NULL,
                          "%s", ddp_error_line());
        }
    }
    ck_assert_uint_gt(refused, 5);
    ck_assert_uint_eq(refused + passed, 30);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("memory");
    TCase *tcase = tcase_create("all");

    tcase_add_test(tcase, a_block_run_twice_has_the_bits_of_one_that_was_kept);
    tcase_add_test(tcase, a_block_run_twice_costs_the_memory_of_its_result);
    tcase_add_test(tcase, a_block_may_be_empty_and_its_error_is_the_callers);
    tcase_add_test(tcase, gradients_of_a_chain_take_the_memory_of_two);
    tcase_add_test(tcase, a_dry_run_tells_exactly_what_a_run_needs);
    tcase_add_test(tcase, a_step_below_a_cap_has_less_memory_at_a_time_or_is_refused_by_name);
    tcase_add_test(tcase, gpt2_has_the_same_bits_with_blocks_run_twice_and_less_memory);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
