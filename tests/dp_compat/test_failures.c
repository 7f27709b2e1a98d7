/* Devices that fail, hang or have too little memory: a line that names them, and never a hang. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "nn/params.h"
#include "tests/dp_compat/dp_job.h"

static dp_setup_t four(void)
{
    dp_setup_t setup = DP_SETUP_INIT;

    setup.devices               = 4;
    setup.reducer.micro_batches = 4;
    return setup;
}

START_TEST(all_devices_that_fail_are_named_in_one_line)
{
    static const struct {
        uint64_t    fails;
        const char *line;
    } cases[4] = {
        {2, "device 1: micro-batch 1 is planted to fail"},
        {10, "device 1: micro-batch 1 is planted to fail; device 3: micro-batch 3 is planted to fail"},
        {5, "device 0: micro-batch 0 is planted to fail; device 2: micro-batch 2 is planted to fail"},
        {15, "device 3: micro-batch 3 is planted to fail"},
    };
    dp_setup_t        setup = four();
    ddp_step_result_t result;
    dp_job_t          job;

    setup.loss_at = _i % 2 == 0 ? DDP_DP_LOSS_OUTSIDE : DDP_DP_LOSS_INSIDE;
    dp_job_open(&job, &setup);
    (void)dp_job_step(&job, 12);
    job.fails = cases[_i].fails;
    ddp_assert_fails(dp_job_try_step(&job, 12, NULL, &result), DDP_ERR_IO, cases[_i].line);
    job.fails = 0;
    ddp_assert_fails(dp_job_try_step(&job, 12, NULL, &result), DDP_ERR_STATE, "an earlier step has failed");
    dp_job_close(&job);
}
END_TEST

START_TEST(of_many_that_fail_some_are_named_and_the_rest_counted)
{
    dp_setup_t        setup = DP_SETUP_INIT;
    ddp_step_result_t result;
    dp_job_t          job;

    setup.devices               = 8;
    setup.reducer.micro_batches = 8;
    dp_job_open(&job, &setup);
    job.fails = 255;
    ddp_assert_fails(dp_job_try_step(&job, 12, NULL, &result), DDP_ERR_IO, "device 5: ");
    ck_assert_ptr_nonnull(strstr(ddp_error_line(), "; and 2 more"));
    dp_job_close(&job);
}
END_TEST

START_TEST(outputs_of_different_shape_are_refused)
{
    dp_setup_t        setup = four();
    ddp_step_result_t result;
    dp_job_t          job;

    dp_job_open(&job, &setup);
    job.reshapes = 4;
    ddp_assert_fails(
        dp_job_try_step(&job, 12, NULL, &result), DDP_ERR_INVALID_ARG,
        "device 2 gives an output [3, 1, 5], device 0 [3, 5]: only the first dimension may differ");
    dp_job_close(&job);
}
END_TEST

START_TEST(planted_faults_are_those_of_a_device)
{
    dp_setup_t        setup = four();
    ddp_step_result_t result;
    dp_job_t          job;

    dp_job_open(&job, &setup);
    ck_assert_int_eq(setenv("DDP_FAULT", "dp_forward:2", 1), 0);
    ddp_assert_fails(dp_job_try_step(&job, 12, NULL, &result), DDP_ERR_SYSTEM,
                     "device 2: dp_forward: planted fault");
    ck_assert_int_eq(unsetenv("DDP_FAULT"), 0);
    dp_job_close(&job);
}
END_TEST

START_TEST(a_thread_that_cannot_start_is_named)
{
    dp_setup_t setup = four();
    dp_job_t   job;

    ck_assert_int_eq(setenv("DDP_FAULT", "dp_thread:3", 1), 0);
    ddp_assert_fails(dp_job_try_open(&job, &setup), DDP_ERR_SYSTEM,
                     "device 3 cannot start: dp_thread: planted");
    ck_assert_int_eq(unsetenv("DDP_FAULT"), 0);
    ck_assert_ptr_null(job.dp);
    dp_job_close(&job);
}
END_TEST

/* Static, and never let go: what hangs still looks at it when the program ends. */
static dp_job_t hanging[2];

/* Loop: device 2 alone; while device 1 fails. */
START_TEST(a_device_that_hangs_ends_the_step)
{
    dp_setup_t        setup = four();
    dp_job_t         *job   = &hanging[_i];
    const int64_t     start = ddp_clock_ns();
    ddp_step_result_t result;

    setup.timeout_ms = 1500;
    dp_job_open(job, &setup);
    (void)dp_job_step(job, 12);
    job->fails = _i == 0 ? 0 : 2;
    job->hangs = 4;
    ddp_assert_fails(dp_job_try_step(job, 12, NULL, &result), DDP_ERR_TIMEOUT,
                     "device 2 made no progress for 1.5 s in forward of step 2");
    if (_i == 1) {
        ck_assert_ptr_nonnull(
            strstr(ddp_error_line(), "device 1: micro-batch 1 is planted to fail; device 2"));
    }
    dp_job_close(job);
    ck_assert_int_lt(ddp_clock_ns() - start, 60000 * DDP_NS_PER_MS);
}
END_TEST

/* Static, as the hanging ones; and known here, so that nobody takes for lost what it leaves behind. */
static dp_job_t  late;
static ddp_dp_t *left_behind;

/* The output device, which is not device 0, hangs in the first loss. When it goes on it reads shapes and
 * outputs of all the others. */
START_TEST(a_device_that_was_left_behind_may_come_back)
{
    dp_setup_t        setup = four();
    const int64_t     start = ddp_clock_ns();
    ddp_step_result_t result;

    setup.output_device = 1;
    setup.timeout_ms    = 1500;
    dp_job_open(&late, &setup);
    late.loss_hangs = 1;
    left_behind     = late.dp;
    ddp_assert_fails(dp_job_try_step(&late, 12, NULL, &result), DDP_ERR_TIMEOUT,
                     "device 1 made no progress for 1.5 s in loss of step 1");
    ck_assert_int_eq(atomic_load(&late.losses), 1);
    dp_job_close(&late);
    atomic_store(&late.is_over, 1);
    while (atomic_load(&late.losses) < 4 && ddp_clock_ns() - start < 60000 * DDP_NS_PER_MS) {
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    ck_assert_int_eq(atomic_load(&late.losses), 4);
    ck_assert_ptr_nonnull(left_behind);
}
END_TEST

static char hung_line[DDP_ERROR_LINE_SIZE];

static void on_hung(void *ctx, const char *line)
{
    dp_job_t *job = ctx;

    snprintf(hung_line, sizeof(hung_line), "%s", line);
    atomic_store(&job->is_over, 1); /* and so it does not hang for ever */
}

/* Loop: one device, and three. */
START_TEST(that_device_0_hangs_is_told_from_another_thread)
{
    dp_setup_t setup = four();
    dp_job_t   job;

    setup.devices    = _i == 0 ? 1 : 3;
    setup.timeout_ms = 1500;
    setup.hung       = on_hung;
    hung_line[0]     = '\0';
    dp_job_open(&job, &setup);
    (void)dp_job_step(&job, 12);
    job.hangs = 1;
    (void)dp_job_step(&job, 12);
    ck_assert_str_eq(hung_line, "device 0 made no progress for 1.5 s in forward of step 2");
    dp_job_close(&job);
}
END_TEST

static void hang_in_a_process_of_its_own(void *ctx)
{
    const pid_t pid = fork();

    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        dp_setup_t setup = four();
        dp_job_t   job;

        setup.devices    = 1;
        setup.timeout_ms = 1500;
        dp_job_open(&job, &setup);
        job.hangs = 1;
        (void)dp_job_step(&job, 12);
        _Exit(0);
    }
    ck_assert_int_eq(waitpid(pid, ctx, 0), pid);
}

START_TEST(else_that_ends_the_process_with_a_line)
{
    char text[1024];
    int  status = 0;

    dp_job_stderr(hang_in_a_process_of_its_own, &status, text, sizeof(text));
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    ck_assert_msg(strstr(text, "device 0 made no progress for 1.5 s in forward of step 1\n") != NULL, "%s",
                  text);
}
END_TEST

/* Forward takes twice the limit, and does something all the while. */
START_TEST(slow_is_not_hanging)
{
    dp_setup_t setup = four();
    dp_job_t   job;

    setup.devices    = _i == 0 ? 1 : 2;
    setup.timeout_ms = 1500;
    setup.hung       = on_hung;
    hung_line[0]     = '\0';
    dp_job_open(&job, &setup);
    job.is_slow = true;
    (void)dp_job_step(&job, setup.devices);
    ck_assert_str_eq(hung_line, "");
    dp_job_close(&job);
}
END_TEST

static size_t parameter_bytes(void)
{
    dp_setup_t setup = four();
    dp_job_t   job;
    size_t     bytes;

    dp_job_open(&job, &setup);
    bytes = ddp_params_total(job.params) * sizeof(float);
    dp_job_close(&job);
    return bytes;
}

/* What does not fit, in the order in which it is taken. */
START_TEST(caps_fail_as_a_device_would)
{
    const size_t      bytes = parameter_bytes();
    dp_setup_t        setup = four();
    ddp_step_result_t result;
    dp_job_t          job;

    setup.memory[2] = bytes - 1;
    ddp_assert_fails(dp_job_try_open(&job, &setup), DDP_ERR_NO_MEMORY, "device 2: parameters need");
    dp_job_close(&job);
    setup.memory[2] = 2 * bytes - 1;
    ddp_assert_fails(dp_job_try_open(&job, &setup), DDP_ERR_NO_MEMORY, "device 2: gradients need");
    dp_job_close(&job);
    setup.memory[2] = 2 * bytes;
    setup.memory[3] = 2 * bytes;
    dp_job_open(&job, &setup);
    ddp_assert_fails(dp_job_try_step(&job, 12, NULL, &result), DDP_ERR_NO_MEMORY, "device 2: samples need");
    ck_assert_ptr_nonnull(strstr(ddp_error_line(), "; device 3: samples need"));
    dp_job_close(&job);
    setup.memory[2] = 2 * bytes + 3 * job.row * sizeof(float); /* and its samples */
    setup.memory[3] = 0;
    dp_job_open(&job, &setup);
    ddp_assert_fails(dp_job_try_step(&job, 12, NULL, &result), DDP_ERR_NO_MEMORY,
                     "device 2: activations need");
    dp_job_close(&job);
}
END_TEST

START_TEST(so_does_that_of_device_0)
{
    const size_t bytes = parameter_bytes();
    dp_setup_t   setup = four();
    dp_job_t     job;

    setup.memory[0] = 5000;
    ddp_assert_fails(dp_job_try_open(&job, &setup), DDP_ERR_INVALID_ARG,
                     "its memory is limited where it is made");
    dp_job_close(&job);
    setup.first_memory = bytes - 1;
    setup.memory[0]    = bytes - 1;
    ddp_assert_fails(dp_job_try_open(&job, &setup), DDP_ERR_NO_MEMORY, "device 0: parameters need");
    dp_job_close(&job);
    setup.memory[0]    = 0;
    setup.first_memory = 2 * bytes;
    ddp_assert_fails(dp_job_try_open(&job, &setup), DDP_ERR_NO_MEMORY, "device 0: moments need");
    dp_job_close(&job);
    setup.first_memory = 3 * bytes;
    ddp_assert_fails(dp_job_try_open(&job, &setup), DDP_ERR_NO_MEMORY, "device 0: gradients need");
    dp_job_close(&job);
}
END_TEST

START_TEST(a_loss_that_is_not_finite_ends_the_step_as_in_ddp)
{
    dp_setup_t        setup = four();
    ddp_step_result_t result;
    dp_job_t          job;

    dp_job_open(&job, &setup);
    job.spoiled = 1;
    ddp_assert_fails(dp_job_try_step(&job, 12, NULL, &result), DDP_ERR_NOT_FINITE,
                     "at step 1, first in micro-batch 0 of 4");
    dp_job_close(&job);
}
END_TEST

START_TEST(samples_that_cannot_be_had_end_it)
{
    dp_setup_t        setup = four();
    ddp_step_result_t result;
    dp_job_t          job;

    dp_job_open(&job, &setup);
    job.starves = true;
    ddp_assert_fails(dp_job_try_step(&job, 12, NULL, &result), DDP_ERR_INVALID_ARG,
                     "fetch said nothing about input 0");
    dp_job_close(&job);
}
END_TEST

int main(void)
{
    Suite *suite  = suite_create("dp failures");
    TCase *fails  = tcase_create("fail");
    TCase *hangs  = tcase_create("hang");
    TCase *memory = tcase_create("memory");

    tcase_add_test(hangs, else_that_ends_the_process_with_a_line); /* while there are no threads */
    tcase_add_loop_test(fails, all_devices_that_fail_are_named_in_one_line, 0, 4);
    tcase_add_test(fails, of_many_that_fail_some_are_named_and_the_rest_counted);
    tcase_add_test(fails, outputs_of_different_shape_are_refused);
    tcase_add_test(fails, planted_faults_are_those_of_a_device);
    tcase_add_test(fails, a_thread_that_cannot_start_is_named);
    tcase_add_test(fails, a_loss_that_is_not_finite_ends_the_step_as_in_ddp);
    tcase_add_test(fails, samples_that_cannot_be_had_end_it);
    tcase_add_loop_test(hangs, that_device_0_hangs_is_told_from_another_thread, 0, 2);
    tcase_add_loop_test(hangs, slow_is_not_hanging, 0, 2);
    tcase_add_loop_test(hangs, a_device_that_hangs_ends_the_step, 0, 2);
    tcase_add_test(hangs, a_device_that_was_left_behind_may_come_back);
    tcase_add_test(memory, caps_fail_as_a_device_would);
    tcase_add_test(memory, so_does_that_of_device_0);
    suite_add_tcase(suite, fails);
    suite_add_tcase(suite, memory);
    suite_add_tcase(suite, hangs);
    return ddp_test_run(suite);
}
