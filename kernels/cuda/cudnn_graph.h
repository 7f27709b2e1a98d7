/**
 * @file A graph of cuDNN operations under construction. Private.
 *
 * Every function does nothing once one has failed: a graph is written down without a look at each call, and
 * `status` is read at the end. Tensors have four dimensions. All arithmetic is float32.
 */
#ifndef DDP_CUDA_CUDNN_GRAPH_H_
#define DDP_CUDA_CUDNN_GRAPH_H_

#include <stdbool.h>
#include <stdint.h>

#include "kernels/cuda/cudnn_table.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DDP_CUDNN_OPS         24  /* the gradient of attention has 22 */
#define DDP_CUDNN_DESCRIPTORS 128 /* of one graph and its plan */

typedef struct ddp_cudnn_graph {
    const ddp_cudnn_table_t *table;  /* borrowed */
    ddp_status_t             status; /* of the first call that failed, with its line */
    char                     line[256];

    cudnnBackendDescriptor_t owned[DDP_CUDNN_DESCRIPTORS]; /* owned */
    int                      n_owned;
    cudnnBackendDescriptor_t ops[DDP_CUDNN_OPS]; /* of `owned` */
    int                      n_ops;
} ddp_cudnn_graph_t;

typedef struct ddp_cudnn_extents {
    int64_t dims[4], strides[4]; /* strides in elements */
} ddp_cudnn_extents_t;

typedef struct ddp_cudnn_tensor {
    cudnnBackendDescriptor_t descriptor; /* the graph's */
    ddp_cudnn_extents_t      extents;
    int64_t                  uid;
} ddp_cudnn_tensor_t;

/** What a tensor is. Memory and values have a number of the caller's, > 0, and get their address by it when
 * the plan runs: of device memory, or of one float of host memory. */
typedef enum ddp_cudnn_place { DDP_CUDNN_MEMORY, DDP_CUDNN_INNER, DDP_CUDNN_VALUE } ddp_cudnn_place_t;

void ddp_cudnn_graph_init(ddp_cudnn_graph_t *graph, const ddp_cudnn_table_t *table);
/** Destroys its descriptors. */
void ddp_cudnn_graph_free(ddp_cudnn_graph_t *graph);

/** A descriptor of the graph, not yet finalized; NULL after a failure. */
cudnnBackendDescriptor_t ddp_cudnn_make(ddp_cudnn_graph_t *graph, cudnnBackendDescriptorType_t type);
void ddp_cudnn_set(ddp_cudnn_graph_t *graph, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                   cudnnBackendAttributeType_t type, int64_t count, const void *elements);
void ddp_cudnn_set_descriptor(ddp_cudnn_graph_t *graph, cudnnBackendDescriptor_t d,
                              cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t value);
void ddp_cudnn_set_type(ddp_cudnn_graph_t *graph, cudnnBackendDescriptor_t d,
                        cudnnBackendAttributeName_t name, cudnnDataType_t value);
void ddp_cudnn_finalize(ddp_cudnn_graph_t *graph, cudnnBackendDescriptor_t d);
/** Finalize an operation and append it. */
void ddp_cudnn_append(ddp_cudnn_graph_t *graph, cudnnBackendDescriptor_t op);

/** @param [in] uid  the caller's number; not read for DDP_CUDNN_INNER, which gets one of its own */
ddp_cudnn_tensor_t ddp_cudnn_tensor(ddp_cudnn_graph_t *graph, cudnnDataType_t type, ddp_cudnn_place_t place,
                                    int64_t uid, const ddp_cudnn_extents_t *extents);

/** y = mode(x, b), in float32. @param [in] b  NULL: the mode takes one operand */
void ddp_cudnn_pointwise(ddp_cudnn_graph_t *graph, cudnnPointwiseMode_t mode, const ddp_cudnn_tensor_t *x,
                         const ddp_cudnn_tensor_t *b, const ddp_cudnn_tensor_t *y);
/** y = the place of each element along `axis`. */
void ddp_cudnn_index(ddp_cudnn_graph_t *graph, const ddp_cudnn_tensor_t *x, int64_t axis,
                     const ddp_cudnn_tensor_t *y);
/** y = row >= column; booleans. */
void ddp_cudnn_is_ge(ddp_cudnn_graph_t *graph, const ddp_cudnn_tensor_t *row,
                     const ddp_cudnn_tensor_t *column, const ddp_cudnn_tensor_t *y);
/** y = which ? x : b. */
void ddp_cudnn_select(ddp_cudnn_graph_t *graph, const ddp_cudnn_tensor_t *which, const ddp_cudnn_tensor_t *x,
                      const ddp_cudnn_tensor_t *b, const ddp_cudnn_tensor_t *y);
/** c = a b, of the last two dimensions. */
void ddp_cudnn_matmul(ddp_cudnn_graph_t *graph, const ddp_cudnn_tensor_t *a, const ddp_cudnn_tensor_t *b,
                      const ddp_cudnn_tensor_t *c);
/** y = x, reduced along the dimensions that are 1 in y. */
void ddp_cudnn_reduce(ddp_cudnn_graph_t *graph, cudnnReduceTensorOp_t how, const ddp_cudnn_tensor_t *x,
                      const ddp_cudnn_tensor_t *y);
/** y = x, seen with other dimensions and strides. */
void ddp_cudnn_reshape(ddp_cudnn_graph_t *graph, const ddp_cudnn_tensor_t *x, const ddp_cudnn_tensor_t *y);

#ifdef __cplusplus
}
#endif

#endif
