/** @file What a training step does, call by call: taken down while it runs, added up after it. */
#ifndef DDP_BENCH_TRACE_H_
#define DDP_BENCH_TRACE_H_

#include "kernels/ops_cost.h"
#include "launcher/bench.h"

/** Parts of a step on one rank; their times add up to the step's. */
typedef enum ddp_phase {
    DDP_PHASE_DATA,     /* waiting for samples */
    DDP_PHASE_FORWARD,  /* as the model calls it: a fused head has its gradients here */
    DDP_PHASE_BACKWARD, /* without what follows */
    DDP_PHASE_UPDATE,   /* sums over micro-batches and ranks, and the optimizer, whenever they run */
    DDP_PHASE_EXPOSED,  /* after backward, waiting for other ranks */
    DDP_PHASE_OTHER,
    DDP_PHASE_TOTAL,
    DDP_PHASE_TAIL, /* not a part of the sum: all that lies behind backward, work and waiting */
    DDP_PHASES
} ddp_phase_t;

/** One kind of work, or with shapes one kind and shape. */
typedef struct ddp_trace_line {
    const char   *stream, *work; /* static */
    bool          has_cost;
    ddp_op_cost_t cost;     /* of one call; without shapes of all calls of a step */
    double        calls;    /* in a step */
    double        best_ns;  /* of one call */
    double        total_ns; /* of all calls of all rounds */
    double       *ns;       /* owned, [rounds]: of all calls of a step */
} ddp_trace_line_t;

typedef struct ddp_trace ddp_trace_t;

/** Watches the device of `run`, which is built and outlives the trace. */
ddp_status_t ddp_trace_create(ddp_run_t *run, size_t rounds, bool with_shapes,
                              ddp_trace_t **trace_p) DDP_NODISCARD;
void         ddp_trace_destroy(ddp_trace_t **trace_p);

/** ddp_forward_fn_t with a ddp_run_t as its context; for run->forward. */
ddp_status_t ddp_trace_forward(void *ctx, ddp_tape_t *tape, const ddp_micro_t *micro,
                               ddp_loss_stats_t **stats_p) DDP_NODISCARD;

/** One step of training, to the end of all ranks' updates. Collective. @param [in] round  < 0: not kept */
ddp_status_t ddp_trace_step(ddp_trace_t *trace, uint64_t step, int64_t round) DDP_NODISCARD;

/** @return times of a phase in all rounds, ns, [rounds]; borrowed */
double *ddp_trace_phase(ddp_trace_t *trace, ddp_phase_t phase);
/** The lines of all rounds, those that take longest first. */
ddp_trace_line_t *ddp_trace_lines(ddp_trace_t *trace, size_t *n_p);

#endif
