/* Device memory, page-locked memory and copies. Device memory begins as NaNs and ends at a page that nobody
 * may touch; a protection key, where the processor has them, keeps the host's threads out. */
#include "tests/cusim/graph.h"
#include "tests/cusim/runtime.h"
#include "tests/cusim/sanitizer.h"
#include <map>
#include <memory>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE_BYTES = 4096, ALIGN_BYTES = 256, DEFAULT_MEMORY_MB = 8192 };

typedef struct range {
    size_t bytes;
    int    kind;
    int    device;
    char  *pages; /* of device memory: with the two that nobody may touch */
    size_t page_bytes;
    bool   is_registered; /* the user's own memory, made page-locked */
} range_t;

/* All under the lock. */
static std::map<const char *, range_t> *ranges;
static size_t                           used_bytes[CUSIM_MAX_DEVICES];
static size_t                           asked_bytes[CUSIM_MAX_DEVICES]; /* without what is rounded up */
static size_t                           most_bytes[CUSIM_MAX_DEVICES];  /* of them, at a time */
static unsigned long long               n_allocations;
static bool                             has_peer[CUSIM_MAX_DEVICES][CUSIM_MAX_DEVICES]; /* [from][to] */

static std::map<const char *, range_t> &all(void)
{
    if (ranges == NULL) {
        ranges = new std::map<const char *, range_t>;
    }
    return *ranges;
}

static size_t device_bytes(void)
{
    const char *text = getenv("CUSIM_MEMORY_MB");

    return (text != NULL ? strtoull(text, NULL, 10) : (size_t)DEFAULT_MEMORY_MB) << 20;
}

/* Whether this is the allocation that is to fail, device memory and page-locked memory counted together. */
static bool is_planted(void)
{
    const char *text = getenv("CUSIM_MEMORY_FAULT");
    cusim_lock  held;

    n_allocations++;
    return text != NULL && n_allocations == strtoull(text, NULL, 10);
}

/* The allocation that holds `address`, or NULL. */
static const std::pair<const char *const, range_t> *find(const void *address)
{
    const char *wanted = static_cast<const char *>(address);
    auto        it     = all().upper_bound(wanted);

    if (it == all().begin()) {
        return NULL;
    }
    --it;
    return wanted < it->first + it->second.bytes ? &*it : NULL;
}

int cusim_memory_kind(const void *address)
{
    cusim_lock held;
    auto      *found = find(address);

    return found != NULL ? found->second.kind : CUSIM_PAGEABLE;
}

bool cusim_is_reachable(const void *address, size_t bytes, int device)
{
    cusim_lock  held;
    const char *begin = static_cast<const char *>(address);
    auto       *found = find(address);

    if (found == NULL || begin + bytes > found->first + found->second.bytes) {
        return false;
    }
    return found->second.kind == CUSIM_PINNED || found->second.device == device ||
           has_peer[device][found->second.device];
}

/* What lies between an allocation and the pages around it: a number that is a signalling NaN as bfloat16,
 * half and float, so that arithmetic with it shows, and changes it. */
static const char slack_pattern[2] = {(char)0xa0, (char)0x7f};

static void fill_slack(char *user, const range_t &range)
{
    char *end = range.pages + range.page_bytes - PAGE_BYTES;

    for (char *p = range.pages + PAGE_BYTES; p < user; p++) {
        *p = slack_pattern[(uintptr_t)p % 2];
    }
    for (char *p = user + range.bytes; p < end; p++) {
        *p = slack_pattern[(uintptr_t)p % 2];
    }
}

/* The host's threads may look at device memory while this is 0. */
static unsigned open_memory(unsigned rights)
{
    unsigned before = 0;

    if (cusim_protection_key() > 0) {
        before = (unsigned)pkey_get(cusim_protection_key());
        pkey_set(cusim_protection_key(), rights);
    }
    return before;
}

static void check_slack(const char *user, const range_t &range)
{
    const char *end = range.pages + range.page_bytes - PAGE_BYTES;
    const char *at  = NULL;
    unsigned    rights;

    if (range.kind != CUSIM_DEVICE_MEMORY) {
        return;
    }
    rights = open_memory(0);
    for (const char *p = range.pages + PAGE_BYTES; p < end; p++) {
        p  = p == user ? user + range.bytes : p;
        at = p < end && *p != slack_pattern[(uintptr_t)p % 2] ? p : at;
    }
    open_memory(rights);
    if (at != NULL) {
        fprintf(stderr, "cusim: a write at byte %td of an allocation of %zu bytes\n", at - user, range.bytes);
        _exit(98);
    }
}

void cusim_check_memory(void)
{
    for (const auto &entry : all()) {
        check_slack(entry.first, entry.second);
    }
}

void cusim_report_memory(void)
{
    const char *name = getenv("CUSIM_MEMORY_REPORT");
    char        path[4096];
    FILE       *file;

    if (name == NULL) {
        return;
    }
    snprintf(path, sizeof(path), "%s.%ld", name, (long)getpid());
    file = fopen(path, "w");
    for (int i = 0; file != NULL && i < CUSIM_MAX_DEVICES; i++) {
        if (most_bytes[i] > 0) {
            fprintf(file, "%d %zu\n", i, most_bytes[i]);
        }
    }
    if (file == NULL || fclose(file) != 0) {
        fprintf(stderr, "cusim: %s cannot be written\n", path);
    }
}

/* What a copy of this kind may come from and go to; NULL if all is well. */
static const char *check_copy(const void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    cusim_lock held;
    auto      *d            = find(to);
    auto      *s            = find(from);
    bool       to_device    = d != NULL && d->second.kind == CUSIM_DEVICE_MEMORY;
    bool       from_device  = s != NULL && s->second.kind == CUSIM_DEVICE_MEMORY;
    bool       wants_to     = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    bool       wants_from   = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    bool       is_by_itself = kind == cudaMemcpyDefault;

    if (!is_by_itself && (to_device != wants_to || from_device != wants_from)) {
        return "does not fit where the memory is";
    }
    if ((d != NULL && static_cast<const char *>(to) + bytes > d->first + d->second.bytes) ||
        (s != NULL && static_cast<const char *>(from) + bytes > s->first + s->second.bytes)) {
        return "runs past its allocation";
    }
    return NULL;
}

static cusim_poll_t copy_op(void *to, const void *from, size_t bytes)
{
    return [=] {
        memcpy(to, from, bytes);
        return 1;
    };
}

extern "C" {

cudaError_t cudaMalloc(void **address_p, size_t bytes)
{
    size_t  rounded = (bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
    size_t  inner   = (rounded + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    int     device  = cusim_current_device();
    char   *pages;
    char   *user;
    range_t range;

    if (cusim_capture_forbids_call("cudaMalloc")) {
        return cudaErrorStreamCaptureUnsupported;
    }
    cusim_start();
    *address_p = NULL;
    if (bytes == 0) {
        return cudaSuccess;
    }
    if (is_planted()) {
        return cusim_note(cudaErrorMemoryAllocation);
    }
    {
        cusim_lock held;
        if (rounded > device_bytes() - used_bytes[device]) {
            return cusim_note(cudaErrorMemoryAllocation);
        }
        used_bytes[device] += rounded;
        asked_bytes[device] += bytes;
        most_bytes[device] =
            asked_bytes[device] > most_bytes[device] ? asked_bytes[device] : most_bytes[device];
    }
    pages = static_cast<char *>(
        mmap(NULL, inner + 2 * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (pages == MAP_FAILED) {
        return cusim_note(cudaErrorMemoryAllocation);
    }
    mprotect(pages, PAGE_BYTES, PROT_NONE);
    mprotect(pages + PAGE_BYTES + inner, PAGE_BYTES, PROT_NONE);
    memset(pages + PAGE_BYTES, 0xff, inner);
    user  = pages + PAGE_BYTES + inner - rounded;
    range = {bytes, CUSIM_DEVICE_MEMORY, device, pages, inner + 2 * PAGE_BYTES, false};
    fill_slack(user, range);
    CUSIM_POISON(pages + PAGE_BYTES, (size_t)(user - pages) - PAGE_BYTES);
    CUSIM_POISON(user + bytes, rounded - bytes);
    if (cusim_protection_key() > 0) {
        pkey_mprotect(pages + PAGE_BYTES, inner, PROT_READ | PROT_WRITE, cusim_protection_key());
    }
    cusim_lock held;
    all()[user] = range;
    *address_p  = user;
    return cudaSuccess;
}

/* Waits for the device, as CUDA does. */
cudaError_t cudaFree(void *address)
{
    range_t range;

    if (cusim_capture_forbids_call("cudaFree")) {
        return cudaErrorStreamCaptureUnsupported;
    }
    if (address == NULL) {
        return cudaSuccess;
    }
    cudaDeviceSynchronize();
    cusim_lock held;
    auto       it = all().find(static_cast<char *>(address));
    if (it == all().end() || it->second.kind != CUSIM_DEVICE_MEMORY) {
        return cusim_fail(cudaErrorInvalidValue, "cudaFree of %p: not from cudaMalloc", address);
    }
    range = it->second;
    check_slack(it->first, range);
    all().erase(it);
    asked_bytes[range.device] -= range.bytes;
    used_bytes[range.device] -= (range.bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
    CUSIM_UNPOISON(range.pages, range.page_bytes);
    munmap(range.pages, range.page_bytes);
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    cusim_start();
    cusim_lock held;
    *total_bytes = device_bytes();
    *free_bytes  = *total_bytes - used_bytes[cusim_current_device()];
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **address_p, size_t bytes, unsigned flags)
{
    (void)flags;
    if (cusim_capture_forbids_call("cudaHostAlloc")) {
        return cudaErrorStreamCaptureUnsupported;
    }
    cusim_start();
    if (is_planted() || posix_memalign(address_p, PAGE_BYTES, bytes) != 0) {
        return cusim_note(cudaErrorMemoryAllocation);
    }
    cusim_lock held;
    all()[static_cast<char *>(*address_p)] = {bytes, CUSIM_PINNED, 0, NULL, 0, false};
    return cudaSuccess;
}

cudaError_t cudaMallocHost(void **address_p, size_t bytes)
{
    return cudaHostAlloc(address_p, bytes, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void *address)
{
    if (cusim_capture_forbids_call("cudaFreeHost")) {
        return cudaErrorStreamCaptureUnsupported;
    }
    if (address == NULL) {
        return cudaSuccess;
    }
    cudaDeviceSynchronize();
    cusim_lock held;
    auto       it = all().find(static_cast<char *>(address));
    if (it == all().end() || it->second.kind != CUSIM_PINNED || it->second.is_registered) {
        return cusim_fail(cudaErrorInvalidValue, "cudaFreeHost of %p: not from cudaHostAlloc", address);
    }
    all().erase(it);
    free(address);
    return cudaSuccess;
}

cudaError_t cudaHostRegister(void *address, size_t bytes, unsigned flags)
{
    (void)flags;
    cusim_start();
    if (is_planted()) {
        return cusim_note(cudaErrorMemoryAllocation);
    }
    cusim_lock held;
    if (find(address) != NULL) {
        return cusim_fail(cudaErrorHostMemoryAlreadyRegistered, "cudaHostRegister of %p: it is page-locked",
                          address);
    }
    all()[static_cast<char *>(address)] = {bytes, CUSIM_PINNED, 0, NULL, 0, true};
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *address)
{
    cudaDeviceSynchronize();
    cusim_lock held;
    auto       it = all().find(static_cast<char *>(address));
    if (it == all().end() || !it->second.is_registered) {
        return cusim_fail(cudaErrorHostMemoryNotRegistered, "cudaHostUnregister of %p: not registered",
                          address);
    }
    all().erase(it);
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *address)
{
    cusim_start();
    cusim_lock held;
    auto      *found = find(address);

    memset(attributes, 0, sizeof(*attributes));
    attributes->type = found == NULL                               ? cudaMemoryTypeUnregistered
                       : found->second.kind == CUSIM_DEVICE_MEMORY ? cudaMemoryTypeDevice
                                                                   : cudaMemoryTypeHost;
    if (found != NULL) {
        attributes->device        = found->second.device;
        attributes->devicePointer = const_cast<void *>(address);
        attributes->hostPointer   = found->second.kind == CUSIM_PINNED ? const_cast<void *>(address) : NULL;
    }
    return cudaSuccess;
}

/* Pageable memory: a source is copied before the call returns, a destination is waited for. */
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    const char *fault;

    cusim_start();
    if (bytes == 0) {
        return cudaSuccess;
    }
    fault = check_copy(to, from, bytes, kind);
    if (fault != NULL) {
        return cusim_fail(cudaErrorInvalidValue,
                          "a copy of %zu bytes, kind %d, from %d to %d (0 pageable, 1 device, 2 pinned) %s",
                          bytes, (int)kind, cusim_memory_kind(from), cusim_memory_kind(to), fault);
    }
    if (cusim_memory_kind(from) == CUSIM_PAGEABLE) {
        std::shared_ptr<char> staged(static_cast<char *>(malloc(bytes)), free);
        memcpy(staged.get(), from, bytes);
        /* Moved: the stream alone frees it, in its own order. */
        cusim_enqueue(stream, "copy", [to, bytes, staged = std::move(staged)] {
            memcpy(to, staged.get(), bytes);
            return 1;
        });
    } else {
        cusim_enqueue(stream, "copy", copy_op(to, from, bytes));
    }
    return cusim_memory_kind(to) == CUSIM_PAGEABLE ? cudaStreamSynchronize(stream) : cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    cudaError_t error = cudaMemcpyAsync(to, from, bytes, kind, NULL);

    return error != cudaSuccess ? error : cudaStreamSynchronize(NULL);
}

cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device, size_t bytes,
                                cudaStream_t stream)
{
    (void)to_device;
    (void)from_device;
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
}

cudaError_t cudaMemsetAsync(void *address, int value, size_t bytes, cudaStream_t stream)
{
    cusim_start();
    if (bytes == 0) {
        return cudaSuccess;
    }
    if (cusim_memory_kind(address) != CUSIM_DEVICE_MEMORY ||
        !cusim_is_reachable(address, bytes, cusim_current_device())) {
        return cusim_fail(cudaErrorInvalidValue,
                          "a memset of %zu bytes that are not all in one piece of the device's memory",
                          bytes);
    }
    cusim_enqueue(stream, "memset", [=] {
        memset(address, value, bytes);
        return 1;
    });
    return cudaSuccess;
}

cudaError_t cudaMemset(void *address, int value, size_t bytes)
{
    return cudaMemsetAsync(address, value, bytes, NULL);
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    *can = device != peer && device < cusim_device_count() && peer < cusim_device_count();
    return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags)
{
    int device = cusim_current_device();

    (void)flags;
    cusim_start();
    if (peer == device || peer < 0 || peer >= cusim_device_count()) {
        return cusim_fail(cudaErrorInvalidDevice, "cudaDeviceEnablePeerAccess(%d) on device %d", peer,
                          device);
    }
    cusim_lock held;
    if (has_peer[device][peer]) {
        return cusim_note(cudaErrorPeerAccessAlreadyEnabled);
    }
    has_peer[device][peer] = true;
    return cudaSuccess;
}
}
