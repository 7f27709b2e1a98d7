/** @file How a checked operation reaches the backend of its device. Private. */
#ifndef DDP_OPS_DISPATCH_INTERNAL_H_
#define DDP_OPS_DISPATCH_INTERNAL_H_

#include "kernels/device_internal.h"

static inline ddp_status_t ddp_op_enter(const ddp_stream_t *stream)
{
    const ddp_backend_t *backend = stream->device->backend;

    return backend->enter != NULL ? backend->enter(stream) : DDP_OK;
}

/* A dry device does not run it, but learns what it would have taken. */
static inline ddp_status_t ddp_op_note(ddp_device_t *device, ddp_op_id_t id, const void *args)
{
    const ddp_op_table_t *ops  = device->backend->ops;
    ddp_scratch_t        *most = &device->dry_scratch;

    if (ops->op_scratch != NULL) {
        const ddp_scratch_t need = ops->op_scratch(device, id, args);

        most->op      = need.op > most->op ? need.op : most->op;
        most->product = need.product > most->product ? need.product : most->product;
    }
    return DDP_OK;
}

/* DDP_CALL_OP(stream, gemm, args): its status. A dry device drops what was checked. */
#define DDP_CALL_OP(stream, op, args)                                                                        \
    ((stream)->device->dry            ? ddp_op_note((stream)->device, DDP_OP_ID_##op, (args))                \
     : ddp_op_enter(stream) != DDP_OK ? ddp_op_enter(stream)                                                 \
                                      : (stream)->device->backend->ops->op((stream), (args)))

/* The same for the four that take no struct; they take no scratch either. */
#define DDP_CALL_VECTOR(stream, op, ...)                                                                     \
    ((stream)->device->dry            ? DDP_OK                                                               \
     : ddp_op_enter(stream) != DDP_OK ? ddp_op_enter(stream)                                                 \
                                      : (stream)->device->backend->ops->op((stream), __VA_ARGS__))

#endif
