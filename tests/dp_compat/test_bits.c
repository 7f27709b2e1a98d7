/* DataParallel on any number of devices trains what one rank alone trains, bit for bit. */
#include <string.h>

#include "nn/params.h"
#include "tests/dp_compat/dp_job.h"

#define STEPS 4

/* A trainer's hash, and that of K devices. */
static void assert_same_bits(dp_setup_t setup, size_t devices, size_t last)
{
    char alone[DP_JOB_HASH], together[DP_JOB_HASH];

    setup.devices = 0;
    dp_job_hash(&setup, STEPS, last, alone);
    setup.devices = devices;
    dp_job_hash(&setup, STEPS, last, together);
    ck_assert_msg(strcmp(alone, together) == 0, "%zu devices, %zu micro-batches: %s instead of %s", devices,
                  setup.reducer.micro_batches, together, alone);
}

static dp_setup_t mlp(void)
{
    return (dp_setup_t)DP_SETUP_INIT;
}

static dp_setup_t cnn(void)
{
    dp_setup_t setup = DP_SETUP_INIT;

    setup.model = (ddp_model_config_t){
        .kind = DDP_MODEL_CNN, .height = 9, .width = 8, .channels = 1, .classes = 5, .dropout = 0.3F};
    return setup;
}

/* Loop: loss outside, inside. */
START_TEST(as_many_devices_as_micro_batches_equal_one_rank)
{
    dp_setup_t setup = mlp();

    setup.loss_at = _i == 0 ? DDP_DP_LOSS_OUTSIDE : DDP_DP_LOSS_INSIDE;
    for (size_t k = 1; k <= 4; k++) {
        setup.reducer.micro_batches = k;
        assert_same_bits(setup, k, 12);
    }
}
END_TEST

START_TEST(four_micro_batches_are_the_same_on_1_2_3_and_4_devices)
{
    dp_setup_t setup = mlp();

    setup.loss_at               = _i == 0 ? DDP_DP_LOSS_OUTSIDE : DDP_DP_LOSS_INSIDE;
    setup.model.dropout         = 0.25F;
    setup.reducer.micro_batches = 4;
    for (size_t k = 1; k <= 4; k++) {
        assert_same_bits(setup, k, 12);
    }
}
END_TEST

START_TEST(so_does_a_cnn_with_dropout)
{
    dp_setup_t setup = cnn();

    for (size_t k = 2; k <= 4; k++) {
        setup.reducer.micro_batches = 4;
        assert_same_bits(setup, k, 12);
    }
}
END_TEST

START_TEST(so_do_clipping_and_skipping)
{
    dp_setup_t setup = mlp();

    setup.reducer.micro_batches = 4;
    setup.reducer.clip_norm     = 0.5F;
    assert_same_bits(setup, 2, 12);
    assert_same_bits(setup, 3, 12);
    setup.reducer.clip_norm = 0;
    setup.reducer.nonfinite = DDP_NONFINITE_SKIP;
    assert_same_bits(setup, 3, 12);
}
END_TEST

START_TEST(sixty_samples_with_ignored_labels_on_three_devices)
{
    dp_setup_t setup = mlp();

    setup.samples               = 60;
    setup.ignore                = true;
    setup.reducer.micro_batches = 3;
    assert_same_bits(setup, 3, 60);
    assert_same_bits(setup, 3, 44); /* 15, 15 and 14 */
}
END_TEST

/* The last batch: 3 and 3 and 3 and 2; then fewer samples than devices. */
START_TEST(short_last_batches)
{
    dp_setup_t setup = mlp();

    setup.reducer.micro_batches = 4;
    assert_same_bits(setup, 4, 11);
    assert_same_bits(setup, 4, 3);
    assert_same_bits(setup, 4, 1);
    assert_same_bits(setup, 3, 2);
}
END_TEST

START_TEST(several_buckets_and_the_fast_reduction)
{
    dp_setup_t setup = mlp();

    setup.reducer.micro_batches    = 5;
    setup.reducer.bucket_cap_bytes = 2048;
    assert_same_bits(setup, 3, 12);
    setup.reducer.reduction = DDP_REDUCTION_FAST;
    assert_same_bits(setup, 3, 12);
}
END_TEST

START_TEST(another_output_device_and_other_ids)
{
    dp_setup_t setup = mlp();

    setup.reducer.micro_batches = 3;
    setup.output_device         = 2;
    assert_same_bits(setup, 3, 12);
    setup.ids[0]        = 7;
    setup.ids[1]        = 3;
    setup.ids[2]        = 40;
    setup.output_device = 3;
    assert_same_bits(setup, 3, 12);
}
END_TEST

START_TEST(frozen_parameters_stay)
{
    dp_setup_t setup = mlp();
    char       hash[2][DP_JOB_HASH];

    setup.reducer.micro_batches = 2;
    for (size_t k = 0; k < 2; k++) {
        dp_job_t job;
        float    before;

        setup.devices = 2 * k;
        setup.freeze  = "fc1.*";
        dp_job_open(&job, &setup);
        before = ddp_params_value(job.params, 0)[0];
        (void)dp_job_step(&job, 12);
        (void)dp_job_step(&job, 12);
        ddp_assert_ok(ddp_reducer_finish(dp_job_reducer(&job)));
        ck_assert(ddp_params_value(job.params, 0)[0] == before);
        ddp_assert_ok(ddp_reducer_weights_hash(dp_job_reducer(&job), hash[k]));
        dp_job_close(&job);
    }
    ck_assert_str_eq(hash[0], hash[1]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("dp bits");
    TCase *tcase = tcase_create("against a trainer");

    tcase_add_loop_test(tcase, as_many_devices_as_micro_batches_equal_one_rank, 0, 2);
    tcase_add_loop_test(tcase, four_micro_batches_are_the_same_on_1_2_3_and_4_devices, 0, 2);
    tcase_add_test(tcase, so_does_a_cnn_with_dropout);
    tcase_add_test(tcase, so_do_clipping_and_skipping);
    tcase_add_test(tcase, sixty_samples_with_ignored_labels_on_three_devices);
    tcase_add_test(tcase, short_last_batches);
    tcase_add_test(tcase, several_buckets_and_the_fast_reduction);
    tcase_add_test(tcase, another_output_device_and_other_ids);
    tcase_add_test(tcase, frozen_parameters_stay);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
