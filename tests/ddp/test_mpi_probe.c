/* What is asked of MPI before there is a communicator: versions, and whether messages arrive. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "ddp/mpi_probe.h"
#include "tests/support/ddp_test.h"

static int rank, size;

START_TEST(the_library_is_the_one_of_the_headers)
{
    char           text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int            length                               = 0;
    ddp_mpi_info_t info;

    ddp_mpi_probe(&info);
    ck_assert_int_eq(MPI_Get_library_version(text, &length), MPI_SUCCESS);
    ck_assert_uint_gt(strlen(info.library), 0);
    ck_assert_int_eq(strncmp(info.library, text, strlen(info.library)), 0);
    ck_assert_ptr_null(strchr(info.library, '\n'));
    ck_assert_int_eq(info.library_major, info.header_major);
    ck_assert_int_eq(info.library_minor, info.header_minor);
    ck_assert_int_ge(info.thread_level, MPI_THREAD_FUNNELED);
#ifdef OPEN_MPI
    ck_assert_int_eq(info.header_major, OMPI_MAJOR_VERSION);
    ck_assert_int_eq(info.yields, 1); /* as the tests' environment has it */
    ck_assert_str_eq(info.interfaces, "lo");
#endif
}
END_TEST

START_TEST(all_ranks_are_heard)
{
    MPI_Errhandler before = MPI_ERRHANDLER_NULL;
    MPI_Errhandler after  = MPI_ERRHANDLER_NULL;
    bool           is_kept;

    MPI_Comm_get_errhandler(MPI_COMM_WORLD, &before);
    for (int i = 0; i < 3; i++) {
        ddp_assert_all(ddp_mpi_roll_call(MPI_COMM_WORLD, 20000) == DDP_OK);
    }
    MPI_Comm_get_errhandler(MPI_COMM_WORLD, &after);
    is_kept = before == after;
    MPI_Errhandler_free(&before);
    MPI_Errhandler_free(&after);
    ck_assert(is_kept);
}
END_TEST

/* The last rank comes when rank 0 has given up. Who was heard hears of it, who was not is told nothing. */
START_TEST(a_rank_that_does_not_come_is_named)
{
    const struct timespec late = {2, 0};
    MPI_Comm              parent;
    ddp_status_t          status;
    char                  name[32];

    if (size == 1) {
        return;
    }
    MPI_Comm_dup(MPI_COMM_WORLD, &parent); /* not freed: messages may be under way */
    if (rank == size - 1) {
        (void)nanosleep(&late, NULL);
    }
    status = ddp_mpi_roll_call(parent, 500);
    if (rank == 0) {
        (void)snprintf(name, sizeof(name), "from rank %d within 0.5 s", size - 1);
        ddp_assert_all(status == DDP_ERR_TIMEOUT && strstr(ddp_error_line(), name) != NULL);
    } else if (rank < size - 1) {
        ddp_assert_all(status == DDP_ERR_REMOTE && strstr(ddp_error_line(), "1 rank") != NULL);
    } else {
        (void)snprintf(name, sizeof(name), "rank %d on ", rank);
        ddp_assert_all(status == DDP_ERR_TIMEOUT && strstr(ddp_error_line(), name) != NULL);
    }
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("mpi_probe");
    TCase *tcase = tcase_create("all");

    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    tcase_add_test(tcase, the_library_is_the_one_of_the_headers);
    tcase_add_test(tcase, all_ranks_are_heard);
    tcase_add_test(tcase, a_rank_that_does_not_come_is_named);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return ddp_test_run_mpi(&argc, &argv, make_suite);
}
