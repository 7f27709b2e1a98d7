/** @file Work for the tests of streams, and devices with each schedule. */
#ifndef DDP_WORK_TEST_H_
#define DDP_WORK_TEST_H_

#include "base/error.h"
#include "tests/kernels/kernel_test.h"

static inline void open_schedule(bench_t *bench, const char *schedule)
{
    ck_assert_int_eq(setenv("DDP_DEVICE_SCHEDULE", schedule, 1), 0);
    ck_assert(bench_open(bench, DDP_ISA_PLAIN));
    ck_assert_int_eq(unsetenv("DDP_DEVICE_SCHEDULE"), 0);
}

/* Work for the tests: append a digit to a number. */
typedef struct digit_args {
    long *number;
    long  digit;
} digit_args_t;

static inline ddp_status_t digit_run(void *args)
{
    const digit_args_t *a = args;

    *a->number = *a->number * 10 + a->digit;
    return DDP_OK;
}

static inline ddp_status_t submit_digit(ddp_stream_t *stream, long *number, long digit)
{
    return ddp_stream_submit(stream, "digit", digit_run, &(digit_args_t){number, digit},
                             sizeof(digit_args_t));
}

/* Polled work: asks `*left` times for another call; counts in its own arguments too. */
typedef struct polled_args {
    int *left;
    int  calls;
    int *calls_p;
} polled_args_t;

static inline ddp_status_t polled_run(void *args)
{
    polled_args_t *a = args;

    a->calls++;
    *a->calls_p = a->calls;
    if (*a->left > 0) {
        (*a->left)--;
        return DDP_IN_PROGRESS;
    }
    return DDP_OK;
}

static inline ddp_status_t submit_polled(ddp_stream_t *stream, int *left, int *calls)
{
    return ddp_stream_submit(stream, "polled", polled_run, &(polled_args_t){left, 0, calls},
                             sizeof(polled_args_t));
}

static inline ddp_status_t failing_run(void *args)
{
    (void)args;
    return ddp_fail(DDP_ERR_IO, "the tape is torn");
}

static const char *const schedules[] = {"now", "defer", "defer:7"};

#endif
