/* Loss scaling: gradients that come multiplied, steps that are skipped, and how the scale moves. */
#include <math.h>
#include <string.h>

#include "tests/ddp/toy.h"
#include "tests/support/ddp_test.h"

/* tests/cuda compiles it for the stand-in for a GPU. */
#ifndef LOSS_SCALE_CUDA
#define LOSS_SCALE_CUDA 0
#endif

/* Of the running toy. */
static struct planted {
    float    scale;    /* gradients come multiplied by it */
    uint64_t infinite; /* step with an element that is not finite; 0: none */
} planted;

static float plant(uint64_t step, size_t leaf, size_t tensor, size_t element, float drawn)
{
    return step == planted.infinite && leaf == 3 && tensor == 2 && element == 4 ? INFINITY
                                                                                : drawn * planted.scale;
}

static toy_params_t scaled_params(uint32_t every)
{
    toy_params_t params = TOY_PARAMS_INIT;

    params.plant                    = plant;
    params.reducer.loss_scale_every = every;
    if (LOSS_SCALE_CUDA != 0) {
        params.cuda              = 1;
        params.reducer.backend   = DDP_REDUCER_NCCL;
        params.reducer.reduction = DDP_REDUCTION_EXACT;
        params.reducer.shard     = every % 2 == 0;
    }
    return params;
}

static ddp_status_t step_of(toy_t *toy, ddp_step_result_t *result)
{
    planted.scale = ddp_reducer_loss_scale(toy->reducer).scale;
    return toy_step(toy, 0.01F, 64, NULL, result);
}

/* What the last step left to do is done first. */
static void close_toy(toy_t *toy)
{
    ddp_assert_all(ddp_reducer_finish(toy->reducer) == DDP_OK);
    toy_destroy(toy);
}

static void hash_of(toy_t *toy, char text[33])
{
    ddp_assert_all(ddp_reducer_finish(toy->reducer) == DDP_OK);
    ddp_assert_all(ddp_reducer_weights_hash(toy->reducer, text) == DDP_OK);
}

/* Powers of two leave no trace, whatever the scale does on the way. */
START_TEST(gradients_of_a_multiplied_loss_end_in_the_same_bits)
{
    char hash[2][33];

    for (int scaled = 0; scaled < 2; scaled++) {
        toy_params_t      params = scaled_params(scaled != 0 ? 2 : 0);
        ddp_step_result_t result = {.loss = 0};
        toy_t             toy;

        params.reducer.average   = _i == 1 ? DDP_AVERAGE_RANKS : DDP_AVERAGE_SAMPLES;
        params.reducer.clip_norm = _i == 2 ? 0.1F : 0.0F;
        params.reducer.nonfinite = DDP_NONFINITE_SKIP; /* two phases with and without */
        planted.infinite         = 0;
        ddp_assert_all(toy_create(&params, &toy) == DDP_OK);
        for (int step = 0; step < 5; step++) {
            ddp_assert_all(step_of(&toy, &result) == DDP_OK && !result.skipped);
            ddp_assert_all(result.loss_scale == (scaled != 0 ? 65536.0F * (float)(1 << step / 2) : 1.0F));
        }
        hash_of(&toy, hash[scaled]);
        toy_destroy(&toy);
    }
    ddp_assert_all(strcmp(hash[0], hash[1]) == 0);
}
END_TEST

START_TEST(a_sum_that_is_not_finite_is_skipped_on_all_ranks_and_halves_the_scale)
{
    const toy_params_t params = scaled_params(2);
    ddp_step_result_t  result = {.loss = 0};
    char               before[33];
    char               after[33];
    toy_t              toy;

    planted.infinite = 2;
    ddp_assert_all(toy_create(&params, &toy) == DDP_OK);
    ddp_assert_all(step_of(&toy, &result) == DDP_OK && !result.skipped);
    hash_of(&toy, before);
    ddp_assert_all(step_of(&toy, &result) == DDP_OK);
    ddp_assert_all(result.skipped && result.not_finite != NULL && strcmp(result.not_finite, "scale") == 0);
    ddp_assert_all(result.loss_scale == 65536.0F);
    hash_of(&toy, after);
    ddp_assert_all(strcmp(before, after) == 0);
    ddp_assert_all(ddp_reducer_loss_scale(toy.reducer).scale == 32768.0F);
    ddp_assert_all(ddp_reducer_loss_scale(toy.reducer).steps == 0);
    for (int step = 0; step < 2; step++) {
        ddp_assert_all(step_of(&toy, &result) == DDP_OK && !result.skipped && result.loss_scale == 32768.0F);
    }
    ddp_assert_all(ddp_reducer_loss_scale(toy.reducer).scale == 65536.0F);
    close_toy(&toy);
}
END_TEST

START_TEST(at_the_smallest_scale_it_is_what_nonfinite_says)
{
    const ddp_loss_scale_t smallest = {.scale = 1.0F, .steps = 1};
    toy_params_t           params   = scaled_params(100);
    ddp_step_result_t      result   = {.loss = 0};
    toy_t                  toy;

    params.reducer.nonfinite = _i == 0 ? DDP_NONFINITE_STOP : DDP_NONFINITE_SKIP;
    planted.infinite         = 1;
    ddp_assert_all(toy_create(&params, &toy) == DDP_OK);
    ddp_assert_all(ddp_reducer_set_loss_scale(toy.reducer, &smallest) == DDP_OK);
    if (_i == 0) {
        const ddp_status_t status = step_of(&toy, &result);

        ddp_assert_all(status == DDP_ERR_NOT_FINITE);
        ddp_assert_all(strstr(ddp_error_line(), "gradient of 'scale' is not finite at step 1") != NULL);
    } else {
        ddp_assert_all(step_of(&toy, &result) == DDP_OK && result.skipped);
        ddp_assert_all(ddp_reducer_loss_scale(toy.reducer).scale == 1.0F);
    }
    close_toy(&toy);
}
END_TEST

START_TEST(the_scale_grows_up_to_its_largest)
{
    const ddp_loss_scale_t largest = {.scale = 8388608.0F, .steps = 0};
    const toy_params_t     params  = scaled_params(1);
    ddp_step_result_t      result  = {.loss = 0};
    toy_t                  toy;

    planted.infinite = 0;
    ddp_assert_all(toy_create(&params, &toy) == DDP_OK);
    ddp_assert_all(ddp_reducer_set_loss_scale(toy.reducer, &largest) == DDP_OK);
    for (int step = 0; step < 3; step++) {
        ddp_assert_all(step_of(&toy, &result) == DDP_OK && !result.skipped);
        ddp_assert_all(ddp_reducer_loss_scale(toy.reducer).scale == 16777216.0F);
    }
    close_toy(&toy);
}
END_TEST

START_TEST(only_powers_of_two_in_range_are_scales)
{
    static const float     wrong[] = {0.0F, 0.5F, 3.0F, 33554432.0F, -2.0F, NAN, INFINITY};
    const toy_params_t     params  = scaled_params(_i == 0 ? 7 : 0);
    const ddp_loss_scale_t right   = {.scale = 1024.0F, .steps = 5};
    toy_t                  toy;

    ddp_assert_all(toy_create(&params, &toy) == DDP_OK);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        const ddp_loss_scale_t scale = {.scale = wrong[i]};

        ddp_assert_fails(ddp_reducer_set_loss_scale(toy.reducer, &scale), DDP_ERR_INVALID_ARG,
                         "is no power of two from 1 to 2^24");
    }
    ddp_assert_all(ddp_reducer_set_loss_scale(toy.reducer, &right) == DDP_OK);
    ddp_assert_all(ddp_reducer_loss_scale(toy.reducer).scale == (_i == 0 ? 1024.0F : 1.0F));
    ddp_assert_all(ddp_reducer_loss_scale(toy.reducer).steps == (_i == 0 ? 5 : 0));
    close_toy(&toy);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("loss scale");
    TCase *tc    = tcase_create("loss scale");

    tcase_add_loop_test(tc, gradients_of_a_multiplied_loss_end_in_the_same_bits, 0, 3);
    tcase_add_test(tc, a_sum_that_is_not_finite_is_skipped_on_all_ranks_and_halves_the_scale);
    tcase_add_loop_test(tc, at_the_smallest_scale_it_is_what_nonfinite_says, 0, 2);
    tcase_add_test(tc, the_scale_grows_up_to_its_largest);
    tcase_add_loop_test(tc, only_powers_of_two_in_range_are_scales, 0, 2);
    suite_add_tcase(suite, tc);
    return suite;
}

int main(int argc, char **argv)
{
    return ddp_test_run_mpi(&argc, &argv, make_suite);
}
