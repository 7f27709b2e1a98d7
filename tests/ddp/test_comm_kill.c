/* Ranks that leave, are killed, are stopped or never come: the others say who it was, in time. Runs mpirun
 * itself. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/support/ddp_test.h"

#define RANKS       3
#define OUTPUT_SIZE 65536
#define DEADLINE_NS (120 * 1000 * DDP_NS_PER_MS)

static char output[OUTPUT_SIZE];

static int open_output(void)
{
    char name[] = "/tmp/test_comm_kill.XXXXXX";
    int  fd     = mkostemp(name, O_CLOEXEC);

    ck_assert_int_ge(fd, 0);
    unlink(name);
    return fd;
}

static void read_output(int fd)
{
    ssize_t n = pread(fd, output, sizeof(output) - 1, 0);

    output[n > 0 ? n : 0] = '\0';
}

static pid_t start(char *const *words, int fd)
{
    pid_t pid = fork();

    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        dup2(fd, STDOUT_FILENO);
        dup2(fd, STDERR_FILENO);
        execv(words[0], words);
        _exit(127);
    }
    return pid;
}

static void nap_ms(long ms)
{
    const struct timespec pause = {ms / 1000, ms % 1000 * 1000000};

    nanosleep(&pause, NULL);
}

/* @return the exit status; -1 if it had to be killed */
static int finish(pid_t pid)
{
    const int64_t start_ns = ddp_clock_ns();
    int           code     = 0;

    while (waitpid(pid, &code, WNOHANG) == 0) {
        if (ddp_clock_ns() - start_ns > DEADLINE_NS) {
            kill(pid, SIGKILL);
            waitpid(pid, &code, 0);
            return -1;
        }
        nap_ms(20);
    }
    return WIFEXITED(code) ? WEXITSTATUS(code) : 128 + WTERMSIG(code);
}

static pid_t start_victims(int fd, const char *mode, const char *how, int culprit)
{
    char  rank[16], ranks[16];
    char *words[] = {TEST_MPIRUN, "--oversubscribe", "--bind-to", "none", "-np",        ranks,
                     TEST_VICTIM, (char *)mode,      (char *)how, rank,   (char *)NULL, (char *)NULL};

    snprintf(ranks, sizeof(ranks), "%d", RANKS);
    snprintf(rank, sizeof(rank), "%d", culprit);
    return start(words, fd);
}

/* Every rank but the culprit told `line` after `least` .. `most` ms. */
static void expect_line(int culprit, const char *line, int least, int most)
{
    for (int r = 0; r < RANKS; r++) {
        char        begin[32];
        const char *at;
        int         ms = -1;
        int         n  = 0;

        if (r == culprit) {
            continue;
        }
        snprintf(begin, sizeof(begin), "victim[%d] after ", r);
        at = strstr(output, begin);
        ck_assert_msg(at != NULL, "rank %d said nothing in: %s", r, output);
        ck_assert_int_eq(sscanf(at + strlen(begin), "%d ms: %n", &ms, &n), 1);
        at += strlen(begin) + (size_t)n;
        ck_assert_msg(strncmp(at, line, strlen(line)) == 0, "rank %d, wanted '%s' in: %s", r, line, output);
        ck_assert_msg(ms >= least && ms <= most, "rank %d, not in %d .. %d ms: %s", r, least, most, output);
    }
}

static void run_case(const char *mode, const char *how, int culprit, const char *line, int least, int most)
{
    const int fd   = open_output();
    const int code = finish(start_victims(fd, mode, how, culprit));

    read_output(fd);
    close(fd);
    ck_assert_msg(code != 0 && code != -1, "%s %s %d ended with %d: %s", mode, how, culprit, code, output);
    expect_line(culprit, line, least, most);
}

static const char *line_of(int culprit, const char *text)
{
    static char line[256];
    char        host[64] = "";

    gethostname(host, sizeof(host) - 1);
    snprintf(line, sizeof(line), "rank %d on %s %s", culprit, host, text);
    return line;
}

/* 100 ms until it happens, 1 s to notice it. */
#define NOTICED_MS 1100
/* timeout 2 s; those that wait for rank 0's word give it a little longer */
#define TIMEOUT_FROM_MS 1900
#define TIMEOUT_TO_MS   5000

START_TEST(a_rank_that_exits_is_named_by_those_who_wait_for_its_flag)
{
    run_case("flag", "exit", 2, line_of(2, "has ended (pid "), 0, NOTICED_MS);
    ck_assert_msg(strstr(output, "): waiting for its gradients of bucket 2, step 17") != NULL, "%s", output);
}
END_TEST

START_TEST(a_rank_that_is_killed_is_named_by_those_who_wait_for_its_flag)
{
    run_case("flag", "kill", 1, line_of(1, "has ended (pid "), 0, NOTICED_MS);
}
END_TEST

START_TEST(a_rank_that_is_killed_is_named_at_a_barrier)
{
    run_case("barrier", "kill", 2, line_of(2, "has ended (pid "), 0, NOTICED_MS);
}
END_TEST

START_TEST(rank_0_killed_is_named_at_a_barrier)
{
    run_case("barrier", "kill", 0, line_of(0, "has ended (pid "), 0, NOTICED_MS);
}
END_TEST

START_TEST(a_rank_that_is_stopped_is_named_after_the_timeout)
{
    run_case("flag", "stop", 1,
             line_of(1, "made no progress for 2 s: waiting for its gradients of bucket 2, step 17"),
             TIMEOUT_FROM_MS, TIMEOUT_TO_MS);
}
END_TEST

START_TEST(a_rank_that_never_comes_to_a_barrier_is_named)
{
    run_case("barrier", "absent", 1, line_of(1, "did not answer within 2 s: barrier"), TIMEOUT_FROM_MS,
             TIMEOUT_TO_MS);
}
END_TEST

START_TEST(rank_0_that_is_stopped_is_named_at_a_barrier)
{
    run_case("barrier", "stop", 0, line_of(0, "did not answer within 2 s: barrier"), TIMEOUT_FROM_MS,
             TIMEOUT_TO_MS);
}
END_TEST

START_TEST(without_shared_memory_a_killed_rank_is_named_too)
{
    setenv("DDP_HOST_SHM", "0", 1);
    run_case("barrier", "kill", 1, line_of(1, "has ended (pid "), 0, NOTICED_MS);
    unsetenv("DDP_HOST_SHM");
}
END_TEST

START_TEST(a_rank_that_left_after_its_work_disturbs_nobody)
{
    const int fd = open_output();

    (void)finish(start_victims(fd, "early", "-", 1)); /* mpirun itself ends with the leaver's 3 */
    read_output(fd);
    close(fd);
    expect_line(1, "fine", 0, NOTICED_MS);
}
END_TEST

/* Objects that processes of this run left in a folder. */
static int count_left(const char *path)
{
    DIR           *folder = opendir(path);
    struct dirent *entry;
    int            left = 0;

    ck_assert_ptr_nonnull(folder);
    while ((entry = readdir(folder)) != NULL) {
        int pid = -1;

        if (sscanf(entry->d_name, "ddptrain-%d-", &pid) == 1) {
            char word[32];

            snprintf(word, sizeof(word), "pid %d\n", pid);
            left += strstr(output, word) != NULL ? 1 : 0;
        }
    }
    closedir(folder);
    return left;
}

static pid_t pick_rank(int which)
{
    const char *at  = output;
    int         pid = -1;

    for (int i = 0; i <= which && at != NULL; i++) {
        at = strstr(at, "pid ");
        at = at != NULL ? at + 4 : NULL;
    }
    return at != NULL && sscanf(at, "%d", &pid) == 1 ? (pid_t)pid : -1;
}

START_TEST(nothing_is_left_after_kills_at_random_points)
{
    const char  *asked = getenv("DDP_TEST_KILLS");
    const long   kills = asked != NULL ? strtol(asked, NULL, 10) : 3;
    unsigned int seed  = (unsigned int)time(NULL);

    fprintf(stderr, "seed %u\n", seed);
    for (long k = 0; k < kills; k++) {
        const int fd   = open_output();
        pid_t     pid  = start_victims(fd, "windows", "-", 0);
        pid_t     rank = -1;

        for (int wait = 0; wait < 500 && rank < 0; wait++) { /* until all are there */
            nap_ms(20);
            read_output(fd);
            rank = pick_rank(RANKS - 1) > 0 ? pick_rank(rand_r(&seed) % RANKS) : -1;
        }
        ck_assert_msg(rank > 0, "%s", output);
        nap_ms(rand_r(&seed) % 100);
        kill(rank, SIGKILL);
        ck_assert_int_gt(finish(pid), 0);
        close(fd);
        ck_assert_int_eq(count_left("/dev/shm") + count_left("/tmp"), 0);
    }
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("comm_kill");
    TCase *gone  = tcase_create("ranks that are gone");

    tcase_add_test(gone, a_rank_that_exits_is_named_by_those_who_wait_for_its_flag);
    tcase_add_test(gone, a_rank_that_is_killed_is_named_by_those_who_wait_for_its_flag);
    tcase_add_test(gone, a_rank_that_is_killed_is_named_at_a_barrier);
    tcase_add_test(gone, rank_0_killed_is_named_at_a_barrier);
    tcase_add_test(gone, a_rank_that_is_stopped_is_named_after_the_timeout);
    tcase_add_test(gone, a_rank_that_never_comes_to_a_barrier_is_named);
    tcase_add_test(gone, rank_0_that_is_stopped_is_named_at_a_barrier);
    tcase_add_test(gone, without_shared_memory_a_killed_rank_is_named_too);
    tcase_add_test(gone, a_rank_that_left_after_its_work_disturbs_nobody);
    tcase_add_test(gone, nothing_is_left_after_kills_at_random_points);
    suite_add_tcase(suite, gone);
    return suite;
}

int main(void)
{
    return ddp_test_run(make_suite());
}
