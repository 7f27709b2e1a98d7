/**
 * @file The stand-in for the CUDA runtime: devices, streams, events, memory, as nccl.cpp and the other
 * libraries' stand-ins see them. One thread, the executor, is all devices of the process; each stream is a
 * queue of operations that it polls.
 *
 * Environment, read once at the first call:
 *   CUSIM_SCHED    eager (in the order of submission, the default) | lifo (newest head first) | random:SEED
 *   CUSIM_LAZY=1   start nothing until the host waits or polls (or 40 ms pass with nothing new)
 *   CUSIM_ORDER    order of the threads in a block, block.h
 *   CUSIM_DEVICES  devices of the machine, 1;  CUSIM_MEMORY_MB  memory of each, 8192
 *   CUDA_VISIBLE_DEVICES  which of them the process sees, and in which order: as CUDA has it
 *   CUSIM_MEMORY_FAULT=N  the process's Nth allocation of device or page-locked memory fails, from 1
 *   CUSIM_MEMORY_REPORT=FILE  at its end a process adds a line for each device, "<device> <most bytes that
 * were asked for at a time>", to FILE.<pid>
 *   CUSIM_CAPTURE_FAULT=1  nothing can be captured; looked at each time
 *   CUSIM_PKEY=0   no memory protection keys: the host may read device memory
 */
#ifndef DDP_RUNTIME_H_
#define DDP_RUNTIME_H_

#include "tests/cusim/fiber.h"
#include <cuda_runtime_api.h>
#include <deque>
#include <functional>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>
#include <vector>

enum { CUSIM_MAX_DEVICES = 16 };
enum { CUSIM_PAGEABLE, CUSIM_DEVICE_MEMORY, CUSIM_PINNED };

/** An operation: 0 not yet (call again), 1 done, < 0 failed with the cudaError of that number. What it needs
 * to go on is in the closure itself, by value: a graph runs a copy of it at each launch. */
typedef std::function<int()> cusim_poll_t;

typedef struct cusim_op {
    const char  *name; /* borrowed, static */
    uint64_t     number;
    cusim_poll_t poll;
    char         submitted; /* for the thread sanitizer: what the host did before */
    bool         has_begun;
} cusim_op_t;

struct CUstream_st {
    int                      id;
    int                      device;
    int                      priority;
    unsigned                 flags;
    bool                     is_destroyed;
    std::deque<cusim_op_t *> queue;
    char                     sync; /* for the thread sanitizer: what has run here */
    void                    *tsan;
    cusim_lanes_t           *lanes;
    struct CUgraph_st       *capture; /* what its work goes to instead, or NULL */
};

struct CUevent_st {
    int      device;
    unsigned flags;
    uint64_t recorded; /* a wait is for the last record before it */
    uint64_t done;
    timespec time;
    char     sync;
    /* While a graph is captured: */
    struct CUgraph_st *capture;
    int                captured; /* the number of its record there */
};

/** Holds the lock over all state; the executor gives it up while an operation runs. */
class cusim_lock
{
  public:
    cusim_lock();
    ~cusim_lock();
    cusim_lock(const cusim_lock &)            = delete;
    cusim_lock &operator=(const cusim_lock &) = delete;
};

/** Starts the executor; every entry calls it, it works once a process. */
void cusim_start(void);
/** Appends to the stream (NULL: the legacy stream of the current device), or to the graph that it is captured
 * into. */
void cusim_enqueue(cudaStream_t stream, const char *name, cusim_poll_t poll);
/** The same, never into a graph. */
void cusim_enqueue_now(cudaStream_t stream, const char *name, cusim_poll_t poll);
void cusim_record_now(cudaEvent_t event, cudaStream_t stream);
void cusim_wait_now(cudaStream_t stream, cudaEvent_t event);
/** Waits until the stream has run what is in it now. With the lock held. */
cudaError_t cusim_drain(cudaStream_t stream);
/** Waits until `is_done`, which is called with the lock held, as this must be. */
void cusim_wait(const std::function<bool()> &is_done);
/** The host looked whether something is ready: in lazy mode that counts as waiting. With the lock held. */
void cusim_polled(void);
/** The legacy stream of the current device for NULL. */
cudaStream_t cusim_stream(cudaStream_t stream);
int          cusim_current_device(void);
int          cusim_device_count(void);
/** Which of the machine's are there for this process. @param [in] list  CUDA_VISIBLE_DEVICES; NULL: all.
 * @return their number */
int cusim_choose_devices(const char *list, int devices);
/** All streams, the legacy ones too; never freed, as operations may name them. With the lock held. */
std::vector<CUstream_st *> &cusim_streams(void);
/** The error that a kernel left behind on the device, 0 if none; nothing but the end of the process clears
 * it. */
int  cusim_device_error(int device);
void cusim_set_device_error(int device, int error);
/** Prints one line and records the error for cudaGetLastError(). */
cudaError_t cusim_fail(cudaError_t error, const char *format, ...) __attribute__((format(printf, 2, 3)));
/** Only records it. */
cudaError_t cusim_note(cudaError_t error);

/** CUSIM_PAGEABLE for what the runtime does not know. */
int cusim_memory_kind(const void *address);
/** Whether [address, address + bytes) lies in one allocation of device memory that `device` can reach. */
bool cusim_is_reachable(const void *address, size_t bytes, int device);
/** Ends the process if something was written right before or behind an allocation. With the lock held. */
void cusim_check_memory(void);
/** See CUSIM_MEMORY_REPORT. With the lock held. */
void cusim_report_memory(void);
/** The key that keeps the host out of device memory, < 0 for none. */
int cusim_protection_key(void);

#endif /* DDP_RUNTIME_H_ */
