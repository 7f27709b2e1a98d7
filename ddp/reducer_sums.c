/*
 * The small vector of a step: loss and weight sums of every micro-batch, the used flags of every tensor, and
 * what the ranks ask of each other. Each rank writes its entries into the machine's table; between machines
 * the first rank of each (its leader) exchanges them. It is complete before any update of the step: the
 * update needs the weight to divide by, and must not happen if a loss is not finite.
 */
#include <math.h>
#include <string.h>

#include "base/call.h"
#include "base/clock.h"
#include "base/convert.h"
#include "base/error.h"
#include "ddp/reducer_internal.h"

ddp_status_t ddp_reducer_leaf_work(void *args)
{
    const ddp_leaf_args_t *a = args;

    a->reducer->leaves[a->leaf] = *a->stats;
    return DDP_OK;
}

/* Micro-batches of a machine: contiguous, because ranks are numbered machine by machine. */
static void machine_leaves(const ddp_reducer_t *r, int machine, size_t *first_p, size_t *count_p)
{
    const int low  = ddp_comm_machine_first(r->comm, machine);
    const int high = low + ddp_comm_machine_size(r->comm, machine) - 1;
    size_t    last;
    size_t    count;

    ddp_partition(r->params.micro_batches, (size_t)r->size, (size_t)low, first_p, &count);
    ddp_partition(r->params.micro_batches, (size_t)r->size, (size_t)high, &last, &count);
    *count_p = last + count - *first_p;
}

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static uint64_t local_overflows(const ddp_reducer_t *r)
{
    uint64_t overflows = 0;

    for (int local = 0; local < r->local_size; local++) {
        overflows += r->host.overflows[local];
    }
    return overflows;
}

static uint32_t local_request(const ddp_reducer_t *r)
{
    uint32_t request = 0;

    for (int local = 0; local < r->local_size; local++) {
        request = larger(request, r->host.requests[local]);
    }
    return request;
}

/* Message of a machine: head, its leaves, its used flags. Only the first machine's lr counts. */
static size_t pack(const ddp_reducer_t *r, uint8_t *message)
{
    const size_t          n = r->params.n_tensors;
    size_t                first;
    size_t                count;
    uint8_t              *used;
    const ddp_sums_head_t head = {local_overflows(r), *r->host.lr, local_request(r)};

    machine_leaves(r, r->machine, &first, &count);
    memcpy(message, &head, sizeof(head));
    memcpy(message + sizeof(head), r->leaves + first, count * sizeof(ddp_leaf_t));
    used = message + sizeof(head) + count * sizeof(ddp_leaf_t);
    memset(used, 0, n);
    for (int local = 0; local < r->local_size; local++) {
        for (size_t i = 0; i < n; i++) {
            used[i] |= r->host.used_rank[(size_t)local * n + i];
        }
    }
    return (size_t)(used - message) + n;
}

static void unpack(ddp_reducer_t *r, int machine, const uint8_t *message)
{
    const uint8_t  *used;
    ddp_sums_head_t head;
    size_t          first;
    size_t          count;

    machine_leaves(r, machine, &first, &count);
    memcpy(&head, message, sizeof(head));
    if (machine == 0) {
        *r->host.lr = head.lr;
    }
    *r->host.request_others = larger(*r->host.request_others, head.request);
    *r->host.overflow_others += head.overflows;
    memcpy(r->leaves + first, message + sizeof(head), count * sizeof(ddp_leaf_t));
    used = message + sizeof(head) + count * sizeof(ddp_leaf_t);
    for (size_t i = 0; i < r->params.n_tensors; i++) {
        r->host.used_others[i] |= used[i];
    }
}

/* Tags of the data plane: those of each bucket, then this one. */
static ddp_status_t start_exchange(ddp_reducer_t *r)
{
    ddp_status_t status = DDP_OK;
    MPI_Comm     mpi    = ddp_comm_data_mpi(r->comm);
    const int    tag    = (int)r->n_buckets * DDP_EXCHANGE_TAGS;
    int          bytes  = 0;
    int          most   = 0;

    DDP_TRY(ddp_to_int(pack(r, r->host.sums_send), "sums of a step", &bytes));
    DDP_TRY(ddp_to_int(r->host.sums_bytes, "sums of a step", &most));
    memset(r->host.used_others, 0, r->params.n_tensors);
    *r->host.request_others  = 0;
    *r->host.overflow_others = 0;
    r->host.n_sums_requests  = 0;
    for (int m = 0; m < r->machines; m++) {
        const int leader = ddp_comm_machine_first(r->comm, m);

        if (m == r->machine) {
            continue;
        }
        r->host.sums_peer[r->host.n_sums_requests]     = leader;
        r->host.sums_peer[r->host.n_sums_requests + 1] = leader;
        DDP_TRY_MPI(MPI_Irecv(r->host.sums_received + (size_t)m * r->host.sums_bytes, most, MPI_BYTE, leader,
                              tag, mpi, &r->host.sums_requests[r->host.n_sums_requests++]));
        DDP_TRY_MPI(MPI_Isend(r->host.sums_send, bytes, MPI_BYTE, leader, tag, mpi,
                              &r->host.sums_requests[r->host.n_sums_requests++]));
    }
out:
    return status;
}

/* Leader: exchange with the other leaders once this machine's ranks are done. */
static ddp_status_t exchange(ddp_reducer_t *r)
{
    ddp_status_t status = DDP_OK;

    if (r->host.sums_stage == 0) {
        DDP_TRY(start_exchange(r));
        r->host.sums_stage = 1;
    }
    if (r->host.sums_stage == 1) {
        DDP_TRY(ddp_comm_test_messages(r->comm, r->host.sums_requests, r->host.sums_peer,
                                       r->host.n_sums_requests,
                                       (ddp_wait_t){0, "sums of its forward", r->step, (size_t)-1}));
        for (int m = 0; m < r->machines; m++) {
            if (m != r->machine) {
                unpack(r, m, r->host.sums_received + (size_t)m * r->host.sums_bytes);
            }
        }
        r->host.sums_stage = 2;
        ddp_comm_flag_set(r->comm, r->host.sums_flag, r->step);
    }
out:
    return status;
}

static ddp_status_t wait_forwards(ddp_reducer_t *r)
{
    const int first = ddp_comm_machine_first(r->comm, r->machine);

    for (int local = 0; local < r->local_size; local++) {
        if (!ddp_comm_flag_reached(&r->host.forward_flag[local], r->step)) {
            ddp_comm_waiting(r->comm, (ddp_wait_t){first + local, "forward pass", r->step, (size_t)-1});
            return DDP_IN_PROGRESS;
        }
    }
    return DDP_OK;
}

/* PyTorch DDP's mean of means: a rank's gradient counts 1 / (ranks * its own weight). */
static void scale_sources(ddp_reducer_t *r)
{
    for (size_t s = 0; s < r->host.n_sources; s++) {
        double weight = 0;
        size_t first;
        size_t count;

        ddp_partition(r->params.micro_batches, (size_t)r->size, (size_t)r->host.sources[s].rank, &first,
                      &count);
        for (size_t v = first; v < first + count && v < r->present; v++) {
            weight += r->leaves[v].weight;
        }
        r->host.source_scale[s] =
            weight > 0 ? (float)(1.0 / (r->size * weight * (double)r->loss_scale.scale)) : 0.0F;
    }
}

static void add_up(ddp_reducer_t *r)
{
    ddp_sums_t  *sums = &r->sums;
    const size_t n    = r->params.n_tensors;

    *sums             = (ddp_sums_t){.lr        = *r->host.lr,
                                     .request   = larger(local_request(r), r->machines > 1 ? *r->host.request_others : 0),
                                     .grad_norm = (double)NAN,
                                     .broken    = DDP_NO_TENSOR};
    r->wire_overflows = local_overflows(r) + (r->machines > 1 ? *r->host.overflow_others : 0);
    for (size_t v = 0; v < r->present; v++) {
        sums->loss += r->leaves[v].loss;
        sums->weight += r->leaves[v].weight;
        sums->correct += r->leaves[v].correct;
        sums->counted += r->leaves[v].counted;
    }
    sums->finite = isfinite(sums->loss) && isfinite(sums->weight);
    sums->update = sums->finite && sums->weight > 0;
    if (r->params.average == DDP_AVERAGE_RANKS) {
        scale_sources(r);
        sums->grad_scale = 1.0F;
    } else {
        sums->grad_scale = sums->update ? (float)(1.0 / (sums->weight * (double)r->loss_scale.scale)) : 0.0F;
    }
    for (size_t i = 0; i < n; i++) {
        r->used_any[i] = r->machines > 1 ? r->host.used_others[i] : 0;
        for (int local = 0; local < r->local_size; local++) {
            r->used_any[i] |= r->host.used_rank[(size_t)local * n + i];
        }
    }
}

ddp_status_t ddp_reducer_sums_work(void *args)
{
    ddp_status_t   status = DDP_OK;
    ddp_reducer_t *r      = *(ddp_reducer_t **)args;
    const int      leader = ddp_comm_machine_first(r->comm, r->machine);

    if (!ddp_comm_flag_reached(&r->host.forward_flag[r->local_rank], r->step)) {
        if (r->rank == 0) {
            *r->host.lr = r->sums.lr;
        }
        r->host.requests[r->local_rank]  = r->sums.request;
        r->host.overflows[r->local_rank] = ddp_reducer_wire_take_overflows(r);
        ddp_comm_flag_set(r->comm, &r->host.forward_flag[r->local_rank], r->step);
    }
    if (r->machines == 1 || r->local_rank == 0) {
        DDP_TRY(wait_forwards(r));
    }
    if (r->machines > 1 && r->local_rank == 0) {
        DDP_TRY(exchange(r));
    }
    if (r->machines > 1 && !ddp_comm_flag_reached(r->host.sums_flag, r->step)) {
        ddp_comm_waiting(r->comm, (ddp_wait_t){leader, "sums of all machines", r->step, (size_t)-1});
        return DDP_IN_PROGRESS;
    }
    add_up(r);
out:
    return status;
}
