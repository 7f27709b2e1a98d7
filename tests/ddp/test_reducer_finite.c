/* Gradients that are not finite, planted in one element of one micro-batch, and the gradient's norm. */
#include <math.h>
#include <string.h>

#include "tests/ddp/toy.h"
#include "tests/support/ddp_test.h"

/* Steps up to `last` or the first error, then _finish. */
static ddp_status_t run(toy_t *toy, uint64_t last, ddp_step_result_t *result)
{
    ddp_status_t status = DDP_OK;

    while (toy->step < last && status == DDP_OK) {
        status = toy_step(toy, 0.1F, 64, NULL, result);
    }
    return status == DDP_OK ? ddp_reducer_finish(toy->reducer) : status;
}

/* What is planted in step 2: in one element of one micro-batch's gradient of `tensor`. */
static struct plant {
    size_t leaf, tensor, element;
    float  value;
} plant;

static float plant_one(uint64_t step, size_t leaf, size_t tensor, size_t element, float drawn)
{
    return step == 2 && leaf == plant.leaf && tensor == plant.tensor && element == plant.element ? plant.value
                                                                                                 : drawn;
}

/* In the last element of each tensor, by another micro-batch each. */
static float plant_in_all(uint64_t step, size_t leaf, size_t tensor, size_t element, float drawn)
{
    static const size_t last[TOY_TENSORS] = {62999, 899, 4, 255, 1352, 2999};

    return step == 2 && leaf == tensor && element == last[tensor] ? INFINITY : drawn;
}

/* Each is finite, their sum is not. */
static float plant_huge(uint64_t step, size_t leaf, size_t tensor, size_t element, float drawn)
{
    return step == 2 && (leaf == 2 || leaf == 7) && tensor == 1 && element == 0 ? 3e38F : drawn;
}

static toy_params_t planted(size_t leaf, size_t tensor, size_t element, float value)
{
    toy_params_t params = TOY_PARAMS_INIT;

    plant        = (struct plant){leaf, tensor, element, value};
    params.plant = plant_one;
    return params;
}

/* Updates run while other gradients are not there yet; the next step does not begin, and nobody may read on.
 */
START_TEST(without_clipping_the_run_ends_after_the_step_and_names_the_parameter)
{
    static const float values[] = {NAN, INFINITY, -INFINITY};

    for (size_t k = 0; k < 6; k++) {
        toy_params_t      params = planted(7 - k, 4, k * 200, values[k % 3]);
        ddp_step_result_t result = {.loss = 0};
        toy_t             toy;

        params.reducer.bucket_cap_bytes = k < 3 ? 1024 : (size_t)1 << 20;
        params.norm                     = k % 2 == 0;
        if (k == 1) {
            params.reducer.optim = (ddp_optim_config_t){.kind = DDP_OPTIM_SGD};
        }
        if (k == 2) {
            params.reducer.optim = (ddp_optim_config_t){.kind = DDP_OPTIM_SGD, .momentum = 0.9};
        }
        ddp_assert_all(toy_create(&params, &toy) == DDP_OK);
        ddp_assert_all(run(&toy, 1, &result) == DDP_OK);
        ddp_assert_all(toy_step(&toy, 0.1F, 64, NULL, &result) == DDP_OK); /* the loss is finite */
        if (k % 2 == 0) {
            ddp_assert_fails(toy_step(&toy, 0.1F, 64, NULL, &result), DDP_ERR_NOT_FINITE,
                             "gradient of 'b.weight' is not finite at step 2");
        }
        ddp_assert_fails(ddp_reducer_finish(toy.reducer), DDP_ERR_NOT_FINITE,
                         "gradient of 'b.weight' is not finite at step 2");
        ddp_assert_all(true);
        toy_destroy(&toy);
    }
}
END_TEST

START_TEST(a_sum_that_overflows_is_found_where_no_part_of_it_is_infinite)
{
    toy_params_t      params = TOY_PARAMS_INIT;
    ddp_step_result_t result = {.loss = 0};
    toy_t             toy;
    ddp_status_t      status;

    params.plant = plant_huge;
    ddp_assert_all(toy_create(&params, &toy) == DDP_OK);
    status = run(&toy, 4, &result);
    ddp_assert_all(status == DDP_ERR_NOT_FINITE);
    ddp_assert_all(strstr(ddp_error_line(), "gradient of 'a.bias' is not finite at step 2") != NULL);
    toy_destroy(&toy);
}
END_TEST

/* Whoever owns which slice. */
START_TEST(the_first_parameter_in_registration_order_is_named)
{
    for (int clip = 0; clip < 2; clip++) {
        toy_params_t      params = TOY_PARAMS_INIT;
        ddp_step_result_t result = {.loss = 0};
        toy_t             toy;
        ddp_status_t      status;

        params.plant             = plant_in_all;
        params.reducer.clip_norm = clip != 0 ? 1.0F : 0.0F;
        ddp_assert_all(toy_create(&params, &toy) == DDP_OK);
        status = run(&toy, 4, &result);
        ddp_assert_all(status == DDP_ERR_NOT_FINITE);
        ddp_assert_all(strstr(ddp_error_line(), "gradient of 'a.weight' is not finite at step 2") != NULL);
        toy_destroy(&toy);
    }
}
END_TEST

START_TEST(with_clipping_nothing_is_written)
{
    toy_params_t      params = planted(2, 5, 2999, NAN);
    ddp_step_result_t result = {.loss = 0};
    toy_t             toy;
    ddp_status_t      status;

    params.reducer.clip_norm = 1.0F;
    ddp_assert_all(toy_create(&params, &toy) == DDP_OK);
    ddp_assert_all(run(&toy, 1, &result) == DDP_OK);
    toy_reference_step(&toy, 0.1F, 64, NULL);
    status = toy_step(&toy, 0.1F, 64, NULL, &result);
    ddp_assert_all(status == DDP_ERR_NOT_FINITE);
    ddp_assert_all(strstr(ddp_error_line(), "gradient of 'b.bias' is not finite at step 2") != NULL);
    ddp_assert_all(ddp_reducer_finish(toy.reducer) == DDP_OK);
    ddp_assert_all(toy_equals_reference(&toy));
    toy_destroy(&toy);
}
END_TEST

/* Parameters, moments (the third step would show them), counts and running averages. */
START_TEST(a_skipped_step_changes_nothing_and_says_why)
{
    for (size_t tensor = 0; tensor < 4; tensor++) { /* 2 and 3 are running averages */
        toy_params_t      params = planted(6, tensor, 3, tensor % 2 == 0 ? NAN : INFINITY);
        ddp_step_result_t result = {.loss = 0};
        toy_t             toy;

        params.roles             = 1;
        params.reducer.nonfinite = DDP_NONFINITE_SKIP;
        params.reducer.clip_norm = tensor == 1 ? 0.5F : 0.0F;
        ddp_assert_all(toy_create(&params, &toy) == DDP_OK);
        ddp_assert_all(run(&toy, 1, &result) == DDP_OK);
        ddp_assert_all(!result.skipped && result.not_finite == NULL);
        toy_reference_step(&toy, 0.1F, 64, NULL);
        ddp_assert_all(run(&toy, 2, &result) == DDP_OK);
        ddp_assert_all(result.skipped && strcmp(result.not_finite, toy.tensors[tensor].name) == 0);
        ddp_assert_all(toy_equals_reference(&toy));
        ddp_assert_all(ddp_reducer_tensor_steps(toy.reducer, 0) == 1);
        ddp_assert_all(ddp_reducer_tensor_steps(toy.reducer, 2) == 1);
        ddp_assert_all(run(&toy, 3, &result) == DDP_OK);
        toy_reference_step(&toy, 0.1F, 64, NULL);
        ddp_assert_all(!result.skipped && toy_equals_reference(&toy));
        toy_destroy(&toy);
    }
}
END_TEST

START_TEST(a_running_average_that_is_not_finite_ends_the_run)
{
    toy_params_t      params = planted(1, 2, 0, INFINITY);
    ddp_step_result_t result = {.loss = 0};
    toy_t             toy;
    ddp_status_t      status;

    params.roles = 1;
    ddp_assert_all(toy_create(&params, &toy) == DDP_OK);
    status = run(&toy, 4, &result);
    ddp_assert_all(status == DDP_ERR_NOT_FINITE);
    ddp_assert_all(strstr(ddp_error_line(), "running average 'scale' is not finite at step 2") != NULL);
    toy_destroy(&toy);
}
END_TEST

/* A tensor used in no micro-batch of a step must not count with what it had before. */
static int not_always(uint64_t step, size_t leaf, size_t tensor)
{
    (void)leaf;
    return tensor != 4 || step != 2;
}

START_TEST(the_norm_is_that_of_the_whole_gradient)
{
    for (int k = 0; k < 3; k++) {
        toy_params_t      params = TOY_PARAMS_INIT;
        ddp_step_result_t result = {.loss = 0};
        toy_t             toy;
        double            norm = -1;

        params.roles             = k == 1;
        params.norm              = 1;
        params.uses              = k == 0 ? not_always : NULL;
        params.reducer.clip_norm = k == 2 ? 0.01F : 0.0F;
        ddp_assert_all(toy_create(&params, &toy) == DDP_OK);
        ddp_assert_fails(ddp_reducer_grad_norm(toy.reducer, &norm), DDP_ERR_STATE, "before the first step");
        for (int s = 0; s < 3; s++) {
            ddp_assert_all(toy_step(&toy, 0.1F, 61, NULL, &result) == DDP_OK);
            ddp_assert_all(ddp_reducer_grad_norm(toy.reducer, &norm) == DDP_OK);
            toy_reference_step(&toy, 0.1F, 61, NULL);
            ddp_assert_all(norm == toy.norm);
            ddp_assert_all(k < 2 ? isnan(result.grad_norm) : result.grad_norm == norm);
        }
        toy_destroy(&toy);
    }
}
END_TEST

START_TEST(a_norm_that_nobody_asked_for_is_none)
{
    toy_params_t      params = TOY_PARAMS_INIT;
    ddp_step_result_t result = {.loss = 0};
    toy_t             toy;
    double            norm = -1;

    ddp_assert_all(toy_create(&params, &toy) == DDP_OK);
    ddp_assert_all(toy_step(&toy, 0.1F, 64, NULL, &result) == DDP_OK);
    ddp_assert_all(ddp_reducer_grad_norm(toy.reducer, &norm) == DDP_OK);
    ddp_assert_all(isnan(norm));
    toy_destroy(&toy);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("reducer finite");
    TCase *tcase = tcase_create("steps");

    tcase_add_test(tcase, without_clipping_the_run_ends_after_the_step_and_names_the_parameter);
    tcase_add_test(tcase, a_sum_that_overflows_is_found_where_no_part_of_it_is_infinite);
    tcase_add_test(tcase, the_first_parameter_in_registration_order_is_named);
    tcase_add_test(tcase, with_clipping_nothing_is_written);
    tcase_add_test(tcase, a_skipped_step_changes_nothing_and_says_why);
    tcase_add_test(tcase, a_running_average_that_is_not_finite_ends_the_run);
    tcase_add_test(tcase, the_norm_is_that_of_the_whole_gradient);
    tcase_add_test(tcase, a_norm_that_nobody_asked_for_is_none);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return ddp_test_run_mpi(&argc, &argv, make_suite);
}
