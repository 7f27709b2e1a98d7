/**
 * @file The tape: operations record themselves in forward; backward runs them in reverse and says when a
 * gradient is final.
 *
 * Define-by-run: for each micro-batch ddp_tape_begin(), then nn/layers.h calls, then ddp_tape_backward().
 * Activations come from an arena of the tape that is sized by the first micro-batches (or ddp_tape_reserve())
 * and kept: a step allocates nothing after that. Backward gives the memory of a result and of its gradient
 * back as soon as it has passed the operation, and uses it for what follows. A layer's backward submits the
 * input gradient first, then the parameter gradients, then reports "ready"; so a parameter that is reported
 * ready is no longer read in this micro-batch either. Thread: owner of the device. Collective: no.
 */
#ifndef DDP_TAPE_H_
#define DDP_TAPE_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/export.h"
#include "base/status.h"
#include "kernels/device.h"
#include "kernels/layout.h"
#include "kernels/ops.h"
#include "nn/params.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ddp_tape ddp_tape_t;

/** A tensor of the running micro-batch; owned by the tape, valid until the next ddp_tape_begin(); `data` of a
 * layer's result and `grad` only until backward has passed the layer. */
typedef struct ddp_tensor {
    size_t ndim;
    size_t shape[DDP_MAX_DIMS]; /* [n, h, w, c] for images, [rows, width] for matrices */
    size_t count;
    float *data; /* device */
    float *grad; /* device, same shape; NULL before backward reached it or where none is needed */
    bool   needs_grad;
    bool   has_grad; /* something was written to grad: the next contribution is added */
} ddp_tensor_t;

/** Parameter `index` will get no further gradient in this backward, and is not read any more. All work is
 * submitted. */
typedef ddp_status_t ddp_tape_ready_fn_t(void *ctx, size_t index);

typedef struct ddp_tape_params {
    size_t        struct_size;
    ddp_stream_t *stream; /* borrowed: the compute stream */
    ddp_params_t *params; /* borrowed */
} ddp_tape_params_t;
#define DDP_TAPE_PARAMS_INIT                                                                                 \
    {                                                                                                        \
        .struct_size = sizeof(ddp_tape_params_t)                                                             \
    }

DDP_API ddp_status_t ddp_tape_create(const ddp_tape_params_t *params, ddp_tape_t **tape_p) DDP_NODISCARD;
DDP_API void         ddp_tape_destroy(ddp_tape_t **tape_p);
/** Whom to tell in backward; NULL: nobody. */
DDP_API void ddp_tape_set_ready(ddp_tape_t *tape, ddp_tape_ready_fn_t *ready, void *ctx);
/** Whether ddp_tape_block() keeps the inside of blocks for backward (false, at first) or runs them again. */
DDP_API void ddp_tape_set_recompute(ddp_tape_t *tape, bool recompute);
/** How the convolutions of the next forward are computed (kernels/ops.h); at first DDP_CONV_AUTO. */
DDP_API void ddp_tape_set_conv(ddp_tape_t *tape, ddp_conv_algo_t algo);
/** How products of the next forward, and of its backward, are computed; at first DDP_PRECISION_FLOAT32. */
DDP_API void ddp_tape_set_precision(ddp_tape_t *tape, ddp_precision_t precision);

/** What the next forward and its ddp_tape_backward() multiply the loss by, so that small gradients are
 * numbers of half precision (Micikevicius et al. 2018, arXiv 1710.03740): all gradients come out multiplied.
 * Set before forward, as a head's are computed with its loss. At first 1. */
DDP_API void ddp_tape_set_loss_scale(ddp_tape_t *tape, float scale);

/** One micro-batch's circumstances. */
typedef struct ddp_tape_begin {
    bool     training;         /* false: nothing is recorded, dropout is off */
    bool     accumulate_grads; /* parameter gradients are added to what the arena holds (reduction `fast`) */
    uint64_t seed, step;       /* of the random numbers */
    uint64_t first_row;        /* position of the micro-batch's first sample in the global batch */
} ddp_tape_begin_t;

/** Forget the last micro-batch. Its tensors become invalid; memory stays. */
DDP_API ddp_status_t ddp_tape_begin(ddp_tape_t *tape, const ddp_tape_begin_t *begin) DDP_NODISCARD;

/**
 * Host memory for the operations of this micro-batch: on a cpu device `host` itself, on others a copy in the
 * tape's memory, on its way in stream order. A program that is to run with any device leaves `host` as it is
 * until the step ends; of a copy, it may write to it at once. Not blocking, but for copies of several
 * micro-batches before.
 * @param [out] device_p  [bytes], valid until the next begin
 */
DDP_API ddp_status_t ddp_tape_upload(ddp_tape_t *tape, const void *host, size_t bytes,
                                     const void **device_p) DDP_NODISCARD;

/** Wrap `data` (device, borrowed until the next begin) as an input; no gradient. */
DDP_API ddp_status_t ddp_tape_input(ddp_tape_t *tape, const float *data, size_t ndim, const size_t *shape,
                                    ddp_tensor_t **tensor_p) DDP_NODISCARD;

/**
 * As ddp_tape_input(), for values that were computed elsewhere: backward writes the loss's gradient with
 * respect to them to `grad` of the tensor, which stays valid until the next begin. Training only.
 * @return besides: DDP_ERR_STATE: begin said training = false
 */
DDP_API ddp_status_t ddp_tape_variable(ddp_tape_t *tape, const float *data, size_t ndim, const size_t *shape,
                                       ddp_tensor_t **tensor_p) DDP_NODISCARD;

/**
 * A part of a network: layers from `x` to *y_p. It must do the same each time it is called, and read no
 * tensor of the tape but x.
 */
typedef ddp_status_t ddp_block_fn_t(const void *ctx, ddp_tape_t *tape, ddp_tensor_t *x, ddp_tensor_t **y_p);

/**
 * Run `fn` as a block. With ddp_tape_set_recompute() its inside is forgotten after forward, and backward runs
 * it again before it differentiates it: one more forward of the block, memory of one block at a time, the
 * same bits (random numbers, uses of parameters and the order of sums are those of a run without). Blocks may
 * nest. Where nothing is recorded the inside is always forgotten.
 * @param [in] ctx  of fn; borrowed until backward is done
 */
DDP_API ddp_status_t ddp_tape_block(ddp_tape_t *tape, ddp_block_fn_t *fn, const void *ctx, ddp_tensor_t *x,
                                    ddp_tensor_t **y_p) DDP_NODISCARD;

/** used[i] = 1 if forward used parameter i since begin, else 0. @param [out] used  host, [ddp_params_count()]
 */
DDP_API void ddp_tape_used(const ddp_tape_t *tape, uint8_t *used);

/**
 * Differentiate the loss recorded last (ddp_nn_cross_entropy, ddp_nn_mse) with respect to all used
 * parameters.
 *
 * Blocking: no; work is on the stream. Gradients of the SUM over samples. Parameters that were not used are
 * neither written nor reported.
 * @return DDP_ERR_STATE: no loss since begin, begin said training = false, or a second backward since begin;
 * or the status of `ready`
 */
DDP_API ddp_status_t ddp_tape_backward(ddp_tape_t *tape) DDP_NODISCARD;

/**
 * As ddp_tape_backward(), for a forward that ended without a loss: `grad` is the gradient of a loss that was
 * taken elsewhere, with respect to `output`.
 * @param [in] output  a tensor of this micro-batch that needs a gradient
 * @param [in] grad    device, shape of output; borrowed until backward is done, not written
 * @return as ddp_tape_backward(); DDP_ERR_STATE: a loss was taken. DDP_ERR_INVALID_ARG: output is of another
 * tape, or needs no gradient
 */
DDP_API ddp_status_t ddp_tape_backward_from(ddp_tape_t *tape, ddp_tensor_t *output,
                                            const float *grad) DDP_NODISCARD;

/** What a tape has needed since it was created, bytes: the most at a time. */
typedef struct ddp_tape_memory {
    size_t activations; /* and their gradients */
    size_t scratch;     /* of the largest operation */
    size_t nodes;       /* what is recorded; host memory */
} ddp_tape_memory_t;
DDP_API ddp_tape_memory_t ddp_tape_memory(const ddp_tape_t *tape);
/** What it has taken for that: its arenas in whole chunks, the unused parts too. */
DDP_API ddp_tape_memory_t ddp_tape_held(const ddp_tape_t *tape);
/**
 * Have memory for what another tape needed (one of a dry device, say) before the first micro-batch: exactly
 * so much, in one piece.
 */
DDP_API ddp_status_t ddp_tape_reserve(ddp_tape_t *tape, const ddp_tape_memory_t *memory) DDP_NODISCARD;

/** Bytes of activations and their gradients: the most that the last micro-batch had at a time. */
DDP_API size_t ddp_tape_activation_bytes(const ddp_tape_t *tape);
/** Allocations made since create (constant after the first step). */
DDP_API size_t ddp_tape_allocations(const ddp_tape_t *tape);

#ifdef __cplusplus
}
#endif

#endif
