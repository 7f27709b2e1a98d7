/**
 * @file The optimizer on a CUDA device: kernels/optim.h's tree sums and updates, with everything that is
 * known only on the device (weights, whether losses are finite, the norm) read from device memory, so that
 * the host need not wait between the last forward and the update. Private to kernels/cuda and ddp.
 *
 * One CUDA thread an element, blocks of DDP_BLOCK threads: a block of the layout each. All pointers are
 * device memory; arguments are copied before a function returns; nothing allocates or waits. Products and
 * sums of the updates are rounded one by one (__fmul_rn and so on, never an FMA), in the order of
 * kernels/cpu/optim.c: the bits are those of the cpu's `plain` set.
 */
#ifndef DDP_CUDA_OPTIM_H_
#define DDP_CUDA_OPTIM_H_

#include "kernels/layout.h"
#include "kernels/ops.h"
#include "kernels/optim.h"

#ifdef __cplusplus
extern "C" {
#endif

/** No tensor, as an index of the device. */
#define DDP_CUDA_NO_TENSOR UINT32_MAX

/** What never changes about a tensor. */
typedef struct ddp_cuda_tensor {
    uint32_t first_block, blocks; /* in the arena */
    uint32_t is_average;          /* DDP_TENSOR_AVERAGE */
    float    momentum;            /* of an average */
    uint32_t no_decay;
    uint32_t frozen;
} ddp_cuda_tensor_t;

/** The tensors of a reducer, in registration order. */
typedef struct ddp_cuda_tensors {
    const ddp_cuda_tensor_t *tensor; /* [n] */
    size_t                   n;
    const uint32_t          *of_block; /* [total / DDP_BLOCK]: whose a block is */
} ddp_cuda_tensors_t;

/** What a step does to a tensor: from ddp_cuda_optim_prepare(). */
typedef struct ddp_cuda_coef {
    uint32_t update;     /* 0: it and its moments are left alone */
    uint32_t is_first;   /* sgd: the buffer becomes the gradient */
    float    grad_scale; /* g = grad_scale * sum */
    float    keep;       /* adamw: 1 - lr * weight_decay; sgd: weight_decay; average: 1 - momentum */
    float    step_size;  /* adamw: lr / (1 - beta1^step); sgd: lr; average: momentum */
    float    root;       /* adamw: sqrt(1 - beta2^step); average: micro-batches with samples */
} ddp_cuda_coef_t;

/** What all ranks know of a step: one in device memory; copied to the host. */
typedef struct ddp_cuda_sums {
    double   loss, weight, correct, counted;
    double   grad_norm; /* NaN before ddp_cuda_optim_norm() */
    float    lr;
    float    grad_scale; /* 1 / weight, times the clip factor; 1 with average ranks */
    uint32_t finite;     /* loss and weight */
    uint32_t update;     /* the parameters change in this step */
    uint32_t broken;     /* first tensor whose sum is not finite, or DDP_CUDA_NO_TENSOR; from _norm */
    uint32_t request;
} ddp_cuda_sums_t;

/** What the ranks tell each other, once the collectives have added it up. */
typedef struct ddp_cuda_words {
    const ddp_loss_stats_t *leaves; /* [V], the sum over ranks: each leaf is one rank's, zeros the others' */
    const float            *lr;     /* [1] the sum over ranks: zero but on rank 0 */
    const uint32_t         *words;  /* [1 + n tensors] the largest over ranks: request, used flags */
} ddp_cuda_words_t;

/**
 * From the small vector: `sums` and the coefficients of every tensor. A tensor is updated if somebody used it
 * and the step changes anything; its `steps` then grow by one, here, or (two_phase) in _norm.
 */
typedef struct ddp_cuda_prepare_args {
    const ddp_optim_config_t *config; /* host, copied */
    ddp_cuda_tensors_t        tensors;
    ddp_cuda_words_t          in;
    size_t                    micro_batches, present; /* V, and those with samples */
    size_t                    ranks;
    bool                      average_ranks; /* rank_scale is wanted, and grad_scale is 1 */
    bool                      two_phase;
    float                     loss_scale; /* that the gradients were multiplied by; 0: they were not */
    uint64_t                 *steps;      /* [n] updates so far */
    ddp_cuda_coef_t          *coef;       /* [n] */
    float                    *rank_scale; /* [ranks] 1 / (ranks * weight of its micro-batches), or 0 */
    ddp_cuda_sums_t          *sums;
    uint32_t                 *broken; /* [1] becomes DDP_CUDA_NO_TENSOR */
} ddp_cuda_prepare_args_t;
ddp_status_t ddp_cuda_optim_prepare(ddp_stream_t *stream, const ddp_cuda_prepare_args_t *args) DDP_NODISCARD;

/**
 * The norm of the gradient from the sums of squares of its blocks (per tensor in order of blocks, tensors
 * from the last registered to the first: the same bits for any number of ranks). With two_phase then what
 * clip_norm and a sum that is not finite make of `sums` and the coefficients, and steps grow.
 */
typedef struct ddp_cuda_norm_args {
    ddp_cuda_tensors_t tensors;
    const double      *sumsq;      /* [total / DDP_BLOCK] */
    double            *tensor_sum; /* [n] scratch */
    bool               two_phase;  /* else only sums->grad_norm is written, NaN in a step without update */
    float              clip_norm;  /* 0: none */
    uint64_t          *steps;      /* [n] */
    ddp_cuda_coef_t   *coef;       /* [n] */
    ddp_cuda_sums_t   *sums;
} ddp_cuda_norm_args_t;
ddp_status_t ddp_cuda_optim_norm(ddp_stream_t *stream, const ddp_cuda_norm_args_t *args) DDP_NODISCARD;

/** A source of a tree sum: an arena of this rank, or what another rank sent. */
typedef struct ddp_cuda_source {
    uint32_t is_received; /* it lies at received + index * stride, else at arenas + index * stride */
    uint32_t index;
    uint32_t rank; /* whose it is, for its scale */
} ddp_cuda_source_t;

/**
 * to[i] = value of a program (kernels/optim.h) over some blocks.
 * The blocks of an arena begin at `arenas`, those of a received source at `received`.
 */
typedef struct ddp_cuda_tree_args {
    const int32_t           *op; /* [length]; 0: to becomes 0 */
    size_t                   length;
    const ddp_cuda_source_t *source;
    const float             *arenas, *received;
    size_t                   arena_stride, received_stride; /* floats */
    const float *rank_scale; /* multiplies a source as it is read, unless the tensor is an average;
                                NULL: nothing does */
    ddp_cuda_tensors_t tensors;
    size_t             first_block; /* of the arena: whose these blocks are */
    size_t             blocks;      /* 0: nothing to do */
    float             *to;          /* may be one of the arenas */
} ddp_cuda_tree_args_t;
ddp_status_t ddp_cuda_tree_sum(ddp_stream_t *stream, const ddp_cuda_tree_args_t *args) DDP_NODISCARD;

/** A range of blocks to update from their summed gradients. */
typedef struct ddp_cuda_update_args {
    const ddp_optim_config_t *config; /* host, copied */
    ddp_cuda_tensors_t        tensors;
    const ddp_cuda_coef_t    *coef;
    size_t                    first_block, blocks;
    const float              *grad; /* at first_block, as the next two */
    float                    *value;
    float                    *slot[2]; /* NULL where there is none */
    double   *sumsq;  /* [blocks] sums of squares of `grad`, 0 for a tensor not updated; or NULL */
    uint32_t *broken; /* [1] the smallest tensor whose gradient is not finite, if it is updated; or NULL */
} ddp_cuda_update_args_t;
ddp_status_t ddp_cuda_update(ddp_stream_t *stream, const ddp_cuda_update_args_t *args) DDP_NODISCARD;

/** sumsq[b] = sum of squares of block b, in float64, in one order (kernels/cpu/sumsq.h). */
ddp_status_t ddp_cuda_block_sumsq(ddp_stream_t *stream, const float *x, double *sumsq,
                                  size_t blocks) DDP_NODISCARD;

/** to[i] += from[i]: merging two subtrees. */
ddp_status_t ddp_cuda_block_add(ddp_stream_t *stream, float *to, const float *from,
                                size_t blocks) DDP_NODISCARD;

/** x *= rank_scale[rank], but for the blocks of averages: before ranks are summed in the library's order. */
typedef struct ddp_cuda_scale_args {
    ddp_cuda_tensors_t tensors;
    const float       *rank_scale;
    size_t             rank;
    size_t             first_block, blocks;
    float             *x; /* at first_block */
} ddp_cuda_scale_args_t;
ddp_status_t ddp_cuda_scale_blocks(ddp_stream_t *stream, const ddp_cuda_scale_args_t *args) DDP_NODISCARD;

/** To bfloat16 for the wire, round to nearest even. @param [in,out] overflows  [1] grows by the finite values
 * that become infinite */
ddp_status_t ddp_cuda_to_bf16(ddp_stream_t *stream, const float *x, uint16_t *y, size_t blocks,
                              uint64_t *overflows) DDP_NODISCARD;
typedef struct ddp_cuda_from_bf16_args {
    const uint16_t *x;
    float          *y;
    size_t          blocks;
    size_t          first_counted, counted; /* blocks of these */
    uint64_t       *overflows; /* [1] grows by the values in blocks counted that are not finite */
} ddp_cuda_from_bf16_args_t;
/** And back. */
ddp_status_t ddp_cuda_from_bf16(ddp_stream_t *stream, const ddp_cuda_from_bf16_args_t *args) DDP_NODISCARD;

#ifdef __cplusplus
}
#endif

#endif
