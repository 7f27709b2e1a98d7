/** @file How a checked operation reaches the backend of its device. Private. */
#ifndef DDP_OPS_DISPATCH_INTERNAL_H_
#define DDP_OPS_DISPATCH_INTERNAL_H_

#include "kernels/device_internal.h"

/* DDP_CALL_OP(stream, gemm, args): its status. A dry device drops what was checked. */
#define DDP_CALL_OP(stream, op, ...)                                                                         \
    ((stream)->device->dry ? DDP_OK : (stream)->device->backend->ops->op((stream), __VA_ARGS__))

#endif
