/* Kernels: what LAUNCH asks for is checked here as far as a GPU or nvcc would. */
#include "tests/cusim/block.h"
#include "tests/cusim/counts.h"
#include "tests/cusim/runtime.h"
#include <memory>
#include <stdlib.h>
#include <string.h>
#include <unordered_map>
#include <vector>

enum { DEFAULT_SHARED = 49152, ALIGN_BYTES = 16, MAX_GRID_YZ = 65535, MAX_BLOCK_Z = 64 };

/* Under the lock. */
static std::unordered_map<const void *, cusim_kernel_t> *kernels;
static std::unordered_map<const void *, size_t>         *shared_limits;
static std::unordered_map<const void *, size_t>         *launches;

extern "C" void cusim_register(const cusim_kernel_t *kernel)
{
    cusim_lock held;

    kernels = kernels != NULL ? kernels : new std::unordered_map<const void *, cusim_kernel_t>;
    kernels->emplace(kernel->function, *kernel);
}

static void count_launch(const void *function)
{
    cusim_lock held;

    launches = launches != NULL ? launches : new std::unordered_map<const void *, size_t>;
    (*launches)[function]++;
}

size_t cusim_launches(const char *part)
{
    cusim_lock held;
    size_t     sum = 0;

    if (launches != NULL) {
        for (const auto &counted : *launches) {
            sum += strstr(kernels->at(counted.first).name, part) != NULL ? counted.second : 0;
        }
    }
    return sum;
}

/* The kernel and the dynamic shared memory that it may have; NULL for what LAUNCH has never named. */
static const cusim_kernel_t *find_kernel(const void *function, size_t *limit)
{
    cusim_lock held;
    auto       known = kernels != NULL ? kernels->find(function) : decltype(kernels->end())();

    if (kernels == NULL || known == kernels->end()) {
        return NULL;
    }
    *limit = DEFAULT_SHARED;
    if (shared_limits != NULL && shared_limits->count(function) > 0) {
        *limit = shared_limits->at(function);
    }
    return &known->second;
}

/* A pointer that is not NULL must be one that the device can follow. */
static cudaError_t check_arguments(const cusim_kernel_t *kernel, void **arguments, int device)
{
    for (int i = 0; i < kernel->count; i++) {
        if (kernel->kind[i] != CUSIM_VALUE) {
            const void *address = *static_cast<void **>(arguments[i]);
            if (address != NULL && !cusim_is_reachable(address, 0, device)) {
                return cusim_fail(cudaErrorIllegalAddress,
                                  "%s: argument %d is %p, no address that device %d can follow", kernel->name,
                                  i, address, device);
            }
        }
    }
    return cudaSuccess;
}

static cudaError_t check_sizes(const cusim_kernel_t *kernel, dim3 grid, dim3 block, size_t shared,
                               size_t limit)
{
    if ((uint64_t)block.x * block.y * block.z > CUSIM_MAX_THREADS || block.x == 0 || block.y == 0 ||
        block.z == 0 || block.z > MAX_BLOCK_Z) {
        return cusim_fail(cudaErrorInvalidConfiguration, "%s: a block of %ux%ux%u", kernel->name, block.x,
                          block.y, block.z);
    }
    if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > INT32_MAX || grid.y > MAX_GRID_YZ ||
        grid.z > MAX_GRID_YZ) {
        return cusim_fail(cudaErrorInvalidConfiguration, "%s: a grid of %ux%ux%u", kernel->name, grid.x,
                          grid.y, grid.z);
    }
    if (shared > limit) {
        return cusim_fail(cudaErrorInvalidValue,
                          "%s: %zu bytes of dynamic shared memory, limit %zu (cudaFuncSetAttribute?)",
                          kernel->name, shared, limit);
    }
    return cudaSuccess;
}

/* The arguments are copied now: the caller's are gone when the kernel runs. Each launch of a graph copies
 * them again. */
typedef struct launch {
    const cusim_kernel_t   *kernel;
    dim3                    grid;
    dim3                    block;
    size_t                  shared;
    CUstream_st            *stream;
    std::shared_ptr<char>   values;
    std::shared_ptr<void *> pointers;
} launch_t;

static int run(const launch_t &launch)
{
    static std::vector<launch_t> *failed;

    if (launch.stream->lanes == NULL) {
        launch.stream->lanes = static_cast<cusim_lanes_t *>(calloc(1, sizeof(cusim_lanes_t)));
    }
    if (cusim_run_grid(launch.kernel, launch.grid, launch.block, launch.shared, launch.pointers.get(),
                       launch.stream->lanes) == 0) {
        return 1;
    }
    /* Threads that never ended may have read the arguments: to free those would be one more fault to the
     * sanitizer. */
    failed = failed != NULL ? failed : new std::vector<launch_t>;
    failed->push_back(launch);
    return -(int)cudaErrorLaunchFailure;
}

static void copy_arguments(launch_t *launch, void **arguments)
{
    const cusim_kernel_t *kernel = launch->kernel;
    size_t                bytes  = ALIGN_BYTES;
    char                 *next;

    for (int i = 0; i < kernel->count; i++) {
        bytes += (size_t)(kernel->bytes[i] + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
    }
    launch->values   = std::shared_ptr<char>(static_cast<char *>(aligned_alloc(ALIGN_BYTES, bytes)), free);
    launch->pointers = std::shared_ptr<void *>(
        static_cast<void **>(calloc((size_t)kernel->count + 1, sizeof(void *))), free);
    next = launch->values.get();
    for (int i = 0; i < kernel->count; i++) {
        memcpy(next, arguments[i], kernel->bytes[i]);
        launch->pointers.get()[i] = next;
        next += (size_t)(kernel->bytes[i] + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
    }
}

extern "C" {

cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attribute, int value)
{
    cusim_lock held;

    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) {
        return cudaSuccess; /* a hint */
    }
    if (value < 0 || value > CUSIM_MAX_SHARED) {
        return cusim_fail(cudaErrorInvalidValue, "cudaFuncSetAttribute: %d bytes of dynamic shared memory",
                          value);
    }
    shared_limits = shared_limits != NULL ? shared_limits : new std::unordered_map<const void *, size_t>;
    (*shared_limits)[function] = (size_t)value;
    return cudaSuccess;
}

cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared,
                             cudaStream_t stream)
{
    launch_t              launch;
    size_t                limit = 0;
    cudaError_t           error;
    const cusim_kernel_t *kernel;

    cusim_start();
    kernel = find_kernel(function, &limit);
    if (kernel == NULL) {
        return cusim_fail(cudaErrorInvalidDeviceFunction, "no kernel at %p", function);
    }
    launch = {kernel, grid, block, shared, cusim_stream(stream), nullptr, nullptr};
    if (launch.stream->device != cusim_current_device()) {
        return cusim_fail(cudaErrorInvalidResourceHandle,
                          "%s: a stream of device %d while device %d is current", kernel->name,
                          launch.stream->device, cusim_current_device());
    }
    error = check_sizes(kernel, grid, block, shared, limit);
    error = error != cudaSuccess ? error : check_arguments(kernel, arguments, launch.stream->device);
    error = error != cudaSuccess ? error : (cudaError_t)cusim_device_error(launch.stream->device);
    if (error != cudaSuccess) {
        return cusim_note(error);
    }
    count_launch(function);
    copy_arguments(&launch, arguments);
    cusim_enqueue(stream, kernel->name, [launch = std::move(launch)] { return run(launch); });
    return cudaSuccess;
}
}
