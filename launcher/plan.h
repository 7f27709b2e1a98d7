/** @file The command `plan`: how long a step would take on more machines, from a run's times on few and a
 * model of the link. It starts no MPI itself. */
#ifndef DDP_PLAN_H_
#define DDP_PLAN_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/status.h"
#include "ddp/link.h"
#include "launcher/options.h"

#define DDP_PLAN_MAX_NODES 32 /* numbers of nodes that may be asked for */
#define DDP_PLAN_CAPS      8  /* bucket caps that are tried */
#define DDP_PLAN_PATH      4096
#define DDP_PLAN_TEXT      128

/** What the command line asks for. */
typedef struct ddp_plan_options {
    ddp_options_t run; /* run.yaml, --set, --log */
    bool          help, json;
    const char   *from;                               /* folder of a run; NULL: some steps are made here */
    const char   *svg;                                /* file; NULL: none */
    size_t        nodes[DDP_PLAN_MAX_NODES], n_nodes; /* ascending */
    size_t        ranks;                              /* on each node; 0: as in the run */
    ddp_link_t    link;                               /* bytes_per_s 0: not stated; without headers */
    double        mtu;   /* bytes; 0: the rate that was stated has no headers in it */
    uint64_t      steps; /* to be made here */
    double        timeout_s;
} ddp_plan_options_t;
/** @param [in] argv  argv[0] is "plan". @return DDP_ERR_CONFIG with one line */
ddp_status_t ddp_plan_options_parse(int argc, char *const *argv, ddp_plan_options_t *options) DDP_NODISCARD;
/** "100Gbit,2us": bits a second (Kbit, Mbit, Gbit, Tbit) and one way's latency (ns, us, ms, s).
 * @return DDP_ERR_CONFIG */
ddp_status_t ddp_plan_parse_link(const char *text, ddp_link_t *link_p) DDP_NODISCARD;
/** The share of an Ethernet's rate that is left for what goes over TCP in frames of `mtu` bytes. Pure. */
double ddp_plan_payload(double mtu);
void   ddp_plan_help(FILE *out);

/** The command. @return exit status: 0, 1, 2 wrong usage */
int ddp_plan_command(int argc, char **argv);

/** A bucket of the run that was measured. */
typedef struct ddp_plan_bucket {
    double bytes;
    double before_s; /* its gradients are final so long before the end of the last backward */
} ddp_plan_bucket_t;

/** What a step is made of, as a run measured it: medians. Times are of rank 0. */
typedef struct ddp_plan_run {
    char   source[DDP_PLAN_PATH]; /* folder, or "" */
    char   title[DDP_PLAN_TEXT];  /* model and data */
    size_t ranks, machines;       /* that measured; one machine: a link would be in all times */
    size_t micro_batches;         /* V */
    double batch;                 /* samples of a step */
    size_t steps;                 /* that count */
    double step_s;
    double forward_s, backward_s; /* of one micro-batch, without waiting and without what backward hides */
    double work_s;                /* adding up and updating, on this rank; measured with machines = 1 */
    double rest_s;                /* of a step: neither of them */
    bool   is_late;               /* updates wait for all buckets: clipping, nonfinite skip */
    bool   is_gpu;                /* that work has a stream of its own */
    bool   is_even;               /* ready times are not measured but spread evenly */
    double cap_bytes;             /* ddp.bucket_cap_mb */

    ddp_exchange_kind_t exchange; /* as configured */

    ddp_plan_bucket_t *bucket; /* owned, [n], in the order in which they get ready */
    size_t             n;
} ddp_plan_run_t;
/**
 * From a run's metrics.jsonl; its last start counts, and not its first steps, which warm up.
 * @return DDP_ERR_IO, DDP_ERR_FORMAT: what is missing, and how to make a run that has it
 */
ddp_status_t ddp_plan_read(const char *folder, ddp_plan_run_t *run_p) DDP_NODISCARD;
/** From steps made here and now by one rank. @return also DDP_ERR_REMOTE: what the run said */
ddp_status_t ddp_plan_measure(const ddp_plan_options_t *options, ddp_plan_run_t *run_p) DDP_NODISCARD;
void         ddp_plan_run_free(ddp_plan_run_t *run);

/** Where a step is to be. */
typedef struct ddp_plan_place {
    size_t     nodes, ranks; /* ranks of each node */
    ddp_link_t link;
    double     cap_bytes; /* buckets of the run are joined up to it */
    size_t     most;      /* micro-batches of the rank that has most */
} ddp_plan_place_t;

typedef struct ddp_plan_time {
    double              step_s;
    double              compute_s; /* forward and backward */
    double              work_s;    /* adding up and updating */
    double              wire_s;    /* messages between nodes, all buckets' together */
    double              exposed_s; /* of work and wire: after the end of backward */
    size_t              buckets;
    ddp_exchange_kind_t kind; /* of the largest bucket */
} ddp_plan_time_t;

/**
 * A step as a chain of events: each bucket is added up on its node when it is ready, goes between nodes when
 * the ones before it have gone, and is updated when it is back; what is not done at the end of backward is
 * exposed. Pure. @return DDP_ERR_NO_MEMORY
 */
ddp_status_t ddp_plan_step(const ddp_plan_run_t *run, const ddp_plan_place_t *place,
                           ddp_plan_time_t *time_p) DDP_NODISCARD;

/** What is said of one number of nodes. */
typedef struct ddp_plan_row {
    size_t          nodes, ranks;  /* ranks in all */
    bool            is_too_many;   /* more ranks than micro-batches: no times */
    bool            is_measured;   /* as many ranks and machines as the run had */
    size_t          most;          /* micro-batches of the rank that has most */
    ddp_plan_time_t time;          /* of the configured batch */
    double          samples_per_s; /* of all */
    double          speedup;       /* to one rank with the same batch */
    double          efficiency;    /* its share of `ranks` */
    double          weak;          /* efficiency if the batch grew with the ranks */
    double          best_cap_bytes, best_step_s;
} ddp_plan_row_t;

typedef struct ddp_plan {
    ddp_plan_options_t options;
    ddp_plan_run_t     run;
    ddp_plan_row_t     row[DDP_PLAN_MAX_NODES];
    size_t             n;
} ddp_plan_t;

/** Fill the rows. */
ddp_status_t ddp_plan_make(ddp_plan_t *plan) DDP_NODISCARD;
void         ddp_plan_print(const ddp_plan_t *plan, FILE *out);
/** The same as JSON, one object and a newline. @return DDP_ERR_NO_MEMORY */
ddp_status_t ddp_plan_json(const ddp_plan_t *plan, FILE *out) DDP_NODISCARD;
/** Speed-up over nodes as a file by itself. */
void ddp_plan_chart(const ddp_plan_t *plan, FILE *out);

#endif
