/**
 * @file The monitor: sees which rank has ended, stopped, hangs or is cut off, says so once, and ends all
 * processes of the job, whatever their main threads hang in.
 *
 * Each rank has a thread of its own for it. Ranks of a machine tell each other through shared memory; the
 * lowest of them whose thread runs speaks for the machine, over TCP to rank 0's machine (a tree over
 * machines). The lowest rank that lives on the lowest machine that is reached judges. Only who knows the
 * job's token, a random number that goes over MPI, is listened to; where all ranks share one machine's memory
 * there is no port at all. Clocks of machines are never compared: ages cross the network, not times.
 *
 * Thread: all functions belong to the thread that created the communicator; callbacks run on the monitor's.
 */
#ifndef DDP_MONITOR_H_
#define DDP_MONITOR_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/export.h"
#include "base/status.h"
#include "ddp/comm.h"
#include "ddp/stage.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ddp_monitor ddp_monitor_t;

typedef enum ddp_fault_kind {
    DDP_FAULT_NONE     = 0,
    DDP_FAULT_FAILED   = 1, /* `rank` says itself why */
    DDP_FAULT_ENDED    = 2, /* without a word */
    DDP_FAULT_STOPPED  = 3, /* by SIGSTOP or a debugger */
    DDP_FAULT_SILENT   = 4, /* nothing comes from its machine */
    DDP_FAULT_STUCK    = 5, /* runs, but gets nothing done, and waits for nobody */
    DDP_FAULT_CIRCLE   = 6, /* waits for `other`, which waits for it */
    DDP_FAULT_LAUNCHER = 7, /* mpirun, or its daemon on this machine, has ended */
} ddp_fault_kind_t;

/** What is wrong. */
typedef struct ddp_verdict {
    ddp_fault_kind_t kind;
    int              rank;  /* whose fault */
    int              other; /* another rank concerned, or -1 */
    uint64_t         step;  /* where `rank` was when last heard of; 0: before the first */
    ddp_stage_t      phase;
    uint32_t         bucket;           /* or DDP_NO_BUCKET */
    int              signal;           /* ENDED: the signal that did it; 0: none, or not known */
    int              code;             /* ENDED: exit status; -1: not known */
    bool             is_out_of_memory; /* ENDED: the kernel says so */
    bool             is_whole_machine; /* ENDED: so have all ranks of its machine */
    double           seconds;          /* since it last got something done, or was heard of */
} ddp_verdict_t;
#define DDP_VERDICT_TEXT_SIZE 384

/** "rank 3 on node07 has ended (pid 123, killed by signal 9): in backward of step 17, bucket 2". */
DDP_API void ddp_verdict_text(const ddp_comm_t *comm, const ddp_verdict_t *verdict, char *text, size_t size);

/** Print the verdict: on the one rank of the job that speaks (on rank `verdict->rank` with FAILED). */
typedef void ddp_monitor_say_fn_t(void *ctx, const ddp_verdict_t *verdict, const char *text);
/** Has the launcher begun to end this process? True from then on. Called often. */
typedef bool ddp_monitor_sent_away_fn_t(void *ctx);
/** Leave the process with exit status 1: on every rank, after the verdict was said. Does not return.
 * @param [in] is_speaker  this rank spoke for its machine */
typedef void ddp_monitor_leave_fn_t(void *ctx, const ddp_verdict_t *verdict, bool is_speaker);

typedef struct ddp_monitor_params {
    size_t                      struct_size;
    ddp_comm_t                 *comm;       /* borrowed; outlives the monitor */
    const char                 *interfaces; /* "eth0,10.1.0.0/16": names or networks; NULL or "": any */
    bool                        is_managed; /* the parent process is a launcher: its end is the job's */
    ddp_monitor_say_fn_t       *say;        /* required, as leave */
    ddp_monitor_leave_fn_t     *leave;
    ddp_monitor_sent_away_fn_t *is_sent_away; /* NULL: not known */
    void                       *ctx;          /* of all three; borrowed */
} ddp_monitor_params_t;
#define DDP_MONITOR_PARAMS_INIT                                                                              \
    {                                                                                                        \
        .struct_size = sizeof(ddp_monitor_params_t)                                                          \
    }

/**
 * Collective over params->comm, blocking. The limit of waiting is the communicator's.
 * @return DDP_ERR_CONFIG: `interfaces` match nothing here; DDP_ERR_SYSTEM, DDP_ERR_NO_MEMORY
 */
DDP_API ddp_status_t ddp_monitor_create(const ddp_monitor_params_t *params,
                                        ddp_monitor_t             **monitor_p) DDP_NODISCARD;
/** Local, some ms: says that this rank's work is over, so that its end is no fault. Accepts NULL. */
DDP_API void ddp_monitor_destroy(ddp_monitor_t **monitor_p);

/** Where this rank is: a few stores. Counts as progress. @param [in] step  from 1; 0: before the first.
 * Accepts NULL. */
DDP_API void ddp_monitor_at(ddp_monitor_t *monitor, uint64_t step, ddp_stage_t phase, uint32_t bucket);

/**
 * This rank fails: may it say why? Asks the others, at most some seconds; the monitor ends no process that
 * was told to speak within that time.
 * @param [in] is_cause  its own failure, not news of another's
 * @return true: nobody else does, print the line and leave; false: the reason is said by another, leave.
 * NULL: true
 */
DDP_API bool ddp_monitor_may_speak(ddp_monitor_t *monitor, bool is_cause);

/** Wait until a verdict is there, at most `limit_ms`. Accepts NULL, and does not wait then. */
DDP_API void ddp_monitor_await(const ddp_monitor_t *monitor, int limit_ms);

/** Where a rank's time went: sums over all steps so far. */
typedef struct ddp_shares {
    uint64_t steps;
    uint64_t compute_us; /* forward and backward */
    uint64_t wait_us;    /* for samples */
    uint64_t comm_us;    /* all else of the step: reducing, updating, waiting for other ranks */
} ddp_shares_t;

/** This rank's, after a step: a few stores. Accepts NULL. */
DDP_API void ddp_monitor_count(ddp_monitor_t *monitor, const ddp_shares_t *sum);
/** What is known of all ranks'; of other machines some tenths of a second old. @param [out] all  [size] */
DDP_API void ddp_monitor_shares(const ddp_monitor_t *monitor, ddp_shares_t *all);

/** What happened between two calls of ddp_monitor_shares(). */
typedef struct ddp_straggler {
    bool   is_whole;              /* every rank has made a step in between; else the rest means nothing */
    int    slowest;               /* most time for its own work: compute and waiting for samples */
    double slowest_ms, median_ms; /* of that work in a step: the slowest rank's, the median of all */
} ddp_straggler_t;
/** Pure. @param [out] step_ms  [size, 3]: compute, wait, comm of each rank in a step */
DDP_API ddp_straggler_t ddp_straggler_look(const ddp_shares_t *before, const ddp_shares_t *after, int size,
                                           double (*step_ms)[3]);

#ifdef __cplusplus
}
#endif

#endif
