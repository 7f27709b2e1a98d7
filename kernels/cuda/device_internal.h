/**
 * @file Inside of the CUDA device: what its files share. Private to kernels/cuda.
 *
 * A call that needs the device goes through ddp_cuda_enter() first: CUDA has a current device per thread.
 */
#ifndef DDP_CUDA_DEVICE_INTERNAL_H_
#define DDP_CUDA_DEVICE_INTERNAL_H_

#include <cuda_runtime_api.h>

#include "base/error.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/rounded.h"
#include "kernels/cuda/scratch.h"
#include "kernels/device_internal.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Something of a device that is made when first needed (a cuBLASLt handle, the plans of cuDNN). */
typedef struct ddp_cuda_part {
    void *part; /* owned; NULL: not there yet */
    void (*destroy)(void *part);
} ddp_cuda_part_t;

typedef enum ddp_cuda_part_kind {
    DDP_CUDA_PART_GEMM,
    DDP_CUDA_PART_CUDNN,
    DDP_CUDA_PARTS
} ddp_cuda_part_kind_t;

typedef struct ddp_cuda_device {
    cudaStream_t       setup; /* owned; zeroing of new memory */
    ddp_cuda_fault_t  *fault; /* owned, page-locked: what a kernel found wrong */
    int                multiprocessors;
    int                low, high; /* priorities of streams: high is a smaller number */
    ddp_cuda_part_t    parts[DDP_CUDA_PARTS];
    ddp_cuda_rounded_t rounded;
} ddp_cuda_device_t;

/** How often scratch may grow: it doubles at least. */
#define DDP_CUDA_SCRATCH_BLOCKS 48

/** Scratch for one use: the last block is the one in use, the others were too small. They stay: what was
 * submitted may still use them, and cudaFree would wait for it without a deadline. */
typedef struct ddp_cuda_room {
    ddp_device_block_t block[DDP_CUDA_SCRATCH_BLOCKS]; /* owned */
    size_t             n;
} ddp_cuda_room_t;

/** What a stream of the device has; none if the device is dry. */
typedef struct ddp_cuda_lane {
    cudaStream_t    stream; /* owned */
    ddp_cuda_room_t room[DDP_CUDA_SCRATCH_USES];
    bool            is_reserved; /* ddp_stream_reserve() was called */

    struct ddp_cuda_graphs *graphs; /* owned; NULL: operations run at once */
} ddp_cuda_lane_t;

static inline ddp_cuda_lane_t *ddp_cuda_lane_of(const ddp_stream_t *stream)
{
    return stream->native;
}

/** Of a dry device only the parts. */
static inline ddp_cuda_device_t *ddp_cuda_of(const ddp_device_t *device)
{
    return device->native;
}

/**
 * A failed call as a status with its line: DDP_ERR_NO_MEMORY, or DDP_ERR_DEVICE "device 1: <what>: <CUDA's
 * text>". Forgets CUDA's own record of it where that can be forgotten.
 * @param [in] device  NULL: none in particular
 */
ddp_status_t ddp_cuda_fail(const ddp_device_t *device, cudaError_t error, const char *what);

#define DDP_TRY_CUDA(device, call)                                                                           \
    do {                                                                                                     \
        const cudaError_t ddp_cuda_error_ = (call);                                                          \
        if (ddp_cuda_error_ != cudaSuccess) {                                                                \
            status = ddp_cuda_fail((device), ddp_cuda_error_, #call);                                        \
            goto out;                                                                                        \
        }                                                                                                    \
    } while (0)

/* memory.c */
ddp_status_t    ddp_cuda_acquire(ddp_device_t *device, const char *label, size_t bytes,
                                 void **memory_p) DDP_NODISCARD;
void            ddp_cuda_release(ddp_device_t *device, void *memory);
ddp_allocator_t ddp_cuda_host_allocator(ddp_device_t *device);
ddp_status_t    ddp_cuda_pin(ddp_device_t *device, void *memory, size_t bytes) DDP_NODISCARD;
void            ddp_cuda_unpin(ddp_device_t *device, void *memory);

/* scratch.c */
ddp_status_t ddp_cuda_stream_reserve(ddp_stream_t *stream, const ddp_scratch_t *scratch) DDP_NODISCARD;
void         ddp_cuda_scratch_free(ddp_stream_t *stream);

/* stream.c */
/** The stream has failed for good, with the line of this thread. @return status */
ddp_status_t ddp_cuda_stream_fail(ddp_stream_t *stream, ddp_status_t status);
ddp_status_t ddp_cuda_stream_open(ddp_stream_t *stream, bool is_urgent);
void         ddp_cuda_stream_close(ddp_stream_t *stream);
ddp_status_t ddp_cuda_submit(ddp_stream_t *stream, const char *name, ddp_work_fn_t *fn, const void *args,
                             size_t args_bytes);
ddp_status_t ddp_cuda_stream_synchronize(ddp_stream_t *stream, int timeout_ms);
ddp_status_t ddp_cuda_copy(ddp_stream_t *stream, void *to, const void *from, size_t bytes);
ddp_status_t ddp_cuda_event_open(ddp_event_t *event);
void         ddp_cuda_event_close(ddp_event_t *event);
ddp_status_t ddp_cuda_event_record(ddp_event_t *event, ddp_stream_t *stream);
ddp_status_t ddp_cuda_wait_event(ddp_stream_t *stream, ddp_event_t *event);
ddp_status_t ddp_cuda_event_synchronize(ddp_event_t *event, int timeout_ms);
ddp_status_t ddp_cuda_event_elapsed(const ddp_event_t *from, const ddp_event_t *to, int64_t *ns_p);

#endif
