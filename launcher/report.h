/** @file The command `report`: what a run left in its folder, as one page; also for TensorBoard and Perfetto.
 * It only reads, so the run may still be going on, and never calls MPI. */
#ifndef DDP_REPORT_H_
#define DDP_REPORT_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cjson/cJSON.h>

#include "base/log.h"
#include "base/status.h"
#include "launcher/cell.h"
#include "launcher/series.h"

#define DDP_REPORT_MAX_RUNS   8
#define DDP_REPORT_MAX_STARTS 60   /* told one by one: the first ones and the newest */
#define DDP_REPORT_MAX_SAVES  20   /* the newest; of attempts too */
#define DDP_REPORT_MAX_RANKS  4096 /* of the straggler's map; others are left out */
#define DDP_REPORT_MAX_STEP   1e15 /* a larger number is none */
#define DDP_REPORT_COLUMNS    64   /* of it */
#define DDP_REPORT_MAX_PHASES 12
#define DDP_REPORT_MAX_NOTES  16
#define DDP_REPORT_LINE       768
#define DDP_REPORT_PATH       4096

/** What the command line asks for; borrowed from argv. */
typedef struct ddp_report_options {
    const char     *run[DDP_REPORT_MAX_RUNS];
    size_t          n_runs;
    const char     *out;         /* NULL: report.html in the run's folder, of several runs in this one */
    const char     *tensorboard; /* a folder, or NULL */
    const char     *trace;       /* a file, or NULL */
    ddp_log_level_t log;
    bool            help;
} ddp_report_options_t;
/** @param [in] argv  argv[0] is "report". @return DDP_ERR_CONFIG with one line */
ddp_status_t ddp_report_options_parse(int argc, char *const *argv,
                                      ddp_report_options_t *options) DDP_NODISCARD;
void         ddp_report_help(FILE *out);

/** The command. @return exit status: 0, 1 a run cannot be read or a file not written, 2 wrong usage */
int ddp_report_command(int argc, char **argv);

/** What is kept of events, each over the step. */
typedef enum ddp_report_field {
    DDP_REPORT_LOSS,
    DDP_REPORT_LR,
    DDP_REPORT_GRAD_NORM,
    DDP_REPORT_STEP_MS,
    DDP_REPORT_SAMPLES,
    DDP_REPORT_TOKENS,
    DDP_REPORT_MFU,
    DDP_REPORT_LOSS_SCALE,
    DDP_REPORT_SPREAD,
    DDP_REPORT_TEST_LOSS,
    DDP_REPORT_ACCURACY,
    DDP_REPORT_PERPLEXITY,
    DDP_REPORT_STALL,
    DDP_REPORT_WRITE,
    DDP_REPORT_FIELDS
} ddp_report_field_t;

/** How a field is read and called. */
typedef struct ddp_report_field_info {
    const char *event, *key; /* of metrics.jsonl */
    const char *tag;         /* of TensorBoard */
    const char *name;        /* of a table's column, with its unit */
} ddp_report_field_info_t;
const ddp_report_field_info_t *ddp_report_field_info(ddp_report_field_t field);

/** Processes that trained together, from a `start` event on. */
typedef struct ddp_report_start {
    double step;          /* done before */
    double last_step;     /* the last one told of */
    double time_s, end_s; /* seconds since 1970 of the first and the last event; NaN: not told */
    double ranks, machines;
    bool   is_dp;
    char   hosts[256]; /* "node1 (4), node2 (4)" */
    char   device[16], isa[24], version[24];
    char   gpus[128];
    char   changes[256]; /* keys that differ from the start before */
    char   ended[256];   /* "done", "stopped", why it failed; "" */
} ddp_report_start_t;

typedef struct ddp_report_save {
    double step, bytes, stall_ms, write_ms;
    char   error[160]; /* "" if it succeeded */
} ddp_report_save_t;

/** A phase of the mean step; phases do not overlap. */
typedef struct ddp_report_phase {
    char         name[24]; /* also the class of its colour */
    ddp_series_t series;   /* ms */
} ddp_report_phase_t;

/** Of `straggler` events: what each rank computed, waited for samples, and did else. Neighbouring events
 * share a column. */
typedef struct ddp_report_heat {
    size_t  ranks, n, per_column, events;
    double  first_x[DDP_REPORT_COLUMNS], last_x[DDP_REPORT_COLUMNS];
    size_t  count[DDP_REPORT_COLUMNS];
    double *own; /* owned, [ranks][DDP_REPORT_COLUMNS]: computing and waiting for samples, sums of ms */
    double *computed, *waited, *communicated; /* owned, [ranks]: sums of ms over all events */
    double *slowest, *told; /* owned, [ranks]: events that it was the slowest in, that it was in at all */
} ddp_report_heat_t;

/** @return DDP_ERR_NO_MEMORY; DDP_ERR_FORMAT: nothing is told */
ddp_status_t ddp_report_heat_add(ddp_report_heat_t *heat, const cJSON *event) DDP_NODISCARD;
/** The own work of the rank in the middle in a column, ms of all its events; NaN: not told. */
double ddp_report_heat_median(const ddp_report_heat_t *heat, size_t column);
void   ddp_report_heat_free(ddp_report_heat_t *heat);

/** A start as `ddptrain supervise` saw it end. */
typedef struct ddp_report_attempt {
    char   time[24]; /* when it ended, UTC */
    double code, seconds, ranks;
    char   line[256];    /* what was said of the fault; "" */
    char   left_out[96]; /* hosts */
    char   next[16], reason[160];
} ddp_report_attempt_t;

typedef enum ddp_report_end {
    DDP_REPORT_OPEN, /* nothing says that it ended */
    DDP_REPORT_DONE,
    DDP_REPORT_STOPPED,
    DDP_REPORT_FAILED,
} ddp_report_end_t;

/** All that is read of a run. What was not told is NaN, or "". */
typedef struct ddp_report_run {
    char   folder[DDP_REPORT_PATH];
    char   name[128];  /* last part of it */
    char   title[256]; /* model and data */
    double parameters, samples, total_steps, micro_batches;
    cJSON *config; /* owned: keys of the last start; or NULL */
    cJSON *trace;  /* owned: the last `trace` event; or NULL */
    char  *yaml;   /* owned: config.yaml; or NULL */

    ddp_series_t       field[DDP_REPORT_FIELDS];
    ddp_report_phase_t phase[DDP_REPORT_MAX_PHASES];
    size_t             n_phases;
    ddp_report_heat_t  heat;
    size_t             last_rank[DDP_REPORT_MAX_RANKS]; /* how often a rank's gradients were the last */
    size_t             last_ranks;                      /* of it; 0: not told */

    ddp_report_start_t   start[DDP_REPORT_MAX_STARTS];
    size_t               n_starts, all_starts;
    ddp_report_save_t    save[DDP_REPORT_MAX_SAVES];
    size_t               n_saves, all_saves, failed_saves;
    ddp_report_attempt_t attempt[DDP_REPORT_MAX_SAVES];
    size_t               n_attempts, all_attempts; /* 0: nobody supervised it */

    ddp_report_end_t end;
    char             why[512]; /* failed: the line that said why */
    char             weights[40];
    double           pss_mb, skipped;
    double           step, epoch; /* of the last step that is told of */
    double           evaluated;   /* step of the last evaluation */

    double last_s;      /* when the file was written to, seconds since 1970 */
    bool   is_locked;   /* a process of this machine is training in the folder */
    char   newest[128]; /* checkpoint in the folder with the largest step; "" */
    double newest_step;
    size_t files; /* checkpoints in the folder */
    size_t events;
    size_t damaged, first_damaged; /* lines that cannot be read, the first one's number */
    bool   is_cut;                 /* the file ends within a line */

    char   headline[DDP_REPORT_LINE];
    char   notes[DDP_REPORT_MAX_NOTES][DDP_REPORT_LINE];
    size_t n_notes;
} ddp_report_run_t;

/** Told of each event while a file is read, so that nothing has to be kept. @param [in] time_s  of the event,
 * as near as is known */
typedef struct ddp_report_sink {
    void *ctx;
    ddp_status_t (*event)(void *ctx, const char *name, const cJSON *event, double time_s);
} ddp_report_sink_t;

/**
 * Read a run's folder. Blocking.
 * @param [in]  sink   or NULL
 * @param [out] run    ddp_report_free() frees what it owns, also after an error
 * @return DDP_ERR_IO: no folder, or no metrics.jsonl; DDP_ERR_FORMAT: there is no event in it;
 * DDP_ERR_NO_MEMORY; what the sink returned
 */
ddp_status_t ddp_report_read(const char *folder, const ddp_report_sink_t *sink,
                             ddp_report_run_t *run) DDP_NODISCARD;
/** One event of it. @return DDP_ERR_FORMAT: it is none, or out of order, and nothing is taken;
 * DDP_ERR_NO_MEMORY */
ddp_status_t ddp_report_take(const cJSON *event, ddp_report_run_t *run) DDP_NODISCARD;
void         ddp_report_free(ddp_report_run_t *run);
/** The history of `ddptrain supervise` beside the folder, <folder>.supervise.jsonl; there need not be one. */
ddp_status_t ddp_report_history(ddp_report_run_t *run) DDP_NODISCARD;

/** Headline and notes. @param [in] now_s  seconds since 1970 */
void ddp_report_words(ddp_report_run_t *run, double now_s);
/** "2 h 3 min". @return text */
const char *ddp_report_duration(double seconds, char text[DDP_CELL]);
/** "2026-11-30 20:48 UTC", "-" for a NaN. @return text */
const char *ddp_report_time(double seconds, char text[DDP_CELL]);
/** The folder as a shell takes it. @return text */
const char *ddp_report_quoted(const char *path, char *text, size_t size);

/** A line of a chart. */
typedef struct ddp_report_line {
    const ddp_series_t *series;
    const char         *name;
    int                 color;     /* 0 .. DDP_REPORT_MAX_RUNS - 1 */
    bool                has_marks; /* few values: each is marked, and the line is dashed */
} ddp_report_line_t;

typedef struct ddp_report_chart {
    const char             *id, *title, *text, *unit;
    ddp_report_line_t       line[2 * DDP_REPORT_MAX_RUNS];
    size_t                  n;
    bool                    is_from_zero;
    const ddp_report_run_t *run; /* whose restarts are marked; or NULL */
} ddp_report_chart_t;

/** A figure; nothing if no line has a value. */
void ddp_report_chart(const ddp_report_chart_t *chart, FILE *out);
/** Phases of the step, one above the other. */
void ddp_report_phases_chart(const ddp_report_run_t *run, FILE *out);
/** Ranks over time, darker where a rank computed for longer than the others. */
void ddp_report_heat_chart(const ddp_report_run_t *run, FILE *out);
/** Rules of these charts, beside ddp_plot_style(). */
const char *ddp_report_style(void);

/** Tables of one run. */
void ddp_report_tables(const ddp_report_run_t *run, FILE *out);
/** The page of one run, or of several. @param [in] runs  [n] */
void ddp_report_html(const ddp_report_run_t *const *runs, size_t n, FILE *out);

/** Perfetto's text of the run's `trace` event, to be freed by cJSON_free(). @return DDP_ERR_FORMAT: there is
 * none */
ddp_status_t ddp_report_trace(const ddp_report_run_t *run, char **text_p) DDP_NODISCARD;

/** The event file of one run. */
typedef struct ddp_report_board ddp_report_board_t;
/** @param [in] folder  made if it is not there, with those above it */
ddp_status_t      ddp_report_board_create(const char *folder, ddp_report_board_t **board_p) DDP_NODISCARD;
ddp_report_sink_t ddp_report_board_sink(ddp_report_board_t *board);
ddp_status_t      ddp_report_board_finish(ddp_report_board_t *board) DDP_NODISCARD;
/** Accepts NULL; removes what was not finished. */
void ddp_report_board_close(ddp_report_board_t **board_p);

#endif
