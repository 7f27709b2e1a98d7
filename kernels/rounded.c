#include "kernels/rounded.h"

#include "kernels/device_internal.h"
#include "kernels/layout.h"

static bool is_kept(ddp_device_kind_t kind, ddp_precision_t precision)
{
    return kind == DDP_DEVICE_CUDA && (precision == DDP_PRECISION_BF16 || precision == DDP_PRECISION_FP16);
}

size_t ddp_rounded_bytes(ddp_device_kind_t kind, ddp_precision_t precision, size_t count)
{
    return is_kept(kind, precision) ? count * sizeof(uint16_t) : 0;
}

ddp_status_t ddp_rounded_open(ddp_device_t *device, const float *values, size_t count,
                              ddp_precision_t precision)
{
    ddp_status_t status = DDP_OK;

    DDP_REQUIRE(count % DDP_BLOCK == 0, DDP_ERR_INVALID_ARG, "rounded: %zu elements are no whole blocks",
                count);
    if (is_kept(device->kind, precision) && count > 0) {
        DDP_TRY(device->backend->rounded_open(device, values, count, precision));
    }
out:
    return status;
}

void ddp_rounded_close(ddp_device_t *device)
{
    if (device->backend->rounded_close != NULL) {
        device->backend->rounded_close(device);
    }
}

ddp_status_t ddp_rounded_take(ddp_stream_t *stream)
{
    const ddp_backend_t *backend = stream->device->backend;

    return backend->rounded_take != NULL ? backend->rounded_take(stream) : DDP_OK;
}

void ddp_rounded_drop(ddp_device_t *device)
{
    if (device->backend->rounded_drop != NULL) {
        device->backend->rounded_drop(device);
    }
}
