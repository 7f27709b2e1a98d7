/* Tensors that are not ordinary parameters: running averages, frozen ones, and those without weight decay. */
#include <string.h>

#include "tests/ddp/toy.h"
#include "tests/support/ddp_test.h"

/* the averages: 2 by all but the third micro-batch, 3 by nobody in the second step */
static int average_use(uint64_t step, size_t leaf, size_t tensor)
{
    return tensor == 2 ? leaf != 2 : tensor != 3 || step != 2;
}

/* weights that are no sample counts: ignored labels */
static float odd_weight(uint64_t step, size_t leaf, size_t samples)
{
    (void)step;
    return leaf == 2 ? 0.0F : (float)samples - (float)(leaf % 2);
}

/* Averages and parameters in the same buckets, in buckets of their own, clipped or not. */
START_TEST(running_averages_decay_and_frozen_tensors_keep_the_bits)
{
    for (int k = 0; k < 4; k++) {
        toy_params_t params = TOY_PARAMS_INIT;

        params.roles                      = 1;
        params.uses                       = k == 3 ? average_use : NULL;
        params.reducer.bucket_cap_bytes   = k % 2 == 0 ? 1024 : (size_t)1 << 20;
        params.reducer.clip_norm          = k == 2 ? 0.25F : 0.0F;
        params.reducer.optim.weight_decay = 0.5;
        if (k == 1) {
            params.reducer.optim = (ddp_optim_config_t){
                .kind = DDP_OPTIM_SGD, .momentum = 0.9, .nesterov = true, .weight_decay = 0.5};
        }
        ddp_assert_all(toy_run(&params, 3, 61, 5));
    }
}
END_TEST

/* Four micro-batches of unlike sizes and weights, statistics leaf + 1: the mean is over micro-batches, not
 * weighted. */
START_TEST(a_running_average_moves_towards_the_mean_over_micro_batches)
{
    static const size_t sizes[8] = {3, 3, 2, 1};

    for (int k = 0; k < 4; k++) {
        toy_params_t      params = TOY_PARAMS_INIT;
        toy_t             toy;
        ddp_step_result_t result;

        params.roles             = 1;
        params.integers          = 1; /* exact in any order: `fast` and `ranks` must give the same */
        params.uses              = k == 3 ? average_use : NULL; /* not the third micro-batch */
        params.weight            = odd_weight;
        params.reducer.reduction = k == 1 ? DDP_REDUCTION_FAST : DDP_REDUCTION_EXACT;
        params.reducer.average   = k == 2 ? DDP_AVERAGE_RANKS : DDP_AVERAGE_SAMPLES;
        ddp_assert_all(toy_create(&params, &toy) == DDP_OK);
        ddp_assert_all(toy_step(&toy, 0.5F, 9, sizes, &result) == DDP_OK);
        ddp_assert_all(ddp_reducer_finish(toy.reducer) == DDP_OK);
        for (size_t i = 2; i < 4; i++) {
            for (size_t e = 0; e < toy.tensors[i].count; e++) {
                const float before = toy.reference[toy.tensors[i].offset + e];
                float       sum    = 0;

                for (size_t leaf = 0; leaf < 4; leaf++) {
                    sum += k < 3 || average_use(1, leaf, i) ? toy_gradient(&toy, 1, leaf, i, e) : 0.0F;
                }
                /* a quarter of small integers is exact */
                ck_assert(toy_value(&toy, i, e) ==
                          (i == 2 ? 0.75F * before + 0.25F * (sum / 4.0F) : sum / 4.0F));
            }
        }
        ddp_assert_all(ddp_reducer_tensor_steps(toy.reducer, 2) == 1);
        for (size_t e = 0; e < toy.tensors[5].count; e++) { /* frozen */
            ck_assert(toy_value(&toy, 5, e) == toy.reference[toy.tensors[5].offset + e]);
        }
        ddp_assert_all(ddp_reducer_tensor_steps(toy.reducer, 5) == 0);
        toy_destroy(&toy);
    }
}
END_TEST

START_TEST(a_model_without_anything_to_train_is_refused)
{
    toy_params_t      params = TOY_PARAMS_INIT;
    toy_t             toy;
    ddp_tensor_desc_t tensors[TOY_TENSORS];
    ddp_reducer_t    *reducer = NULL;

    ddp_assert_all(toy_create(&params, &toy) == DDP_OK);
    memcpy(tensors, toy.tensors, sizeof(tensors));
    for (size_t i = 0; i < TOY_TENSORS; i++) {
        tensors[i].frozen = i != 2;
        tensors[i].role   = i == 2 ? DDP_TENSOR_AVERAGE : DDP_TENSOR_PARAMETER;
    }
    toy.params.reducer.tensors = tensors;
    ddp_assert_all(ddp_reducer_create(&toy.params.reducer, &reducer) == DDP_ERR_INVALID_ARG);
    ddp_assert_all(strstr(ddp_error_line(), "all parameters are frozen") != NULL);
    toy_destroy(&toy);
}
END_TEST

START_TEST(a_frozen_tensor_that_is_used_is_refused)
{
    toy_params_t  params = TOY_PARAMS_INIT;
    toy_t         toy;
    ddp_step_t    step = {.lr = 0.1F, .samples = 64};
    float        *grads;
    bool          accumulate;
    const uint8_t used[TOY_TENSORS] = {1, 1, 1, 1, 1, 1};
    size_t        first;
    size_t        count;

    params.roles = 1;
    ddp_assert_all(toy_create(&params, &toy) == DDP_OK);
    ddp_reducer_range(toy.reducer, &first, &count);
    ddp_assert_all(ddp_reducer_step_begin(toy.reducer, &step) == DDP_OK);
    ddp_assert_ok(ddp_reducer_micro_begin(toy.reducer, first, &grads, &accumulate));
    ddp_assert_fails(ddp_reducer_forward_done(toy.reducer, &toy.stats[first], used), DDP_ERR_STATE,
                     "'b.bias' is frozen");
    ddp_assert_all(true);
    toy_destroy(&toy);
}
END_TEST

/* Only dimensions that exist count, and a role is part of a tensor. */
START_TEST(tensors_that_differ_between_ranks_are_named)
{
    toy_params_t      params = TOY_PARAMS_INIT;
    toy_t             toy;
    ddp_tensor_desc_t tensors[TOY_TENSORS];
    ddp_reducer_t    *reducer = NULL;
    bool              last;
    int               size;

    params.roles = 1;
    ddp_assert_all(toy_create(&params, &toy) == DDP_OK);
    size = ddp_comm_size(toy.comm);
    last = ddp_comm_rank(toy.comm) == size - 1;
    for (int k = 0; k < 4 && size > 1; k++) {
        static const char *const texts[] = {"tensor 2", "tensor 1", "tensor 0", NULL};
        ddp_status_t             status;

        memcpy(tensors, toy.tensors, sizeof(tensors));
        tensors[2].momentum        = last && k == 0 ? 0.5F : 0.25F;
        tensors[1].no_decay        = !last || k != 1;
        tensors[0].frozen          = last && k == 2;
        tensors[0].shape[3]        = last ? 77 : 1;
        toy.params.reducer.tensors = tensors;
        status                     = ddp_reducer_create(&toy.params.reducer, &reducer);
        ddp_assert_all(status == (texts[k] != NULL ? DDP_ERR_MISMATCH : DDP_OK));
        ddp_assert_all(texts[k] == NULL || strstr(ddp_error_line(), texts[k]) != NULL);
        ddp_reducer_destroy(&reducer);
    }
    toy_destroy(&toy);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("reducer roles");
    TCase *tcase = tcase_create("steps");

    tcase_add_test(tcase, running_averages_decay_and_frozen_tensors_keep_the_bits);
    tcase_add_test(tcase, a_running_average_moves_towards_the_mean_over_micro_batches);
    tcase_add_test(tcase, a_model_without_anything_to_train_is_refused);
    tcase_add_test(tcase, a_frozen_tensor_that_is_used_is_refused);
    tcase_add_test(tcase, tensors_that_differ_between_ranks_are_named);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return ddp_test_run_mpi(&argc, &argv, make_suite);
}
