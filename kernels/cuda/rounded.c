#include "kernels/cuda/rounded.h"

#include "kernels/cuda/device_internal.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/graphs.h"

#define PACK 8 /* what a matrix begins at a multiple of, so that it does in 16 bits too */

static ddp_cuda_rounded_t *rounded_of(const ddp_device_t *device)
{
    return &ddp_cuda_of(device)->rounded;
}

ddp_status_t ddp_cuda_rounded_open(ddp_device_t *device, const float *values, size_t count,
                                   ddp_precision_t precision)
{
    ddp_status_t           status    = DDP_OK;
    const ddp_allocator_t *allocator = ddp_device_allocator(device);
    void                  *memory    = NULL;

    DDP_REQUIRE(rounded_of(device)->memory == NULL, DDP_ERR_STATE, "%s: parameters are rounded already",
                device->name);
    DDP_TRY(allocator->acquire(allocator->ctx, "rounded parameters", count * sizeof(uint16_t), &memory));
    *rounded_of(device) =
        (ddp_cuda_rounded_t){.values = values, .count = count, .precision = precision, .memory = memory};
out:
    return status;
}

void ddp_cuda_rounded_close(ddp_device_t *device)
{
    const ddp_allocator_t *allocator = ddp_device_allocator(device);

    if (rounded_of(device)->memory != NULL) {
        allocator->release(allocator->ctx, rounded_of(device)->memory);
        *rounded_of(device) = (ddp_cuda_rounded_t){.count = 0};
    }
}

ddp_status_t ddp_cuda_rounded_take(ddp_stream_t *stream)
{
    ddp_status_t               status  = DDP_OK;
    ddp_cuda_rounded_t        *rounded = rounded_of(stream->device);
    const ddp_cuda_cast_args_t cast    = {.precision = rounded->precision,
                                          .x         = rounded->values,
                                          .rows      = 1,
                                          .columns   = rounded->count,
                                          .ld        = rounded->count,
                                          .y         = rounded->memory,
                                          .pitch     = rounded->count};

    if (rounded->memory == NULL || stream->device->dry) {
        return DDP_OK;
    }
    DDP_TRY(ddp_cuda_enter(stream->device));
    DDP_TRY(ddp_cuda_cast(stream, &cast));
    rounded->stream = stream;
out:
    return status;
}

void ddp_cuda_rounded_drop(ddp_device_t *device)
{
    ddp_stream_t *stream = rounded_of(device)->stream;

    if (stream != NULL) {
        ddp_ignore(ddp_cuda_graphs_flush(stream), "a stream that has failed says so at its next work");
    }
    rounded_of(device)->stream = NULL;
}

const uint16_t *ddp_cuda_rounded_find(const ddp_stream_t *stream, ddp_precision_t precision, const float *x,
                                      size_t rows, size_t columns, size_t ld)
{
    const ddp_cuda_rounded_t *rounded = rounded_of(stream->device);
    const uintptr_t           base    = (uintptr_t)rounded->values;
    const size_t              at      = ((uintptr_t)x - base) / sizeof(float);

    if (rounded->stream != stream || rounded->precision != precision || (uintptr_t)x < base ||
        at >= rounded->count || rows * columns > rounded->count - at || ld != columns ||
        columns % PACK != 0 || at % PACK != 0) {
        return NULL;
    }
    return rounded->memory + at;
}
