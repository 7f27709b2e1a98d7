/** @file The command `compare`: one device, DataParallel on K devices and DistributedDataParallel on K ranks,
 * measured by runs of this program, next to each other. It starts no MPI itself. */
#ifndef DDP_COMPARE_H_
#define DDP_COMPARE_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cjson/cJSON.h>

#include "base/status.h"
#include "launcher/cell.h"
#include "launcher/config.h"
#include "launcher/options.h"

#define DDP_COMPARE_MAX_COUNTS  16 /* numbers of devices */
#define DDP_COMPARE_MAX_RESULTS (1 + 2 * DDP_COMPARE_MAX_COUNTS)
#define DDP_COMPARE_MAX_DEVICES 64
#define DDP_COMPARE_MAX_PHASES  16
#define DDP_COMPARE_MAX_NOTES   16
#define DDP_COMPARE_LINE        512
#define DDP_COMPARE_PATH        4096

/** What the command line asks for. */
typedef struct ddp_compare_options {
    ddp_options_t run; /* run.yaml, --set, --log, --out */
    bool          help;
    size_t        counts[DDP_COMPARE_MAX_COUNTS]; /* numbers of devices above 1, ascending */
    size_t        n_counts;                       /* 0: not stated */
    uint64_t      steps;                          /* of each run; 0: what takes about a minute in all */
    uint64_t      warmup, rounds;
    double        timeout_s;
} ddp_compare_options_t;
/** @param [in] argv  argv[0] is "compare". @return DDP_ERR_CONFIG with one line */
ddp_status_t ddp_compare_options_parse(int argc, char *const *argv,
                                       ddp_compare_options_t *options) DDP_NODISCARD;
void         ddp_compare_help(FILE *out);

/** The command. @return exit status: 0, 1 also if any of the runs failed, 2 wrong usage */
int ddp_compare_command(int argc, char **argv);

/** Values of one kind, one for each measured step. */
typedef struct ddp_compare_series {
    double *value; /* owned */
    size_t  n, room;
} ddp_compare_series_t;
/** @return false: no memory. A NaN is left out. */
bool ddp_compare_add(ddp_compare_series_t *series, double value) DDP_NODISCARD;

typedef struct ddp_compare_spread {
    size_t n;
    double median, q1, q3; /* quarters by linear interpolation between values, as NumPy's percentile() */
} ddp_compare_spread_t;
/** Sorts the values. All NaN if there are none. */
ddp_compare_spread_t ddp_compare_spread(ddp_compare_series_t *series);

typedef enum ddp_compare_way {
    DDP_COMPARE_ONE, /* one device: the plain program */
    DDP_COMPARE_DP,
    DDP_COMPARE_DDP,
} ddp_compare_way_t;
/** "one device", "DataParallel", "DDP". */
const char *ddp_compare_way_name(ddp_compare_way_t way);
/** "one", "dp", "ddp": for programs and names of files. */
const char *ddp_compare_way_key(ddp_compare_way_t way);

/** What memory is for. */
typedef enum ddp_compare_memory {
    DDP_COMPARE_PARAMETERS,
    DDP_COMPARE_GRADIENTS,
    DDP_COMPARE_MOMENTS,
    DDP_COMPARE_ACTIVATIONS,
    DDP_COMPARE_OUTPUTS, /* gathered, and their gradients */
    DDP_COMPARE_OTHER,   /* inputs, scratch memory of operations */
    DDP_COMPARE_MEMORY_KINDS
} ddp_compare_memory_t;
const char *ddp_compare_memory_name(ddp_compare_memory_t kind);

/** A device, or a rank. */
typedef struct ddp_compare_device {
    double bytes[DDP_COMPARE_MEMORY_KINDS];
    double total, peak;
    double busy_ms; /* of a step, mean of all steps of the last round */
} ddp_compare_device_t;

typedef struct ddp_compare_phase {
    char                 name[24];
    ddp_compare_series_t series;
    double               ms; /* median */
} ddp_compare_phase_t;

/** Bytes that go from one device to another in a step. */
typedef struct ddp_compare_link {
    size_t from, to;
    double bytes;
} ddp_compare_link_t;

/** A piece of the timeline of one step. */
typedef struct ddp_compare_span {
    char   phase[24];
    size_t device;
    double start_ms, end_ms;
} ddp_compare_span_t;

/** In place of the hash of weights that differed from round to round. */
#define DDP_COMPARE_UNSTEADY "not the same in each round"

/** One way with one number of devices, over the measured steps of all its rounds. What was not told is NaN.
 */
typedef struct ddp_compare_result {
    ddp_compare_way_t way;
    size_t            devices;
    size_t            rounds;                  /* runs that came to their end */
    char              error[DDP_COMPARE_LINE]; /* what went wrong; "" if nothing did */

    ddp_compare_series_t step, comm, exposed, data; /* ms */
    ddp_compare_spread_t spread;                    /* of step */
    double               samples_per_s, speedup, efficiency;
    double               comm_ms, exposed_ms, data_ms; /* medians; data: waiting for samples */
    ddp_compare_phase_t  phases[DDP_COMPARE_MAX_PHASES];
    size_t               n_phases;
    double               moved_bytes; /* in a step between devices, or from rank to rank */
    ddp_compare_link_t  *links;       /* owned */
    size_t               n_links;
    ddp_compare_span_t  *spans; /* owned; of the last round */
    size_t               n_spans;

    ddp_compare_device_t device[DDP_COMPARE_MAX_DEVICES];
    double               memory_ratio, busy_ratio; /* device 0 to the mean of the others */
    char                 weights[40];              /* hash, or DDP_COMPARE_UNSTEADY */
    bool                 is_equal;                 /* to the weights of one device, bit for bit */
} ddp_compare_result_t;

/** All that is measured and concluded. */
typedef struct ddp_compare {
    ddp_compare_options_t options;
    ddp_config_t          config; /* as stated; micro_batch is chosen */
    size_t                micro_batches;
    size_t                cores; /* of this machine */
    size_t                room;  /* devices that have a core each; 0: not known, as in a Slurm job */
    char                  folder[DDP_COMPARE_PATH];
    char                  title[DDP_COMPARE_LINE]; /* model and data */
    char                  host[64], isa[24];
    double                parameters;
    double                seconds; /* of all runs */

    ddp_compare_result_t *results; /* owned, [DDP_COMPARE_MAX_RESULTS] */
    size_t                n_results;
    char                  notes[DDP_COMPARE_MAX_NOTES][DDP_COMPARE_LINE];
    size_t                n_notes;
    char                  headline[DDP_COMPARE_LINE];
    char                  reasons[DDP_COMPARE_MAX_NOTES][DDP_COMPARE_LINE];
    size_t                n_reasons;
} ddp_compare_t;

/** One more result, without figures. NULL: no room. */
ddp_compare_result_t *ddp_compare_new(ddp_compare_t *compare, ddp_compare_way_t way, size_t devices);
/** Free what a result owns. */
void ddp_compare_drop(ddp_compare_result_t *result);
void ddp_compare_free(ddp_compare_t *compare);
/** @return NULL if it was not asked for */
const ddp_compare_result_t *ddp_compare_find(const ddp_compare_t *compare, ddp_compare_way_t way,
                                             size_t devices);
/** How many of options.counts, from the smallest on, have a core for each device; all if none has. */
size_t ddp_compare_roomy(const ddp_compare_t *compare);
/** It has figures. Accepts NULL. */
bool ddp_compare_is_measured(const ddp_compare_result_t *result);
/** Something that a reader should know; beyond DDP_COMPARE_MAX_NOTES they are dropped. */
void ddp_compare_note(ddp_compare_t *compare, const char *fmt, ...) DDP_PRINTF(2, 3);

/** Add what a run left in its folder (metrics.jsonl, see docs/metrics.md) to its result.
 * @return DDP_ERR_FORMAT, DDP_ERR_IO: the folder tells nothing, or not all */
ddp_status_t ddp_compare_read(const char *folder, uint64_t warmup, ddp_compare_t *compare,
                              ddp_compare_result_t *result) DDP_NODISCARD;

/** Run everything that was asked for, a line each. What fails is in its result.
 * @return DDP_ERR_STATE: stopped by a signal; DDP_ERR_SYSTEM, DDP_ERR_NO_MEMORY: nothing can be run */
ddp_status_t ddp_compare_runs(ddp_compare_t *compare) DDP_NODISCARD;

/** Speed-up, efficiency, ratios and equality, from what the runs told. */
void ddp_compare_derive(ddp_compare_t *compare);
/** Headline and reasons. After ddp_compare_derive(). */
void ddp_compare_verdict(ddp_compare_t *compare);

/** "DataParallel on 2 devices". @param [out] text  [size] */
const char *ddp_compare_result_text(const ddp_compare_result_t *result, char *text, size_t size);

/** The table on stdout. */
void ddp_compare_print(const ddp_compare_t *compare, FILE *out);
/** compare.json, as docs/dataparallel.md describes it. NULL: no memory. The caller's. */
cJSON *ddp_compare_json(const ddp_compare_t *compare);
/** compare.html: one file that needs no other. */
void ddp_compare_html(const ddp_compare_t *compare, FILE *out);
/** Throughput over the number of devices. @param [in] style  of a file by itself, or NULL */
void ddp_compare_throughput(const ddp_compare_t *compare, const char *style, FILE *out);
/** What each device holds. */
void ddp_compare_memory_chart(const ddp_compare_t *compare, FILE *out);
/** One step of each device, for both ways with most devices. */
void ddp_compare_timelines(const ddp_compare_t *compare, FILE *out);
/** Colours and lines of its own, beside ddp_plot_style(). */
const char *ddp_compare_style(void);
/** Write the four files, the picture with gnuplot where it is installed. */
ddp_status_t ddp_compare_write(ddp_compare_t *compare) DDP_NODISCARD;

#endif
