/**
 * @file The training step of a model on a tape: tape and reducer put together. A program with its own
 * gradients uses ddp/reducer.h alone.
 */
#ifndef DDP_TRAINER_H_
#define DDP_TRAINER_H_

#include "ddp/reducer.h"
#include "kernels/rounded.h"

#ifdef __cplusplus
extern "C" {
#endif

/* From nn/params.h and nn/tape.h, which a program that calls this includes itself. */
struct ddp_params;
struct ddp_tape;

typedef struct ddp_trainer ddp_trainer_t;

/** The part of the global batch that one forward is about. */
typedef struct ddp_micro {
    uint64_t step;        /* from 0 */
    size_t   micro_batch; /* 0 .. V - 1 */
    size_t   first_row;   /* position of its first sample in the global batch */
    size_t   n;           /* samples, > 0 */
} ddp_micro_t;

/**
 * Run one micro-batch's forward on the tape, ending with a loss of nn/layers.h.
 * @param [in]  micro    whose samples; what the tape reads of them must stay valid until the step ends
 * @param [out] stats_p  as the loss gave it
 */
typedef ddp_status_t ddp_forward_fn_t(void *ctx, struct ddp_tape *tape, const ddp_micro_t *micro,
                                      ddp_loss_stats_t **stats_p);

typedef struct ddp_trainer_params {
    size_t             struct_size;
    struct ddp_params *params;  /* borrowed; finished */
    uint64_t           seed;    /* of initial values and dropout */
    ddp_forward_fn_t  *forward; /* required */
    void              *ctx;     /* of forward; borrowed */
    ddp_precision_t    rounded; /* to which products round parameters: cuda rounds them once a step, in memory
                                   of its own (kernels/rounded.h); float32: no */
    ddp_reducer_params_t
        reducer; /* comm, compute, micro_batches, optimizer ...; tensors are taken from `params` */
} ddp_trainer_params_t;
#define DDP_TRAINER_PARAMS_INIT                                                                              \
    {                                                                                                        \
        .struct_size = sizeof(ddp_trainer_params_t), .reducer = DDP_REDUCER_PARAMS_INIT                      \
    }

/** Collective. Makes tape and reducer, and gives every rank the initial parameters. */
DDP_API ddp_status_t ddp_trainer_create(const ddp_trainer_params_t *params,
                                        ddp_trainer_t             **trainer_p) DDP_NODISCARD;
DDP_API void         ddp_trainer_destroy(ddp_trainer_t **trainer_p);

/**
 * What ddp_trainer_create() does with the parameters, for who makes a reducer of his own: bind them to its
 * values and, where `rank` is a writer, draw the initial ones. The same bits with any device.
 * ddp_reducer_publish() comes next. Local, blocking.
 * @param [in] compute  the reducer's
 * @param [in] rank     this one, of the reducer's communicator
 */
DDP_API ddp_status_t ddp_trainer_initialize(ddp_reducer_t *reducer, struct ddp_params *params,
                                            ddp_stream_t *compute, uint64_t seed, int rank) DDP_NODISCARD;

/**
 * One step: this rank's micro-batches forward and backward, reduction and update. Collective, blocking.
 * Errors as ddp_reducer_step_end(), or what forward returned: the trainer can then only be destroyed.
 */
DDP_API ddp_status_t ddp_trainer_step(ddp_trainer_t *trainer, const ddp_step_t *step,
                                      ddp_step_result_t *result_p) DDP_NODISCARD;

/** Who evaluates with the parameters as they are now (after ddp_reducer_finish()) may have them rounded once,
 * as a step has: call ddp_rounded_drop() behind it. Local, not blocking. */
DDP_API ddp_status_t ddp_trainer_round(ddp_trainer_t *trainer) DDP_NODISCARD;

/** The next step is number `step`, from 0: with ddp_reducer_restore(). Same on all ranks; before the first
 * step.
 */
DDP_API void ddp_trainer_set_step(ddp_trainer_t *trainer, uint64_t step);

/** What a micro-batch took on this rank, from the step's begin: when its forward began, when that ended and
 * backward began, and when backward, with what it hides of reducing and updating, ended. Times of the device:
 * where it is asynchronous, not those of the calls. */
typedef struct ddp_micro_times {
    int64_t forward_ns, backward_ns, end_ns;
} ddp_micro_times_t;
/** Sums over `steps` steps, and over their micro-batches. */
typedef struct ddp_phase_times {
    uint64_t steps;
    int64_t  forward_ns, backward_ns;
} ddp_phase_times_t;
/**
 * Wait until this rank's backward of the last step is over and its times are known. Local, blocking; after a
 * step. Without it they are known when the device has done what it was given, at the latest after the next
 * step.
 * @return as ddp_stream_synchronize()
 */
DDP_API ddp_status_t ddp_trainer_await_times(ddp_trainer_t *trainer) DDP_NODISCARD;
/** Steps whose times have become known since the last call: each is in one answer. Local. */
DDP_API ddp_phase_times_t ddp_trainer_take_phases(ddp_trainer_t *trainer);
/**
 * Of the last step, after ddp_trainer_await_times(). Local.
 * @param [out] begin_ns_p  the step's begin, ddp_clock_ns(); all ranks of the machine have the same clock
 * @return this rank's micro-batches that had samples; at most `capacity` are written
 */
DDP_API size_t ddp_trainer_times(const ddp_trainer_t *trainer, int64_t *begin_ns_p, ddp_micro_times_t *times,
                                 size_t capacity);

/** Borrowed from the trainer. The tape serves for evaluation between steps too (after ddp_reducer_finish()).
 */
DDP_API ddp_reducer_t   *ddp_trainer_reducer(ddp_trainer_t *trainer);
DDP_API struct ddp_tape *ddp_trainer_tape(ddp_trainer_t *trainer);

#ifdef __cplusplus
}
#endif

#endif
