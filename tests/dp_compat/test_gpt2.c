/* GPT-2 on devices: the loss of gathered logits, and that of replicas, train what one rank trains, whose head
 * never has the logits at all. */
#include <string.h>

#include "dp_compat/data_parallel.h"
#include "nn/layers.h"
#include "nn/model.h"
#include "tests/support/ddp_test.h"

#define T     16
#define VOCAB 61
#define BATCH 9
#define PARTS 4
#define STEPS 2
#define HASH  33

typedef struct job {
    ddp_device_t *device;
    ddp_stream_t *stream;
    ddp_params_t *params;
    ddp_model_t  *model;
    int32_t       tokens[STEPS * BATCH][T], targets[STEPS * BATCH][T];
} job_t;

static size_t first_of(const ddp_micro_t *micro)
{
    return (size_t)micro->step * BATCH + micro->first_row;
}

static ddp_status_t fetch(void *ctx, const ddp_micro_t *micro, ddp_dp_input_t *inputs)
{
    job_t *job = ctx;

    inputs[0] = (ddp_dp_input_t){job->tokens[first_of(micro)], sizeof(job->tokens[0]), false};
    inputs[1] = (ddp_dp_input_t){job->targets[first_of(micro)], sizeof(job->targets[0]), true};
    return DDP_OK;
}

static ddp_status_t forward(void *ctx, ddp_tape_t *tape, const ddp_micro_t *micro, const void *const *inputs,
                            ddp_tensor_t **output_p)
{
    job_t *job = ctx;

    return ddp_model_logits(job->model, tape, inputs[0], micro->n, T, output_p);
}

static ddp_status_t loss(void *ctx, ddp_tape_t *tape, const ddp_micro_t *micro, const void *const *inputs,
                         ddp_tensor_t *output, ddp_loss_stats_t **stats_p)
{
    (void)ctx;
    (void)micro;
    return ddp_nn_cross_entropy(tape, output, inputs[1], NULL, -1, stats_p);
}

static ddp_status_t whole(void *ctx, ddp_tape_t *tape, const ddp_micro_t *micro, ddp_loss_stats_t **stats_p)
{
    job_t       *job   = ctx;
    const size_t first = first_of(micro);

    return ddp_model_forward_tokens(job->model, tape, job->tokens[first], job->targets[first], micro->n, T,
                                    stats_p);
}

static void job_open(job_t *job)
{
    const ddp_model_config_t config = {.kind     = DDP_MODEL_GPT2,
                                       .layers   = 2,
                                       .heads    = 2,
                                       .channels = 32,
                                       .context  = T,
                                       .vocab    = VOCAB,
                                       .dropout  = 0.1F};
    ddp_device_params_t      cpu    = DDP_DEVICE_PARAMS_INIT;

    memset(job, 0, sizeof(*job));
    cpu.isa = ddp_isa_detect();
    ddp_assert_ok(ddp_device_create(&cpu, &job->device));
    ddp_assert_ok(ddp_stream_create(job->device, "compute", &job->stream));
    ddp_assert_ok(ddp_params_create(&job->params));
    ddp_assert_ok(ddp_model_create(&config, job->params, &job->model));
    for (size_t i = 0; i < (size_t)STEPS * BATCH * T; i++) {
        uint32_t random[4];

        ddp_philox(1, (uint32_t[]){(uint32_t)i, 0, 0, 5}, random);
        job->tokens[i / T][i % T]  = (int32_t)(random[0] % VOCAB);
        job->targets[i / T][i % T] = random[2] % 8 == 0 ? -1 : (int32_t)(random[1] % VOCAB);
    }
}

static void job_close(job_t *job)
{
    ddp_model_destroy(&job->model);
    ddp_params_destroy(&job->params);
    ddp_stream_destroy(&job->stream);
    ddp_device_destroy(&job->device);
}

static void hash_of(ddp_reducer_t *reducer, char hash[HASH])
{
    ddp_assert_ok(ddp_reducer_finish(reducer));
    ddp_assert_ok(ddp_reducer_weights_hash(reducer, hash));
}

static void train_alone(char hash[HASH])
{
    ddp_comm_params_t    alone   = DDP_COMM_PARAMS_INIT;
    ddp_trainer_params_t params  = DDP_TRAINER_PARAMS_INIT;
    ddp_trainer_t       *trainer = NULL;
    ddp_comm_t          *comm    = NULL;
    ddp_step_result_t    result;
    job_t                job;

    job_open(&job);
    alone.alone = true;
    ddp_assert_ok(ddp_comm_create(&alone, &comm));
    ddp_comm_attach(comm, job.device);
    params.params                = job.params;
    params.seed                  = 2;
    params.forward               = whole;
    params.ctx                   = &job;
    params.reducer.comm          = comm;
    params.reducer.compute       = job.stream;
    params.reducer.micro_batches = PARTS;
    ddp_assert_ok(ddp_trainer_create(&params, &trainer));
    for (int s = 0; s < STEPS; s++) {
        ddp_assert_ok(ddp_trainer_step(trainer, &(ddp_step_t){.lr = 1e-2F, .samples = BATCH}, &result));
    }
    hash_of(ddp_trainer_reducer(trainer), hash);
    ddp_trainer_destroy(&trainer);
    ddp_comm_destroy(&comm);
    job_close(&job);
}

static void train_on_devices(size_t devices, ddp_dp_loss_t loss_at, char hash[HASH])
{
    static const int  ids[PARTS] = {0, 1, 2, 3};
    ddp_dp_params_t   params     = DDP_DP_PARAMS_INIT;
    ddp_dp_t         *dp         = NULL;
    ddp_step_result_t result;
    job_t             job;

    job_open(&job);
    params.params                = job.params;
    params.device_ids            = ids;
    params.n_devices             = devices;
    params.seed                  = 2;
    params.loss_at               = loss_at;
    params.fetch                 = fetch;
    params.forward               = forward;
    params.loss                  = loss;
    params.ctx                   = &job;
    params.reducer.compute       = job.stream;
    params.reducer.micro_batches = PARTS;
    ddp_assert_ok(ddp_dp_create(&params, &dp));
    for (int s = 0; s < STEPS; s++) {
        ddp_assert_ok(ddp_dp_step(dp, &(ddp_step_t){.lr = 1e-2F, .samples = BATCH}, &result));
    }
    hash_of(ddp_dp_reducer(dp), hash);
    ddp_dp_destroy(&dp);
    job_close(&job);
}

/* Loop: devices. */
START_TEST(logits_that_are_gathered_give_the_bits_of_the_head)
{
    char alone[HASH], devices[HASH];

    train_alone(alone);
    train_on_devices((size_t)_i, DDP_DP_LOSS_OUTSIDE, devices);
    ck_assert_str_eq(devices, alone);
    train_on_devices((size_t)_i, DDP_DP_LOSS_INSIDE, devices);
    ck_assert_str_eq(devices, alone);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("dp gpt2");
    TCase *tcase = tcase_create("gpt2");

    tcase_add_loop_test(tcase, logits_that_are_gathered_give_the_bits_of_the_head, 1, 5);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
