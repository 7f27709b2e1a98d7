/**
 * @file Kernels with faults that can be planted in them, one at a time: what the stand-in is tested with.
 * All pointers are device memory; `fault` is the number of a fault in fault_kernels.c, 0 for none.
 */
#ifndef DDP_FAULT_KERNELS_H_
#define DDP_FAULT_KERNELS_H_

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The order is that of the names in fault_kernels.c. */
typedef enum fault {
    FAULT_NONE,
    FAULT_NO_BARRIER_BEFORE_REUSE,      /* of the partial sums, in block_sum() */
    FAULT_NO_BARRIER_AFTER_PARTIAL_SUM, /* before they are read */
    FAULT_NO_FIRST_BARRIER_OF_MAX,      /* no fault: block_max() is called once */
    FAULT_NO_BARRIER_AFTER_PARTIAL_MAX,
    FAULT_GLOBAL_OFF_BY_ONE,
    FAULT_SHARED_NOT_ZEROED,
    FAULT_NO_BARRIER_AFTER_ZEROING,
    FAULT_PLAIN_ADD_TO_SHARED, /* instead of atomicAdd() */
    FAULT_NO_BARRIER_BEFORE_FLUSH,
    FAULT_PLAIN_ADD_ACROSS_BLOCKS,
    FAULT_ONE_THREAD_RETURNS,          /* before a barrier */
    FAULT_NO_BARRIER_BEFORE_OVERWRITE, /* of the label's logit */
    FAULT_NO_BARRIER_BEFORE_RELOAD,    /* of the tile */
    FAULT_SHARED_OFF_BY_ONE,
    FAULT_NO_BARRIER_AFTER_LOAD,
    FAULT_STATIC_SHARED_NOT_SET,
    FAULT_STATIC_SHARED_OFF_BY_ONE,
    FAULT_VECTOR_MISALIGNED,
    /* Only what the stand-in says about them counts; diagnose() */
    FAULT_SHUFFLE_WITH_EXITED_LANES,
    FAULT_BARRIER_AND_SHUFFLE,
    FAULT_TWO_BARRIERS,
    FAULT_SHUFFLE_FROM_ABSENT_LANE,
    FAULT_LANE_OUTSIDE_ITS_MASK,
    FAULT_TRAP,
    FAULT_HOST_POINTER,
    FAULT_TOO_MUCH_SHARED,
    FAULT_BLOCK_TOO_LARGE,
    FAULT_COPY_TOO_LONG,
    FAULT_COPY_KIND,
    FAULT_COUNT
} fault_t;

/** y = (x - mean) * rstd * w + b by rows, [rows][width] */
void layer_norm(const float *x, const float *w, const float *b, float *y, float *mean, float *rstd, int rows,
                int width, fault_t fault, cudaStream_t stream);
/** dx, and dw and db added to, of the layer norm above. */
void layer_norm_backward(const float *dy, const float *x, const float *w, const float *mean,
                         const float *rstd, float *dx, float *dw, float *db, int rows, int width,
                         fault_t fault, cudaStream_t stream);
/** loss = -log softmax(logits)[label] by rows, [rows][width]; the logits become scale times their gradient,
 * in place; rows lie `pitch` apart, what is behind `width` becomes 0. */
void cross_entropy(float *logits, const int *labels, float *loss, float scale, int rows, int width, int pitch,
                   fault_t fault, cudaStream_t stream);
/** o = softmax(scale q k^T, causal) v for [heads][length][width], bfloat16 in, float out; width <= 64. */
void attention(const void *q, const void *k, const void *v, float *o, int heads, int length, int width,
               fault_t fault, cudaStream_t stream);
/** y[i] = x[i] + x[i + 1] for [count] numbers, four at a time; x has count + 4 of them. */
void add_neighbours(const float *x, float *y, int count, fault_t fault, cudaStream_t stream);
/** One of the faults from FAULT_SHUFFLE_WITH_EXITED_LANES on; x is 64 floats. */
void diagnose(float *x, fault_t fault, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif /* DDP_FAULT_KERNELS_H_ */
