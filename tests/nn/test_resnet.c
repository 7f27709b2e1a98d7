/* ResNets: names and shapes against torchvision's (tests/data/make_resnet.py), the network, its start. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nn/model.h"
#include "tests/nn/nn_program.h"
#include "tests/support/ddp_test.h"

static void open_model(size_t depth, size_t size, size_t classes, ddp_params_t **params_p,
                       ddp_model_t **model_p)
{
    const ddp_model_config_t config = {.kind     = DDP_MODEL_RESNET,
                                       .depth    = depth,
                                       .height   = size,
                                       .width    = size,
                                       .channels = 3,
                                       .classes  = classes};

    ck_assert_int_eq(ddp_params_create(params_p), DDP_OK);
    ck_assert_msg(ddp_model_create(&config, *params_p, model_p) == DDP_OK, "%s", ddp_error_line());
}

static void close_model(ddp_params_t **params, ddp_model_t **model)
{
    ddp_model_destroy(model);
    ddp_params_destroy(params);
}

/* Torchvision's; the last is He et al.'s ResNet-20 with 1x1 shortcuts, counted by PyTorch. */
START_TEST(resnets_have_as_many_parameters_as_torchvisions)
{
    static const size_t cases[][4] = {{18, 224, 1000, 11689512},
                                      {34, 224, 1000, 21797672},
                                      {50, 224, 1000, 25557032},
                                      {101, 224, 1000, 44549160},
                                      {20, 32, 10, 272474}};

    for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
        ddp_params_t *params = NULL;
        ddp_model_t  *model  = NULL;

        open_model(cases[k][0], cases[k][1], cases[k][2], &params, &model);
        ck_assert_uint_eq(ddp_params_elements(params), cases[k][3]);
        close_model(&params, &model);
    }
}
END_TEST

static void expect_line(const ddp_tensor_desc_t *desc, size_t depth, const char *line)
{
    char   text[128];
    size_t used = (size_t)snprintf(text, sizeof(text), "%zu %s", depth, desc->name);

    for (size_t i = 0; i < desc->ndim; i++) {
        used += (size_t)snprintf(text + used, sizeof(text) - used, " %zu", desc->shape[i]);
    }
    ck_assert_str_eq(text, line);
}

START_TEST(names_shapes_and_order_are_those_of_torchvision)
{
    static const size_t depths[] = {18, 50};
    FILE               *file     = fopen(DDP_TEST_DATA_DIR "/resnet_names.txt", "r");
    char                line[128];

    ck_assert_ptr_nonnull(file);
    for (size_t k = 0; k < 2; k++) {
        ddp_params_t *params = NULL;
        ddp_model_t  *model  = NULL;

        open_model(depths[k], 224, 1000, &params, &model);
        for (size_t i = 0; i < ddp_params_count(params); i++) {
            const ddp_tensor_desc_t *desc    = &ddp_params_descs(params)[i];
            const bool               average = strstr(desc->name, "running_") != NULL;

            ck_assert_ptr_nonnull(fgets(line, sizeof(line), file));
            line[strcspn(line, "\n")] = '\0';
            expect_line(desc, depths[k], line);
            ck_assert_int_eq(desc->role, average ? DDP_TENSOR_AVERAGE : DDP_TENSOR_PARAMETER);
            ck_assert_float_eq(desc->momentum, average ? 0.1F : 0.0F);
        }
        close_model(&params, &model);
    }
    ck_assert_ptr_null(fgets(line, sizeof(line), file));
    fclose(file);
}
END_TEST

START_TEST(the_layer_table_shows_blocks_and_what_they_cost)
{
    ddp_layer_info_t layers[16];
    ddp_params_t    *params = NULL;
    ddp_model_t     *model  = NULL;
    size_t           total  = 0;

    open_model(20, 32, 10, &params, &model);
    ck_assert_uint_eq(ddp_model_layers(model, layers, 16), 12);
    for (size_t i = 0; i < 12; i++) {
        total += layers[i].parameters;
    }
    ck_assert_uint_eq(total, ddp_params_elements(params));
    ck_assert_str_eq(layers[4].name, "layer2.0");
    ck_assert_str_eq(layers[4].kind, "2 conv2d 3x3, 1x1 shortcut");
    ck_assert_mem_eq(layers[4].shape, ((size_t[3]){16, 16, 32}), sizeof(size_t[3]));
    /* Multiply-adds: stem; 6 + 5 + 5 convolutions of one cost; two of stride 2 with shortcuts; fc. */
    ck_assert_double_eq(ddp_model_flops(model),
                        2.0 * (2 * 442368.0 + 3 * (16 * 2359296.0 + 2 * (1179648.0 + 131072.0) + 640.0)));
    close_model(&params, &model);
    open_model(50, 224, 1000, &params, &model);
    ck_assert_uint_eq(ddp_model_layers(model, layers, 16), 20);
    ck_assert_str_eq(layers[1].kind, "max_pool2d 3 stride 2 pad 1");
    ck_assert_mem_eq(layers[1].shape, ((size_t[3]){56, 56, 64}), sizeof(size_t[3]));
    /* 4.089 G multiply-adds, as published for this form; the stem's input needs no gradient */
    ck_assert_double_eq(ddp_model_flops(model) / 2.0, 3 * 4089184256.0 - 118013952.0);
    ck_assert_uint_eq(ddp_model_min_samples(model), 1);
    close_model(&params, &model);
    open_model(18, 32, 10, &params, &model); /* 32, 16, 8, 8, 4, 2, 1 */
    ck_assert_uint_eq(ddp_model_min_samples(model), 2);
    close_model(&params, &model);
}
END_TEST

/* kaiming_normal_ with fan_out: variance 2 / (out * kernel * kernel). */
START_TEST(convolutions_start_normal_and_norms_as_identity)
{
    nn_world_t   world;
    ddp_model_t *model = NULL;

    nn_world_open(&world, ddp_isa_detect());
    ddp_params_destroy(&world.params);
    open_model(20, 32, 10, &world.params, &model);
    nn_world_start(&world, 3);
    nn_world_wait(&world);
    for (size_t i = 0; i < ddp_params_count(world.params); i++) {
        const ddp_tensor_desc_t *desc  = &ddp_params_descs(world.params)[i];
        const float             *value = ddp_params_value(world.params, i);
        double                   sum   = 0;
        double                   sumsq = 0;

        for (size_t j = 0; j < desc->count; j++) {
            sum += (double)value[j];
            sumsq += (double)value[j] * (double)value[j];
        }
        if (desc->ndim == 4) {
            const double n        = (double)desc->count;
            const double variance = 2.0 / (double)(desc->shape[0] * desc->shape[2] * desc->shape[3]);

            ck_assert_double_le(fabs(sum), 4 * sqrt(variance * n));
            ck_assert_double_le(fabs(sumsq / n / variance - 1), 4 * sqrt(2 / n));
        } else if (desc->ndim == 1 && strstr(desc->name, "fc") == NULL) {
            const bool one = strstr(desc->name, ".weight") != NULL ||
                             strstr(desc->name, "downsample.1.weight") != NULL ||
                             strstr(desc->name, "running_var") != NULL;

            ck_assert_double_eq(sum, one ? (double)desc->count : 0.0);
        }
    }
    ddp_model_destroy(&model);
    nn_world_close(&world);
}
END_TEST

/* Bottlenecks, the 7x7 stem and max pool: a step runs on odd sizes, and evaluation differs from training. */
START_TEST(a_resnet_50_runs_on_a_small_picture)
{
    const size_t  size     = 33;
    const size_t  shape[4] = {2, 33, 33, 3};
    const int32_t labels[] = {1, 0};
    float        *images   = calloc(2 * size * size * 3, sizeof(float));
    double        norm     = 0;
    nn_world_t    world;
    ddp_model_t  *model = NULL;
    float         loss[2];

    nn_noise(images, 2 * size * size * 3, 5);
    nn_world_open(&world, ddp_isa_detect());
    ddp_params_destroy(&world.params);
    open_model(50, size, 4, &world.params, &model);
    nn_world_start(&world, 3);
    for (int training = 0; training < 2; training++) {
        const ddp_tape_begin_t begin  = {.training = training == 1};
        ddp_tensor_t          *x      = NULL;
        ddp_tensor_t          *logits = NULL;
        ddp_loss_stats_t      *stats  = NULL;

        ck_assert_int_eq(ddp_tape_begin(world.tape, &begin), DDP_OK);
        ck_assert_int_eq(ddp_tape_input(world.tape, images, 4, shape, &x), DDP_OK);
        ck_assert_msg(ddp_model_forward(model, world.tape, x, &logits) == DDP_OK, "%s", ddp_error_line());
        ck_assert_int_eq(ddp_nn_cross_entropy(world.tape, logits, labels, NULL, -1, &stats), DDP_OK);
        nn_world_wait(&world);
        loss[training] = stats->loss;
    }
    ck_assert(isfinite(loss[1]) && loss[1] != loss[0]);
    ck_assert_int_eq(ddp_tape_backward(world.tape), DDP_OK);
    nn_world_wait(&world);
    for (size_t j = 0; j < ddp_params_descs(world.params)[0].count; j++) { /* the stem's, reached last */
        norm += fabs((double)ddp_params_grad(world.params, 0)[j]);
    }
    ck_assert(isfinite(norm) && norm > 0);
    free(images);
    ddp_model_destroy(&model);
    nn_world_close(&world);
}
END_TEST

START_TEST(other_depths_are_refused)
{
    const ddp_model_config_t config = {
        .kind = DDP_MODEL_RESNET, .depth = 21, .height = 32, .width = 32, .channels = 3, .classes = 10};
    ddp_params_t *params = NULL;
    ddp_model_t  *model  = NULL;

    ck_assert_int_eq(ddp_params_create(&params), DDP_OK);
    ddp_assert_fails(ddp_model_create(&config, params, &model), DDP_ERR_CONFIG,
                     "model: no resnet of depth 21; there are 20, 32, 44, 56, 110 for small pictures and 18, "
                     "34, 50, 101 for large ones");
    ddp_params_destroy(&params);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("resnet");
    TCase *tcase = tcase_create("all");

    tcase_add_test(tcase, resnets_have_as_many_parameters_as_torchvisions);
    tcase_add_test(tcase, names_shapes_and_order_are_those_of_torchvision);
    tcase_add_test(tcase, the_layer_table_shows_blocks_and_what_they_cost);
    tcase_add_test(tcase, convolutions_start_normal_and_norms_as_identity);
    tcase_add_test(tcase, a_resnet_50_runs_on_a_small_picture);
    tcase_add_test(tcase, other_depths_are_refused);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
