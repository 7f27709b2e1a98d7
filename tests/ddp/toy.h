/**
 * @file A training loop without a model for the reducer's tests: gradients drawn from (step, micro-batch,
 * tensor, element), and a reference that sums them leaf by leaf in the fixed tree on one rank and updates its
 * own copy of the parameters.
 */
#ifndef DDP_TOY_H_
#define DDP_TOY_H_

#include "ddp/reducer.h"

#define TOY_TENSORS 6

typedef struct toy_params {
    size_t micro_batches;
    int    norm;     /* steps ask for the gradient's norm */
    int    roles;    /* not all are parameters, see toy_role() */
    int    integers; /* gradients are small integers: every order of summing gives the same bits */
    ddp_reducer_params_t reducer; /* comm, compute and tensors are filled in */
    /* 1 if micro-batch `leaf` of `step` uses `tensor`; NULL: always */
    int (*uses)(uint64_t step, size_t leaf, size_t tensor);
    /* weight sum of a micro-batch; NULL: its number of samples */
    float (*weight)(uint64_t step, size_t leaf, size_t samples);
    /* the gradient element to take instead of `drawn`; NULL: none is changed */
    float (*plant)(uint64_t step, size_t leaf, size_t tensor, size_t element, float drawn);
    int cuda;  /* the devices are GPUs: one for each rank of a machine. DDP_TEST_DEVICE=cuda: they are, and
                  the backend is host */
    int ranks; /* > 0: only the first ones of the program take part, and only they call */
    int one_device;    /* and the ranks of a machine have the same one */
    int alone;         /* one rank, without MPI */
    int timeout_ms;    /* of the communicator */
    int rank_to_delay; /* sleeps a little in every step, before forward or after backward; -1: none */
} toy_params_t;
#define TOY_PARAMS_INIT                                                                                      \
    {                                                                                                        \
        .micro_batches = 8, .reducer = DDP_REDUCER_PARAMS_INIT, .timeout_ms = 20000, .rank_to_delay = -1     \
    }

typedef struct toy {
    toy_params_t      params;
    MPI_Comm          members; /* owned, with `ranks` */
    ddp_comm_t       *comm;
    ddp_device_t     *device;
    ddp_stream_t     *compute;
    ddp_reducer_t    *reducer;
    ddp_tensor_desc_t tensors[TOY_TENSORS];
    size_t            total;
    float            *reference; /* [total] what the parameters must be */
    float            *slots[2];
    uint64_t          steps[TOY_TENSORS];
    double            norm; /* of the reference's last gradient */
    uint64_t          step;
    uint32_t          request; /* of this rank's next steps */
    ddp_loss_stats_t *stats;   /* [micro_batches] */
    int               bad_reads;

    /* cuda: what goes to the device, and what was read there, until somebody looks */
    ddp_isa_t isa;     /* of the reference */
    float    *drawn;   /* host, [total] */
    float    *scratch; /* device, [total] */
    float    *seen;    /* page-locked, [micro_batches][2][total] */
    uint8_t   was_seen[64][2][TOY_TENSORS];
} toy_t;

/** Collective. Takes memory and starts with drawn parameters. */
ddp_status_t toy_create(const toy_params_t *params, toy_t *toy);
void         toy_destroy(toy_t *toy);

/** With `roles`: "scale" and "block" are running averages (momentum 0.25 and 1), "a.bias" does not decay,
 * "b.bias" is frozen. */
void toy_role(size_t tensor, ddp_tensor_desc_t *desc);

/** The gradient element a micro-batch contributes (already multiplied by nothing: sums over its samples). */
float toy_gradient(const toy_t *toy, uint64_t step, size_t leaf, size_t tensor, size_t element);

/** One step on all ranks; sizes NULL: `samples` cut by ddp_partition(). */
ddp_status_t toy_step(toy_t *toy, float lr, size_t samples, const size_t *sizes, ddp_step_result_t *result_p);

/** The same step on the reference. */
void toy_reference_step(toy_t *toy, float lr, size_t samples, const size_t *sizes);

/** true if all parameters have the reference's bits, and nobody read a parameter too early or too late. Call
 * after ddp_reducer_finish(). */
bool toy_equals_reference(const toy_t *toy);

/** Local: a parameter's element, after ddp_reducer_finish(). */
float toy_value(const toy_t *toy, size_t tensor, size_t element);

/** Collective: some steps on both sides, the last with another number of samples. true if all parameters were
 * equal after each. */
bool toy_run(const toy_params_t *params, int n_steps, size_t samples, size_t last_samples);

#endif
