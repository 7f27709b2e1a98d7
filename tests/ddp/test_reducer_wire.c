/* What the reducer does between machines when it need not keep the tree: every exchange, and bfloat16 on the
 * wire. Gradients are small integers, whose sums are exact in any order and in bfloat16. */
#include <float.h>
#include <string.h>

#include "tests/ddp/toy.h"
#include "tests/support/ddp_test.h"

static const ddp_exchange_kind_t kinds[] = {DDP_EXCHANGE_AUTO, DDP_EXCHANGE_DIRECT, DDP_EXCHANGE_RING,
                                            DDP_EXCHANGE_HALVING};

static toy_params_t fast(ddp_exchange_kind_t kind)
{
    toy_params_t params = TOY_PARAMS_INIT;

    params.integers          = 1;
    params.reducer.reduction = DDP_REDUCTION_FAST;
    params.reducer.exchange  = kind;
    return params;
}

START_TEST(every_exchange_gives_the_sum)
{
    for (size_t k = 0; k < 4; k++) {
        toy_params_t params = fast(kinds[k]);

        ddp_assert_all(
            toy_run(&params, 3, 64, 3)); /* the last step has something for the first ranks alone */
        params.reducer.bucket_cap_bytes = 64 * 1024;
        ddp_assert_all(toy_run(&params, 3, 64, 64));
    }
}
END_TEST

START_TEST(every_exchange_gives_the_sum_before_updates_begin)
{
    for (size_t k = 1; k < 4; k++) {
        toy_params_t params = fast(kinds[k]);

        params.reducer.clip_norm        = 0.25F;
        params.reducer.bucket_cap_bytes = 32 * 1024;
        params.rank_to_delay            = 1;
        ddp_assert_all(toy_run(&params, 3, 64, 61));
    }
}
END_TEST

START_TEST(bfloat16_on_the_wire_gives_the_sum_where_it_is_exact)
{
    for (size_t k = 0; k < 4; k++) {
        toy_params_t params = fast(kinds[k]);

        params.reducer.wire = DDP_WIRE_BF16;
        ddp_assert_all(toy_run(&params, 3, 64, 3));
    }
}
END_TEST

static float plant_large(uint64_t step, size_t leaf, size_t tensor, size_t element, float drawn)
{
    return step == 2 && leaf == 0 && tensor == 3 && element < 5 ? FLT_MAX : drawn;
}

/* All ranks hear of them with the next step; on one machine nothing is rounded. */
START_TEST(values_too_large_for_the_wire_are_counted_over_all_ranks)
{
    toy_params_t      params = fast(DDP_EXCHANGE_AUTO);
    toy_t             toy;
    ddp_step_result_t result[3];

    params.reducer.wire      = DDP_WIRE_BF16;
    params.reducer.nonfinite = DDP_NONFINITE_SKIP;
    params.plant             = plant_large;
    ddp_assert_all(toy_create(&params, &toy) == DDP_OK);
    for (int s = 0; s < 3; s++) {
        ddp_assert_all(toy_step(&toy, 0.1F, 64, NULL, &result[s]) == DDP_OK);
    }
    ddp_assert_all(result[0].wire_overflows == 0 && result[1].wire_overflows == 0);
    ddp_assert_all(result[2].wire_overflows == (ddp_comm_machines(toy.comm) > 1 ? 5 : 0));
    ddp_assert_all(result[1].skipped == (ddp_comm_machines(toy.comm) > 1));
    toy_destroy(&toy);
}
END_TEST

START_TEST(what_would_change_exact_bits_is_refused)
{
    toy_params_t params = TOY_PARAMS_INIT;
    toy_t        toy;

    params.reducer.wire = DDP_WIRE_BF16;
    ddp_assert_all(toy_create(&params, &toy) == DDP_ERR_INVALID_ARG);
    ddp_assert_all(strstr(ddp_error_line(), "ddp.wire bf16 rounds") != NULL);
    toy_destroy(&toy);
    params                  = (toy_params_t)TOY_PARAMS_INIT;
    params.reducer.exchange = DDP_EXCHANGE_RING;
    ddp_assert_all(toy_create(&params, &toy) == DDP_ERR_INVALID_ARG);
    ddp_assert_all(strstr(ddp_error_line(), "ddp.exchange ring adds in an order of its own") != NULL);
    toy_destroy(&toy);
}
END_TEST

static bool chosen_are(const toy_t *toy, ddp_exchange_kind_t wanted)
{
    ddp_bucket_info_t info[TOY_TENSORS];
    const size_t      n     = ddp_reducer_buckets(toy->reducer, info, TOY_TENSORS);
    bool              is_so = true;

    for (size_t b = 0; b < n; b++) {
        is_so = is_so && info[b].exchange == wanted;
    }
    return is_so;
}

START_TEST(buckets_say_which_exchange_they_take)
{
    toy_params_t params = fast(DDP_EXCHANGE_HALVING);
    toy_t        toy;

    ddp_assert_all(toy_create(&params, &toy) == DDP_OK);
    ddp_assert_all(
        chosen_are(&toy, ddp_comm_machines(toy.comm) > 1 ? DDP_EXCHANGE_HALVING : DDP_EXCHANGE_AUTO));
    toy_destroy(&toy);
    params = (toy_params_t)TOY_PARAMS_INIT;
    ddp_assert_all(toy_create(&params, &toy) == DDP_OK);
    ddp_assert_all(
        chosen_are(&toy, ddp_comm_machines(toy.comm) > 1 ? DDP_EXCHANGE_DIRECT : DDP_EXCHANGE_AUTO));
    toy_destroy(&toy);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("reducer_wire");
    TCase *tcase = tcase_create("machines");

    tcase_add_test(tcase, every_exchange_gives_the_sum);
    tcase_add_test(tcase, every_exchange_gives_the_sum_before_updates_begin);
    tcase_add_test(tcase, bfloat16_on_the_wire_gives_the_sum_where_it_is_exact);
    tcase_add_test(tcase, values_too_large_for_the_wire_are_counted_over_all_ranks);
    tcase_add_test(tcase, what_would_change_exact_bits_is_refused);
    tcase_add_test(tcase, buckets_say_which_exchange_they_take);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return ddp_test_run_mpi(&argc, &argv, make_suite);
}
