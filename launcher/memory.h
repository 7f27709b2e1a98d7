/** @file What memory a run will need, known before it takes any: by a forward and a backward of the model on
 * a dry device, which computes nothing. */
#ifndef DDP_LAUNCHER_MEMORY_H_
#define DDP_LAUNCHER_MEMORY_H_

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "dp_compat/data_parallel.h"
#include "nn/tape.h"

struct ddp_run;

/** Bytes. The program itself, MPI and mapped files come on top. */
typedef struct ddp_run_memory {
    /* of the machine, shared by its ranks */
    size_t parameters, moments;
    size_t gradients; /* arenas of all its ranks */
    size_t tables;    /* flags, losses */
    size_t data;      /* decoded samples */
    /* of this rank */
    size_t            arenas; /* number of its gradient arenas */
    ddp_tape_memory_t tape;
    size_t            kernels; /* what kernels take for themselves */
    ddp_scratch_t     scratch; /* of that, what a stream has of its own */
    size_t            loader, evaluation;
    size_t            wire;     /* for what other machines send */
    size_t            snapshot; /* for checkpoints: this rank's part of the state; rank 0's machine only */
    /* ddp.device cuda */
    size_t gpu;      /* what this rank needs on its GPU: not part of the sums below */
    size_t rounded;  /* of that, parameters in 16 bits */
    size_t gpu_free; /* what it may have there now */
    /* train.mode dp */
    size_t            output;    /* of one device's micro-batch, gathered; 0: the loss is taken inside */
    ddp_tape_memory_t loss_tape; /* for its loss and the gradient, on the output device */
    size_t            devices; /* all devices together, parameters, moments and gradients of the first too */
    ddp_dp_memory_t   device[DDP_DP_MAX_DEVICES];
    /* together */
    size_t   shared, own;
    size_t   machine;   /* shared, and `own` of all ranks of the machine */
    uint64_t available; /* to the processes of the machine; UINT64_MAX: not known */
} ddp_run_memory_t;

/** Fill run->memory. Data and model are there. Collective. */
ddp_status_t ddp_memory_plan(struct ddp_run *run) DDP_NODISCARD;
/**
 * Refuse a run that does not fit into a machine, or into a rank's limit of address space. After
 * ddp_memory_plan(). Collective.
 * @return DDP_ERR_NO_MEMORY: the line tells what is needed, what is there, and what would fit
 */
ddp_status_t ddp_memory_check(struct ddp_run *run) DDP_NODISCARD;
/** The table of --dry-run, and a line for each of several machines; rank 0 writes to stdout. After
 * ddp_memory_plan(). Collective. */
ddp_status_t ddp_memory_print(const struct ddp_run *run) DDP_NODISCARD;

#endif
