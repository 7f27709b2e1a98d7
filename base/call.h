/** @file Wrappers around calls into MPI and the system, so that the text of the call is in the recorded line.
 */
#ifndef DDP_CALL_H_
#define DDP_CALL_H_

#include "base/error.h"
#include "base/export.h"
#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** @return DDP_OK for MPI_SUCCESS, else DDP_ERR_MPI with "<call> failed: <text of MPI>" recorded. */
DDP_API ddp_status_t ddp_from_mpi(int code, const char *call) DDP_NODISCARD;

/** @return DDP_OK for `result` >= 0, else DDP_ERR_SYSTEM with "<call> failed: <text of errno>" recorded. */
DDP_API ddp_status_t ddp_from_errno(long result, const char *call) DDP_NODISCARD;

/** @return DDP_OK for `code` 0, else DDP_ERR_SYSTEM: pthread functions return the errno value itself. */
DDP_API ddp_status_t ddp_from_pthread(int code, const char *call) DDP_NODISCARD;

#define DDP_TRY_MPI(call)     DDP_TRY(ddp_from_mpi((call), #call))
#define DDP_TRY_SYS(call)     DDP_TRY(ddp_from_errno((long)(call), #call))
#define DDP_TRY_PTHREAD(call) DDP_TRY(ddp_from_pthread((call), #call))

#ifdef __cplusplus
}
#endif

#endif
