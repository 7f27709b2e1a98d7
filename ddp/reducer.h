/**
 * @file The reducer: sums gradients over micro-batches and ranks, bucket by bucket, while backward still
 * runs, and updates the parameters. It owns the flat arenas (parameters, moments, gradients) and knows
 * tensors and streams, not models.
 *
 * The global batch is cut into V micro-batches 0 .. V-1 (ddp_partition()), dealt to ranks in contiguous
 * ranges. The gradient is the sum over micro-batches in one fixed balanced binary tree (kernels/optim.h), so
 * it does not depend on the number of ranks. One step, on every rank:
 *
 *     ddp_reducer_step_begin(r, &step);       waits until the parameters of the last step are there
 *     for each micro-batch v of this rank (ddp_reducer_range()) that has samples:
 *         ddp_reducer_micro_begin(r, v, &grads, &accumulate);       where to write the gradients
 *         ... forward ...
 *         ddp_reducer_forward_done(r, stats, used);                 loss and weight sums, used flags
 *         ... backward: ddp_reducer_ready(r, i) for each used tensor i, when its gradient is final
 *             and it is no longer read ...
 *         ddp_reducer_micro_end(r);
 *     ddp_reducer_step_end(r, &result);       waits for this rank's own slices and the sums
 *
 * Running averages (DDP_TENSOR_AVERAGE) go the same way: what a micro-batch writes to their place in the
 * arena is its own statistic, reported by _ready like a gradient. The sum is divided by the number of
 * micro-batches that had samples, also with average RANKS. One that nobody used in a step is left alone, and
 * so are all of them in a step that is skipped.
 *
 * Thread: owner of the device. Collective: the sequence step_begin .. step_end, same number of steps on every
 * rank.
 */
#ifndef DDP_REDUCER_H_
#define DDP_REDUCER_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/export.h"
#include "base/status.h"
#include "ddp/comm.h"
#include "ddp/link.h"
#include "kernels/device.h"
#include "kernels/layout.h"
#include "kernels/ops.h"
#include "kernels/optim.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ddp_reducer ddp_reducer_t;

/** EXACT: the fixed tree, bits do not depend on the ranks. FAST: accumulate in place, then rank by rank, or
 * in NCCL's order. AUTO: fast with NCCL, else exact. */
typedef enum ddp_reduction {
    DDP_REDUCTION_EXACT = 0,
    DDP_REDUCTION_FAST  = 1,
    DDP_REDUCTION_AUTO  = 2
} ddp_reduction_t;
/**
 * Who sums and updates. HOST: the ranks' processors, in memory that a machine's ranks share, and MPI between
 * machines. NCCL: the GPUs, for a compute stream of a CUDA device. AUTO: NCCL for such a stream if all ranks
 * can load it, else host.
 */
typedef enum ddp_reducer_backend {
    DDP_REDUCER_AUTO = 0,
    DDP_REDUCER_HOST = 1,
    DDP_REDUCER_NCCL = 2
} ddp_reducer_backend_t;
/** What gradients are on their way between ranks, and on the host path between machines. BF16 halves the
 * bytes and rounds at every hop, with DIRECT on the host twice: so the bits depend on who sums, and reduction
 * FAST is asked for. Sums are float32. */
typedef enum ddp_wire_type { DDP_WIRE_FLOAT32 = 0, DDP_WIRE_BF16 = 1 } ddp_wire_type_t;
/** SAMPLES: divide the sum by the global weight. RANKS: PyTorch DDP's mean over ranks of local means. */
typedef enum ddp_average { DDP_AVERAGE_SAMPLES = 0, DDP_AVERAGE_RANKS = 1 } ddp_average_t;
/**
 * A loss, gradient or running average that is not finite. SKIP: the step changes nothing; updates then start
 * after the last bucket. STOP: an error on all ranks that names the first one in registration order. The
 * loss, and with clip_norm the gradients too, fail step_end, before anything is written. Else updates have
 * begun by then: _finish and the next step_begin fail, and what the step left in the arenas is of no use.
 */
typedef enum ddp_nonfinite { DDP_NONFINITE_STOP = 0, DDP_NONFINITE_SKIP = 1 } ddp_nonfinite_t;

/**
 * Dynamic loss scaling (Micikevicius et al. 2018, arXiv 1710.03740): gradients are those of the loss times
 * `scale`, and the update divides by it. A step whose sums are not finite is skipped on all ranks, and halves
 * the scale, down to 1; after that it is an error, or skipped, as ddp_nonfinite_t says. So many steps in a
 * row that were finite double it. The same on all ranks, with no message: it follows from what all know.
 */
typedef struct ddp_loss_scale {
    float    scale; /* a power of two, 1 .. 2^24; DDP_LOSS_SCALE_FIRST at first */
    uint32_t steps; /* that were finite, since it was changed */
} ddp_loss_scale_t;
#define DDP_LOSS_SCALE_FIRST 65536.0F
#define DDP_LOSS_SCALE_EVERY 2000 /* PyTorch's GradScaler has both */

typedef struct ddp_reducer_params {
    size_t        struct_size;
    ddp_comm_t   *comm;    /* borrowed, outlives the reducer */
    ddp_stream_t *compute; /* borrowed: the stream that writes gradients and reads parameters */
    const ddp_tensor_desc_t
          *tensors; /* laid out (ddp_layout_make), in registration order; copied, names too */
    size_t n_tensors;
    size_t micro_batches;     /* V >= number of ranks */
    size_t bucket_cap_bytes;  /* a bucket closes before it passes this; one larger tensor is a bucket alone */
    size_t tail_bucket_bytes; /* cap of the last bucket (ready last); 0: no special tail */
    ddp_reduction_t    reduction;
    ddp_average_t      average;
    ddp_nonfinite_t    nonfinite;
    ddp_optim_config_t optim;
    float              clip_norm; /* > 0: clip by global norm; the update then starts after the last bucket */
    uint64_t
        checksum_every; /* steps between checks that all copies of the parameters are the same; 0: never */
    ddp_reducer_backend_t backend;
    ddp_wire_type_t       wire;
    ddp_exchange_kind_t   exchange; /* host, between machines; EXACT takes DIRECT alone */
    bool shard; /* nccl: each rank holds and updates its share of the moments (ZeRO-1, Rajbhandari et al.
                   2020, arXiv 1910.02054), then the parameters are gathered; the same bits. The host path
                   shares them on each machine anyway */
    int      max_ctas; /* nccl: multiprocessors it may take from the kernels, 1 .. 32; 0: its own choice */
    bool     share_devices;    /* nccl: ranks may have the same GPU */
    uint32_t loss_scale_every; /* 0: gradients are those of the loss. Else ddp_loss_scale_t: steps until it
                                  doubles. Updates then start after the last bucket */
} ddp_reducer_params_t;
#define DDP_REDUCER_PARAMS_INIT                                                                              \
    {                                                                                                        \
        .struct_size = sizeof(ddp_reducer_params_t), .micro_batches = 1,                                     \
        .bucket_cap_bytes = (size_t)25 << 20, .tail_bucket_bytes = (size_t)1 << 20,                          \
        .optim = DDP_OPTIM_CONFIG_ADAMW                                                                      \
    }

/** A bucket: whole tensors, a range of the flat layout. */
typedef struct ddp_bucket_info {
    size_t              offset, count; /* floats, padding included */
    size_t              n_tensors;
    ddp_exchange_kind_t exchange; /* between machines; AUTO: not yet known, or not needed */
} ddp_bucket_info_t;

/** What a reducer will need, computed without one: for --dry-run. Local, not collective. */
typedef struct ddp_reducer_plan {
    size_t n_buckets;
    size_t arenas;       /* gradient arenas of this rank: its open subtrees and partial sums */
    size_t shared_bytes; /* on its machine: the next three, and flags */
    size_t parameter_bytes, moment_bytes;
    size_t gradient_bytes; /* arenas of all ranks of the machine */
    size_t device_bytes;   /* of this rank on its GPU, if it has one: parameters, gradients and what else the
                              backend keeps there */
    size_t wire_bytes; /* of this rank: buffers for what other machines send; nccl: other ranks, on the GPU */
} ddp_reducer_plan_t;
/**
 * @param [in]  size          ranks
 * @param [in]  rank_of_plan  rank whose arenas are counted
 * @param [in]  params        `compute` may be NULL; `comm` too, or of another size: all ranks on one machine
 * @param [out] buckets       [capacity] the first ones
 * @return DDP_ERR_INVALID_ARG: no tensors. DDP_ERR_NO_MEMORY: also when it is more than an address space
 * holds
 */
DDP_API ddp_status_t ddp_reducer_plan(const ddp_reducer_params_t *params, int size, int rank_of_plan,
                                      ddp_reducer_plan_t *plan_p, ddp_bucket_info_t *buckets,
                                      size_t capacity) DDP_NODISCARD;

/** Collective. Checks on all ranks that tensors and options are equal. Values and moments start at 0. */
DDP_API ddp_status_t ddp_reducer_create(const ddp_reducer_params_t *params,
                                        ddp_reducer_t             **reducer_p) DDP_NODISCARD;
DDP_API void         ddp_reducer_destroy(ddp_reducer_t **reducer_p);

/**
 * The flat arenas, [total floats], in the memory of the compute stream's device: parameters, and moment
 * `slot` (NULL: there is none, or this rank does not hold all of it). For what runs on the device. Host code
 * that is to run with any device reads and writes through the functions that follow.
 */
DDP_API float *ddp_reducer_values(ddp_reducer_t *reducer);
DDP_API float *ddp_reducer_slot(ddp_reducer_t *reducer, size_t slot);

/** Arrays of a reducer are its parameters and, from 0 on, its moments. */
#define DDP_REDUCER_VALUES (-1)
/** Moments of each parameter, 0 .. 2. */
DDP_API size_t ddp_reducer_slots(const ddp_reducer_t *reducer);

/** Every rank has it, or shares it with its machine. */
#define DDP_REDUCER_EVERYBODY (-1)
/**
 * Who has element `offset` of an array. Local; all ranks get the same answer, and it stays.
 * @param [out] count_p  elements from there on, >= 1, that are held alike; up to the end of the arena
 * @return a rank, or DDP_REDUCER_EVERYBODY
 */
DDP_API int ddp_reducer_holder(const ddp_reducer_t *reducer, int array, size_t offset, size_t *count_p);
/** Does `rank` write with ddp_reducer_write()? Rank 0 does, and whoever has memory of its own: of ranks that
 * share it the first. Local; all ranks get the same answer. */
DDP_API bool ddp_reducer_is_writer(const ddp_reducer_t *reducer, int rank);

/**
 * Elements of an array to host memory. Local, blocking; between steps, after ddp_reducer_finish().
 * @param [in]  array  DDP_REDUCER_VALUES, or a moment
 * @param [out] to     host, [count]
 * @return DDP_ERR_INVALID_ARG: no such array, or beyond its end. DDP_ERR_STATE: this rank does not hold it
 */
DDP_API ddp_status_t ddp_reducer_read(ddp_reducer_t *reducer, int array, size_t offset, size_t count,
                                      float *to) DDP_NODISCARD;
/**
 * The other way. Each writer gives the same elements and writes those of them that it holds; other ranks may
 * call it, and nothing happens. They are everybody's after _publish or _restore. Local, blocking.
 * @param [in] from  host, [count]
 */
DDP_API ddp_status_t ddp_reducer_write(ddp_reducer_t *reducer, int array, size_t offset, size_t count,
                                       const float *from) DDP_NODISCARD;
/** Updates applied to tensor i so far (AdamW's t; of a running average, PyTorch's num_batches_tracked). */
DDP_API uint64_t ddp_reducer_tensor_steps(const ddp_reducer_t *reducer, size_t i);
/** Collective: what the writers wrote (initial values) is now everybody's; between steps only. */
DDP_API ddp_status_t ddp_reducer_publish(ddp_reducer_t *reducer) DDP_NODISCARD;

/**
 * Go on from a checkpoint: what the writers wrote to values and moments is everybody's, and steps count on
 * from here. Collective, before the first step.
 * @param [in] step   steps done
 * @param [in] steps  [n_tensors] updates applied to each tensor; the same on all ranks
 */
DDP_API ddp_status_t ddp_reducer_restore(ddp_reducer_t *reducer, uint64_t step,
                                         const uint64_t *steps) DDP_NODISCARD;

/** What the next step's loss is to be multiplied by; scale 1 without loss scaling. Local. */
DDP_API ddp_loss_scale_t ddp_reducer_loss_scale(const ddp_reducer_t *reducer);
/** Go on from a checkpoint's; ignored without loss scaling. Local, the same on all ranks, between steps.
 * @return DDP_ERR_INVALID_ARG: no power of two from 1 to 2^24 */
DDP_API ddp_status_t ddp_reducer_set_loss_scale(ddp_reducer_t          *reducer,
                                                const ddp_loss_scale_t *scale) DDP_NODISCARD;

DDP_API size_t ddp_reducer_buckets(const ddp_reducer_t *reducer, ddp_bucket_info_t *buckets, size_t capacity);
/** The link that exchanges between machines were chosen by. Local. @return false: there was no choice, and
 * nothing is written */
DDP_API bool ddp_reducer_link(const ddp_reducer_t *reducer, ddp_link_t *link_p);
/** Micro-batches of this rank: first .. first + count - 1. */
DDP_API void ddp_reducer_range(const ddp_reducer_t *reducer, size_t *first_p, size_t *count_p);

typedef struct ddp_step {
    float  lr;      /* rank 0's is taken on all ranks */
    size_t samples; /* of the global batch; ddp_partition(samples, V, v) says how many micro-batch v has */
    const size_t *part_samples; /* NULL, or [V]: explicit sizes instead (0 = absent, only at the end) */
    bool          grad_norm;    /* keep what ddp_reducer_grad_norm() needs; the same on all ranks */
    uint32_t      request;      /* what this rank wants of all, as to stop; each rank its own, 0: nothing */
} ddp_step_t;
DDP_API ddp_status_t ddp_reducer_step_begin(ddp_reducer_t *reducer, const ddp_step_t *step) DDP_NODISCARD;
/** @param [out] grads_p  flat arena, [total floats]. @param [out] accumulate_p  true: add to it, false:
 * replace */
DDP_API ddp_status_t ddp_reducer_micro_begin(ddp_reducer_t *reducer, size_t micro_batch, float **grads_p,
                                             bool *accumulate_p) DDP_NODISCARD;
/**
 * @param [in] stats  device, read in order of the compute stream
 * @param [in] used   host, [n_tensors], copied. Running averages that this micro-batch has a statistic for
 * are used as well
 * @return DDP_ERR_STATE: not after micro_begin, or a frozen tensor is used
 */
DDP_API ddp_status_t ddp_reducer_forward_done(ddp_reducer_t *reducer, const ddp_loss_stats_t *stats,
                                              const uint8_t *used) DDP_NODISCARD;
/** DDP_ERR_STATE: not declared used, or ready twice. */
DDP_API ddp_status_t ddp_reducer_ready(ddp_reducer_t *reducer, size_t tensor) DDP_NODISCARD;
/** DDP_ERR_STATE names the used tensors that never became ready. */
DDP_API ddp_status_t ddp_reducer_micro_end(ddp_reducer_t *reducer) DDP_NODISCARD;

typedef struct ddp_step_result {
    double loss;   /* sum of losses / sum of weights over the global batch */
    double weight; /* sum of weights */
    double correct, counted;
    double grad_norm; /* of the averaged gradient before clipping; NaN unless clip_norm or nonfinite skip is
                         on; see also ddp_reducer_grad_norm() */
    bool        skipped;      /* nothing changed: not finite (nonfinite: skip), or the weights sum to 0 */
    const char *not_finite;   /* why it was skipped: "loss", the name of a tensor, or NULL; borrowed */
    uint32_t    request;      /* the largest of the ranks' requests for this step, the same on all ranks; it
                                 travels with the sums: no message, nothing to wait for */
    int64_t comm_ns;          /* time this rank spent in reduction and update work */
    int64_t exposed_comm_ns;  /* from the end of its backward to the end of its part of the step: what
                                 backward did not hide of waiting, reducing and updating */
    int64_t  exposed_work_ns; /* what of comm_ns fell into that time: the rest of it is waiting */
    int      slowest_rank;    /* of this machine: whose gradients were the last to be final */
    int64_t  spread_ns;       /* by how much after the first rank's */
    float    loss_scale;      /* that this step had; 1 without loss scaling */
    uint64_t wire_overflows;  /* wire bf16, of all ranks, in the step before: numbers that were finite and too
                                 large for it, and sums that came back not finite */
} ddp_step_result_t;
/**
 * DDP_ERR_NOT_FINITE on every rank: see ddp_nonfinite_t. DDP_ERR_REMOTE, DDP_ERR_TIMEOUT: the line names the
 * rank, host and bucket; the reducer can only be destroyed. On success own slices are written; all are after
 * the next step_begin or _finish.
 */
DDP_API ddp_status_t ddp_reducer_step_end(ddp_reducer_t *reducer, ddp_step_result_t *result_p) DDP_NODISCARD;
/** Collective: wait until all ranks' slices are written; before evaluation, checkpoints and reading values.
 * DDP_ERR_NOT_FINITE: see ddp_nonfinite_t. */
DDP_API ddp_status_t ddp_reducer_finish(ddp_reducer_t *reducer) DDP_NODISCARD;

/**
 * Norm of the last step's averaged gradient, before clipping, if its ddp_step_t asked for it. Not collective:
 * any rank may call it between step_end and the next step_begin. Waits as _finish does.
 * @param [out] norm_p  the same bits for any number of ranks; NaN where it was not asked for, or in a step
 * that was skipped
 */
DDP_API ddp_status_t ddp_reducer_grad_norm(ddp_reducer_t *reducer, double *norm_p) DDP_NODISCARD;

/** What happened to a bucket in the last step, on this rank, from the end of its step_begin. */
typedef struct ddp_bucket_times {
    int64_t ready_ns;    /* this rank's gradients were final */
    int64_t launched_ns; /* those of the machine's ranks were: the reduction of this rank's slice began */
    int64_t done_ns;     /* its slice was summed over all machines, and updated unless clip_norm or nonfinite
                            skip make updates wait for all buckets */
} ddp_bucket_times_t;
/** Local; after step_end. With NCCL waits for the end of the step. @return the number of buckets; at most
 * `capacity` are written */
DDP_API size_t ddp_reducer_bucket_times(ddp_reducer_t *reducer, ddp_bucket_times_t *times, size_t capacity);

/**
 * Bytes that this rank takes from each rank in a step with as many micro-batches as the last one: from the
 * gradients of ranks of its machine, which it reads in shared memory; from others partial sums and totals,
 * over MPI. Without running averages' and losses' few. Local; after a step.
 * @param [out] from  [number of ranks]; its own is 0
 */
DDP_API void ddp_reducer_traffic(const ddp_reducer_t *reducer, uint64_t *from);

/** xxh128 of all parameters in name order (names and element bytes, no padding), hex in text[33]. After
 * _finish. Local, blocking. @return DDP_ERR_NO_MEMORY, or what a device says that cannot be read */
DDP_API ddp_status_t ddp_reducer_weights_hash(ddp_reducer_t *reducer, char text[33]) DDP_NODISCARD;
/** Collective: DDP_ERR_MISMATCH names the machine, or rank, whose parameters differ. Called every
 * `checksum_every` steps too. */
DDP_API ddp_status_t ddp_reducer_check_replicas(ddp_reducer_t *reducer) DDP_NODISCARD;
/**
 * With reduction exact: whether the ranks' devices compute in the same way what they have computed so far
 * (ddp_device_choices()), since the bits of the sum do not depend on the ranks only if it does not matter
 * which of them computes what. Collective; nothing to do with fast. Between steps.
 * @return DDP_ERR_MISMATCH on every rank: names two ranks, the product, and both algorithms
 */
DDP_API ddp_status_t ddp_reducer_check_choices(ddp_reducer_t *reducer) DDP_NODISCARD;

#ifdef __cplusplus
}
#endif

#endif
