/* A line that was printed holds: every rank leaves by it, also one whose work comes to its end meanwhile. */
#include <mpi.h>
#include <stdatomic.h>

#include "ddp/comm.h"
#include "ddp/monitor.h"
#include "tests/support/ddp_test.h"

/* After half of it another rank speaks too, where the thread of the first is kept from running. */
#define TIMEOUT_MS 2000

static atomic_int said, left;

static void say(void *ctx, const ddp_verdict_t *verdict, const char *text)
{
    (void)ctx;
    (void)text;
    said += verdict->kind == DDP_FAULT_STUCK && verdict->rank == 0 ? 1 : 100;
}

/* A program would end here. */
static void leave(void *ctx, const ddp_verdict_t *verdict, bool speaks)
{
    (void)ctx;
    (void)speaks;
    (void)verdict;
    left++;
}

START_TEST(who_hangs_and_then_ends_well_leaves_all_the_same)
{
    ddp_comm_params_t    params  = DDP_COMM_PARAMS_INIT;
    ddp_monitor_params_t watch   = DDP_MONITOR_PARAMS_INIT;
    ddp_comm_t          *comm    = NULL;
    ddp_monitor_t       *monitor = NULL;
    int                  all     = 0;
    int                  here    = 0;

    params.parent     = MPI_COMM_WORLD;
    params.timeout_ms = TIMEOUT_MS;
    ddp_assert_ok(ddp_comm_create(&params, &comm));
    watch.comm  = comm;
    watch.say   = say;
    watch.leave = leave;
    ddp_assert_ok(ddp_monitor_create(&watch, &monitor));
    ddp_monitor_at(monitor, 1, DDP_STAGE_FORWARD, DDP_NO_BUCKET);
    if (ddp_comm_rank(comm) != 0) {
        ck_assert_int_ne(ddp_comm_barrier(comm), DDP_OK);
    }
    ddp_monitor_await(monitor, 20000); /* rank 0 does nothing until it is accused */
    ddp_monitor_destroy(&monitor);
    ck_assert_int_eq(left, 1);
    here = said;
    MPI_Allreduce(&here, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    ck_assert_int_eq(all, 1);
    ddp_comm_destroy(&comm);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("monitor_end");
    TCase *tcase = tcase_create("monitor_end");

    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, who_hangs_and_then_ends_well_leaves_all_the_same);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return ddp_test_run_mpi(&argc, &argv, make_suite);
}
