/* Which devices there are: ids, output device, cores, warnings; evaluation on all of them. */
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dp_compat/dp_internal.h"
#include "tests/dp_compat/dp_job.h"

static void assert_refused(const dp_setup_t *setup, ddp_status_t wanted, const char *text)
{
    dp_job_t job;

    ddp_assert_fails(dp_job_try_open(&job, setup), wanted, text);
    ck_assert_ptr_null(job.dp);
    dp_job_close(&job);
}

START_TEST(ids_that_repeat_or_do_not_exist_are_refused)
{
    dp_setup_t setup = DP_SETUP_INIT;

    setup.devices = 3;
    memcpy(setup.ids, (int[]){2, 5, 2}, 3 * sizeof(int));
    assert_refused(&setup, DDP_ERR_INVALID_ARG, "device ids: 2 is there twice");
    setup.ids[2] = 64;
    assert_refused(&setup, DDP_ERR_INVALID_ARG, "there is no device 64; they are 0 .. 63");
    setup.ids[2] = -1;
    assert_refused(&setup, DDP_ERR_INVALID_ARG, "there is no device -1");
    setup.ids[2]        = 6;
    setup.output_device = 3;
    assert_refused(&setup, DDP_ERR_INVALID_ARG, "output device 3 is none of the device ids");
}
END_TEST

START_TEST(what_is_missing_is_named)
{
    dp_setup_t      setup  = DP_SETUP_INIT;
    ddp_dp_params_t params = DDP_DP_PARAMS_INIT;
    ddp_dp_t       *dp     = NULL;
    const int       ids[1] = {0};
    dp_job_t        job;

    ddp_assert_fails(ddp_dp_create(NULL, &dp), DDP_ERR_INVALID_ARG, "DDP_DP_PARAMS_INIT");
    ddp_assert_fails(ddp_dp_create(&params, &dp), DDP_ERR_INVALID_ARG, "finished list of parameters");
    setup.devices = 1;
    dp_job_open(&job, &setup);
    params.params = job.params;
    ddp_assert_fails(ddp_dp_create(&params, &dp), DDP_ERR_INVALID_ARG, "needs a stream");
    params.reducer.compute = job.stream;
    ddp_assert_fails(ddp_dp_create(&params, &dp), DDP_ERR_INVALID_ARG, "fetch, forward and loss");
    dp_job_close(&job);
    setup.devices           = 1;
    setup.loss_at           = DDP_DP_LOSS_INSIDE_MEAN;
    setup.reducer.reduction = DDP_REDUCTION_FAST;
    assert_refused(&setup, DDP_ERR_INVALID_ARG, "reduction exact");
    setup            = (dp_setup_t)DP_SETUP_INIT;
    setup.devices    = 2;
    setup.timeout_ms = 0;
    assert_refused(&setup, DDP_ERR_INVALID_ARG, "timeout_ms is 0");
    (void)ids;
}
END_TEST

START_TEST(an_empty_list_of_ids_is_refused)
{
    dp_setup_t setup = DP_SETUP_INIT;
    dp_job_t   job;

    setup.no_ids  = true;
    setup.devices = 2;
    assert_refused(&setup, DDP_ERR_INVALID_ARG, "the list is empty");
    setup.no_ids = false;
    setup.all    = true; /* one for each core */
    dp_job_open(&job, &setup);
    (void)dp_job_step(&job, 12);
    dp_job_close(&job);
}
END_TEST

START_TEST(a_loss_outside_uses_no_parameters)
{
    dp_setup_t        setup = DP_SETUP_INIT;
    ddp_step_result_t result;
    dp_job_t          job;

    setup.devices               = 2;
    setup.reducer.micro_batches = 2;
    dp_job_open(&job, &setup);
    job.loss_has_weights = true;
    ddp_assert_fails(dp_job_try_step(&job, 12, NULL, &result), DDP_ERR_INVALID_ARG,
                     "the loss uses parameter 'fc");
    dp_job_close(&job);
}
END_TEST

START_TEST(the_threads_of_this_process_stay_where_they_are)
{
    dp_setup_t setup = DP_SETUP_INIT;
    cpu_set_t  before, after;
    dp_job_t   job;

    ck_assert_int_eq(sched_getaffinity(0, sizeof(before), &before), 0);
    setup.devices               = 3;
    setup.reducer.micro_batches = 3;
    dp_job_open(&job, &setup);
    (void)dp_job_step(&job, 12);
    ck_assert_int_eq(sched_getaffinity(0, sizeof(after), &after), 0);
    ck_assert(CPU_EQUAL(&before, &after));
    for (size_t k = 1; k < 3 && CPU_COUNT(&before) > 1; k++) {
        const ddp_replica_t *replica = &job.dp->replica[k];

        ck_assert_int_eq(pthread_getaffinity_np(replica->thread, sizeof(after), &after), 0);
        ck_assert_int_eq(CPU_COUNT(&after), 1);
        ck_assert(CPU_ISSET((size_t)replica->core, &after));
    }
    dp_job_close(&job);
}
END_TEST

static void warn(void *ctx)
{
    const double value[3] = {600, 0, ((const double *)ctx)[0]};

    ddp_dp_warn_unlike((int[]){4, 6, 9}, value, 3, "memory");
}

START_TEST(devices_that_differ_by_more_than_a_quarter_are_named)
{
    char text[512];

    dp_job_stderr(warn, (double[]){449}, text, sizeof(text));
    ck_assert_msg(strstr(text, "device 9 has 75 % of the memory of device 4") != NULL, "%s", text);
    dp_job_stderr(warn, (double[]){450}, text, sizeof(text));
    ck_assert_str_eq(text, "");
    dp_job_stderr(warn, (double[]){900}, text, sizeof(text));
    ck_assert_msg(strstr(text, "device 4 has 67 % of the memory of device 9") != NULL, "%s", text);
}
END_TEST

static void step_with_more_devices(void *ctx)
{
    dp_setup_t setup = DP_SETUP_INIT;
    dp_job_t   job;

    (void)ctx;
    setup.devices               = 3;
    setup.reducer.micro_batches = 2;
    dp_job_open(&job, &setup);
    (void)dp_job_step(&job, 12);
    dp_job_close(&job);
}

START_TEST(devices_that_never_get_anything_are_counted)
{
    char text[1024];

    dp_job_stderr(step_with_more_devices, NULL, text, sizeof(text));
    ck_assert_msg(strstr(text, "3 devices for 2 micro-batches: the last 1 never get anything") != NULL, "%s",
                  text);
}
END_TEST

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs(text, file), 0);
    fclose(file);
}

/* Cores 2 and 5 with 3 and 2 GHz; devices 0, 1, 2, 3 are on 2, 5, 2, 5. */
START_TEST(speed_is_the_frequency_of_the_core_shared_by_its_devices)
{
    char      root[] = "dp_cores_XXXXXX";
    char      path[256];
    const int cores[2] = {2, 5};
    const int ids[4]   = {0, 1, 2, 3};

    ck_assert_ptr_nonnull(mkdtemp(root));
    ck_assert(ddp_dp_speed(root, ids, 4, 0, cores, 2) == 0.5); /* unknown: all alike */
    for (int c = 0; c < 2; c++) {
        const char *const parts[] = {"/sys", "/sys/devices", "/sys/devices/system",
                                     "/sys/devices/system/cpu"};

        for (size_t i = 0; i < 4; i++) {
            snprintf(path, sizeof(path), "%s%s", root, parts[i]);
            (void)mkdir(path, 0700);
        }
        snprintf(path, sizeof(path), "%s/sys/devices/system/cpu/cpu%d", root, cores[c]);
        ck_assert_int_eq(mkdir(path, 0700), 0);
        snprintf(path, sizeof(path), "%s/sys/devices/system/cpu/cpu%d/cpufreq", root, cores[c]);
        ck_assert_int_eq(mkdir(path, 0700), 0);
        snprintf(path, sizeof(path), "%s/sys/devices/system/cpu/cpu%d/cpufreq/cpuinfo_max_freq", root,
                 cores[c]);
        write_file(path, c == 0 ? "3000000\n" : "2000000\n");
    }
    ck_assert(ddp_dp_speed(root, ids, 4, 0, cores, 2) == 1.5e6);
    ck_assert(ddp_dp_speed(root, ids, 4, 3, cores, 2) == 1e6);
    ck_assert(ddp_dp_speed(root, ids, 3, 0, cores, 2) == 1.5e6);
    ck_assert(ddp_dp_speed(root, ids, 3, 1, cores, 2) == 2e6);
    snprintf(path, sizeof(path), "rm -rf %s", root);
    ck_assert_int_eq(system(path), 0);
}
END_TEST

/* Loop: devices. 7 chunks of unequal size. */
START_TEST(evaluation_is_the_same_on_any_number_of_devices)
{
    const size_t     samples[7] = {5, 4, 4, 9, 1, 3, 2};
    dp_setup_t       setup      = DP_SETUP_INIT;
    ddp_loss_stats_t one[7], many[7];
    dp_job_t         a, b;

    setup.reducer.micro_batches = 4;
    setup.loss_at               = _i % 2 == 0 ? DDP_DP_LOSS_OUTSIDE : DDP_DP_LOSS_INSIDE;
    setup.model.dropout         = 0.4F; /* off in evaluation */
    setup.devices               = 1;
    dp_job_open(&a, &setup);
    setup.devices = (size_t)_i;
    dp_job_open(&b, &setup);
    for (int s = 0; s < 2; s++) {
        (void)dp_job_step(&a, 12);
        (void)dp_job_step(&b, 12);
        ddp_assert_ok(ddp_reducer_finish(dp_job_reducer(&a)));
        ddp_assert_ok(ddp_reducer_finish(dp_job_reducer(&b)));
        a.fetches = 0;
        ddp_assert_ok(dp_job_evaluate(&a, samples, 7, one));
        ddp_assert_ok(dp_job_evaluate(&b, samples, 7, many));
        ck_assert_uint_eq(a.fetches, 7);
        ck_assert_int_eq(memcmp(one, many, sizeof(one)), 0);
        for (size_t i = 0; i < 7; i++) {
            ck_assert(one[i].counted == (float)samples[i]);
        }
        ddp_assert_ok(dp_job_evaluate(&b, samples, 0, many));
    }
    dp_job_close(&a);
    dp_job_close(&b);
}
END_TEST

/* Steps of PyTorch's closed form are in test_semantics.c; here a chunk against the plain sum of its parts. */
START_TEST(an_evaluated_chunk_is_the_sum_of_its_samples)
{
    const size_t     whole[1] = {6};
    const size_t     each[6]  = {1, 1, 1, 1, 1, 1};
    dp_setup_t       setup    = DP_SETUP_INIT;
    ddp_loss_stats_t sum, part[6];
    double           loss    = 0;
    double           correct = 0;
    dp_job_t         job;

    setup.devices               = 3;
    setup.reducer.micro_batches = 3;
    dp_job_open(&job, &setup);
    dp_job_draw(&job, 5);
    ddp_assert_ok(dp_job_evaluate(&job, whole, 1, &sum));
    ddp_assert_ok(dp_job_evaluate(&job, each, 6, part));
    for (size_t i = 0; i < 6; i++) {
        loss += (double)part[i].loss;
        correct += (double)part[i].correct;
    }
    ck_assert_double_eq_tol(loss, (double)sum.loss, 1e-5);
    ck_assert(correct == (double)sum.correct);
    ddp_assert_fails(dp_job_evaluate(&job, (size_t[]){3, 0}, 2, part), DDP_ERR_INVALID_ARG,
                     "chunk 1 has no samples");
    dp_job_close(&job);
}
END_TEST

START_TEST(steps_go_on_from_a_number)
{
    dp_setup_t        setup = DP_SETUP_INIT;
    ddp_step_result_t result;
    dp_job_t          job;
    uint64_t          steps[8] = {7, 7, 7, 7, 7, 7, 7, 7};

    setup.devices               = 2;
    setup.reducer.micro_batches = 2;
    dp_job_open(&job, &setup);
    ddp_assert_ok(ddp_reducer_restore(dp_job_reducer(&job), 7, steps));
    ddp_dp_set_step(job.dp, 7);
    job.wanted_step = 7;
    ddp_assert_ok(dp_job_try_step(&job, 12, NULL, &result));
    ck_assert_uint_eq(ddp_reducer_tensor_steps(dp_job_reducer(&job), 0), 8);
    dp_job_close(&job);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("dp devices");
    TCase *tcase = tcase_create("devices");

    tcase_add_test(tcase,
                   the_threads_of_this_process_stay_where_they_are); /* before anybody could move them */
    tcase_add_test(tcase, ids_that_repeat_or_do_not_exist_are_refused);
    tcase_add_test(tcase, what_is_missing_is_named);
    tcase_add_test(tcase, an_empty_list_of_ids_is_refused);
    tcase_add_test(tcase, a_loss_outside_uses_no_parameters);
    tcase_add_test(tcase, devices_that_differ_by_more_than_a_quarter_are_named);
    tcase_add_test(tcase, devices_that_never_get_anything_are_counted);
    tcase_add_test(tcase, speed_is_the_frequency_of_the_core_shared_by_its_devices);
    tcase_add_loop_test(tcase, evaluation_is_the_same_on_any_number_of_devices, 1, 5);
    tcase_add_test(tcase, an_evaluated_chunk_is_the_sum_of_its_samples);
    tcase_add_test(tcase, steps_go_on_from_a_number);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
