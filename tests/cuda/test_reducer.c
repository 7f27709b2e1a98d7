/* The reducer over NCCL on the stand-in against the reference of tests/ddp/toy.h, which sums leaf by leaf and
 * updates with the cpu's plain kernels: the bits are equal for any number of ranks. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda/nccl_toy.h"
#include "tests/support/ddp_test.h"

START_TEST(exact_sums_have_the_bits_of_the_single_rank_tree_sum)
{
    for (int shard = 0; shard < 2; shard++) {
        toy_params_t params = cuda_params(DDP_REDUCTION_EXACT, shard);

        ddp_assert_all(toy_run(&params, 3, 64, 61));
    }
}
END_TEST

START_TEST(fast_sums_of_integers_have_them_too)
{
    for (int shard = 0; shard < 2; shard++) {
        toy_params_t params = cuda_params(DDP_REDUCTION_FAST, shard);

        ddp_assert_all(toy_run(&params, 3, 64, 3)); /* some ranks have no samples in the last step */
        params.reducer.bucket_cap_bytes = 1024;
        ddp_assert_all(toy_run(&params, 2, 64, 64));
    }
}
END_TEST

/* Also what is left over when a bucket's blocks are cut into equal slices, and empty slices. */
START_TEST(uneven_micro_batches_buckets_and_short_batches_keep_the_bits)
{
    static const size_t caps[] = {1024, 64 * 1024, SIZE_MAX / 2};

    for (size_t k = 0; k < 3; k++) {
        toy_params_t params = cuda_params(DDP_REDUCTION_EXACT, k % 2 == 0);

        params.micro_batches             = 8 + 2 * k + 1;
        params.reducer.bucket_cap_bytes  = caps[k];
        params.reducer.tail_bucket_bytes = k == 1 ? 4096 : 0;
        ddp_assert_all(toy_run(&params, 2, 10 * params.micro_batches - 3, 5));
    }
}
END_TEST

START_TEST(clipping_by_global_norm_keeps_the_bits)
{
    for (int shard = 0; shard < 2; shard++) {
        toy_params_t params = cuda_params(DDP_REDUCTION_EXACT, shard);

        params.reducer.clip_norm        = 0.25F;
        params.reducer.bucket_cap_bytes = 32 * 1024;
        ddp_assert_all(toy_run(&params, 3, 64, 61));
    }
}
END_TEST

START_TEST(sgd_with_momentum_keeps_the_bits)
{
    toy_params_t params = cuda_params(DDP_REDUCTION_EXACT, true);

    params.reducer.optim =
        (ddp_optim_config_t){.kind = DDP_OPTIM_SGD, .momentum = 0.9, .nesterov = true, .weight_decay = 0.01};
    ddp_assert_all(toy_run(&params, 3, 64, 3));
}
END_TEST

START_TEST(running_averages_decay_and_frozen_tensors_keep_the_bits)
{
    for (int shard = 0; shard < 2; shard++) {
        toy_params_t params = cuda_params(DDP_REDUCTION_EXACT, shard);

        params.roles = 1;
        ddp_assert_all(toy_run(&params, 3, 64, 5));
        params.reducer.reduction = DDP_REDUCTION_FAST;
        params.integers          = 1;
        ddp_assert_all(toy_run(&params, 3, 64, 5));
    }
}
END_TEST

/* tensor 0 by every second micro-batch, 1 by the last only, 2 by nobody, 3 in every other step */
static int partial_use(uint64_t step, size_t leaf, size_t tensor)
{
    switch (tensor) {
    case 0:
        return leaf % 2 == 0;
    case 1:
        return leaf == 7;
    case 2:
        return 0;
    case 3:
        return step % 2 == 1;
    default:
        return 1;
    }
}

START_TEST(tensors_used_by_some_by_nobody_and_every_other_step_are_right)
{
    for (int shard = 0; shard < 2; shard++) {
        toy_params_t params = cuda_params(DDP_REDUCTION_EXACT, shard);

        params.uses                      = partial_use;
        params.reducer.bucket_cap_bytes  = 1024;
        params.reducer.tail_bucket_bytes = 0;
        params.rank_to_delay             = shard;
        ddp_assert_all(toy_run(&params, 5, 64, 64));
    }
}
END_TEST

/* Nothing but the reducer keeps the ranks in step here, and no step waits for the end of the one before. */
START_TEST(steps_follow_each_other_without_a_barrier)
{
    for (int delayed = 0; delayed < 2; delayed++) {
        toy_params_t      params = cuda_params(DDP_REDUCTION_EXACT, delayed == 1);
        toy_t             toy;
        ddp_step_result_t result;
        ddp_status_t      status = DDP_OK;

        params.rank_to_delay = delayed;
        ddp_assert_all(toy_create(&params, &toy) == DDP_OK);
        for (int s = 0; s < 6 && status == DDP_OK; s++) {
            status = toy_step(&toy, 0.1F, 64, NULL, &result);
            toy_reference_step(&toy, 0.1F, 64, NULL);
        }
        ddp_assert_all(status == DDP_OK);
        ddp_assert_all(ddp_reducer_finish(toy.reducer) == DDP_OK);
        ddp_assert_all(toy_equals_reference(&toy));
        toy_destroy(&toy);
    }
}
END_TEST

START_TEST(all_ranks_learn_the_losses_and_the_largest_request)
{
    toy_params_t      params = cuda_params(DDP_REDUCTION_FAST, false);
    toy_t             toy;
    ddp_step_result_t result;

    ddp_assert_all(toy_create(&params, &toy) == DDP_OK);
    toy.request = (uint32_t)ddp_comm_rank(toy.comm) + 7;
    ddp_assert_all(toy_step(&toy, 0.1F, 64, NULL, &result) == DDP_OK);
    ddp_assert_all(result.request == (uint32_t)ddp_comm_size(toy.comm) + 6);
    ddp_assert_all(result.weight == 64 && result.counted == 64 && result.correct == 8);
    ddp_assert_all(result.loss == (1 + 2 + 3 + 4 + 5 + 6 + 7 + 8) * 8 / 64.0);
    ddp_assert_all(!result.skipped && result.not_finite == NULL && isnan(result.grad_norm));
    toy.request = 0;
    ddp_assert_all(toy_step(&toy, 0.1F, 2, NULL, &result) == DDP_OK); /* not all ranks have samples */
    ddp_assert_all(result.request == 0 && result.weight == 2);
    toy_destroy(&toy);
}
END_TEST

START_TEST(the_norm_is_that_of_the_whole_gradient)
{
    for (int k = 0; k < 4; k++) {
        toy_params_t      params = cuda_params(DDP_REDUCTION_EXACT, k % 2 == 1);
        toy_t             toy;
        ddp_step_result_t result;
        double            norm = 0;

        params.norm              = 1;
        params.reducer.nonfinite = k / 2 == 1 ? DDP_NONFINITE_SKIP : DDP_NONFINITE_STOP;
        ddp_assert_all(toy_create(&params, &toy) == DDP_OK);
        ddp_assert_all(toy_step(&toy, 0.1F, 64, NULL, &result) == DDP_OK);
        toy_reference_step(&toy, 0.1F, 64, NULL);
        ddp_assert_all(ddp_reducer_grad_norm(toy.reducer, &norm) == DDP_OK);
        ddp_assert_all(norm == toy.norm);
        ddp_assert_all(k / 2 == 1 ? result.grad_norm == toy.norm : isnan(result.grad_norm));
        toy_destroy(&toy);
    }
}
END_TEST

static float broken_weight(uint64_t step, size_t leaf, size_t samples)
{
    return step == 2 && leaf == 3 ? NAN : (float)samples;
}

START_TEST(a_loss_that_is_not_finite_changes_nothing)
{
    for (int skip = 0; skip < 2; skip++) {
        toy_params_t      params = cuda_params(DDP_REDUCTION_EXACT, skip == 1);
        toy_t             toy;
        ddp_step_result_t result = {.skipped = false};
        ddp_status_t      status;

        params.weight            = broken_weight;
        params.reducer.nonfinite = skip ? DDP_NONFINITE_SKIP : DDP_NONFINITE_STOP;
        ddp_assert_all(toy_create(&params, &toy) == DDP_OK);
        ddp_assert_all(toy_step(&toy, 0.1F, 64, NULL, &result) == DDP_OK);
        toy_reference_step(&toy, 0.1F, 64, NULL);
        status = toy_step(&toy, 0.1F, 64, NULL, &result);
        ddp_assert_all(status == (skip ? DDP_OK : DDP_ERR_NOT_FINITE));
        ddp_assert_all(
            skip ? result.skipped
                 : strstr(ddp_error_line(), "loss is nan at step 2, first in micro-batch 3 of 8") != NULL);
        ddp_assert_all(ddp_reducer_finish(toy.reducer) == DDP_OK);
        ddp_assert_all(toy_equals_reference(&toy));
        ddp_assert_all(ddp_reducer_tensor_steps(toy.reducer, 0) == 1);
        toy_destroy(&toy);
    }
}
END_TEST

static float infinite_gradient(uint64_t step, size_t leaf, size_t tensor, size_t element, float drawn)
{
    return step == 2 && leaf == 5 && tensor == 4 && element == 700 ? INFINITY : drawn;
}

/* The owner of the slice alone has seen it, and all ranks name it. */
START_TEST(a_gradient_that_is_not_finite_is_named_by_all)
{
    for (int k = 0; k < 3; k++) {
        toy_params_t      params = cuda_params(DDP_REDUCTION_EXACT, k > 0);
        toy_t             toy;
        ddp_step_result_t result = {.skipped = false};
        ddp_status_t      status;

        params.plant             = infinite_gradient;
        params.reducer.nonfinite = k == 2 ? DDP_NONFINITE_SKIP : DDP_NONFINITE_STOP;
        ddp_assert_all(toy_create(&params, &toy) == DDP_OK);
        ddp_assert_all(toy_step(&toy, 0.1F, 64, NULL, &result) == DDP_OK);
        toy_reference_step(&toy, 0.1F, 64, NULL);
        ddp_assert_all(toy_step(&toy, 0.1F, 64, NULL, &result) == DDP_OK);
        status = ddp_reducer_finish(toy.reducer);
        if (k == 2) {
            ddp_assert_all(status == DDP_OK && result.skipped && strcmp(result.not_finite, "b.weight") == 0);
            ddp_assert_all(toy_equals_reference(&toy));
        } else {
            ddp_assert_all(status == DDP_ERR_NOT_FINITE);
            ddp_assert_all(strstr(ddp_error_line(), "gradient of 'b.weight' is not finite at step 2") !=
                           NULL);
        }
        toy_destroy(&toy);
    }
}
END_TEST

/* Mean over ranks of local means: sums of integers are exact, only the scaling rounds. */
START_TEST(average_ranks_is_the_mean_of_local_means)
{
    static const size_t sizes[4] = {3, 3, 3, 1};

    for (int k = 0; k < 4; k++) {
        toy_params_t params = cuda_params(k / 2 == 0 ? DDP_REDUCTION_EXACT : DDP_REDUCTION_FAST, k % 2 == 1);
        toy_t        toy;
        ddp_step_result_t result;
        double            worst = 0;
        float             value;
        int               size;

        params.micro_batches   = 4;
        params.integers        = 1;
        params.reducer.average = DDP_AVERAGE_RANKS;
        params.reducer.optim   = (ddp_optim_config_t){.kind = DDP_OPTIM_SGD};
        ddp_assert_all(toy_create(&params, &toy) == DDP_OK);
        size = ddp_comm_size(toy.comm);
        ddp_assert_all(toy_step(&toy, 1.0F, 10, sizes, &result) == DDP_OK);
        ddp_assert_all(ddp_reducer_finish(toy.reducer) == DDP_OK);
        for (size_t e = 0; e < toy.tensors[4].count; e += 97) {
            const size_t at   = toy.tensors[4].offset + e;
            double       mean = 0;
            double       off;

            for (int r = 0; r < size; r++) {
                const size_t first  = (size_t)r * (size_t)(4 / size) + (size_t)(r < 4 % size ? r : 4 % size);
                const size_t count  = (size_t)(4 / size) + (r < 4 % size ? 1 : 0);
                double       sum    = 0;
                double       weight = 0;

                for (size_t leaf = first; leaf < first + count; leaf++) {
                    sum += (double)toy_gradient(&toy, 1, leaf, 4, e);
                    weight += (double)sizes[leaf];
                }
                mean += sum / weight / size;
            }
            ddp_assert_ok(ddp_reducer_read(toy.reducer, DDP_REDUCER_VALUES, at, 1, &value));
            off   = fabs((double)value - ((double)toy.reference[at] - mean));
            worst = off > worst ? off : worst;
        }
        ddp_assert_all(worst < 4e-6); /* values up to 16: a few units in the last place */
        toy_destroy(&toy);
    }
}
END_TEST

/* With shard a rank holds its slices of the moments and what is left over, and all of the parameters. */
START_TEST(moments_are_held_by_one_rank_each)
{
    toy_params_t      params = cuda_params(DDP_REDUCTION_EXACT, true);
    toy_t             toy;
    ddp_step_result_t result;
    size_t            held = 0;
    float            *slot;

    ddp_assert_all(toy_create(&params, &toy) == DDP_OK);
    slot = calloc(toy.total, sizeof(float));
    ddp_assert_all(toy_step(&toy, 0.1F, 64, NULL, &result) == DDP_OK);
    toy_reference_step(&toy, 0.1F, 64, NULL);
    ddp_assert_all(ddp_reducer_finish(toy.reducer) == DDP_OK);
    for (size_t at = 0, n = 0; at < toy.total; at += n) {
        const int holder = ddp_reducer_holder(toy.reducer, 1, at, &n);

        ddp_assert_all(n > 0 && at + n <= toy.total);
        if (holder == DDP_REDUCER_EVERYBODY || holder == ddp_comm_rank(toy.comm)) {
            ddp_assert_ok(ddp_reducer_read(toy.reducer, 1, at, n, slot + at));
            ck_assert_int_eq(memcmp(slot + at, toy.slots[1] + at, n * sizeof(float)), 0);
            held += n;
        } else {
            ddp_assert_fails(ddp_reducer_read(toy.reducer, 1, at, 1, slot), DDP_ERR_STATE, "does not hold");
        }
    }
    ddp_assert_all(ddp_comm_size(toy.comm) == 1 ? held == toy.total : held < toy.total);
    ddp_assert_all(ddp_comm_size(toy.comm) == 1 ||
                   (ddp_reducer_slot(toy.reducer, 1) == NULL && ddp_reducer_values(toy.reducer) != NULL));
    free(slot);
    toy_destroy(&toy);
}
END_TEST

START_TEST(a_copy_of_the_parameters_that_went_astray_is_named)
{
    toy_params_t      params = cuda_params(DDP_REDUCTION_EXACT, false);
    toy_t             toy;
    ddp_step_result_t result;
    ddp_status_t      status;
    float             value;
    int               last;

    params.reducer.checksum_every = 2;
    ddp_assert_all(toy_create(&params, &toy) == DDP_OK);
    last = ddp_comm_size(toy.comm) - 1;
    ddp_assert_all(toy_step(&toy, 0.1F, 64, NULL, &result) == DDP_OK);
    ddp_assert_all(ddp_reducer_finish(toy.reducer) == DDP_OK);
    ddp_assert_all(ddp_reducer_check_replicas(toy.reducer) == DDP_OK);
    if (ddp_comm_rank(toy.comm) == last && last > 0) {
        ddp_assert_ok(ddp_reducer_read(toy.reducer, DDP_REDUCER_VALUES, 5, 1, &value));
        value += 1.0F;
        ddp_assert_ok(ddp_reducer_write(toy.reducer, DDP_REDUCER_VALUES, 5, 1, &value));
    }
    status = toy_step(&toy, 0.1F, 64, NULL, &result);
    ddp_assert_all(status == (last > 0 ? DDP_ERR_MISMATCH : DDP_OK));
    toy_destroy(&toy);
}
END_TEST

START_TEST(times_of_buckets_follow_each_other)
{
    toy_params_t       params = cuda_params(DDP_REDUCTION_FAST, true);
    toy_t              toy;
    ddp_step_result_t  result;
    ddp_bucket_times_t times[64];
    size_t             n;

    params.reducer.bucket_cap_bytes = 64 * 1024;
    ddp_assert_all(toy_create(&params, &toy) == DDP_OK);
    for (int s = 0; s < 2; s++) {
        ddp_assert_all(toy_step(&toy, 0.1F, 64, NULL, &result) == DDP_OK);
    }
    ddp_assert_all(result.comm_ns > 0 && result.exposed_comm_ns >= 0 &&
                   result.exposed_work_ns <= result.comm_ns);
    n = ddp_reducer_bucket_times(toy.reducer, times, 64);
    ddp_assert_all(n == ddp_reducer_buckets(toy.reducer, NULL, 0) && n > 1);
    for (size_t b = 0; b < n; b++) {
        ddp_assert_all(times[b].ready_ns >= 0 && times[b].launched_ns >= times[b].ready_ns &&
                       times[b].done_ns >= times[b].launched_ns);
    }
    toy_destroy(&toy);
}
END_TEST

START_TEST(options_that_do_not_go_together_are_refused)
{
    toy_params_t params = cuda_params(DDP_REDUCTION_EXACT, false);
    toy_t        toy;

    params.reducer.wire = DDP_WIRE_BF16;
    ddp_assert_all(toy_create(&params, &toy) == DDP_ERR_INVALID_ARG);
    ddp_assert_all(strstr(ddp_error_line(), "float32 with ddp.reduction exact") != NULL);
    toy_destroy(&toy);
    params      = cuda_params(DDP_REDUCTION_FAST, false);
    params.cuda = 0;
    ddp_assert_all(toy_create(&params, &toy) == DDP_ERR_INVALID_ARG);
    ddp_assert_all(strstr(ddp_error_line(), "nccl is for CUDA devices") != NULL);
    toy_destroy(&toy);
}
END_TEST

/* The largest bucket here is one tensor of 63000 elements: 247 blocks. */
START_TEST(a_plan_knows_what_ranks_receive)
{
    toy_params_t       params = cuda_params(DDP_REDUCTION_EXACT, false);
    toy_t              toy;
    ddp_reducer_plan_t plan = {0};

    params.reducer.bucket_cap_bytes  = 1024;
    params.reducer.tail_bucket_bytes = 0;
    ddp_assert_all(toy_create(&params, &toy) == DDP_OK);
    ddp_assert_ok(ddp_reducer_plan(&toy.params.reducer, 2, 1, &plan, NULL, 0));
    ck_assert_uint_eq(plan.wire_bytes, 1 * (123 + 1) * 1024); /* a subtree of 4 micro-batches of 8 */
    ddp_assert_ok(ddp_reducer_plan(&toy.params.reducer, 3, 1, &plan, NULL, 0));
    ck_assert_uint_eq(plan.wire_bytes, 3 * (82 + 1) * 1024); /* 0-2: two subtrees, 6-7: one */
    toy.params.reducer.reduction = DDP_REDUCTION_FAST;
    toy.params.reducer.wire      = DDP_WIRE_BF16;
    ddp_assert_ok(ddp_reducer_plan(&toy.params.reducer, 3, 1, &plan, NULL, 0));
    ck_assert_uint_eq(plan.wire_bytes, 247 * 512);
    ddp_assert_all(true);
    toy_destroy(&toy);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("reducer over NCCL");
    TCase *bits  = tcase_create("bits");
    TCase *rest  = tcase_create("results");

    tcase_add_test(bits, exact_sums_have_the_bits_of_the_single_rank_tree_sum);
    tcase_add_test(bits, fast_sums_of_integers_have_them_too);
    tcase_add_test(bits, uneven_micro_batches_buckets_and_short_batches_keep_the_bits);
    tcase_add_test(bits, clipping_by_global_norm_keeps_the_bits);
    tcase_add_test(bits, sgd_with_momentum_keeps_the_bits);
    tcase_add_test(bits, running_averages_decay_and_frozen_tensors_keep_the_bits);
    tcase_add_test(bits, tensors_used_by_some_by_nobody_and_every_other_step_are_right);
    tcase_add_test(bits, steps_follow_each_other_without_a_barrier);
    suite_add_tcase(suite, bits);
    tcase_add_test(rest, all_ranks_learn_the_losses_and_the_largest_request);
    tcase_add_test(rest, the_norm_is_that_of_the_whole_gradient);
    tcase_add_test(rest, a_loss_that_is_not_finite_changes_nothing);
    tcase_add_test(rest, a_gradient_that_is_not_finite_is_named_by_all);
    tcase_add_test(rest, average_ranks_is_the_mean_of_local_means);
    tcase_add_test(rest, moments_are_held_by_one_rank_each);
    tcase_add_test(rest, a_copy_of_the_parameters_that_went_astray_is_named);
    tcase_add_test(rest, times_of_buckets_follow_each_other);
    tcase_add_test(rest, a_plan_knows_what_ranks_receive);
    tcase_add_test(rest, options_that_do_not_go_together_are_refused);
    suite_add_tcase(suite, rest);
    return suite;
}

int main(int argc, char **argv)
{
    return ddp_test_run_mpi(&argc, &argv, make_suite);
}
