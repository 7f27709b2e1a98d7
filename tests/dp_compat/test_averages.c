/* Batch normalisation: the parameters are those of one rank, the running averages those of device 0. */
#include <math.h>
#include <string.h>

#include "nn/params.h"
#include "tests/dp_compat/dp_job.h"

static dp_setup_t resnet(size_t micro_batches, size_t devices)
{
    dp_setup_t setup = DP_SETUP_INIT;

    setup.model = (ddp_model_config_t){
        .kind = DDP_MODEL_RESNET, .height = 4, .width = 4, .channels = 3, .classes = 4, .depth = 20};
    setup.samples               = 8;
    setup.devices               = devices;
    setup.reducer.micro_batches = micro_batches;
    return setup;
}

static const ddp_tensor_desc_t *desc_of(const dp_job_t *job, size_t i)
{
    return &ddp_params_descs(job->params)[i];
}

/* Do parameters, or running averages, have the same bits? */
static bool is_same(const dp_job_t *a, const dp_job_t *b, ddp_tensor_role_t role)
{
    for (size_t i = 0; i < ddp_params_count(a->params); i++) {
        const ddp_tensor_desc_t *desc = desc_of(a, i);

        if (desc->role == role && memcmp(ddp_params_value(a->params, i), ddp_params_value(b->params, i),
                                         desc->count * sizeof(float)) != 0) {
            return false;
        }
    }
    return true;
}

static void finish(dp_job_t *job)
{
    ddp_assert_ok(ddp_reducer_finish(dp_job_reducer(job)));
}

START_TEST(one_device_is_a_trainer_in_all_bits)
{
    dp_setup_t setup = resnet(3, 0);
    char       alone[DP_JOB_HASH], one[DP_JOB_HASH];

    dp_job_hash(&setup, 2, 7, alone);
    setup.devices = 1;
    dp_job_hash(&setup, 2, 7, one);
    ck_assert_str_eq(alone, one);
}
END_TEST

/* Loop: devices. */
START_TEST(parameters_are_those_of_one_rank)
{
    const dp_setup_t alone = resnet(4, 0);
    const dp_setup_t many  = resnet(4, (size_t)_i);
    dp_job_t         a, b;

    dp_job_open(&a, &alone);
    dp_job_open(&b, &many);
    for (int s = 0; s < 2; s++) {
        ck_assert(dp_job_step(&a, 8) == dp_job_step(&b, 8));
    }
    finish(&a);
    finish(&b);
    ck_assert(is_same(&a, &b, DDP_TENSOR_PARAMETER));
    ck_assert(!is_same(&a, &b, DDP_TENSOR_AVERAGE));
    dp_job_close(&a);
    dp_job_close(&b);
}
END_TEST

/* A trainer on the first samples alone sees what device 0 sees; its parameters are put where the other's are
 * before each step. */
START_TEST(running_averages_of_one_round_are_those_of_the_first_micro_batch)
{
    const dp_setup_t two   = resnet(2, 2);
    const dp_setup_t first = resnet(1, 0);
    dp_job_t         a, b;

    dp_job_open(&a, &two);
    dp_job_open(&b, &first);
    for (int s = 0; s < 3; s++) {
        memcpy(ddp_reducer_values(dp_job_reducer(&b)), ddp_reducer_values(dp_job_reducer(&a)),
               ddp_params_total(a.params) * sizeof(float));
        ddp_assert_ok(ddp_reducer_publish(dp_job_reducer(&b)));
        (void)dp_job_step(&a, 8);
        (void)dp_job_step(&b, 4);
        finish(&a);
        finish(&b);
        ck_assert(is_same(&a, &b, DDP_TENSOR_AVERAGE));
        ck_assert(!is_same(&a, &b, DDP_TENSOR_PARAMETER));
    }
    dp_job_close(&a);
    dp_job_close(&b);
}
END_TEST

/* Micro-batches 0 and 2 are device 0's: what two trainers get of these samples alone. All begin with equal
 * averages r and momentum m: ((1 - m) r + m s0 + (1 - m) r + m s2) / 2. */
START_TEST(of_several_rounds_they_are_the_mean_of_device_0)
{
    const dp_setup_t two  = resnet(4, 2);
    const dp_setup_t part = resnet(1, 0);
    dp_job_t         a, b[2];

    dp_job_open(&a, &two);
    (void)dp_job_step(&a, 8);
    finish(&a);
    for (size_t round = 0; round < 2; round++) {
        dp_job_open(&b[round], &part);
        dp_job_draw(&b[round], 0);
        b[round].shift = 4 * round;
        (void)dp_job_step(&b[round], 2);
        finish(&b[round]);
    }
    for (size_t i = 0; i < ddp_params_count(a.params); i++) {
        for (size_t j = 0; j < desc_of(&a, i)->count && desc_of(&a, i)->role == DDP_TENSOR_AVERAGE; j++) {
            const double mean =
                ((double)ddp_params_value(b[0].params, i)[j] + (double)ddp_params_value(b[1].params, i)[j]) /
                2;

            ck_assert_double_eq_tol((double)ddp_params_value(a.params, i)[j], mean, 1e-6 * (1 + fabs(mean)));
        }
    }
    dp_job_close(&a);
    dp_job_close(&b[0]);
    dp_job_close(&b[1]);
}
END_TEST

/* Loop: what is not finite is device 0's, or the other one's: then its own statistics are fine. */
START_TEST(a_skipped_step_leaves_them)
{
    dp_setup_t        setup = resnet(2, 2);
    dp_job_t          job;
    ddp_step_result_t result;
    char              before[DP_JOB_HASH], after[DP_JOB_HASH];

    setup.reducer.nonfinite = DDP_NONFINITE_SKIP;
    dp_job_open(&job, &setup);
    (void)dp_job_step(&job, 8);
    finish(&job);
    ddp_assert_ok(ddp_reducer_weights_hash(dp_job_reducer(&job), before));
    job.spoiled = _i == 0 ? 2 : 7;
    ddp_assert_ok(dp_job_try_step(&job, 8, NULL, &result));
    finish(&job);
    ddp_assert_ok(ddp_reducer_weights_hash(dp_job_reducer(&job), after));
    ck_assert(result.skipped);
    ck_assert_str_eq(before, after);
    dp_job_close(&job);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("dp averages");
    TCase *tcase = tcase_create("resnet 20");

    tcase_add_test(tcase, one_device_is_a_trainer_in_all_bits);
    tcase_add_loop_test(tcase, parameters_are_those_of_one_rank, 2, 5);
    tcase_add_test(tcase, running_averages_of_one_round_are_those_of_the_first_micro_batch);
    tcase_add_test(tcase, of_several_rounds_they_are_the_mean_of_device_0);
    tcase_add_loop_test(tcase, a_skipped_step_leaves_them, 0, 2);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
