#include <string.h>

#include "tests/ddp/toy.h"
#include "tests/support/ddp_test.h"

enum { N = 300, AT = 77 };

/* Of rank 0's values for all, so that a rank that is no writer would be noticed. */
static void write_numbers(toy_t *toy, int array, float first)
{
    float numbers[N];

    for (int i = 0; i < N; i++) {
        numbers[i] = ddp_reducer_is_writer(toy->reducer, ddp_comm_rank(toy->comm)) ? first + (float)i : -1.0F;
    }
    ddp_assert_all(ddp_reducer_write(toy->reducer, array, AT, N, numbers) == DDP_OK);
}

static bool has_numbers(toy_t *toy, int array, float first)
{
    float numbers[N + 2] = {-3.0F};
    bool  same           = true;

    numbers[N + 1] = -4.0F;
    if (ddp_reducer_read(toy->reducer, array, AT, N, numbers + 1) != DDP_OK) {
        return false;
    }
    for (int i = 0; i < N; i++) {
        same = same && numbers[i + 1] == first + (float)i;
    }
    return same && numbers[0] == -3.0F && numbers[N + 1] == -4.0F;
}

START_TEST(what_writers_write_is_read_on_every_rank_after_publish)
{
    toy_params_t params = TOY_PARAMS_INIT;
    toy_t        toy;

    ddp_assert_all(toy_create(&params, &toy) == DDP_OK);
    ddp_assert_all(ddp_reducer_slots(toy.reducer) == 2);
    for (int array = DDP_REDUCER_VALUES; array < 2; array++) {
        write_numbers(&toy, array, (float)(1000 * array));
    }
    ddp_assert_all(ddp_reducer_publish(toy.reducer) == DDP_OK);
    for (int array = DDP_REDUCER_VALUES; array < 2; array++) {
        ddp_assert_all(has_numbers(&toy, array, (float)(1000 * array)));
    }
    toy_destroy(&toy);
}
END_TEST

START_TEST(rank_0_writes_and_one_of_each_machine)
{
    toy_params_t params  = TOY_PARAMS_INIT;
    int          writers = 0;
    toy_t        toy;

    ddp_assert_all(toy_create(&params, &toy) == DDP_OK);
    ddp_assert_all(ddp_reducer_is_writer(toy.reducer, 0));
    for (int rank = 0; rank < ddp_comm_size(toy.comm); rank++) {
        writers += ddp_reducer_is_writer(toy.reducer, rank) ? 1 : 0;
    }
    ddp_assert_all(writers == ddp_comm_machines(toy.comm));
    ddp_assert_all(ddp_reducer_is_writer(toy.reducer, ddp_comm_rank(toy.comm)) ==
                   (ddp_comm_local_rank(toy.comm) == 0));
    toy_destroy(&toy);
}
END_TEST

START_TEST(an_array_that_is_not_there_or_ends_before_is_invalid)
{
    toy_params_t params = TOY_PARAMS_INIT;
    float        x[2]   = {7.0F, 7.0F};
    size_t       count  = 0;
    toy_t        toy;

    ddp_assert_all(toy_create(&params, &toy) == DDP_OK);
    ddp_assert_all(ddp_reducer_read(toy.reducer, 2, 0, 1, x) == DDP_ERR_INVALID_ARG);
    ddp_assert_all(strstr(ddp_error_line(), "no array 2") != NULL);
    ddp_assert_all(ddp_reducer_write(toy.reducer, -2, 0, 1, x) == DDP_ERR_INVALID_ARG);
    ddp_assert_all(ddp_reducer_read(toy.reducer, 0, toy.total - 1, 2, x) == DDP_ERR_INVALID_ARG);
    ddp_assert_all(ddp_reducer_read(toy.reducer, 0, toy.total + 1, 0, x) == DDP_ERR_INVALID_ARG);
    ddp_assert_all(x[0] == 7.0F && x[1] == 7.0F);
    ddp_assert_all(ddp_reducer_read(toy.reducer, 0, toy.total, 0, x) == DDP_OK);
    ddp_assert_all(ddp_reducer_holder(toy.reducer, 1, 5, &count) == DDP_REDUCER_EVERYBODY);
    ddp_assert_all(count == toy.total - 5);
    toy_destroy(&toy);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("reducer array");
    TCase *tcase = tcase_create("read and write");

    tcase_add_test(tcase, what_writers_write_is_read_on_every_rank_after_publish);
    tcase_add_test(tcase, rank_0_writes_and_one_of_each_machine);
    tcase_add_test(tcase, an_array_that_is_not_there_or_ends_before_is_invalid);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return ddp_test_run_mpi(&argc, &argv, make_suite);
}
