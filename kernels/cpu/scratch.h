/** @file Scratch memory of kernels: the device's, kept from call to call, on huge pages. Private. */
#ifndef DDP_CPU_SCRATCH_H_
#define DDP_CPU_SCRATCH_H_

#include <stddef.h>

#include "base/status.h"
#include "kernels/device.h"

/**
 * Borrow scratch of the device whose work this is. Calls nest (a kernel's progress point may run another
 * kernel): give back in reverse order. Not zeroed; goes with the device.
 * @return DDP_ERR_NO_MEMORY: nothing was borrowed. DDP_ERR_STATE: not called from work of a stream
 */
ddp_status_t ddp_cpu_scratch_get(size_t bytes, void **memory_p);
void         ddp_cpu_scratch_put(void);

/** Bytes that the device keeps. */
size_t ddp_cpu_scratch_held(const ddp_device_t *device);

#endif
