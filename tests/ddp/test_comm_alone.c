/* A communicator of one rank without MPI, which this program never starts. */
#include <math.h>
#include <mpi.h>
#include <string.h>

#include "ddp/trainer.h"
#include "nn/layers.h"
#include "nn/model.h"
#include "tests/support/ddp_test.h"

#define SAMPLES 12
#define WIDTH   5
#define CLASSES 3

typedef struct job {
    ddp_comm_t   *comm;
    ddp_device_t *device;
    ddp_stream_t *stream;
    ddp_params_t *params;
    ddp_model_t  *model;
    float         x[SAMPLES][WIDTH];
    float         y[SAMPLES];
    int32_t       labels[SAMPLES];
    size_t        handle[2]; /* of the line's weight and bias */
} job_t;

static void job_open(job_t *job)
{
    ddp_comm_params_t   alone = DDP_COMM_PARAMS_INIT;
    ddp_device_params_t cpu   = DDP_DEVICE_PARAMS_INIT;

    memset(job, 0, sizeof(*job));
    alone.alone = true;
    cpu.isa     = ddp_isa_detect();
    ddp_assert_ok(ddp_comm_create(&alone, &job->comm));
    ddp_assert_ok(ddp_device_create(&cpu, &job->device));
    ddp_comm_attach(job->comm, job->device);
    ddp_assert_ok(ddp_stream_create(job->device, "compute", &job->stream));
    ddp_assert_ok(ddp_params_create(&job->params));
    for (size_t i = 0; i < SAMPLES; i++) {
        for (size_t j = 0; j < WIDTH; j++) {
            job->x[i][j] = sinf((float)(i * WIDTH + j) * 1.7F);
        }
        job->labels[i] = (int32_t)(i % CLASSES);
        job->y[i]      = (float)i - 4.0F;
    }
}

static void job_close(job_t *job)
{
    int is_up = 1;

    ddp_model_destroy(&job->model);
    ddp_params_destroy(&job->params);
    ddp_stream_destroy(&job->stream);
    ddp_device_destroy(&job->device);
    ddp_comm_destroy(&job->comm);
    MPI_Initialized(&is_up);
    ck_assert_int_eq(is_up, 0);
}

START_TEST(it_is_rank_0_of_1_on_this_machine)
{
    const ddp_field_t fields[1] = {{"optimizer.lr", "0.1"}};
    job_t             job;
    float             sum[2]  = {1, -2};
    int               data    = 7;
    int               all     = 0;
    void             *memory  = NULL;
    char              name[8] = "";

    job_open(&job);
    ck_assert_int_eq(ddp_comm_rank(job.comm), 0);
    ck_assert_int_eq(ddp_comm_size(job.comm), 1);
    ck_assert_int_eq(ddp_comm_local_size(job.comm), 1);
    ck_assert_int_eq(ddp_comm_machines(job.comm), 1);
    ck_assert_uint_gt(strlen(ddp_comm_host(job.comm, 0)), 0);
    ddp_assert_ok(ddp_comm_barrier(job.comm));
    ddp_assert_ok(ddp_comm_broadcast(job.comm, &data, sizeof(data), 0));
    ddp_assert_ok(ddp_comm_allgather(job.comm, &data, sizeof(data), &all));
    ck_assert_int_eq(all, 7);
    ddp_assert_ok(ddp_comm_check_equal(job.comm, fields, 1));
    ddp_assert_ok(ddp_comm_allreduce_sum(job.comm, sum, 2));
    ddp_assert_ok(ddp_comm_allreduce_sum_mpi(job.comm, sum, 2));
    ck_assert(sum[0] == 1 && sum[1] == -2);
    ddp_assert_ok(ddp_comm_shared(job.comm, "a test", sizeof(name), &memory));
    ck_assert_int_eq(memcmp(memory, name, sizeof(name)), 0);
    ck_assert_int_eq(ddp_comm_agree(job.comm, DDP_ERR_IO), DDP_ERR_IO);
    ddp_assert_ok(ddp_comm_agree(job.comm, DDP_OK));
    job_close(&job);
}
END_TEST

static ddp_status_t line(void *ctx, ddp_tape_t *tape, const ddp_micro_t *micro, ddp_loss_stats_t **stats_p)
{
    job_t        *job    = ctx;
    ddp_status_t  status = DDP_OK;
    ddp_tensor_t *x      = NULL;

    DDP_TRY(ddp_tape_input(tape, job->x[micro->first_row], 2, (size_t[]){micro->n, WIDTH}, &x));
    DDP_TRY(ddp_nn_linear(tape, x, job->handle[0], job->handle[1], DDP_ACT_NONE, &x));
    DDP_TRY(ddp_nn_mse(tape, x, job->y + micro->first_row, NULL, stats_p));
out:
    return status;
}

/* Weights and bias begin at 0, so the prediction is 0: for the loss (1/N) sum (y - t)^2 the gradient of
 * weight j is -(2/N) sum t x_j, of the bias -(2/N) sum t. */
START_TEST(a_step_of_gradient_descent_has_its_closed_form)
{
    ddp_trainer_params_t setup   = DDP_TRAINER_PARAMS_INIT;
    ddp_trainer_t       *trainer = NULL;
    ddp_step_result_t    result;
    double               expected[WIDTH + 1] = {0};
    double               loss                = 0;
    job_t                job;

    job_open(&job);
    ddp_assert_ok(ddp_params_add(job.params, "weight", 2, (size_t[]){1, WIDTH},
                                 (ddp_init_t){.kind = DDP_INIT_ZERO}, &job.handle[0]));
    ddp_assert_ok(ddp_params_add(job.params, "bias", 1, (size_t[]){1}, (ddp_init_t){.kind = DDP_INIT_ZERO},
                                 &job.handle[1]));
    ddp_assert_ok(ddp_params_finish(job.params));
    setup.params                = job.params;
    setup.forward               = line;
    setup.ctx                   = &job;
    setup.reducer.comm          = job.comm;
    setup.reducer.compute       = job.stream;
    setup.reducer.micro_batches = 5;
    setup.reducer.optim         = (ddp_optim_config_t){.kind = DDP_OPTIM_SGD};
    ddp_assert_ok(ddp_trainer_create(&setup, &trainer));
    ddp_assert_ok(ddp_trainer_step(trainer, &(ddp_step_t){.lr = 0.5F, .samples = SAMPLES}, &result));
    ddp_assert_ok(ddp_reducer_finish(ddp_trainer_reducer(trainer)));
    for (size_t i = 0; i < SAMPLES; i++) {
        for (size_t j = 0; j < WIDTH; j++) {
            expected[j] += 0.5 * 2.0 / SAMPLES * (double)job.y[i] * (double)job.x[i][j];
        }
        expected[WIDTH] += 0.5 * 2.0 / SAMPLES * (double)job.y[i];
        loss += (double)job.y[i] * (double)job.y[i] / SAMPLES;
    }
    ck_assert_double_eq_tol(result.loss, loss, 1e-5);
    for (size_t j = 0; j < WIDTH; j++) {
        ck_assert_double_eq_tol((double)ddp_params_value(job.params, job.handle[0])[j], expected[j], 1e-5);
    }
    ck_assert_double_eq_tol((double)ddp_params_value(job.params, job.handle[1])[0], expected[WIDTH], 1e-5);
    ddp_trainer_destroy(&trainer);
    job_close(&job);
}
END_TEST

static ddp_status_t classify(void *ctx, ddp_tape_t *tape, const ddp_micro_t *micro,
                             ddp_loss_stats_t **stats_p)
{
    job_t        *job    = ctx;
    ddp_status_t  status = DDP_OK;
    ddp_tensor_t *x      = NULL;

    DDP_TRY(ddp_tape_input(tape, job->x[micro->first_row], 4, (size_t[]){micro->n, 1, WIDTH, 1}, &x));
    DDP_TRY(ddp_model_forward(job->model, tape, x, &x));
    DDP_TRY(ddp_nn_cross_entropy(tape, x, job->labels + micro->first_row, NULL, -100, stats_p));
out:
    return status;
}

START_TEST(an_mlp_learns_with_clipping_and_without)
{
    const ddp_model_config_t config  = {.kind     = DDP_MODEL_MLP,
                                        .height   = 1,
                                        .width    = WIDTH,
                                        .channels = 1,
                                        .classes  = CLASSES,
                                        .n_hidden = 1,
                                        .hidden   = {32}};
    ddp_trainer_params_t     setup   = DDP_TRAINER_PARAMS_INIT;
    ddp_trainer_t           *trainer = NULL;
    ddp_step_result_t        result  = {.loss = 0};
    job_t                    job;

    job_open(&job);
    ddp_assert_ok(ddp_model_create(&config, job.params, &job.model));
    setup.params                = job.params;
    setup.forward               = classify;
    setup.ctx                   = &job;
    setup.reducer.comm          = job.comm;
    setup.reducer.compute       = job.stream;
    setup.reducer.micro_batches = 4;
    setup.reducer.clip_norm     = _i == 0 ? 0.0F : 1.0F;
    ddp_assert_ok(ddp_trainer_create(&setup, &trainer));
    for (int s = 0; s < 200; s++) {
        ddp_assert_ok(ddp_trainer_step(trainer, &(ddp_step_t){.lr = 0.01F, .samples = SAMPLES}, &result));
    }
    ck_assert_double_lt(result.loss, 0.05);
    ck_assert(isnan(result.grad_norm) == (_i == 0));
    ddp_assert_ok(ddp_reducer_check_replicas(ddp_trainer_reducer(trainer)));
    ddp_trainer_destroy(&trainer);
    job_close(&job);
}
END_TEST

START_TEST(its_parameters_are_checked_all_the_same)
{
    ddp_comm_params_t alone = DDP_COMM_PARAMS_INIT;
    ddp_comm_t       *comm  = NULL;

    alone.alone      = true;
    alone.timeout_ms = 0;
    ddp_assert_fails(ddp_comm_create(&alone, &comm), DDP_ERR_INVALID_ARG, "timeout_ms is 0");
    ck_assert_ptr_null(comm);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("comm alone");
    TCase *tcase = tcase_create("without MPI");

    tcase_add_test(tcase, it_is_rank_0_of_1_on_this_machine);
    tcase_add_test(tcase, a_step_of_gradient_descent_has_its_closed_form);
    tcase_add_loop_test(tcase, an_mlp_learns_with_clipping_and_without, 0, 2);
    tcase_add_test(tcase, its_parameters_are_checked_all_the_same);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
