/**
 * @file What a kernel does when its data is wrong (a label out of range): it notes the first such thing in
 * page-locked host memory and goes on with something harmless. The host looks there after it has waited for
 * the stream. Private.
 */
#ifndef DDP_CUDA_FAULT_H_
#define DDP_CUDA_FAULT_H_

#include <stdint.h>

/** What was wrong; the line that goes with it is the cpu's. */
typedef enum ddp_cuda_wrong {
    DDP_CUDA_WRONG_NOTHING = 0,
    DDP_CUDA_WRONG_LABEL   = 1, /* value at `row` is not in [0, limit) and not `ignored` */
    DDP_CUDA_WRONG_TOKEN   = 2, /* value at `row` is not in [0, limit) */
} ddp_cuda_wrong_t;

typedef struct ddp_cuda_fault {
    int32_t taken; /* a kernel notes what is wrong here, by atomicCAS: the first */
    int32_t wrong; /* ddp_cuda_wrong_t; written last, as the host may look while the kernel runs */
    int32_t ignored;
    int64_t row, value, limit;
} ddp_cuda_fault_t;

#endif
