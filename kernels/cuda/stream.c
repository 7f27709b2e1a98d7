/* Streams and events of a CUDA device. Every wait asks again and again, with the device's idle function in
 * between, so that it has a deadline and sees peers that are gone. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "kernels/cuda/device_internal.h"
#include "kernels/cuda/graphs.h"

ddp_status_t ddp_cuda_stream_open(ddp_stream_t *stream, bool is_urgent)
{
    ddp_status_t             status = DDP_OK;
    const ddp_device_t      *device = stream->device;
    const ddp_cuda_device_t *cuda   = ddp_cuda_of(device);
    ddp_cuda_lane_t         *lane   = NULL;

    if (device->dry) {
        return DDP_OK;
    }
    lane = calloc(1, sizeof(*lane));
    DDP_REQUIRE(lane != NULL, DDP_ERR_NO_MEMORY, "no memory for a stream");
    DDP_TRY(ddp_cuda_enter(device));
    DDP_TRY_CUDA(device, cudaStreamCreateWithPriority(&lane->stream, cudaStreamNonBlocking,
                                                      is_urgent ? cuda->high : cuda->low));
    stream->native = lane;
    lane           = NULL;
out:
    free(lane);
    return status;
}

void ddp_cuda_stream_close(ddp_stream_t *stream)
{
    ddp_cuda_lane_t *lane = ddp_cuda_lane_of(stream);

    if (lane != NULL) {
        ddp_cuda_graphs_close(stream);
        ddp_cuda_scratch_free(stream);
        if (ddp_cuda_enter(stream->device) == DDP_OK) {
            (void)cudaStreamDestroy(lane->stream);
        }
    }
    free(lane);
    free(stream->name);
    free(stream);
}

ddp_status_t ddp_cuda_submit(ddp_stream_t *stream, const char *name, ddp_work_fn_t *fn, const void *args,
                             size_t args_bytes)
{
    (void)fn;
    (void)args;
    (void)args_bytes;
    return ddp_fail(DDP_ERR_UNSUPPORTED, "%s: '%s' is work of the host, which a CUDA stream does not run",
                    stream->device->name, name);
}

ddp_status_t ddp_cuda_stream_fail(ddp_stream_t *stream, ddp_status_t status)
{
    stream->status = status;
    (void)snprintf(stream->line, sizeof(stream->line), "%s", ddp_error_line());
    return status;
}

ddp_status_t ddp_cuda_launched(ddp_stream_t *stream, const char *op)
{
    const cudaError_t error = cudaGetLastError();

    return error == cudaSuccess ? DDP_OK
                                : ddp_cuda_stream_fail(stream, ddp_cuda_fail(stream->device, error, op));
}

/* Kernels of all streams of the device note what they find in one place: whoever waits next is told. One of
 * another stream may be writing now; what it writes last says that the rest is there. */
static ddp_status_t check_fault(const ddp_device_t *device)
{
    const ddp_cuda_fault_t *fault = ddp_cuda_of(device)->fault;

    switch ((ddp_cuda_wrong_t)__atomic_load_n(&fault->wrong, __ATOMIC_ACQUIRE)) {
    case DDP_CUDA_WRONG_LABEL:
        return ddp_fail(
            DDP_ERR_INVALID_ARG, "label of row %lld is %lld: not in 0 .. %lld and not ignore_index %d",
            (long long)fault->row, (long long)fault->value, (long long)fault->limit - 1, (int)fault->ignored);
    case DDP_CUDA_WRONG_TOKEN:
        return ddp_fail(DDP_ERR_INVALID_ARG, "token %lld is %lld: the vocabulary ends at %lld",
                        (long long)fault->row, (long long)fault->value, (long long)fault->limit - 1);
    case DDP_CUDA_WRONG_NOTHING:
        break;
    }
    return DDP_OK;
}

static ddp_status_t wait_a_little(ddp_device_t *device, const char *what, int64_t start_ns, int timeout_ms)
{
    const int64_t waited = ddp_clock_ns() - start_ns;

    if (timeout_ms >= 0 && waited >= timeout_ms * DDP_NS_PER_MS) {
        return ddp_fail(DDP_ERR_TIMEOUT, "%s: %s was not done within %d ms", device->name, what, timeout_ms);
    }
    if (device->idle != NULL) {
        return device->idle(device->idle_ctx, waited);
    }
    (void)sched_yield();
    return DDP_OK;
}

/* One of them is asked: the stream, or the event. */
static ddp_status_t wait_native(ddp_device_t *device, cudaStream_t stream, cudaEvent_t event,
                                const char *what, int timeout_ms)
{
    ddp_status_t  status = DDP_OK;
    const int64_t start  = ddp_clock_ns();

    if (device->dry) {
        return DDP_OK;
    }
    DDP_TRY(ddp_cuda_enter(device));
    for (;;) {
        const cudaError_t error = event != NULL ? cudaEventQuery(event) : cudaStreamQuery(stream);

        if (error == cudaSuccess) {
            break;
        }
        if (error != cudaErrorNotReady) {
            status = ddp_cuda_fail(device, error, what);
            goto out;
        }
        (void)cudaGetLastError(); /* "not ready" is kept as if it were an error */
        if (timeout_ms == 0) {
            return DDP_IN_PROGRESS;
        }
        DDP_TRY(wait_a_little(device, what, start, timeout_ms));
    }
    DDP_TRY(check_fault(device));
out:
    return status;
}

ddp_status_t ddp_cuda_stream_synchronize(ddp_stream_t *stream, int timeout_ms)
{
    char         what[128];
    ddp_status_t status = DDP_OK;

    DDP_TRY(ddp_cuda_graphs_flush(stream));
    (void)snprintf(what, sizeof(what), "stream '%.100s'", stream->name);
    status = wait_native(stream->device, ddp_cuda_stream(stream), NULL, what, timeout_ms);
out:
    return status == DDP_ERR_DEVICE || status == DDP_ERR_INVALID_ARG ? ddp_cuda_stream_fail(stream, status)
                                                                     : status;
}

ddp_status_t ddp_cuda_copy(ddp_stream_t *stream, void *to, const void *from, size_t bytes)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(ddp_cuda_enter(stream->device));
    DDP_TRY(ddp_cuda_graphs_flush(stream));
    DDP_TRY_CUDA(stream->device,
                 cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, ddp_cuda_stream(stream)));
out:
    return status;
}

ddp_status_t ddp_cuda_event_open(ddp_event_t *event)
{
    ddp_status_t status = DDP_OK;
    cudaEvent_t  native = NULL;

    if (event->device->dry) {
        return DDP_OK;
    }
    DDP_TRY(ddp_cuda_enter(event->device));
    DDP_TRY_CUDA(event->device, cudaEventCreateWithFlags(&native, event->is_timed ? cudaEventDefault
                                                                                  : cudaEventDisableTiming));
    event->native = native;
out:
    return status;
}

void ddp_cuda_event_close(ddp_event_t *event)
{
    if (event->native != NULL && ddp_cuda_enter(event->device) == DDP_OK) {
        (void)cudaEventDestroy(event->native);
    }
}

ddp_status_t ddp_cuda_event_record(ddp_event_t *event, ddp_stream_t *stream)
{
    ddp_status_t status = DDP_OK;

    if (event->device->dry) {
        return DDP_OK;
    }
    DDP_TRY(ddp_cuda_enter(event->device));
    DDP_TRY(ddp_cuda_graphs_flush(stream));
    DDP_TRY_CUDA(event->device, cudaEventRecord(event->native, ddp_cuda_stream(stream)));
out:
    return status;
}

ddp_status_t ddp_cuda_wait_event(ddp_stream_t *stream, ddp_event_t *event)
{
    ddp_status_t status = DDP_OK;

    if (event->device->dry) {
        return DDP_OK;
    }
    DDP_TRY(ddp_cuda_enter(event->device));
    DDP_TRY(ddp_cuda_graphs_flush(stream));
    DDP_TRY_CUDA(event->device, cudaStreamWaitEvent(ddp_cuda_stream(stream), event->native, 0));
out:
    return status;
}

ddp_status_t ddp_cuda_event_synchronize(ddp_event_t *event, int timeout_ms)
{
    return wait_native(event->device, NULL, event->native, "an event", timeout_ms);
}

ddp_status_t ddp_cuda_event_elapsed(const ddp_event_t *from, const ddp_event_t *to, int64_t *ns_p)
{
    ddp_status_t status = DDP_OK;
    float        ms     = 0;
    cudaError_t  error;

    DDP_TRY(ddp_cuda_enter(from->device));
    error = cudaEventElapsedTime(&ms, from->native, to->native);
    if (error == cudaErrorNotReady) {
        (void)cudaGetLastError(); /* "not ready" is kept as if it were an error */
        return DDP_IN_PROGRESS;
    }
    if (error != cudaSuccess) {
        return ddp_cuda_fail(from->device, error, "cudaEventElapsedTime");
    }
    *ns_p = (int64_t)((double)ms * (double)DDP_NS_PER_MS);
out:
    return status;
}
