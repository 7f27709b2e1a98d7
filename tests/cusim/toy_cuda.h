/**
 * @file Small kernels that the stand-in's own tests start, one function each; pointers are device memory.
 */
#ifndef DDP_TOY_CUDA_H_
#define DDP_TOY_CUDA_H_

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/** y[i] += a * x[i], [count] */
void toy_axpy(float *y, const float *x, float a, int count, cudaStream_t stream);
/** sums[b] = sum of x[b * width ... (b + 1) * width), [blocks][width]; dynamic and static shared memory, warp
 * operations */
void toy_row_sums(float *sums, const float *x, int blocks, int width, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif /* DDP_TOY_CUDA_H_ */
