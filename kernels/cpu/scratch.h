/** @file Scratch memory of kernels: per thread, kept from call to call, on huge pages. Private. */
#ifndef DDP_CPU_SCRATCH_H_
#define DDP_CPU_SCRATCH_H_

#include <stddef.h>

#include "base/status.h"

/**
 * Borrow scratch of this thread. Calls nest (a kernel's progress point may run another kernel): give back in
 * reverse order. Not zeroed; freed when the thread ends.
 * @return DDP_ERR_NO_MEMORY: nothing was borrowed
 */
ddp_status_t ddp_cpu_scratch_get(size_t bytes, void **memory_p);
void         ddp_cpu_scratch_put(void);

/** Bytes that this thread keeps. */
size_t ddp_cpu_scratch_held(void);

#endif
