/** @file Where an arena takes its memory from: private memory, or a window that the ranks of a machine share.
 */
#ifndef DDP_ALLOCATOR_H_
#define DDP_ALLOCATOR_H_

#include <stddef.h>

#include "base/export.h"
#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Alignment every allocator gives, bytes: a cache line, and the widest vector. */
#define DDP_ALIGNMENT 64

typedef struct ddp_allocator {
    /**
     * @param [in]  label    what it is for, for errors and the memory table ("parameters")
     * @param [in]  bytes    > 0; the memory is zeroed and DDP_ALIGNMENT-aligned
     * @param [out] memory_p owned by the caller, given back with `release`
     * @return DDP_ERR_NO_MEMORY with the figure needed in the line
     */
    ddp_status_t (*acquire)(void *ctx, const char *label, size_t bytes, void **memory_p);
    /** Accepts NULL. */
    void (*release)(void *ctx, void *memory);
    void *ctx; /* borrowed by whoever holds the allocator */
} ddp_allocator_t;

/** Private memory of this process: mmap with huge pages asked for (madvise) from 2 MiB on. `ctx` is NULL. */
DDP_API const ddp_allocator_t *ddp_allocator_private(void);

#ifdef __cplusplus
}
#endif

#endif
