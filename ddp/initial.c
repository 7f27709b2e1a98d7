/* Initial values of the parameters, wherever they lie. */
#include "base/error.h"
#include "ddp/trainer.h"
#include "nn/params.h"

/* Tensor by tensor; `stream` is a cpu device's, `memory` holds the largest. */
static ddp_status_t draw_all(ddp_reducer_t *reducer, const ddp_params_t *params, ddp_stream_t *stream,
                             uint64_t seed, float *memory)
{
    ddp_status_t status = DDP_OK;

    for (size_t i = 0; i < ddp_params_count(params); i++) {
        const ddp_tensor_desc_t *desc = &ddp_params_descs(params)[i];

        DDP_TRY(ddp_params_draw(params, stream, seed, i, memory));
        DDP_TRY(ddp_stream_synchronize(stream, -1));
        DDP_TRY(ddp_reducer_write(reducer, DDP_REDUCER_VALUES, desc->offset, desc->count, memory));
    }
out:
    return status;
}

static size_t largest(const ddp_params_t *params)
{
    size_t most = 0;

    for (size_t i = 0; i < ddp_params_count(params); i++) {
        const size_t floats = ddp_block_round(ddp_params_descs(params)[i].count);

        most = floats > most ? floats : most;
    }
    return most;
}

/* On a cpu device and from there, so that training starts from the same bits with any device. */
static ddp_status_t draw_on_host(ddp_reducer_t *reducer, const ddp_params_t *params, ddp_isa_t isa,
                                 uint64_t seed)
{
    ddp_status_t           status    = DDP_OK;
    ddp_device_params_t    setup     = DDP_DEVICE_PARAMS_INIT;
    ddp_device_t          *device    = NULL;
    ddp_stream_t          *stream    = NULL;
    const ddp_allocator_t *allocator = NULL;
    void                  *memory    = NULL;

    setup.isa = isa;
    DDP_TRY(ddp_device_create(&setup, &device));
    DDP_TRY(ddp_stream_create(device, "initial values", &stream));
    allocator = ddp_device_allocator(device);
    DDP_TRY(allocator->acquire(allocator->ctx, "initial values", largest(params) * sizeof(float), &memory));
    DDP_TRY(draw_all(reducer, params, stream, seed, memory));
out:
    if (allocator != NULL) {
        allocator->release(allocator->ctx, memory);
    }
    ddp_stream_destroy(&stream);
    ddp_device_destroy(&device);
    return status;
}

ddp_status_t ddp_trainer_initialize(ddp_reducer_t *reducer, ddp_params_t *params, ddp_stream_t *compute,
                                    uint64_t seed, int rank)
{
    ddp_status_t  status = DDP_OK;
    ddp_device_t *device = ddp_stream_device(compute);

    ddp_params_bind(params, ddp_reducer_values(reducer), NULL);
    if (!ddp_reducer_is_writer(reducer, rank)) {
        return DDP_OK;
    }
    if (!ddp_device_is_host_memory(device)) {
        return draw_on_host(reducer, params, ddp_device_isa(device), seed);
    }
    DDP_TRY(ddp_params_initialize(params, compute, seed));
    DDP_TRY(ddp_stream_synchronize(compute, -1));
out:
    return status;
}
