/* bfloat16 between the ranks of the reducer over NCCL: what it carries, and what it cannot. */
#include "tests/cuda/nccl_toy.h"
#include "tests/support/ddp_test.h"

static float huge_gradient(uint64_t step, size_t leaf, size_t tensor, size_t element, float drawn)
{
    if (step == 1 && tensor == 0 && element == 3 && leaf == 0) {
        return 3.4e38F; /* rounds to infinity as a bfloat16 */
    }
    return drawn;
}

/* Small integers are bfloat16 numbers, and so are their sums. */
START_TEST(the_wire_may_be_bfloat16_and_says_what_it_could_not_carry)
{
    for (int shard = 0; shard < 2; shard++) {
        toy_params_t      params = cuda_params(DDP_REDUCTION_FAST, shard);
        toy_t             toy;
        ddp_step_result_t result;

        params.reducer.wire = DDP_WIRE_BF16;
        ddp_assert_all(toy_run(&params, 2, 64, 64));
        params.plant = huge_gradient;
        ddp_assert_all(toy_create(&params, &toy) == DDP_OK);
        ddp_assert_all(toy_step(&toy, 0.1F, 64, NULL, &result) == DDP_OK);
        if (ddp_comm_size(toy.comm) == 1) { /* nothing goes over a wire */
            ddp_assert_all(ddp_reducer_finish(toy.reducer) == DDP_OK);
        } else {
            ddp_assert_all(ddp_reducer_finish(toy.reducer) == DDP_ERR_NOT_FINITE);
        }
        toy_destroy(&toy);
    }
}
END_TEST

/* Numbers that become infinite as bfloat16: in step 2 one by leaf 0 and two by the last one, which the last
 * rank has, one of them at the place of the first. In step 4 one. */
static float lossy_gradient(uint64_t step, size_t leaf, size_t tensor, size_t element, float drawn)
{
    const bool is_first  = leaf == 0 && element == 3;
    const bool is_second = leaf == 7 && (element == 3 || element == 5);

    if ((step == 2 && tensor == 1 && (is_first || is_second)) || (step == 4 && tensor == 2 && is_first)) {
        return 3.4e38F;
    }
    return drawn;
}

/* Each rank has seen only what it sent, and what came back to its slice. Skipped, so that training goes on.
 */
START_TEST(what_the_wire_could_not_carry_is_counted_over_all_ranks)
{
    for (int shard = 0; shard < 2; shard++) {
        static const uint64_t lost[6] = {0, 0,     3 + 2,
                                         0, 1 + 1, 0}; /* sent, and infinite sums; a step later */
        toy_params_t          params  = cuda_params(DDP_REDUCTION_FAST, shard);
        toy_t                 toy;
        ddp_step_result_t     result;

        params.reducer.wire      = DDP_WIRE_BF16;
        params.reducer.nonfinite = DDP_NONFINITE_SKIP;
        params.plant             = lossy_gradient;
        ddp_assert_all(toy_create(&params, &toy) == DDP_OK);
        for (int s = 0; s < 6; s++) {
            ddp_assert_all(toy_step(&toy, 0.1F, 64, NULL, &result) == DDP_OK);
            ddp_assert_all(result.wire_overflows == (ddp_comm_size(toy.comm) > 1 ? lost[s] : 0));
        }
        toy_destroy(&toy);
    }
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("bfloat16 between ranks");
    TCase *tcase = tcase_create("wire");

    tcase_add_test(tcase, the_wire_may_be_bfloat16_and_says_what_it_could_not_carry);
    tcase_add_test(tcase, what_the_wire_could_not_carry_is_counted_over_all_ranks);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return ddp_test_run_mpi(&argc, &argv, make_suite);
}
