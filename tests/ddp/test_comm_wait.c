/* Deadlines of waits: a rank that does nothing is named, one that is slow is waited for. */
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "ddp/comm.h"
#include "ddp/comm_internal.h"
#include "tests/support/ddp_test.h"

#define TIMEOUT_MS 1000

static ddp_comm_t *comm;
static ddp_flag_t *flags; /* [local size] */

static void open_comm(void)
{
    ddp_comm_params_t params = DDP_COMM_PARAMS_INIT;
    void             *memory = NULL;

    params.parent     = MPI_COMM_WORLD;
    params.timeout_ms = TIMEOUT_MS;
    MPI_Barrier(MPI_COMM_WORLD);
    ddp_assert_ok(ddp_comm_create(&params, &comm));
    ddp_assert_ok(
        ddp_comm_shared(comm, "flags", (size_t)ddp_comm_local_size(comm) * sizeof(ddp_flag_t), &memory));
    flags = memory;
    ddp_assert_ok(ddp_comm_barrier(comm));
}

static void close_comm(void)
{
    MPI_Barrier(MPI_COMM_WORLD); /* nobody looks at the others' memory any more */
    ddp_comm_destroy(&comm);
}

static int last(void)
{
    return ddp_comm_size(comm) - 1;
}

static bool is_last(void)
{
    return ddp_comm_rank(comm) == last();
}

static void nap_ms(long ms)
{
    const struct timespec pause = {ms / 1000, ms % 1000 * 1000000};

    nanosleep(&pause, NULL);
}

static bool is_sharing(void)
{
    return ddp_comm_machines(comm) == 1;
}

/* What `rank` is said not to have done; the same line on all ranks that wait for it. */
static bool line_says(int rank, const char *text)
{
    char wanted[256];

    snprintf(wanted, sizeof(wanted), "rank %d on %s %s", rank, ddp_comm_host(comm, rank), text);
    return strcmp(ddp_error_line(), wanted) == 0;
}

START_TEST(a_rank_that_is_late_at_a_barrier_is_named_and_hears_it)
{
    const int64_t start = ddp_clock_ns();
    ddp_status_t  status;
    int64_t       took;

    if (is_last()) {
        nap_ms(5 * TIMEOUT_MS / 2);
    }
    status = ddp_comm_barrier(comm);
    took   = ddp_clock_ns() - start;
    ddp_assert_all(status == DDP_ERR_TIMEOUT && line_says(last(), "did not answer within 1 s: barrier"));
    ddp_assert_all(took > 900 * DDP_NS_PER_MS && took < 8 * TIMEOUT_MS * DDP_NS_PER_MS);
    /* the control plane stays broken, at once */
    ddp_assert_all(ddp_comm_barrier(comm) == DDP_ERR_TIMEOUT);
}
END_TEST

START_TEST(rank_0_that_is_late_is_named_by_the_others)
{
    ddp_status_t status;

    if (ddp_comm_rank(comm) == 0) {
        nap_ms(3 * TIMEOUT_MS);
        return;
    }
    status = ddp_comm_barrier(comm);
    ck_assert_int_eq(status, DDP_ERR_TIMEOUT);
    ck_assert(line_says(0, "did not answer within 1 s: barrier"));
}
END_TEST

START_TEST(a_flag_that_is_not_set_in_time_names_its_owner)
{
    const ddp_wait_t wait   = {last(), "updated parameters", 3, (size_t)-1};
    ddp_status_t     status = DDP_OK;

    if (!is_sharing()) {
        return;
    }
    if (is_last()) {
        nap_ms(2 * TIMEOUT_MS);
    } else {
        status = ddp_comm_wait_flag(comm, &flags[last()], 1, wait);
    }
    ddp_assert_all(is_last() || status == DDP_ERR_TIMEOUT);
    ddp_assert_all(is_last() ||
                   line_says(last(), "made no progress for 1 s: waiting for its updated parameters, step 3"));
}
END_TEST

START_TEST(the_end_of_a_chain_of_waits_is_named)
{
    const int        next = ddp_comm_rank(comm) + 1;
    const ddp_wait_t wait = {next, "gradients", 3, 1};
    char             text[128];
    ddp_status_t     status = DDP_OK;

    if (!is_sharing() || ddp_comm_size(comm) < 3) {
        return;
    }
    if (is_last()) {
        nap_ms(2 * TIMEOUT_MS);
    } else {
        status = ddp_comm_wait_flag(comm, &flags[next], 1, wait);
    }
    if (next == last()) {
        snprintf(text, sizeof(text),
                 "made no progress for 1 s: waiting for its gradients of bucket 1, step 3");
    } else {
        snprintf(text, sizeof(text),
                 "made no progress for 1 s: waiting for rank %d's gradients of bucket 1, step 3", next);
    }
    ddp_assert_all(is_last() || (status == DDP_ERR_TIMEOUT && line_says(last(), text)));
}
END_TEST

/* stderr of this process into a file while `run` runs; how often `word` is in it. */
static int count_said(ddp_status_t (*run)(void), const char *word, ddp_status_t *status_p)
{
    char    name[]     = "/tmp/test_comm_wait.XXXXXX";
    char    text[8192] = "";
    int     kept       = dup(STDERR_FILENO);
    int     fd         = mkostemp(name, O_CLOEXEC);
    int     n          = 0;
    ssize_t used;

    unlink(name);
    dup2(fd, STDERR_FILENO);
    *status_p = run();
    dup2(kept, STDERR_FILENO);
    used                      = pread(fd, text, sizeof(text) - 1, 0);
    text[used > 0 ? used : 0] = '\0';
    close(fd);
    close(kept);
    for (const char *at = strstr(text, word); at != NULL; at = strstr(at + 1, word)) {
        n++;
    }
    return n;
}

static ddp_status_t wait_for_last(void)
{
    const ddp_wait_t wait = {last(), "gradients", 9, 0};

    return ddp_comm_wait_flag(comm, &flags[last()], 1, wait);
}

START_TEST(a_rank_that_is_slow_but_moving_is_waited_for_with_one_warning)
{
    ddp_status_t status = DDP_OK;
    int          said   = 1;

    if (!is_sharing() || ddp_comm_size(comm) == 1) {
        return;
    }
    if (is_last()) {
        for (int i = 0; i < 25; i++) {
            nap_ms(100);
            ddp_comm_progressed(comm);
        }
        ddp_comm_flag_set(comm, &flags[last()], 1);
    } else {
        said = count_said(wait_for_last, "is slow but moving: waited", &status);
    }
    ddp_assert_all(status == DDP_OK);
    ddp_assert_all(said == 1);
}
END_TEST

START_TEST(a_barrier_waits_for_a_rank_that_is_moving)
{
    if (!is_sharing()) {
        return;
    }
    for (int i = 0; is_last() && i < 25; i++) {
        nap_ms(100);
        ddp_comm_progressed(comm);
    }
    ddp_assert_all(ddp_comm_barrier(comm) == DDP_OK);
}
END_TEST

typedef struct poll_args {
    int *polls;
} poll_args_t;

static ddp_status_t poll_last(void *args_p)
{
    const poll_args_t *args = args_p;
    const ddp_wait_t   wait = {last(), "gradients", 1, 0};

    if (ddp_comm_flag_reached(&flags[last()], 1)) {
        return DDP_OK;
    }
    (*args->polls)++;
    ddp_comm_waiting(comm, wait);
    return DDP_IN_PROGRESS;
}

/* Work on a stream that polls a flag; the owner sets it after `owner_ms`. */
static ddp_status_t wait_on_stream(long owner_ms, int *polls_p)
{
    ddp_device_params_t params = DDP_DEVICE_PARAMS_INIT;
    ddp_device_t       *device = NULL;
    ddp_stream_t       *stream = NULL;
    const poll_args_t   args   = {polls_p};
    ddp_status_t        status = DDP_OK;

    DDP_TRY(ddp_device_create(&params, &device));
    ddp_comm_attach(comm, device);
    DDP_TRY(ddp_stream_create(device, "comm", &stream));
    if (is_last()) {
        nap_ms(owner_ms);
        ddp_comm_flag_set(comm, &flags[last()], 1);
    }
    DDP_TRY(ddp_stream_submit(stream, "wait", poll_last, &args, sizeof(args)));
    DDP_TRY(ddp_stream_synchronize(stream, -1));
out:
    ddp_stream_destroy(&stream);
    ddp_device_destroy(&device);
    return status;
}

START_TEST(a_stream_waits_through_the_communicator_and_sleeps)
{
    int           polls = 0;
    const int64_t start = ddp_clock_ns();
    ddp_status_t  status;

    if (!is_sharing()) {
        return;
    }
    status = wait_on_stream(300, &polls);
    ddp_assert_all(status == DDP_OK);
    ddp_assert_all(ddp_clock_ns() - start < TIMEOUT_MS * DDP_NS_PER_MS);
    ddp_assert_all(polls < 20000); /* about 1000 per second, and some spinning */
}
END_TEST

START_TEST(a_wait_after_long_work_of_its_own_has_the_whole_deadline)
{
    int          polls = 0;
    ddp_status_t status;

    if (!is_sharing()) {
        return;
    }
    ddp_assert_ok(ddp_comm_barrier(comm)); /* the wait before */
    nap_ms(TIMEOUT_MS + TIMEOUT_MS / 2);
    status = wait_on_stream(200, &polls);
    ddp_assert_all(status == DDP_OK);
}
END_TEST

START_TEST(a_stream_whose_flag_never_comes_fails_with_the_owners_name)
{
    int          polls = 0;
    ddp_status_t status;

    if (!is_sharing() || ddp_comm_size(comm) == 1) {
        return;
    }
    status = wait_on_stream(2 * TIMEOUT_MS, &polls);
    ddp_assert_all(is_last() || status == DDP_ERR_TIMEOUT);
    ddp_assert_all(
        is_last() ||
        line_says(last(), "made no progress for 1 s: waiting for its gradients of bucket 0, step 1"));
}
END_TEST

/* How long a rank sleeps that has already waited for 10 ms, in nanoseconds; the shortest of every 20. */
static int64_t sleep_on_bell(int n)
{
    int64_t took[512];

    for (int i = 0; i < n; i++) {
        const int64_t start = ddp_clock_ns();

        if (ddp_comm_idle(comm, 10 * DDP_NS_PER_MS + i) != DDP_OK) {
            return INT64_MAX;
        }
        took[i] = ddp_clock_ns() - start;
        for (int k = i; k > 0 && took[k] < took[k - 1]; k--) { /* keep them sorted */
            const int64_t more = took[k - 1];

            took[k - 1] = took[k];
            took[k]     = more;
        }
    }
    return took[n / 20];
}

START_TEST(a_flag_that_is_set_wakes_sleepers)
{
    const struct timespec pause = {0, 200000};
    ddp_flag_t           *stop  = &flags[0];
    int64_t               took  = 0;

    if (!is_sharing() || ddp_comm_size(comm) != 2) {
        return;
    }
    if (ddp_comm_rank(comm) == 0) {
        took = sleep_on_bell(400);
        ddp_comm_flag_set(comm, stop, 1);
    }
    for (uint64_t i = 1; is_last() && !ddp_comm_flag_reached(stop, 1); i++) {
        nanosleep(&pause, NULL);
        ddp_comm_flag_set(comm, &flags[1], i);
    }
    ddp_assert_all(took < 800000); /* without the bell a sleep takes 1 ms */
}
END_TEST

START_TEST(a_flag_that_is_set_before_the_sleep_is_not_slept_over)
{
    int64_t least = INT64_MAX;

    if (!is_sharing() || ddp_comm_size(comm) == 1) {
        return;
    }
    for (uint64_t i = 1; ddp_comm_rank(comm) == 0 && i <= 100; i++) {
        int64_t start;

        ck_assert_int_eq(ddp_comm_idle(comm, 0), DDP_OK); /* the caller polls its flag now, in vain */
        ddp_comm_flag_set(comm, &flags[0], i);            /* in truth somebody else */
        start = ddp_clock_ns();
        ck_assert_int_eq(ddp_comm_idle(comm, 10 * DDP_NS_PER_MS), DDP_OK);
        least = ddp_clock_ns() - start < least ? ddp_clock_ns() - start : least;
    }
    ddp_assert_all(ddp_comm_rank(comm) != 0 || least < 800000);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("comm_wait");
    TCase *late  = tcase_create("late ranks");
    TCase *slow  = tcase_create("slow ranks");

    tcase_add_checked_fixture(late, open_comm, close_comm);
    tcase_add_checked_fixture(slow, open_comm, close_comm);
    tcase_add_test(late, a_rank_that_is_late_at_a_barrier_is_named_and_hears_it);
    tcase_add_test(late, rank_0_that_is_late_is_named_by_the_others);
    tcase_add_test(late, a_flag_that_is_not_set_in_time_names_its_owner);
    tcase_add_test(late, the_end_of_a_chain_of_waits_is_named);
    tcase_add_test(late, a_stream_whose_flag_never_comes_fails_with_the_owners_name);
    tcase_add_test(slow, a_rank_that_is_slow_but_moving_is_waited_for_with_one_warning);
    tcase_add_test(slow, a_barrier_waits_for_a_rank_that_is_moving);
    tcase_add_test(slow, a_stream_waits_through_the_communicator_and_sleeps);
    tcase_add_test(slow, a_flag_that_is_set_wakes_sleepers);
    tcase_add_test(slow, a_flag_that_is_set_before_the_sleep_is_not_slept_over);
    tcase_add_test(slow, a_wait_after_long_work_of_its_own_has_the_whole_deadline);
    suite_add_tcase(suite, late);
    suite_add_tcase(suite, slow);
    return suite;
}

int main(int argc, char **argv)
{
    return ddp_test_run_mpi(&argc, &argv, make_suite);
}
