/**
 * @file The links between machines: what they are measured to be, and what a sum over machines takes on them.
 *
 * The model is Hockney's (1994): a message of n bytes takes latency + n / rate; the sender is busy with it
 * for `overhead`, as in LogGP (Alexandrov et al. 1995). Times of the ways to sum are those of Thakur,
 * Rabenseifner and Gropp (2005), "Optimization of Collective Communication Operations in MPICH", section 4.5
 * and 4.6, with a range cut into segments that are under way at once: then latencies count once, overheads
 * each time.
 */
#ifndef DDP_LINK_H_
#define DDP_LINK_H_

#include <stddef.h>

#include "base/export.h"
#include "base/status.h"
#include "ddp/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * How machines sum a range. DIRECT: every machine sums its part of the range from all others' at once, then
 * sends the total to all: in the fixed tree, if need be. RING: parts go round, each machine adds its own
 * (reduce-scatter), then the totals go round. HALVING: with partners at distance 1, 2, 4, ... halves are
 * exchanged and added, then totals come back the same way; machines beyond a power of two give theirs to a
 * partner first. MEASURED: whichever ddp_link_choose() finds. AUTO: DIRECT, whose order of sums does not
 * depend on a measurement.
 */
typedef enum ddp_exchange_kind {
    DDP_EXCHANGE_AUTO     = 0,
    DDP_EXCHANGE_DIRECT   = 1,
    DDP_EXCHANGE_RING     = 2,
    DDP_EXCHANGE_HALVING  = 3,
    DDP_EXCHANGE_MEASURED = 4,
} ddp_exchange_kind_t;
/** "auto", "direct", "ring", "halving", "measured"; static. */
DDP_API const char *ddp_exchange_name(ddp_exchange_kind_t kind);

/** All machines use the link at once, as they do in training. 0: not known, costs nothing. */
typedef struct ddp_link {
    double latency_s;         /* one way, of a message of a few bytes */
    double overhead_s;        /* each further message to the same machine, at the same time */
    double bytes_per_s;       /* each machine to one other, and from one, at the same time */
    double spread_per_s;      /* the same, to all others and from all */
    double added_bytes_per_s; /* floats that one rank adds: bytes of one summand */
} ddp_link_t;

typedef struct ddp_link_params {
    size_t struct_size;
    size_t most_bytes; /* of a message */
    int    rounds;     /* of each size; the median counts */
    int    limit_ms; /* > 0: sizes grow no more when this is used up. Two rounds of the last one may follow */
} ddp_link_params_t;
#define DDP_LINK_PARAMS_INIT                                                                                 \
    {                                                                                                        \
        .struct_size = sizeof(ddp_link_params_t), .most_bytes = (size_t)4 << 20, .rounds = 5,                \
        .limit_ms = 500                                                                                      \
    }

/**
 * Measure with messages between the first ranks of all machines, over MPI, all at once. Collective, blocking,
 * bounded by limit_ms and, if nothing moves, by the communicator's timeout. No message of the reducer may be
 * under way. Thread: the communicator's.
 * @param [in]  params  the same on all ranks
 * @param [out] link_p  the same on all ranks: the slowest machine's medians. One machine: added_bytes_per_s
 * alone
 * @return DDP_ERR_INVALID_ARG, DDP_ERR_NO_MEMORY; DDP_ERR_TIMEOUT, DDP_ERR_REMOTE name a rank
 */
DDP_API ddp_status_t ddp_link_measure(ddp_comm_t *comm, const ddp_link_params_t *params,
                                      ddp_link_t *link_p) DDP_NODISCARD;

/**
 * Each pair of machines, as many pairs at a time as there are without a machine in two of them. Collective,
 * as ddp_link_measure(), with limit_ms for all pairs together.
 * @param [out] pairs  [machines * machines], the same on all ranks and both ways: latency_s and bytes_per_s,
 * both directions in use; the rest, and the diagonal, 0
 */
DDP_API ddp_status_t ddp_link_measure_pairs(ddp_comm_t *comm, const ddp_link_params_t *params,
                                            ddp_link_t *pairs) DDP_NODISCARD;

/** A sum of `bytes` of floats over all ranks of all machines. */
typedef struct ddp_link_work {
    ddp_exchange_kind_t kind; /* DIRECT, RING or HALVING */
    int                 machines;
    int    ranks;    /* on each machine; they add theirs up in shared memory first, slice by slice */
    double bytes;    /* on each rank */
    double nodes;    /* DIRECT: partial sums that a machine sends of each element, 1 but for the tree */
    int    segments; /* >= 1 */
} ddp_link_work_t;
/** Seconds from the moment when all have their summands to the one when all have the sum. Pure. */
DDP_API double ddp_link_time_s(const ddp_link_t *link, const ddp_link_work_t *work);
/** The part of that between machines: what is left with one rank on each. */
DDP_API double ddp_link_between_s(const ddp_link_t *link, const ddp_link_work_t *work);
/** The kind that takes the least time; `work`'s own is not looked at. DIRECT among equals. Pure. */
DDP_API ddp_exchange_kind_t ddp_link_choose(const ddp_link_t *link, const ddp_link_work_t *work);

#ifdef __cplusplus
}
#endif

#endif
