/* The reducer where a rank takes its time: waited for while it moves, given up while it does not. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/ddp/toy.h"
#include "tests/support/ddp_test.h"

#define TIMEOUT_MS 1000

static int world_rank, world_size;

/* A step of one micro-batch per rank that rests before each gradient. */
static ddp_status_t slow_backward(toy_t *toy, useconds_t rest_us)
{
    const ddp_step_t  step              = {.lr = 0.1F, .samples = toy->params.micro_batches};
    const uint8_t     used[TOY_TENSORS] = {1, 1, 1, 1, 1, 1};
    ddp_status_t      status            = DDP_OK;
    float            *grads             = NULL;
    bool              accumulate        = false;
    ddp_step_result_t result;
    size_t            first;
    size_t            count;

    ddp_reducer_range(toy->reducer, &first, &count);
    DDP_TRY(ddp_reducer_step_begin(toy->reducer, &step));
    DDP_TRY(ddp_reducer_micro_begin(toy->reducer, first, &grads, &accumulate));
    DDP_TRY(ddp_reducer_forward_done(toy->reducer, &toy->stats[first], used));
    for (size_t i = TOY_TENSORS; i-- > 0;) {
        usleep(rest_us);
        DDP_TRY(ddp_reducer_ready(toy->reducer, i));
    }
    DDP_TRY(ddp_reducer_micro_end(toy->reducer));
    DDP_TRY(ddp_reducer_step_end(toy->reducer, &result));
    DDP_TRY(ddp_reducer_finish(toy->reducer));
out:
    return status;
}

static void open_toy(toy_t *toy)
{
    toy_params_t params = TOY_PARAMS_INIT;

    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    params.micro_batches             = (size_t)world_size;
    params.timeout_ms                = TIMEOUT_MS;
    params.reducer.tail_bucket_bytes = 0; /* one bucket: no flag until the last gradient */
    ddp_assert_all(toy_create(&params, toy) == DDP_OK);
}

static ddp_status_t rest(void *args)
{
    usleep(*(const useconds_t *)args);
    return DDP_OK;
}

/* Operations on the compute stream, none longer than the timeout, all together twice as long. */
static ddp_status_t slow_forward(toy_t *toy, useconds_t rest_us)
{
    const ddp_step_t  step              = {.lr = 0.1F, .samples = toy->params.micro_batches};
    const uint8_t     used[TOY_TENSORS] = {0};
    ddp_status_t      status            = DDP_OK;
    float            *grads             = NULL;
    bool              accumulate        = false;
    ddp_step_result_t result;
    size_t            first;
    size_t            count;

    ddp_reducer_range(toy->reducer, &first, &count);
    DDP_TRY(ddp_reducer_step_begin(toy->reducer, &step));
    DDP_TRY(ddp_reducer_micro_begin(toy->reducer, first, &grads, &accumulate));
    for (int i = 0; i < 10; i++) {
        DDP_TRY(ddp_stream_submit(toy->compute, "rest", rest, &rest_us, sizeof(rest_us)));
    }
    DDP_TRY(ddp_reducer_forward_done(toy->reducer, &toy->stats[first], used));
    DDP_TRY(ddp_reducer_micro_end(toy->reducer));
    DDP_TRY(ddp_reducer_step_end(toy->reducer, &result));
    DDP_TRY(ddp_reducer_finish(toy->reducer));
out:
    return status;
}

START_TEST(a_rank_whose_forward_takes_longer_than_the_timeout_is_waited_for)
{
    toy_t toy;

    open_toy(&toy);
    if (ddp_comm_machines(toy.comm) == 1) {
        ddp_assert_all(slow_forward(&toy, world_rank == 1 ? 2 * TIMEOUT_MS * 100 : 0) == DDP_OK);
    }
    toy_destroy(&toy);
}
END_TEST

START_TEST(a_rank_whose_backward_takes_longer_than_the_timeout_is_waited_for)
{
    toy_t toy;

    open_toy(&toy);
    if (ddp_comm_machines(toy.comm) == 1) { /* the progress of another machine cannot be seen */
        ddp_assert_all(slow_backward(&toy, world_rank == 1 ? 300000 : 0) == DDP_OK);
    }
    toy_destroy(&toy);
}
END_TEST

/* Rank 1 sends its gradients when rank 0 has long given up, freed everything and uses MPI for other things.
 */
START_TEST(gradients_that_arrive_after_the_end_do_no_harm)
{
    toy_t        toy;
    char        *memory[64];
    ddp_status_t status;
    bool         is_clean = true;
    int          machines;

    open_toy(&toy);
    machines = ddp_comm_machines(toy.comm);
    status   = machines == 1 ? DDP_OK : slow_backward(&toy, world_rank == 1 ? 400000 : 0);
    toy_destroy(&toy);
    for (size_t i = 0; i < 64; i++) { /* what was freed is taken again */
        memory[i] = calloc(1, (size_t)100000);
        ck_assert_ptr_nonnull(memory[i]);
    }
    MPI_Barrier(MPI_COMM_WORLD); /* rank 1 comes here later; its messages arrive meanwhile */
    for (size_t i = 0; i < 64; i++) {
        for (size_t k = 0; k < 100000; k++) {
            is_clean = is_clean && memory[i][k] == 0;
        }
        free(memory[i]);
    }
    ddp_assert_all(is_clean);
    ddp_assert_all(machines == 1 || world_rank == 1 || status == DDP_ERR_TIMEOUT);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("reducer_late");
    TCase *tcase = tcase_create("late ranks");

    tcase_add_test(tcase, a_rank_whose_forward_takes_longer_than_the_timeout_is_waited_for);
    tcase_add_test(tcase, a_rank_whose_backward_takes_longer_than_the_timeout_is_waited_for);
    tcase_add_test(tcase, gradients_that_arrive_after_the_end_do_no_harm);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return ddp_test_run_mpi(&argc, &argv, make_suite);
}
