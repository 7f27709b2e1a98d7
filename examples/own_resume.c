/* A model of one's own that saves, and goes on where it was: mpirun -np 2 own_resume FOLDER [STEPS]. It
 * learns y = 3 a - 2 b + 0.5 from samples of it; the last line is the same however often it was stopped. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "ddp/trainer.h"
#include "io/saver.h"
#include "nn/layers.h"

enum { BATCH = 32, MICRO_BATCHES = 4, SAVE_EVERY = 50 };
static float samples[BATCH][2]; /* static: what the tape reads must stay until the step ends */
static float wanted[BATCH];

typedef struct model {
    ddp_params_t  *params;
    ddp_trainer_t *trainer;
    size_t         weight, bias;
} model_t;

static ddp_status_t forward(void *ctx, ddp_tape_t *tape, const ddp_micro_t *micro, ddp_loss_stats_t **stats_p)
{
    const model_t *model  = ctx;
    ddp_status_t   status = DDP_OK;
    const void    *here   = NULL;
    const void    *there  = NULL;
    ddp_tensor_t  *x      = NULL;

    for (size_t i = micro->first_row; i < micro->first_row + micro->n; i++) {
        uint32_t random[4]; /* by step and sample: the same on any number of ranks, and after a restart */

        ddp_philox(1, (uint32_t[]){(uint32_t)micro->step, (uint32_t)i, 0, 0}, random);
        samples[i][0] = (float)random[0] / 2147483648.0F - 1;
        samples[i][1] = (float)random[1] / 2147483648.0F - 1;
        wanted[i]     = 3 * samples[i][0] - 2 * samples[i][1] + 0.5F;
    }
    DDP_TRY(ddp_tape_upload(tape, samples[micro->first_row], micro->n * sizeof(samples[0]), &here));
    DDP_TRY(ddp_tape_upload(tape, wanted + micro->first_row, micro->n * sizeof(wanted[0]), &there));
    DDP_TRY(ddp_tape_input(tape, here, 2, (size_t[]){micro->n, 2}, &x));
    DDP_TRY(ddp_nn_linear(tape, x, model->weight, model->bias, DDP_ACT_NONE, &x));
    DDP_TRY(ddp_nn_mse(tape, x, there, NULL, stats_p));
out:
    return status;
}

/* Rank 0 looks for a checkpoint; the others learn of its step, and then take part in loading it. */
static ddp_status_t resume(ddp_comm_t *comm, const model_t *model, const char *folder, uint64_t *step_p)
{
    ddp_status_t      status     = DDP_OK;
    ddp_checkpoint_t *checkpoint = NULL;
    ddp_reducer_t    *reducer    = ddp_trainer_reducer(model->trainer);

    if (ddp_comm_rank(comm) == 0) {
        status  = ddp_checkpoint_open_newest(folder, NULL, NULL, &checkpoint);
        *step_p = checkpoint != NULL ? ddp_checkpoint_state(checkpoint)->step : 0;
    }
    DDP_TRY(ddp_comm_agree(comm, status));
    DDP_TRY(ddp_comm_broadcast(comm, step_p, sizeof(*step_p), 0));
    if (*step_p > 0) {
        DDP_TRY(ddp_checkpoint_restore(comm, reducer, ddp_params_descs(model->params),
                                       ddp_params_count(model->params), checkpoint, false));
        ddp_trainer_set_step(model->trainer, *step_p);
    }
out:
    ddp_checkpoint_close(&checkpoint);
    return status;
}

static ddp_status_t save(ddp_saver_t *saver, const model_t *model, uint64_t step)
{
    ddp_status_t               status = DDP_OK;
    const ddp_training_state_t state  = {.step          = step,
                                         .samples_seen  = step * BATCH,
                                         .micro_batches = MICRO_BATCHES,
                                         .isa           = "plain",
                                         .optimizer     = "adamw",
                                         .n_slots       = 2,
                                         .slot          = {"exp_avg", "exp_avg_sq"},
                                         .data          = "drawn",
                                         .config        = "",
                                         .producer      = "own_resume",
                                         .best_loss     = NAN};

    DDP_TRY(ddp_reducer_finish(ddp_trainer_reducer(model->trainer))); /* the step's updates are in */
    DDP_TRY(ddp_saver_save(saver, &state, false));                    /* copies; threads write */
out:
    return status;
}

static ddp_status_t train(ddp_comm_t *comm, const model_t *model, const char *folder, uint64_t steps)
{
    ddp_status_t       status  = DDP_OK;
    ddp_saver_params_t setup   = DDP_SAVER_PARAMS_INIT;
    ddp_saver_t       *saver   = NULL;
    ddp_reducer_t     *reducer = ddp_trainer_reducer(model->trainer);
    ddp_step_result_t  result  = {.loss = 0};
    uint64_t           begin   = 0;
    char               checkpoints[4096];
    char               hash[33];

    if (ddp_comm_rank(comm) == 0) {
        (void)mkdir(folder, 0777); /* the saver makes the folder in it, and says what is wrong */
    }
    (void)snprintf(checkpoints, sizeof(checkpoints), "%s/checkpoints", folder);
    DDP_TRY(resume(comm, model, checkpoints, &begin));
    setup.comm      = comm;
    setup.reducer   = reducer;
    setup.tensors   = ddp_params_descs(model->params);
    setup.n_tensors = ddp_params_count(model->params);
    setup.folder    = checkpoints;
    DDP_TRY(ddp_saver_create(&setup, &saver));
    for (uint64_t s = begin; s < steps; s++) {
        DDP_TRY(ddp_trainer_step(model->trainer, &(ddp_step_t){.lr = 1e-2F, .samples = BATCH}, &result));
        if ((s + 1) % SAVE_EVERY == 0) {
            DDP_TRY(save(saver, model, s + 1));
        }
    }
    DDP_TRY(ddp_saver_finish(saver));
    DDP_TRY(ddp_reducer_finish(reducer));
    DDP_TRY(ddp_reducer_weights_hash(reducer, hash));
    if (ddp_comm_rank(comm) == 0) {
        printf("began after step %llu, loss %.6f\nweights %s\n", (unsigned long long)begin, result.loss,
               hash);
    }
out:
    ddp_saver_destroy(&saver);
    return status;
}

static ddp_status_t build(ddp_comm_t *comm, ddp_stream_t *stream, model_t *model)
{
    ddp_status_t         status = DDP_OK;
    ddp_trainer_params_t setup  = DDP_TRAINER_PARAMS_INIT;
    const ddp_init_t     init   = {.kind = DDP_INIT_UNIFORM, .fan_in = 2};

    DDP_TRY(ddp_params_create(&model->params));
    DDP_TRY(ddp_params_add(model->params, "weight", 2, (size_t[]){1, 2}, init, &model->weight));
    DDP_TRY(ddp_params_add(model->params, "bias", 1, (size_t[]){1}, init, &model->bias));
    DDP_TRY(ddp_params_finish(model->params));
    setup.params                = model->params;
    setup.forward               = forward;
    setup.ctx                   = model;
    setup.reducer.comm          = comm;
    setup.reducer.compute       = stream;
    setup.reducer.micro_batches = MICRO_BATCHES;
    DDP_TRY(ddp_trainer_create(&setup, &model->trainer));
out:
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
    model_t             model  = {0};
    int                 level  = 0;

    if (argc < 2) {
        fprintf(stderr, "usage: own_resume FOLDER [STEPS]\n");
        return 2;
    }
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    ranks.parent     = MPI_COMM_WORLD;
    ranks.timeout_ms = 10000;
    DDP_TRY(ddp_comm_create(&ranks, &comm));
    DDP_TRY(ddp_device_create(&cpu, &device));
    ddp_comm_attach(comm, device);
    DDP_TRY(ddp_stream_create(device, "compute", &stream));
    DDP_TRY(build(comm, stream, &model));
    DDP_TRY(train(comm, &model, argv[1], argc > 2 ? strtoull(argv[2], NULL, 10) : 500));
    ddp_trainer_destroy(&model.trainer);
    ddp_params_destroy(&model.params);
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
    fprintf(stderr, "own_resume: %s: %s\n", ddp_status_name(status), ddp_error_line());
    _Exit(EXIT_FAILURE); /* a peer may be gone: MPI_Finalize would wait for it */
}
