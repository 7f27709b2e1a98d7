/**
 * @file A small language for networks, run twice: through nn's layers in float32, and by plain float64 loops
 * that know nothing of them. The gradients of the first are compared with central differences of the second.
 */
#ifndef DDP_TESTS_NN_PROGRAM_H_
#define DDP_TESTS_NN_PROGRAM_H_

#include "kernels/device.h"
#include "nn/layers.h"
#include "nn/params.h"
#include "nn/tape.h"

#define NN_MAX_STEPS 24
#define NN_NONE      (-1)
#define NN_EPS       1e-5 /* of NN_NORM */

typedef enum nn_op {
    NN_LINEAR,
    NN_CONV,
    NN_ACT,
    NN_MAX_POOL,
    NN_AVG_POOL,
    NN_FLATTEN,
    NN_DROPOUT,
    NN_ADD,
    NN_NORM,
    NN_GLOBAL_POOL
} nn_op_t;

/** Step i of a program makes value i + 1; value 0 is the input. */
typedef struct nn_step {
    nn_op_t   op;
    int       x, x2; /* values it reads; x2: NN_ADD; the residual of NN_NORM, which has one if x2 > 0 */
    int       weight, bias;
    ddp_act_t act;
    size_t    kernel, stride, pad;
    float     p; /* NN_DROPOUT */
} nn_step_t;

typedef struct nn_param {
    const char *name;
    size_t      ndim;
    size_t      shape[DDP_MAX_DIMS];
    size_t      fan_in; /* 0: starts at 0.25, so that a bias is seen too */
} nn_param_t;

typedef struct nn_program {
    size_t            n_params;
    const nn_param_t *params;
    size_t            n_steps;
    const nn_step_t  *steps;
    size_t            ndim; /* of the input */
    size_t            shape[DDP_MAX_DIMS];
    const int32_t    *labels;  /* [n]: cross-entropy; NULL: mean squared error against `target` */
    const float      *target;  /* as the last value */
    const float      *weights; /* [n] or NULL */
} nn_program_t;

/** A device with everything a program needs. */
typedef struct nn_world {
    ddp_device_t *device;
    ddp_stream_t *stream;
    ddp_params_t *params;
    ddp_tape_t   *tape;
} nn_world_t;

/** Asserts on failure. `isa` is not checked for presence: see nn_isas(). */
void nn_world_open(nn_world_t *world, ddp_isa_t isa);
/** After the parameters are registered and finished: memory for them, initial values, a tape. */
void nn_world_start(nn_world_t *world, uint64_t seed);
void nn_world_close(nn_world_t *world);
/** Wait for all work. */
void nn_world_wait(nn_world_t *world);
/** Number of instruction sets this processor has: 0 .. n - 1. */
int nn_isas(void);

/** Register the program's parameters, and after them the running averages of each NN_NORM: mean, variance.
 * Start the world. */
void nn_program_start(const nn_program_t *program, nn_world_t *world, uint64_t seed);
/** Steps first .. last - 1 on any tape: values[first] and before are there, values[first + 1] .. values[last]
 * are filled. @return the status of the layer that failed */
ddp_status_t nn_program_steps(const nn_program_t *program, ddp_tape_t *tape, size_t first, size_t last,
                              ddp_tensor_t *values[NN_MAX_STEPS + 1]);
/** Forward and loss in float32; the tape has begun. values[i] are filled. */
ddp_loss_stats_t *nn_program_forward(const nn_program_t *program, nn_world_t *world, const float *input,
                                     ddp_tensor_t *values[NN_MAX_STEPS + 1]);

/** float64 run; `masks[i]` scales value i + 1 where step i is a dropout. */
typedef struct nn_reference {
    double loss, weight;
    double margin; /* smallest distance of a ReLU or a maximum from deciding otherwise */
    double logits[4096];
} nn_reference_t;
void nn_reference_run(const nn_program_t *program, const float *input, const double *const *params,
                      const double *const *masks, nn_reference_t *result);

/**
 * The whole check on one instruction set: forward values, loss and gradients of all parameters (every
 * `every`-th entry) within `tolerance` of the largest entry of the parameter's gradient.
 */
void nn_check_program(const nn_program_t *program, ddp_isa_t isa, uint64_t seed, size_t every,
                      double tolerance);
/** nn_check_program() on all instruction sets of this processor. */
void nn_check_program_on_all_isas(const nn_program_t *program, uint64_t seed, size_t every, double tolerance);

/** Pseudo-random values in [-1, 1), a function of the index. */
void nn_noise(float *values, size_t count, uint32_t seed);

#endif
