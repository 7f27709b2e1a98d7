/** @file What a run measures of its devices: ranks with train.mode ddp, devices of one process with dp. */
#ifndef DDP_MEASURE_H_
#define DDP_MEASURE_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "dp_compat/data_parallel.h"

struct ddp_run;

/** Times of a step, or sums over steps. */
typedef struct ddp_measure {
    uint64_t steps;
    int64_t  forward_ns, backward_ns; /* of this rank; dp: wall time */
    int64_t  comm_ns, exposed_ns; /* as ddp_step_result_t; dp: exposed is all but forward, loss, backward */
    int64_t  phase_ns[DDP_DP_PHASES];     /* dp */
    uint64_t moved[DDP_DP_PHASES];        /* dp: bytes between devices; not a sum: of the last step */
    int64_t  busy_ns[DDP_DP_MAX_DEVICES]; /* of each device; ddp: [0] of this rank */
} ddp_measure_t;

/** The last step. @param [in] wait_ns  that it waited for samples */
void ddp_measure_step(const struct ddp_run *run, const ddp_step_result_t *result, int64_t wait_ns,
                      ddp_measure_t *measure_p);
void ddp_measure_add(ddp_measure_t *sum, const ddp_measure_t *step);

/** What one device has used, for the end of a run. */
typedef struct ddp_device_use {
    int64_t         id;
    ddp_dp_memory_t memory;         /* ddp: `peak` and `cap` are 0 */
    uint64_t        pss;            /* ddp, bytes; shared pages are divided among those who map them */
    uint64_t        peak_rss;       /* ddp, bytes */
    uint64_t        read, received; /* ddp, bytes of the last step: from ranks of this machine, of others */
    double          busy_ms;        /* of a step */
} ddp_device_use_t;

/** Memory of this process, bytes: its share of pages (PSS), and the most it had. */
uint64_t ddp_own_pss(void);
uint64_t ddp_own_peak_rss(void);

/** All devices. */
typedef struct ddp_use {
    size_t            n;
    ddp_device_use_t *device;   /* owned, [n] */
    uint64_t          pss;      /* bytes of all processes together */
    uint64_t          peak_rss; /* of the largest process */
    uint64_t         *link;     /* owned, [n, n]: bytes that `row` has taken from `column` in the last step */
} ddp_use_t;

/** Collective; rank 0's is complete. */
ddp_status_t ddp_use_gather(struct ddp_run *run, const ddp_measure_t *sum, ddp_use_t *use_p) DDP_NODISCARD;
void         ddp_use_free(ddp_use_t *use);

/** A piece of the timeline of a step. */
typedef struct ddp_span {
    int32_t phase;  /* ddp_span_phase_name() */
    int32_t device; /* position */
    double  start_us, end_us;
    double  ready_us; /* reduce: when the bucket was ready on this rank */
    int32_t part;     /* which micro-batch, or bucket, of the device */
} ddp_span_t;
/** Is it a bucket's, which has a stream of its own? */
bool        ddp_span_is_comm(const struct ddp_run *run, int phase);
const char *ddp_span_phase_name(const struct ddp_run *run, int phase);
/** Of the last step, of all devices. Collective. @param [out] spans_p  rank 0's; the caller frees them */
ddp_status_t ddp_spans_gather(struct ddp_run *run, const ddp_step_result_t *result, ddp_span_t **spans_p,
                              size_t *n_p) DDP_NODISCARD;

#endif
