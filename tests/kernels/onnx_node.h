/** @file One of ONNX's node tests: its inputs and outputs, and comparison with them. */
#ifndef DDP_ONNX_NODE_H_
#define DDP_ONNX_NODE_H_

#include "tests/kernels/kernel_fixture.h"
#include "tests/support/onnx_tensor.h"

#define MAX_TENSORS 6

typedef struct node {
    onnx_tensor_t in[MAX_TENSORS];
    onnx_tensor_t out[MAX_TENSORS];
} node_t;

static inline size_t onnx_node_read(const char *name, const char *kind, onnx_tensor_t *tensor)
{
    size_t n = 0;
    char   path[512];

    for (; n < MAX_TENSORS; n++) {
        snprintf(path, sizeof(path), DDP_ONNX_DATA "/%s/test_data_set_0/%s_%zu.pb", name, kind, n);
        if (!onnx_tensor_read(path, &tensor[n])) {
            break;
        }
    }
    return n;
}

static inline void node_open(const char *name, size_t inputs, size_t outputs, node_t *node)
{
    memset(node, 0, sizeof(*node));
    ck_assert_msg(onnx_node_read(name, "input", node->in) == inputs, "inputs of %s", name);
    ck_assert_msg(onnx_node_read(name, "output", node->out) == outputs, "outputs of %s", name);
}

static inline void node_close(node_t *node)
{
    for (size_t i = 0; i < MAX_TENSORS; i++) {
        onnx_tensor_free(&node->in[i]);
        onnx_tensor_free(&node->out[i]);
    }
}

static inline float *to_float(const onnx_tensor_t *t)
{
    float *copy = fixture_new(t->count);

    for (size_t i = 0; i < t->count; i++) {
        copy[i] = (float)t->value[i];
    }
    return copy;
}

/* [n, c, h, w] -> [n, h, w, c] in a plain loop; missing trailing dimensions are 1 */
static inline float *to_nhwc(const onnx_tensor_t *t)
{
    const size_t channels = t->ndim > 1 ? t->dim[1] : 1;
    const size_t pixels   = t->count / t->dim[0] / channels;
    float       *copy     = fixture_new(t->count);

    for (size_t i = 0; i < t->count; i++) {
        const size_t image   = i / (channels * pixels);
        const size_t channel = i / pixels % channels;

        copy[(image * pixels + i % pixels) * channels + channel] = (float)t->value[i];
    }
    return copy;
}

static inline void check_nhwc(const char *name, const float *got, const onnx_tensor_t *wanted, double bound)
{
    float  *value = to_nhwc(wanted);
    double *exact = malloc((wanted->count + 1) * sizeof(*exact));
    double  error;

    for (size_t i = 0; i < wanted->count; i++) {
        exact[i] = (double)value[i];
    }
    error = fixture_error(got, exact, wanted->count, 0.1);
    ck_assert_msg(error <= bound, "%s: error %g", name, error);
    fixture_free(value);
    free(exact);
}

static inline void check_values(const char *name, const float *got, const onnx_tensor_t *wanted, double bound)
{
    const double error = fixture_error(got, wanted->value, wanted->count, 0.1);

    ck_assert_msg(error <= bound, "%s: error %g", name, error);
}

#endif
