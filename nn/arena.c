#include "nn/tape_internal.h"

#include <string.h>

#include "base/error.h"

void ddp_arena_init(ddp_arena_t *arena, const ddp_allocator_t *allocator, const char *label)
{
    memset(arena, 0, sizeof(*arena));
    arena->allocator = allocator;
    arena->label     = label;
}

void ddp_arena_free(ddp_arena_t *arena)
{
    while (arena->n_chunks > 0) {
        arena->n_chunks--;
        arena->allocator->release(arena->allocator->ctx, arena->chunk[arena->n_chunks].memory);
    }
    arena->n_holes = 0;
}

void ddp_arena_reset(ddp_arena_t *arena)
{
    arena->most_bytes = ddp_arena_most(arena);
    for (size_t c = 0; c < arena->n_chunks; c++) {
        arena->hole[c]       = (ddp_arena_hole_t){c, 0, arena->chunk[c].bytes};
        arena->chunk[c].used = 0;
    }
    arena->n_holes = arena->n_chunks;
}

size_t ddp_arena_used(const ddp_arena_t *arena)
{
    size_t bytes = 0;

    for (size_t c = 0; c < arena->n_chunks; c++) {
        bytes += arena->chunk[c].used;
    }
    return bytes;
}

size_t ddp_arena_most(const ddp_arena_t *arena)
{
    const size_t used = ddp_arena_used(arena);

    return used > arena->most_bytes ? used : arena->most_bytes;
}

static void remove_hole(ddp_arena_t *arena, size_t i)
{
    arena->n_holes--;
    memmove(&arena->hole[i], &arena->hole[i + 1], (arena->n_holes - i) * sizeof(arena->hole[0]));
}

/* Where there are too many holes one is forgotten until the reset; that costs memory, nothing else. */
static void insert_hole(ddp_arena_t *arena, size_t i, ddp_arena_hole_t hole)
{
    if (arena->n_holes == DDP_ARENA_MAX_HOLES) {
        return;
    }
    memmove(&arena->hole[i + 1], &arena->hole[i], (arena->n_holes - i) * sizeof(arena->hole[0]));
    arena->hole[i] = hole;
    arena->n_holes++;
}

static size_t round_up(size_t bytes)
{
    return (bytes + DDP_ALIGNMENT - 1) / DDP_ALIGNMENT * DDP_ALIGNMENT;
}

static ddp_status_t add_chunk(ddp_arena_t *arena, size_t bytes)
{
    ddp_status_t status = DDP_OK;
    void        *memory = NULL;

    DDP_REQUIRE(arena->n_chunks < DDP_ARENA_MAX_CHUNKS && arena->n_holes < DDP_ARENA_MAX_HOLES,
                DDP_ERR_NO_MEMORY, "%s: more than %d pieces of memory", arena->label, DDP_ARENA_MAX_CHUNKS);
    DDP_TRY(arena->allocator->acquire(arena->allocator->ctx, arena->label, bytes, &memory));
    arena->chunk[arena->n_chunks].memory = memory;
    arena->chunk[arena->n_chunks].bytes  = bytes;
    arena->chunk[arena->n_chunks].used   = 0;
    insert_hole(arena, arena->n_holes, (ddp_arena_hole_t){arena->n_chunks, 0, bytes});
    arena->n_chunks++;
    arena->total_bytes += bytes;
out:
    return status;
}

/* `wanted` bytes, or less where there is no room for so many, but `least`. */
static ddp_status_t add_room(ddp_arena_t *arena, size_t least, size_t wanted)
{
    ddp_status_t status = add_chunk(arena, wanted);

    while (status == DDP_ERR_NO_MEMORY && wanted > least) {
        wanted = wanted / 2 > least ? round_up(wanted / 2) : least;
        status = add_chunk(arena, wanted);
    }
    return status;
}

ddp_status_t ddp_arena_reserve(ddp_arena_t *arena, size_t bytes)
{
    return bytes > arena->total_bytes ? add_chunk(arena, round_up(bytes - arena->total_bytes)) : DDP_OK;
}

ddp_status_t ddp_arena_take(ddp_arena_t *arena, size_t bytes, void **memory_p)
{
    ddp_status_t      status  = DDP_OK;
    const size_t      rounded = round_up(bytes);
    size_t            i       = 0;
    ddp_arena_hole_t *hole    = NULL;
    size_t            size    = 0;

    DDP_REQUIRE(rounded >= bytes, DDP_ERR_NO_MEMORY, "%s: %zu bytes do not fit in memory", arena->label,
                bytes);
    while (i < arena->n_holes && arena->hole[i].bytes < rounded) {
        i++;
    }
    if (i == arena->n_holes) { /* the total at least doubles, so that few chunks are ever made */
        size = arena->total_bytes > DDP_ARENA_FIRST_BYTES ? arena->total_bytes : DDP_ARENA_FIRST_BYTES;
        DDP_TRY(add_room(arena, rounded, rounded > size ? rounded : size));
    }
    hole      = &arena->hole[i];
    *memory_p = arena->chunk[hole->chunk].memory + hole->offset;
    hole->offset += rounded;
    hole->bytes -= rounded;
    if (hole->offset > arena->chunk[hole->chunk].used) {
        arena->chunk[hole->chunk].used = hole->offset;
    }
    if (hole->bytes == 0) {
        remove_hole(arena, i);
    }
out:
    return status;
}

static bool chunk_has(const ddp_arena_t *arena, size_t chunk, const char *memory)
{
    return memory >= arena->chunk[chunk].memory &&
           memory < arena->chunk[chunk].memory + arena->chunk[chunk].bytes;
}

bool ddp_arena_has(const ddp_arena_t *arena, const void *memory)
{
    size_t chunk = 0;

    while (chunk < arena->n_chunks && !chunk_has(arena, chunk, memory)) {
        chunk++;
    }
    return chunk < arena->n_chunks;
}

void ddp_arena_give(ddp_arena_t *arena, const void *memory, size_t bytes)
{
    const char      *start = memory;
    ddp_arena_hole_t given = {0, 0, round_up(bytes)};
    size_t           i     = 0;

    if (given.bytes == 0) {
        return; /* it may lie behind the last byte of a chunk */
    }
    while (!chunk_has(arena, given.chunk, start)) {
        given.chunk++;
    }
    given.offset = (size_t)(start - arena->chunk[given.chunk].memory);
    while (i < arena->n_holes &&
           (arena->hole[i].chunk < given.chunk ||
            (arena->hole[i].chunk == given.chunk && arena->hole[i].offset < given.offset))) {
        i++;
    }
    if (i < arena->n_holes && arena->hole[i].chunk == given.chunk &&
        given.offset + given.bytes == arena->hole[i].offset) { /* joins the next hole */
        given.bytes += arena->hole[i].bytes;
        remove_hole(arena, i);
    }
    if (i > 0 && arena->hole[i - 1].chunk == given.chunk &&
        arena->hole[i - 1].offset + arena->hole[i - 1].bytes == given.offset) { /* joins the one before */
        arena->hole[i - 1].bytes += given.bytes;
    } else {
        insert_hole(arena, i, given);
    }
}
