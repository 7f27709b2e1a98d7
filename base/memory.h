/** @file How much memory can still be had. Asked before memory is taken: in a control group the answer to
 * taking too much is not an error but a kill. */
#ifndef DDP_MEMORY_H_
#define DDP_MEMORY_H_

#include <stdint.h>

#include "base/export.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Bytes that the processes of this machine can still get together: free memory, less where a control group of
 * this process (version 1 or 2) leaves less. Swap space does not count.
 * @param [in] root  "" but in tests: where proc and sys/fs/cgroup are
 * @return UINT64_MAX: the system does not tell
 */
DDP_API uint64_t ddp_memory_available(const char *root);

/** Bytes by which this process may still grow under its limit of address space (ulimit -v); UINT64_MAX: it
 * has none. */
DDP_API uint64_t ddp_memory_address_space(const char *root);

#ifdef __cplusplus
}
#endif

#endif
