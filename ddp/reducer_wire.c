/*
 * Between machines. What this machine has of a bucket goes through an exchange (ddp/exchange_internal.h) with
 * the owners of the same blocks elsewhere; `measured` chooses the kind at start, by the bucket's size and the
 * link. The exact sum keeps the tree, which direct alone can.
 */
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "ddp/reducer_internal.h"

/* A short step has no more nodes on any machine than a full one. */
static ddp_exchange_params_t exchange_params(const ddp_reducer_t *r, const ddp_bucket_range_t *range,
                                             ddp_exchange_kind_t kind, size_t b)
{
    return (ddp_exchange_params_t){
        .comm       = r->comm,
        .kind       = kind,
        .blocks     = range->count / DDP_BLOCK,
        .most_nodes = r->host.machine_nodes,
        .bf16       = r->params.wire == DDP_WIRE_BF16,
        .first_tag  = (int)b * DDP_EXCHANGE_TAGS,
    };
}

static bool is_always_direct(const ddp_reducer_t *r)
{
    return r->params.reduction == DDP_REDUCTION_EXACT || r->params.exchange == DDP_EXCHANGE_AUTO;
}

static ddp_exchange_kind_t choose(const ddp_reducer_t *r, const ddp_bucket_range_t *range)
{
    ddp_link_work_t work = {
        .machines = r->machines, .ranks = r->local_size, .bytes = (double)(range->count * sizeof(float))};

    if (is_always_direct(r)) {
        return DDP_EXCHANGE_DIRECT;
    }
    if (r->params.exchange != DDP_EXCHANGE_MEASURED) {
        return r->params.exchange;
    }
    for (int m = 0; m < r->machines; m++) { /* the same choice on all */
        const int size = ddp_comm_machine_size(r->comm, m);

        work.ranks = size < work.ranks ? size : work.ranks;
    }
    work.segments = (int)ddp_exchange_segments(DDP_EXCHANGE_DIRECT, r->machines, range->count / DDP_BLOCK);
    return ddp_link_choose(&r->host.link, &work);
}

size_t ddp_reducer_wire_bytes(const ddp_reducer_t *r, const ddp_bucket_range_t *range)
{
    static const ddp_exchange_kind_t kinds[] = {DDP_EXCHANGE_DIRECT, DDP_EXCHANGE_RING, DDP_EXCHANGE_HALVING};
    size_t                           most    = 0;

    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) { /* the link may not be known yet */
        const bool                  may_be = is_always_direct(r) ? kinds[k] == DDP_EXCHANGE_DIRECT
                                                                 : r->params.exchange == DDP_EXCHANGE_MEASURED ||
                                                      r->params.exchange == kinds[k];
        const ddp_exchange_params_t params = exchange_params(r, range, kinds[k], 0);
        const size_t                bytes  = may_be ? ddp_exchange_bytes(&params) : 0;

        most = bytes > most ? bytes : most;
    }
    return most;
}

ddp_status_t ddp_reducer_wire_measure(ddp_reducer_t *r)
{
    ddp_status_t status = DDP_OK;

    if (r->machines == 1 || is_always_direct(r) || r->params.exchange != DDP_EXCHANGE_MEASURED) {
        return DDP_OK;
    }
    DDP_TRY(ddp_comm_link(r->comm, &r->host.link));
    r->host.has_link = true;
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
        ddp_bucket_t               *bucket = &r->buckets[b];
        const ddp_exchange_params_t params = exchange_params(r, &bucket->range, choose(r, &bucket->range), b);

        DDP_TRY(ddp_exchange_create(&params, &bucket->exchange));
    }
out:
    return status;
}

void ddp_reducer_wire_destroy(ddp_reducer_t *r)
{
    for (size_t b = 0; r->buckets != NULL && b < r->n_buckets; b++) {
        ddp_exchange_destroy(&r->buckets[b].exchange, r->state != DDP_REDUCER_IDLE);
    }
}

ddp_status_t ddp_reducer_wire_start(ddp_reducer_t *r, size_t b)
{
    ddp_bucket_t *bucket = &r->buckets[b];
    float        *node[2 * DDP_MAX_NODES];
    ddp_status_t  status = DDP_OK;

    for (size_t k = 0; k < r->host.n_local; k++) {
        node[k] = r->host.sources[r->host.local[k].first_source].writable + bucket->range.offset;
    }
    bucket->is_on_wire = true;
    DDP_TRY(ddp_exchange_start(bucket->exchange, &(ddp_exchange_data_t){
                                                     .isa       = r->host.isa,
                                                     .node      = node,
                                                     .nodes     = r->host.machine_nodes,
                                                     .op        = r->host.across.op,
                                                     .op_length = r->host.across.length,
                                                     .total     = r->host.total_base + bucket->range.offset,
                                                     .wait      = {.step = r->step, .bucket = b},
                                                 }));
out:
    return status;
}

void ddp_reducer_wire_opened(ddp_reducer_t *r, int64_t now_ns)
{
    if (r->host.n_on_wire++ == 0) {
        r->host.on_wire_ns = now_ns;
    }
}

static void closed(ddp_reducer_t *r, int64_t now_ns)
{
    if (--r->host.n_on_wire == 0) {
        r->comm_ns += now_ns - r->host.on_wire_ns;
    }
}

int64_t ddp_reducer_comm_until(const ddp_reducer_t *r, int64_t now_ns)
{
    return r->comm_ns + (r->host.n_on_wire > 0 ? now_ns - r->host.on_wire_ns : 0);
}

/* All that is under way goes on, not only what is at the head of the stream. */
static ddp_status_t poll_others(ddp_reducer_t *r, size_t b)
{
    ddp_status_t status = DDP_OK;

    for (size_t other = 0; other < r->n_buckets; other++) {
        if (other == b || !r->buckets[other].is_on_wire) {
            continue;
        }
        status = ddp_exchange_poll(r->buckets[other].exchange);
        if (status == DDP_OK) {
            r->buckets[other].is_on_wire = false;
        } else if (status != DDP_IN_PROGRESS) {
            return status;
        }
    }
    return DDP_OK;
}

ddp_status_t ddp_reducer_wire_work(void *args)
{
    ddp_status_t             status = DDP_OK;
    const ddp_bucket_args_t *a      = args;
    ddp_reducer_t           *r      = a->reducer;
    ddp_bucket_t            *bucket = &r->buckets[a->bucket];

    DDP_TRY(poll_others(r, a->bucket));
    if (bucket->is_on_wire) {
        DDP_TRY(ddp_exchange_poll(bucket->exchange)); /* also DDP_IN_PROGRESS */
        bucket->is_on_wire = false;
    }
    ddp_reducer_bucket_total(r, bucket);
    bucket->done_ns = ddp_clock_ns();
    closed(r, bucket->done_ns);
out:
    return status;
}

uint64_t ddp_reducer_wire_take_overflows(ddp_reducer_t *r)
{
    uint64_t overflows = 0;

    for (size_t b = 0; r->machines > 1 && b < r->n_buckets; b++) {
        overflows += ddp_exchange_take_overflows(r->buckets[b].exchange);
    }
    return overflows;
}
