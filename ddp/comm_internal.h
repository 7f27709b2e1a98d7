/**
 * @file Inside of a communicator, for the reducer: flags in shared memory, waiting, and the machine's place
 * among the ranks. Private.
 *
 * A flag is a counter that only grows (a step number); it is written by one rank and read by all ranks of the
 * machine. Setting one rings the machine's bell (a futex word), which wakes ranks that sleep in
 * ddp_comm_idle().
 */
#ifndef DDP_COMM_INTERNAL_H_
#define DDP_COMM_INTERNAL_H_

#include <stdatomic.h>
#include <stdbool.h>

#include "ddp/comm.h"
#include "ddp/link.h"
#include "ddp/stage.h"

/** One cache line each, so that ranks do not disturb each other. */
typedef struct ddp_flag {
    _Alignas(64) _Atomic uint64_t value;
} ddp_flag_t;

#define DDP_WAIT_ALL (-2)

/** What the work at the head of the comm stream waits for: named when the deadline passes. */
typedef struct ddp_wait {
    int rank; /* who has to do something; DDP_WAIT_ALL: a collective, and nobody is known to be behind */
    const char *what; /* static: "gradients", "updated parameters", "forward sums" */
    uint64_t    step;
    size_t      bucket; /* (size_t)-1: none */
} ddp_wait_t;

/** Set with release order, count it as progress of this rank, ring the bell. */
void ddp_comm_flag_set(ddp_comm_t *comm, ddp_flag_t *flag, uint64_t value);

/** Acquire: what was written before the set is visible. */
static inline bool ddp_comm_flag_reached(const ddp_flag_t *flag, uint64_t value)
{
    return atomic_load_explicit(&flag->value, memory_order_acquire) >= value;
}

/** Say what the next idle time is about; cheap, called by polled work whenever it returns DDP_IN_PROGRESS. */
void ddp_comm_waiting(ddp_comm_t *comm, ddp_wait_t wait);

/**
 * One round of waiting: short spin, yield, then futex on the bell (at most 1 ms), by how long the wait has
 * lasted and whether ranks outnumber cores. Looks at the peers' pidfds and at the progress counter of the
 * rank waited for.
 * @return DDP_OK: look again. DDP_ERR_REMOTE: "rank 3 on node07 has ended (pid 123)". DDP_ERR_TIMEOUT: "rank
 * 3 on node07 made no progress for 60 s: waiting for its gradients of bucket 2, step 17". Moving but slow
 * (half the timeout waited, and progress seen) is one warning per wait.
 */
ddp_status_t ddp_comm_idle(void *comm, int64_t waited_ns);

/** Wait for one flag outside of a stream (step_begin). Runs ddp_device_progress() of the attached device
 * meanwhile, if there is one. */
ddp_status_t ddp_comm_wait_flag(ddp_comm_t *comm, const ddp_flag_t *flag, uint64_t value,
                                ddp_wait_t wait) DDP_NODISCARD;

/** Where this rank is, for the line that names it: two stores, and progress. @param [in] step  from 1 */
void ddp_comm_at(ddp_comm_t *comm, uint64_t step, ddp_stage_t phase, uint32_t bucket);

/** Count progress of this rank (a long operation that sets no flag). */
void ddp_comm_progressed(ddp_comm_t *comm);

/** The duplicate for the data plane (reducer between machines); MPI_ERRORS_RETURN. Its ranks are ddp_comm
 * ranks. */
MPI_Comm ddp_comm_data_mpi(const ddp_comm_t *comm);

/**
 * Have messages of the data plane come, or gone? Never blocks.
 * @param [in,out] requests  [n], those that are done become MPI_REQUEST_NULL
 * @param [in]     peers     [n], who is on the other side
 * @param [in]     wait      its rank is filled in
 * @return DDP_OK; DDP_IN_PROGRESS, and ddp_comm_waiting() was told whom for; DDP_ERR_MPI
 */
ddp_status_t ddp_comm_test_messages(ddp_comm_t *comm, MPI_Request *requests, const int *peers, int n,
                                    ddp_wait_t wait) DDP_NODISCARD;
/** The same until they are done: blocking, bounded as ddp_comm_idle() is. After an error they may stay under
 * way for ever: their memory is not to be freed. */
ddp_status_t ddp_comm_wait_messages(ddp_comm_t *comm, MPI_Request *requests, const int *peers, int n,
                                    ddp_wait_t wait) DDP_NODISCARD;

/** The link between machines, measured by the first call with the defaults of ddp_link_measure(). That one is
 * collective and blocking. */
ddp_status_t ddp_comm_link(ddp_comm_t *comm, ddp_link_t *link_p) DDP_NODISCARD;

/** First ddp_comm rank of machine m, and its number of ranks. */
int ddp_comm_machine_first(const ddp_comm_t *comm, int machine);
int ddp_comm_machine_size(const ddp_comm_t *comm, int machine);

#endif
