/* The thread that is the devices: picks among the heads of the streams' queues, by the policy of CUSIM_SCHED.
 */
#include "tests/cusim/block.h"
#include "tests/cusim/runtime.h"
#include "tests/cusim/sanitizer.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { EAGER, LIFO, RANDOM };
enum { LAZY_STEP_MS = 2, LAZY_STEPS = 20, POLLS_THAT_COUNT = 3, EXIT_STEP_MS = 10, EXIT_STEPS = 100 };
enum { RUNNING, STOPPING, STOPPED };

static pthread_mutex_t lock         = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t  device_wakes = PTHREAD_COND_INITIALIZER;
static pthread_cond_t  host_wakes   = PTHREAD_COND_INITIALIZER;

/* All under the lock. Never destroyed: threads may still use them at exit. */
static std::vector<CUstream_st *> *streams;
static uint64_t                    submitted; /* operations */
static unsigned                    waiters;   /* host threads */
static unsigned                    polls;     /* since the last operation was submitted */
static int                         phase;
static int                         device_errors[CUSIM_MAX_DEVICES];

static int                      policy;
static bool                     is_lazy;
static uint64_t                 random_state = 88172645463325252ULL;
static int                      devices      = 1;
static int                      key          = -1;
static CUstream_st             *legacy[CUSIM_MAX_DEVICES];
static thread_local int         current_device; /* not in a function: those are shared memory of kernels */
static thread_local cudaError_t last_error;

cusim_lock::cusim_lock()
{
    pthread_mutex_lock(&lock);
}

cusim_lock::~cusim_lock()
{
    pthread_mutex_unlock(&lock);
}

cudaError_t cusim_note(cudaError_t error)
{
    if (error != cudaSuccess) {
        last_error = error;
    }
    return error;
}

cudaError_t cusim_fail(cudaError_t error, const char *format, ...)
{
    char    text[512];
    va_list list;

    va_start(list, format);
    vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    fprintf(stderr, "cusim: %s\n", text);
    return cusim_note(error);
}

static uint64_t next_random(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static void wait_ms(pthread_cond_t *wakes, long ms)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += ms * 1000000;
    if (until.tv_nsec > 999999999) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_cond_timedwait(wakes, &lock, &until);
}

static bool is_legacy(const CUstream_st *stream)
{
    return stream == legacy[stream->device];
}

static bool is_blocking(const CUstream_st *stream)
{
    return (stream->flags & cudaStreamNonBlocking) == 0;
}

/* The legacy stream and the blocking streams of its device run in the order of submission; no other streams
 * do. */
static bool is_runnable(const CUstream_st *stream)
{
    uint64_t number;

    if (stream->queue.empty()) {
        return false;
    }
    number = stream->queue.front()->number;
    for (const CUstream_st *other : *streams) {
        if (other != stream && other->device == stream->device && is_legacy(other) != is_legacy(stream) &&
            is_blocking(other) && is_blocking(stream) && !other->queue.empty() &&
            other->queue.front()->number < number) {
            return false;
        }
    }
    return true;
}

#if defined CUSIM_TSAN
/* Every stream is a fiber of the sanitizer's; what it does is ordered by what CUDA orders and nothing else.
 */
static void prepare_stream(CUstream_st *stream, std::vector<char *> *before)
{
    char name[32];

    if (stream->tsan == NULL) {
        stream->tsan = __tsan_create_fiber(0);
        snprintf(name, sizeof(name), "CUDA stream %d", stream->id);
        __tsan_set_fiber_name(stream->tsan, name);
    }
    for (CUstream_st *other : *streams) {
        if (other != stream && other->device == stream->device && is_legacy(other) != is_legacy(stream) &&
            is_blocking(other) && is_blocking(stream)) {
            before->push_back(&other->sync);
        }
    }
}

static void enter_stream(CUstream_st *stream, cusim_op_t *op, const std::vector<char *> &before)
{
    CUSIM_SWITCH(stream->tsan);
    if (!op->has_begun) {
        op->has_begun = true;
        CUSIM_ACQUIRE(&op->submitted);
        for (char *sync : before) {
            CUSIM_ACQUIRE(sync);
        }
    }
}
#endif

/* Polls the head once, without the lock, which belongs to the executor's own fiber. */
static int run_head(CUstream_st *stream)
{
    cusim_op_t *op = stream->queue.front();
    int         result;

#if defined CUSIM_TSAN
    void               *self = __tsan_get_current_fiber();
    std::vector<char *> before;
    prepare_stream(stream, &before);
    pthread_mutex_unlock(&lock);
    enter_stream(stream, op, before);
    result = op->poll();
    if (result != 0) {
        op->poll = nullptr; /* here, as the host's memory that it holds is the stream's by now */
        CUSIM_RELEASE(&stream->sync);
    }
    CUSIM_SWITCH(self);
#else
    pthread_mutex_unlock(&lock);
    result = op->poll();
#endif
    pthread_mutex_lock(&lock);
    return result;
}

static size_t pick(const std::vector<CUstream_st *> &ready)
{
    size_t best = 0;

    if (policy == RANDOM) {
        return next_random() % ready.size();
    }
    for (size_t i = 1; i < ready.size(); i++) {
        uint64_t a = ready[i]->queue.front()->number;
        uint64_t b = ready[best]->queue.front()->number;
        if (policy == LIFO ? a > b : a < b) {
            best = i;
        }
    }
    return best;
}

/* Tries heads until one is done. */
static bool make_progress(std::vector<CUstream_st *> *ready)
{
    while (!ready->empty()) {
        size_t       k      = pick(*ready);
        CUstream_st *stream = (*ready)[k];
        int          result;

        ready->erase(ready->begin() + (ptrdiff_t)k);
        result = run_head(stream);
        if (result != 0) {
            if (result < 0 && device_errors[stream->device] == 0) {
                device_errors[stream->device] = -result;
            }
            delete stream->queue.front();
            stream->queue.pop_front();
            pthread_cond_broadcast(&host_wakes);
            return true;
        }
    }
    return false;
}

static bool is_held_back(unsigned idle)
{
    return is_lazy && waiters == 0 && polls < POLLS_THAT_COUNT && idle < LAZY_STEPS;
}

static void *executor_main(void *unused)
{
    std::vector<CUstream_st *> ready;
    unsigned                   idle = 0;

    if (key > 0) {
        pkey_set(key, 0);
    }
    pthread_mutex_lock(&lock);
    while (phase == RUNNING) {
        ready.clear();
        for (CUstream_st *stream : *streams) {
            if (is_runnable(stream)) {
                ready.push_back(stream);
            }
        }
        if (ready.empty()) {
            pthread_cond_wait(&device_wakes, &lock);
            idle = 0;
        } else if (is_held_back(idle)) {
            uint64_t before = submitted;
            wait_ms(&device_wakes, LAZY_STEP_MS);
            idle = submitted == before ? idle + 1 : 0;
        } else if (!make_progress(&ready)) {
            pthread_mutex_unlock(&lock);
            usleep(20);
            pthread_mutex_lock(&lock);
        }
    }
    phase = STOPPED;
    pthread_cond_broadcast(&host_wakes);
    pthread_mutex_unlock(&lock);
    return unused;
}

/* Before the static destructors. Work that is still queued is a fault of the host. */
static void stop_executor(void)
{
    cusim_lock held;
    size_t     left = 0;

    for (const CUstream_st *stream : *streams) {
        left += stream->queue.size();
    }
    if (left > 0) {
        fprintf(stderr, "cusim: the process exits with %zu operations still queued\n", left);
    }
    phase = STOPPING;
    pthread_cond_broadcast(&device_wakes);
    for (int i = 0; phase != STOPPED && i < EXIT_STEPS; i++) {
        wait_ms(&host_wakes, EXIT_STEP_MS);
    }
    if (phase != STOPPED) {
        _exit(98);
    }
    cusim_check_memory();
    cusim_report_memory();
}

static void read_environment(void)
{
    const char *text = getenv("CUSIM_SCHED");

    if (text != NULL && strncmp(text, "lifo", 4) == 0) {
        policy = LIFO;
    } else if (text != NULL && strncmp(text, "random", 6) == 0) {
        policy = RANDOM;
        random_state += text[6] != '\0' ? strtoull(text + 7, NULL, 10) * 0x9e3779b97f4a7c15ULL : 0;
    }
    text    = getenv("CUSIM_LAZY");
    is_lazy = text != NULL && *text == '1';
    text    = getenv("CUSIM_ORDER");
    if (text != NULL) {
        cusim_set_order(*text == 'r'   ? CUSIM_REVERSE
                        : *text == 'x' ? CUSIM_RANDOM
                        : *text == 'g' ? CUSIM_GREEDY
                        : *text == 'h' ? CUSIM_GREEDY_REVERSE
                                       : CUSIM_FORWARD,
                        *text == 'x' ? (unsigned)strtoul(text + 1, NULL, 10) : 0);
    }
    text = getenv("CUSIM_DEVICES");
    if (text != NULL) {
        devices = (int)strtol(text, NULL, 10);
        devices = devices < 0 ? 0 : devices > CUSIM_MAX_DEVICES ? CUSIM_MAX_DEVICES : devices;
    }
    devices = cusim_choose_devices(getenv("CUDA_VISIBLE_DEVICES"), devices);
    text    = getenv("CUSIM_PKEY");
    if (text == NULL || *text != '0') {
        key = pkey_alloc(0, PKEY_DISABLE_ACCESS);
    }
}

static void start(void)
{
    pthread_t thread;

    streams = new std::vector<CUstream_st *>;
    read_environment();
    for (int i = 0; i < CUSIM_MAX_DEVICES; i++) {
        legacy[i]         = new CUstream_st();
        legacy[i]->device = i;
        streams->push_back(legacy[i]);
    }
    if (pthread_create(&thread, NULL, executor_main, NULL) != 0) {
        fprintf(stderr, "cusim: no thread for the executor\n");
        _exit(98);
    }
    pthread_detach(thread);
    atexit(stop_executor);
}

void cusim_start(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, start);
}

void cusim_enqueue_now(cudaStream_t stream, const char *name, cusim_poll_t poll)
{
    cusim_op_t *op = new cusim_op_t{name, 0, std::move(poll), 0, false};
    cusim_lock  held;

    CUSIM_RELEASE(&op->submitted);
    op->number = ++submitted;
    polls      = 0;
    cusim_stream(stream)->queue.push_back(op);
    pthread_cond_broadcast(&device_wakes);
}

void cusim_wait(const std::function<bool()> &is_done)
{
    waiters++;
    pthread_cond_broadcast(&device_wakes);
    while (!is_done()) {
        pthread_cond_wait(&host_wakes, &lock);
    }
    waiters--;
}

cudaError_t cusim_drain(cudaStream_t stream)
{
    CUstream_st *s    = cusim_stream(stream);
    uint64_t     last = submitted;

    cusim_wait([s, last] { return s->queue.empty() || s->queue.front()->number > last; });
    CUSIM_ACQUIRE(&s->sync);
    return cusim_note((cudaError_t)device_errors[s->device]);
}

void cusim_polled(void)
{
    polls++;
    pthread_cond_broadcast(&device_wakes);
}

std::vector<CUstream_st *> &cusim_streams(void)
{
    return *streams;
}

cudaStream_t cusim_stream(cudaStream_t stream)
{
    return stream != NULL ? stream : legacy[current_device];
}

int cusim_current_device(void)
{
    return current_device;
}

int cusim_device_count(void)
{
    return devices;
}

int cusim_device_error(int device)
{
    return device_errors[device];
}

void cusim_set_device_error(int device, int error)
{
    device_errors[device] = error;
}

int cusim_protection_key(void)
{
    return key;
}

extern "C" {

cudaError_t cudaSetDevice(int device)
{
    cusim_start();
    if (device < 0 || device >= devices) {
        return cusim_fail(cudaErrorInvalidDevice, "cudaSetDevice(%d) of %d devices", device, devices);
    }
    current_device = device;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = current_device;
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t error = last_error;

    last_error = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError(void)
{
    return last_error;
}
}
