/* Blocks of a network that backward runs again instead of keeping what is inside: Chen, Xu, Zhang, Guestrin
 * 2016, Training deep nets with sublinear memory cost. */
#include "nn/tape_internal.h"

#include "base/error.h"

typedef struct block_node {
    ddp_node_t      head;
    ddp_block_fn_t *fn;
    const void     *ctx;
    ddp_tensor_t   *x;
    ddp_piece_t    *before;         /* pieces of the node that are older than the block: x may lie there */
    uint32_t        dropout_layers; /* before the block */
} block_node_t;

static bool holds(const ddp_piece_t *piece, const ddp_tensor_t *y)
{
    const char *data = (const char *)y->data;

    return data >= piece->memory && data < piece->memory + piece->bytes;
}

/* Run without recording; of the memory that was taken only that of the result stays. */
static ddp_status_t run_silently(ddp_tape_t *tape, ddp_block_fn_t *fn, const void *ctx, ddp_tensor_t *x,
                                 ddp_tensor_t **y_p)
{
    ddp_status_t status = DDP_OK;
    ddp_piece_t *kept   = tape->pieces;
    ddp_piece_t *piece  = NULL;
    const bool   outer  = tape->silent;

    tape->pieces = NULL;
    tape->silent = true;
    status       = fn(ctx, tape, x, y_p);
    tape->silent = outer;
    DDP_TRY(status);
    while ((piece = tape->pieces) != NULL) {
        tape->pieces = piece->older;
        if (holds(piece, *y_p)) {
            piece->older = kept;
            kept         = piece;
        } else {
            ddp_tape_give(tape, piece->memory, piece->bytes);
        }
    }
    tape->pieces = kept;
out:
    return status;
}

/* The second run, this time recorded, and back through it. Without a gradient of the result it is only
 * passed, so that its parameters become ready. */
static ddp_status_t block_backward(ddp_tape_t *tape, ddp_node_t *head)
{
    ddp_status_t        status         = DDP_OK;
    const block_node_t *node           = (const block_node_t *)head;
    ddp_node_t         *last           = tape->last;
    ddp_piece_t        *pieces         = tape->pieces;
    const uint32_t      dropout_layers = tape->dropout_layers;
    const bool          is_second_run  = tape->is_second_run;
    ddp_tensor_t       *y              = NULL;

    for (; head->pieces != node->before; head->pieces = head->pieces->older) { /* the first run's result */
        ddp_tape_give(tape, head->pieces->memory, head->pieces->bytes);
    }
    tape->last           = NULL;
    tape->pieces         = NULL;
    tape->dropout_layers = node->dropout_layers;
    tape->is_second_run  = true;
    DDP_TRY(node->fn(node->ctx, tape, node->x, &y));
    if (y->needs_grad) {
        y->grad       = head->y->grad;
        y->has_grad   = head->y->has_grad;
        head->y->grad = NULL; /* y gives it back */
    }
    DDP_TRY(ddp_tape_run_back(tape, tape->last));
    ddp_tape_give_pieces(tape, &tape->pieces);
out:
    tape->last           = last;
    tape->pieces         = pieces;
    tape->dropout_layers = dropout_layers;
    tape->is_second_run  = is_second_run;
    return status;
}

ddp_status_t ddp_tape_block(ddp_tape_t *tape, ddp_block_fn_t *fn, const void *ctx, ddp_tensor_t *x,
                            ddp_tensor_t **y_p)
{
    ddp_status_t   status         = DDP_OK;
    const bool     is_recorded    = tape->begin.training && !tape->silent;
    const uint32_t dropout_layers = tape->dropout_layers;
    const size_t   n_uses         = tape->n_uses;
    ddp_piece_t   *before         = tape->pieces;
    ddp_tensor_t  *y              = NULL;
    ddp_node_t    *head           = NULL;
    block_node_t  *node           = NULL;

    DDP_REQUIRE(tape->begun, DDP_ERR_STATE, "ddp_tape_begin() comes before any layer");
    if (is_recorded && !tape->recompute) {
        return fn(ctx, tape, x, y_p);
    }
    DDP_TRY(run_silently(tape, fn, ctx, x, &y));
    if (is_recorded && y != x && (x->needs_grad || tape->n_uses > n_uses)) {
        y->needs_grad = true;
        DDP_TRY(ddp_tape_record(tape, block_backward, sizeof(*node), y, DDP_NO_PARAM, DDP_NO_PARAM, &head));
        head->runs_always    = true;
        node                 = (block_node_t *)head;
        node->fn             = fn;
        node->ctx            = ctx;
        node->x              = x;
        node->before         = before;
        node->dropout_layers = dropout_layers;
    }
    *y_p = y;
out:
    return status;
}
