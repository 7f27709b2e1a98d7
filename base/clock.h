/** @file The monotonic clock. */
#ifndef DDP_CLOCK_H_
#define DDP_CLOCK_H_

#include <stdint.h>

#include "base/export.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DDP_NS_PER_MS INT64_C(1000000)

/** @return nanoseconds since some fixed point; never goes back; not comparable between machines. */
DDP_API int64_t ddp_clock_ns(void);

#ifdef __cplusplus
}
#endif

#endif
