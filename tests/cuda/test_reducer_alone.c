/* The reducer over NCCL with one rank and without MPI: what is left are the streams and what orders them,
 * which the thread sanitizer watches. */
#include "tests/ddp/toy.h"
#include "tests/support/ddp_test.h"

static toy_params_t alone_params(bool shard)
{
    toy_params_t params = TOY_PARAMS_INIT;

    params.alone                    = 1;
    params.cuda                     = 1;
    params.reducer.backend          = DDP_REDUCER_NCCL;
    params.reducer.reduction        = DDP_REDUCTION_EXACT;
    params.reducer.shard            = shard;
    params.reducer.bucket_cap_bytes = 64 * 1024;
    return params;
}

START_TEST(updates_come_after_gradients_and_before_the_next_forward)
{
    const toy_params_t params = alone_params(false);

    ck_assert(toy_run(&params, 3, 8, 5));
}
END_TEST

START_TEST(so_they_do_when_they_wait_for_the_norm)
{
    toy_params_t params = alone_params(true);

    params.reducer.clip_norm = 0.25F;
    params.roles             = 1;
    ck_assert(toy_run(&params, 3, 8, 8));
}
END_TEST

/* The host does not wait for the end of a step. */
START_TEST(steps_follow_each_other)
{
    const toy_params_t params = alone_params(false);
    toy_t              toy;
    ddp_step_result_t  result;

    ddp_assert_ok(toy_create(&params, &toy));
    for (int s = 0; s < 4; s++) {
        ddp_assert_ok(toy_step(&toy, 0.1F, 8, NULL, &result));
        toy_reference_step(&toy, 0.1F, 8, NULL);
    }
    ddp_assert_ok(ddp_reducer_finish(toy.reducer));
    ck_assert(toy_equals_reference(&toy));
    toy_destroy(&toy);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("reducer_alone");
    TCase *tcase = tcase_create("core");

    tcase_add_test(tcase, updates_come_after_gradients_and_before_the_next_forward);
    tcase_add_test(tcase, so_they_do_when_they_wait_for_the_norm);
    tcase_add_test(tcase, steps_follow_each_other);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
