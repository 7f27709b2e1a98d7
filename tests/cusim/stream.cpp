/* Streams and events. */
#include "tests/cusim/graph.h"
#include "tests/cusim/runtime.h"
#include "tests/cusim/sanitizer.h"
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static std::vector<cusim_lanes_t *> *unused_lanes; /* of streams that are gone; under the lock */

void cusim_enqueue(cudaStream_t stream, const char *name, cusim_poll_t poll)
{
    if (!cusim_capture_work(stream, name, poll)) {
        cusim_enqueue_now(stream, name, std::move(poll));
    }
}

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream_p, unsigned flags, int priority)
{
    CUstream_st *stream;

    cusim_start();
    stream           = new CUstream_st();
    stream->flags    = flags;
    stream->priority = priority;
    stream->device   = cusim_current_device();

    cusim_lock held;
    stream->id = (int)cusim_streams().size();
    if (unused_lanes != NULL && !unused_lanes->empty()) {
        stream->lanes = unused_lanes->back();
        unused_lanes->pop_back();
    }
    cusim_streams().push_back(stream);
    *stream_p = stream;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream_p, unsigned flags)
{
    return cudaStreamCreateWithPriority(stream_p, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t *stream_p)
{
    return cudaStreamCreateWithPriority(stream_p, 0, 0);
}

/* The object stays, as operations of other streams may name it; work in it is run to its end, as CUDA does.
 */
cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    cusim_lock held;

    if (stream == NULL || stream->is_destroyed) {
        return cusim_fail(cudaErrorInvalidResourceHandle, "cudaStreamDestroy of a stream that is not there");
    }
    cusim_wait([stream] { return stream->queue.empty(); });
    stream->is_destroyed = true;
    if (stream->lanes != NULL) {
        unused_lanes = unused_lanes != NULL ? unused_lanes : new std::vector<cusim_lanes_t *>;
        unused_lanes->push_back(stream->lanes);
        stream->lanes = NULL;
    }
    return cudaSuccess;
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority)
{
    *priority = cusim_stream(stream)->priority;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    cusim_start();
    cusim_lock held;
    if (cusim_capture_forbids(stream, "cudaStreamSynchronize")) {
        return cusim_note(cudaErrorStreamCaptureUnsupported);
    }
    return cusim_drain(stream);
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    cusim_start();
    cusim_lock   held;
    CUstream_st *s = cusim_stream(stream);

    if (cusim_capture_forbids(stream, "cudaStreamQuery")) {
        return cusim_note(cudaErrorStreamCaptureUnsupported);
    }
    if (cusim_device_error(s->device) != 0) {
        return cusim_note((cudaError_t)cusim_device_error(s->device));
    }
    if (!s->queue.empty()) {
        cusim_polled();
        return cudaErrorNotReady;
    }
    CUSIM_ACQUIRE(&s->sync);
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
    cudaError_t error = cudaSuccess;

    if (cusim_capture_forbids_call("cudaDeviceSynchronize")) {
        return cudaErrorStreamCaptureUnsupported;
    }
    cusim_start();
    cusim_lock held;
    for (size_t i = 0; i < cusim_streams().size(); i++) {
        CUstream_st *stream = cusim_streams()[i];
        if (stream->device == cusim_current_device() && cusim_drain(stream) != cudaSuccess) {
            error = (cudaError_t)cusim_device_error(stream->device);
        }
    }
    return error;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event_p, unsigned flags)
{
    static std::vector<CUevent_st *> *events; /* kept: work that is queued may name one that is destroyed */

    cusim_start();
    CUevent_st *event = new CUevent_st();
    event->flags      = flags;
    event->device     = cusim_current_device();
    cusim_lock held;
    events = events != NULL ? events : new std::vector<CUevent_st *>;
    events->push_back(event);
    *event_p = event;
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event_p)
{
    return cudaEventCreateWithFlags(event_p, 0);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    return event != NULL ? cudaSuccess : cusim_note(cudaErrorInvalidResourceHandle);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    cusim_start();
    if (event->device != cusim_stream(stream)->device) {
        return cusim_fail(cudaErrorInvalidResourceHandle,
                          "cudaEventRecord of an event of device %d on a stream of device %d", event->device,
                          cusim_stream(stream)->device);
    }
    if (cusim_capture_record(stream, event)) {
        return cudaSuccess;
    }
    cusim_record_now(event, stream);
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    (void)flags;
    cusim_start();
    if (!cusim_capture_wait(stream, event)) {
        cusim_wait_now(stream, event);
    }
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    if (cusim_capture_forbids_call("cudaEventSynchronize")) {
        return cudaErrorStreamCaptureUnsupported;
    }
    cusim_lock held;

    cusim_wait([event] { return event->done >= event->recorded || cusim_device_error(event->device) != 0; });
    CUSIM_ACQUIRE(&event->sync);
    return cusim_note((cudaError_t)cusim_device_error(event->device));
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    if (cusim_capture_forbids_call("cudaEventQuery")) {
        return cudaErrorStreamCaptureUnsupported;
    }
    cusim_lock held;

    if (cusim_device_error(event->device) != 0) {
        return cusim_note((cudaError_t)cusim_device_error(event->device));
    }
    if (event->done < event->recorded) {
        cusim_polled();
        return cudaErrorNotReady;
    }
    CUSIM_ACQUIRE(&event->sync);
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end)
{
    cusim_lock held;

    if (((begin->flags | end->flags) & cudaEventDisableTiming) != 0 || begin->recorded == 0 ||
        end->recorded == 0) {
        return cusim_fail(cudaErrorInvalidResourceHandle, "cudaEventElapsedTime of events without a time");
    }
    if (begin->done < begin->recorded || end->done < end->recorded) {
        return cudaErrorNotReady;
    }
    *ms = (float)((double)(end->time.tv_sec - begin->time.tv_sec) * 1e3 +
                  (double)(end->time.tv_nsec - begin->time.tv_nsec) * 1e-6);
    return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data)
{
    cusim_start();
    cusim_enqueue(stream, "host function", [=] {
        function(data);
        return 1;
    });
    return cudaSuccess;
}
}

void cusim_record_now(cudaEvent_t event, cudaStream_t stream)
{
    uint64_t generation;

    {
        cusim_lock held;
        generation = ++event->recorded;
    }
    cusim_enqueue_now(stream, "record", [=] {
        CUSIM_RELEASE(&event->sync);
        syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &event->time); /* libc's is seen by the sanitizers */
        /* A record in another stream may have run before an earlier one: the last one counts. */
        if (event->done < generation) {
            __atomic_store_n(&event->done, generation, __ATOMIC_RELEASE);
        }
        return 1;
    });
}

void cusim_wait_now(cudaStream_t stream, cudaEvent_t event)
{
    uint64_t generation;

    {
        cusim_lock held;
        generation = event->recorded;
    }
    if (generation == 0) { /* a wait for an event that was never recorded is no wait */
        return;
    }
    cusim_enqueue_now(stream, "wait", [=] {
        if (__atomic_load_n(&event->done, __ATOMIC_ACQUIRE) < generation) {
            return 0;
        }
        CUSIM_ACQUIRE(&event->sync);
        return 1;
    });
}
