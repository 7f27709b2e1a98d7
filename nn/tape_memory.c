/* Memory of a tape: pieces that last until backward has passed their node, gradients, scratch. */
#include <math.h>

#include "base/error.h"
#include "nn/tape_internal.h"

ddp_tape_memory_t ddp_tape_memory(const ddp_tape_t *tape)
{
    return (ddp_tape_memory_t){.activations = ddp_arena_most(&tape->activations),
                               .scratch     = ddp_arena_most(&tape->scratch),
                               .nodes       = ddp_arena_most(&tape->host)};
}

ddp_tape_memory_t ddp_tape_held(const ddp_tape_t *tape)
{
    return (ddp_tape_memory_t){.activations = tape->activations.total_bytes,
                               .scratch     = tape->scratch.total_bytes,
                               .nodes       = tape->host.total_bytes};
}

ddp_status_t ddp_tape_reserve(ddp_tape_t *tape, const ddp_tape_memory_t *memory)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(ddp_arena_reserve(&tape->activations, memory->activations));
    DDP_TRY(ddp_arena_reserve(&tape->scratch, memory->scratch));
    DDP_TRY(ddp_arena_reserve(&tape->host, memory->nodes));
out:
    return status;
}

size_t ddp_tape_activation_bytes(const ddp_tape_t *tape)
{
    return ddp_arena_used(&tape->activations);
}

size_t ddp_tape_allocations(const ddp_tape_t *tape)
{
    return tape->activations.n_chunks + tape->scratch.n_chunks + tape->host.n_chunks +
           tape->stage_allocations;
}

ddp_status_t ddp_tape_new_grad(ddp_tape_t *tape, const ddp_tensor_t *x, float **grad_p)
{
    ddp_status_t status = DDP_OK;
    void        *memory = NULL;

    DDP_TRY(ddp_tape_keep(tape, x->count * sizeof(float), &memory)); /* x->data has as many, so they fit */
    *grad_p = memory;
out:
    return status;
}

ddp_status_t ddp_tape_keep(ddp_tape_t *tape, size_t bytes, void **memory_p)
{
    return ddp_arena_take(&tape->activations, bytes, memory_p);
}

ddp_status_t ddp_tape_take(ddp_tape_t *tape, size_t bytes, void **memory_p)
{
    ddp_status_t status = DDP_OK;
    ddp_piece_t *piece  = NULL;
    void        *memory = NULL;

    DDP_TRY(ddp_arena_take(&tape->host, sizeof(*piece), &memory));
    piece = memory;
    DDP_TRY(ddp_tape_keep(tape, bytes, &memory));
    *piece       = (ddp_piece_t){tape->pieces, memory, bytes};
    tape->pieces = piece;
    *memory_p    = memory;
out:
    return status;
}

void ddp_tape_give(ddp_tape_t *tape, void *memory, size_t bytes)
{
    if (ddp_device_is_deferred(ddp_stream_device(tape->stream))) {
        ddp_ignore(ddp_op_fill(tape->stream, memory, bytes / sizeof(float), NAN),
                   "a stream that has failed says so at its next work");
    }
    ddp_arena_give(&tape->activations, memory, bytes);
}

void ddp_tape_give_pieces(ddp_tape_t *tape, ddp_piece_t **pieces)
{
    for (; *pieces != NULL; *pieces = (*pieces)->older) {
        ddp_tape_give(tape, (*pieces)->memory, (*pieces)->bytes);
    }
}

ddp_status_t ddp_tape_scratch(ddp_tape_t *tape, size_t bytes, void **memory_p)
{
    ddp_arena_reset(&tape->scratch);
    return ddp_arena_take(&tape->scratch, bytes, memory_p);
}
