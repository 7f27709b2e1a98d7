#include "kernels/cuda/cudnn_graph.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"

/* Numbers of inner tensors begin here; those of callers are small. */
#define INNER 1000

static void check(ddp_cudnn_graph_t *graph, cudnnStatus_t code, const char *call)
{
    graph->status = ddp_cudnn_status(graph->table, code, call);
    if (graph->status != DDP_OK) {
        snprintf(graph->line, sizeof(graph->line), "%s", ddp_error_line());
    }
}

void ddp_cudnn_graph_init(ddp_cudnn_graph_t *graph, const ddp_cudnn_table_t *table)
{
    memset(graph, 0, sizeof(*graph));
    graph->table = table;
}

void ddp_cudnn_graph_free(ddp_cudnn_graph_t *graph)
{
    while (graph->n_owned > 0) {
        graph->table->descriptor_destroy(graph->owned[--graph->n_owned]);
    }
}

cudnnBackendDescriptor_t ddp_cudnn_make(ddp_cudnn_graph_t *graph, cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t d = NULL;

    if (graph->status == DDP_OK && graph->n_owned == DDP_CUDNN_DESCRIPTORS) {
        graph->status = ddp_fail(DDP_ERR_STATE, "a graph of more than %d descriptors", graph->n_owned);
        snprintf(graph->line, sizeof(graph->line), "%s", ddp_error_line());
    }
    if (graph->status != DDP_OK) {
        return NULL;
    }
    check(graph, graph->table->descriptor_create(type, &d), "cudnnBackendCreateDescriptor");
    if (graph->status != DDP_OK) {
        return NULL;
    }
    graph->owned[graph->n_owned++] = d;
    return d;
}

void ddp_cudnn_set(ddp_cudnn_graph_t *graph, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                   cudnnBackendAttributeType_t type, int64_t count, const void *elements)
{
    char call[64];

    if (graph->status != DDP_OK) {
        return;
    }
    snprintf(call, sizeof(call), "cudnnBackendSetAttribute(%d)", (int)name);
    check(graph, graph->table->attribute_set(d, name, type, count, elements), call);
}

void ddp_cudnn_set_descriptor(ddp_cudnn_graph_t *graph, cudnnBackendDescriptor_t d,
                              cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t value)
{
    ddp_cudnn_set(graph, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

void ddp_cudnn_set_type(ddp_cudnn_graph_t *graph, cudnnBackendDescriptor_t d,
                        cudnnBackendAttributeName_t name, cudnnDataType_t value)
{
    ddp_cudnn_set(graph, d, name, CUDNN_TYPE_DATA_TYPE, 1, &value);
}

void ddp_cudnn_finalize(ddp_cudnn_graph_t *graph, cudnnBackendDescriptor_t d)
{
    if (graph->status == DDP_OK) {
        check(graph, graph->table->finalize(d), "cudnnBackendFinalize");
    }
}

void ddp_cudnn_append(ddp_cudnn_graph_t *graph, cudnnBackendDescriptor_t op)
{
    ddp_cudnn_finalize(graph, op);
    if (graph->status == DDP_OK && graph->n_ops == DDP_CUDNN_OPS) {
        graph->status = ddp_fail(DDP_ERR_STATE, "a graph of more than %d operations", graph->n_ops);
        snprintf(graph->line, sizeof(graph->line), "%s", ddp_error_line());
    }
    if (graph->status == DDP_OK) {
        graph->ops[graph->n_ops++] = op;
    }
}

ddp_cudnn_tensor_t ddp_cudnn_tensor(ddp_cudnn_graph_t *graph, cudnnDataType_t type, ddp_cudnn_place_t place,
                                    int64_t uid, const ddp_cudnn_extents_t *extents)
{
    const int64_t      alignment = 16;
    const bool         is_inner  = place == DDP_CUDNN_INNER;
    const bool         is_value  = place == DDP_CUDNN_VALUE;
    ddp_cudnn_tensor_t tensor    = {NULL, *extents, is_inner ? INNER + graph->n_owned : uid};

    tensor.descriptor = ddp_cudnn_make(graph, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    ddp_cudnn_set_type(graph, tensor.descriptor, CUDNN_ATTR_TENSOR_DATA_TYPE, type);
    ddp_cudnn_set(graph, tensor.descriptor, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, extents->dims);
    ddp_cudnn_set(graph, tensor.descriptor, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, extents->strides);
    ddp_cudnn_set(graph, tensor.descriptor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &tensor.uid);
    ddp_cudnn_set(graph, tensor.descriptor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1,
                  &alignment);
    ddp_cudnn_set(graph, tensor.descriptor, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_inner);
    ddp_cudnn_set(graph, tensor.descriptor, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &is_value);
    ddp_cudnn_finalize(graph, tensor.descriptor);
    return tensor;
}

/* An operation y = mode(x), which is not yet finalized. @param [in] axis  < 0: the mode has none */
static cudnnBackendDescriptor_t pointwise(ddp_cudnn_graph_t *graph, cudnnPointwiseMode_t mode,
                                          cudnnDataType_t arithmetic, int64_t axis,
                                          const ddp_cudnn_tensor_t *x, const ddp_cudnn_tensor_t *y)
{
    cudnnBackendDescriptor_t how = ddp_cudnn_make(graph, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    cudnnBackendDescriptor_t op  = ddp_cudnn_make(graph, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);

    ddp_cudnn_set(graph, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    ddp_cudnn_set_type(graph, how, CUDNN_ATTR_POINTWISE_MATH_PREC, arithmetic);
    if (axis >= 0) {
        ddp_cudnn_set(graph, how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
    }
    ddp_cudnn_finalize(graph, how);
    ddp_cudnn_set_descriptor(graph, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    ddp_cudnn_set_descriptor(graph, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x->descriptor);
    ddp_cudnn_set_descriptor(graph, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y->descriptor);
    return op;
}

void ddp_cudnn_pointwise(ddp_cudnn_graph_t *graph, cudnnPointwiseMode_t mode, const ddp_cudnn_tensor_t *x,
                         const ddp_cudnn_tensor_t *b, const ddp_cudnn_tensor_t *y)
{
    cudnnBackendDescriptor_t op = pointwise(graph, mode, CUDNN_DATA_FLOAT, -1, x, y);

    if (b != NULL) {
        ddp_cudnn_set_descriptor(graph, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b->descriptor);
    }
    ddp_cudnn_append(graph, op);
}

void ddp_cudnn_index(ddp_cudnn_graph_t *graph, const ddp_cudnn_tensor_t *x, int64_t axis,
                     const ddp_cudnn_tensor_t *y)
{
    ddp_cudnn_append(graph, pointwise(graph, CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, axis, x, y));
}

void ddp_cudnn_is_ge(ddp_cudnn_graph_t *graph, const ddp_cudnn_tensor_t *row,
                     const ddp_cudnn_tensor_t *column, const ddp_cudnn_tensor_t *y)
{
    cudnnBackendDescriptor_t op = pointwise(graph, CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN, -1, row, y);

    ddp_cudnn_set_descriptor(graph, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, column->descriptor);
    ddp_cudnn_append(graph, op);
}

void ddp_cudnn_select(ddp_cudnn_graph_t *graph, const ddp_cudnn_tensor_t *which, const ddp_cudnn_tensor_t *x,
                      const ddp_cudnn_tensor_t *b, const ddp_cudnn_tensor_t *y)
{
    cudnnBackendDescriptor_t op = pointwise(graph, CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, -1, x, y);

    ddp_cudnn_set_descriptor(graph, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b->descriptor);
    ddp_cudnn_set_descriptor(graph, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, which->descriptor);
    ddp_cudnn_append(graph, op);
}

void ddp_cudnn_matmul(ddp_cudnn_graph_t *graph, const ddp_cudnn_tensor_t *a, const ddp_cudnn_tensor_t *b,
                      const ddp_cudnn_tensor_t *c)
{
    cudnnBackendDescriptor_t how = ddp_cudnn_make(graph, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    cudnnBackendDescriptor_t op  = ddp_cudnn_make(graph, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);

    ddp_cudnn_set_type(graph, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
    ddp_cudnn_finalize(graph, how);
    ddp_cudnn_set_descriptor(graph, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
    ddp_cudnn_set_descriptor(graph, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a->descriptor);
    ddp_cudnn_set_descriptor(graph, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b->descriptor);
    ddp_cudnn_set_descriptor(graph, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c->descriptor);
    ddp_cudnn_append(graph, op);
}

void ddp_cudnn_reduce(ddp_cudnn_graph_t *graph, cudnnReduceTensorOp_t mode, const ddp_cudnn_tensor_t *x,
                      const ddp_cudnn_tensor_t *y)
{
    cudnnBackendDescriptor_t how = ddp_cudnn_make(graph, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    cudnnBackendDescriptor_t op  = ddp_cudnn_make(graph, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);

    ddp_cudnn_set(graph, how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &mode);
    ddp_cudnn_set_type(graph, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    ddp_cudnn_finalize(graph, how);
    ddp_cudnn_set_descriptor(graph, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
    ddp_cudnn_set_descriptor(graph, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x->descriptor);
    ddp_cudnn_set_descriptor(graph, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y->descriptor);
    ddp_cudnn_append(graph, op);
}

void ddp_cudnn_reshape(ddp_cudnn_graph_t *graph, const ddp_cudnn_tensor_t *x, const ddp_cudnn_tensor_t *y)
{
    cudnnBackendDescriptor_t op = ddp_cudnn_make(graph, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);

    ddp_cudnn_set_descriptor(graph, op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x->descriptor);
    ddp_cudnn_set_descriptor(graph, op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y->descriptor);
    ddp_cudnn_append(graph, op);
}
