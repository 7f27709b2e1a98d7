#include "base/allocator.h"

#include <string.h>
#include <sys/mman.h>

#include "base/error.h"

#define HUGE_PAGE_BYTES ((size_t)2 << 20)
#define HEADER_BYTES    ((size_t)4096) /* keeps the size, and a page border */

typedef struct header {
    size_t mapped_bytes;
    void  *mapped;
} header_t;

static ddp_status_t private_acquire(void *ctx, const char *label, size_t bytes, void **memory_p)
{
    size_t    total  = bytes + HEADER_BYTES + HUGE_PAGE_BYTES;
    char     *mapped = NULL;
    char     *memory = NULL;
    header_t *header = NULL;

    (void)ctx;
    if (total < bytes) {
        return ddp_fail(DDP_ERR_NO_MEMORY, "%s: %zu bytes do not fit in memory", label, bytes);
    }
    mapped = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) {
        return ddp_fail(DDP_ERR_NO_MEMORY, "%s: no memory for %zu bytes", label, bytes);
    }
    memory = mapped + HEADER_BYTES;
    if (bytes >= HUGE_PAGE_BYTES) { /* the user's part starts on a huge page; the slack is never touched */
        memory = (char *)(((size_t)memory + HUGE_PAGE_BYTES - 1) & ~(HUGE_PAGE_BYTES - 1));
        (void)madvise(memory, bytes, MADV_HUGEPAGE); /* a wish: without it only speed is lost */
    }
    header               = (header_t *)(void *)(memory - HEADER_BYTES);
    header->mapped_bytes = total;
    header->mapped       = mapped;
    *memory_p            = memory;
    return DDP_OK;
}

static void private_release(void *ctx, void *memory)
{
    header_t header;

    (void)ctx;
    if (memory == NULL) {
        return;
    }
    memcpy(&header, (char *)memory - HEADER_BYTES, sizeof(header));
    (void)munmap(header.mapped, header.mapped_bytes);
}

const ddp_allocator_t *ddp_allocator_private(void)
{
    static const ddp_allocator_t allocator = {private_acquire, private_release, NULL};

    return &allocator;
}
