/** @file What kernels and their launches see of a CUDA device; C and CUDA C. Private to kernels/cuda and ddp.
 */
#ifndef DDP_CUDA_DEVICE_H_
#define DDP_CUDA_DEVICE_H_

#include <cuda_runtime_api.h>

#include "kernels/cuda/fault.h"
#include "kernels/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Make the device this thread's current one: before a call of CUDA or of one of its libraries. */
ddp_status_t ddp_cuda_enter(const ddp_device_t *device) DDP_NODISCARD;
/** Its number among the visible ones. */
int ddp_cuda_ordinal(const ddp_device_t *device);
/** For work of the caller's: what the stream keeps back (kernels/cuda/graphs.h) goes before it. */
cudaStream_t ddp_cuda_stream(ddp_stream_t *stream);
/** Where kernels of the stream's device note what they find wrong; they may write there. */
ddp_cuda_fault_t *ddp_cuda_fault(const ddp_stream_t *stream);
int               ddp_cuda_multiprocessors(const ddp_stream_t *stream);
/** What a launch by LAUNCH() left: DDP_OK, or the stream has failed. Every operation ends with it. */
ddp_status_t ddp_cuda_launched(ddp_stream_t *stream, const char *op) DDP_NODISCARD;

#ifdef __cplusplus
}
#endif

#endif
