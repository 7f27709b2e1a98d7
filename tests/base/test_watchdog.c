#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/watchdog.h"
#include "tests/support/ddp_test.h"

typedef struct barks {
    _Atomic int         n;
    const char *_Atomic what;
    _Atomic int         limit_ms;
    _Atomic int         slow_ms; /* how long the call takes */
} barks_t;

static void nap_ms(long ms)
{
    const struct timespec pause = {ms / 1000, ms % 1000 * 1000000};

    nanosleep(&pause, NULL);
}

static void bark(void *ctx, const char *what, int limit_ms)
{
    barks_t *barks = ctx;

    nap_ms(barks->slow_ms);
    barks->what     = what;
    barks->limit_ms = limit_ms;
    barks->n++;
}

static bool wait_for_bark(const barks_t *barks, int n)
{
    for (int i = 0; i < 1000 && barks->n < n; i++) {
        nap_ms(5);
    }
    return barks->n == n;
}

START_TEST(what_takes_too_long_is_told_once)
{
    barks_t         barks    = {0};
    ddp_watchdog_t *watchdog = NULL;
    const int64_t   start    = ddp_clock_ns();

    ddp_assert_ok(ddp_watchdog_create(bark, &barks, &watchdog));
    ddp_watchdog_arm(watchdog, "MPI_Init", 50);
    ck_assert(wait_for_bark(&barks, 1));
    ck_assert_int_ge((ddp_clock_ns() - start) / DDP_NS_PER_MS, 50);
    ck_assert_str_eq(barks.what, "MPI_Init");
    ck_assert_int_eq(barks.limit_ms, 50);
    nap_ms(100);
    ck_assert_int_eq(barks.n, 1);
    ddp_watchdog_arm(watchdog, "MPI_Finalize", 1); /* it can be used again */
    ck_assert(wait_for_bark(&barks, 2));
    ddp_watchdog_destroy(&watchdog);
    ck_assert_ptr_null(watchdog);
}
END_TEST

START_TEST(what_ends_in_time_is_not_told)
{
    barks_t         barks    = {0};
    ddp_watchdog_t *watchdog = NULL;

    ddp_assert_ok(ddp_watchdog_create(bark, &barks, &watchdog));
    ddp_watchdog_arm(watchdog, "a", 150);
    ddp_watchdog_disarm(watchdog);
    nap_ms(250);
    ddp_watchdog_arm(watchdog, "b", 150);
    ddp_watchdog_arm(watchdog, "c", 60000); /* replaces it */
    nap_ms(250);
    ck_assert_int_eq(barks.n, 0);
    ddp_watchdog_destroy(&watchdog);
    ck_assert_int_eq(barks.n, 0);
}
END_TEST

START_TEST(disarm_waits_for_a_call_that_runs)
{
    barks_t         barks    = {0};
    ddp_watchdog_t *watchdog = NULL;

    barks.slow_ms = 200;
    ddp_assert_ok(ddp_watchdog_create(bark, &barks, &watchdog));
    ddp_watchdog_arm(watchdog, "a", 1);
    nap_ms(100);
    ddp_watchdog_disarm(watchdog);
    ck_assert_int_eq(barks.n, 1);
    ddp_watchdog_destroy(&watchdog);
    ddp_watchdog_destroy(&watchdog);
    ddp_watchdog_destroy(NULL);
}
END_TEST

/* In a process of its own: suspends itself for longer than the limit, then goes on for less than what is
 * left, or, if it is to be late, for longer. Ends with the number of calls. */
static int barks_of_suspended(bool is_late)
{
    const pid_t child = fork();
    int         state = 0;

    ck_assert_int_ge(child, 0);
    if (child == 0) {
        barks_t         barks    = {0};
        ddp_watchdog_t *watchdog = NULL;

        if (ddp_watchdog_create(bark, &barks, &watchdog) != DDP_OK) {
            _exit(99);
        }
        ddp_watchdog_arm(watchdog, "suspended", 1500);
        nap_ms(100); /* it naps */
        (void)raise(SIGSTOP);
        nap_ms(is_late ? 4000 : 100);
        ddp_watchdog_disarm(watchdog);
        _exit(barks.n);
    }
    ck_assert_int_eq(waitpid(child, &state, WUNTRACED), child);
    ck_assert(WIFSTOPPED(state));
    nap_ms(2500);
    ck_assert_int_eq(kill(child, SIGCONT), 0);
    ck_assert_int_eq(waitpid(child, &state, 0), child);
    ck_assert(WIFEXITED(state));
    return WEXITSTATUS(state);
}

START_TEST(time_in_which_the_process_is_suspended_does_not_count)
{
    ck_assert_int_eq(barks_of_suspended(false), 0);
    ck_assert_int_eq(barks_of_suspended(true), 1);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("watchdog");
    TCase *time  = tcase_create("time");

    tcase_add_test(time, what_takes_too_long_is_told_once);
    tcase_add_test(time, what_ends_in_time_is_not_told);
    tcase_add_test(time, disarm_waits_for_a_call_that_runs);
    tcase_add_test(time, time_in_which_the_process_is_suspended_does_not_count);
    tcase_set_timeout(time, 60);
    suite_add_tcase(suite, time);
    return suite;
}

int main(void)
{
    return ddp_test_run(make_suite());
}
