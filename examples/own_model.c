/* A model of one's own, trained data-parallel: mpirun -np 2 own_model. It learns in which quadrant a point
 * lies. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/error.h"
#include "ddp/trainer.h"
#include "nn/layers.h"

enum { BATCH = 64, MICRO_BATCHES = 8, STEPS = 300 };
static float   points[BATCH][2]; /* static: what the tape reads must stay until the step ends */
static int32_t labels[BATCH];

static ddp_status_t forward(void *ctx, ddp_tape_t *tape, const ddp_micro_t *micro, ddp_loss_stats_t **stats_p)
{
    const size_t *p      = ctx; /* handles of the parameters */
    ddp_status_t  status = DDP_OK;
    const void   *here   = NULL;
    const void   *wanted = NULL;
    ddp_tensor_t *x      = NULL;
    ddp_tensor_t *h      = NULL;

    for (size_t i = micro->first_row; i < micro->first_row + micro->n;
         i++) { /* the same points on any number of ranks */
        uint32_t random[4];

        ddp_philox(7, (uint32_t[]){(uint32_t)micro->step, (uint32_t)i, 0, 0}, random);
        points[i][0] = (float)random[0] / 2147483648.0F - 1;
        points[i][1] = (float)random[1] / 2147483648.0F - 1;
        labels[i]    = (points[i][0] > 0 ? 1 : 0) + (points[i][1] > 0 ? 2 : 0);
    }
    /* on a cpu device these are the arrays themselves */
    DDP_TRY(ddp_tape_upload(tape, points[micro->first_row], micro->n * sizeof(points[0]), &here));
    DDP_TRY(ddp_tape_upload(tape, labels + micro->first_row, micro->n * sizeof(labels[0]), &wanted));
    DDP_TRY(ddp_tape_input(tape, here, 2, (size_t[]){micro->n, 2}, &x));
    DDP_TRY(ddp_nn_linear(tape, x, p[0], p[1], DDP_ACT_RELU, &x));
    DDP_TRY(ddp_nn_linear(tape, x, p[2], p[3], DDP_ACT_GELU, &h));
    DDP_TRY(ddp_nn_add(tape, x, h, &x));
    DDP_TRY(ddp_nn_linear(tape, x, p[4], p[5], DDP_ACT_NONE, &x));
    DDP_TRY(ddp_nn_cross_entropy(tape, x, wanted, NULL, -100, stats_p));
out:
    return status;
}

static ddp_status_t train(ddp_comm_t *comm, ddp_stream_t *stream, ddp_params_t *params)
{
    static const char    names[6][16] = {"in.weight", "in.bias",    "mid.weight",
                                         "mid.bias",  "out.weight", "out.bias"};
    static const size_t  shapes[6][2] = {{32, 2}, {32}, {32, 32}, {32}, {4, 32}, {4}};
    ddp_status_t         status       = DDP_OK;
    ddp_trainer_params_t setup        = DDP_TRAINER_PARAMS_INIT;
    ddp_trainer_t       *trainer      = NULL;
    ddp_step_result_t    result       = {.loss = 0};
    size_t               p[6];

    for (size_t i = 0; i < 6; i++) {
        const ddp_init_t init = {.kind   = DDP_INIT_UNIFORM,
                                 .fan_in = shapes[i / 2 * 2][1]}; /* as PyTorch's Linear */

        DDP_TRY(ddp_params_add(params, names[i], 2 - i % 2, shapes[i], init, &p[i]));
    }
    DDP_TRY(ddp_params_finish(params));
    setup.params                = params;
    setup.forward               = forward;
    setup.ctx                   = p;
    setup.reducer.comm          = comm;
    setup.reducer.compute       = stream;
    setup.reducer.micro_batches = MICRO_BATCHES;
    DDP_TRY(ddp_trainer_create(&setup, &trainer));
    for (int s = 0; s < STEPS; s++) {
        DDP_TRY(ddp_trainer_step(trainer, &(ddp_step_t){.lr = 3e-3F, .samples = BATCH}, &result));
    }
    if (ddp_comm_rank(comm) == 0) {
        printf("loss %.6f accuracy %.3f\n", result.loss, result.correct / result.counted);
    }
    DDP_REQUIRE(result.correct / result.counted > 0.9, DDP_ERR_STATE, "it did not learn");
out:
    ddp_trainer_destroy(&trainer);
    return status;
}

int main(int argc, char **argv)
{
    ddp_status_t        status = DDP_OK;
    ddp_comm_params_t   ranks  = DDP_COMM_PARAMS_INIT;
    ddp_device_params_t cpu    = DDP_DEVICE_PARAMS_INIT; /* plain C: the same bits on every machine */
    ddp_comm_t         *comm   = NULL;
    ddp_device_t       *device = NULL;
    ddp_stream_t       *stream = NULL;
    ddp_params_t       *params = NULL;
    int                 level  = 0;

    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    ranks.parent = MPI_COMM_WORLD;
    DDP_TRY(ddp_comm_create(&ranks, &comm));
    DDP_TRY(ddp_device_create(&cpu, &device));
    ddp_comm_attach(comm, device);
    DDP_TRY(ddp_stream_create(device, "compute", &stream));
    DDP_TRY(ddp_params_create(&params));
    DDP_TRY(train(comm, stream, params));
    ddp_params_destroy(&params);
    ddp_stream_destroy(&stream);
    ddp_device_destroy(&device);
    ddp_comm_destroy(&comm);
    MPI_Finalize();
    return EXIT_SUCCESS;
out:
    if (comm != NULL && ddp_comm_rank(comm) != 0) {
        sleep(3); /* mpirun ends this rank when rank 0 has left: one line is enough, and no rank is waited for
                   */
    }
    fprintf(stderr, "own_model: %s: %s\n", ddp_status_name(status), ddp_error_line());
    _Exit(
        EXIT_FAILURE); /* mpirun ends the other ranks; waiting for them in MPI_Finalize could take for ever */
}
