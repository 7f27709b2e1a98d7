#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/nn/nn_program.h"
#include "tests/support/ddp_test.h"

static const ddp_init_t zero = {.kind = DDP_INIT_ZERO, .fan_in = 0};

START_TEST(parameters_keep_copies_of_their_names_in_registration_order)
{
    ddp_params_t            *params = NULL;
    const ddp_tensor_desc_t *descs;
    const size_t             shape[] = {3, 100, 2, 1};
    char                     name[32];
    size_t                   index;

    ck_assert_int_eq(ddp_params_create(&params), DDP_OK);
    for (size_t i = 0; i < 100; i++) {
        snprintf(name, sizeof(name), "layer%zu.weight", i);
        ck_assert_int_eq(ddp_params_add(params, name, 1 + i % 4, shape, zero, &index), DDP_OK);
        ck_assert_uint_eq(index, i);
    }
    memset(name, 0, sizeof(name));
    ck_assert_int_eq(ddp_params_finish(params), DDP_OK);
    descs = ddp_params_descs(params);
    ck_assert_uint_eq(ddp_params_count(params), 100);
    ck_assert_str_eq(descs[0].name, "layer0.weight");
    ck_assert_str_eq(descs[99].name, "layer99.weight");
    ck_assert_uint_eq(descs[99].ndim, 4);
    ck_assert_uint_eq(descs[99].count, 600);
    ck_assert_uint_eq(ddp_params_elements(params), 25 * (3 + 300 + 600 + 600));
    ck_assert_uint_eq(ddp_params_total(params), 25 * (256 + 512 + 768 + 768));
    ck_assert_uint_eq(descs[99].offset, 0); /* the last one's gradient is ready first */
    ck_assert_uint_eq(descs[0].offset, ddp_params_total(params) - 256);
    ddp_params_destroy(&params);
    ck_assert_ptr_null(params);
    ddp_params_destroy(&params);
}
END_TEST

START_TEST(wrong_parameters_are_refused_by_name)
{
    ddp_params_t    *params  = NULL;
    const size_t     shape[] = {2, 2, 2, 2, 2}, empty[] = {2, 0}, huge[] = {(size_t)1 << 40, (size_t)1 << 40};
    const ddp_init_t uniform = {.kind = DDP_INIT_UNIFORM, .fan_in = 0};
    size_t           index   = 77;

    ck_assert_int_eq(ddp_params_create(&params), DDP_OK);
    ck_assert_int_eq(ddp_params_add(params, "a", 1, shape, zero, &index), DDP_OK);
    ck_assert_int_eq(ddp_params_add(params, "a", 2, shape, zero, &index), DDP_ERR_INVALID_ARG);
    ck_assert_str_eq(ddp_error_line(), "parameter 'a' is registered twice");
    ck_assert_int_eq(ddp_params_add(params, "b", 5, shape, zero, &index), DDP_ERR_INVALID_ARG);
    ck_assert_str_eq(ddp_error_line(), "parameter 'b': 5 dimensions, not 1 .. 4");
    ck_assert_int_eq(ddp_params_add(params, "b", 2, empty, zero, &index), DDP_ERR_INVALID_ARG);
    ck_assert_str_eq(ddp_error_line(), "parameter 'b': dimension 1 is 0");
    ck_assert_int_eq(ddp_params_add(params, "b", 2, huge, zero, &index), DDP_ERR_INVALID_ARG);
    ck_assert_int_eq(ddp_params_add(params, "b", 1, shape, uniform, &index), DDP_ERR_INVALID_ARG);
    ck_assert_str_eq(ddp_error_line(), "parameter 'b': a uniform start needs a fan_in > 0");
    ck_assert_int_eq(ddp_params_add(params, "", 1, shape, zero, &index), DDP_ERR_INVALID_ARG);
    ck_assert_uint_eq(index, 0);
    ck_assert_int_eq(ddp_params_finish(params), DDP_OK);
    ck_assert_int_eq(ddp_params_add(params, "c", 1, shape, zero, &index), DDP_ERR_STATE);
    ck_assert_int_eq(ddp_params_finish(params), DDP_ERR_STATE);
    ck_assert_uint_eq(ddp_params_count(params), 1);
    ddp_params_destroy(&params);
}
END_TEST

START_TEST(running_averages_lie_among_the_parameters_but_do_not_count)
{
    ddp_params_t *params  = NULL;
    const size_t  shape[] = {10, 20};
    size_t        index   = 0;

    ck_assert_int_eq(ddp_params_create(&params), DDP_OK);
    ck_assert_int_eq(ddp_params_add(params, "bn.weight", 1, shape, zero, &index), DDP_OK);
    ck_assert_int_eq(ddp_params_add_average(params, "bn.running_mean", 1, shape, zero, 0.1F, &index), DDP_OK);
    ck_assert_uint_eq(index, 1);
    ck_assert_int_eq(ddp_params_add_average(params, "bn.running_mean", 1, shape, zero, 0.1F, &index),
                     DDP_ERR_INVALID_ARG);
    ck_assert_int_eq(ddp_params_add_average(params, "bn.running_var", 1, shape, zero, 1.5F, &index),
                     DDP_ERR_INVALID_ARG);
    ck_assert_str_eq(ddp_error_line(), "running average 'bn.running_var': momentum 1.5 is not in [0, 1]");
    ck_assert_int_eq(ddp_params_add_average(params, "bn.running_var", 1, shape, zero, NAN, &index),
                     DDP_ERR_INVALID_ARG);
    ck_assert_int_eq(ddp_params_finish(params), DDP_OK);
    ck_assert_uint_eq(ddp_params_count(params), 2);
    ck_assert_uint_eq(ddp_params_elements(params), 10);
    ck_assert_uint_eq(ddp_params_total(params), 512);
    ck_assert_int_eq(ddp_params_descs(params)[0].role, DDP_TENSOR_PARAMETER);
    ck_assert_int_eq(ddp_params_descs(params)[1].role, DDP_TENSOR_AVERAGE);
    ck_assert(ddp_params_descs(params)[1].momentum == 0.1F);
    ck_assert(ddp_params_is_trained(params, 0) && !ddp_params_is_trained(params, 1));
    ddp_params_destroy(&params);
}
END_TEST

START_TEST(matrices_decay_and_vectors_do_not)
{
    ddp_params_t *params  = NULL;
    const size_t  shape[] = {3, 2, 1, 1};
    size_t        index;

    ck_assert_int_eq(ddp_params_create(&params), DDP_OK);
    ck_assert_int_eq(ddp_params_add(params, "conv", 4, shape, zero, &index), DDP_OK);
    ck_assert_int_eq(ddp_params_add(params, "bias", 1, shape, zero, &index), DDP_OK);
    ck_assert_int_eq(ddp_params_add(params, "linear", 2, shape, zero, &index), DDP_OK);
    ck_assert(!ddp_params_descs(params)[1].no_decay);
    ddp_params_decay_matrices(params);
    ck_assert(!ddp_params_descs(params)[0].no_decay && !ddp_params_descs(params)[2].no_decay);
    ck_assert(ddp_params_descs(params)[1].no_decay);
    ddp_params_destroy(&params);
}
END_TEST

START_TEST(patterns_freeze_parameters_by_name)
{
    static const char *const names[] = {"conv1.weight", "conv1.bias", "conv10.weight", "fc.weight"};
    ddp_params_t            *params  = NULL;
    const size_t             shape[] = {3};
    size_t                   index;
    size_t                   count = 77;

    ck_assert_int_eq(ddp_params_create(&params), DDP_OK);
    for (size_t i = 0; i < 4; i++) {
        ck_assert_int_eq(ddp_params_add(params, names[i], 1, shape, zero, &index), DDP_OK);
    }
    ck_assert_int_eq(ddp_params_add_average(params, "conv1.running_mean", 1, shape, zero, 0.1F, &index),
                     DDP_OK);
    ck_assert_int_eq(ddp_params_freeze(params, "", &count), DDP_ERR_INVALID_ARG);
    ck_assert_int_eq(ddp_params_freeze(params, NULL, &count), DDP_ERR_INVALID_ARG);
    ck_assert_uint_eq(count, 77);
    ck_assert_int_eq(ddp_params_freeze(params, "conv2.*", &count), DDP_OK);
    ck_assert_uint_eq(count, 0);
    ck_assert_int_eq(ddp_params_freeze(params, "conv1.*", &count), DDP_OK);
    ck_assert_uint_eq(count, 2);
    ck_assert(!ddp_params_is_trained(params, 0) && !ddp_params_is_trained(params, 1));
    ck_assert(ddp_params_is_trained(params, 2) && ddp_params_is_trained(params, 3));
    ck_assert(!ddp_params_descs(params)[4].frozen);
    ck_assert_uint_eq(ddp_params_elements(params), 12);
    ck_assert_int_eq(ddp_params_freeze(params, "*weight", &count), DDP_OK);
    ck_assert_uint_eq(count, 3);
    ddp_params_destroy(&params);
}
END_TEST

START_TEST(binding_keeps_what_is_not_given)
{
    ddp_params_t *params  = NULL;
    const size_t  shape[] = {3};
    static float  values[512], grads[512];
    size_t        index;

    ck_assert_int_eq(ddp_params_create(&params), DDP_OK);
    ck_assert_int_eq(ddp_params_add(params, "a", 1, shape, zero, &index), DDP_OK);
    ck_assert_int_eq(ddp_params_add(params, "b", 1, shape, zero, &index), DDP_OK);
    ck_assert_int_eq(ddp_params_finish(params), DDP_OK);
    ck_assert_ptr_null(ddp_params_value(params, 0));
    ddp_params_bind(params, values, NULL);
    ddp_params_bind(params, NULL, grads);
    ck_assert_ptr_eq(ddp_params_value(params, 1), values);
    ck_assert_ptr_eq(ddp_params_grad(params, 0), grads + 256);
    ddp_params_destroy(&params);
}
END_TEST

static void start(nn_world_t *world, size_t n, uint64_t seed)
{
    const size_t     shape[]  = {50, 30};
    const ddp_init_t inits[3] = {{.kind = DDP_INIT_UNIFORM, .fan_in = 25},
                                 {.kind = DDP_INIT_ONE, .fan_in = 0},
                                 {.kind = DDP_INIT_ZERO, .fan_in = 0}};
    char             name[8];
    size_t           index;

    nn_world_open(world, DDP_ISA_PLAIN);
    for (size_t i = 0; i < n; i++) {
        snprintf(name, sizeof(name), "p%zu", i);
        ck_assert_int_eq(ddp_params_add(world->params, name, 2, shape, inits[i % 3], &index), DDP_OK);
    }
    ck_assert_int_eq(ddp_params_finish(world->params), DDP_OK);
    nn_world_start(world, seed);
    nn_world_wait(world);
}

START_TEST(initial_values_fill_their_range_evenly_and_leave_padding_zero)
{
    nn_world_t   world;
    const float *value;
    double       sum = 0, squares = 0;
    float        low = 1, high = -1;

    start(&world, 3, 5);
    value = ddp_params_value(world.params, 0);
    for (size_t i = 0; i < 1500; i++) {
        sum += (double)value[i];
        squares += (double)value[i] * (double)value[i];
        low  = fminf(low, value[i]);
        high = fmaxf(high, value[i]);
    }
    /* U(-0.2, 0.2): variance 0.04 / 3; five standard deviations of the mean and of the variance of 1500. */
    ck_assert(low >= -0.2F && low < -0.195F && high < 0.2F && high > 0.195F);
    ck_assert_double_eq_tol(sum / 1500, 0, 5 * sqrt(0.04 / 3 / 1500));
    ck_assert_double_eq_tol(squares / 1500, 0.04 / 3, 5 * 0.04 * sqrt(4.0 / 45 / 1500));
    ck_assert(value[1500] == 0.0F && value[1535] == 0.0F);
    ck_assert(ddp_params_value(world.params, 1)[1499] == 1.0F &&
              ddp_params_value(world.params, 1)[1500] == 0.0F);
    ck_assert(ddp_params_value(world.params, 2)[0] == 0.0F);
    nn_world_close(&world);
}
END_TEST

START_TEST(initial_values_depend_on_seed_and_index_only)
{
    nn_world_t   a, b, c;
    const size_t bytes = 1500 * sizeof(float);

    start(&a, 4, 5);
    start(&b, 7, 5); /* more parameters: another layout */
    start(&c, 4, 6);
    ck_assert_mem_eq(ddp_params_value(a.params, 0), ddp_params_value(b.params, 0), bytes);
    ck_assert_mem_eq(ddp_params_value(a.params, 3), ddp_params_value(b.params, 3), bytes);
    ck_assert_mem_ne(ddp_params_value(a.params, 0), ddp_params_value(a.params, 3), bytes);
    ck_assert_mem_ne(ddp_params_value(a.params, 0), ddp_params_value(c.params, 0), bytes);
    nn_world_close(&a);
    nn_world_close(&b);
    nn_world_close(&c);
}
END_TEST

START_TEST(initialising_cleans_the_padding_of_used_memory)
{
    nn_world_t world;

    start(&world, 2, 5);
    memset(ddp_params_value(world.params, 1), 0xff, ddp_params_total(world.params) * sizeof(float));
    ck_assert_int_eq(ddp_params_initialize(world.params, world.stream, 5), DDP_OK);
    nn_world_wait(&world);
    ck_assert(ddp_params_value(world.params, 0)[1500] == 0.0F &&
              ddp_params_value(world.params, 1)[1535] == 0.0F);
    nn_world_close(&world);
}
END_TEST

START_TEST(memory_that_is_not_there_is_an_error_of_the_state)
{
    ddp_params_t *params  = NULL;
    const size_t  shape[] = {3};
    size_t        index;

    ck_assert_int_eq(ddp_params_create(&params), DDP_OK);
    ck_assert_int_eq(ddp_params_add(params, "a", 1, shape, zero, &index), DDP_OK);
    ck_assert_int_eq(ddp_params_allocate(params, ddp_allocator_private()), DDP_ERR_STATE);
    ck_assert_int_eq(ddp_params_initialize(params, NULL, 1), DDP_ERR_STATE);
    ck_assert_int_eq(ddp_params_finish(params), DDP_OK);
    ck_assert_int_eq(ddp_params_initialize(params, NULL, 1), DDP_ERR_STATE);
    ck_assert_int_eq(ddp_params_allocate(params, ddp_allocator_private()), DDP_OK);
    ck_assert_int_eq(ddp_params_allocate(params, ddp_allocator_private()), DDP_ERR_STATE);
    ddp_params_destroy(&params);
}
END_TEST

START_TEST(a_clone_has_the_same_tensors_and_its_own_memory)
{
    const size_t  shape[]  = {3, 5};
    const size_t  bytes    = sizeof(float);
    ddp_params_t *params   = NULL;
    ddp_params_t *clone    = NULL;
    size_t        index    = 0;
    size_t        n_frozen = 0;

    ck_assert_int_eq(ddp_params_create(&params), DDP_OK);
    ck_assert_int_eq(ddp_params_add(params, "a", 2, shape, zero, &index), DDP_OK);
    ck_assert_int_eq(ddp_params_add(params, "b.bias", 1, shape, zero, &index), DDP_OK);
    ck_assert_int_eq(ddp_params_add_average(params, "b.mean", 1, shape, zero, 0.25F, &index), DDP_OK);
    ddp_params_decay_matrices(params);
    ck_assert_int_eq(ddp_params_freeze(params, "a", &n_frozen), DDP_OK);
    ddp_assert_fails(ddp_params_clone(params, &clone), DDP_ERR_STATE, "finish the parameter list");
    ck_assert_ptr_null(clone);
    ck_assert_int_eq(ddp_params_finish(params), DDP_OK);
    ck_assert_int_eq(ddp_params_allocate(params, ddp_allocator_private()), DDP_OK);
    ck_assert_int_eq(ddp_params_clone(params, &clone), DDP_OK);
    ck_assert_uint_eq(ddp_params_count(clone), 3);
    ck_assert_uint_eq(ddp_params_total(clone), ddp_params_total(params));
    ck_assert_uint_eq(ddp_params_elements(clone), 18);
    for (size_t i = 0; i < 3; i++) {
        ddp_tensor_desc_t first  = ddp_params_descs(params)[i];
        ddp_tensor_desc_t second = ddp_params_descs(clone)[i];

        ck_assert_str_eq(first.name, second.name);
        ck_assert_ptr_ne(first.name, second.name);
        first.name = second.name;
        ck_assert_mem_eq(&first, &second, sizeof(first));
        ck_assert(ddp_params_is_trained(clone, i) == (i == 1));
        ck_assert_ptr_null(ddp_params_value(clone, i));
        ck_assert_ptr_null(ddp_params_grad(clone, i));
    }
    ck_assert_int_eq(ddp_params_allocate(clone, ddp_allocator_private()), DDP_OK);
    memset(ddp_params_value(clone, 2), 1, ddp_params_total(clone) * bytes);
    ck_assert(ddp_params_value(params, 0)[0] == 0.0F);
    ddp_params_destroy(&params); /* the clone needs it no more */
    ck_assert_str_eq(ddp_params_descs(clone)[2].name, "b.mean");
    ddp_params_destroy(&clone);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("params");
    TCase *tcase = tcase_create("all");

    tcase_add_test(tcase, parameters_keep_copies_of_their_names_in_registration_order);
    tcase_add_test(tcase, wrong_parameters_are_refused_by_name);
    tcase_add_test(tcase, running_averages_lie_among_the_parameters_but_do_not_count);
    tcase_add_test(tcase, matrices_decay_and_vectors_do_not);
    tcase_add_test(tcase, patterns_freeze_parameters_by_name);
    tcase_add_test(tcase, binding_keeps_what_is_not_given);
    tcase_add_test(tcase, initial_values_fill_their_range_evenly_and_leave_padding_zero);
    tcase_add_test(tcase, initial_values_depend_on_seed_and_index_only);
    tcase_add_test(tcase, initialising_cleans_the_padding_of_used_memory);
    tcase_add_test(tcase, memory_that_is_not_there_is_an_error_of_the_state);
    tcase_add_test(tcase, a_clone_has_the_same_tensors_and_its_own_memory);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
