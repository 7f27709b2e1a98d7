/* What the runtime says about devices and errors. */
#include "tests/cusim/block.h"
#include "tests/cusim/runtime.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { UUID_TEXT = 48, UUID_BYTES = 16 };

/* The machine's devices that this process sees. */
static int visible[CUSIM_MAX_DEVICES];

/* The same for all processes of a machine. */
static void make_uuid(int device, char bytes[UUID_BYTES])
{
    memset(bytes, 0, UUID_BYTES);
    memcpy(bytes, "cusim", 5);
    bytes[UUID_BYTES - 1] = (char)device;
}

/* "GPU-6375736d-...", as nvidia-smi has it. */
static void write_uuid(int device, char text[UUID_TEXT])
{
    char  bytes[UUID_BYTES];
    char *at = text + snprintf(text, UUID_TEXT, "GPU-");

    make_uuid(device, bytes);
    for (int i = 0; i < UUID_BYTES; i++) {
        at +=
            sprintf(at, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", (unsigned char)bytes[i]);
    }
}

/* A number, or the begin of a uuid, up to a comma; -1: no device of the machine. */
static int find_device(const char *name, int devices)
{
    const size_t length = strcspn(name, ",");
    char        *end;
    long         number;

    if (strncmp(name, "GPU-", 4) == 0) {
        for (int i = 0; i < devices; i++) {
            char text[UUID_TEXT];

            write_uuid(i, text);
            if (strncmp(text, name, length) == 0) {
                return i;
            }
        }
        return -1;
    }
    number = strtol(name, &end, 10);
    return end == name || end != name + length || number < 0 || number >= devices ? -1 : (int)number;
}

/* The list ends where it names what is not there, or is already in it. */
int cusim_choose_devices(const char *list, int devices)
{
    int count = 0;

    if (list == NULL) {
        for (int i = 0; i < devices; i++) {
            visible[i] = i;
        }
        return devices;
    }
    while (count < devices) {
        visible[count] = find_device(list, devices);
        for (int i = 0; i < count; i++) {
            visible[count] = visible[i] == visible[count] ? -1 : visible[count];
        }
        if (visible[count] < 0) {
            break;
        }
        count++;
        list += strcspn(list, ",");
        list += *list == ',' ? 1 : 0;
    }
    return count;
}

extern "C" {

cudaError_t cudaGetDeviceCount(int *count)
{
    cusim_start();
    *count = cusim_device_count();
    return *count > 0 ? cudaSuccess : cusim_note(cudaErrorNoDevice);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
    cusim_start();
    if (device < 0 || device >= cusim_device_count()) {
        return cusim_fail(cudaErrorInvalidDevice, "cudaGetDeviceProperties of device %d", device);
    }
    memset(properties, 0, sizeof(*properties));
    snprintf(properties->name, sizeof(properties->name), "cusim");
    make_uuid(visible[device], properties->uuid.bytes);
    properties->pciBusID               = visible[device] + 1;
    properties->major                  = 9;
    properties->minor                  = 0;
    properties->multiProcessorCount    = 4; /* few: each block costs time here */
    properties->warpSize               = 32;
    properties->maxThreadsPerBlock     = CUSIM_MAX_THREADS;
    properties->maxThreadsDim[0]       = CUSIM_MAX_THREADS;
    properties->maxThreadsDim[1]       = CUSIM_MAX_THREADS;
    properties->maxThreadsDim[2]       = 64;
    properties->maxGridSize[0]         = 2147483647;
    properties->maxGridSize[1]         = 65535;
    properties->maxGridSize[2]         = 65535;
    properties->sharedMemPerBlock      = 49152;
    properties->sharedMemPerBlockOptin = CUSIM_MAX_SHARED;
    properties->regsPerBlock           = 65536;
    properties->asyncEngineCount       = 3;
    properties->unifiedAddressing      = 1;
    cudaMemGetInfo(&properties->totalConstMem, &properties->totalGlobalMem);
    properties->totalConstMem = 65536;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    struct cudaDeviceProp properties;
    cudaError_t           error = cudaGetDeviceProperties(&properties, device);

    if (error != cudaSuccess) {
        return error;
    }
    switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
        *value = properties.multiProcessorCount;
        return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
        *value = properties.major;
        return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
        *value = properties.minor;
        return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = (int)properties.sharedMemPerBlockOptin;
        return cudaSuccess;
    case cudaDevAttrPciBusId:
        *value = properties.pciBusID;
        return cudaSuccess;
    case cudaDevAttrPciDeviceId:
    case cudaDevAttrPciDomainId:
        *value = 0;
        return cudaSuccess;
    default:
        return cusim_fail(cudaErrorInvalidValue,
                          "cudaDeviceGetAttribute: attribute %d is not in the stand-in", (int)attribute);
    }
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int bytes, int device)
{
    snprintf(text, (size_t)bytes, "0000:%02x:00.0", (unsigned)visible[device] + 1);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least    = 0;
    *greatest = -5;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

const char *cudaGetErrorName(cudaError_t error)
{
    switch (error) {
    case cudaSuccess:
        return "cudaSuccess";
    case cudaErrorInvalidValue:
        return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
        return "cudaErrorMemoryAllocation";
    case cudaErrorNoDevice:
        return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice:
        return "cudaErrorInvalidDevice";
    case cudaErrorInvalidConfiguration:
        return "cudaErrorInvalidConfiguration";
    case cudaErrorIllegalAddress:
        return "cudaErrorIllegalAddress";
    case cudaErrorLaunchFailure:
        return "cudaErrorLaunchFailure";
    case cudaErrorNotReady:
        return "cudaErrorNotReady";
    default:
        return "a CUDA error";
    }
}

const char *cudaGetErrorString(cudaError_t error)
{
    switch (error) {
    case cudaSuccess:
        return "no error";
    case cudaErrorInvalidValue:
        return "invalid argument";
    case cudaErrorMemoryAllocation:
        return "out of memory";
    case cudaErrorNoDevice:
        return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice:
        return "invalid device ordinal";
    case cudaErrorInvalidConfiguration:
        return "invalid configuration argument";
    case cudaErrorIllegalAddress:
        return "an illegal memory access was encountered";
    case cudaErrorLaunchFailure:
        return "unspecified launch failure";
    case cudaErrorNotReady:
        return "device not ready";
    default:
        return cudaGetErrorName(error);
    }
}
}
