/**
 * @file Ranges of the host's time with a name, for a profiler of NVIDIA's (NVTX: Nsight Systems): what the
 * program was at while it gave the device its work. Without a profiler, or in a build without CUDA, a call
 * costs a look at a pointer.
 */
#ifndef DDP_RANGES_H_
#define DDP_RANGES_H_

#include <stdint.h>

#include "base/export.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DDP_RANGE_NO_NUMBER (-1)

/**
 * A range begins on this thread, inside of those that are open on it. Any thread. Cannot fail.
 * @param [in] name    copied
 * @param [in] number  behind the name ("bucket 3"), DDP_RANGE_NO_NUMBER: none
 */
DDP_API void ddp_range_open(const char *name, int64_t number);
/** The range that was opened last on this thread ends. A function that opens one closes it on all its ways
 * out, so what it calls after that has returned its status to it. */
DDP_API void ddp_range_close(void);

#ifdef __cplusplus
}
#endif

#endif
