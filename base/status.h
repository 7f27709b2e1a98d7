/** @file Every status a function can return: one table, so that names and texts cannot drift. */
#ifndef DDP_STATUS_H_
#define DDP_STATUS_H_

#include "base/export.h"

#ifdef __cplusplus
extern "C" {
#endif

/* X(name, value, text). 0 is success, > 0 is "not yet", < 0 is an error. Append; never renumber: values cross
 * MPI. */
#define DDP_STATUS_TABLE(X)                                                                                  \
    X(DDP_IN_PROGRESS, 1, "not finished yet")                                                                \
    X(DDP_OK, 0, "success")                                                                                  \
    X(DDP_ERR_INVALID_ARG, -1, "invalid argument")                                                           \
    X(DDP_ERR_NO_MEMORY, -2, "out of memory")                                                                \
    X(DDP_ERR_IO, -3, "input or output failed")                                                              \
    X(DDP_ERR_FORMAT, -4, "damaged or unknown file content")                                                 \
    X(DDP_ERR_CONFIG, -5, "wrong configuration")                                                             \
    X(DDP_ERR_MPI, -6, "an MPI call failed")                                                                 \
    X(DDP_ERR_SYSTEM, -7, "a system call failed")                                                            \
    X(DDP_ERR_REMOTE, -8, "another rank failed")                                                             \
    X(DDP_ERR_TIMEOUT, -9, "a wait passed its deadline")                                                     \
    X(DDP_ERR_MISMATCH, -10, "ranks disagree")                                                               \
    X(DDP_ERR_UNSUPPORTED, -11, "not in this build or not on this device")                                   \
    X(DDP_ERR_NOT_FINITE, -12, "a value is not finite")                                                      \
    X(DDP_ERR_STATE, -13, "call out of order")                                                               \
    X(DDP_ERR_DEVICE, -14, "a device or its library failed")

typedef enum ddp_status {
#define DDP_STATUS_ENUM(name, value, text) name = (value),
    DDP_STATUS_TABLE(DDP_STATUS_ENUM)
#undef DDP_STATUS_ENUM
} ddp_status_t;

/** @return the name of `status` ("DDP_ERR_IO"), "unknown status" for a value outside the table; static
 * memory. */
DDP_API const char *ddp_status_name(ddp_status_t status);

/** @return a short English text for `status`; static memory. */
DDP_API const char *ddp_status_text(ddp_status_t status);

#ifdef __cplusplus
}
#endif

#endif
