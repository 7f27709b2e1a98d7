/* What the kernel says of processes: of those it has ended, from files made here, and of stopped ones. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ddp/monitor_internal.h"
#include "tests/support/ddp_test.h"

#define PID 4711

static char root[64];

/* `name` is a path below the root; folders on the way are made. */
static void write_file(const char *name, const char *text)
{
    char  path[256];
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", root, name);
    for (char *at = strchr(path + strlen(root) + 1, '/'); at != NULL; at = strchr(at + 1, '/')) {
        *at = '\0';
        (void)mkdir(path, 0700);
        *at = '/';
    }
    file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    fclose(file);
}

static void set_up(void)
{
    snprintf(root, sizeof(root), "/tmp/test_monitor_local.XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(root));
    write_file("proc/vmstat", "pgfault 12\noom_kill 5\n"); /* of the days before */
}

static void tear_down(void)
{
    char command[128];

    snprintf(command, sizeof(command), "rm -rf '%s'", root);
    ck_assert_int_eq(system(command), 0);
}

/* @return whether it is seen that `name` says `after` instead of `before` */
static bool is_seen(const char *name, const char *before, const char *after)
{
    ddp_oom_t oom;
    bool      result;

    write_file(name, before);
    ddp_oom_open(&oom, root);
    ck_assert(!ddp_oom_has_killed(&oom, PID));
    write_file(name, after);
    result = ddp_oom_has_killed(&oom, PID);
    ddp_oom_close(&oom);
    return result;
}

START_TEST(the_first_kill_of_a_group_is_seen_on_a_machine_that_had_some)
{
    write_file("proc/self/cgroup", "0::/job_1\n");
    ck_assert(is_seen("sys/fs/cgroup/job_1/memory.events", "max 3\noom 1\noom_kill 0\n",
                      "max 9\noom 2\noom_kill 1\n"));
    ck_assert(is_seen("sys/fs/cgroup/job_1/memory.events", "oom_kill 2\n", "oom_kill 3\n"));
    ck_assert(!is_seen("sys/fs/cgroup/job_1/memory.events", "oom_kill 2\n", "max 9\noom 7\noom_kill 2\n"));
}
END_TEST

START_TEST(so_is_one_of_the_memory_controller_of_version_1)
{
    write_file("proc/self/cgroup", "5:cpu,cpuacct:/elsewhere\n4:memory:/job_1\n");
    ck_assert(is_seen("sys/fs/cgroup/memory/job_1/memory.oom_control", "under_oom 0\noom_kill 0\n",
                      "under_oom 0\noom_kill 1\n"));
    ck_assert(!is_seen("sys/fs/cgroup/memory/elsewhere/memory.oom_control", "oom_kill 0\n", "oom_kill 1\n"));
}
END_TEST

START_TEST(so_is_one_of_another_group_of_the_machine)
{
    write_file("proc/self/cgroup", "0::/job_1/task_0\n");
    write_file("sys/fs/cgroup/job_1/task_0/memory.events", "oom_kill 1\n");
    ck_assert(is_seen("proc/vmstat", "oom_kill 5\n", "oom_kill 6\n"));
}
END_TEST

START_TEST(a_kernel_that_tells_nothing_has_killed_nobody)
{
    ck_assert(!is_seen("proc/vmstat", "pgfault 12\n", "pgfault 13\n"));
}
END_TEST

/* Names may look like what follows them, and have an end of a line. */
START_TEST(a_stopped_process_is_seen_whatever_its_name)
{
    static const char *const name[] = {"plain", "a) R 1", "a) R\n1 (b"};

    for (size_t i = 0; i < sizeof(name) / sizeof(name[0]); i++) {
        const pid_t pid = fork();
        int         how = 0;

        if (pid == 0) {
            (void)prctl(PR_SET_NAME, name[i]);
            (void)raise(SIGSTOP);
            _exit(0);
        }
        ck_assert_int_eq(waitpid(pid, &how, WUNTRACED), pid);
        ck_assert(WIFSTOPPED(how) && ddp_process_is_stopped((int)pid));
        ck_assert_int_eq(kill(pid, SIGKILL), 0);
        ck_assert_int_eq(waitpid(pid, &how, 0), pid);
        ck_assert(!ddp_process_is_stopped((int)pid));
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("monitor_local");
    TCase *tcase = tcase_create("out of memory");

    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, the_first_kill_of_a_group_is_seen_on_a_machine_that_had_some);
    tcase_add_test(tcase, so_is_one_of_the_memory_controller_of_version_1);
    tcase_add_test(tcase, so_is_one_of_another_group_of_the_machine);
    tcase_add_test(tcase, a_kernel_that_tells_nothing_has_killed_nobody);
    tcase_add_test(tcase, a_stopped_process_is_seen_whatever_its_name);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
