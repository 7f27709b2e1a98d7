#include "kernels/device.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/device_internal.h"

static ddp_status_t find_backend(ddp_device_kind_t kind, const ddp_backend_t **backend_p)
{
    ddp_status_t status = DDP_OK;

    DDP_REQUIRE(kind == DDP_DEVICE_CPU || kind == DDP_DEVICE_CUDA, DDP_ERR_INVALID_ARG,
                "device: there is no kind %d", (int)kind);
    if (kind == DDP_DEVICE_CUDA) {
        return ddp_cuda_backend(backend_p);
    }
    *backend_p = ddp_cpu_backend();
out:
    return status;
}

ddp_status_t ddp_device_create(const ddp_device_params_t *params, ddp_device_t **device_p)
{
    ddp_status_t         status  = DDP_OK;
    ddp_device_t        *device  = NULL;
    const ddp_backend_t *backend = NULL;

    DDP_REQUIRE(params != NULL && params->struct_size == sizeof(*params), DDP_ERR_INVALID_ARG,
                "device: params were not made with DDP_DEVICE_PARAMS_INIT");
    DDP_TRY(find_backend(params->kind, &backend));
    device = calloc(1, sizeof(*device));
    DDP_REQUIRE(device != NULL, DDP_ERR_NO_MEMORY, "no memory for a device");
    device->backend  = backend;
    device->kind     = params->kind;
    device->ordinal  = params->ordinal;
    device->name     = params->name != NULL ? params->name : backend->name;
    device->dry      = params->dry;
    device->is_exact = params->is_exact;
    DDP_TRY(backend->device_open(device, params));
    ddp_device_memory_open(device, params->memory_bytes);
    *device_p = device;
    device    = NULL;
out:
    free(device);
    return status;
}

void ddp_device_destroy(ddp_device_t **device_p)
{
    ddp_device_t *device = *device_p;

    if (device == NULL) {
        return;
    }
    assert(device->streams == 0);
    ddp_device_memory_close(device);
    device->backend->device_close(device);
    free(device);
    *device_p = NULL;
}

ddp_device_kind_t ddp_device_kind(const ddp_device_t *device)
{
    return device->kind;
}

ddp_isa_t ddp_device_isa(const ddp_device_t *device)
{
    return device->isa;
}

bool ddp_device_has_bf16(const ddp_device_t *device)
{
    return device->has_bf16;
}

bool ddp_device_is_exact(const ddp_device_t *device)
{
    return device->is_exact;
}

bool ddp_device_is_deferred(const ddp_device_t *device)
{
    return device->defer;
}

bool ddp_device_is_host_memory(const ddp_device_t *device)
{
    return device->backend->is_host_memory && !device->dry;
}

bool ddp_device_is_dry(const ddp_device_t *device)
{
    return device->dry;
}

size_t ddp_device_choices(const ddp_device_t *device, ddp_choice_t *choices, size_t capacity)
{
    return device->backend->choices != NULL ? device->backend->choices(device, choices, capacity) : 0;
}

void ddp_device_meet(const ddp_device_t *device, const ddp_device_t *other)
{
    if (device != other && device->backend == other->backend && device->backend->meet != NULL) {
        device->backend->meet(device, other);
    }
}

ddp_status_t ddp_device_pin(ddp_device_t *device, void *memory, size_t bytes)
{
    return device->dry || device->backend->pin == NULL ? DDP_OK : device->backend->pin(device, memory, bytes);
}

void ddp_device_unpin(ddp_device_t *device, void *memory)
{
    if (!device->dry && device->backend->pin != NULL) {
        device->backend->unpin(device, memory);
    }
}

void ddp_device_set_idle(ddp_device_t *device, ddp_idle_fn_t *idle, void *ctx)
{
    device->idle     = idle;
    device->idle_ctx = ctx;
}

void ddp_device_set_moved(ddp_device_t *device, ddp_moved_fn_t *moved, void *ctx)
{
    device->moved     = moved;
    device->moved_ctx = ctx;
}

void ddp_device_set_watch(ddp_device_t *device, ddp_watch_fn_t *watch, void *ctx)
{
    device->watch     = watch;
    device->watch_ctx = ctx;
}

void ddp_device_progress(ddp_device_t *device)
{
    device->backend->progress(device);
}

static ddp_status_t create_stream(ddp_device_t *device, const char *name, bool is_urgent,
                                  ddp_stream_t **stream_p)
{
    ddp_status_t  status = DDP_OK;
    ddp_stream_t *stream = NULL;

    DDP_REQUIRE(device != NULL && name != NULL, DDP_ERR_INVALID_ARG, "stream: no device or no name");
    stream = calloc(1, sizeof(*stream));
    DDP_REQUIRE(stream != NULL, DDP_ERR_NO_MEMORY, "no memory for stream '%s'", name);
    stream->name = strdup(name);
    DDP_REQUIRE(stream->name != NULL, DDP_ERR_NO_MEMORY, "no memory for stream '%s'", name);
    stream->device = device;
    DDP_TRY(device->backend->stream_open(stream, is_urgent));
    device->streams++;
    *stream_p = stream;
    stream    = NULL;
out:
    if (stream != NULL) {
        free(stream->name);
    }
    free(stream);
    return status;
}

ddp_status_t ddp_stream_create(ddp_device_t *device, const char *name, ddp_stream_t **stream_p)
{
    return create_stream(device, name, false, stream_p);
}

ddp_status_t ddp_stream_create_urgent(ddp_device_t *device, const char *name, ddp_stream_t **stream_p)
{
    return create_stream(device, name, true, stream_p);
}

void ddp_stream_destroy(ddp_stream_t **stream_p)
{
    ddp_stream_t *stream = *stream_p;

    if (stream != NULL) {
        stream->device->streams--;
        stream->device->backend->stream_close(stream); /* frees it, now or with the last event */
        *stream_p = NULL;
    }
}

ddp_scratch_t ddp_device_dry_scratch(const ddp_device_t *device)
{
    return device->dry_scratch;
}

ddp_status_t ddp_stream_reserve(ddp_stream_t *stream, const ddp_scratch_t *scratch)
{
    const ddp_backend_t *backend = stream->device->backend;

    return backend->stream_reserve != NULL ? backend->stream_reserve(stream, scratch) : DDP_OK;
}

ddp_status_t ddp_stream_use_graphs(ddp_stream_t *stream)
{
    const ddp_backend_t *backend = stream->device->backend;

    return backend->stream_use_graphs != NULL && !stream->device->dry ? backend->stream_use_graphs(stream)
                                                                      : DDP_OK;
}

static const ddp_graphs_report_t *graphs_of(const ddp_stream_t *stream)
{
    const ddp_backend_t *backend = stream->device->backend;

    return backend->stream_graphs != NULL && !stream->device->dry ? backend->stream_graphs(stream) : NULL;
}

bool ddp_stream_has_graphs(const ddp_stream_t *stream)
{
    return graphs_of(stream) != NULL;
}

ddp_graphs_report_t ddp_stream_graphs(const ddp_stream_t *stream)
{
    const ddp_graphs_report_t *report = graphs_of(stream);

    return report != NULL ? *report : (ddp_graphs_report_t){.graphs = 0};
}

ddp_status_t ddp_stream_status(const ddp_stream_t *stream)
{
    return stream->status < 0 ? ddp_fail(stream->status, "%s", stream->line) : DDP_OK;
}

ddp_device_t *ddp_stream_device(ddp_stream_t *stream)
{
    return stream->device;
}

ddp_status_t ddp_stream_submit(ddp_stream_t *stream, const char *name, ddp_work_fn_t *fn, const void *args,
                               size_t args_bytes)
{
    ddp_status_t status = DDP_OK;

    DDP_REQUIRE(stream != NULL && name != NULL && fn != NULL && (args != NULL || args_bytes == 0),
                DDP_ERR_INVALID_ARG, "submit: no stream, name, function or arguments");
    DDP_REQUIRE(args_bytes <= DDP_WORK_ARGS_BYTES, DDP_ERR_INVALID_ARG,
                "submit: '%s' has %zu bytes of arguments, at most %d fit", name, args_bytes,
                DDP_WORK_ARGS_BYTES);
    DDP_TRY(stream->device->backend->submit(stream, name, fn, args, args_bytes));
out:
    return status;
}

ddp_status_t ddp_stream_synchronize(ddp_stream_t *stream, int timeout_ms)
{
    ddp_status_t status = ddp_stream_status(stream);

    return status != DDP_OK ? status : stream->device->backend->stream_synchronize(stream, timeout_ms);
}

static ddp_status_t create_event(ddp_device_t *device, bool is_timed, ddp_event_t **event_p)
{
    ddp_status_t status = DDP_OK;
    ddp_event_t *event  = NULL;

    DDP_REQUIRE(device != NULL, DDP_ERR_INVALID_ARG, "event: no device");
    event = calloc(1, sizeof(*event));
    DDP_REQUIRE(event != NULL, DDP_ERR_NO_MEMORY, "no memory for an event");
    event->device   = device;
    event->is_timed = is_timed;
    DDP_TRY(device->backend->event_open(event));
    *event_p = event;
    event    = NULL;
out:
    free(event);
    return status;
}

ddp_status_t ddp_event_create(ddp_device_t *device, ddp_event_t **event_p)
{
    return create_event(device, false, event_p);
}

ddp_status_t ddp_event_create_timed(ddp_device_t *device, ddp_event_t **event_p)
{
    return create_event(device, true, event_p);
}

void ddp_event_destroy(ddp_event_t **event_p)
{
    if (*event_p != NULL) {
        (*event_p)->device->backend->event_close(*event_p);
        free(*event_p);
        *event_p = NULL;
    }
}

static ddp_status_t check_event(const ddp_event_t *event, const ddp_stream_t *stream)
{
    ddp_status_t status = DDP_OK;

    DDP_REQUIRE(event != NULL && stream != NULL && event->device == stream->device, DDP_ERR_INVALID_ARG,
                "event: no stream, or a stream of another device");
    DDP_TRY(ddp_stream_status(stream));
out:
    return status;
}

ddp_status_t ddp_event_record(ddp_event_t *event, ddp_stream_t *stream)
{
    ddp_status_t status = check_event(event, stream);

    DDP_TRY(status);
    DDP_TRY(event->device->backend->event_record(event, stream));
    event->is_recorded = true;
out:
    return status;
}

ddp_status_t ddp_stream_wait_event(ddp_stream_t *stream, ddp_event_t *event)
{
    ddp_status_t status = check_event(event, stream);

    return status != DDP_OK ? status : event->device->backend->wait_event(stream, event);
}

ddp_status_t ddp_event_synchronize(ddp_event_t *event, int timeout_ms)
{
    return event->device->backend->event_synchronize(event, timeout_ms);
}

ddp_status_t ddp_event_elapsed(const ddp_event_t *from, const ddp_event_t *to, int64_t *ns_p)
{
    ddp_status_t status = DDP_OK;

    DDP_REQUIRE(from != NULL && to != NULL && from->device == to->device, DDP_ERR_INVALID_ARG,
                "elapsed: no event, or events of two devices");
    DDP_REQUIRE(from->is_timed && to->is_timed && from->is_recorded && to->is_recorded, DDP_ERR_INVALID_ARG,
                "elapsed: events that are not timed, or were never recorded");
    if (from->device->dry) {
        *ns_p = 0;
        return DDP_OK;
    }
    status = from->device->backend->event_elapsed(from, to, ns_p);
out:
    return status;
}

ddp_status_t ddp_stream_copy(ddp_stream_t *stream, void *to, const void *from, size_t bytes)
{
    ddp_status_t status = DDP_OK;

    if (bytes == 0) {
        return DDP_OK;
    }
    DDP_REQUIRE(stream != NULL && to != NULL && from != NULL, DDP_ERR_INVALID_ARG,
                "copy: no stream, or no memory to copy from or to");
    if (stream->device->dry) {
        return DDP_OK;
    }
    DDP_TRY(stream->device->backend->copy(stream, to, from, bytes));
out:
    return status;
}

ddp_status_t ddp_stream_read(ddp_stream_t *stream, void *host, const void *from, size_t bytes)
{
    ddp_status_t status = DDP_OK;

    if (!stream->device->backend
             ->is_host_memory) { /* a copy to pageable memory would wait without a deadline */
        DDP_TRY(ddp_stream_synchronize(stream, -1));
    }
    DDP_TRY(ddp_stream_copy(stream, host, from, bytes));
    DDP_TRY(ddp_stream_synchronize(stream, -1));
out:
    return status;
}
