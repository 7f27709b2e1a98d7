#include <limits.h>
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/allocator.h"
#include "base/call.h"
#include "base/clock.h"
#include "base/convert.h"
#include "base/fault.h"
#include "base/file_open.h"
#include "base/log.h"
#include "base/thread.h"
#include "base/utf8.h"
#include "tests/support/ddp_test.h"

START_TEST(every_status_has_its_own_name_and_text)
{
    ck_assert_str_eq(ddp_status_name(DDP_OK), "DDP_OK");
    ck_assert_str_eq(ddp_status_name(DDP_ERR_REMOTE), "DDP_ERR_REMOTE");
    ck_assert_str_eq(ddp_status_text(DDP_ERR_NO_MEMORY), "out of memory");
    ck_assert_str_eq(ddp_status_name((ddp_status_t)-999), "unknown status");
}
END_TEST

START_TEST(a_record_is_one_line_and_may_quote_the_last_one)
{
    ck_assert_int_eq(ddp_fail(DDP_ERR_IO, "a\nb %d", 7), DDP_ERR_IO);
    ck_assert_str_eq(ddp_error_line(), "a b 7");
    (void)ddp_fail(DDP_ERR_IO, "outer: %s", ddp_error_line());
    ck_assert_str_eq(ddp_error_line(), "outer: a b 7");
    ddp_error_prefix("file '%s'", "x.h5");
    ck_assert_str_eq(ddp_error_line(), "file 'x.h5': outer: a b 7");
    ddp_error_clear();
    (void)ddp_fail(DDP_ERR_IO, "a\x1b[31m\tb\x7f");
    ck_assert_str_eq(ddp_error_line(), "a [31m b ");
    ddp_error_clear();
    ck_assert_str_eq(ddp_error_line(), "");
}
END_TEST

START_TEST(a_record_that_is_too_long_is_cut)
{
    char text[2 * DDP_ERROR_LINE_SIZE];

    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    (void)ddp_fail(DDP_ERR_IO, "%s", text);
    ck_assert_uint_eq(strlen(ddp_error_line()), DDP_ERROR_LINE_SIZE - 1);
    ddp_error_prefix("%s", text);
    ck_assert_uint_eq(strlen(ddp_error_line()), DDP_ERROR_LINE_SIZE - 1);
    /* the cause behind a long path stays, and so does its beginning */
    (void)ddp_fail(DDP_ERR_IO, "'%s': no such file", text);
    ck_assert_str_eq(ddp_error_line() + DDP_ERROR_LINE_SIZE - 1 - 14, ": no such file");
    ck_assert_mem_eq(ddp_error_line(), "'xxx", 4);
    ddp_error_prefix("%s", text);
    ck_assert_str_eq(ddp_error_line() + DDP_ERROR_LINE_SIZE - 1 - 14, ": no such file");
}
END_TEST

START_TEST(call_wrappers_name_the_call_and_the_cause)
{
    ddp_assert_fails(ddp_from_mpi(MPI_ERR_COMM, "MPI_Comm_dup(a, b)"), DDP_ERR_MPI, "MPI_Comm_dup failed: ");
    ddp_assert_fails(ddp_from_pthread(12, "pthread_create(x)"), DDP_ERR_SYSTEM, "pthread_create failed: ");
    ddp_assert_ok(ddp_from_errno(0, "close(1)"));
}
END_TEST

START_TEST(only_a_regular_file_is_opened_and_none_is_waited_for)
{
    const char *pipe = "test_base.pipe"; /* nobody writes */
    FILE       *file = NULL;

    (void)unlink(pipe);
    ck_assert_int_eq(mkfifo(pipe, 0600), 0);
    ddp_assert_fails(ddp_file_open(pipe, &file), DDP_ERR_IO,
                     "'test_base.pipe': a device or pipe, not a regular file");
    ck_assert_int_eq(unlink(pipe), 0);
    ddp_assert_fails(ddp_file_open(pipe, &file), DDP_ERR_IO, "'test_base.pipe': no such file or directory");
    ddp_assert_fails(ddp_file_open(".", &file), DDP_ERR_IO, "'.': a folder");
    ck_assert_ptr_null(file);
    ddp_assert_ok(ddp_file_open("/proc/self/stat", &file));
    ck_assert_int_ne(fgetc(file), EOF);
    (void)fclose(file);
}
END_TEST

static void *count_signals(void *arg)
{
    sigset_t blocked;
    int     *n = arg;

    ck_assert_int_eq(pthread_sigmask(SIG_SETMASK, NULL, &blocked), 0);
    *n = sigismember(&blocked, SIGTERM) + sigismember(&blocked, SIGUSR1) + sigismember(&blocked, SIGINT);
    return NULL;
}

START_TEST(a_thread_takes_no_signals_and_its_starter_does)
{
    pthread_t thread;
    int       n    = 0;
    int       mine = 3;

    ddp_assert_ok(ddp_thread_start(count_signals, &n, &thread));
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_int_eq(n, 3);
    (void)count_signals(&mine);
    ck_assert_int_eq(mine, 0);
}
END_TEST

START_TEST(conversions_are_checked)
{
    int    i = -1;
    size_t n = 1;

    ddp_assert_ok(ddp_to_int(INT_MAX, "count", &i));
    ck_assert_int_eq(i, INT_MAX);
    ddp_assert_fails(ddp_to_int((size_t)INT_MAX + 1, "count", &i), DDP_ERR_INVALID_ARG, "count: 2147483648");
    ddp_assert_fails(ddp_mul_size(SIZE_MAX / 2, 3, "rows", &n), DDP_ERR_INVALID_ARG, "rows");
    ck_assert_uint_eq(n, 1);
}
END_TEST

START_TEST(a_partition_is_contiguous_balanced_and_larger_first)
{
    static const size_t wanted[4] = {3, 3, 2, 2};

    for (size_t n = 0; n <= 40; n++) {
        for (size_t parts = 1; parts <= 9; parts++) {
            size_t end  = 0;
            size_t last = n;

            for (size_t k = 0; k < parts; k++) {
                size_t first;
                size_t count;

                ddp_partition(n, parts, k, &first, &count);
                ck_assert_uint_eq(first, end);
                ck_assert_uint_le(count, last);
                ck_assert_uint_ge(count, n / parts);
                ck_assert_uint_le(count, (n + parts - 1) / parts);
                end += count;
                last = count;
                if (n == 10 && parts == 4) {
                    ck_assert_uint_eq(count, wanted[k]);
                }
            }
            ck_assert_uint_eq(end, n);
        }
    }
}
END_TEST

static size_t count_nonzero(const unsigned char *bytes, size_t n)
{
    size_t nonzero = 0;

    for (size_t i = 0; i < n; i++) {
        nonzero += bytes[i] != 0;
    }
    return nonzero;
}

START_TEST(private_memory_is_aligned_zeroed_and_too_much_is_an_error)
{
    const ddp_allocator_t *allocator = ddp_allocator_private();
    static const size_t    sizes[]   = {1, 4096, ((size_t)3 << 20) + 5};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        void *memory = NULL;

        ddp_assert_ok(allocator->acquire(allocator->ctx, "test", sizes[i], &memory));
        ck_assert_uint_eq((size_t)memory % DDP_ALIGNMENT, 0);
        ck_assert_uint_eq(count_nonzero(memory, sizes[i]), 0);
        memset(memory, 0xff, sizes[i]);
        allocator->release(allocator->ctx, memory);
    }
    allocator->release(allocator->ctx, NULL);
    {
        void *memory = NULL;

        ddp_assert_fails(allocator->acquire(allocator->ctx, "gradients", SIZE_MAX / 2, &memory),
                         DDP_ERR_NO_MEMORY, "gradients");
        ck_assert_ptr_null(memory);
    }
}
END_TEST

START_TEST(a_planted_fault_hits_its_point_and_rank_only)
{
    setenv("DDP_FAULT", "window_map:2", 1);
    ddp_assert_ok(ddp_fault("window_map", 1));
    ddp_assert_ok(ddp_fault("window", 2));
    ddp_assert_fails(ddp_fault("window_map", 2), DDP_ERR_SYSTEM, "planted");
    unsetenv("DDP_FAULT");
    ddp_assert_ok(ddp_fault("window_map", 2));
}
END_TEST

START_TEST(the_clock_does_not_go_back)
{
    int64_t last = ddp_clock_ns();

    for (int i = 0; i < 1000; i++) {
        int64_t now = ddp_clock_ns();

        ck_assert_int_ge(now, last);
        last = now;
    }
}
END_TEST

START_TEST(log_levels_have_names)
{
    ddp_log_level_t level = DDP_LOG_ERROR;

    ck_assert(ddp_log_parse_level("debug", &level));
    ck_assert_int_eq(level, DDP_LOG_DEBUG);
    ck_assert(!ddp_log_parse_level("loud", &level));
    ck_assert_int_eq(level, DDP_LOG_DEBUG);
}
END_TEST

/* RFC 3629, section 4: the first and last characters of each length, and what is just beside them. */
START_TEST(characters_of_utf8_have_a_length)
{
    static const struct {
        const char *text;
        size_t      length;
    } cases[] = {{"a", 1},
                 {"\177", 1},
                 {"\302\200", 2},
                 {"\337\277", 2},
                 {"\340\240\200", 3},
                 {"\355\237\277", 3},
                 {"\357\277\277", 3},
                 {"\360\220\200\200", 4},
                 {"\364\217\277\277", 4},
                 {"\200", 0},
                 {"\301\277", 0},
                 {"\302a", 0},
                 {"\340\237\277", 0},
                 {"\355\240\200", 0},
                 {"\360\217\277\277", 0},
                 {"\364\220\200\200", 0},
                 {"\365\200\200\200", 0},
                 {"\377", 0},
                 {"\303", 0},
                 {"\342\202", 0}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ck_assert_uint_eq(ddp_utf8_length(cases[i].text, strlen(cases[i].text)), cases[i].length);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("base");
    TCase *tcase = tcase_create("all");

    tcase_add_test(tcase, every_status_has_its_own_name_and_text);
    tcase_add_test(tcase, a_record_is_one_line_and_may_quote_the_last_one);
    tcase_add_test(tcase, a_record_that_is_too_long_is_cut);
    tcase_add_test(tcase, call_wrappers_name_the_call_and_the_cause);
    tcase_add_test(tcase, only_a_regular_file_is_opened_and_none_is_waited_for);
    tcase_add_test(tcase, a_thread_takes_no_signals_and_its_starter_does);
    tcase_add_test(tcase, conversions_are_checked);
    tcase_add_test(tcase, a_partition_is_contiguous_balanced_and_larger_first);
    tcase_add_test(tcase, private_memory_is_aligned_zeroed_and_too_much_is_an_error);
    tcase_add_test(tcase, a_planted_fault_hits_its_point_and_rank_only);
    tcase_add_test(tcase, the_clock_does_not_go_back);
    tcase_add_test(tcase, log_levels_have_names);
    tcase_add_test(tcase, characters_of_utf8_have_a_length);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
