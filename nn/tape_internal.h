/**
 * @file Inside of the tape, for layers: memory, tensors, nodes, and where gradients go.
 *
 * A layer checks its shapes, makes its result with ddp_tape_new_tensor(), submits its operation, and calls
 * ddp_tape_record(). Its backward function is called only if a gradient reached the result; it submits the
 * input gradient first and then those of its parameters. Counting uses and reporting "ready" is the tape's.
 */
#ifndef DDP_TAPE_INTERNAL_H_
#define DDP_TAPE_INTERNAL_H_

#include "base/allocator.h"
#include "nn/layers.h"
#include "nn/tape.h"

#define DDP_ARENA_MAX_CHUNKS  64
#define DDP_ARENA_MAX_HOLES   256
#define DDP_ARENA_FIRST_BYTES ((size_t)1 << 20)

/** Free bytes of a chunk. */
typedef struct ddp_arena_hole {
    size_t chunk, offset, bytes;
} ddp_arena_hole_t;

/**
 * Memory that is taken piece by piece, given back piece by piece, and forgotten all at once. A piece goes
 * into the first hole that has room, so that the same sequence of calls gets the same places again. Where
 * none has room a chunk is added; chunks stay until the arena is freed.
 */
typedef struct ddp_arena {
    const ddp_allocator_t *allocator; /* borrowed */
    const char            *label;     /* static */
    struct {
        char  *memory; /* owned */
        size_t bytes;
        size_t used; /* behind the last byte that was taken since the reset */
    } chunk[DDP_ARENA_MAX_CHUNKS];
    size_t           n_chunks; /* allocations made */
    size_t           total_bytes;
    ddp_arena_hole_t hole[DDP_ARENA_MAX_HOLES]; /* by chunk and offset; neighbours are joined */
    size_t           n_holes;
    size_t           most_bytes; /* ddp_arena_used() of the resets before, the largest */
} ddp_arena_t;

void ddp_arena_init(ddp_arena_t *arena, const ddp_allocator_t *allocator, const char *label);
void ddp_arena_free(ddp_arena_t *arena);
void ddp_arena_reset(ddp_arena_t *arena);
/** Have `bytes` in all before they are needed: one chunk instead of several. */
ddp_status_t ddp_arena_reserve(ddp_arena_t *arena, size_t bytes) DDP_NODISCARD;
/** DDP_ALIGNMENT-aligned, not zeroed, never NULL, valid until it is given back or the reset. */
ddp_status_t ddp_arena_take(ddp_arena_t *arena, size_t bytes, void **memory_p) DDP_NODISCARD;
/** What ddp_arena_take() gave for so many bytes since the last reset. */
void ddp_arena_give(ddp_arena_t *arena, const void *memory, size_t bytes);
/** Does `memory` lie in it? */
bool ddp_arena_has(const ddp_arena_t *arena, const void *memory);
/** The most bytes that were out at a time since the reset, holes between them included. */
size_t ddp_arena_used(const ddp_arena_t *arena);
/** The same since the arena was made. */
size_t ddp_arena_most(const ddp_arena_t *arena);

typedef struct ddp_node ddp_node_t;
typedef ddp_status_t    ddp_node_backward_fn_t(ddp_tape_t *tape, ddp_node_t *node);

/** Activation memory that was taken in forward. */
typedef struct ddp_piece {
    struct ddp_piece *older;
    char             *memory;
    size_t            bytes;
} ddp_piece_t;

/** One recorded operation; a layer's own struct begins with it. */
struct ddp_node {
    ddp_node_t             *previous; /* recorded before this one */
    ddp_node_backward_fn_t *backward;
    ddp_tensor_t           *y;
    size_t                  weight, bias; /* parameters it uses, or DDP_NO_PARAM */
    ddp_piece_t            *pieces;       /* taken since the node before: goes back once this one is passed */
    bool                    runs_always;  /* also where no gradient reached y: it holds nodes of its own */
};

/** Uploads that may be on their way at a time. */
#define DDP_TAPE_STAGES 8

/** Page-locked memory that an upload goes through: written again only after its copy ran. */
typedef struct ddp_tape_stage {
    void        *memory; /* owned */
    size_t       bytes;
    ddp_event_t *copied; /* owned */
} ddp_tape_stage_t;

/** Uploads on their way, one piece of memory after the other. */
typedef struct ddp_tape_ring {
    ddp_tape_stage_t stages[DDP_TAPE_STAGES];
    size_t           next;
} ddp_tape_ring_t;

struct ddp_tape {
    ddp_stream_t        *stream; /* borrowed */
    ddp_params_t        *params; /* borrowed */
    ddp_tape_ready_fn_t *ready;
    void                *ready_ctx;
    ddp_arena_t          activations; /* device: activations and their gradients */
    ddp_arena_t          scratch;     /* device: one operation's at a time; stream order keeps them apart */
    ddp_arena_t          host;        /* nodes and tensors */
    ddp_conv_algo_t      conv;
    ddp_precision_t      precision;
    float                loss_scale;
    bool                 recompute; /* of blocks */
    ddp_tape_begin_t     begin;
    bool                 begun;
    bool                 silent;        /* runs what a block will run again: nothing is recorded */
    bool                 is_second_run; /* of a block, in backward */
    ddp_node_t          *last;
    ddp_piece_t         *pieces;         /* taken since `last` was recorded */
    ddp_node_t          *running;        /* whose backward function runs */
    ddp_tensor_t        *loss_input;     /* what the loss was taken of; NULL: no loss yet */
    float               *loss_grad;      /* the gradient of the loss with respect to it */
    bool                 is_loss_scaled; /* that has loss_scale in it already */
    bool                 went_back;      /* since begin */
    uint32_t             dropout_layers;
    size_t               n_params;
    uint32_t            *uses;    /* owned, [n_params]: in this forward */
    size_t               n_uses;  /* of any trained parameter, second runs too, since create */
    uint32_t            *left;    /* owned, [n_params]: uses that backward has still to pass */
    uint8_t             *written; /* owned, [n_params]: backward wrote the gradient */
    ddp_tape_ring_t      samples;
    ddp_tape_ring_t      places;
    ddp_rng_place_t     *place; /* owned, device: of the running micro-batch; NULL: keys hold it themselves */
    size_t               stage_allocations;
};

/** tape_upload.c. Where streams make graphs of their work, that is to be the same for all micro-batches. */
ddp_status_t ddp_tape_make_place(ddp_tape_t *tape) DDP_NODISCARD;
/** begin is there, in order of the stream. */
ddp_status_t ddp_tape_send_place(ddp_tape_t *tape) DDP_NODISCARD;
/** The copies have run. */
void ddp_tape_free_stages(ddp_tape_t *tape);
/** Where the micro-batch begins in the global batch, for an operation that has a key too. */
uint64_t ddp_tape_first_row(const ddp_tape_t *tape);

/** Check a parameter handle. @return its description in *desc_p; DDP_ERR_INVALID_ARG, DDP_ERR_STATE */
ddp_status_t ddp_tape_param(const ddp_tape_t *tape, const char *layer, size_t index,
                            const ddp_tensor_desc_t **desc_p) DDP_NODISCARD;

/** A result with memory. */
ddp_status_t ddp_tape_new_tensor(ddp_tape_t *tape, size_t ndim, const size_t *shape, bool needs_grad,
                                 ddp_tensor_t **tensor_p) DDP_NODISCARD;
/** A result that lies in `data`. */
ddp_status_t ddp_tape_new_view(ddp_tape_t *tape, float *data, size_t ndim, const size_t *shape,
                               bool needs_grad, ddp_tensor_t **tensor_p) DDP_NODISCARD;
/** Device memory for the node that is recorded next: valid until backward has passed it. */
ddp_status_t ddp_tape_take(ddp_tape_t *tape, size_t bytes, void **memory_p) DDP_NODISCARD;
/** Device memory until the next begin. */
ddp_status_t ddp_tape_keep(ddp_tape_t *tape, size_t bytes, void **memory_p) DDP_NODISCARD;
/** Device memory for the operation that is submitted next. */
ddp_status_t ddp_tape_scratch(ddp_tape_t *tape, size_t bytes, void **memory_p) DDP_NODISCARD;

/**
 * Count the uses of the parameters and, if y needs a gradient, append a node.
 * @param [in]  node_bytes  size of the layer's struct
 * @param [out] node_p      zeroed but for its head; NULL where nothing is recorded
 */
ddp_status_t ddp_tape_record(ddp_tape_t *tape, ddp_node_backward_fn_t *backward, size_t node_bytes,
                             ddp_tensor_t *y, size_t weight, size_t bias, ddp_node_t **node_p) DDP_NODISCARD;
/**
 * Is this the second run of a block (ddp_tape_block()), in backward? What a layer adds to something in
 * forward (use counts, running averages) it added in the first run.
 */
bool ddp_tape_is_second_run(const ddp_tape_t *tape);
/** Memory for the gradient of `x`, for layers that take it in forward: x's as soon as backward begins. */
ddp_status_t ddp_tape_new_grad(ddp_tape_t *tape, const ddp_tensor_t *x, float **grad_p) DDP_NODISCARD;
/** Random numbers of the next dropout. Every one takes its key, also where it does nothing: the numbers of
 * later layers stay theirs. */
ddp_rng_key_t ddp_tape_next_key(ddp_tape_t *tape);
/** This is the loss; `grad`, of ddp_tape_new_grad(), is its gradient with respect to `input`, NULL if that
 * needs none. */
void ddp_tape_set_loss(ddp_tape_t *tape, ddp_tensor_t *input, float *grad);

/** Where a backward function writes the gradient of its input; it must write, adding if *accumulate_p. */
ddp_status_t ddp_tape_grad_target(ddp_tape_t *tape, ddp_tensor_t *x, float **grad_p,
                                  bool *accumulate_p) DDP_NODISCARD;
/** Add `grad` to x's gradient. `may_take`: it is the gradient of the running node's y, and nobody else uses
 * it any more, so that x may keep it instead of a copy. */
ddp_status_t ddp_tape_give_grad(ddp_tape_t *tape, ddp_tensor_t *x, float *grad, bool may_take) DDP_NODISCARD;
/** Has the parameter a gradient? No: it is DDP_NO_PARAM or frozen. */
bool ddp_tape_is_trained(const ddp_tape_t *tape, size_t index);
/** Does what is made of `x` (NULL: nothing) and two parameters need a gradient? Not below a frozen part. */
bool ddp_tape_needs_grad(const ddp_tape_t *tape, const ddp_tensor_t *x, size_t weight, size_t bias);
/** As ddp_tape_grad_target() for a parameter: where its gradient is written; NULL if it is not trained. */
float *ddp_tape_param_grad(ddp_tape_t *tape, size_t index, bool *accumulate_p);

/** Differentiate from the node `last` back to the first, giving back the memory of what lies behind. */
ddp_status_t ddp_tape_run_back(ddp_tape_t *tape, ddp_node_t *last) DDP_NODISCARD;
/** Hand memory of ddp_tape_keep() on to whatever is submitted next. */
void ddp_tape_give(ddp_tape_t *tape, void *memory, size_t bytes);
/** Give back a node's pieces. */
void ddp_tape_give_pieces(ddp_tape_t *tape, ddp_piece_t **pieces);

/**
 * Forward: this micro-batch has a statistic for running average `index`; once for each micro-batch. The tape
 * reports it ready when backward begins.
 * @param [out] statistic_p   where it is written, in stream order; NULL unless training, and in the second
 * run of a block
 * @param [out] accumulate_p  add to what is there (reduction `fast`)
 * @return DDP_ERR_INVALID_ARG: not a running average. DDP_ERR_STATE: no memory is bound, or a second time
 */
ddp_status_t ddp_tape_average(ddp_tape_t *tape, const char *layer, size_t index, float **statistic_p,
                              bool *accumulate_p) DDP_NODISCARD;

#define DDP_SHAPE_TEXT_SIZE 96
/** "[64, 28, 28, 1]" into text[DDP_SHAPE_TEXT_SIZE]; returns text. */
const char *ddp_shape_text(size_t ndim, const size_t *shape, char *text);
/** Product of all dimensions but the last; 1 for one dimension. */
size_t ddp_tensor_rows(const ddp_tensor_t *tensor);
/** The last dimension. */
size_t ddp_tensor_width(const ddp_tensor_t *tensor);

#endif
