/*
 * All-reduce in rank order. On one machine every rank sums one slice over all parts of the window and stores
 * it into all of them: no copy. Between machines ranks are machine-major, so the sum in rank order is a
 * chain: machine 0 sums its ranks, machine 1 adds its own to that, and so on; the result comes back the same
 * way. The order of additions, and so every bit, is the same however the ranks are spread over machines.
 */
#include <string.h>

#include "base/call.h"
#include "base/convert.h"
#include "ddp/comm.h"
#include "ddp/comm_internal.h"
#include "ddp/comm_state_internal.h"

/* Floats that go between machines, or through staging, at a time; a rank's share of it fits into a chunk. */
#define SEGMENT     ((size_t)DDP_CHUNK_BYTES / sizeof(float))
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

/* How many ranks of each machine take part in the exchange between machines: as many as the smallest has. */
static int count_channels(const ddp_comm_t *comm)
{
    int least = comm->local_size;

    for (int m = 0; m < comm->machines; m++) {
        const int size = ddp_comm_machine_size(comm, m);

        least = size < least ? size : least;
    }
    return least;
}

/* This rank's channel carries `count` floats at `first` of all local parts along the chain of machines. */
static ddp_status_t chain(ddp_comm_t *comm, float *const *part, size_t first, size_t count)
{
    float       *chunk  = (float *)(void *)comm->mail->chunk[0];
    const size_t bytes  = count * sizeof(float);
    const bool   has_up = comm->machine > 0;
    const bool   is_end = comm->machine == comm->machines - 1;
    const int    up     = has_up ? ddp_comm_machine_first(comm, comm->machine - 1) + comm->local_rank : -1;
    const int    down   = is_end ? -1 : ddp_comm_machine_first(comm, comm->machine + 1) + comm->local_rank;
    ddp_status_t status = DDP_OK;

    if (has_up) {
        DDP_TRY(ddp_comm_chunk_receive(comm, up, 0, bytes, WHAT_REDUCE));
    } else {
        memcpy(chunk, part[0] + first, bytes);
    }
    for (int p = has_up ? 0 : 1; p < comm->local_size; p++) {
        add_to(chunk, part[p] + first, count);
    }
    if (!is_end) {
        DDP_TRY(ddp_comm_chunk_send(comm, down, 0, bytes, WHAT_REDUCE));
        DDP_TRY(ddp_comm_chunk_receive(comm, down, 0, bytes, WHAT_REDUCE));
    }
    for (int p = 0; p < comm->local_size; p++) {
        memcpy(part[p] + first, chunk, bytes);
    }
    if (has_up) {
        DDP_TRY(ddp_comm_chunk_send(comm, up, 0, bytes, WHAT_REDUCE));
    }
    ddp_comm_progressed(comm);
out:
    return status;
}

/* All parts hold their summands and all ranks of the machine know it. */
static ddp_status_t reduce_parts(ddp_comm_t *comm, float *const *part, size_t count)
{
    const int    channels = count_channels(comm);
    size_t       first    = 0;
    size_t       n        = 0;
    ddp_status_t status   = DDP_OK;

    if (comm->machines == 1) {
        ddp_partition(count, (size_t)comm->local_size, (size_t)comm->local_rank, &first, &n);
        sum_slice(part, comm->local_size, first, n);
        return DDP_OK;
    }
    if (comm->local_rank >= channels) {
        return DDP_OK;
    }
    for (size_t done = 0; done < count; done += SEGMENT) { /* cut alike on all machines */
        const size_t left = count - done;

        ddp_partition(left < SEGMENT ? left : SEGMENT, (size_t)channels, (size_t)comm->local_rank, &first,
                      &n);
        if (n > 0) {
            DDP_TRY(chain(comm, part, done + first, n));
        }
    }
out:
    return status;
}

static ddp_status_t reduce_in_window(ddp_comm_t *comm, const ddp_window_t *window, size_t offset,
                                     size_t count)
{
    float       *part[MAX_LOCAL];
    ddp_status_t status = DDP_OK;

    for (int l = 0; l < comm->local_size; l++) {
        part[l] = (float *)(void *)(window->memory + (size_t)l * window->part_bytes + offset);
    }
    DDP_TRY(reduce_parts(comm, part, count));
    DDP_TRY(meet_in_hall(comm));
out:
    return status;
}

/* Memory that only this rank sees: through a staging window, segment by segment. */
static ddp_status_t reduce_staged(ddp_comm_t *comm, float *buffer, size_t count)
{
    const size_t stride = SEGMENT; /* a whole number of pages, so parts follow each other without gaps */
    float       *part[MAX_LOCAL];
    float       *first  = NULL;
    void        *mine   = NULL;
    ddp_status_t status = DDP_OK;

    if (comm->staging == NULL) {
        DDP_TRY(ddp_comm_shared_each(comm, "all-reduce staging", SEGMENT * sizeof(float), &mine));
        comm->staging = mine;
    }
    first = comm->staging - (size_t)comm->local_rank * stride;
    for (int l = 0; l < comm->local_size; l++) {
        part[l] = first + (size_t)l * stride;
    }
    for (size_t done = 0; done < count; done += SEGMENT) {
        const size_t n = count - done < SEGMENT ? count - done : SEGMENT;

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
        return reduce_parts(comm, &buffer, count);
    }
    window = ddp_comm_window_find(comm, buffer, bytes, &index, &offset);
    DDP_TRY(compare_arguments(comm, index, offset, count, &is_same_place));
    if (is_same_place) {
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
