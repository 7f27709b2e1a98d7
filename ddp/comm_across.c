/*
 * All-reduce between machines: each rank adds its slice of all local parts up, exchanges that with the owners
 * of the same blocks elsewhere, and hands the sum to all local parts. What does not fill a block goes in one
 * of its own.
 */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "ddp/comm_state_internal.h"
#include "ddp/exchange_internal.h"

/* Of the exchanges that are kept: of a whole piece, of a shorter one, of one block. */
enum { WHOLE, SHORT, REST };

static ddp_status_t choose(ddp_comm_t *comm, size_t blocks, ddp_exchange_kind_t *kind_p)
{
    ddp_status_t    status = DDP_OK;
    ddp_link_work_t work   = {.machines = comm->machines,
                              .ranks    = 1,
                              .bytes    = (double)(blocks * DDP_BLOCK * sizeof(float)),
                              .nodes    = 1};
    ddp_link_t      link;

    if (comm->across_kind != DDP_EXCHANGE_MEASURED) {
        *kind_p = comm->across_kind == DDP_EXCHANGE_AUTO ? DDP_EXCHANGE_DIRECT : comm->across_kind;
        return DDP_OK;
    }
    DDP_TRY(ddp_comm_link(comm, &link));
    work.segments = (int)ddp_exchange_segments(DDP_EXCHANGE_DIRECT, comm->machines, blocks);
    *kind_p       = ddp_link_choose(&link, &work);
    ddp_log(DDP_LOG_DEBUG, "all-reduce of %.0f bytes between machines: %s", work.bytes,
            ddp_exchange_name(*kind_p));
out:
    return status;
}

/* The exchange for so many blocks, kept for the next call. */
static ddp_status_t exchange_of(ddp_comm_t *comm, int which, size_t blocks)
{
    ddp_status_t          status = DDP_OK;
    ddp_exchange_params_t params = {
        .comm = comm, .blocks = blocks, .first_tag = which == REST ? DDP_EXCHANGE_TAGS : 0};

    if (comm->exchange[which] != NULL && comm->exchange_blocks[which] == blocks) {
        return DDP_OK;
    }
    ddp_exchange_destroy(&comm->exchange[which], false);
    DDP_TRY(choose(comm, blocks, &params.kind));
    DDP_TRY(ddp_exchange_create(&params, &comm->exchange[which]));
    comm->exchange_blocks[which] = blocks;
out:
    return status;
}

static ddp_status_t make_tables(ddp_comm_t *comm)
{
    ddp_status_t status = DDP_OK;

    if (comm->across_rest != NULL) {
        return DDP_OK;
    }
    free(comm->across_nodes); /* of a call that found no memory for all three */
    free(comm->across_op);
    comm->across_nodes = calloc((size_t)comm->machines, sizeof(*comm->across_nodes));
    comm->across_op    = calloc(2 * (size_t)comm->machines, sizeof(*comm->across_op));
    if (comm->across_nodes != NULL &&
        comm->across_op != NULL) { /* the last, as it tells that all are there */
        comm->across_rest = aligned_alloc(DDP_ALIGNMENT, DDP_BLOCK * sizeof(float));
    }
    DDP_REQUIRE(comm->across_rest != NULL, DDP_ERR_NO_MEMORY, "no memory for an all-reduce between machines");
    for (int m = 0; m < comm->machines; m++) { /* ((m0 + m1) + m2) ... */
        comm->across_nodes[m]                   = 1;
        comm->across_op[m == 0 ? 0 : 2 * m - 1] = m;
        if (m > 0) {
            comm->across_op[2 * m] = DDP_TREE_ADD;
        }
    }
out:
    return status;
}

static ddp_status_t start(ddp_comm_t *comm, ddp_exchange_t *x, float *data)
{
    return ddp_exchange_start(x, &(ddp_exchange_data_t){.isa       = ddp_isa_detect(),
                                                        .node      = &data,
                                                        .nodes     = comm->across_nodes,
                                                        .op        = comm->across_op,
                                                        .op_length = 2 * (size_t)comm->machines - 1,
                                                        .total     = data,
                                                        .wait      = {.bucket = (size_t)-1}});
}

/* Both exchanges, either of which may be NULL. */
static ddp_status_t poll_both(ddp_exchange_t *blocks, ddp_exchange_t *rest)
{
    const ddp_status_t first  = blocks != NULL ? ddp_exchange_poll(blocks) : DDP_OK;
    ddp_status_t       second = DDP_OK;

    if (first != DDP_OK && first != DDP_IN_PROGRESS) {
        return first;
    }
    second = rest != NULL ? ddp_exchange_poll(rest) : DDP_OK;
    return second != DDP_OK ? second : first;
}

static ddp_status_t run(ddp_comm_t *comm, float *data, ddp_exchange_t *blocks, ddp_exchange_t *rest)
{
    const int64_t begin  = ddp_clock_ns();
    int64_t       waited = 0;
    ddp_status_t  status = DDP_OK;

    comm->is_exchanging = true; /* until all messages are done: see ddp_comm_across_destroy() */
    if (blocks != NULL) {
        DDP_TRY(start(comm, blocks, data));
    }
    if (rest != NULL) {
        DDP_TRY(start(comm, rest, comm->across_rest));
    }
    while ((status = poll_both(blocks, rest)) == DDP_IN_PROGRESS) {
        DDP_TRY(ddp_comm_idle(comm, waited));
        waited = ddp_clock_ns() - begin;
    }
    DDP_TRY(status);
    ddp_comm_publish_wait(comm, -1);
    comm->is_exchanging = false;
out:
    return status;
}

static void add(float *restrict sum, const float *restrict more, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        sum[i] += more[i];
    }
}

static void add_parts(float *sum, float *const *part, int parts, size_t first, size_t count)
{
    for (int p = 1; p < parts; p++) {
        add(sum, part[p] + first, count);
    }
}

/* Sum of this rank's slice, and of the rest on the first rank, with all others of the machine. */
ddp_status_t ddp_comm_reduce_across(ddp_comm_t *comm, float *const *part, size_t count)
{
    const size_t       blocks = count / DDP_BLOCK;
    const size_t       whole  = blocks * DDP_BLOCK;
    const size_t       rest   = comm->local_rank == 0 ? count - whole : 0;
    const int          parts  = comm->local_size;
    const ddp_blocks_t slice  = ddp_blocks_cut((ddp_blocks_t){0, blocks}, parts, comm->local_rank);
    const size_t       first  = slice.first * DDP_BLOCK;
    const size_t       floats = (slice.end - slice.first) * DDP_BLOCK;
    const int          which  = count == DDP_ACROSS_COUNT ? WHOLE : SHORT;
    ddp_status_t       status = DDP_OK;

    DDP_TRY(make_tables(comm));
    if (blocks > 0) {
        DDP_TRY(exchange_of(comm, which, blocks));
        add_parts(part[0] + first, part, parts, first, floats);
    }
    if (count > whole) {
        DDP_TRY(exchange_of(comm, REST, 1));
    }
    memset(comm->across_rest, 0, DDP_BLOCK * sizeof(float));
    memcpy(comm->across_rest, part[0] + whole, rest * sizeof(float));
    add_parts(comm->across_rest, part, parts, whole, rest);
    DDP_TRY(run(comm, part[0], blocks > 0 ? comm->exchange[which] : NULL,
                count > whole ? comm->exchange[REST] : NULL));
    for (int p = 0; p < parts; p++) {
        if (p > 0 && floats > 0) {
            memcpy(part[p] + first, part[0] + first, floats * sizeof(float));
        }
        memcpy(part[p] + whole, comm->across_rest, rest * sizeof(float));
    }
out:
    return status;
}

void ddp_comm_across_destroy(ddp_comm_t *comm)
{
    for (int i = 0; i < DDP_ACROSS_EXCHANGES; i++) {
        ddp_exchange_destroy(&comm->exchange[i], comm->is_exchanging);
    }
    free(comm->across_nodes);
    free(comm->across_op);
    if (!comm->is_exchanging) {
        free(comm->across_rest);
    }
}
