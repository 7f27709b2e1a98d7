/* Memory of a device: what it holds is counted, and no more than its cap is handed out. */
#include <assert.h>
#include <stdlib.h>

#include "kernels/device_internal.h"

/* No process has memory here: the addresses are not canonical, or belong to the kernel. */
#define DRY_FIRST ((size_t)1 << 61)
#define DRY_ROOM  ((size_t)1 << 61)

#define FIRST_BLOCKS 16

static size_t left(const ddp_device_t *device)
{
    return (device->memory.cap > 0 ? device->memory.cap : SIZE_MAX) - device->memory.held;
}

/* Rounded so that what does not fit never reads as if it did. */
static double up_to_mb(size_t bytes)
{
    return (double)(bytes / 100000 + (bytes % 100000 > 0 ? 1 : 0)) / 10;
}

static double down_to_mb(size_t bytes)
{
    return (double)(bytes / 100000) / 10;
}

ddp_status_t ddp_device_charge(ddp_device_t *device, const char *label, size_t bytes)
{
    ddp_status_t         status = DDP_OK;
    ddp_device_memory_t *memory = &device->memory;

    DDP_REQUIRE(memory->cap > 0 || bytes <= left(device), DDP_ERR_NO_MEMORY,
                "%s: %s: %zu bytes do not fit in memory", device->name, label, bytes);
    DDP_REQUIRE(bytes <= left(device), DDP_ERR_NO_MEMORY, "%s: %s need %.1f MB; %.1f of %.1f MB are left",
                device->name, label, up_to_mb(bytes), down_to_mb(left(device)), down_to_mb(memory->cap));
    memory->held += bytes;
    memory->peak = memory->held > memory->peak ? memory->held : memory->peak;
out:
    return status;
}

void ddp_device_discharge(ddp_device_t *device, size_t bytes)
{
    assert(bytes <= device->memory.held);
    device->memory.held -= bytes;
}

void ddp_device_keep_memory(ddp_device_t *device)
{
    device->is_kept = true;
}

ddp_device_memory_t ddp_device_memory(const ddp_device_t *device)
{
    return device->memory;
}

static ddp_status_t grow_blocks(ddp_device_t *device)
{
    ddp_status_t        status   = DDP_OK;
    const size_t        capacity = device->blocks_room > 0 ? 2 * device->blocks_room : FIRST_BLOCKS;
    ddp_device_block_t *blocks   = NULL;

    if (device->n_blocks < device->blocks_room) {
        return DDP_OK;
    }
    blocks = realloc(device->blocks, capacity * sizeof(*blocks));
    DDP_REQUIRE(blocks != NULL, DDP_ERR_NO_MEMORY, "%s: no memory to note %zu pieces of memory", device->name,
                capacity);
    device->blocks      = blocks;
    device->blocks_room = capacity;
out:
    return status;
}

static ddp_status_t take_dry(ddp_device_t *device, const char *label, size_t bytes, void **memory_p)
{
    ddp_status_t status  = DDP_OK;
    const size_t rounded = (bytes + DDP_ALIGNMENT - 1) / DDP_ALIGNMENT * DDP_ALIGNMENT;

    DDP_REQUIRE(rounded >= bytes && rounded <= DRY_ROOM - device->dry_bytes, DDP_ERR_NO_MEMORY,
                "%s: %zu bytes do not fit in memory", label, bytes);
    *memory_p = (void *)(DRY_FIRST + device->dry_bytes);
    device->dry_bytes += rounded;
out:
    return status;
}

static ddp_status_t device_acquire(void *ctx, const char *label, size_t bytes, void **memory_p)
{
    ddp_device_t *device = ctx;
    ddp_status_t  status = DDP_OK;

    DDP_TRY(grow_blocks(device));
    DDP_TRY(ddp_device_charge(device, label, bytes));
    status = device->dry ? take_dry(device, label, bytes, memory_p)
                         : device->backend->acquire(device, label, bytes, memory_p);
    if (status != DDP_OK) {
        ddp_device_discharge(device, bytes);
        goto out;
    }
    device->blocks[device->n_blocks++] = (ddp_device_block_t){*memory_p, bytes};
out:
    return status;
}

static void device_release(void *ctx, void *memory)
{
    ddp_device_t *device = ctx;
    size_t        i      = device->n_blocks;

    if (memory == NULL) {
        return;
    }
    while (i > 0 && device->blocks[i - 1].memory != memory) { /* what came last mostly goes first */
        i--;
    }
    assert(i > 0);
    ddp_device_discharge(device, device->blocks[i - 1].bytes);
    device->blocks[i - 1] = device->blocks[--device->n_blocks];
    if (!device->dry) {
        device->backend->release(device, memory);
    }
}

void ddp_device_memory_open(ddp_device_t *device, size_t cap)
{
    device->memory.cap     = cap;
    device->allocator      = (ddp_allocator_t){device_acquire, device_release, device};
    device->host_allocator = device->backend->host_allocator(device);
}

void ddp_device_memory_close(ddp_device_t *device)
{
    for (int i = 0; i < DDP_SCRATCH_DEPTH; i++) {
        device_release(device, device->scratch[i].memory);
    }
    assert(device->n_blocks == 0 || device->is_kept);
    free(device->blocks);
}

const ddp_allocator_t *ddp_device_allocator(ddp_device_t *device)
{
    return &device->allocator;
}

const ddp_allocator_t *ddp_device_host_allocator(ddp_device_t *device)
{
    return &device->host_allocator;
}
