/* What a replica has on its device. */
#include <stdlib.h>
#include <string.h>

#include "dp_compat/dp_internal.h"

ddp_status_t ddp_dp_buffer_need(ddp_replica_t *replica, ddp_dp_buffer_t *buffer, const char *label,
                                size_t bytes)
{
    const ddp_allocator_t *allocator = ddp_device_allocator(replica->device);
    ddp_status_t           status    = DDP_OK;

    if (bytes <= buffer->bytes) {
        return DDP_OK;
    }
    allocator->release(allocator->ctx, buffer->memory);
    *buffer = (ddp_dp_buffer_t){NULL, 0};
    DDP_TRY(allocator->acquire(allocator->ctx, label, bytes, &buffer->memory));
    buffer->bytes = bytes;
out:
    return status;
}

void ddp_dp_buffer_free(ddp_replica_t *replica, ddp_dp_buffer_t *buffer)
{
    const ddp_allocator_t *allocator = ddp_device_allocator(replica->device);

    allocator->release(allocator->ctx, buffer->memory);
    *buffer = (ddp_dp_buffer_t){NULL, 0};
}

static void on_moved(void *replica)
{
    ddp_dp_progressed(replica);
}

static ddp_status_t make_tape(ddp_replica_t *replica, const ddp_tape_memory_t *memory, ddp_tape_t **tape_p)
{
    ddp_tape_params_t params = DDP_TAPE_PARAMS_INIT;
    ddp_dp_t         *dp     = replica->dp;
    ddp_status_t      status = DDP_OK;

    params.stream = replica->stream;
    params.params = replica->params;
    DDP_TRY(ddp_tape_create(&params, tape_p));
    if (dp->params.set_tape != NULL) {
        dp->params.set_tape(dp->params.ctx, *tape_p);
    }
    DDP_TRY(ddp_tape_reserve(*tape_p, memory));
out:
    return status;
}

static ddp_status_t make_device(ddp_replica_t *replica)
{
    const ddp_device_t *first  = replica->dp->replica[0].device;
    ddp_device_params_t params = DDP_DEVICE_PARAMS_INIT;
    ddp_status_t        status = DDP_OK;

    params.kind         = ddp_device_kind(first);
    params.ordinal      = replica->id; /* of a GPU */
    params.isa          = ddp_device_isa(first);
    params.is_exact     = ddp_device_is_exact(first);
    params.name         = replica->name;
    params.memory_bytes = replica->dp->caps[replica->index];
    DDP_TRY(ddp_device_create(&params, &replica->device));
    DDP_TRY(ddp_stream_create(replica->device, "compute", &replica->stream));
    if (ddp_stream_has_graphs(replica->dp->replica[0].stream)) {
        DDP_TRY(ddp_stream_use_graphs(replica->stream));
    }
out:
    return status;
}

static ddp_status_t make_parameters(ddp_replica_t *replica)
{
    const size_t           bytes     = ddp_params_total(replica->dp->params.params) * sizeof(float);
    const ddp_allocator_t *allocator = ddp_device_allocator(replica->device);
    void                  *memory    = NULL;
    ddp_status_t           status    = DDP_OK;

    DDP_TRY(ddp_params_clone(replica->dp->params.params, &replica->params));
    DDP_TRY(allocator->acquire(allocator->ctx, "parameters", bytes, &memory));
    replica->values = memory;
    DDP_TRY(allocator->acquire(allocator->ctx, "gradients", bytes, &memory));
    replica->grads = memory;
    ddp_params_bind(replica->params, replica->values, replica->grads);
out:
    return status;
}

ddp_status_t ddp_dp_open(ddp_replica_t *replica)
{
    ddp_status_t status = DDP_OK;

    if (replica->index > 0) {
        DDP_TRY(make_device(replica));
        DDP_TRY(make_parameters(replica));
    }
    ddp_device_set_moved(replica->device, on_moved, replica);
    replica->used = calloc(replica->dp->n_tensors, 1);
    DDP_REQUIRE(replica->used != NULL, DDP_ERR_NO_MEMORY, "no memory for a replica");
    DDP_TRY(make_tape(replica, &replica->dp->params.tape, &replica->tape));
    DDP_TRY(ddp_stream_reserve(replica->stream, &replica->dp->params.scratch));
out:
    return status;
}

ddp_status_t ddp_dp_open_loss(ddp_replica_t *replica)
{
    ddp_status_t status = DDP_OK;

    replica->loss_tapes = calloc(replica->dp->n, sizeof(*replica->loss_tapes));
    replica->loss_used  = calloc(replica->dp->n_tensors, 1);
    DDP_REQUIRE(replica->loss_tapes != NULL && replica->loss_used != NULL, DDP_ERR_NO_MEMORY,
                "no memory for the losses of %zu devices", replica->dp->n);
    for (size_t k = 0; k < replica->dp->n; k++) {
        DDP_TRY(make_tape(replica, &replica->dp->params.loss_tape, &replica->loss_tapes[k]));
    }
out:
    return status;
}

static void close_device(ddp_replica_t *replica)
{
    const ddp_allocator_t *allocator = ddp_device_allocator(replica->device);

    if (replica->index > 0) {
        ddp_params_destroy(&replica->params);
        allocator->release(allocator->ctx, replica->grads);
        allocator->release(allocator->ctx, replica->values);
        ddp_stream_destroy(&replica->stream);
        ddp_device_destroy(&replica->device);
    } else {
        ddp_device_set_moved(replica->device, NULL, NULL);
    }
}

ddp_status_t ddp_dp_close(ddp_replica_t *replica)
{
    if (replica->device == NULL) {
        return DDP_OK; /* not even begun */
    }
    if (replica->stream != NULL) {
        ddp_ignore(ddp_stream_synchronize(replica->stream, -1),
                   "the memory goes back, however its work ended");
    }
    for (size_t k = 0; replica->loss_tapes != NULL && k < replica->dp->n; k++) {
        ddp_tape_destroy(&replica->loss_tapes[k]);
    }
    free(replica->loss_tapes);
    ddp_tape_destroy(&replica->tape);
    ddp_dp_buffer_free(replica, &replica->gathered_memory);
    ddp_dp_buffer_free(replica, &replica->output_grad);
    for (size_t i = 0; i < DDP_DP_MAX_INPUTS; i++) {
        ddp_dp_buffer_free(replica, &replica->input[i]);
        ddp_dp_buffer_free(replica, &replica->target[i]);
    }
    free(replica->loss_used);
    free(replica->used);
    close_device(replica);
    return DDP_OK;
}
