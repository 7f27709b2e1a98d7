/**
 * @file NCCL: the communicator of a job whose ranks have a GPU each. The library is loaded when it is first
 * asked for; a program that never does runs without it.
 *
 * Every wait is a poll with the deadline of the ddp_comm it was made from: a rank that is late, has ended or
 * has failed is named, and then all ranks abort. Collectives are for ddp/reducer.h; this header is for
 * whoever sets a job up.
 */
#ifndef DDP_NCCL_H_
#define DDP_NCCL_H_

#include <stdbool.h>
#include <stddef.h>

#include "base/export.h"
#include "base/status.h"
#include "ddp/comm.h"
#include "kernels/device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ddp_nccl ddp_nccl_t;

typedef struct ddp_nccl_info {
    bool is_there;    /* built in, found and loaded */
    int  version;     /* 22809 for 2.28.9 */
    char reason[256]; /* why it is not there, one line, or "" */
} ddp_nccl_info_t;
/** What this process can load. Never fails. */
DDP_API void ddp_nccl_probe(ddp_nccl_info_t *info);

typedef struct ddp_nccl_params {
    size_t        struct_size;
    ddp_comm_t   *comm;   /* borrowed, outlives the communicator */
    ddp_device_t *device; /* borrowed: of kind cuda */
    int  max_ctas; /* multiprocessors a collective may take from the kernels, 1 .. 32; 0: NCCL's choice */
    bool share_devices; /* several ranks may have the same GPU: slow, for trying things out */
} ddp_nccl_params_t;
#define DDP_NCCL_PARAMS_INIT                                                                                 \
    {                                                                                                        \
        .struct_size = sizeof(ddp_nccl_params_t)                                                             \
    }

/**
 * One communicator over all ranks, with their numbers. Collective. Blocking, bounded by the deadline of
 * `comm`.
 * @return DDP_ERR_UNSUPPORTED: no NCCL in this build or on this machine. DDP_ERR_MISMATCH: versions differ.
 * DDP_ERR_CONFIG: two ranks on one GPU. DDP_ERR_TIMEOUT: the ranks that did not join. DDP_ERR_DEVICE: NCCL's
 * own words, and what is known to help
 */
DDP_API ddp_status_t ddp_nccl_create(const ddp_nccl_params_t *params, ddp_nccl_t **nccl_p) DDP_NODISCARD;
/** Collective unless it has failed; what is on streams should be done. Bounded by the deadline, then aborts.
 * Accepts NULL. */
DDP_API void ddp_nccl_destroy(ddp_nccl_t **nccl_p);

/** @return what is known to help against an error with this text (NCCL's, or of its log), one line without a
 * full stop; NULL: nothing is. Static memory. */
DDP_API const char *ddp_nccl_hint(const char *text);

#ifdef __cplusplus
}
#endif

#endif
