/**
 * @file Communicators: who the ranks are, control-plane collectives with deadlines, and memory that a
 * machine's ranks share.
 *
 * Control-plane calls (agree, barrier, broadcast, gather, check) are blocking, collective and bounded by the
 * timeout; they go over MPI point to point in a star, so that the rank which is missing can be named. The
 * data plane is ddp/reducer.h and ddp_comm_allreduce_sum(). Thread: the thread that created the communicator;
 * MPI_THREAD_FUNNELED suffices.
 */
#ifndef DDP_COMM_H_
#define DDP_COMM_H_

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/allocator.h"
#include "base/export.h"
#include "base/status.h"
#include "kernels/device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ddp_comm ddp_comm_t;

/** How ranks of one machine meet. DDP_HOST_SHM=1|0|posix sets the default (memfd | off | shm_open). */
typedef enum ddp_shm_mode {
    DDP_SHM_DEFAULT = 0, /* as DDP_HOST_SHM says, else MEMFD */
    DDP_SHM_MEMFD   = 1, /* memfd_create, passed over a UNIX socket; shm_open where memfd is refused */
    DDP_SHM_POSIX   = 2, /* shm_open, unlinked once all have mapped it */
    DDP_SHM_OFF     = 3, /* every rank is its own machine: the MPI path, also on one machine */
} ddp_shm_mode_t;

typedef struct ddp_comm_params {
    size_t         struct_size;
    MPI_Comm       parent;     /* duplicated; MPI_COMM_SELF for one rank */
    int            timeout_ms; /* > 0: how long a rank may make no progress while others wait for it */
    ddp_shm_mode_t shm;
    int            exchange; /* ddp_exchange_kind_t: of ddp_comm_allreduce_sum() between machines */
    bool           alone;    /* one rank, and MPI is neither used nor needs to be there; parent is ignored */
} ddp_comm_params_t;
#define DDP_COMM_PARAMS_INIT                                                                                 \
    {                                                                                                        \
        .struct_size = sizeof(ddp_comm_params_t), .parent = MPI_COMM_NULL, .timeout_ms = 60000               \
    }

/**
 * Collective over `parent`. Ranks are renumbered machine-major (machine, local rank), whatever MPI's mapping.
 * Blocking: calls MPI_Comm_dup and MPI_Comm_split, which have no deadline (base/watchdog.h gives them one);
 * all else is bounded by the timeout.
 */
DDP_API ddp_status_t ddp_comm_create(const ddp_comm_params_t *params, ddp_comm_t **comm_p) DDP_NODISCARD;
/** Local: does not wait for peers, so it may be called after an error. Accepts NULL. */
DDP_API void ddp_comm_destroy(ddp_comm_t **comm_p);

DDP_API int ddp_comm_rank(const ddp_comm_t *comm);
DDP_API int ddp_comm_size(const ddp_comm_t *comm);
DDP_API int ddp_comm_local_rank(const ddp_comm_t *comm); /* within the machine */
DDP_API int ddp_comm_local_size(const ddp_comm_t *comm);
DDP_API int ddp_comm_machine(const ddp_comm_t *comm); /* 0 .. machines - 1 */
DDP_API int ddp_comm_machines(const ddp_comm_t *comm);
DDP_API int ddp_comm_timeout_ms(const ddp_comm_t *comm);
/** Host name of a rank; borrowed from comm. */
DDP_API const char *ddp_comm_host(const ddp_comm_t *comm, int rank);

/**
 * End of a set-up step that can fail on one rank: no rank goes on if one has failed. Collective.
 * @return DDP_OK if all were; a rank that failed: its own `status`; the others: DDP_ERR_REMOTE with the line
 * of the worst rank ("rank 3 on node07: ..."; lowest among equals). DDP_ERR_TIMEOUT names who is missing,
 * DDP_ERR_STATE who is in another call; after these the control plane answers everything with the same error
 */
DDP_API ddp_status_t ddp_comm_agree(ddp_comm_t *comm, ddp_status_t status) DDP_NODISCARD;
/** ddp_comm_agree() of DDP_OK. */
DDP_API ddp_status_t ddp_comm_barrier(ddp_comm_t *comm) DDP_NODISCARD;
/** `data` of rank `root` to all. Collective, same `bytes`. */
DDP_API ddp_status_t ddp_comm_broadcast(ddp_comm_t *comm, void *data, size_t bytes, int root) DDP_NODISCARD;
/** all[r * bytes] = what rank r gave. Collective, same `bytes`. @param [out] all  [size * bytes] */
DDP_API ddp_status_t ddp_comm_allgather(ddp_comm_t *comm, const void *mine, size_t bytes,
                                        void *all) DDP_NODISCARD;

/**
 * `bytes` from rank `from` to rank `to`, which both call it, in the same order as other calls between them;
 * for other ranks nothing happens. Blocking, bounded by the timeout: who has to wait for many others'
 * messages should meet them in between (ddp_comm_barrier()).
 * @param [in,out] data  [bytes], read on `from`, written on `to`; not used on others
 */
DDP_API ddp_status_t ddp_comm_pass(ddp_comm_t *comm, void *data, size_t bytes, int from,
                                   int to) DDP_NODISCARD;

/** A named value that must be the same on all ranks. */
typedef struct ddp_field {
    const char *name;
    const char *value;
} ddp_field_t;
/**
 * Compare named values over ranks; one fixed-size digest first, details only after a difference. Collective.
 * @return DDP_ERR_MISMATCH on every rank: "rank 2 on node07 has optimizer.lr 0.01, rank 0 on node01 has
 * 0.001"; the majority is right
 */
DDP_API ddp_status_t ddp_comm_check_equal(ddp_comm_t *comm, const ddp_field_t *fields,
                                          size_t n) DDP_NODISCARD;
/** As ddp_comm_check_equal(), where a rank need not have what another has: values of the same name must be
 * the same, in any order. */
DDP_API ddp_status_t ddp_comm_check_alike(ddp_comm_t *comm, const ddp_field_t *fields,
                                          size_t n) DDP_NODISCARD;

/**
 * Memory that all ranks of this machine see (private to the rank where sharing is off). Collective over the
 * machine, same `bytes`; zeroed; page-aligned; backed in full before it returns, so that too little memory is
 * an error here and not a SIGBUS later. Freed by ddp_comm_destroy().
 * @param [in] label  for errors: "shared memory for gradients: 210 MB needed, 64 MB free in /dev/shm"
 */
DDP_API ddp_status_t ddp_comm_shared(ddp_comm_t *comm, const char *label, size_t bytes,
                                     void **memory_p) DDP_NODISCARD;

/** Local. MPI or a thread that does not come back may still write to memory of ddp_comm_shared() after
 * ddp_comm_destroy(): it stays until the process ends. */
DDP_API void ddp_comm_keep_memory(ddp_comm_t *comm);

/**
 * Sum `buffer` over all ranks, in place. All get the same bits: on one machine those of rank order, over
 * several in an order that depends on the machines and on how their link was measured, by the first call.
 * Collective, blocking. After an error MPI may write to `buffer` until the process ends.
 * @param [in,out] buffer  [count] floats at the same offset of a ddp_comm_shared_each() window on every rank,
 * or any memory (slower)
 */
DDP_API ddp_status_t ddp_comm_allreduce_sum(ddp_comm_t *comm, float *buffer, size_t count) DDP_NODISCARD;
/** The same by MPI_Allreduce, to compare with: no deadline. Collective, blocking. */
DDP_API ddp_status_t ddp_comm_allreduce_sum_mpi(ddp_comm_t *comm, float *buffer, size_t count) DDP_NODISCARD;
/** As ddp_comm_shared(), `bytes` for each rank: *mine_p is this rank's part; peers' parts are used by
 * ddp_comm_allreduce_sum(). */
DDP_API ddp_status_t ddp_comm_shared_each(ddp_comm_t *comm, const char *label, size_t bytes,
                                          void **mine_p) DDP_NODISCARD;

/** Let waits of `device` go through this communicator: spin, yield, futex, watch peers and the deadline.
 * `comm` outlives the waits. */
DDP_API void ddp_comm_attach(ddp_comm_t *comm, ddp_device_t *device);

#ifdef __cplusplus
}
#endif

#endif
