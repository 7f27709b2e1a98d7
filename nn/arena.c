#include "nn/tape_internal.h"

#include "base/error.h"

void ddp_arena_init(ddp_arena_t *arena, const ddp_allocator_t *allocator, const char *label)
{
    *arena = (ddp_arena_t){.allocator = allocator, .label = label};
}

void ddp_arena_free(ddp_arena_t *arena)
{
    while (arena->n_chunks > 0) {
        arena->n_chunks--;
        arena->allocator->release(arena->allocator->ctx, arena->chunk[arena->n_chunks].memory);
    }
}

void ddp_arena_reset(ddp_arena_t *arena)
{
    arena->current    = 0;
    arena->offset     = 0;
    arena->used_bytes = 0;
}

static ddp_status_t add_chunk(ddp_arena_t *arena, size_t bytes)
{
    ddp_status_t status = DDP_OK;
    size_t size   = arena->total_bytes > DDP_ARENA_FIRST_BYTES ? arena->total_bytes : DDP_ARENA_FIRST_BYTES;
    void  *memory = NULL;

    size = bytes > size ? bytes : size; /* the total at least doubles, so that few chunks are ever made */
    DDP_REQUIRE(arena->n_chunks < DDP_ARENA_MAX_CHUNKS, DDP_ERR_NO_MEMORY,
                "%s: more than %d pieces of memory", arena->label, DDP_ARENA_MAX_CHUNKS);
    DDP_TRY(arena->allocator->acquire(arena->allocator->ctx, arena->label, size, &memory));
    arena->chunk[arena->n_chunks].memory = memory;
    arena->chunk[arena->n_chunks].bytes  = size;
    arena->n_chunks++;
    arena->total_bytes += size;
out:
    return status;
}

ddp_status_t ddp_arena_take(ddp_arena_t *arena, size_t bytes, void **memory_p)
{
    ddp_status_t status  = DDP_OK;
    const size_t rounded = (bytes + DDP_ALIGNMENT - 1) / DDP_ALIGNMENT * DDP_ALIGNMENT;

    DDP_REQUIRE(rounded >= bytes, DDP_ERR_NO_MEMORY, "%s: %zu bytes do not fit in memory", arena->label,
                bytes);
    while (arena->current < arena->n_chunks && rounded > arena->chunk[arena->current].bytes - arena->offset) {
        arena->current++;
        arena->offset = 0;
    }
    if (arena->current == arena->n_chunks) {
        DDP_TRY(add_chunk(arena, rounded));
    }
    *memory_p = arena->chunk[arena->current].memory + arena->offset;
    arena->offset += rounded;
    arena->used_bytes += rounded;
out:
    return status;
}
