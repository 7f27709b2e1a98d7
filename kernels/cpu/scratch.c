#include "kernels/cpu/scratch.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/allocator.h"
#include "base/error.h"

#define MAX_DEPTH 4 /* a kernel, one that runs at its progress point, and room */

typedef struct slot {
    void  *memory; /* owned */
    size_t bytes;
} slot_t;

typedef struct scratch {
    slot_t slot[MAX_DEPTH];
    int    depth;
} scratch_t;

static pthread_once_t           once = PTHREAD_ONCE_INIT;
static pthread_key_t            key;
static int                      key_code;
static _Thread_local scratch_t *mine; /* owned by the thread, freed by the key's destructor */

static void thread_ends(void *memory)
{
    const ddp_allocator_t *allocator = ddp_allocator_private();
    scratch_t             *scratch   = memory;

    for (int i = 0; i < MAX_DEPTH; i++) {
        allocator->release(allocator->ctx, scratch->slot[i].memory);
    }
    free(scratch);
    mine = NULL;
}

static void make_key(void)
{
    key_code = pthread_key_create(&key, thread_ends);
}

static ddp_status_t find_mine(void)
{
    ddp_status_t status  = DDP_OK;
    scratch_t   *scratch = NULL;

    (void)pthread_once(&once, make_key);
    DDP_REQUIRE(key_code == 0, DDP_ERR_SYSTEM, "no thread key for the scratch of kernels");
    scratch = calloc(1, sizeof(*scratch));
    DDP_REQUIRE(scratch != NULL, DDP_ERR_NO_MEMORY, "no memory for the scratch of kernels");
    DDP_REQUIRE(pthread_setspecific(key, scratch) == 0, DDP_ERR_NO_MEMORY,
                "no memory for the scratch of kernels");
    mine    = scratch;
    scratch = NULL;
out:
    free(scratch);
    return status;
}

ddp_status_t ddp_cpu_scratch_get(size_t bytes, void **memory_p)
{
    const ddp_allocator_t *allocator = ddp_allocator_private();
    ddp_status_t           status    = DDP_OK;
    slot_t                *slot      = NULL;

    if (mine == NULL) {
        DDP_TRY(find_mine());
    }
    DDP_REQUIRE(mine->depth < MAX_DEPTH, DDP_ERR_STATE, "kernels nest deeper than %d", MAX_DEPTH);
    slot = &mine->slot[mine->depth];
    if (slot->bytes < bytes) {
        allocator->release(allocator->ctx, slot->memory);
        *slot = (slot_t){NULL, 0};
        DDP_TRY(allocator->acquire(allocator->ctx, "scratch of kernels", bytes, &slot->memory));
        slot->bytes = bytes;
    }
    mine->depth++;
    *memory_p = slot->memory;
out:
    return status;
}

void ddp_cpu_scratch_put(void)
{
    mine->depth--;
}

size_t ddp_cpu_scratch_held(void)
{
    size_t bytes = 0;

    for (int i = 0; mine != NULL && i < MAX_DEPTH; i++) {
        bytes += mine->slot[i].bytes;
    }
    return bytes;
}
