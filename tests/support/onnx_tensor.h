/** @file Reads the tensors of ONNX's node tests (.pb files: one TensorProto in protobuf's wire format). */
#ifndef DDP_ONNX_TENSOR_H_
#define DDP_ONNX_TENSOR_H_

#include <stdbool.h>
#include <stddef.h>

#define ONNX_MAX_DIMS 6

typedef struct onnx_tensor {
    size_t  ndim;
    size_t  dim[ONNX_MAX_DIMS];
    size_t  count; /* product of dim; 1 for a scalar */
    double *value; /* [count]; float32 and int64 come as they are, as far as float64 holds them; owned */
} onnx_tensor_t;

/** Read `path`. @return false: no such file, damaged, or neither float32 nor int64; nothing is held then. */
bool onnx_tensor_read(const char *path, onnx_tensor_t *tensor);
/** Accepts a tensor that was not read, if it is zeroed. */
void onnx_tensor_free(onnx_tensor_t *tensor);

#endif
