/**
 * @file A model trained by DataParallel, or by a trainer on one rank without MPI, on the same drawn pictures:
 * for the tests of dp_compat, which never start MPI.
 */
#ifndef DDP_TESTS_DP_JOB_H_
#define DDP_TESTS_DP_JOB_H_

#include <stdatomic.h>

#include "dp_compat/data_parallel.h"
#include "nn/model.h"
#include "tests/support/ddp_test.h"

#define DP_JOB_MOST_SAMPLES 80
#define DP_JOB_IGNORED      (-100)
#define DP_JOB_HASH         33

typedef struct dp_setup {
    ddp_model_config_t   model;
    size_t               devices;     /* 0: a trainer */
    bool                 ranks;       /* of it: all of MPI, not one alone */
    int                  ids[8];      /* all zeros: 0, 1, ... */
    bool                 no_ids, all; /* an empty list; no list */
    int                  output_device;
    ddp_dp_loss_t        loss_at;
    size_t               memory[8];
    size_t               first_memory; /* cap of device 0, given where it is made */
    int                  timeout_ms;
    const char          *freeze; /* pattern; NULL: nothing */
    bool                 ignore; /* every fifth label counts nothing */
    size_t               samples;
    ddp_reducer_params_t reducer;
    void (*hung)(void *ctx, const char *line);
} dp_setup_t;
/** An mlp on 12 samples. */
#define DP_SETUP_INIT                                                                                        \
    {                                                                                                        \
        .model         = {.kind     = DDP_MODEL_MLP,                                                         \
                          .height   = 6,                                                                     \
                          .width    = 6,                                                                     \
                          .channels = 2,                                                                     \
                          .classes  = 5,                                                                     \
                          .n_hidden = 2,                                                                     \
                          .hidden   = {24, 17}},                                                               \
        .output_device = -1, .samples = 12, .timeout_ms = 20000, .reducer = DDP_REDUCER_PARAMS_INIT          \
    }

typedef struct dp_job {
    dp_setup_t          setup;
    ddp_device_t       *device;
    ddp_stream_t       *stream;
    ddp_params_t       *params;
    ddp_model_t        *model;
    ddp_comm_t         *comm; /* of a trainer */
    ddp_dp_t           *dp;
    struct ddp_trainer *trainer;
    uint64_t            step;
    float              *pictures; /* [DP_JOB_MOST_SAMPLES][row] of the running step */
    int32_t             labels[DP_JOB_MOST_SAMPLES];
    size_t              row;
    /* planted; read by several threads, written between steps */
    uint64_t    fails; /* bit v: forward of micro-batch v fails */
    uint64_t    hangs;
    uint64_t    loss_hangs; /* the same of its loss */
    uint64_t    reshapes;   /* its output is flattened */
    _Atomic int is_over;    /* lets those that hang go on */
    _Atomic int losses;     /* how many were begun */
    size_t      spoiled;    /* this picture, from 1, has a NaN; 0: none */
    size_t      shift;      /* pictures begin here */
    bool        loss_has_weights;
    uint64_t    wanted_step; /* what micro-batches must say, where it is not 0 */
    bool        is_slow, starves;
    size_t      fetches;
} dp_job_t;

/** Devices, model and what trains it. @return what ddp_dp_create() did */
ddp_status_t dp_job_try_open(dp_job_t *job, const dp_setup_t *setup);
void         dp_job_open(dp_job_t *job, const dp_setup_t *setup);
void         dp_job_close(dp_job_t *job);
/** One step with new pictures. `sizes` NULL: cut by ddp_partition(). */
ddp_status_t dp_job_try_step(dp_job_t *job, size_t samples, const size_t *sizes, ddp_step_result_t *result_p);
double       dp_job_step(dp_job_t *job, size_t samples);
ddp_reducer_t *dp_job_reducer(dp_job_t *job);
/** Pictures and labels of a step. */
void dp_job_draw(dp_job_t *job, uint64_t step);
/** Forward and loss of chunks of drawn pictures. */
ddp_status_t dp_job_evaluate(dp_job_t *job, const size_t *samples, size_t count, ddp_loss_stats_t *stats);

/** Hash of all weights after some steps; the last one has `last` samples. */
void dp_job_hash(const dp_setup_t *setup, int steps, size_t last, char hash[DP_JOB_HASH]);
/** What was written to stderr while `run` ran. */
void dp_job_stderr(void (*run)(void *ctx), void *ctx, char *text, size_t size);

#endif
