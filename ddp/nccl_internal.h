/**
 * @file Collectives over an ddp_nccl_t, in order of a stream; what its files share. Private.
 *
 * Every call is made by all ranks in the same order. It returns when NCCL has put the work on the stream: the
 * communicator does not block, so "in progress" is polled with the deadline. After an error every rank
 * aborts: who finds it tells the others over MPI, and they find that in their waits.
 */
#ifndef DDP_NCCL_INTERNAL_H_
#define DDP_NCCL_INTERNAL_H_

#include <cuda_runtime_api.h>
#include <mpi.h>

#include "ddp/comm_internal.h"
#include "ddp/nccl.h"
#include "ddp/nccl_table_internal.h"

#ifdef __cplusplus
extern "C" {
#endif

/** The message of a rank that has failed. Tag of the data plane; the reducer's are smaller. */
#define DDP_NCCL_TAG 32767

/** Memory that is registered with NCCL. */
typedef struct ddp_nccl_memory {
    void  *memory; /* owned */
    size_t bytes;
    void  *handle;   /* of the registration, or NULL */
    bool   is_nccls; /* from ncclMemAlloc */
} ddp_nccl_memory_t;

#define DDP_NCCL_MEMORIES 8

struct ddp_nccl {
    ddp_comm_t             *comm;   /* borrowed */
    ddp_device_t           *device; /* borrowed */
    const ddp_nccl_table_t *table;
    ncclComm_t              nccl; /* owned; NULL: not there yet, or aborted */
    int                     rank, size;
    ddp_status_t            failed;     /* it was aborted */
    bool                    is_grouped; /* between ddp_nccl_group_start() and _end() */
    int64_t                 checked_ns;
    uint64_t                operations; /* collectives so far */
    ddp_flag_t             *done; /* [local size] of the machine: collectives that each rank has begun */
    ddp_wait_t              wait; /* what this rank waits for, but for the rank */

    ddp_nccl_memory_t memory[DDP_NCCL_MEMORIES];
    size_t            n_memory;

    char        *told;    /* owned: the line that goes to all, then one that came */
    MPI_Request *telling; /* owned, [size] */
};

/** "nccl: <what> failed: <NCCL's text>; <hint>" unless the result is ncclSuccess; ncclInProgress is polled.
 * The communicator is of no more use after an error but ncclInvalidArgument. */
ddp_status_t ddp_nccl_result(ddp_nccl_t *nccl, ncclResult_t result, const char *what) DDP_NODISCARD;
#define DDP_TRY_NCCL(nccl, call) DDP_TRY(ddp_nccl_result((nccl), (call), #call))

/** Between looks at an event: peers, NCCL's own errors, messages of ranks that failed. An idle function of
 * the device. On an error the communicator is aborted and the others are told. */
ddp_status_t ddp_nccl_idle(void *nccl, int64_t waited_ns);
/** What the next waits are about; the rank is found by ddp_nccl_idle(). */
void ddp_nccl_waiting(ddp_nccl_t *nccl, const char *what, uint64_t step, size_t bucket);
/** Of a CUDA call in ddp/: DDP_ERR_DEVICE, or DDP_ERR_NO_MEMORY. */
ddp_status_t ddp_nccl_cuda(cudaError_t error, const char *what) DDP_NODISCARD;
/** End the communicator at once, whatever is on its way; nothing to do where there is none. */
void ddp_nccl_abort(ddp_nccl_t *nccl);
/** Tell the others the recorded line, and abort. @return status */
ddp_status_t ddp_nccl_fail(ddp_nccl_t *nccl, ddp_status_t status);

/** Several collectives as one; calls between them return at once. */
ddp_status_t ddp_nccl_group_start(ddp_nccl_t *nccl) DDP_NODISCARD;
ddp_status_t ddp_nccl_group_end(ddp_nccl_t *nccl) DDP_NODISCARD;

ddp_status_t ddp_nccl_all_reduce(ddp_nccl_t *nccl, ddp_stream_t *stream, void *buffer, size_t count,
                                 ncclDataType_t type, ncclRedOp_t op) DDP_NODISCARD;
/** all: [size * count]; this rank's part is there already. */
ddp_status_t ddp_nccl_all_gather(ddp_nccl_t *nccl, ddp_stream_t *stream, void *all, size_t count,
                                 ncclDataType_t type) DDP_NODISCARD;
/** all: [size * count]; this rank's part becomes the sum. */
ddp_status_t ddp_nccl_reduce_scatter(ddp_nccl_t *nccl, ddp_stream_t *stream, void *all, size_t count,
                                     ncclDataType_t type) DDP_NODISCARD;
/** From the root to all. */
ddp_status_t ddp_nccl_broadcast(ddp_nccl_t *nccl, ddp_stream_t *stream, void *buffer, size_t count,
                                ncclDataType_t type, int root) DDP_NODISCARD;
/** In a group, with the other side's. */
ddp_status_t ddp_nccl_send(ddp_nccl_t *nccl, ddp_stream_t *stream, const float *from, size_t count,
                           int to) DDP_NODISCARD;
ddp_status_t ddp_nccl_receive(ddp_nccl_t *nccl, ddp_stream_t *stream, float *to, size_t count,
                              int from) DDP_NODISCARD;

/**
 * Memory of the device that NCCL knows, zeroed in order of `stream`: from ncclMemAlloc and registered where
 * the library can do that, else the device's own. Collective in this sense: all ranks ask for the same parts
 * in the same order. Given back by ddp_nccl_destroy().
 */
ddp_status_t ddp_nccl_acquire(ddp_nccl_t *nccl, ddp_stream_t *stream, const char *label, size_t bytes,
                              void **memory_p) DDP_NODISCARD;

#ifdef __cplusplus
}
#endif

#endif
