/** @file libcudnn, opened while the program runs: one table of its functions. Private. */
#ifndef DDP_CUDA_CUDNN_TABLE_H_
#define DDP_CUDA_CUDNN_TABLE_H_

#include <cudnn.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The oldest version with right results for every length: before 9.16 the gradient of attention was wrong for
 * lengths that are no multiple of 128 (NVIDIA's cudnn-frontend works round it with a mask), and before 9.6
 * its accumulator had to be zeroed. */
#define DDP_CUDNN_OLDEST 91600

/* X(field, function) */
#define DDP_CUDNN_FUNCTIONS(X)                                                                               \
    X(version, cudnnGetVersion)                                                                              \
    X(error_string, cudnnGetErrorString)                                                                     \
    X(last_error, cudnnGetLastErrorString)                                                                   \
    X(create, cudnnCreate)                                                                                   \
    X(destroy, cudnnDestroy)                                                                                 \
    X(set_stream, cudnnSetStream)                                                                            \
    X(descriptor_create, cudnnBackendCreateDescriptor)                                                       \
    X(descriptor_destroy, cudnnBackendDestroyDescriptor)                                                     \
    X(attribute_set, cudnnBackendSetAttribute)                                                               \
    X(attribute_get, cudnnBackendGetAttribute)                                                               \
    X(finalize, cudnnBackendFinalize)                                                                        \
    X(execute, cudnnBackendExecute)

typedef struct ddp_cudnn_table {
    size_t (*version)(void);
    const char *(*error_string)(cudnnStatus_t status);
    void (*last_error)(char *message, size_t bytes);
    cudnnStatus_t (*create)(cudnnHandle_t *handle_p);
    cudnnStatus_t (*destroy)(cudnnHandle_t handle);
    cudnnStatus_t (*set_stream)(cudnnHandle_t handle, cudaStream_t stream);
    cudnnStatus_t (*descriptor_create)(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *d_p);
    cudnnStatus_t (*descriptor_destroy)(cudnnBackendDescriptor_t d);
    cudnnStatus_t (*attribute_set)(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                                   cudnnBackendAttributeType_t type, int64_t count, const void *elements);
    cudnnStatus_t (*attribute_get)(const cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                                   cudnnBackendAttributeType_t type, int64_t room, int64_t *count_p,
                                   void *elements);
    cudnnStatus_t (*finalize)(cudnnBackendDescriptor_t d);
    cudnnStatus_t (*execute)(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                             cudnnBackendDescriptor_t pointers);
} ddp_cudnn_table_t;

/**
 * cudnn_library.c: open libcudnn.so.9 and fill `table`: from the folder DDP_CUDNN_PATH if that is set, else
 * where the loader finds it. DDP_CUDNN_PATH=none: do without. It stays open for the rest of the process.
 * @return DDP_ERR_UNSUPPORTED, with why: not found, a function is missing, or too old. DDP_ERR_STATE: not
 * wanted. `table` is then as it was
 */
ddp_status_t ddp_cudnn_table_open(ddp_cudnn_table_t *table) DDP_NODISCARD;

/** @return DDP_OK, or DDP_ERR_UNSUPPORTED with "<call>: <text of the status>: <cuDNN's message>" recorded. */
ddp_status_t ddp_cudnn_status(const ddp_cudnn_table_t *table, cudnnStatus_t code,
                              const char *call) DDP_NODISCARD;

#ifdef __cplusplus
}
#endif

#endif
