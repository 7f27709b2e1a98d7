/* A checkpoint knows nothing of devices: what was saved by one kind and number of ranks goes on with any
 * other, bit for bit (with the plain instruction set, which is what the kernels of GPUs round like). */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "io/saver.h"
#include "tests/ddp/toy.h"
#include "tests/io/io_test.h"
#include "tests/support/ddp_test.h"

#define STEPS   2
#define SAMPLES 61

static char top[IO_TEST_PATH];
static int  rank;

typedef struct kind {
    const char           *name;
    int                   ranks;
    int                   cuda;
    ddp_reducer_backend_t backend;
    bool                  shard;
} kind_t;

static const kind_t kinds[] = {
    {"the cpu alone", 1, 0, DDP_REDUCER_HOST, false},
    {"three cpu ranks", 3, 0, DDP_REDUCER_HOST, false},
    {"one gpu", 1, 1, DDP_REDUCER_NCCL, false},
    {"two gpus through the host", 2, 1, DDP_REDUCER_HOST, false},
    {"two gpus", 2, 1, DDP_REDUCER_NCCL, false},
    {"two gpus, moments sharded", 2, 1, DDP_REDUCER_NCCL, true},
    {"three gpus, moments sharded", 3, 1, DDP_REDUCER_NCCL, true},
};
#define KINDS ((int)(sizeof(kinds) / sizeof(kinds[0])))

static ddp_status_t open_toy(const kind_t *kind, toy_t *toy)
{
    toy_params_t params = TOY_PARAMS_INIT;

    params.ranks                    = kind->ranks;
    params.cuda                     = kind->cuda;
    params.roles                    = 1;
    params.reducer.backend          = kind->backend;
    params.reducer.shard            = kind->shard;
    params.reducer.reduction        = DDP_REDUCTION_EXACT;
    params.reducer.bucket_cap_bytes = 64 * 1024;
    return toy_create(&params, toy);
}

static ddp_status_t check(const toy_t *toy, const char *what)
{
    return toy_equals_reference(toy) ? DDP_OK : ddp_fail(DDP_ERR_MISMATCH, "other parameters than %s", what);
}

static ddp_status_t run_steps(toy_t *toy)
{
    ddp_status_t      status = DDP_OK;
    ddp_step_result_t result;

    for (int s = 0; s < STEPS; s++) {
        DDP_TRY(toy_step(toy, 0.01F, SAMPLES, NULL, &result));
        DDP_TRY(ddp_reducer_finish(toy->reducer));
        toy_reference_step(toy, 0.01F, SAMPLES, NULL);
        DDP_TRY(check(toy, "the reference"));
        DDP_TRY(ddp_comm_barrier(toy->comm));
    }
out:
    return status;
}

static ddp_status_t write_checkpoint(toy_t *toy, char *path)
{
    const ddp_training_state_t state  = {.step          = STEPS,
                                         .seed          = 7,
                                         .micro_batches = toy->params.micro_batches,
                                         .isa           = "plain",
                                         .optimizer     = "adamw",
                                         .n_slots       = 2,
                                         .slot          = {"exp_avg", "exp_avg_sq"},
                                         .data          = "toy",
                                         .config        = "model: {kind: toy}\n",
                                         .producer      = "a test",
                                         .best_loss     = 0.25};
    ddp_status_t               status = DDP_OK;
    ddp_saver_params_t         params = DDP_SAVER_PARAMS_INIT;
    ddp_saver_t               *saver  = NULL;
    ddp_save_result_t          result;

    params.comm      = toy->comm;
    params.reducer   = toy->reducer;
    params.tensors   = toy->tensors;
    params.n_tensors = TOY_TENSORS;
    params.folder    = top;
    DDP_TRY(ddp_saver_create(&params, &saver));
    DDP_TRY(ddp_saver_save(saver, &state, false));
    DDP_TRY(ddp_saver_finish(saver));
    if (rank == 0) {
        DDP_REQUIRE(ddp_saver_poll(saver, &result) && result.is_saved, DDP_ERR_IO, "not saved: %s",
                    result.why);
        snprintf(path, IO_TEST_PATH, "%s", result.path);
    }
out:
    ddp_saver_destroy(&saver);
    return status;
}

/* By the first ranks; rank 0 learns the file. */
static ddp_status_t save(const kind_t *kind, char *path)
{
    ddp_status_t status = DDP_OK;
    toy_t        toy;

    DDP_TRY(open_toy(kind, &toy));
    DDP_TRY(run_steps(&toy));
    DDP_TRY(write_checkpoint(&toy, path));
out:
    toy_destroy(&toy);
    return status;
}

static ddp_status_t resume(const kind_t *kind, const char *path)
{
    ddp_status_t      status     = DDP_OK;
    ddp_checkpoint_t *checkpoint = NULL;
    toy_t             toy;

    DDP_TRY(open_toy(kind, &toy));
    for (int s = 0; s < STEPS; s++) { /* what the saved run did */
        toy.step++;
        toy_reference_step(&toy, 0.01F, SAMPLES, NULL);
    }
    if (rank == 0) {
        DDP_TRY(ddp_checkpoint_open(path, &checkpoint));
    }
    DDP_TRY(ddp_checkpoint_restore(toy.comm, toy.reducer, toy.tensors, TOY_TENSORS, checkpoint, false));
    DDP_TRY(check(&toy, "were saved"));
    DDP_TRY(run_steps(&toy));
out:
    ddp_checkpoint_close(&checkpoint);
    toy_destroy(&toy);
    return status;
}

static bool is_fine(ddp_status_t status, const kind_t *saved, const kind_t *resumed)
{
    if (status != DDP_OK) {
        fprintf(stderr, "rank %d: saved by %s, resumed by %s: %s\n", rank, saved->name,
                resumed != NULL ? resumed->name : "nobody yet", ddp_error_line());
    }
    return status == DDP_OK;
}

START_TEST(a_run_goes_on_with_any_devices_and_ranks)
{
    const kind_t *saved = &kinds[_i];
    char          path[IO_TEST_PATH];
    bool          fine = rank >= saved->ranks || is_fine(save(saved, path), saved, NULL);

    ddp_assert_all(fine);
    for (int k = 0; k < KINDS; k++) {
        fine = rank >= kinds[k].ranks || is_fine(resume(&kinds[k], path), saved, &kinds[k]);
        ddp_assert_all(fine);
    }
}
END_TEST

static void setup(void)
{
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0) {
        io_test_make(top);
    }
    MPI_Bcast(top, sizeof(top), MPI_CHAR, 0, MPI_COMM_WORLD);
}

static void teardown(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        io_test_remove(top);
    }
}

static Suite *make_suite(void)
{
    Suite *suite = suite_create("resume across devices");
    TCase *tcase = tcase_create("checkpoints");

    tcase_add_unchecked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, a_run_goes_on_with_any_devices_and_ranks, 0, KINDS);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return ddp_test_run_mpi(&argc, &argv, make_suite);
}
