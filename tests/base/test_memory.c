/* Free memory as told by files of a pretended system. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/memory.h"
#include "tests/support/ddp_test.h"

static char root[] = "/tmp/test_memory.XXXXXX";

static void write_file(const char *folder, const char *name, const char *text)
{
    char  path[512];
    FILE *file;

    snprintf(path, sizeof(path), "%s%s/", root, folder);
    for (char *at = path + strlen(root) + 1; *at != '\0'; at++) {
        if (*at == '/') {
            *at = '\0';
            mkdir(path, 0700);
            *at = '/';
        }
    }
    strcat(path, name);
    file = fopen(path, "we");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    fclose(file);
}

static void make_root(void)
{
    strcpy(root + strlen(root) - 6, "XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(root));
    write_file("/proc", "meminfo", "MemTotal: 9000 kB\nMemAvailable:    8000 kB\nMemFree: 1 kB\n");
}

static void remove_root(void)
{
    char command[512];

    snprintf(command, sizeof(command), "rm -r '%s'", root);
    ck_assert_int_eq(system(command), 0);
}

START_TEST(without_groups_the_free_memory_counts)
{
    ck_assert_uint_eq(ddp_memory_available(root), 8000 * 1024);
}
END_TEST

START_TEST(a_limit_of_a_group_counts_less_what_it_uses)
{
    write_file("/proc/self", "cgroup", "0::/job/step\n");
    write_file("/sys/fs/cgroup/job/step", "memory.max", "max\n");
    write_file("/sys/fs/cgroup/job/step", "memory.current", "70000\n");
    write_file("/sys/fs/cgroup/job", "memory.max", "100000\n");
    write_file("/sys/fs/cgroup/job", "memory.current", "70000\n");
    ck_assert_uint_eq(ddp_memory_available(root), 30000);
}
END_TEST

START_TEST(file_pages_can_be_given_back)
{
    write_file("/proc/self", "cgroup", "0::/\n");
    write_file("/sys/fs/cgroup", "memory.max", "100000\n");
    write_file("/sys/fs/cgroup", "memory.current", "70000\n");
    write_file("/sys/fs/cgroup", "memory.stat",
               "anon 20000\nfile 50000\nshmem 10000\nactive_file 25000\ninactive_file 15000\n");
    ck_assert_uint_eq(ddp_memory_available(root), 70000);
}
END_TEST

START_TEST(a_full_group_has_nothing_left)
{
    write_file("/proc/self", "cgroup", "0::/job\n");
    write_file("/sys/fs/cgroup/job", "memory.max", "100000\n");
    write_file("/sys/fs/cgroup/job", "memory.current", "100001\n");
    ck_assert_uint_eq(ddp_memory_available(root), 0);
}
END_TEST

START_TEST(version_1_groups_are_read_too)
{
    write_file("/proc/self", "cgroup", "9:cpu,cpuacct:/x\n4:memory:/slurm/uid_1\n0::/\n");
    write_file("/sys/fs/cgroup/memory/slurm/uid_1", "memory.limit_in_bytes", "500000\n");
    write_file("/sys/fs/cgroup/memory/slurm/uid_1", "memory.usage_in_bytes", "200000\n");
    write_file("/sys/fs/cgroup/memory/slurm/uid_1", "memory.stat",
               "inactive_file 1\ntotal_inactive_file 1000\n");
    ck_assert_uint_eq(ddp_memory_available(root), 301000);
}
END_TEST

START_TEST(this_machine_has_some_memory)
{
    ck_assert_uint_gt(ddp_memory_available(""), 1000000);
    ck_assert_uint_lt(ddp_memory_available(""), (uint64_t)1 << 48);
}
END_TEST

START_TEST(address_space_is_what_its_limit_leaves)
{
    struct rlimit before;

    write_file("/proc/self", "status", "Name: x\nVmPeak:\t 9 kB\nVmSize:\t  1024 kB\nVmRSS:\t 5 kB\n");
    ck_assert_int_eq(getrlimit(RLIMIT_AS, &before), 0);
    ck_assert_int_eq(setrlimit(RLIMIT_AS, &(struct rlimit){(rlim_t)1 << 40, before.rlim_max}), 0);
    ck_assert_uint_eq(ddp_memory_address_space(root), ((uint64_t)1 << 40) - 1048576);
    ck_assert_uint_lt(ddp_memory_address_space(""), (uint64_t)1 << 40);
    ck_assert_int_eq(setrlimit(RLIMIT_AS, &before), 0);
    ck_assert(ddp_memory_address_space(root) == UINT64_MAX || before.rlim_cur != RLIM_INFINITY);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("memory");
    TCase *room  = tcase_create("free memory");

    tcase_add_checked_fixture(room, make_root, remove_root);
    tcase_add_test(room, without_groups_the_free_memory_counts);
    tcase_add_test(room, a_limit_of_a_group_counts_less_what_it_uses);
    tcase_add_test(room, file_pages_can_be_given_back);
    tcase_add_test(room, a_full_group_has_nothing_left);
    tcase_add_test(room, version_1_groups_are_read_too);
    tcase_add_test(room, this_machine_has_some_memory);
    tcase_add_test(room, address_space_is_what_its_limit_leaves);
    suite_add_tcase(suite, room);
    return suite;
}

int main(void)
{
    return ddp_test_run(make_suite());
}
