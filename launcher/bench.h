/** @file The command `bench`: measurements of collectives, operations and whole steps, on stdout. */
#ifndef DDP_BENCH_H_
#define DDP_BENCH_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "launcher/run.h"

/** What --isa may be besides the name of a set. */
#define DDP_BENCH_ALL_ISAS "all"

/** What the command line of `bench` asks for. */
typedef struct ddp_bench_options {
    ddp_options_t run; /* --set, --log, run.yaml */
    bool          help, json;
    uint64_t      rounds, warmup;
    uint64_t      from_bytes, to_bytes, factor;
    const char   *isa;                                        /* --isa, or NULL */
    ddp_status_t (*body)(ddp_run_t *run, ddp_status_t early); /* of the part that was named */
    char text[256];                                           /* all of it, to compare between ranks */
} ddp_bench_options_t;
/** @param [in] argv  argv[0] is "bench". @return DDP_ERR_CONFIG with one line */
ddp_status_t ddp_bench_options_parse(int argc, char *const *argv, ddp_bench_options_t *options) DDP_NODISCARD;
/** --help. */
void ddp_bench_help(FILE *out);

/** The command. @return exit status */
int ddp_bench_command(int argc, char **argv);
/** `bench comm`. Collective. @return DDP_ERR_STATE also if a result was wrong */
ddp_status_t ddp_bench_comm(ddp_run_t *run, ddp_status_t early) DDP_NODISCARD;

/** `bench step`, `bench ops`: steps of the configured model. Collective. */
ddp_status_t ddp_bench_step(ddp_run_t *run, ddp_status_t early) DDP_NODISCARD;
ddp_status_t ddp_bench_ops(ddp_run_t *run, ddp_status_t early) DDP_NODISCARD;

/** A column of a table; JSON has it under `key`. */
typedef struct ddp_bench_column {
    const char *key;
    const char *head; /* what stands above it */
    int         width;
    int         digits; /* behind the point; DDP_BENCH_TEXT: no number, flush left */
} ddp_bench_column_t;
#define DDP_BENCH_TEXT (-1)

/** What stands in it: text, or a number where that is NULL. A number that is NaN is left out. */
typedef struct ddp_bench_cell {
    const char *text;
    double      number;
} ddp_bench_cell_t;

/** A table under way; rank 0 prints, the others print nothing. */
typedef struct ddp_bench_table {
    const char               *event; /* of its JSON objects */
    const ddp_bench_column_t *column;
    size_t                    columns;
    bool                      is_mine; /* this rank prints */
    bool                      is_json;
} ddp_bench_table_t;

/** Begin a table: its heads, with one line above them ("# ..."). JSON has neither. */
void ddp_bench_head(const ddp_bench_table_t *table, const char *title);
/** @param [in] cell  [table->columns] */
void ddp_bench_row(const ddp_bench_table_t *table, const ddp_bench_cell_t *cell);
/** All that was printed has arrived. Collective. */
ddp_status_t ddp_bench_flush(const ddp_run_t *run) DDP_NODISCARD;

/** Middle one of `n` values, > 0; sorts them. */
double ddp_bench_median(double *value, size_t n);
double ddp_bench_least(const double *value, size_t n);
/** most[i] = the largest of all ranks' mine[i]: a round takes as long as its slowest rank. Collective. */
ddp_status_t ddp_bench_slowest(const ddp_run_t *run, const double *mine, size_t n,
                               double *most) DDP_NODISCARD;

/** How often a peak is measured: as often as was asked for, at most `most`. */
size_t ddp_bench_peak_rounds(const ddp_run_t *run, size_t most);

/** What the machine gives one rank while all of them work. */
typedef struct ddp_bench_peak {
    double memcpy_gbs; /* bytes read and bytes written both count */
    double triad_gbs;  /* a[i] = b[i] + s * c[i], 12 bytes an element */
    double add_gbs;    /* a[i] += b[i], 12 bytes an element */
} ddp_bench_peak_t;
/** This rank's best rates, in memory far beyond the caches. Collective. */
ddp_status_t ddp_bench_memory(const ddp_run_t *run, ddp_bench_peak_t *peak_p) DDP_NODISCARD;
/** This rank's best GFLOP/s of a 1024 x 1024 x 1024 product on run->compute. Collective. */
ddp_status_t ddp_bench_sgemm(const ddp_run_t *run, double *gflops_p) DDP_NODISCARD;

/** One pass of the optimizer over `count` parameters, the gradient read, parameters and moments read and
 * written. */
typedef struct ddp_bench_update {
    size_t count;
    double bytes;
    double ns, best_ns;
} ddp_bench_update_t;
/** Of the configured kind, on this rank alone. Collective. */
ddp_status_t ddp_bench_update(const ddp_run_t *run, ddp_bench_update_t *update_p) DDP_NODISCARD;

#endif
