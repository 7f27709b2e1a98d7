/* ONNX's node tests as an outside oracle: inputs and outputs are files, attributes stand in the tables here.
 */
#include "base/allocator.h"
#include "kernels/layout.h"
#include "kernels/ops_norm.h"
#include "kernels/optim.h"
#include "tests/kernels/onnx_node.h"

START_TEST(pooling_equals_onnx)
{
    static const struct {
        const char *name;
        bool        is_max;
        size_t      outputs, kernel, stride, pad;
    } cases[] = {
        {"test_maxpool_2d_default", true, 1, 2, 1, 0},
        {"test_maxpool_2d_strides", true, 1, 5, 3, 0},
        {"test_maxpool_2d_precomputed_pads", true, 1, 5, 1, 2},
        {"test_maxpool_2d_precomputed_strides", true, 1, 2, 2, 0},
        {"test_maxpool_with_argmax_2d_precomputed_pads", true, 2, 5, 1, 2},
        {"test_averagepool_2d_default", false, 1, 2, 1, 0},
        {"test_averagepool_2d_strides", false, 1, 5, 3, 0},
        {"test_averagepool_2d_precomputed_strides", false, 1, 2, 2, 0},
        {"test_averagepool_2d_precomputed_pads_count_include_pad", false, 1, 5, 1, 2},
    };
    ddp_stream_t *stream = fixture_open(_i);

    for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
        node_t   node;
        float   *x;
        float   *y;
        uint8_t *index;

        node_open(cases[k].name, 1, cases[k].outputs, &node);
        x     = to_nhwc(&node.in[0]);
        y     = fixture_new(node.out[0].count);
        index = fixture_bytes(node.out[0].count);

        const ddp_pool2d_args_t args = {.is_max = cases[k].is_max,
                                        .n      = node.in[0].dim[0],
                                        .in_h   = node.in[0].dim[2],
                                        .in_w   = node.in[0].dim[3],
                                        .c      = node.in[0].dim[1],
                                        .kernel = cases[k].kernel,
                                        .stride = cases[k].stride,
                                        .pad    = cases[k].pad,
                                        .out_h  = node.out[0].dim[2],
                                        .out_w  = node.out[0].dim[3],
                                        .x      = x,
                                        .y      = y,
                                        .index  = index};

        ddp_assert_ok(ddp_op_pool2d(stream, &args));
        ddp_assert_ok(ddp_stream_synchronize(stream, -1));
        check_nhwc(cases[k].name, y, &node.out[0], args.is_max ? 0.0 : 5e-7);
        /* ONNX's index is the place in the image; one image of one channel here */
        for (size_t o = 0; cases[k].outputs == 2 && o < node.out[1].count; o++) {
            const size_t row    = o / args.out_w * args.stride + index[o] / args.kernel - args.pad;
            const size_t column = o % args.out_w * args.stride + index[o] % args.kernel - args.pad;

            ck_assert_double_eq((double)(row * args.in_w + column), node.out[1].value[o]);
        }
        fixture_free(x);
        fixture_free(y);
        fixture_free(index);
        node_close(&node);
    }
    fixture_close(stream);
}
END_TEST

/* ONNX: x, scale, bias, mean, variance; y, and in training the averages with momentum 0.9, of the biased
 * variance. */
static void check_batch_norm(ddp_stream_t *stream, const char *name, float eps, bool training)
{
    node_t                node;
    size_t                c;
    float                *x, *y, *in[5], *mean_sum, *var_sum;
    ddp_batch_norm_args_t args = {.eps = eps};

    node_open(name, 5, training ? 3 : 1, &node);
    c         = node.in[0].dim[1];
    x         = to_nhwc(&node.in[0]);
    y         = fixture_new(node.out[0].count);
    mean_sum  = fixture_new(c);
    var_sum   = fixture_new(c);
    args.rows = node.in[0].count / c;
    for (size_t i = 1; i < 5; i++) {
        in[i] = to_float(&node.in[i]);
    }
    args.x     = x;
    args.c     = c;
    args.gamma = in[1];
    args.beta  = in[2];
    args.y     = y;
    if (training) {
        args.mean_sum = mean_sum;
        args.var_sum  = var_sum;
    } else {
        args.running_mean = in[3];
        args.running_var  = in[4];
    }
    ddp_assert_ok(ddp_op_batch_norm(stream, &args));
    ddp_assert_ok(ddp_stream_synchronize(stream, -1));
    check_nhwc(name, y, &node.out[0], 4e-6);
    for (size_t j = 0; training && j < c; j++) {
        mean_sum[j] = 0.9F * in[3][j] + 0.1F * mean_sum[j];
        var_sum[j]  = 0.9F * in[4][j] + 0.1F * var_sum[j] * (float)(args.rows - 1) / (float)args.rows;
    }
    if (training) {
        check_values(name, mean_sum, &node.out[1], 1e-6);
        check_values(name, var_sum, &node.out[2], 1e-6);
    }
    for (size_t i = 1; i < 5; i++) {
        fixture_free(in[i]);
    }
    fixture_free(x);
    fixture_free(y);
    fixture_free(mean_sum);
    fixture_free(var_sum);
    node_close(&node);
}

START_TEST(batch_normalisation_equals_onnx)
{
    ddp_stream_t *stream = fixture_open(_i);

    check_batch_norm(stream, "test_batchnorm_example", 1e-5F, false);
    check_batch_norm(stream, "test_batchnorm_epsilon", 1e-2F, false);
    check_batch_norm(stream, "test_batchnorm_example_training_mode", 1e-5F, true);
    check_batch_norm(stream, "test_batchnorm_epsilon_training_mode", 1e-2F, true);
    fixture_close(stream);
}
END_TEST

START_TEST(global_average_pooling_equals_onnx)
{
    static const char *const names[] = {"test_globalaveragepool", "test_globalaveragepool_precomputed"};
    ddp_stream_t            *stream  = fixture_open(_i);

    for (size_t k = 0; k < 2; k++) {
        node_t node;
        float *x;
        float *y;

        node_open(names[k], 1, 1, &node);
        x = to_nhwc(&node.in[0]);
        y = fixture_new(node.out[0].count);
        ddp_assert_ok(ddp_op_global_avg_pool(
            stream, &(ddp_global_avg_pool_args_t){.x      = x,
                                                  .n      = node.in[0].dim[0],
                                                  .pixels = node.in[0].dim[2] * node.in[0].dim[3],
                                                  .c      = node.in[0].dim[1],
                                                  .y      = y}));
        ddp_assert_ok(ddp_stream_synchronize(stream, -1));
        check_nhwc(names[k], y, &node.out[0], 1e-6);
        fixture_free(x);
        fixture_free(y);
        node_close(&node);
    }
    fixture_close(stream);
}
END_TEST

START_TEST(relu_equals_onnx)
{
    ddp_stream_t *stream = fixture_open(_i);
    node_t        node;
    float        *x;

    node_open("test_relu", 1, 1, &node);
    x = to_float(&node.in[0]);
    ddp_assert_ok(ddp_op_act(
        stream, &(ddp_act_args_t){.act = DDP_ACT_RELU, .x = x, .y = x, .count = node.in[0].count}));
    ddp_assert_ok(ddp_stream_synchronize(stream, -1));
    check_values("test_relu", x, &node.out[0], 0.0);
    fixture_free(x);
    node_close(&node);
    fixture_close(stream);
}
END_TEST

typedef enum reduction { SUM, MEAN, NONE } reduction_t;

/* ONNX weighs classes, we weigh samples: the sample's weight is that of its class. */
static float *sample_weights(const onnx_tensor_t *class_weights, const int32_t *labels, size_t rows)
{
    float *weights = fixture_new(rows);

    for (size_t i = 0; i < rows; i++) {
        const bool counts = labels[i] >= 0 && (size_t)labels[i] < class_weights->count;

        weights[i] = counts ? (float)class_weights->value[labels[i]] : 0.0F;
    }
    return weights;
}

static void check_losses(ddp_stream_t *stream, const char *name, ddp_cross_entropy_args_t *args,
                         reduction_t reduction, const onnx_tensor_t *wanted)
{
    const ddp_cross_entropy_args_t all = *args;
    float                          loss;

    if (reduction != NONE) {
        ddp_assert_ok(ddp_op_cross_entropy(stream, args));
        ddp_assert_ok(ddp_stream_synchronize(stream, -1));
        loss = reduction == MEAN ? args->stats->loss / args->stats->weight : args->stats->loss;
        check_values(name, &loss, wanted, 1e-6);
        return;
    }
    for (size_t i = 0; i < wanted->count; i++) { /* one row at a time */
        const onnx_tensor_t one = {.count = 1, .value = wanted->value + i};

        args->rows    = 1;
        args->logits  = all.logits + i * all.classes;
        args->labels  = all.labels + i;
        args->weights = all.weights == NULL ? NULL : all.weights + i;
        ddp_assert_ok(ddp_op_cross_entropy(stream, args));
        ddp_assert_ok(ddp_stream_synchronize(stream, -1));
        check_values(name, &args->stats->loss, &one, 1e-6);
    }
}

START_TEST(cross_entropy_equals_onnx)
{
    static const struct {
        const char *name;
        bool        weighted;
        reduction_t reduction;
        int32_t     ignore;
    } cases[] = {
        {"test_sce_mean", false, MEAN, -100},
        {"test_sce_sum", false, SUM, -100},
        {"test_sce_none", false, NONE, -100},
        {"test_sce_none_weights", true, NONE, -100},
        {"test_sce_mean_weight", true, MEAN, -100},
        {"test_sce_mean_weight_ii", true, MEAN, 0},
        {"test_sce_mean_no_weight_ii", false, MEAN, 2},
        {"test_sce_mean_no_weight_ii_3d", false, MEAN, 2},
        {"test_sce_mean_weight_ii_4d", true, MEAN, 2},
        {"test_sce_NCd1_mean_weight_negative_ii", true, MEAN, -1},
        {"test_sce_NCd1d2d3_sum_weight_high_ii", true, SUM, 10},
    };
    ddp_stream_t *stream = fixture_open(_i);

    for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
        node_t                   node;
        float                   *logits;
        float                   *weights = NULL;
        int32_t                  labels[1024];
        ddp_loss_stats_t         stats;
        ddp_cross_entropy_args_t args;

        node_open(cases[k].name, cases[k].weighted ? 3 : 2, 1, &node);
        ck_assert_uint_le(node.in[1].count, 1024);
        for (size_t i = 0; i < node.in[1].count; i++) {
            labels[i] = (int32_t)node.in[1].value[i];
        }
        logits = to_nhwc(&node.in[0]); /* classes last */
        if (cases[k].weighted) {
            weights = sample_weights(&node.in[2], labels, node.in[1].count);
        }
        args = (ddp_cross_entropy_args_t){.logits       = logits,
                                          .labels       = labels,
                                          .weights      = weights,
                                          .rows         = node.in[1].count,
                                          .classes      = node.in[0].dim[1],
                                          .ignore_index = cases[k].ignore,
                                          .stats        = &stats};
        check_losses(stream, cases[k].name, &args, cases[k].reduction, &node.out[0]);
        fixture_free(logits);
        fixture_free(weights);
        node_close(&node);
    }
    fixture_close(stream);
}
END_TEST

START_TEST(gemm_equals_onnx)
{
    static const struct {
        const char *name;
        size_t      inputs;
        float       alpha, beta;
        bool        transpose_a, transpose_b;
    } cases[] = {
        {"test_gemm_default_no_bias", 2, 1.0F, 0.0F, false, false},
        {"test_gemm_default_vector_bias", 3, 1.0F, 1.0F, false, false},
        {"test_gemm_default_zero_bias", 3, 1.0F, 1.0F, false, false},
        {"test_gemm_default_matrix_bias", 3, 1.0F, 1.0F, false, false},
        {"test_gemm_alpha", 3, 0.5F, 1.0F, false, false},
        {"test_gemm_beta", 3, 1.0F, 0.5F, false, false},
        {"test_gemm_transposeA", 3, 1.0F, 1.0F, true, false},
        {"test_gemm_transposeB", 3, 1.0F, 1.0F, false, true},
    };
    ddp_stream_t *stream = fixture_open(_i);

    for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
        node_t node;
        float *a;
        float *b;
        float *c;

        node_open(cases[k].name, cases[k].inputs, 1, &node);
        a = to_float(&node.in[0]);
        b = to_float(&node.in[1]);
        c = fixture_new(node.out[0].count);
        for (size_t i = 0; i < node.out[0].count && cases[k].inputs == 3; i++) {
            c[i] =
                (float)node.in[2].value[i % node.in[2].count]; /* a row for all rows, or the whole matrix */
        }

        const ddp_gemm_args_t args = {.transpose_a = cases[k].transpose_a,
                                      .transpose_b = cases[k].transpose_b,
                                      .m           = node.out[0].dim[0],
                                      .n           = node.out[0].dim[1],
                                      .k           = node.in[0].dim[cases[k].transpose_a ? 0 : 1],
                                      .alpha       = cases[k].alpha,
                                      .beta        = cases[k].beta,
                                      .a           = a,
                                      .lda         = node.in[0].dim[1],
                                      .b           = b,
                                      .ldb         = node.in[1].dim[1],
                                      .c           = c,
                                      .ldc         = node.out[0].dim[1]};

        ddp_assert_ok(ddp_op_gemm(stream, &args));
        ddp_assert_ok(ddp_stream_synchronize(stream, -1));
        check_values(cases[k].name, c, &node.out[0], 1e-6);
        fixture_free(a);
        fixture_free(b);
        fixture_free(c);
        node_close(&node);
    }
    fixture_close(stream);
}
END_TEST

START_TEST(convolution_equals_onnx)
{
    static const struct {
        const char *name;
        size_t      stride, pad;
    } cases[] = {
        {"test_basic_conv_with_padding", 1, 1},
        {"test_basic_conv_without_padding", 1, 0},
        {"test_conv_with_strides_padding", 2, 1},
        {"test_conv_with_strides_no_padding", 2, 0},
    };
    ddp_stream_t          *stream    = fixture_open(_i);
    const ddp_allocator_t *allocator = ddp_allocator_private();

    for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
        node_t            node;
        ddp_conv2d_args_t args    = {0};
        void             *scratch = NULL;
        float            *x;
        float            *w;
        float            *y;

        node_open(cases[k].name, 2, 1, &node);
        args.shape = (ddp_conv2d_shape_t){.n        = node.in[0].dim[0],
                                          .in_c     = node.in[0].dim[1],
                                          .in_h     = node.in[0].dim[2],
                                          .in_w     = node.in[0].dim[3],
                                          .out_c    = node.in[1].dim[0],
                                          .kernel_h = node.in[1].dim[2],
                                          .kernel_w = node.in[1].dim[3],
                                          .stride   = cases[k].stride,
                                          .pad      = cases[k].pad};
        ddp_assert_ok(ddp_conv2d_shape_fill(&args.shape));
        ck_assert(args.shape.out_h == node.out[0].dim[2] && args.shape.out_w == node.out[0].dim[3]);
        ddp_assert_ok(allocator->acquire(allocator->ctx, "scratch",
                                         ddp_conv2d_scratch_bytes(ddp_stream_device(stream), &args.shape) + 1,
                                         &scratch));
        x            = to_nhwc(&node.in[0]);
        w            = to_float(&node.in[1]);
        y            = fixture_new(node.out[0].count);
        args.x       = x;
        args.w       = w;
        args.y       = y;
        args.scratch = scratch;
        ddp_assert_ok(ddp_op_conv2d(stream, &args));
        ddp_assert_ok(ddp_stream_synchronize(stream, -1));
        check_nhwc(cases[k].name, y, &node.out[0], 0.0); /* small whole numbers: exact */
        fixture_free(x);
        fixture_free(w);
        fixture_free(y);
        allocator->release(allocator->ctx, scratch);
        node_close(&node);
    }
    fixture_close(stream);
}
END_TEST

/* `count` values of a tensor and zeros up to the end of a block. */
static float *to_block(const onnx_tensor_t *t)
{
    float *block = fixture_new(DDP_BLOCK);

    for (size_t i = 0; i < DDP_BLOCK; i++) {
        block[i] = i < t->count ? (float)t->value[i] : 0.0F;
    }
    return block;
}

/* R, T, X, G, V [, H] -> X, V [, H]. ONNX has no bias correction at T = 0, as we have none after very many
 * steps. */
static void check_optimizer(ddp_isa_t isa, const char *name, const ddp_optim_config_t *config, float l2)
{
    static const int32_t     op[]    = {0};
    const size_t             slots   = ddp_optim_slots(config);
    float                   *slot[2] = {NULL, NULL};
    const float             *source[1];
    const ddp_tree_program_t program = {.op = op, .length = 1, .source = source};
    node_t                   node;
    float                   *param;
    float                   *gradient;

    node_open(name, 4 + slots, 1 + slots, &node);
    ck_assert_double_eq(node.in[1].value[0], 0.0);
    param    = to_block(&node.in[2]);
    gradient = to_block(&node.in[3]);
    for (size_t k = 0; k < slots; k++) {
        slot[k] = to_block(&node.in[4 + k]);
    }
    for (size_t i = 0; i < DDP_BLOCK; i++) {
        gradient[i] += l2 * param[i];
    }
    source[0] = gradient;

    const ddp_update_t update = {.config     = config,
                                 .lr         = (float)node.in[0].value[0],
                                 .grad_scale = 1.0F,
                                 .step       = 1000000,
                                 .param      = param,
                                 .slot       = {slot[0], slot[1]}};

    ddp_tree_update(isa, &program, &update, 1);
    check_values(name, param, &node.out[0], 1e-6);
    for (size_t k = 0; k < slots; k++) {
        check_values(name, slot[k], &node.out[1 + k], 1e-6);
        fixture_free(slot[k]);
    }
    fixture_free(param);
    fixture_free(gradient);
    node_close(&node);
}

START_TEST(optimizers_equal_onnx)
{
    const ddp_optim_config_t momentum = {.kind = DDP_OPTIM_SGD, .momentum = 0.95, .weight_decay = 0.001};
    const ddp_optim_config_t nesterov = {
        .kind = DDP_OPTIM_SGD, .momentum = 0.95, .nesterov = true, .weight_decay = 0.01};
    const ddp_optim_config_t adam = {.kind = DDP_OPTIM_ADAMW, .beta1 = 0.95, .beta2 = 0.1, .eps = 1e-7};

    check_optimizer((ddp_isa_t)_i, "test_momentum", &momentum, 0.0F);
    check_optimizer((ddp_isa_t)_i, "test_nesterov_momentum", &nesterov, 0.0F);
    check_optimizer((ddp_isa_t)_i, "test_adam", &adam, 0.001F); /* its decay is not decoupled */
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("onnx");
    TCase *tcase = tcase_create("each instruction set");

    if (DDP_ONNX_DATA[0] == '\0') {
        fprintf(stderr, "ONNX's node tests are not here: apt-get install libonnx-testdata\n");
        return DDP_TEST_SKIP;
    }
    tcase_add_loop_test(tcase, pooling_equals_onnx, 0, fixture_isas());
    tcase_add_loop_test(tcase, batch_normalisation_equals_onnx, 0, fixture_isas());
    tcase_add_loop_test(tcase, global_average_pooling_equals_onnx, 0, fixture_isas());
    tcase_add_loop_test(tcase, relu_equals_onnx, 0, fixture_isas());
    tcase_add_loop_test(tcase, cross_entropy_equals_onnx, 0, fixture_isas());
    tcase_add_loop_test(tcase, gemm_equals_onnx, 0, fixture_isas());
    tcase_add_loop_test(tcase, convolution_equals_onnx, 0, fixture_isas());
    tcase_add_loop_test(tcase, optimizers_equal_onnx, 0, fixture_isas());
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
