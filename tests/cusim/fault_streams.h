/**
 * @file The kernels of fault_streams.c: a model of one vector; all pointers are device memory, [count].
 */
#ifndef DDP_FAULT_STREAMS_H_
#define DDP_FAULT_STREAMS_H_

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/** g = p / 2 + x */
void toy_gradient(float *g, const float *p, const float *x, int count, cudaStream_t stream);
/** p -= rate * g */
void toy_update(float *p, const float *g, float rate, int count, cudaStream_t stream);
/** norm = sum of g * g */
void toy_norm(float *norm, const float *g, int count, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif /* DDP_FAULT_STREAMS_H_ */
