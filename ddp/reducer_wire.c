/*
 * Between machines. The blocks of a bucket are cut among machines; the part of machine k is summed there. The
 * owner of a slice on one machine sends the partial sums (nodes) of its blocks that other machines sum, sums
 * its own share from everybody's nodes in tree order, and sends that total to whoever owns those blocks on
 * the other machines: reduce-scatter, then all-gather, among owners. Slices differ where machines have
 * different numbers of ranks, so both sides work from one plan of overlapping ranges.
 */
#include <stdlib.h>

#include "base/call.h"
#include "base/clock.h"
#include "base/convert.h"
#include "base/error.h"
#include "ddp/reducer_internal.h"

typedef struct range {
    size_t first, end; /* blocks from the start of the bucket */
} range_t;

static range_t cut(size_t blocks, int parts, int k)
{
    size_t first;
    size_t count;

    ddp_partition(blocks, (size_t)parts, (size_t)k, &first, &count);
    return (range_t){first, first + count};
}

static range_t overlap(range_t a, range_t b)
{
    range_t both = {a.first > b.first ? a.first : b.first, a.end < b.end ? a.end : b.end};

    if (both.end < both.first) {
        both.end = both.first;
    }
    return both;
}

/* Ranks of machine `m` whose slices overlap `wanted`, as parts; counts only if `parts` is NULL. */
static size_t list_parts(const ddp_reducer_t *r, const ddp_bucket_range_t *bucket, int m, range_t wanted,
                         ddp_part_t *parts)
{
    const size_t blocks = bucket->count / DDP_BLOCK;
    const int    size   = ddp_comm_machine_size(r->comm, m);
    size_t       n      = 0;

    for (int local = 0; local < size; local++) {
        const range_t both = overlap(wanted, cut(blocks, size, local));

        if (both.first == both.end) {
            continue;
        }
        if (parts != NULL) {
            parts[n] = (ddp_part_t){ddp_comm_machine_first(r->comm, m) + local, m,
                                    bucket->offset + both.first * DDP_BLOCK, both.end - both.first};
        }
        n++;
    }
    return n;
}

static size_t most_nodes(const ddp_reducer_t *r, int m)
{
    return r->host.machine_nodes[m] > 0 ? r->host.machine_nodes[m] : 1;
}

/* The blocks of a bucket that this rank sums for all machines. */
static range_t home_of(const ddp_reducer_t *r, const ddp_bucket_range_t *range)
{
    const size_t blocks = range->count / DDP_BLOCK;

    return overlap(cut(blocks, r->local_size, r->local_rank), cut(blocks, r->machines, r->machine));
}

size_t ddp_reducer_wire_floats(const ddp_reducer_t *r, const ddp_bucket_range_t *range)
{
    const range_t home   = home_of(r, range);
    size_t        others = 0;

    for (int m = 0; m < r->machines; m++) {
        others += m == r->machine ? 0 : most_nodes(r, m);
    }
    return others * (home.end - home.first) * DDP_BLOCK;
}

static ddp_status_t plan_bucket(ddp_reducer_t *r, ddp_bucket_t *bucket)
{
    ddp_status_t              status = DDP_OK;
    ddp_wire_t               *wire   = &bucket->wire;
    const ddp_bucket_range_t *range  = &bucket->range;
    const size_t              blocks = range->count / DDP_BLOCK;
    const range_t             slice  = cut(blocks, r->local_size, r->local_rank);
    const range_t             home   = home_of(r, range);
    size_t                    most   = 1;
    int                       count  = 0;

    DDP_TRY(ddp_to_int(range->count, "floats in a bucket", &count));
    wire->home_offset = range->offset + home.first * DDP_BLOCK;
    wire->home_blocks = home.end - home.first;
    wire->away        = calloc((size_t)r->size, sizeof(*wire->away));
    wire->home        = calloc((size_t)r->size, sizeof(*wire->home));
    DDP_REQUIRE(wire->away != NULL && wire->home != NULL, DDP_ERR_NO_MEMORY,
                "no memory for the exchange plan");
    for (int m = 0; m < r->machines; m++) {
        if (m == r->machine) {
            continue;
        }
        wire->n_away +=
            list_parts(r, range, m, overlap(slice, cut(blocks, r->machines, m)), wire->away + wire->n_away);
        wire->n_home += list_parts(r, range, m, home, wire->home + wire->n_home);
        most = most_nodes(r, m) > most ? most_nodes(r, m) : most;
    }
    most               = most_nodes(r, r->machine) > most ? most_nodes(r, r->machine) : most;
    wire->requests     = calloc((wire->n_away + wire->n_home) * most + 1, sizeof(MPI_Request));
    wire->request_peer = calloc((wire->n_away + wire->n_home) * most + 1, sizeof(int));
    wire->received     = calloc(ddp_reducer_wire_floats(r, range) + 1, sizeof(float));
    DDP_REQUIRE(wire->requests != NULL && wire->request_peer != NULL && wire->received != NULL,
                DDP_ERR_NO_MEMORY, "no memory for partial sums of other machines");
out:
    return status;
}

ddp_status_t ddp_reducer_wire_create(ddp_reducer_t *r)
{
    ddp_status_t status = DDP_OK;

    if (r->machines == 1) {
        return DDP_OK;
    }
    DDP_TRY(ddp_stream_create(r->device, "wire", &r->host.wire));
    for (size_t b = 0; b < r->n_buckets; b++) {
        DDP_TRY(plan_bucket(r, &r->buckets[b]));
    }
out:
    return status;
}

void ddp_reducer_wire_destroy(ddp_reducer_t *r)
{
    for (size_t b = 0; r->buckets != NULL && b < r->n_buckets; b++) {
        ddp_wire_t *wire = &r->buckets[b].wire;

        free(wire->away);
        free(wire->home);
        free(wire->request_peer);
        /* After an error messages may still be on their way: memory that MPI writes to must not go back to
         * the heap. */
        if (r->state == DDP_REDUCER_IDLE) {
            free(wire->received);
            free(wire->requests);
        }
    }
}

ddp_status_t ddp_reducer_test(ddp_reducer_t *r, MPI_Request *requests, const int *peers, int n,
                              const char *what, size_t bucket)
{
    ddp_status_t status = DDP_OK;
    int          done   = 0;

    for (int i = 0; i < n; i++) {
        DDP_TRY_MPI(MPI_Test(&requests[i], &done, MPI_STATUS_IGNORE));
        if (!done) {
            ddp_comm_waiting(r->comm, (ddp_wait_t){peers[i], what, r->step, bucket});
            return DDP_IN_PROGRESS;
        }
    }
out:
    return status;
}

static ddp_status_t post(ddp_reducer_t *r, ddp_wire_t *wire, bool send, float *data, const ddp_part_t *part,
                         int tag)
{
    ddp_status_t status  = DDP_OK;
    MPI_Comm     mpi     = ddp_comm_data_mpi(r->comm);
    const int    count   = (int)(part->blocks * DDP_BLOCK);
    MPI_Request *request = &wire->requests[wire->n_requests];

    wire->request_peer[wire->n_requests++] = part->peer;
    if (send) {
        DDP_TRY_MPI(MPI_Isend(data, count, MPI_FLOAT, part->peer, tag, mpi, request));
    } else {
        DDP_TRY_MPI(MPI_Irecv(data, count, MPI_FLOAT, part->peer, tag, mpi, request));
    }
out:
    return status;
}

/* Where node `k` of machine `m` lies for the part this rank reduces. */
static float *node_data(const ddp_reducer_t *r, const ddp_wire_t *wire, int m, size_t k)
{
    size_t before = 0;

    if (m == r->machine) {
        return r->host.sources[r->host.local[k].first_source].writable + wire->home_offset;
    }
    for (int other = 0; other < m; other++) {
        before += other == r->machine ? 0 : most_nodes(r, other);
    }
    return wire->received + (before + k) * wire->home_blocks * DDP_BLOCK;
}

ddp_status_t ddp_reducer_wire_start(ddp_reducer_t *r, size_t bucket)
{
    ddp_status_t status = DDP_OK;
    ddp_wire_t  *wire   = &r->buckets[bucket].wire;
    const int    tag    = (int)(2 * bucket);

    wire->n_requests = 0;
    wire->stage      = 0;
    for (size_t i = 0; i < wire->n_home; i++) {
        const ddp_part_t *part = &wire->home[i];

        for (size_t k = 0; k < r->host.machine_nodes[part->machine]; k++) {
            float *at = node_data(r, wire, part->machine, k) + (part->offset - wire->home_offset);

            DDP_TRY(post(r, wire, false, at, part, tag));
        }
    }
    for (size_t i = 0; i < wire->n_away; i++) {
        for (size_t k = 0; k < r->host.n_local; k++) {
            float *at = r->host.sources[r->host.local[k].first_source].writable + wire->away[i].offset;

            DDP_TRY(post(r, wire, true, at, &wire->away[i], tag));
        }
    }
out:
    return status;
}

/* Sum this rank's share from the nodes of all machines, and send the total to those who own it elsewhere. */
static ddp_status_t sum_and_send(ddp_reducer_t *r, ddp_wire_t *wire, int tag)
{
    ddp_status_t       status = DDP_OK;
    size_t             n      = 0;
    ddp_tree_program_t program;

    for (int m = 0; m < r->machines; m++) {
        for (size_t k = 0; k < r->host.machine_nodes[m]; k++) {
            r->host.source_pointer[n++] = node_data(r, wire, m, k);
        }
    }
    program = (ddp_tree_program_t){r->host.across.op, r->host.across.length, r->host.source_pointer, NULL};
    ddp_tree_sum(r->host.isa, &program, r->host.total_base + wire->home_offset, wire->home_blocks);
    wire->n_requests = 0;
    for (size_t i = 0; i < wire->n_away; i++) {
        DDP_TRY(post(r, wire, false, r->host.total_base + wire->away[i].offset, &wire->away[i], tag));
    }
    for (size_t i = 0; i < wire->n_home; i++) {
        DDP_TRY(post(r, wire, true, r->host.total_base + wire->home[i].offset, &wire->home[i], tag));
    }
out:
    return status;
}

ddp_status_t ddp_reducer_wire_work(void *args)
{
    ddp_status_t             status = DDP_OK;
    const ddp_bucket_args_t *a      = args;
    ddp_reducer_t           *r      = a->reducer;
    ddp_bucket_t            *bucket = &r->buckets[a->bucket];
    ddp_wire_t              *wire   = &bucket->wire;
    int64_t                  start;

    if (wire->stage == 0) {
        DDP_TRY(ddp_reducer_test(r, wire->requests, wire->request_peer, wire->n_requests, "partial sums",
                                 a->bucket));
        start = ddp_clock_ns();
        DDP_TRY(sum_and_send(r, wire, (int)(2 * a->bucket + 1)));
        wire->stage = 1;
        r->comm_ns += ddp_clock_ns() - start;
    }
    DDP_TRY(ddp_reducer_test(r, wire->requests, wire->request_peer, wire->n_requests, "totals", a->bucket));
    start = ddp_clock_ns();
    ddp_reducer_bucket_total(r, bucket);
    bucket->done_ns = ddp_clock_ns();
    r->comm_ns += bucket->done_ns - start;
out:
    return status;
}
