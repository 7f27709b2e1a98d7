/* The model of own_model.c under DataParallel: ./own_model_dp [devices]. One process, a thread for each
 * device, no MPI. What is new: the forward of a micro-batch is cut into where its samples are (fetch), the
 * net, and the loss. */
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "dp_compat/data_parallel.h"
#include "nn/layers.h"

enum { BATCH = 64, MICRO_BATCHES = 8, STEPS = 300, MOST_DEVICES = 8 };
static float   points[BATCH][2]; /* static: what a step reads must stay until it ends */
static int32_t labels[BATCH];

/* On the caller's thread. */
static ddp_status_t fetch(void *ctx, const ddp_micro_t *micro, ddp_dp_input_t *inputs)
{
    (void)ctx;
    for (size_t i = micro->first_row; i < micro->first_row + micro->n; i++) {
        uint32_t random[4];

        ddp_philox(7, (uint32_t[]){(uint32_t)micro->step, (uint32_t)i, 0, 0}, random);
        points[i][0] = (float)random[0] / 2147483648.0F - 1;
        points[i][1] = (float)random[1] / 2147483648.0F - 1;
        labels[i]    = (points[i][0] > 0 ? 1 : 0) + (points[i][1] > 0 ? 2 : 0);
    }
    inputs[0] = (ddp_dp_input_t){points[micro->first_row], sizeof(points[0]), false};
    inputs[1] =
        (ddp_dp_input_t){labels + micro->first_row, sizeof(labels[0]), true}; /* only the loss reads it */
    return DDP_OK;
}

/* On the thread of a device, several at once. */
static ddp_status_t forward(void *ctx, ddp_tape_t *tape, const ddp_micro_t *micro, const void *const *inputs,
                            ddp_tensor_t **output_p)
{
    const size_t *p      = ctx; /* handles of the parameters */
    ddp_status_t  status = DDP_OK;
    ddp_tensor_t *x      = NULL;
    ddp_tensor_t *h      = NULL;

    DDP_TRY(ddp_tape_input(tape, inputs[0], 2, (size_t[]){micro->n, 2}, &x));
    DDP_TRY(ddp_nn_linear(tape, x, p[0], p[1], DDP_ACT_RELU, &x));
    DDP_TRY(ddp_nn_linear(tape, x, p[2], p[3], DDP_ACT_GELU, &h));
    DDP_TRY(ddp_nn_add(tape, x, h, &x));
    DDP_TRY(ddp_nn_linear(tape, x, p[4], p[5], DDP_ACT_NONE, output_p));
out:
    return status;
}

/* On the output device, of each device's part of the gathered output. */
static ddp_status_t loss(void *ctx, ddp_tape_t *tape, const ddp_micro_t *micro, const void *const *inputs,
                         ddp_tensor_t *output, ddp_loss_stats_t **stats_p)
{
    (void)ctx;
    (void)micro;
    return ddp_nn_cross_entropy(tape, output, inputs[1], NULL, -100, stats_p);
}

static ddp_status_t train(ddp_stream_t *stream, ddp_params_t *params, size_t devices)
{
    static const char   names[6][16]      = {"in.weight", "in.bias",    "mid.weight",
                                             "mid.bias",  "out.weight", "out.bias"};
    static const size_t shapes[6][2]      = {{32, 2}, {32}, {32, 32}, {32}, {4, 32}, {4}};
    static const int    ids[MOST_DEVICES] = {0, 1, 2, 3, 4, 5, 6, 7};
    ddp_status_t        status            = DDP_OK;
    ddp_dp_params_t     setup             = DDP_DP_PARAMS_INIT;
    ddp_dp_t           *trainer           = NULL;
    ddp_step_result_t   result            = {.loss = 0};
    char                hash[33];
    size_t              p[6];

    for (size_t i = 0; i < 6; i++) {
        const ddp_init_t init = {.kind   = DDP_INIT_UNIFORM,
                                 .fan_in = shapes[i / 2 * 2][1]}; /* as PyTorch's Linear */

        DDP_TRY(ddp_params_add(params, names[i], 2 - i % 2, shapes[i], init, &p[i]));
    }
    DDP_TRY(ddp_params_finish(params));
    setup.params                = params;
    setup.device_ids            = ids;
    setup.n_devices             = devices;
    setup.fetch                 = fetch;
    setup.forward               = forward;
    setup.loss                  = loss;
    setup.ctx                   = p;
    setup.reducer.compute       = stream;
    setup.reducer.micro_batches = MICRO_BATCHES;
    DDP_TRY(ddp_dp_create(&setup, &trainer));
    for (int s = 0; s < STEPS; s++) {
        DDP_TRY(ddp_dp_step(trainer, &(ddp_step_t){.lr = 3e-3F, .samples = BATCH}, &result));
    }
    DDP_TRY(ddp_reducer_finish(ddp_dp_reducer(trainer)));
    DDP_TRY(ddp_reducer_weights_hash(ddp_dp_reducer(trainer), hash));
    printf("loss %.6f accuracy %.3f weights %s\n", result.loss, result.correct / result.counted, hash);
    DDP_REQUIRE(result.correct / result.counted > 0.9, DDP_ERR_STATE, "it did not learn");
out:
    ddp_dp_destroy(&trainer);
    return status;
}

int main(int argc, char **argv)
{
    const long          asked  = argc > 1 ? strtol(argv[1], NULL, 10) : 2;
    ddp_status_t        status = DDP_OK;
    ddp_device_params_t cpu    = DDP_DEVICE_PARAMS_INIT; /* plain C: the same bits on every machine */
    ddp_device_t       *device = NULL;
    ddp_stream_t       *stream = NULL;
    ddp_params_t       *params = NULL;

    DDP_REQUIRE(asked >= 1 && asked <= MOST_DEVICES, DDP_ERR_INVALID_ARG, "1 to %d devices", MOST_DEVICES);
    DDP_TRY(ddp_device_create(&cpu, &device));
    DDP_TRY(ddp_stream_create(device, "compute", &stream));
    DDP_TRY(ddp_params_create(&params));
    DDP_TRY(train(stream, params, (size_t)asked));
    ddp_params_destroy(&params);
    ddp_stream_destroy(&stream);
    ddp_device_destroy(&device);
    return EXIT_SUCCESS;
out:
    fprintf(stderr, "own_model_dp: %s: %s\n", ddp_status_name(status), ddp_error_line());
    _Exit(EXIT_FAILURE);
}
