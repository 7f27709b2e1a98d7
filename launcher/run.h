/** @file A training run: everything one rank holds, its set-up, the loop, evaluation and what is written. */
#ifndef DDP_RUN_H_
#define DDP_RUN_H_

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/watchdog.h"
#include "ddp/comm.h"
#include "ddp/trainer.h"
#include "io/dataset.h"
#include "io/loader.h"
#include "io/metrics.h"
#include "io/sampler.h"
#include "io/tokens.h"
#include "kernels/device.h"
#include "launcher/checkpoints.h"
#include "launcher/config.h"
#include "launcher/devices.h"
#include "launcher/gpus.h"
#include "launcher/launch.h"
#include "launcher/measure.h"
#include "launcher/memory.h"
#include "launcher/options.h"
#include "launcher/progress.h"
#include "launcher/stop.h"
#include "launcher/watch.h"
#include "nn/model.h"
#include "nn/tape.h"

#define DDP_RUN_FOLDER_SIZE 4096
/** An evaluation chunk has so many samples, of sequences fewer: as many as hold this many tokens. It belongs
 * to the configuration, so that sums do not depend on the number of ranks. */
#define DDP_EVAL_CHUNK  64
#define DDP_EVAL_TOKENS 1024

/** The label to ignore: one that no data set has, so every sample counts. */
#define DDP_RUN_NO_LABEL (-100)

/** What pictures and tokens have in common. */
typedef struct ddp_data_info {
    const char *source; /* of the training samples, for the user; borrowed */
    size_t      samples, test_samples;
    size_t      sample_bytes; /* of one sample in a micro-batch, without its label */
    size_t      memory_bytes; /* decoded, in the shared memory of a machine; mapped files are not counted */
    size_t      context;      /* tokens of a sample; 0: pictures */
    double      tokens, test_tokens; /* of the files */
} ddp_data_info_t;

typedef struct ddp_eval_result {
    double loss;       /* mean over the test samples, or over their tokens */
    double accuracy;   /* share of them that the largest logit tells */
    double perplexity; /* exp(loss); of tokens only, else 0 */
    double seconds;
} ddp_eval_result_t;

/** Memory of evaluation, taken once. */
typedef struct ddp_eval {
    size_t            chunks;       /* of the test set */
    size_t            first, count; /* chunks of this rank */
    size_t            most;         /* chunks of the rank that has most */
    size_t            rows;         /* samples of a chunk, at most DDP_EVAL_CHUNK */
    size_t            places;       /* 1, or one for each device */
    void             *x;            /* owned, aligned: [places, rows] images, float, or sequences, int32 */
    int32_t          *y;            /* owned: labels [places, rows] or targets [places, rows, context] */
    ddp_loss_stats_t *mine;         /* owned, [most] */
    ddp_loss_stats_t *all;          /* owned, [ranks, most] */
} ddp_eval_t;

typedef struct ddp_run {
    const ddp_options_t *options; /* borrowed */

    /* Of the command `bench`, borrowed; else NULL. */
    const struct ddp_bench_options *bench;
    struct ddp_trace               *trace;
    ddp_forward_fn_t               *forward; /* NULL: ddp_run_forward() */

    int             argc; /* for the hint how to use more cores */
    char *const    *argv; /* borrowed */
    ddp_launch_t    launch;
    ddp_config_t    config;   /* resolved by set-up */
    int64_t         start_ns; /* when MPI_Init returned */
    ddp_watchdog_t *watchdog; /* borrowed: for calls of MPI that have no deadline */
    int             watchdog_ms;
    bool            is_disk; /* what it is armed for; of ddp_run_watch_disk() */
    bool            is_training;
    bool            is_data_chosen; /* data.kind was auto */
    ddp_devices_t   devices;        /* of train.mode dp */
    char            device_name[32];
    ddp_gpu_t      *gpus; /* owned; with ddp.device cuda of all ranks, or of the devices; else NULL */

    ddp_comm_t     *comm; /* owned, as all that follows */
    ddp_watch_run_t watch;
    _Atomic int    *spoken; /* in shared memory of the machine: somebody has said why the run ends */
    ddp_isa_t       isa;
    ddp_device_t   *device;
    ddp_stream_t   *compute;
    ddp_dataset_t  *train, *test; /* pictures, else NULL */
    ddp_tokens_t   *train_tokens, *test_tokens;
    ddp_data_info_t data; /* of either */
    ddp_params_t   *params;
    size_t          frozen; /* elements of params that are not trained */
    ddp_model_t    *model;
    ddp_trainer_t  *trainer; /* or, with train.mode dp: */
    ddp_dp_t       *dp;
    ddp_tape_t     *tape;    /* borrowed from trainer or dp */
    ddp_reducer_t  *reducer; /* borrowed from trainer or dp */
    ddp_loader_t   *loader;
    size_t          held; /* micro-batches of the loader that the running step still reads */
    ddp_eval_t      eval;

    ddp_run_memory_t memory; /* planned */

    int exit_code; /* of a command that comes to its end: what it found, else 0 */

    ddp_metrics_t *metrics; /* rank 0 */
    char           folder[DDP_RUN_FOLDER_SIZE];
    ddp_progress_t progress; /* rank 0 */

    ddp_schedule_t schedule;
    uint64_t       steps_per_epoch, total_steps;
    double         peak_gflops; /* of a rank: what a matrix product gets; 0: not known */

    ddp_checkpoints_t checkpoints;
    ddp_stop_t        stop;
} ddp_run_t;

/**
 * Make the communicator, agree on options and configuration: what all commands share. Collective, blocking.
 * @param [in] early  status of what this rank did before MPI was up (options, configuration), agreed first
 */
ddp_status_t ddp_run_join(ddp_run_t *run, ddp_status_t early) DDP_NODISCARD;
/** Its two halves: the communicator; and the agreement, on that the ranks were started as one job too. For
 * who has something to ask in between. Collective. */
ddp_status_t ddp_run_connect(ddp_run_t *run) DDP_NODISCARD;
ddp_status_t ddp_run_settle(ddp_run_t *run, ddp_status_t early) DDP_NODISCARD;
/** Choose the instruction set, open the data, describe the model, plan memory. After ddp_run_join().
 * Collective.
 */
ddp_status_t ddp_run_prepare(ddp_run_t *run) DDP_NODISCARD;
/** Refuse what does not fit into memory; load the data, build model and reducer. After ddp_run_prepare().
 * Collective. */
ddp_status_t ddp_run_build(ddp_run_t *run) DDP_NODISCARD;
/** ddp_run_build(), and the run's folder. Collective. */
ddp_status_t ddp_run_setup(ddp_run_t *run) DDP_NODISCARD;
/** The command `train`: all of the above, then train or --dry-run. Collective. */
ddp_status_t ddp_run_command(ddp_run_t *run, ddp_status_t early) DDP_NODISCARD;
/** End the process where MPI or a disk may hang: any thread. Does not return. */
void ddp_run_leave(const ddp_run_t *run, int code);
/** Whose rounding the results have: "cuda", or the instruction set. */
const char *ddp_run_arithmetic(const ddp_run_t *run);
/** Local: frees everything but the communicator and the monitor, in any state. */
void ddp_run_teardown(ddp_run_t *run);
/** The rest, after MPI_Finalize(): until then ranks may still be lost. */
void ddp_run_part(ddp_run_t *run);
/** Open and check the data and fill run->data. Local. */
ddp_status_t ddp_data_open(ddp_run_t *run) DDP_NODISCARD;
/** Bring decoded samples into memory, once for each machine, and check that all machines have the same data.
 * Collective. */
ddp_status_t ddp_data_load(ddp_run_t *run) DDP_NODISCARD;
#define DDP_DATA_TEXT_SIZE 192
/** What the training data are, without where they lie. After ddp_data_load(). */
void ddp_data_fingerprint(const ddp_run_t *run, char text[DDP_DATA_TEXT_SIZE]);
/** Folder of a run that has no --out, without a number: "runs/<model>-<data>". */
void ddp_run_base(const ddp_run_t *run, char *base, size_t size);
/** One log line. */
void ddp_data_say(const ddp_run_t *run);
void ddp_data_close(ddp_run_t *run);
/** Rank 0 touches the disk on this thread; past the deadline (checkpoint.timeout_s, less where other ranks
 * would not wait so long) the process says so and leaves. @param [in] what  static text, "writing
 * metrics.jsonl" */
void ddp_run_watch_disk(ddp_run_t *run, const char *what);
void ddp_run_watch_end(ddp_run_t *run);
/** ddp_comm_shared(), and an error on one machine is one on all. Collective. */
ddp_status_t ddp_run_shared(const ddp_run_t *run, const char *label, size_t bytes,
                            void **memory_p) DDP_NODISCARD;
/** The configured model, its parameters not bound to memory. @param [out] params_p, model_p  the caller's,
 * also after an error */
ddp_status_t ddp_run_model(const ddp_run_t *run, ddp_params_t **params_p,
                           ddp_model_t **model_p) DDP_NODISCARD;
/** What the configuration says about tapes. */
void ddp_run_set_tape(const ddp_run_t *run, ddp_tape_t *tape);
/** Forward of `n` samples: x images or tokens, y labels or targets, as `data` has them. */
ddp_status_t ddp_run_loss(const ddp_run_t *run, ddp_model_t *model, ddp_tape_t *tape, const void *x,
                          const int32_t *y, size_t n, ddp_loss_stats_t **stats_p) DDP_NODISCARD;
/** Its two halves, for train.mode dp: what is gathered (logits; inside of a replica what a fused head takes),
 * and the loss of it. */
ddp_status_t ddp_run_output(const ddp_run_t *run, ddp_model_t *model, ddp_tape_t *tape, const void *x,
                            size_t n, ddp_tensor_t **output_p) DDP_NODISCARD;
ddp_status_t ddp_run_output_loss(const ddp_run_t *run, ddp_model_t *model, ddp_tape_t *tape,
                                 ddp_tensor_t *output, const int32_t *y,
                                 ddp_loss_stats_t **stats_p) DDP_NODISCARD;
/** This rank's loader as the configuration has it. */
ddp_loader_params_t ddp_run_loader_params(const ddp_run_t *run);
/** The reducer's parameters as the configuration has them; comm and compute as in `run`. */
ddp_reducer_params_t ddp_run_reducer_params(const ddp_run_t *run);

/** The loader's next micro-batch, which must be this one; held until the step ends. */
ddp_status_t ddp_run_next(ddp_run_t *run, const ddp_micro_t *micro, ddp_micro_batch_t *data_p) DDP_NODISCARD;
/** Forward of one micro-batch from the loader; ddp_forward_fn_t with a ddp_run_t as its context. */
ddp_status_t ddp_run_forward(void *ctx, ddp_tape_t *tape, const ddp_micro_t *micro,
                             ddp_loss_stats_t **stats_p) DDP_NODISCARD;
/** One step; what samples it has follows from its number. Collective. @param [in] step  from 0 */
ddp_status_t ddp_run_step(ddp_run_t *run, uint64_t step, ddp_step_result_t *result_p) DDP_NODISCARD;
/** The samples of a step. */
ddp_batch_range_t ddp_run_batch(const ddp_run_t *run, uint64_t step);
/** Train to the end and say the weights. Collective. */
ddp_status_t ddp_run_train(ddp_run_t *run) DDP_NODISCARD;
/** Print what a run would be; rank 0 writes to stdout, nothing else is written. After ddp_run_prepare(). */
ddp_status_t ddp_run_dry(ddp_run_t *run) DDP_NODISCARD;

/** Samples of a chunk, bytes of a sample's label or targets, and bytes of what ddp_eval_create() takes. */
size_t ddp_eval_rows(const ddp_run_t *run);
size_t ddp_eval_label_bytes(const ddp_run_t *run);
size_t ddp_eval_bytes(const ddp_run_t *run);
/** Samples of chunk `chunk`, and the chunk itself: x[rows] and y as ddp_eval_t has them. */
size_t       ddp_eval_samples(const ddp_run_t *run, size_t chunk);
ddp_status_t ddp_eval_fetch(const ddp_run_t *run, size_t chunk, void *x, int32_t *y) DDP_NODISCARD;
/** Take the memory of evaluation; after the data is open. */
ddp_status_t ddp_eval_create(ddp_run_t *run) DDP_NODISCARD;
void         ddp_eval_destroy(ddp_eval_t *eval);
/**
 * Loss and accuracy on all test samples, of tokens with each token counted. Collective. The ranks share the
 * chunks; sums are taken in chunk order, so all ranks get the same bits for any number of ranks.
 */
ddp_status_t ddp_eval_run(ddp_run_t *run, ddp_eval_result_t *result_p) DDP_NODISCARD;
/** On rank 0 after an evaluation: train.sample_tokens of text to the log. What goes wrong is a warning. Not
 * collective; the parameters must not change meanwhile, which they do not before this rank's next step. */
void ddp_run_sample(ddp_run_t *run, uint64_t step);

/** What a step event says: means over the steps since the last one, but for loss, lr and grad_norm. */
typedef struct ddp_step_report {
    uint64_t             step; /* steps done, from 1 */
    uint64_t             epoch;
    double               loss, lr, grad_norm; /* grad_norm NaN: not computed */
    double               step_ms, samples_per_s, data_wait_ms;
    const ddp_measure_t *measure;      /* sums over these steps; borrowed */
    double               tokens_per_s; /* 0: pictures */
    double               overlap;      /* share of reduction and update work that backward hid */
    double   gflops, mfu;  /* of a rank: the model's operations a second, and their share of the peak */
    int      slowest_rank; /* of the last step, as ddp_step_result_t */
    double   spread_ms;
    uint64_t skipped; /* steps since the last event that were not finite */
    double   loss_scale;
    uint64_t wire_overflows; /* since the last event, with ddp.wire bf16 */
} ddp_step_report_t;

/** This rank's best GFLOP/s of a product of square matrices on run->compute while all ranks work; `rounds`
 * are timed. Collective. */
ddp_status_t ddp_peak_gemm(const ddp_run_t *run, size_t side, size_t rounds, ddp_precision_t precision,
                           double *gflops_p) DDP_NODISCARD;
/** Fill run->peak_gflops, by measuring (some ms) unless train.peak_gflops says it. Collective. */
ddp_status_t ddp_peak_find(ddp_run_t *run) DDP_NODISCARD;

/** Lines of metrics.jsonl. Rank 0 only; no memory means no line. */
void ddp_event_start(ddp_run_t *run);
void ddp_event_step(ddp_run_t *run, const ddp_step_report_t *report);
/** The run ends early, to be started again. */
void ddp_event_stop(ddp_run_t *run, uint64_t step);
/** Why the run ends, from whichever rank says so, if the folder is of its machine; also from the monitor's
 * thread, and in any state. Half a second at most: a disk that does not answer holds nobody up. @param [in]
 * line  as the user reads it */
void ddp_event_fail(const ddp_run_t *run, const char *line);
void ddp_event_checkpoint(ddp_run_t *run, const ddp_save_result_t *result);
void ddp_event_eval(ddp_run_t *run, uint64_t step, uint64_t epoch, const ddp_eval_result_t *result);
typedef struct ddp_end_report {
    uint64_t          steps, skipped;
    double            seconds, first_step_ms;
    ddp_eval_result_t test;    /* the last evaluation */
    ddp_measure_t     measure; /* sums over all steps */
    ddp_use_t         use;     /* of all devices; owned */
    char              weights[33];
} ddp_end_report_t;
/** The timeline of a step. @param [in] spans  [n] */
void ddp_event_trace(ddp_run_t *run, uint64_t step, double step_ms, const ddp_span_t *spans, size_t n);
/** trace.json in the run's folder; a failure is a warning. */
void ddp_trace_file_write(ddp_run_t *run, uint64_t step, const ddp_span_t *spans, size_t n);
void ddp_event_end(ddp_run_t *run, const ddp_end_report_t *report);

/**
 * Say once why the run ends, from the rank that caused it, as far as ranks can still tell each other.
 * @param [out] may_finalize_p  true: all ranks came here, MPI_Finalize will not hang
 * @return exit status for main()
 */
int ddp_run_fail(ddp_run_t *run, ddp_status_t status, bool *may_finalize_p);

#endif
