/** @file Planted failures for tests: DDP_FAULT=<point>:<rank> makes the check at <point> fail on that rank.
 */
#ifndef DDP_FAULT_H_
#define DDP_FAULT_H_

#include "base/export.h"
#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Called after the real call at a named point, e.g. `DDP_TRY(ddp_fault("window_map", rank))`.
 * @return DDP_OK unless the environment asks for this failure; then DDP_ERR_SYSTEM with a line that says
 * "planted".
 */
DDP_API ddp_status_t ddp_fault(const char *point, int rank) DDP_NODISCARD;

#ifdef __cplusplus
}
#endif

#endif
