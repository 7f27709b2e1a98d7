/* The reducer against a reference that sums leaf by leaf on one rank: bits must be equal for any number of
 * ranks. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/ddp/toy.h"
#include "tests/support/ddp_test.h"

START_TEST(weights_equal_the_single_rank_tree_sum)
{
    toy_params_t params = TOY_PARAMS_INIT;

    ddp_assert_all(toy_run(&params, 3, 64, 64));
}
END_TEST

START_TEST(uneven_micro_batches_and_a_short_last_batch_keep_the_bits)
{
    for (size_t v = 8; v <= 13; v++) {
        toy_params_t params = TOY_PARAMS_INIT;

        params.micro_batches = v;
        ddp_assert_all(
            toy_run(&params, 2, 10 * v - 3,
                    5)); /* five samples: micro-batches 5 .. v - 1 are empty, and so are some ranks */
    }
}
END_TEST

START_TEST(bucket_caps_do_not_change_bits)
{
    static const size_t caps[] = {1024, 64 * 1024, (size_t)1 << 20, SIZE_MAX / 2};

    for (size_t c = 0; c < 4; c++) {
        toy_params_t params = TOY_PARAMS_INIT;

        params.reducer.bucket_cap_bytes  = caps[c];
        params.reducer.tail_bucket_bytes = c == 1 ? 4096 : 0;
        ddp_assert_all(toy_run(&params, 2, 64, 64));
    }
}
END_TEST

START_TEST(clipping_by_global_norm_keeps_the_bits)
{
    toy_params_t params = TOY_PARAMS_INIT;

    params.reducer.clip_norm        = 0.25F;
    params.reducer.bucket_cap_bytes = 32 * 1024;
    ddp_assert_all(toy_run(&params, 3, 64, 61));
}
END_TEST

START_TEST(sgd_with_momentum_keeps_the_bits)
{
    toy_params_t params = TOY_PARAMS_INIT;

    params.reducer.optim =
        (ddp_optim_config_t){.kind = DDP_OPTIM_SGD, .momentum = 0.9, .nesterov = true, .weight_decay = 0.01};
    ddp_assert_all(toy_run(&params, 3, 64, 3));
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
    toy_params_t params = TOY_PARAMS_INIT;

    params.uses                      = partial_use;
    params.reducer.bucket_cap_bytes  = 1024;
    params.reducer.tail_bucket_bytes = 0;
    for (int delayed = -1; delayed < 2; delayed++) {
        params.rank_to_delay = delayed;
        ddp_assert_all(toy_run(&params, 5, 64, 64));
    }
}
END_TEST

/* Nothing but the reducer keeps the ranks in step here: each reads parameters that a slow one may still have
 * to write. */
START_TEST(steps_follow_each_other_without_a_barrier)
{
    for (int delayed = 0; delayed < 2; delayed++) {
        toy_params_t      params = TOY_PARAMS_INIT;
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

START_TEST(a_tensor_used_by_nobody_keeps_value_moments_and_step_count)
{
    toy_params_t      params = TOY_PARAMS_INIT;
    toy_t             toy;
    ddp_step_result_t result;
    float             before[5];

    params.uses = partial_use;
    ddp_assert_all(toy_create(&params, &toy) == DDP_OK);
    for (size_t e = 0; e < 5; e++) {
        before[e] = toy_value(&toy, 2, e);
    }
    for (int s = 0; s < 3; s++) {
        ddp_assert_all(toy_step(&toy, 0.1F, 64, NULL, &result) == DDP_OK);
        ddp_assert_all(ddp_reducer_finish(toy.reducer) == DDP_OK);
        toy_reference_step(&toy, 0.1F, 64, NULL);
    }
    for (size_t e = 0; e < 5; e++) {
        ddp_assert_all(before[e] == toy_value(&toy, 2, e));
    }
    ddp_assert_all(ddp_reducer_tensor_steps(toy.reducer, 2) == 0);
    ddp_assert_all(ddp_reducer_tensor_steps(toy.reducer, 3) == 2); /* steps 1 and 3 */
    ddp_assert_all(ddp_reducer_tensor_steps(toy.reducer, 4) == 3);
    toy_destroy(&toy);
}
END_TEST

/* weights that are no sample counts: ignored labels */
static float odd_weight(uint64_t step, size_t leaf, size_t samples)
{
    (void)step;
    return leaf == 2 ? 0.0F : (float)samples - (float)(leaf % 2);
}

START_TEST(the_sum_is_divided_once_by_the_global_weight)
{
    static const size_t sizes[4] = {3, 3, 3, 1};
    toy_params_t        params   = TOY_PARAMS_INIT;
    toy_t               toy;
    ddp_step_result_t   result;
    int                 size = 1;

    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size > 4) {
        return;
    }
    params.micro_batches = 4;
    params.weight        = odd_weight;
    params.reducer.optim = (ddp_optim_config_t){.kind = DDP_OPTIM_SGD};
    ddp_assert_all(toy_create(&params, &toy) == DDP_OK);
    ddp_assert_all(toy_step(&toy, 0.5F, 10, sizes, &result) == DDP_OK);
    ddp_assert_all(ddp_reducer_finish(toy.reducer) == DDP_OK);
    toy_reference_step(&toy, 0.5F, 10, sizes);
    ddp_assert_all(toy_equals_reference(&toy));
    ddp_assert_all(result.weight == 3 + 2 + 0 + 0);
    ddp_assert_all(result.counted == 10 && result.correct == 4);
    ddp_assert_all(result.loss == (1 * 3 + 2 * 2) / 5.0);
    toy_destroy(&toy);
}
END_TEST

/* Mean over ranks of local means, with integers: sums are exact, so the order does not matter; only the
 * scaling rounds. */
START_TEST(average_ranks_is_the_mean_of_local_means)
{
    static const size_t sizes[4] = {3, 3, 3, 1};
    toy_params_t        params   = TOY_PARAMS_INIT;
    toy_t               toy;
    ddp_step_result_t   result;
    int                 size  = 1;
    double              worst = 0;

    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size > 4) {
        return;
    }
    params.micro_batches   = 4;
    params.integers        = 1;
    params.reducer.average = DDP_AVERAGE_RANKS;
    params.reducer.optim   = (ddp_optim_config_t){.kind = DDP_OPTIM_SGD};
    ddp_assert_all(toy_create(&params, &toy) == DDP_OK);
    ddp_assert_all(toy_step(&toy, 1.0F, 10, sizes, &result) == DDP_OK);
    ddp_assert_all(ddp_reducer_finish(toy.reducer) == DDP_OK);
    for (size_t e = 0; e < toy.tensors[4].count; e++) {
        const size_t at   = toy.tensors[4].offset + e;
        double       mean = 0;
        double       off;

        for (int r = 0; r < size; r++) {
            double sum    = 0;
            double weight = 0;
            size_t each   = 4 / (size_t)size;
            size_t extra  = 4 % (size_t)size;
            size_t first  = (size_t)r * each + ((size_t)r < extra ? (size_t)r : extra);
            size_t count  = each + ((size_t)r < extra ? 1 : 0);

            for (size_t leaf = first; leaf < first + count; leaf++) {
                sum += (double)toy_gradient(&toy, 1, leaf, 4, e);
                weight += (double)sizes[leaf];
            }
            mean += sum / weight / size;
        }
        off   = fabs((double)toy_value(&toy, 4, e) - ((double)toy.reference[at] - mean));
        worst = off > worst ? off : worst;
    }
    ddp_assert_all(worst < 4e-6); /* values up to 16: a few units in the last place */
    toy_destroy(&toy);
}
END_TEST

START_TEST(fast_equals_exact_where_sums_are_exact)
{
    toy_params_t params = TOY_PARAMS_INIT;

    params.integers          = 1;
    params.reducer.reduction = DDP_REDUCTION_FAST;
    ddp_assert_all(toy_run(&params, 3, 64, 3));
    params.uses                     = partial_use;
    params.reducer.bucket_cap_bytes = 1024;
    ddp_assert_all(toy_run(&params, 3, 64, 64));
}
END_TEST

static float broken_weight(uint64_t step, size_t leaf, size_t samples)
{
    return step == 2 && leaf == 3 ? -NAN : (float)samples; /* a sign that must not show */
}

/* Also of a rank that has no samples in the step. */
START_TEST(all_ranks_learn_the_largest_request_of_the_step)
{
    toy_params_t      params = TOY_PARAMS_INIT;
    toy_t             toy;
    ddp_step_result_t result;

    ddp_assert_all(toy_create(&params, &toy) == DDP_OK);
    for (int asking = 0; asking < ddp_comm_size(toy.comm); asking++) {
        const int      rank = ddp_comm_rank(toy.comm);
        const uint32_t most = UINT32_MAX - (uint32_t)asking;

        toy.request = rank == asking ? most : rank == 0 ? 7 : 0;
        ddp_assert_all(toy_step(&toy, 0.1F, asking % 2 == 0 ? 64 : 2, NULL, &result) == DDP_OK);
        ddp_assert_all(result.request == most);
        toy.request = 0;
        ddp_assert_all(toy_step(&toy, 0.1F, 64, NULL, &result) == DDP_OK);
        ddp_assert_all(result.request == 0);
    }
    toy_destroy(&toy);
}
END_TEST

START_TEST(a_loss_that_is_not_finite_changes_nothing)
{
    for (int skip = 0; skip < 2; skip++) {
        toy_params_t      params = TOY_PARAMS_INIT;
        toy_t             toy;
        ddp_step_result_t result = {.skipped = false};
        ddp_status_t      status;

        params.weight            = broken_weight;
        params.reducer.nonfinite = skip ? DDP_NONFINITE_SKIP : DDP_NONFINITE_STOP;
        ddp_assert_all(toy_create(&params, &toy) == DDP_OK);
        ddp_assert_all(toy_step(&toy, 0.1F, 64, NULL, &result) == DDP_OK);
        ddp_assert_all(!result.skipped);
        toy_reference_step(&toy, 0.1F, 64, NULL);
        toy.request = 3;
        status      = toy_step(&toy, 0.1F, 64, NULL, &result);
        ddp_assert_all(status == (skip ? DDP_OK : DDP_ERR_NOT_FINITE));
        ddp_assert_all(!skip || result.request == 3);
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

/* One machine has one copy, so only several machines can disagree. */
START_TEST(a_machine_whose_parameters_went_astray_is_named)
{
    toy_params_t      params = TOY_PARAMS_INIT;
    toy_t             toy;
    ddp_step_result_t result;
    ddp_status_t      status;
    int               machines;

    params.reducer.checksum_every = 2;
    ddp_assert_all(toy_create(&params, &toy) == DDP_OK);
    machines = ddp_comm_machines(toy.comm);
    ddp_assert_all(toy_step(&toy, 0.1F, 64, NULL, &result) == DDP_OK);
    ddp_assert_all(ddp_reducer_finish(toy.reducer) == DDP_OK);
    ddp_assert_all(ddp_reducer_check_replicas(toy.reducer) == DDP_OK);
    ddp_assert_all(true); /* nobody writes while another still compares */
    if (ddp_comm_machine(toy.comm) == machines - 1 && ddp_comm_local_rank(toy.comm) == 0) {
        const float other = toy_value(&toy, 0, 5) + 1e-6F;

        ddp_assert_ok(
            ddp_reducer_write(toy.reducer, DDP_REDUCER_VALUES, toy.tensors[0].offset + 5, 1, &other));
    }
    ddp_assert_all(true);
    status = toy_step(&toy, 0.1F, 64, NULL, &result);
    ddp_assert_all(status == (machines > 1 ? DDP_ERR_MISMATCH : DDP_OK));
    ddp_assert_all(machines == 1 || strstr(ddp_error_line(), "step 2: parameters on") != NULL);
    toy_destroy(&toy);
}
END_TEST

START_TEST(calls_out_of_order_are_refused)
{
    toy_params_t      params = TOY_PARAMS_INIT;
    toy_t             toy;
    ddp_step_t        step = {.lr = 0.1F, .samples = 64};
    ddp_step_result_t result;
    float            *grads;
    bool              accumulate;
    uint8_t           used[TOY_TENSORS] = {1, 1, 1, 1, 1, 0};
    size_t            first;
    size_t            count;

    ddp_assert_all(toy_create(&params, &toy) == DDP_OK);
    ddp_reducer_range(toy.reducer, &first, &count);
    ddp_assert_fails(ddp_reducer_micro_begin(toy.reducer, first, &grads, &accumulate), DDP_ERR_STATE,
                     "outside of a step");
    ddp_assert_all(ddp_reducer_step_begin(toy.reducer, &step) == DDP_OK);
    ddp_assert_fails(ddp_reducer_step_end(toy.reducer, &result), DDP_ERR_STATE,
                     "before the last micro-batch");
    ddp_assert_fails(ddp_reducer_micro_begin(toy.reducer, first + count, &grads, &accumulate), DDP_ERR_STATE,
                     "not the next");
    ddp_assert_ok(ddp_reducer_micro_begin(toy.reducer, first, &grads, &accumulate));
    ddp_assert_fails(ddp_reducer_ready(toy.reducer, 0), DDP_ERR_STATE, "without forward_done");
    ddp_assert_ok(ddp_reducer_forward_done(toy.reducer, &toy.stats[first], used));
    ddp_assert_fails(ddp_reducer_ready(toy.reducer, 5), DDP_ERR_STATE,
                     "'b.bias' is ready, but forward did not use it");
    ddp_assert_ok(ddp_reducer_ready(toy.reducer, 4));
    ddp_assert_fails(ddp_reducer_ready(toy.reducer, 4), DDP_ERR_STATE, "'b.weight' is ready twice");
    ddp_assert_fails(ddp_reducer_micro_end(toy.reducer), DDP_ERR_STATE, "'a.weight' never became ready");
    ddp_assert_all(true);
    toy_destroy(&toy);
}
END_TEST

START_TEST(a_plan_counts_the_ranks_of_its_machine)
{
    toy_params_t         params = TOY_PARAMS_INIT;
    toy_t                toy;
    ddp_reducer_params_t alone;
    ddp_reducer_plan_t   here  = {0};
    ddp_reducer_plan_t   there = {0};
    size_t               least;
    size_t               wires[64];
    size_t               all_wires = 0;
    int                  size;

    ddp_assert_all(toy_create(&params, &toy) == DDP_OK);
    alone      = toy.params.reducer;
    size       = ddp_comm_size(toy.comm);
    alone.comm = NULL;
    ddp_assert_ok(ddp_reducer_plan(&toy.params.reducer, size, ddp_comm_rank(toy.comm), &here, NULL, 0));
    ddp_assert_ok(ddp_reducer_plan(&alone, size, ddp_comm_rank(toy.comm), &there, NULL, 0));
    least = (3 + (size_t)ddp_comm_local_size(toy.comm) * here.arenas) * toy.total * sizeof(float);
    ck_assert_uint_eq(here.n_buckets, ddp_reducer_buckets(toy.reducer, NULL, 0));
    ck_assert_uint_gt(here.shared_bytes, size == ddp_comm_local_size(toy.comm) && 8 % size == 0 ? least : 0);
    ck_assert_uint_eq(here.parameter_bytes, toy.total * sizeof(float));
    ck_assert_uint_eq(here.moment_bytes, 2 * here.parameter_bytes); /* AdamW */
    ck_assert_uint_ge(here.gradient_bytes, (size_t)ddp_comm_local_size(toy.comm) * here.parameter_bytes);
    ck_assert_uint_gt(here.shared_bytes, here.parameter_bytes + here.moment_bytes + here.gradient_bytes);
    ck_assert(ddp_comm_machines(toy.comm) == 1 ? here.shared_bytes == there.shared_bytes
                                               : here.shared_bytes < there.shared_bytes);
    ddp_assert_all(true);
    ddp_assert_all(ddp_comm_allgather(toy.comm, &here.wire_bytes, sizeof(size_t), wires) == DDP_OK);
    for (int r = 0; r < size; r++) {
        all_wires += wires[r];
    }
    /* each block is summed by one rank, who gets a node or more of it from each other machine */
    least = (size_t)(ddp_comm_machines(toy.comm) - 1) * here.parameter_bytes;
    ddp_assert_all(least == 0 ? all_wires == 0 : all_wires >= least);
    toy_destroy(&toy);
}
END_TEST

START_TEST(a_model_larger_than_the_address_space_is_refused)
{
    const ddp_tensor_desc_t tensor = {
        .name = "huge", .ndim = 1, .shape = {(size_t)1 << 60}, .count = (size_t)1 << 60};
    ddp_reducer_params_t params = DDP_REDUCER_PARAMS_INIT; /* values, 2 moments, 1 arena: 2^64 bytes */
    ddp_reducer_plan_t   plan   = {0};

    params.tensors   = &tensor;
    params.n_tensors = 1;
    ddp_assert_fails(ddp_reducer_plan(&params, 1, 0, &plan, NULL, 0), DDP_ERR_NO_MEMORY, "do not fit");
}
END_TEST

START_TEST(options_that_differ_between_ranks_are_named)
{
    toy_params_t params = TOY_PARAMS_INIT;
    toy_t        toy;
    ddp_status_t status;
    int          rank;
    int          size;

    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size == 1) {
        return;
    }
    params.reducer.optim.weight_decay = rank == size - 1 ? 0.5 : 0.01;
    status                            = toy_create(&params, &toy);
    ddp_assert_all(status == DDP_ERR_MISMATCH);
    ddp_assert_all(strstr(ddp_error_line(), "optimizer") != NULL);
    toy_destroy(&toy);
}
END_TEST

START_TEST(a_rank_that_cannot_set_up_fails_all_ranks)
{
    static const char *const points[] = {"reducer_parts", "reducer_memory"};
    toy_params_t             params   = TOY_PARAMS_INIT;
    int                      size     = 1;

    MPI_Comm_size(MPI_COMM_WORLD, &size);
    params.timeout_ms = 3000;
    for (int rank = 0; rank < size && rank < 3; rank++) {
        for (int i = 0; i < 2; i++) {
            toy_t        toy;
            char         fault[64];
            ddp_status_t status;

            snprintf(fault, sizeof(fault), "%s:%d", points[i], rank);
            setenv("DDP_FAULT", fault, 1);
            status = toy_create(&params, &toy);
            unsetenv("DDP_FAULT");
            ddp_assert_all(status != DDP_OK && status != DDP_ERR_TIMEOUT);
            ddp_assert_all(strstr(ddp_error_line(), "planted") != NULL);
            toy_destroy(&toy);
        }
    }
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("reducer");
    TCase *tcase = tcase_create("steps");

    tcase_add_test(tcase, weights_equal_the_single_rank_tree_sum);
    tcase_add_test(tcase, uneven_micro_batches_and_a_short_last_batch_keep_the_bits);
    tcase_add_test(tcase, bucket_caps_do_not_change_bits);
    tcase_add_test(tcase, clipping_by_global_norm_keeps_the_bits);
    tcase_add_test(tcase, sgd_with_momentum_keeps_the_bits);
    tcase_add_test(tcase, tensors_used_by_some_by_nobody_and_every_other_step_are_right);
    tcase_add_test(tcase, steps_follow_each_other_without_a_barrier);
    tcase_add_test(tcase, a_tensor_used_by_nobody_keeps_value_moments_and_step_count);
    tcase_add_test(tcase, the_sum_is_divided_once_by_the_global_weight);
    tcase_add_test(tcase, average_ranks_is_the_mean_of_local_means);
    tcase_add_test(tcase, fast_equals_exact_where_sums_are_exact);
    tcase_add_test(tcase, all_ranks_learn_the_largest_request_of_the_step);
    tcase_add_test(tcase, a_loss_that_is_not_finite_changes_nothing);
    tcase_add_test(tcase, a_machine_whose_parameters_went_astray_is_named);
    tcase_add_test(tcase, calls_out_of_order_are_refused);
    tcase_add_test(tcase, a_rank_that_cannot_set_up_fails_all_ranks);
    tcase_add_test(tcase, a_plan_counts_the_ranks_of_its_machine);
    tcase_add_test(tcase, a_model_larger_than_the_address_space_is_refused);
    tcase_add_test(tcase, options_that_differ_between_ranks_are_named);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return ddp_test_run_mpi(&argc, &argv, make_suite);
}
