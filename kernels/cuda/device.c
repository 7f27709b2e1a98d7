/* The CUDA device: what the machine has, opening and closing, and the table of the backend. */
#include "kernels/cuda/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda.h"
#include "kernels/cuda/device_internal.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/graphs.h"
#include "kernels/cuda/ops.h"

ddp_status_t ddp_cuda_fail(const ddp_device_t *device, cudaError_t error, const char *what)
{
    const char *name = device != NULL ? device->name : "cuda";

    (void)cudaGetLastError();
    return ddp_fail(error == cudaErrorMemoryAllocation ? DDP_ERR_NO_MEMORY : DDP_ERR_DEVICE, "%s: %s: %s",
                    name, what, cudaGetErrorString(error));
}

int ddp_cuda_ordinal(const ddp_device_t *device)
{
    return device->ordinal;
}

cudaStream_t ddp_cuda_stream(ddp_stream_t *stream)
{
    if (stream->native == NULL) { /* dry */
        return NULL;
    }
    /* Whoever asks gives it work, which comes after what is kept back. */
    ddp_ignore(ddp_cuda_graphs_flush(stream), "the stream has failed, and says so to whoever asks next");
    return ddp_cuda_lane_of(stream)->stream;
}

ddp_cuda_fault_t *ddp_cuda_fault(const ddp_stream_t *stream)
{
    return ddp_cuda_of(stream->device)->fault;
}

int ddp_cuda_multiprocessors(const ddp_stream_t *stream)
{
    return ddp_cuda_of(stream->device)->multiprocessors;
}

ddp_status_t ddp_cuda_enter(const ddp_device_t *device)
{
    ddp_status_t status  = DDP_OK;
    int          current = -1;

    DDP_TRY_CUDA(device, cudaGetDevice(&current));
    if (current != device->ordinal) {
        DDP_TRY_CUDA(device, cudaSetDevice(device->ordinal));
    }
out:
    return status;
}

void ddp_cuda_probe(ddp_cuda_info_t *info)
{
    cudaError_t error;

    *info = (ddp_cuda_info_t){.is_built = true};
    (void)cudaRuntimeGetVersion(&info->runtime);
    (void)cudaDriverGetVersion(&info->driver);
    error = cudaGetDeviceCount(&info->devices);
    if (error != cudaSuccess) {
        info->devices = 0;
        (void)cudaGetLastError();
        (void)snprintf(info->reason, sizeof(info->reason), "%s",
                       info->driver == 0 ? "no driver" : cudaGetErrorString(error));
    } else if (info->devices == 0) {
        (void)snprintf(info->reason, sizeof(info->reason), "no device");
    }
}

static ddp_status_t check_ordinal(int ordinal)
{
    ddp_status_t    status = DDP_OK;
    ddp_cuda_info_t info;

    ddp_cuda_probe(&info);
    DDP_REQUIRE(info.devices > 0, DDP_ERR_UNSUPPORTED, "cuda: %s", info.reason);
    DDP_REQUIRE(ordinal >= 0 && ordinal < info.devices, DDP_ERR_INVALID_ARG,
                "cuda: there is no device %d; %d are visible%s", ordinal, info.devices,
                getenv("CUDA_VISIBLE_DEVICES") != NULL ? " (CUDA_VISIBLE_DEVICES)" : "");
out:
    return status;
}

ddp_status_t ddp_cuda_describe(int ordinal, ddp_cuda_device_info_t *info)
{
    ddp_status_t          status = DDP_OK;
    struct cudaDeviceProp properties;
    int                   before = 0;

    DDP_TRY(check_ordinal(ordinal));
    DDP_TRY_CUDA(NULL, cudaGetDevice(&before));
    DDP_TRY_CUDA(NULL, cudaGetDeviceProperties(&properties, ordinal));
    *info = (ddp_cuda_device_info_t){.major           = properties.major,
                                     .minor           = properties.minor,
                                     .multiprocessors = properties.multiProcessorCount,
                                     .memory_bytes    = properties.totalGlobalMem};
    (void)snprintf(info->name, sizeof(info->name), "%s", properties.name);
    (void)snprintf(info->bus, sizeof(info->bus), "%04x:%02x:%02x.0", (unsigned)properties.pciDomainID,
                   (unsigned)properties.pciBusID, (unsigned)properties.pciDeviceID);
    memcpy(info->uuid, &properties.uuid, sizeof(info->uuid));
    DDP_TRY_CUDA(NULL, cudaSetDevice(ordinal));
    DDP_TRY_CUDA(NULL, cudaMemGetInfo(&info->free_bytes, &info->memory_bytes));
    DDP_TRY_CUDA(NULL, cudaSetDevice(before));
out:
    return status;
}

static void cuda_device_close(ddp_device_t *device)
{
    ddp_cuda_device_t *cuda = ddp_cuda_of(device);

    /* A dry device may be of a machine without a GPU. */
    if (cuda == NULL || (!device->dry && ddp_cuda_enter(device) != DDP_OK)) {
        return;
    }
    for (int i = 0; i < DDP_CUDA_PARTS; i++) {
        if (cuda->parts[i].part != NULL) {
            cuda->parts[i].destroy(cuda->parts[i].part);
        }
    }
    if (cuda->setup != NULL) {
        (void)cudaStreamDestroy(cuda->setup);
    }
    if (cuda->fault != NULL) {
        (void)cudaFreeHost(cuda->fault);
    }
    free(cuda);
    device->native = NULL;
}

static ddp_status_t cuda_device_open(ddp_device_t *device, const ddp_device_params_t *params)
{
    ddp_status_t       status = DDP_OK;
    ddp_cuda_device_t *cuda   = NULL;

    device->isa      = DDP_ISA_PLAIN;
    device->has_bf16 = true;
    if (!params->dry) {
        DDP_TRY(check_ordinal(params->ordinal));
    }
    cuda = calloc(1, sizeof(*cuda));
    DDP_REQUIRE(cuda != NULL, DDP_ERR_NO_MEMORY, "no memory for a device");
    device->native = cuda;
    if (params->dry) { /* libraries are asked for their scratch, where they are there */
        return DDP_OK;
    }
    DDP_TRY(ddp_cuda_enter(device));
    DDP_TRY_CUDA(device, cudaDeviceGetStreamPriorityRange(&cuda->low, &cuda->high));
    DDP_TRY_CUDA(device, cudaDeviceGetAttribute(&cuda->multiprocessors, cudaDevAttrMultiProcessorCount,
                                                device->ordinal));
    DDP_TRY_CUDA(device, cudaStreamCreateWithFlags(&cuda->setup, cudaStreamNonBlocking));
    DDP_TRY_CUDA(device, cudaHostAlloc((void **)&cuda->fault, sizeof(*cuda->fault), cudaHostAllocPortable));
    memset(cuda->fault, 0, sizeof(*cuda->fault));
out:
    if (status != DDP_OK) {
        cuda_device_close(device);
    }
    return status;
}

static ddp_status_t enter_stream(const ddp_stream_t *stream)
{
    const ddp_status_t status = ddp_stream_status(stream);

    return status != DDP_OK ? status : ddp_cuda_enter(stream->device);
}

/* The device works by itself. */
static void cuda_progress(ddp_device_t *device)
{
    (void)device;
}

/* What fails costs speed only. */
static void cuda_meet(const ddp_device_t *device, const ddp_device_t *other)
{
    int can = 0;

    if (device->dry || other->dry || device->ordinal == other->ordinal || ddp_cuda_enter(device) != DDP_OK) {
        return;
    }
    if (cudaDeviceCanAccessPeer(&can, device->ordinal, other->ordinal) == cudaSuccess && can != 0) {
        (void)cudaDeviceEnablePeerAccess(other->ordinal, 0);
    }
    (void)cudaGetLastError(); /* such as: was enabled before */
}

ddp_status_t ddp_cuda_backend(const ddp_backend_t **backend_p)
{
    static const ddp_backend_t backend = {
        .name               = "cuda",
        .ops                = &ddp_cuda_ops,
        .is_host_memory     = false,
        .device_open        = cuda_device_open,
        .device_close       = cuda_device_close,
        .acquire            = ddp_cuda_acquire,
        .release            = ddp_cuda_release,
        .host_allocator     = ddp_cuda_host_allocator,
        .pin                = ddp_cuda_pin,
        .unpin              = ddp_cuda_unpin,
        .progress           = cuda_progress,
        .meet               = cuda_meet,
        .choices            = ddp_cuda_gemm_choices,
        .enter              = enter_stream,
        .rounded_open       = ddp_cuda_rounded_open,
        .rounded_close      = ddp_cuda_rounded_close,
        .rounded_take       = ddp_cuda_rounded_take,
        .rounded_drop       = ddp_cuda_rounded_drop,
        .stream_open        = ddp_cuda_stream_open,
        .stream_reserve     = ddp_cuda_stream_reserve,
        .stream_use_graphs  = ddp_cuda_graphs_open,
        .stream_graphs      = ddp_cuda_graphs_report,
        .stream_close       = ddp_cuda_stream_close,
        .submit             = ddp_cuda_submit,
        .stream_synchronize = ddp_cuda_stream_synchronize,
        .copy               = ddp_cuda_copy,
        .event_open         = ddp_cuda_event_open,
        .event_close        = ddp_cuda_event_close,
        .event_record       = ddp_cuda_event_record,
        .wait_event         = ddp_cuda_wait_event,
        .event_synchronize  = ddp_cuda_event_synchronize,
        .event_elapsed      = ddp_cuda_event_elapsed,
    };

    *backend_p = &backend;
    return DDP_OK;
}
