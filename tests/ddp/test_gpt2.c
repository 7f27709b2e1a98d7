/* GPT-2 with dropout and tied embedding: the ranks together train what each of them trains alone. */
#include <stdlib.h>
#include <string.h>

#include <mpi.h>

#include "ddp/comm.h"
#include "ddp/trainer.h"
#include "nn/model.h"
#include "tests/support/ddp_test.h"

#define T     16
#define VOCAB 61
#define BATCH 9
#define PARTS 8 /* micro-batches of 2 and 1 sequences */
#define STEPS 3
#define HASH  33

typedef struct job {
    ddp_comm_t   *comm;
    ddp_device_t *device;
    ddp_stream_t *stream;
    ddp_params_t *params;
    ddp_model_t  *model;
    int32_t       tokens[STEPS * BATCH][T], targets[STEPS * BATCH][T];
} job_t;

static ddp_status_t forward(void *ctx, ddp_tape_t *tape, const ddp_micro_t *micro, ddp_loss_stats_t **stats_p)
{
    job_t       *job   = ctx;
    const size_t first = (size_t)micro->step * BATCH + micro->first_row;

    return ddp_model_forward_tokens(job->model, tape, job->tokens[first], job->targets[first], micro->n, T,
                                    stats_p);
}

static void job_open(job_t *job, MPI_Comm parent)
{
    const ddp_model_config_t config = {.kind     = DDP_MODEL_GPT2,
                                       .layers   = 2,
                                       .heads    = 2,
                                       .channels = 32,
                                       .context  = T,
                                       .vocab    = VOCAB,
                                       .dropout  = 0.1F};
    ddp_comm_params_t        ranks  = DDP_COMM_PARAMS_INIT;
    ddp_device_params_t      cpu    = DDP_DEVICE_PARAMS_INIT;

    memset(job, 0, sizeof(*job));
    ranks.parent = parent;
    cpu.isa      = ddp_isa_detect();
    ddp_assert_all(ddp_comm_create(&ranks, &job->comm) == DDP_OK);
    ddp_assert_ok(ddp_device_create(&cpu, &job->device));
    ddp_comm_attach(job->comm, job->device);
    ddp_assert_ok(ddp_stream_create(job->device, "compute", &job->stream));
    ddp_assert_ok(ddp_params_create(&job->params));
    ddp_assert_ok(ddp_model_create(&config, job->params, &job->model));
    for (size_t i = 0; i < (size_t)STEPS * BATCH * T; i++) {
        const uint32_t counter[4] = {(uint32_t)i, 0, 0, 5};
        uint32_t       random[4];

        ddp_philox(1, counter, random);
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
    ddp_comm_destroy(&job->comm);
}

static bool with_frozen;

static void freeze(job_t *job)
{
    size_t count = 0;

    if (with_frozen) {
        ddp_params_decay_matrices(job->params);
        ddp_assert_all(ddp_params_freeze(job->params, "transformer.h.0.*", &count) == DDP_OK && count == 12);
        ddp_assert_all(ddp_params_freeze(job->params, "transformer.w*", &count) == DDP_OK && count == 2);
    }
}

/* Frozen parameters are what they were drawn as. */
static void check_frozen(const job_t *job, ddp_trainer_t *trainer, const float *start)
{
    const float *now  = ddp_reducer_values(ddp_trainer_reducer(trainer));
    bool         same = true;

    for (size_t i = 0; i < ddp_params_count(job->params); i++) {
        const ddp_tensor_desc_t *desc = &ddp_params_descs(job->params)[i];

        same = same && (memcmp(now + desc->offset, start + desc->offset, desc->count * sizeof(float)) == 0) ==
                           desc->frozen;
    }
    ddp_assert_all(same);
}

static void train(MPI_Comm parent, ddp_reduction_t reduction, size_t bucket_cap, char hash[HASH],
                  double losses[STEPS])
{
    static job_t         job;
    ddp_trainer_params_t setup   = DDP_TRAINER_PARAMS_INIT;
    ddp_trainer_t       *trainer = NULL;
    float               *start   = NULL;

    job_open(&job, parent);
    freeze(&job);
    setup.params                   = job.params;
    setup.seed                     = 3;
    setup.forward                  = forward;
    setup.ctx                      = &job;
    setup.reducer.comm             = job.comm;
    setup.reducer.compute          = job.stream;
    setup.reducer.micro_batches    = PARTS;
    setup.reducer.reduction        = reduction;
    setup.reducer.bucket_cap_bytes = bucket_cap;
    ddp_assert_all(ddp_trainer_create(&setup, &trainer) == DDP_OK);
    start = malloc(ddp_params_total(job.params) * sizeof(*start));
    memcpy(start, ddp_reducer_values(ddp_trainer_reducer(trainer)),
           ddp_params_total(job.params) * sizeof(*start));
    ddp_assert_all(true); /* before anybody writes */
    for (size_t s = 0; s < STEPS; s++) {
        ddp_step_result_t result = {.loss = 0};

        ddp_assert_all(ddp_trainer_step(trainer, &(ddp_step_t){.lr = 3e-3F, .samples = BATCH}, &result) ==
                       DDP_OK);
        losses[s] = result.loss;
    }
    ddp_assert_all(ddp_reducer_finish(ddp_trainer_reducer(trainer)) == DDP_OK);
    ddp_assert_all(ddp_reducer_weights_hash(ddp_trainer_reducer(trainer), hash) == DDP_OK);
    check_frozen(&job, trainer, start);
    free(start);
    ddp_trainer_destroy(&trainer);
    job_close(&job);
}

START_TEST(ranks_together_train_the_bits_that_one_trains_alone)
{
    char   alone[HASH];
    char   together[HASH];
    double alone_loss[STEPS];
    double loss[STEPS];

    train(MPI_COMM_SELF, DDP_REDUCTION_EXACT, (size_t)25 << 20, alone, alone_loss);
    train(MPI_COMM_WORLD, DDP_REDUCTION_EXACT, (size_t)32 << 10, together, loss);
    ddp_assert_all(memcmp(loss, alone_loss, sizeof(loss)) == 0);
    ddp_assert_all(strcmp(alone, together) == 0);
    ddp_assert_all(loss[0] > 3.9 && loss[0] < 4.3); /* log 61 = 4.11 */
}
END_TEST

/* `fast` adds micro-batches up in one arena: the head must add to it, not replace. */
START_TEST(fast_reduction_gives_nearly_the_same)
{
    char   hash[HASH];
    double exact[STEPS];
    double fast[STEPS];

    train(MPI_COMM_SELF, DDP_REDUCTION_EXACT, (size_t)25 << 20, hash, exact);
    train(MPI_COMM_WORLD, DDP_REDUCTION_FAST, (size_t)25 << 20, hash, fast);
    for (size_t s = 0; s < STEPS; s++) {
        ddp_assert_all(fast[s] > exact[s] - 1e-4 && fast[s] < exact[s] + 1e-4);
    }
}
END_TEST

/* Embeddings, of which one is the head too, and the first block: below the second nothing is differentiated.
 */
START_TEST(frozen_parameters_stay_and_the_others_have_the_bits_of_one_rank)
{
    char   alone[HASH];
    char   together[HASH];
    char   all[HASH];
    double alone_loss[STEPS];
    double loss[STEPS];

    train(MPI_COMM_SELF, DDP_REDUCTION_EXACT, (size_t)25 << 20, all, loss);
    with_frozen = true;
    train(MPI_COMM_SELF, DDP_REDUCTION_EXACT, (size_t)25 << 20, alone, alone_loss);
    train(MPI_COMM_WORLD, DDP_REDUCTION_EXACT, (size_t)8 << 10, together, loss);
    with_frozen = false;
    ddp_assert_all(memcmp(loss, alone_loss, sizeof(loss)) == 0);
    ddp_assert_all(strcmp(alone, together) == 0 && strcmp(alone, all) != 0);
}
END_TEST

START_TEST(a_trainer_without_its_parts_is_refused)
{
    static job_t               job;
    const ddp_trainer_params_t init    = DDP_TRAINER_PARAMS_INIT;
    ddp_params_t              *open    = NULL;
    ddp_trainer_t             *trainer = NULL;

    job_open(&job, MPI_COMM_WORLD);
    ddp_assert_all(ddp_params_create(&open) == DDP_OK);
    for (int k = 0; k < 4; k++) {
        static const char *const texts[] = {"a finished list of parameters", "a finished list of parameters",
                                            "a stream", "a forward function"};
        ddp_trainer_params_t     setup   = init;

        setup.params          = k == 0 ? NULL : k == 1 ? open : job.params;
        setup.forward         = k == 3 ? NULL : forward;
        setup.reducer.comm    = job.comm;
        setup.reducer.compute = k == 2 ? NULL : job.stream;
        ddp_assert_all(ddp_trainer_create(&setup, &trainer) == DDP_ERR_INVALID_ARG);
        ddp_assert_all(trainer == NULL && strstr(ddp_error_line(), texts[k]) != NULL);
    }
    ddp_params_destroy(&open);
    job_close(&job);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("gpt2");
    TCase *tcase = tcase_create("all");

    tcase_add_test(tcase, ranks_together_train_the_bits_that_one_trains_alone);
    tcase_add_test(tcase, fast_reduction_gives_nearly_the_same);
    tcase_add_test(tcase, frozen_parameters_stay_and_the_others_have_the_bits_of_one_rank);
    tcase_add_test(tcase, a_trainer_without_its_parts_is_refused);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return ddp_test_run_mpi(&argc, &argv, make_suite);
}
