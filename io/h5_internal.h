/** @file What every use of HDF5 shares. Thread: one at a time. Private to io. */
#ifndef DDP_H5_INTERNAL_H_
#define DDP_H5_INTERNAL_H_

#include <hdf5.h>

#include "base/export.h"
#include "base/status.h"

/** Before the first call of a thread: HDF5 prints nothing; errors come back through ddp_fail_h5(). */
void ddp_h5_quiet(void);

/** Around calls that other threads may make at the same time, on whatever file: HDF5 may not know threads.
 * ddp_h5_lock() is ddp_h5_quiet() too. */
void ddp_h5_lock(void);
void ddp_h5_unlock(void);

/** Record "TEXT: <what the innermost entry of HDF5's error stack says>". To be called before any other call
 * of HDF5, which would clear the stack. @return status */
ddp_status_t ddp_fail_h5(ddp_status_t status, const char *fmt, ...) DDP_PRINTF(2, 3);

/** Open a file for reading, without HDF5's file locks (which NFS may refuse). @return DDP_ERR_FORMAT */
ddp_status_t ddp_h5_open(const char *path, hid_t *file_p) DDP_NODISCARD;

#endif
