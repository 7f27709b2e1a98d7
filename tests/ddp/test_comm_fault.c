/* Every step of making a communicator fails on every rank in turn: all ranks hear of it, nobody hangs,
 * nothing is left. */
#include <dirent.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "ddp/comm.h"
#include "tests/support/ddp_test.h"

#define TIMEOUT_MS 10000

static int world_rank, world_size;

static size_t count_open_files(void)
{
    DIR   *folder = opendir("/proc/self/fd");
    size_t n      = 0;

    while (folder != NULL && readdir(folder) != NULL) {
        n++;
    }
    if (folder != NULL) {
        closedir(folder);
    }
    return n;
}

static size_t count_mappings(void)
{
    FILE  *maps = fopen("/proc/self/maps", "re");
    char   line[512];
    size_t n = 0;

    while (maps != NULL && fgets(line, sizeof(line), maps) != NULL) {
        n += strstr(line, "memfd:ddptrain") != NULL || strstr(line, "/dev/shm/ddptrain") != NULL ? 1 : 0;
    }
    if (maps != NULL) {
        fclose(maps);
    }
    return n;
}

static void create_with_fault(const char *point, int rank)
{
    ddp_comm_params_t params = DDP_COMM_PARAMS_INIT;
    ddp_comm_t       *comm   = NULL;
    const int64_t     start  = ddp_clock_ns();
    const size_t      files  = count_open_files();
    ddp_status_t      status;
    char              fault[64];
    int               culprits;
    bool              is_told;

    params.parent     = MPI_COMM_WORLD;
    params.timeout_ms = TIMEOUT_MS;
    snprintf(fault, sizeof(fault), "%s:%d", point, rank);
    setenv("DDP_FAULT", fault, 1);
    status = ddp_comm_create(&params, &comm);
    unsetenv("DDP_FAULT");
    culprits = status == DDP_ERR_SYSTEM ? 1 : 0;
    MPI_Allreduce(MPI_IN_PLACE, &culprits, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    is_told = culprits == 1 && (status == DDP_ERR_SYSTEM || status == DDP_ERR_REMOTE) &&
              strstr(ddp_error_line(), "planted fault") != NULL && strstr(ddp_error_line(), point) != NULL;
    if (!is_told) {
        fprintf(stderr, "rank %d, %s: %s (%s)\n", world_rank, fault, ddp_status_name(status),
                ddp_error_line());
    }
    ddp_assert_all(is_told && comm == NULL);
    ddp_assert_all(ddp_clock_ns() - start < TIMEOUT_MS * DDP_NS_PER_MS);
    ddp_assert_all(count_open_files() <= files && count_mappings() == 0);
}

START_TEST(a_step_that_fails_on_one_rank_fails_on_all)
{
    static const char *const points[] = {"comm_dup",      "comm_hello",    "comm_split_type", "comm_split",
                                         "comm_dup_data", "window_create", "window_map",      "comm_hall"};
    const char              *shm      = getenv("DDP_HOST_SHM");

    for (size_t p = 0; p < sizeof(points) / sizeof(points[0]); p++) {
        if (shm != NULL && strcmp(shm, "0") == 0 && strcmp(points[p], "comm_split_type") == 0) {
            continue; /* not a step there */
        }
        for (int rank = 0; rank < world_size; rank++) {
            create_with_fault(points[p], rank);
        }
    }
}
END_TEST

START_TEST(a_window_that_fails_on_one_rank_fails_on_its_machine)
{
    static const char *const points[] = {"window_create", "window_map"};
    ddp_comm_params_t        params   = DDP_COMM_PARAMS_INIT;
    ddp_comm_t              *comm     = NULL;
    void                    *memory   = NULL;
    char                     fault[64];
    size_t                   before;

    params.parent     = MPI_COMM_WORLD;
    params.timeout_ms = TIMEOUT_MS;
    ddp_assert_ok(ddp_comm_create(&params, &comm));
    before = count_mappings();
    for (size_t p = 0; p < 2; p++) {
        ddp_status_t status;
        bool         is_here;
        bool         is_mine;

        snprintf(fault, sizeof(fault), "%s:%d", points[p], world_size - 1);
        setenv("DDP_FAULT", fault, 1);
        status = ddp_comm_agree(comm, ddp_comm_shared(comm, "a test", 100000, &memory));
        unsetenv("DDP_FAULT");
        is_here = ddp_comm_rank(comm) == world_size - 1;
        ddp_assert_all(status == (is_here ? DDP_ERR_SYSTEM : DDP_ERR_REMOTE));
        ddp_assert_all(strstr(ddp_error_line(), "planted fault") != NULL);
        is_mine = ddp_comm_machine(comm) == ddp_comm_machines(comm) - 1; /* the others have their window */
        ddp_assert_all(!is_mine || (memory == NULL && count_mappings() == before));
    }
    ddp_assert_ok(ddp_comm_shared(comm, "a test", 100000, &memory));
    ddp_assert_ok(ddp_comm_barrier(comm));
    ddp_comm_destroy(&comm);
}
END_TEST

START_TEST(shm_open_takes_over_where_memfd_is_refused)
{
    ddp_comm_params_t params = DDP_COMM_PARAMS_INIT;
    ddp_comm_t       *comm   = NULL;
    void             *memory = NULL;

    params.parent = MPI_COMM_WORLD;
    params.shm    = DDP_SHM_MEMFD;
    setenv("DDP_FAULT", "memfd_create:0", 1);
    ddp_assert_ok(ddp_comm_create(&params, &comm));
    ddp_assert_ok(ddp_comm_shared(comm, "a test", 100000, &memory));
    unsetenv("DDP_FAULT");
    ((int *)memory)[ddp_comm_local_rank(comm)] = 1 + ddp_comm_local_rank(comm);
    ddp_assert_ok(ddp_comm_barrier(comm));
    ddp_assert_all(((int *)memory)[ddp_comm_local_size(comm) - 1] == ddp_comm_local_size(comm));
    ddp_assert_ok(ddp_comm_barrier(comm));
    ddp_comm_destroy(&comm);
}
END_TEST

START_TEST(modes_of_shared_memory_that_differ_are_named)
{
    ddp_comm_params_t params = DDP_COMM_PARAMS_INIT;
    ddp_comm_t       *comm   = NULL;
    ddp_status_t      status;

    if (world_size == 1) {
        return;
    }
    params.parent = MPI_COMM_WORLD;
    params.shm    = world_rank == world_size - 1 ? DDP_SHM_OFF : DDP_SHM_MEMFD;
    status        = ddp_comm_create(&params, &comm);
    ddp_assert_all(status == DDP_ERR_MISMATCH && comm == NULL);
    ck_assert_msg(strstr(ddp_error_line(), "shared memory is off for rank") != NULL, "%s", ddp_error_line());
}
END_TEST

START_TEST(an_unknown_word_in_the_environment_is_refused_on_all)
{
    ddp_comm_params_t params = DDP_COMM_PARAMS_INIT;
    ddp_comm_t       *comm   = NULL;
    const char       *before = getenv("DDP_HOST_SHM");
    char              kept[16];
    ddp_status_t      status;

    snprintf(kept, sizeof(kept), "%s", before != NULL ? before : "");
    params.parent = MPI_COMM_WORLD;
    if (world_rank == world_size - 1) {
        setenv("DDP_HOST_SHM", "yes", 1);
    }
    status = ddp_comm_create(&params, &comm);
    setenv("DDP_HOST_SHM", kept, 1);
    ddp_assert_all(status == (world_rank == world_size - 1 ? DDP_ERR_CONFIG : DDP_ERR_REMOTE));
    ddp_assert_all(strstr(ddp_error_line(), "DDP_HOST_SHM is 'yes'; it can be 1, 0 or posix") != NULL);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("comm_fault");
    TCase *fault = tcase_create("planted faults");

    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    tcase_add_test(fault, a_step_that_fails_on_one_rank_fails_on_all);
    tcase_add_test(fault, a_window_that_fails_on_one_rank_fails_on_its_machine);
    tcase_add_test(fault, shm_open_takes_over_where_memfd_is_refused);
    tcase_add_test(fault, modes_of_shared_memory_that_differ_are_named);
    tcase_add_test(fault, an_unknown_word_in_the_environment_is_refused_on_all);
    suite_add_tcase(suite, fault);
    return suite;
}

int main(int argc, char **argv)
{
    return ddp_test_run_mpi(&argc, &argv, make_suite);
}
