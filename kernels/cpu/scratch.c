#include "kernels/cpu/scratch.h"

#include "kernels/device_internal.h"

ddp_status_t ddp_cpu_scratch_get(size_t bytes, void **memory_p)
{
    ddp_device_t          *device    = ddp_cpu_running_device();
    const ddp_allocator_t *allocator = NULL;
    ddp_device_block_t    *slot      = NULL;
    ddp_status_t           status    = DDP_OK;

    DDP_REQUIRE(device != NULL, DDP_ERR_STATE, "kernels with scratch run as work of a stream");
    DDP_REQUIRE(device->scratch_depth < DDP_SCRATCH_DEPTH, DDP_ERR_STATE, "kernels nest deeper than %d",
                DDP_SCRATCH_DEPTH);
    allocator = ddp_device_allocator(device);
    slot      = &device->scratch[device->scratch_depth];
    if (slot->bytes < bytes) {
        allocator->release(allocator->ctx, slot->memory);
        *slot = (ddp_device_block_t){NULL, 0};
        DDP_TRY(allocator->acquire(allocator->ctx, "buffers of kernels", bytes, &slot->memory));
        slot->bytes = bytes;
    }
    device->scratch_depth++;
    *memory_p = slot->memory;
out:
    return status;
}

void ddp_cpu_scratch_put(void)
{
    ddp_cpu_running_device()->scratch_depth--;
}

size_t ddp_cpu_scratch_held(const ddp_device_t *device)
{
    size_t bytes = 0;

    for (int i = 0; i < DDP_SCRATCH_DEPTH; i++) {
        bytes += device->scratch[i].bytes;
    }
    return bytes;
}
