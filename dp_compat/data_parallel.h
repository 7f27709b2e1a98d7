/**
 * @file DataParallel: one process trains a model on several devices, a replica and a thread for each, with
 * the meaning of torch.nn.DataParallel, so that it can be compared with ddp/trainer.h, whose calls it
 * mirrors.
 *
 * The batch of a step is cut into V micro-batches (ddp_partition()). With V devices, the usual case, each
 * gets one; with fewer devices (K) the step takes several rounds of K, as gradient accumulation does; with
 * fewer samples than devices, the last devices get nothing. One step, device 0 being device_ids[0]:
 *
 *     replicate    parameters and running averages, from device 0 to the other devices
 *     in each round, for the micro-batch of each device:
 *       scatter    its samples, from where `fetch` has them to the device
 *       forward    all devices at once, each in its thread
 *       gather     outputs, to output_device
 *       loss       and its gradient, there; the gradient goes back to the devices
 *       backward   all devices at once
 *       reduce     gradients to device 0, added in the reducer's tree, micro-batch by micro-batch
 *     optimizer    on device 0
 *
 * Both ways differentiate the summed loss and divide once by the global weight, so a step gives the bits that
 * DDP with the same V gives, and that one device gives, for any number of devices. But for one thing, the
 * running averages of batch normalisation. With DDP, and with one device, they take the mean over all
 * micro-batches. With several devices only device 0's buffers survive, as in torch.nn.DataParallel: value =
 * (1 - momentum) value + momentum (mean of the statistics of device 0's micro-batches), which are the first
 * of each round; with as many devices as micro-batches that is the first micro-batch alone. A step that is
 * skipped leaves them, and the reducer does not count their updates.
 *
 * On a CPU a device is virtual: one core (id modulo the cores this process may use), memory of its own that
 * is counted, and copies between devices that are counted as well. Thread: the one that created it, which
 * also works as device 0. Collective: no. No MPI.
 */
#ifndef DDP_DATA_PARALLEL_H_
#define DDP_DATA_PARALLEL_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/export.h"
#include "base/status.h"
#include "ddp/trainer.h"
#include "nn/tape.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DDP_DP_MAX_DEVICES 64
#define DDP_DP_MAX_INPUTS  4

typedef struct ddp_dp ddp_dp_t;

/** A tensor of a micro-batch, cut along dimension 0: `n` rows. */
typedef struct ddp_dp_input {
    const void *data;      /* host, or device 0; valid until the step ends */
    size_t      row_bytes; /* of one sample */
    bool        is_target; /* only `loss` reads it: not scattered when the loss is on output_device */
} ddp_dp_input_t;

/** Say where the tensors of a micro-batch are. On the caller's thread, once for each micro-batch, in order;
 * those of a round before its forward.
 * @param [out] inputs  [n_inputs] */
typedef ddp_status_t ddp_dp_fetch_fn_t(void *ctx, const ddp_micro_t *micro, ddp_dp_input_t *inputs);

/**
 * A replica's forward, on the thread of its device: several run at once, so it only reads what `ctx` has.
 * @param [in]  tape      of the replica, its parameters bound to the replica's
 * @param [in]  inputs    [n_inputs] on the device; OUTSIDE: targets are NULL
 * @param [out] output_p  dimension 0 is micro->n; the same shape beyond it on all devices
 */
typedef ddp_status_t ddp_dp_forward_fn_t(void *ctx, ddp_tape_t *tape, const ddp_micro_t *micro,
                                         const void *const *inputs, ddp_tensor_t **output_p);

/**
 * The loss of one micro-batch's output, ended with a loss of nn/layers.h. OUTSIDE: on the thread of the
 * output device, and it may use no parameters. INSIDE, and in evaluation: on that of the replica.
 * @param [in] output  OUTSIDE: its part of the gathered output; INSIDE: what forward gave
 * @param [in] inputs  [n_inputs] of this micro-batch; OUTSIDE: all but targets are NULL
 */
typedef ddp_status_t ddp_dp_loss_fn_t(void *ctx, ddp_tape_t *tape, const ddp_micro_t *micro,
                                      const void *const *inputs, ddp_tensor_t *output,
                                      ddp_loss_stats_t **stats_p);

/**
 * Where the loss is taken, and what it is divided by.
 * OUTSIDE: on the gathered output, (1/N) sum_i l_i: the usual way. INSIDE: in the replica, so that only loss
 * sums are gathered; the same formula and bits. INSIDE_MEAN: a mean in each replica and the mean of those,
 * (1/V) sum_v (1/n_v) sum_i l_i, as people get who call .mean() on what a replica's loss returned: small
 * micro-batches count more. n_v are weights; a micro-batch whose weights sum to 0 has no mean and is left
 * out of V. Only with reduction EXACT.
 */
typedef enum ddp_dp_loss {
    DDP_DP_LOSS_OUTSIDE     = 0,
    DDP_DP_LOSS_INSIDE      = 1,
    DDP_DP_LOSS_INSIDE_MEAN = 2
} ddp_dp_loss_t;

typedef struct ddp_dp_params {
    size_t               struct_size;
    struct ddp_params   *params;     /* borrowed; finished; bound to device 0 by this */
    const int           *device_ids; /* [n_devices], copied; NULL: all, one for each core */
    size_t               n_devices;
    int                  output_device; /* one of device_ids; -1: device_ids[0] */
    uint64_t             seed;          /* of initial values and dropout */
    size_t               n_inputs;      /* 1 .. DDP_DP_MAX_INPUTS */
    ddp_dp_loss_t        loss_at;
    ddp_dp_fetch_fn_t   *fetch;                    /* required */
    ddp_dp_forward_fn_t *forward;                  /* required */
    ddp_dp_loss_fn_t    *loss;                     /* required */
    void (*set_tape)(void *ctx, ddp_tape_t *tape); /* precision and the like for each tape, on the thread of
                                                      its device, at create; or NULL */
    /* Device 0 hangs, so that no call can return: on a thread of this, with the line that says so; usually
       writes it and leaves the process. NULL: just that, with exit status 1. */
    void (*hung)(void *ctx, const char *line);
    void         *ctx;           /* of all these; borrowed */
    const size_t *device_memory; /* [n_devices] bytes each may hold, 0: no cap; NULL: no caps. The first is
                                    that of the device of reducer.compute, or 0 */
    /* What each replica's tape, and each loss's where outputs are gathered, takes at create (of tapes on a
       dry device, say); 0: as it comes */
    ddp_tape_memory_t    tape, loss_tape;
    ddp_scratch_t        scratch;    /* what each device's stream reserves at create */
    int                  timeout_ms; /* a device that makes no progress for so long has failed */
    ddp_reducer_params_t reducer; /* of device 0: compute (its stream), micro_batches, optimizer ...; comm of
                                     one rank, or NULL: one is made; tensors are taken from `params` */
} ddp_dp_params_t;
#define DDP_DP_PARAMS_INIT                                                                                   \
    {                                                                                                        \
        .struct_size = sizeof(ddp_dp_params_t), .output_device = -1, .n_inputs = 2, .timeout_ms = 60000,     \
        .reducer = DDP_REDUCER_PARAMS_INIT                                                                   \
    }

/**
 * Make devices, threads and replicas, and give device 0 its initial parameters. One device is a direct call:
 * nothing is replicated, scattered or gathered.
 *
 * Devices that differ by more than a quarter in memory or speed are a warning that names both, and so are
 * devices beyond micro_batches, which never get anything.
 * @return DDP_ERR_INVALID_ARG: an id twice, unknown (not 0 .. DDP_DP_MAX_DEVICES - 1), or none; an
 * output_device that is not among them. DDP_ERR_NO_MEMORY: device and what did not fit are named.
 * DDP_ERR_SYSTEM: a thread cannot start
 */
DDP_API ddp_status_t ddp_dp_create(const ddp_dp_params_t *params, ddp_dp_t **dp_p) DDP_NODISCARD;
/** A device that hangs is left behind with its thread. Memory of all devices and that of the communicator
 * then stays for the rest of the process; so must what the callbacks read. Accepts NULL. */
DDP_API void ddp_dp_destroy(ddp_dp_t **dp_p);

/**
 * One step, as ddp_trainer_step().
 * @return besides: what callbacks returned, with one line that names all devices that failed ("device 1: ...;
 * device 3: ..."). DDP_ERR_INVALID_ARG: outputs of different shape. DDP_ERR_TIMEOUT: a device makes no
 * progress. DDP_ERR_NO_MEMORY: a cap. After an error the layer can only be destroyed
 */
DDP_API ddp_status_t ddp_dp_step(ddp_dp_t *dp, const ddp_step_t *step,
                                 ddp_step_result_t *result_p) DDP_NODISCARD;
/** As ddp_trainer_set_step(). */
DDP_API void ddp_dp_set_step(ddp_dp_t *dp, uint64_t step);

/**
 * Forward and loss without gradient, on all devices in turn, the loss in the replicas: micro-batches 0 ..
 * count-1 of fetch, each of its own number of samples; what fetch says stays valid for as many more calls as
 * there are devices. After ddp_reducer_finish(). Errors as ddp_dp_step().
 * @param [in]  samples  [count], > 0
 * @param [out] stats    [count]
 */
DDP_API ddp_status_t ddp_dp_evaluate(ddp_dp_t *dp, ddp_dp_fetch_fn_t *fetch, void *fetch_ctx,
                                     const size_t *samples, size_t count,
                                     ddp_loss_stats_t *stats) DDP_NODISCARD;

/** Borrowed: the reducer of device 0 (parameters, moments, checkpoints), and the tape of its replica. */
DDP_API ddp_reducer_t   *ddp_dp_reducer(ddp_dp_t *dp);
DDP_API struct ddp_tape *ddp_dp_tape(ddp_dp_t *dp);

typedef enum ddp_dp_phase {
    DDP_DP_REPLICATE = 0,
    DDP_DP_SCATTER   = 1,
    DDP_DP_FORWARD   = 2,
    DDP_DP_GATHER    = 3,
    DDP_DP_LOSS      = 4,
    DDP_DP_BACKWARD  = 5,
    DDP_DP_REDUCE    = 6,
    DDP_DP_OPTIMIZER = 7,
    DDP_DP_PHASES    = 8
} ddp_dp_phase_t;
/** @return "replicate", "scatter" ... */
DDP_API const char *ddp_dp_phase_name(ddp_dp_phase_t phase);

/** Bytes that a device holds (ddp_device_memory()), by what they are for; their sum is `total`. */
typedef struct ddp_dp_memory {
    size_t parameters;
    size_t gradients; /* of device 0: all arenas of the reducer */
    size_t moments;
    size_t activations; /* and their gradients: what the replica's tape has taken, in whole chunks */
    size_t outputs;     /* gathered, and their gradients */
    size_t inputs;      /* scattered */
    size_t scratch;     /* of operations, and what others have taken from the device */
    size_t total, peak; /* now, and the most at a time */
    size_t cap;         /* 0: none */
} ddp_dp_memory_t;

/** What one device did in the last step. */
typedef struct ddp_dp_device_report {
    int             id;
    ddp_dp_memory_t memory;
    uint64_t        received_bytes[DDP_DP_PHASES]; /* copied to it from device 0 or output_device, or
                                                      the other way round for these two */
    uint64_t sent_bytes[DDP_DP_PHASES];
    int64_t  busy_ns[DDP_DP_PHASES]; /* it worked, of the phase's time */
} ddp_dp_device_report_t;

/** A phase lasts from the end of the one before it until the last device is done with it, so that all
 * together are the step. Updates run bucket by bucket, inside of the last backward or reduce; their time is
 * taken out of there and put at the end, also in spans. */
typedef struct ddp_dp_report {
    size_t  n_devices, rounds;
    int64_t step_ns;
    int64_t phase_ns[DDP_DP_PHASES];
} ddp_dp_report_t;

/** A piece of the last step's timeline. */
typedef struct ddp_dp_span {
    ddp_dp_phase_t phase;
    size_t         device;           /* index in device_ids */
    int64_t        start_ns, end_ns; /* from the step's begin */
} ddp_dp_span_t;

/** Of the last step. @param [out] devices  [n_devices] or NULL */
DDP_API void ddp_dp_report(const ddp_dp_t *dp, ddp_dp_report_t *report_p, ddp_dp_device_report_t *devices);
/** @return number of spans of the last step; at most `capacity` are written. */
DDP_API size_t ddp_dp_spans(const ddp_dp_t *dp, ddp_dp_span_t *spans, size_t capacity);

#ifdef __cplusplus
}
#endif

#endif
