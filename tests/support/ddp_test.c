#include "tests/support/ddp_test.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int ddp_test_run(Suite *suite)
{
    SRunner *runner = srunner_create(suite);
    int      failed;

    srunner_set_fork_status(runner, CK_NOFORK);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

int ddp_test_run_mpi(int *argc, char ***argv, Suite *(*make_suite)(void))
{
    SRunner *runner;
    int      provided = 0;
    int      rank     = 0;
    int      failed;

    if (MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS ||
        provided < MPI_THREAD_FUNNELED) {
        fprintf(stderr, "MPI_Init_thread failed\n");
        return EXIT_FAILURE;
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    runner = srunner_create(make_suite());
    srunner_set_fork_status(runner, CK_NOFORK);
    srunner_run_all(runner, rank == 0 ? CK_NORMAL : CK_MINIMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    MPI_Finalize();
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

bool ddp_test_all(bool here)
{
    int all = here ? 1 : 0;

    MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    return all != 0;
}
