/* DataParallel on K devices of one process trains what DDP trains on K ranks: run by mpirun. */
#include <mpi.h>
#include <string.h>

#include "tests/dp_compat/dp_job.h"

#define STEPS 3

/* Ranks together, then as many devices on each rank by itself. */
static void assert_same_as_ranks(dp_setup_t setup, size_t last)
{
    char ranks[DP_JOB_HASH], devices[DP_JOB_HASH];
    int  size = 0;

    MPI_Comm_size(MPI_COMM_WORLD, &size);
    setup.reducer.micro_batches = (size_t)size;
    setup.ranks                 = true;
    dp_job_hash(&setup, STEPS, last, ranks);
    setup.ranks   = false;
    setup.devices = (size_t)size;
    dp_job_hash(&setup, STEPS, last, devices);
    ddp_assert_all(strcmp(ranks, devices) == 0);
}

START_TEST(an_mlp_with_dropout)
{
    dp_setup_t setup = DP_SETUP_INIT;

    setup.model.dropout = 0.2F;
    assert_same_as_ranks(setup, 12);
}
END_TEST

START_TEST(a_cnn_with_clipping_and_a_ragged_batch)
{
    dp_setup_t setup = DP_SETUP_INIT;

    setup.model = (ddp_model_config_t){
        .kind = DDP_MODEL_CNN, .height = 9, .width = 8, .channels = 1, .classes = 5, .dropout = 0.3F};
    setup.reducer.clip_norm = 0.5F;
    setup.ignore            = true;
    assert_same_as_ranks(setup, 11);
}
END_TEST

START_TEST(with_the_loss_inside_of_the_replicas)
{
    dp_setup_t setup = DP_SETUP_INIT;

    setup.loss_at = DDP_DP_LOSS_INSIDE;
    assert_same_as_ranks(setup, 7);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("dp ranks");
    TCase *tcase = tcase_create("devices and ranks");

    tcase_add_test(tcase, an_mlp_with_dropout);
    tcase_add_test(tcase, a_cnn_with_clipping_and_a_ragged_batch);
    tcase_add_test(tcase, with_the_loss_inside_of_the_replicas);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return ddp_test_run_mpi(&argc, &argv, make_suite);
}
