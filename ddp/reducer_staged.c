/*
 * The `host` path with a device that has memory of its own. Gradients are written, and merged over this
 * rank's micro-batches, on the device; final buckets are copied to this rank's arenas in the machine's shared
 * memory, where the host path sums and updates as ever: the same bits as with a cpu device, for the same
 * gradients. Before the next forward the parameters are copied back.
 *
 * The host path's work runs on a cpu device of its own. It cannot wait for an event of the other device, so a
 * piece of work asks for it again and again. Both directions are guarded: step_begin waits for "consumed" of
 * all owners before anything of a step is submitted, which is before gradients come to the arenas again; and
 * no owner updates before each rank's bucket has come, which on its compute stream is after the copy of the
 * parameters.
 */
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "ddp/reducer_path_internal.h"

/* Lowest of all ranks: they work on the same sums. */
static ddp_status_t agree_on_isa(ddp_reducer_t *r, ddp_isa_t *isa_p)
{
    ddp_status_t    status = DDP_OK;
    const ddp_isa_t mine   = ddp_isa_detect();
    ddp_isa_t      *all    = calloc((size_t)r->size, sizeof(*all));

    DDP_TRY(ddp_comm_agree(r->comm, all != NULL ? DDP_OK : ddp_fail(DDP_ERR_NO_MEMORY, "no memory")));
    DDP_TRY(ddp_comm_allgather(r->comm, &mine, sizeof(mine), all));
    *isa_p = mine;
    for (int rank = 0; rank < r->size; rank++) {
        *isa_p = all[rank] < *isa_p ? all[rank] : *isa_p;
    }
out:
    free(all);
    return status;
}

static ddp_status_t make_host(ddp_reducer_t *r, ddp_isa_t isa)
{
    ddp_status_t        status = DDP_OK;
    ddp_device_params_t params = DDP_DEVICE_PARAMS_INIT;

    params.isa  = isa;
    params.name = "host";
    DDP_TRY(ddp_device_create(&params, &r->staged.host));
    ddp_comm_attach(r->comm, r->staged.gpu); /* its waits */
    ddp_comm_attach(r->comm, r->staged.host);
    r->device = r->staged.host;
    DDP_TRY(ddp_stream_create(r->staged.host, "watch", &r->staged.watch));
out:
    return status;
}

static ddp_status_t make_events(ddp_reducer_t *r)
{
    ddp_status_t status = DDP_OK;

    r->staged.copied = calloc(r->n_buckets, sizeof(ddp_event_t *));
    DDP_REQUIRE(r->staged.copied != NULL, DDP_ERR_NO_MEMORY, "no memory for %zu buckets", r->n_buckets);
    for (size_t b = 0; b < r->n_buckets; b++) {
        DDP_TRY(ddp_event_create(r->staged.gpu, &r->staged.copied[b]));
    }
    DDP_TRY(ddp_event_create(r->staged.gpu, &r->staged.compute_point));
    DDP_TRY(ddp_event_create(r->staged.gpu, &r->staged.forward_point));
    DDP_TRY(ddp_event_create(r->staged.gpu, &r->staged.backward_point));
    DDP_TRY(ddp_stream_create(r->staged.gpu, "gradients to the host", &r->staged.copy));
out:
    return status;
}

/* On the device: parameters, and as many gradient arenas as on the host. */
static ddp_status_t make_memory(ddp_reducer_t *r)
{
    ddp_status_t           status    = DDP_OK;
    const ddp_allocator_t *allocator = ddp_device_allocator(r->staged.gpu);
    const size_t           bytes     = r->total * sizeof(float);
    const size_t           arenas    = ddp_arenas_of(&r->params, r->size, r->rank);
    void                  *memory    = NULL;

    DDP_TRY(allocator->acquire(allocator->ctx, "parameters", bytes, &memory));
    r->staged.values = memory;
    r->device_values = memory;
    DDP_TRY(allocator->acquire(allocator->ctx, "gradients", arenas * bytes, &memory));
    r->staged.grads = memory;
    r->grads_base   = memory;
    DDP_TRY(ddp_device_pin(r->staged.gpu, r->host.window, r->host.window_bytes));
    r->staged.is_pinned = true;
out:
    return status;
}

static ddp_status_t staged_create(ddp_reducer_t *r)
{
    ddp_status_t status = DDP_OK;
    ddp_isa_t    isa    = DDP_ISA_PLAIN;

    r->staged.gpu           = ddp_stream_device(r->compute);
    r->staged.uploaded_step = UINT64_MAX;
    DDP_TRY(agree_on_isa(r, &isa));
    DDP_TRY(ddp_comm_agree(r->comm, make_host(r, isa)));
    DDP_TRY(ddp_reducer_host_path.create(r));
    DDP_TRY(ddp_comm_agree(r->comm, make_events(r)));
    DDP_TRY(ddp_comm_agree(r->comm, make_memory(r)));
out:
    return status;
}

static void destroy_events(ddp_reducer_t *r)
{
    for (size_t b = 0; r->staged.copied != NULL && b < r->n_buckets; b++) {
        ddp_event_destroy(&r->staged.copied[b]);
    }
    free(r->staged.copied);
    ddp_event_destroy(&r->staged.compute_point);
    ddp_event_destroy(&r->staged.forward_point);
    ddp_event_destroy(&r->staged.backward_point);
}

static void staged_destroy(ddp_reducer_t *r)
{
    const ddp_allocator_t *allocator = NULL;

    if (r->staged.gpu == NULL) {
        return; /* nothing was begun */
    }
    allocator = ddp_device_allocator(r->staged.gpu);
    if (r->staged.copy != NULL) { /* nothing writes to the host's memory any more */
        ddp_ignore(ddp_stream_synchronize(r->compute, -1), "its memory goes back, however it ended");
        ddp_ignore(ddp_stream_synchronize(r->staged.copy, -1), "its memory goes back, however it ended");
    }
    ddp_stream_destroy(&r->staged.watch);
    ddp_reducer_host_path.destroy(r);
    if (r->staged.is_pinned) {
        ddp_device_unpin(r->staged.gpu, r->host.window);
    }
    destroy_events(r);
    ddp_stream_destroy(&r->staged.copy);
    allocator->release(allocator->ctx, r->staged.grads);
    allocator->release(allocator->ctx, r->staged.values);
    ddp_comm_attach(r->comm, r->staged.gpu);
    ddp_device_destroy(&r->staged.host);
}

/* The parameters as they are now on the host, for what the compute stream gets next. */
static ddp_status_t upload(ddp_reducer_t *r)
{
    ddp_status_t status = DDP_OK;

    if (r->staged.uploaded_step == r->step) {
        return DDP_OK;
    }
    DDP_TRY(ddp_stream_copy(r->compute, r->staged.values, r->values, r->total * sizeof(float)));
    r->staged.uploaded_step = r->step;
out:
    return status;
}

static ddp_status_t staged_publish(ddp_reducer_t *r)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(ddp_reducer_host_path.publish(r));
    r->staged.uploaded_step = UINT64_MAX;
    DDP_TRY(upload(r));
    DDP_TRY(ddp_stream_synchronize(r->compute, -1)); /* somebody may write again */
out:
    return status;
}

static ddp_status_t staged_restore(ddp_reducer_t *r)
{
    return ddp_reducer_host_path.restore(r);
}

static ddp_status_t staged_finish(ddp_reducer_t *r)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(ddp_reducer_host_path.finish(r));
    DDP_TRY(upload(r));
out:
    return status;
}

static ddp_status_t staged_step_begin(ddp_reducer_t *r, size_t present)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(ddp_reducer_host_path.step_begin(r, present));
    DDP_TRY(upload(r));
out:
    return status;
}

static ddp_status_t staged_forward_done(ddp_reducer_t *r, const ddp_loss_stats_t *stats)
{
    ddp_reducer_host_note_used(r);
    /* in order of the compute stream: the next micro-batch may use the same memory for its sums */
    return ddp_stream_copy(r->compute, &r->leaves[r->leaf], stats, sizeof(*stats));
}

typedef struct arrive_args {
    ddp_reducer_t *reducer;
    ddp_event_t   *event;
    const char    *what;
    size_t         bucket;
} arrive_args_t;

/* @return DDP_IN_PROGRESS until the device has come to the event */
static ddp_status_t ask(const arrive_args_t *a)
{
    ddp_reducer_t     *r      = a->reducer;
    const ddp_status_t status = ddp_event_synchronize(a->event, 0);

    if (status == DDP_IN_PROGRESS) {
        ddp_comm_waiting(r->comm, (ddp_wait_t){r->rank, a->what, r->step, a->bucket});
    }
    return status;
}

static ddp_status_t arrive_work(void *args)
{
    return ask(args);
}

/* Later work of the reduce stream runs after the event. */
static ddp_status_t reduce_after(ddp_reducer_t *r, ddp_event_t *event, const char *what, size_t bucket)
{
    const arrive_args_t args = {r, event, what, bucket};

    return ddp_stream_submit(r->host.reduce, "wait for the device", arrive_work, &args, sizeof(args));
}

static ddp_status_t staged_sums(ddp_reducer_t *r)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(ddp_event_record(r->staged.forward_point, r->compute));
    DDP_TRY(reduce_after(r, r->staged.forward_point, "forward on its device", (size_t)-1));
    DDP_TRY(ddp_reducer_host_submit_sums(r));
out:
    return status;
}

static ddp_status_t staged_merge(ddp_reducer_t *r, size_t b, ddp_merge_t arenas)
{
    const ddp_bucket_range_t *range = &r->buckets[b].range;

    return ddp_op_axpy(r->compute, 1.0F, r->grads_base + arenas.right * r->total + range->offset,
                       r->grads_base + arenas.left * r->total + range->offset, range->count);
}

static bool ran_forward(const ddp_reducer_t *r)
{
    return r->leaves_left > 0 || r->leaf > r->first_leaf;
}

/* The bucket of each arena that takes part in the sum. */
static ddp_status_t fetch_bucket(ddp_reducer_t *r, const ddp_bucket_range_t *range)
{
    ddp_status_t status   = DDP_OK;
    const bool   is_exact = r->params.reduction == DDP_REDUCTION_EXACT;
    const size_t n        = !ran_forward(r) ? 0 : is_exact ? r->stack.depth : 1;

    for (size_t i = 0; i < n; i++) {
        const size_t at = (is_exact ? r->stack.node[i].arena : 0) * r->total + range->offset;

        DDP_TRY(ddp_stream_copy(r->staged.copy, r->host.arenas[r->local_rank] + at, r->grads_base + at,
                                range->count * sizeof(float)));
    }
out:
    return status;
}

static ddp_status_t ready_work(void *args)
{
    const arrive_args_t *a      = args;
    ddp_status_t         status = ask(a);

    if (status == DDP_OK) {
        ddp_reducer_host_ready(a->reducer, a->bucket);
    }
    return status;
}

static ddp_status_t staged_launch(ddp_reducer_t *r, size_t b)
{
    ddp_status_t        status = DDP_OK;
    const arrive_args_t args   = {r, r->staged.copied[b], "gradients from its device", b};

    DDP_TRY(ddp_event_record(r->staged.compute_point, r->compute));
    DDP_TRY(ddp_stream_wait_event(r->staged.copy, r->staged.compute_point));
    DDP_TRY(fetch_bucket(r, &r->buckets[b].range));
    DDP_TRY(ddp_event_record(r->staged.copied[b], r->staged.copy));
    DDP_TRY(ddp_stream_submit(r->host.reduce, "wait for gradients", ready_work, &args, sizeof(args)));
    DDP_TRY(ddp_reducer_host_submit_bucket(r, b));
out:
    return status;
}

static ddp_status_t backward_end_work(void *args)
{
    const arrive_args_t *a      = args;
    ddp_status_t         status = ask(a);

    if (status == DDP_OK) {
        ddp_reducer_host_backward_end(a->reducer);
    }
    return status;
}

static ddp_status_t staged_end(ddp_reducer_t *r)
{
    ddp_status_t        status = DDP_OK;
    const arrive_args_t args   = {r, r->staged.backward_point, "backward on its device", (size_t)-1};

    if (ran_forward(r)) {
        DDP_TRY(ddp_event_record(r->staged.backward_point, r->compute));
        DDP_TRY(
            ddp_stream_submit(r->staged.watch, "end of backward", backward_end_work, &args, sizeof(args)));
    }
    DDP_TRY(ddp_reducer_host_submit_end(r));
out:
    return status;
}

static ddp_status_t staged_wait(ddp_reducer_t *r)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(ddp_reducer_host_wait_reduced(r));
    DDP_TRY(ddp_stream_synchronize(r->staged.watch, -1));
    DDP_TRY(ddp_stream_synchronize(r->compute, -1)); /* and what its kernels found wrong */
out:
    return status;
}

static void staged_traffic(const ddp_reducer_t *r, uint64_t *from)
{
    ddp_reducer_host_path.traffic(r, from);
}

const ddp_reducer_path_t ddp_reducer_staged_path = {
    .name         = "host",
    .create       = staged_create,
    .destroy      = staged_destroy,
    .publish      = staged_publish,
    .restore      = staged_restore,
    .step_begin   = staged_step_begin,
    .forward_done = staged_forward_done,
    .sums         = staged_sums,
    .merge        = staged_merge,
    .launch       = staged_launch,
    .end          = staged_end,
    .wait         = staged_wait,
    .finish       = staged_finish,
    .grad_norm    = ddp_reducer_host_norm,
    .traffic      = staged_traffic,
};
