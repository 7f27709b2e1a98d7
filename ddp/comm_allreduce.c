/*
 * All-reduce. On one machine every rank sums one slice over all parts of the window, in rank order, and
 * stores it into all of them: no copy. Between machines see comm_across.c.
 */
#include <string.h>

#include "base/call.h"
#include "base/convert.h"
#include "ddp/comm.h"
#include "ddp/comm_internal.h"
#include "ddp/comm_state_internal.h"

#define SEGMENT     ((size_t)64 << 10) /* floats through staging at a time, on one machine */
#define TILE        ((size_t)2048)
#define MAX_LOCAL   1024
#define WHAT_REDUCE "all-reduce"

/* Everybody on this machine has come this far. */
static ddp_status_t meet_in_hall(ddp_comm_t *comm)
{
    const ddp_star_t star   = ddp_comm_star_machine(comm);
    ddp_status_t     status = DDP_OK;

    if (star.count == 1) {
        return DDP_OK;
    }
    comm->meetings++;
    ddp_comm_flag_set(comm, &ddp_comm_seat(comm, comm->rank)->meet, comm->meetings);
    for (int r = star.first; r < star.first + star.count; r++) {
        const ddp_wait_t wait = {r, WHAT_REDUCE, comm->meetings, (size_t)-1};

        DDP_TRY(ddp_comm_wait_flag(comm, &ddp_comm_seat(comm, r)->meet, comm->meetings, wait));
    }
out:
    return status;
}

/* `a` and `b` both become a + b. Memory is the limit, but wider loads still give a tenth. */
static inline __attribute__((always_inline)) void add_two_body(float *restrict a, float *restrict b,
                                                               size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const float sum = a[i] + b[i];

        a[i] = sum;
        b[i] = sum;
    }
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void add_two_avx2(float *restrict a, float *restrict b, size_t count)
{
    add_two_body(a, b, count);
}
#endif

static void add_two(float *restrict a, float *restrict b, size_t count)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) {
        add_two_avx2(a, b, count);
        return;
    }
#endif
    add_two_body(a, b, count);
}

static void add_to(float *restrict sum, const float *restrict more, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        sum[i] += more[i];
    }
}

/* Sum of all parts in order, stored into all of them; tile by tile, so that the sum stays in the cache. */
static void sum_slice(float *const *part, int parts, size_t first, size_t count)
{
    float sum[TILE];

    if (parts == 2) {
        add_two(part[0] + first, part[1] + first, count);
        return;
    }
    for (size_t done = 0; done < count; done += TILE) {
        const size_t at = first + done;
        const size_t n  = count - done < TILE ? count - done : TILE;

        memcpy(sum, part[0] + at, n * sizeof(float));
        for (int p = 1; p < parts; p++) {
            add_to(sum, part[p] + at, n);
        }
        for (int p = 0; p < parts; p++) {
            memcpy(part[p] + at, sum, n * sizeof(float));
        }
    }
}

/* Parts of at most this many floats go between machines, or through staging, at a time. */
static size_t segment_of(const ddp_comm_t *comm)
{
    return comm->machines > 1 ? DDP_ACROSS_COUNT : SEGMENT;
}

/* All parts hold their summands and all ranks of the machine know it. */
static ddp_status_t reduce_parts(ddp_comm_t *comm, float *const *part, size_t count)
{
    size_t first = 0;
    size_t n     = 0;

    if (comm->machines > 1) {
        return ddp_comm_reduce_across(comm, part, count);
    }
    ddp_partition(count, (size_t)comm->local_size, (size_t)comm->local_rank, &first, &n);
    sum_slice(part, comm->local_size, first, n);
    return DDP_OK;
}

static ddp_status_t reduce_in_place(ddp_comm_t *comm, float *const *part, size_t count)
{
    const size_t most = comm->machines > 1 ? DDP_ACROSS_COUNT : count;
    float       *at[MAX_LOCAL];
    ddp_status_t status = DDP_OK;

    for (size_t done = 0; done < count; done += most) {
        for (int l = 0; l < comm->local_size; l++) {
            at[l] = part[l] + done;
        }
        DDP_TRY(reduce_parts(comm, at, count - done < most ? count - done : most));
    }
    DDP_TRY(meet_in_hall(comm));
out:
    return status;
}

static ddp_status_t reduce_in_window(ddp_comm_t *comm, const ddp_window_t *window, size_t offset,
                                     size_t count)
{
    float *part[MAX_LOCAL];

    for (int l = 0; l < comm->local_size; l++) {
        part[l] = (float *)(void *)(window->memory + (size_t)l * window->part_bytes + offset);
    }
    return reduce_in_place(comm, part, count);
}

/* Memory that only this rank sees: through a staging window, segment by segment. */
static ddp_status_t reduce_staged(ddp_comm_t *comm, float *buffer, size_t count)
{
    const size_t stride = segment_of(comm); /* whole pages, so parts follow each other without gaps */
    float       *part[MAX_LOCAL];
    float       *first  = NULL;
    void        *mine   = NULL;
    ddp_status_t status = DDP_OK;

    if (comm->staging == NULL) {
        DDP_TRY(ddp_comm_shared_each(comm, "all-reduce staging", stride * sizeof(float), &mine));
        comm->staging = mine;
    }
    first = comm->staging - (size_t)comm->local_rank * stride;
    for (int l = 0; l < comm->local_size; l++) {
        part[l] = first + (size_t)l * stride;
    }
    for (size_t done = 0; done < count; done += stride) {
        const size_t n = count - done < stride ? count - done : stride;

        memcpy(comm->staging, buffer + done, n * sizeof(float));
        DDP_TRY(meet_in_hall(comm));
        DDP_TRY(reduce_parts(comm, part, n));
        DDP_TRY(meet_in_hall(comm));
        memcpy(buffer + done, comm->staging, n * sizeof(float));
    }
out:
    return status;
}

/* The machine's ranks tell each other what they gave. All come to the same answer. */
static ddp_status_t compare_arguments(ddp_comm_t *comm, size_t index, size_t offset, size_t count,
                                      bool *is_same_place_p)
{
    const ddp_star_t star   = ddp_comm_star_machine(comm);
    ddp_seat_t      *seat   = ddp_comm_seat(comm, comm->rank);
    ddp_status_t     status = DDP_OK;

    seat->window = index;
    seat->offset = offset;
    seat->count  = count;
    DDP_TRY(meet_in_hall(comm));
    *is_same_place_p = true;
    for (int r = star.first + 1; r < star.first + star.count; r++) {
        const ddp_seat_t *a = ddp_comm_seat(comm, star.first);
        const ddp_seat_t *b = ddp_comm_seat(comm, r);

        DDP_REQUIRE(a->count == b->count, DDP_ERR_MISMATCH,
                    "all-reduce of %llu elements on rank %d, of %llu on rank %d",
                    (unsigned long long)b->count, r, (unsigned long long)a->count, star.first);
        *is_same_place_p = *is_same_place_p && a->window == b->window && a->offset == b->offset;
    }
    *is_same_place_p = *is_same_place_p && ddp_comm_seat(comm, star.first)->window != (uint64_t)-1;
out:
    return status;
}

/* As kernels want it. The parts of a window are alike in this. */
static bool is_aligned(const float *buffer)
{
    return (uintptr_t)buffer % DDP_ALIGNMENT == 0;
}

ddp_status_t ddp_comm_allreduce_sum(ddp_comm_t *comm, float *buffer, size_t count)
{
    const ddp_window_t *window        = NULL;
    size_t              index         = (size_t)-1;
    size_t              offset        = 0;
    size_t              bytes         = 0;
    bool                is_same_place = false;
    ddp_status_t        status        = DDP_OK;

    DDP_REQUIRE(buffer != NULL || count == 0, DDP_ERR_INVALID_ARG, "all-reduce of a null buffer");
    DDP_REQUIRE(comm->local_size <= MAX_LOCAL, DDP_ERR_UNSUPPORTED,
                "all-reduce over more than %d ranks of one machine", MAX_LOCAL);
    DDP_TRY(ddp_mul_size(count, sizeof(float), "all-reduce", &bytes));
    if (comm->size == 1) {
        return DDP_OK;
    }
    if (comm->local_size == 1) {
        return is_aligned(buffer) ? reduce_in_place(comm, &buffer, count)
                                  : reduce_staged(comm, buffer, count);
    }
    window = ddp_comm_window_find(comm, buffer, bytes, &index, &offset);
    DDP_TRY(compare_arguments(comm, index, offset, count, &is_same_place));
    if (is_same_place && (comm->machines == 1 || is_aligned(buffer))) {
        DDP_TRY(reduce_in_window(comm, window, offset, count));
    } else {
        DDP_TRY(meet_in_hall(comm)); /* all have read the arguments */
        DDP_TRY(reduce_staged(comm, buffer, count));
    }
out:
    return status;
}

ddp_status_t ddp_comm_allreduce_sum_mpi(ddp_comm_t *comm, float *buffer, size_t count)
{
    ddp_status_t status = DDP_OK;
    int          n      = 0;

    DDP_REQUIRE(buffer != NULL || count == 0, DDP_ERR_INVALID_ARG, "all-reduce of a null buffer");
    DDP_TRY(ddp_to_int(count, "an all-reduce by MPI", &n));
    if (ddp_comm_data_mpi(comm) == MPI_COMM_NULL) {
        goto out; /* alone */
    }
    DDP_TRY_MPI(MPI_Allreduce(MPI_IN_PLACE, buffer, n, MPI_FLOAT, MPI_SUM, ddp_comm_data_mpi(comm)));
out:
    return status;
}
