/*
 * Plans by the true libcudnn, for GPUs that are described by their properties (devices/), with fake_cuda.c in
 * the driver's place. A plan that finalizes shows that cuDNN takes the graph, its strides and types on that
 * GPU and how much workspace it wants; nothing is computed here. Skipped where there is no libcudnn.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/cudnn_graphs.h"
#include "tests/support/ddp_test.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static ddp_cudnn_table_t  table;
static ddp_cudnn_target_t target;
static ddp_cudnn_cache_t *cache;

/* The device of devices/ that DDP_TEST_CUDNN_DEVICE names. */
static void open_device(void)
{
    const char *name = getenv("DDP_TEST_CUDNN_DEVICE");
    char        path[512];
    char        json[4096];
    FILE       *file;
    size_t      bytes;

    snprintf(path, sizeof(path), "%s/%s.json", DDP_CUDNN_DEVICES, name != NULL ? name : "h200");
    file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    bytes       = fread(json, 1, sizeof(json) - 1, file);
    json[bytes] = '\0';
    fclose(file);
    ddp_assert_ok(ddp_cudnn_target_describe(&table, json, &target));
    ddp_assert_ok(ddp_cudnn_cache_create(&target, &cache));
}

static void close_device(void)
{
    ddp_cudnn_cache_destroy(&cache);
    ddp_cudnn_target_close(&target);
}

static const char *type_name(cudnnDataType_t type)
{
    return type == CUDNN_DATA_FLOAT ? "float32" : type == CUDNN_DATA_HALF ? "float16" : "bfloat16";
}

static const ddp_cudnn_plan_t *attention_plan(ddp_cudnn_kind_t kind, const ddp_cudnn_attention_t *a)
{
    const ddp_cudnn_key_t   key    = ddp_cudnn_attention_key(kind, a);
    const ddp_cudnn_plan_t *plan   = NULL;
    const ddp_status_t      status = ddp_cudnn_cache_get(
             cache, &key,
        kind == DDP_CUDNN_ATTENTION ? ddp_cudnn_attention_graph : ddp_cudnn_attention_backward_graph, 0,
             &plan);

    ck_assert_msg(status == DDP_OK, "attention %s, %s, %lld sequences of %lld, %lld heads of %lld%s: %s",
                  kind == DDP_CUDNN_ATTENTION ? "forward" : "backward", type_name(a->type),
                  (long long)a->sequences, (long long)a->length, (long long)a->heads, (long long)a->width,
                  a->is_exact ? ", exact" : "", ddp_error_line());
    return plan;
}

/* GPT-2 124M, gpt-tiny, and lengths that divide into nothing. */
static const ddp_cudnn_attention_t attentions[] = {
    {CUDNN_DATA_BFLOAT16, 8, 12, 1024, 64, false}, {CUDNN_DATA_HALF, 8, 12, 1024, 64, false},
    {CUDNN_DATA_BFLOAT16, 8, 12, 1024, 64, true},  {CUDNN_DATA_BFLOAT16, 3, 4, 32, 16, false},
    {CUDNN_DATA_BFLOAT16, 2, 12, 1000, 64, false}, {CUDNN_DATA_BFLOAT16, 1, 2, 33, 16, true},
    {CUDNN_DATA_BFLOAT16, 2, 16, 129, 128, false},
};

START_TEST(attention_has_plans_forward_and_backward)
{
    open_device();
    for (size_t i = 0; i < COUNT(attentions); i++) {
        attention_plan(DDP_CUDNN_ATTENTION, &attentions[i]);
        attention_plan(DDP_CUDNN_ATTENTION_BACKWARD, &attentions[i]);
    }
    close_device();
}
END_TEST

/* In libcudnn's place for one test: what it is told to divide by, it multiplies by. */
static cudnnStatus_t set_but_multiply(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                                      cudnnBackendAttributeType_t type, int64_t count, const void *elements)
{
    const cudnnPointwiseMode_t multiply = CUDNN_POINTWISE_MUL;
    const bool                 divides =
        name == CUDNN_ATTR_POINTWISE_MODE && *(const cudnnPointwiseMode_t *)elements == CUDNN_POINTWISE_DIV;

    return table.attribute_set(d, name, type, count, divides ? &multiply : elements);
}

START_TEST(wrong_graph_has_no_plan_and_a_reason)
{
    const ddp_cudnn_key_t   key   = ddp_cudnn_attention_key(DDP_CUDNN_ATTENTION, &attentions[0]);
    const ddp_cudnn_plan_t *plan  = NULL;
    ddp_cudnn_table_t       wrong = table;

    open_device();
    wrong.attribute_set = set_but_multiply;
    target.table        = &wrong;
    ddp_assert_fails(ddp_cudnn_cache_get(cache, &key, ddp_cudnn_attention_graph, 0, &plan),
                     DDP_ERR_UNSUPPORTED, "no engine computes this graph");
    target.table = &table;
    close_device();
}
END_TEST

START_TEST(heads_of_an_odd_size_are_refused)
{
    const ddp_cudnn_attention_t odd  = {CUDNN_DATA_BFLOAT16, 2, 4, 64, 20, false};
    const ddp_cudnn_key_t       key  = ddp_cudnn_attention_key(DDP_CUDNN_ATTENTION, &odd);
    const ddp_cudnn_plan_t     *plan = NULL;

    open_device();
    ddp_assert_fails(ddp_cudnn_cache_get(cache, &key, ddp_cudnn_attention_graph, 0, &plan),
                     DDP_ERR_UNSUPPORTED, "");
    close_device();
}
END_TEST

/* n, image, channels in and out, kernel, stride, pad: of resnet20, of cnn, and odd ones. */
static const int64_t convs[][7] = {
    {64, 32, 3, 16, 3, 1, 1}, {64, 32, 16, 32, 3, 2, 1}, {64, 32, 16, 32, 1, 2, 0},
    {64, 8, 64, 64, 3, 1, 1}, {64, 28, 1, 32, 3, 1, 1},  {5, 13, 3, 7, 5, 3, 2},
};

/* Every plan that a training can ask for. */
static void check_conv(const int64_t c[7], unsigned refused, const char *how)
{
    const int64_t    out  = (c[1] + 2 * c[6] - c[4]) / c[5] + 1;
    ddp_cudnn_conv_t conv = {
        CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT, c[0], c[1], c[1], c[2], c[3], c[4], c[4], c[5], c[6], out, out,
        .has_bias = true};

    for (int kind = DDP_CUDNN_CONV; kind <= DDP_CUDNN_CONV_FILTER; kind++) {
        for (int variant = 0; variant < (kind == DDP_CUDNN_CONV ? 3 : 2); variant++) {
            const ddp_cudnn_plan_t *plan = NULL;
            ddp_cudnn_key_t         key;
            ddp_status_t            status;

            conv.has_bias   = variant > 0;
            conv.has_relu   = variant > 1;
            conv.accumulate = variant > 0;
            key             = ddp_cudnn_conv_key((ddp_cudnn_kind_t)kind, &conv);
            status          = ddp_cudnn_cache_get(cache, &key, ddp_cudnn_conv_graph, refused, &plan);
            ck_assert_msg(status == DDP_OK, "convolution %d.%d, %s, %lldx%lld %lld -> %lld, kernel %lld: %s",
                          kind, variant, how, (long long)c[1], (long long)c[1], (long long)c[2],
                          (long long)c[3], (long long)c[4], ddp_error_line());
            ck_assert_uint_eq(plan->notes & refused, 0);
        }
    }
}

/* What is refused of engines as cudnn_conv.c does; the narrowest cases. */
static const unsigned always = DDP_CUDNN_NOTE(DOWN_CONVERT_INPUTS) |
                               DDP_CUDNN_NOTE(REDUCED_PRECISION_REDUCTION) |
                               DDP_CUDNN_NOTE(NONDETERMINISTIC) | DDP_CUDNN_NOTE(FFT) |
                               DDP_CUDNN_NOTE(WINOGRAD) | DDP_CUDNN_NOTE(WINOGRAD_TILE_4x4) |
                               DDP_CUDNN_NOTE(WINOGRAD_TILE_6x6) | DDP_CUDNN_NOTE(WINOGRAD_TILE_13x13);

START_TEST(convolutions_have_plans_in_float32_without_tensor_cores)
{
    open_device();
    for (size_t i = 0; i < COUNT(convs); i++) {
        check_conv(convs[i], always | DDP_CUDNN_NOTE(TENSOR_CORE), "float32, exact");
    }
    close_device();
}
END_TEST

START_TEST(convolutions_have_plans_in_tf32)
{
    open_device();
    for (size_t i = 0; i < COUNT(convs); i++) {
        check_conv(convs[i], always, "tf32, exact");
    }
    close_device();
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("cudnn plans");
    TCase *tcase = tcase_create("device");

    tcase_add_test(tcase, attention_has_plans_forward_and_backward);
    tcase_add_test(tcase, wrong_graph_has_no_plan_and_a_reason);
    tcase_add_test(tcase, heads_of_an_odd_size_are_refused);
    tcase_add_test(tcase, convolutions_have_plans_in_float32_without_tensor_cores);
    tcase_add_test(tcase, convolutions_have_plans_in_tf32);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    if (ddp_cudnn_table_open(&table) != DDP_OK) {
        printf("not checked: %s\n", ddp_error_line());
        return getenv("DDP_TEST_REQUIRE_CUDNN") != NULL ? EXIT_FAILURE : DDP_TEST_SKIP;
    }
    printf("cuDNN %zu\n", table.version());
    return ddp_test_run(make_suite());
}
