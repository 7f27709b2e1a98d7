#include "tests/dp_compat/dp_job.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "nn/layers.h"

void dp_job_draw(dp_job_t *job, uint64_t step)
{
    for (size_t i = 0; i < DP_JOB_MOST_SAMPLES; i++) {
        uint32_t random[4];

        for (size_t j = 0; j < job->row; j++) {
            ddp_philox(3, (uint32_t[]){(uint32_t)step, (uint32_t)i, (uint32_t)j, 1}, random);
            job->pictures[i * job->row + j] = (float)random[0] / 2147483648.0F - 1;
        }
        job->labels[i] = (int32_t)(random[1] % job->setup.model.classes);
        if (i + 1 == job->spoiled) {
            job->pictures[i * job->row] = NAN;
        }
        if (job->setup.ignore && random[2] % 5 == 0) {
            job->labels[i] = DP_JOB_IGNORED;
        }
    }
}

static ddp_status_t fetch(void *ctx, const ddp_micro_t *micro, ddp_dp_input_t *inputs)
{
    dp_job_t    *job   = ctx;
    const size_t first = job->shift + micro->first_row;

    inputs[0] = (ddp_dp_input_t){job->pictures + first * job->row, job->row * sizeof(float), false};
    inputs[1] = (ddp_dp_input_t){job->labels + first, sizeof(job->labels[0]), true};
    if (job->starves) {
        inputs[0].data = NULL;
    }
    job->fetches++;
    return DDP_OK;
}

static bool has(uint64_t bits, size_t v)
{
    return v < 64 && (bits >> v & 1) != 0;
}

/* Does one hang? Then until it is over. */
static void hang(const dp_job_t *job, uint64_t bits, size_t v)
{
    const struct timespec pause = {0, 1000000};

    while (has(bits, v) && !atomic_load(&job->is_over)) {
        nanosleep(&pause, NULL);
    }
}

static ddp_status_t forward(void *ctx, ddp_tape_t *tape, const ddp_micro_t *micro, const void *const *inputs,
                            ddp_tensor_t **output_p)
{
    dp_job_t                 *job    = ctx;
    const ddp_model_config_t *m      = &job->setup.model;
    ddp_status_t              status = DDP_OK;
    ddp_tensor_t             *x      = NULL;

    hang(job, job->hangs, micro->micro_batch);
    DDP_REQUIRE(!has(job->fails, micro->micro_batch), DDP_ERR_IO, "micro-batch %zu is planted to fail",
                micro->micro_batch);
    DDP_TRY(ddp_tape_input(tape, inputs[0], 4, (size_t[]){micro->n, m->height, m->width, m->channels}, &x));
    for (int i = 0; job->is_slow && i < 10; i++) {
        nanosleep(&(struct timespec){0, 300000000}, NULL);
        DDP_TRY(ddp_nn_act(tape, x, DDP_ACT_RELU, &x));
    }
    DDP_TRY(ddp_model_forward(job->model, tape, x, &x));
    if (has(job->reshapes, micro->micro_batch)) {
        x->shape[1] = 1;
        x->shape[2] = m->classes;
        x->ndim     = 3;
    }
    *output_p = x;
out:
    return status;
}

static ddp_status_t loss(void *ctx, ddp_tape_t *tape, const ddp_micro_t *micro, const void *const *inputs,
                         ddp_tensor_t *output, ddp_loss_stats_t **stats_p)
{
    dp_job_t    *job    = ctx;
    ddp_status_t status = DDP_OK;

    atomic_fetch_add(&job->losses, 1);
    hang(job, job->loss_hangs, micro->micro_batch);
    DDP_REQUIRE(job->wanted_step == 0 || micro->step == job->wanted_step, DDP_ERR_STATE, "this is step %llu",
                (unsigned long long)micro->step);
    if (job->loss_has_weights) {
        const size_t last = ddp_params_count(job->params) - 1; /* a bias of 5 values, for 5 classes */

        DDP_TRY(ddp_nn_layer_norm(tape, output, last, last, 1e-5F, &output));
    }
    DDP_TRY(ddp_nn_cross_entropy(tape, output, inputs[1], NULL, DP_JOB_IGNORED, stats_p));
out:
    return status;
}

static ddp_status_t whole_forward(void *ctx, ddp_tape_t *tape, const ddp_micro_t *micro,
                                  ddp_loss_stats_t **stats_p)
{
    dp_job_t      *job    = ctx;
    ddp_status_t   status = DDP_OK;
    ddp_tensor_t  *output = NULL;
    ddp_dp_input_t in[2];

    DDP_TRY(fetch(ctx, micro, in));
    DDP_TRY(forward(ctx, tape, micro, (const void *[]){in[0].data, NULL}, &output));
    DDP_TRY(loss(job, tape, micro, (const void *[]){NULL, in[1].data}, output, stats_p));
out:
    return status;
}

static ddp_status_t open_trainer(dp_job_t *job)
{
    ddp_comm_params_t    ranks  = DDP_COMM_PARAMS_INIT;
    ddp_trainer_params_t params = DDP_TRAINER_PARAMS_INIT;
    ddp_status_t         status = DDP_OK;

    ranks.alone  = !job->setup.ranks;
    ranks.parent = MPI_COMM_WORLD;
    DDP_TRY(ddp_comm_create(&ranks, &job->comm));
    ddp_comm_attach(job->comm, job->device);
    params.params          = job->params;
    params.seed            = 11;
    params.forward         = whole_forward;
    params.ctx             = job;
    params.reducer         = job->setup.reducer;
    params.reducer.comm    = job->comm;
    params.reducer.compute = job->stream;
    DDP_TRY(ddp_trainer_create(&params, &job->trainer));
out:
    return status;
}

static ddp_status_t open_dp(dp_job_t *job)
{
    static const int in_order[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    ddp_dp_params_t  params      = DDP_DP_PARAMS_INIT;

    params.params     = job->params;
    params.device_ids = job->setup.ids[1] == 0 && job->setup.ids[0] == 0 ? in_order : job->setup.ids;
    if (job->setup.all) {
        params.device_ids = NULL;
    }
    params.n_devices       = job->setup.no_ids || job->setup.all ? 0 : job->setup.devices;
    params.output_device   = job->setup.output_device;
    params.seed            = 11;
    params.loss_at         = job->setup.loss_at;
    params.fetch           = fetch;
    params.forward         = forward;
    params.loss            = loss;
    params.hung            = job->setup.hung;
    params.ctx             = job;
    params.device_memory   = job->setup.all ? NULL : job->setup.memory;
    params.timeout_ms      = job->setup.timeout_ms;
    params.reducer         = job->setup.reducer;
    params.reducer.compute = job->stream;
    return ddp_dp_create(&params, &job->dp);
}

ddp_status_t dp_job_try_open(dp_job_t *job, const dp_setup_t *setup)
{
    ddp_device_params_t cpu = DDP_DEVICE_PARAMS_INIT;

    memset(job, 0, sizeof(*job));
    job->setup       = *setup;
    job->row         = setup->model.height * setup->model.width * setup->model.channels;
    job->pictures    = calloc(DP_JOB_MOST_SAMPLES * job->row, sizeof(float));
    cpu.isa          = ddp_isa_detect();
    cpu.name         = "device 0";
    cpu.memory_bytes = setup->first_memory;
    ck_assert_ptr_nonnull(job->pictures);
    ddp_assert_ok(ddp_device_create(&cpu, &job->device));
    ddp_assert_ok(ddp_stream_create(job->device, "compute", &job->stream));
    ddp_assert_ok(ddp_params_create(&job->params));
    ddp_assert_ok(ddp_model_create(&setup->model, job->params, &job->model));
    if (setup->freeze != NULL) {
        size_t count = 0;

        ddp_assert_ok(ddp_params_freeze(job->params, setup->freeze, &count));
        ck_assert_uint_gt(count, 0);
    }
    return setup->devices == 0 ? open_trainer(job) : open_dp(job);
}

void dp_job_open(dp_job_t *job, const dp_setup_t *setup)
{
    ddp_assert_ok(dp_job_try_open(job, setup));
}

void dp_job_close(dp_job_t *job)
{
    ddp_dp_destroy(&job->dp);
    ddp_trainer_destroy(&job->trainer);
    ddp_comm_destroy(&job->comm);
    ddp_model_destroy(&job->model);
    ddp_params_destroy(&job->params);
    ddp_stream_destroy(&job->stream);
    ddp_device_destroy(&job->device);
    free(job->pictures);
}

ddp_status_t dp_job_try_step(dp_job_t *job, size_t samples, const size_t *sizes, ddp_step_result_t *result_p)
{
    const ddp_step_t step = {.lr = 0.05F, .samples = samples, .part_samples = sizes};

    ck_assert_uint_le(samples, DP_JOB_MOST_SAMPLES);
    dp_job_draw(job, job->step++);
    return job->dp != NULL ? ddp_dp_step(job->dp, &step, result_p)
                           : ddp_trainer_step(job->trainer, &step, result_p);
}

double dp_job_step(dp_job_t *job, size_t samples)
{
    ddp_step_result_t result;

    ddp_assert_ok(dp_job_try_step(job, samples, NULL, &result));
    return result.loss;
}

ddp_reducer_t *dp_job_reducer(dp_job_t *job)
{
    return job->dp != NULL ? ddp_dp_reducer(job->dp) : ddp_trainer_reducer(job->trainer);
}

ddp_status_t dp_job_evaluate(dp_job_t *job, const size_t *samples, size_t count, ddp_loss_stats_t *stats)
{
    return ddp_dp_evaluate(job->dp, fetch, job, samples, count, stats);
}

void dp_job_hash(const dp_setup_t *setup, int steps, size_t last, char hash[DP_JOB_HASH])
{
    dp_job_t job;

    dp_job_open(&job, setup);
    for (int s = 0; s < steps; s++) {
        (void)dp_job_step(&job, s + 1 < steps ? setup->samples : last);
    }
    ddp_assert_ok(ddp_reducer_finish(dp_job_reducer(&job)));
    ddp_assert_ok(ddp_reducer_weights_hash(dp_job_reducer(&job), hash));
    dp_job_close(&job);
}

void dp_job_stderr(void (*run)(void *ctx), void *ctx, char *text, size_t size)
{
    FILE     *file = tmpfile();
    const int kept = dup(STDERR_FILENO);
    size_t    used = 0;

    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(kept, 0);
    ck_assert_int_ge(dup2(fileno(file), STDERR_FILENO), 0);
    run(ctx);
    ck_assert_int_ge(dup2(kept, STDERR_FILENO), 0);
    close(kept);
    rewind(file);
    used       = fread(text, 1, size - 1, file);
    text[used] = '\0';
    fclose(file);
}
