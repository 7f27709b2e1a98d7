/** @file How a checked operation reaches the backend of its device. Private. */
#ifndef DDP_OPS_DISPATCH_INTERNAL_H_
#define DDP_OPS_DISPATCH_INTERNAL_H_

#include "kernels/device_internal.h"

static inline ddp_status_t ddp_op_enter(const ddp_stream_t *stream)
{
    const ddp_backend_t *backend = stream->device->backend;

    return backend->enter != NULL ? backend->enter(stream) : DDP_OK;
}

/* DDP_CALL_OP(stream, gemm, args): its status. A dry device drops what was checked. */
#define DDP_CALL_OP(stream, op, ...)                                                                         \
    ((stream)->device->dry            ? DDP_OK                                                               \
     : ddp_op_enter(stream) != DDP_OK ? ddp_op_enter(stream)                                                 \
                                      : (stream)->device->backend->ops->op((stream), __VA_ARGS__))

#endif
