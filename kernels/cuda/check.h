/** @file Indices that a kernel is about to use, looked at first: the line of the first wrong one is the
 * cpu's. Private. */
#ifndef DDP_CUDA_CHECK_H_
#define DDP_CUDA_CHECK_H_

#include "kernels/cuda/device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ddp_cuda_check_args {
    const int32_t   *index; /* [count] */
    size_t           count;
    size_t           limit; /* of what is allowed: 0 .. limit - 1 */
    ddp_cuda_wrong_t wrong;
    int32_t          ignored; /* allowed too, for labels */
} ddp_cuda_check_args_t;

/** Note the first wrong index as the device's fault. What uses the indices then must not read or write
 * outside of its memory, and its results are thrown away. Reads 4 bytes an index in one block: microseconds.
 */
ddp_status_t ddp_cuda_check_indices(ddp_stream_t *stream, const ddp_cuda_check_args_t *args) DDP_NODISCARD;

#ifdef __cplusplus
}
#endif

#endif
