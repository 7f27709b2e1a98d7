/* Memory of a CUDA device, and page-locked memory of the host. */
#include <string.h>

#include "kernels/cuda/device_internal.h"

#define MB 1e6

ddp_status_t ddp_cuda_acquire(ddp_device_t *device, const char *label, size_t bytes, void **memory_p)
{
    ddp_status_t status = DDP_OK;
    cudaError_t  error;
    size_t       left  = 0;
    size_t       total = 0;

    DDP_TRY(ddp_cuda_enter(device));
    error = cudaMalloc(memory_p, bytes);
    if (error == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        (void)cudaMemGetInfo(&left, &total);
        return ddp_fail(DDP_ERR_NO_MEMORY, "%s: %s need %.1f MB; %.1f of %.1f MB are free", device->name,
                        label, (double)bytes / MB, (double)left / MB, (double)total / MB);
    }
    DDP_TRY_CUDA(device, error);
    error = cudaMemsetAsync(*memory_p, 0, bytes, ddp_cuda_of(device)->setup);
    if (error == cudaSuccess) {
        error = cudaStreamSynchronize(ddp_cuda_of(device)->setup); /* outside of steps, and it is short */
    }
    if (error != cudaSuccess) {
        (void)cudaFree(*memory_p);
        *memory_p = NULL;
        return ddp_cuda_fail(device, error, label);
    }
out:
    return status;
}

void ddp_cuda_release(ddp_device_t *device, void *memory)
{
    if (ddp_cuda_enter(device) == DDP_OK) {
        (void)cudaFree(memory);
    }
}

static ddp_status_t host_acquire(void *ctx, const char *label, size_t bytes, void **memory_p)
{
    ddp_status_t  status = DDP_OK;
    ddp_device_t *device = ctx;
    cudaError_t   error;

    DDP_TRY(ddp_cuda_enter(device));
    error = cudaHostAlloc(memory_p, bytes, cudaHostAllocPortable);
    if (error == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        return ddp_fail(DDP_ERR_NO_MEMORY, "%s: no %.1f MB of page-locked memory for %s (ulimit -l)",
                        device->name, (double)bytes / MB, label);
    }
    DDP_TRY_CUDA(device, error);
    memset(*memory_p, 0, bytes);
out:
    return status;
}

static void host_release(void *ctx, void *memory)
{
    if (memory != NULL && ddp_cuda_enter(ctx) == DDP_OK) {
        (void)cudaFreeHost(memory);
    }
}

ddp_allocator_t ddp_cuda_host_allocator(ddp_device_t *device)
{
    return device->dry ? *ddp_allocator_private() : (ddp_allocator_t){host_acquire, host_release, device};
}

ddp_status_t ddp_cuda_pin(ddp_device_t *device, void *memory, size_t bytes)
{
    ddp_status_t status = DDP_OK;
    cudaError_t  error;

    DDP_TRY(ddp_cuda_enter(device));
    error = cudaHostRegister(memory, bytes, cudaHostRegisterPortable);
    if (error == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        return ddp_fail(DDP_ERR_NO_MEMORY, "%s: %.1f MB of memory cannot be page-locked (ulimit -l)",
                        device->name, (double)bytes / MB);
    }
    DDP_TRY_CUDA(device, error);
out:
    return status;
}

void ddp_cuda_unpin(ddp_device_t *device, void *memory)
{
    if (ddp_cuda_enter(device) == DDP_OK) {
        (void)cudaHostUnregister(memory);
    }
}
