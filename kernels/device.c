#include "kernels/device.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/device_internal.h"

/* "now", "defer" or "defer:<seed>" */
static ddp_status_t read_schedule(ddp_device_t *device)
{
    const char  *text   = getenv("DDP_DEVICE_SCHEDULE");
    ddp_status_t status = DDP_OK;
    char        *end    = NULL;

    if (text == NULL || text[0] == '\0' || strcmp(text, "now") == 0) {
        return DDP_OK;
    }
    if (strncmp(text, "defer:", 6) == 0 && text[6] >= '0' && text[6] <= '9') {
        device->random_state = strtoull(text + 6, &end, 10);
        device->random       = true;
    }
    device->defer = strcmp(text, "defer") == 0 || (device->random && *end == '\0');
    DDP_REQUIRE(device->defer, DDP_ERR_UNSUPPORTED,
                "DDP_DEVICE_SCHEDULE=%s: no such schedule; use now, defer or defer:<seed>", text);
out:
    return status;
}

ddp_status_t ddp_device_create(const ddp_device_params_t *params, ddp_device_t **device_p)
{
    ddp_status_t  status = DDP_OK;
    ddp_device_t *device = NULL;

    DDP_REQUIRE(params != NULL && params->struct_size == sizeof(*params), DDP_ERR_INVALID_ARG,
                "device: params were not made with DDP_DEVICE_PARAMS_INIT");
    DDP_REQUIRE(params->isa >= DDP_ISA_PLAIN && params->isa <= ddp_isa_detect(), DDP_ERR_INVALID_ARG,
                "device: instruction set %d is not available; this processor (or DDP_ISA) has at most %s",
                (int)params->isa, ddp_isa_name(ddp_isa_detect()));
    device = calloc(1, sizeof(*device));
    DDP_REQUIRE(device != NULL, DDP_ERR_NO_MEMORY, "no memory for a device");
    device->isa      = params->isa;
    device->name     = params->name != NULL ? params->name : "cpu";
    device->dry      = params->dry;
    device->has_bf16 = ddp_isa_has_bf16(params->isa);
    ddp_device_memory_open(device, params->memory_bytes);
    DDP_TRY(read_schedule(device));
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
    assert(device->oldest == NULL);
    while (device->free_items != NULL) {
        ddp_item_t *item   = device->free_items;
        device->free_items = item->next;
        free(item);
    }
    ddp_device_memory_close(device);
    free(device);
    *device_p = NULL;
}

ddp_isa_t ddp_device_isa(const ddp_device_t *device)
{
    return device->isa;
}

bool ddp_device_has_bf16(const ddp_device_t *device)
{
    return device->has_bf16;
}

bool ddp_device_is_deferred(const ddp_device_t *device)
{
    return device->defer;
}

bool ddp_device_is_host_memory(const ddp_device_t *device)
{
    return !device->dry;
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

ddp_status_t ddp_stream_create(ddp_device_t *device, const char *name, ddp_stream_t **stream_p)
{
    ddp_status_t  status = DDP_OK;
    ddp_stream_t *stream = NULL;

    DDP_REQUIRE(device != NULL && name != NULL, DDP_ERR_INVALID_ARG, "stream: no device or no name");
    stream = calloc(1, sizeof(*stream));
    DDP_REQUIRE(stream != NULL, DDP_ERR_NO_MEMORY, "no memory for stream '%s'", name);
    stream->name = strdup(name);
    DDP_REQUIRE(stream->name != NULL, DDP_ERR_NO_MEMORY, "no memory for stream '%s'", name);
    stream->device = device;
    stream->refs   = 1;
    stream->older  = device->youngest;
    if (device->youngest != NULL) {
        device->youngest->younger = stream;
    } else {
        device->oldest = stream;
    }
    device->youngest = stream;
    device->streams++;
    *stream_p = stream;
    stream    = NULL;
out:
    free(stream);
    return status;
}

void ddp_stream_destroy(ddp_stream_t **stream_p)
{
    ddp_stream_t *stream = *stream_p;
    ddp_device_t *device;

    if (stream == NULL) {
        return;
    }
    assert(!stream->busy);
    device = stream->device;
    if (stream->head !=
        NULL) { /* whoever waits for it must not wait for ever, nor go on as if it were done */
        stream->status = DDP_ERR_STATE;
        (void)snprintf(stream->line, sizeof(stream->line),
                       "stream '%.100s' was destroyed before '%.100s' ran", stream->name, stream->head->name);
        ddp_queue_clear(stream);
    }
    *(stream->older != NULL ? &stream->older->younger : &device->oldest)     = stream->younger;
    *(stream->younger != NULL ? &stream->younger->older : &device->youngest) = stream->older;
    device->streams--;
    ddp_stream_unref(stream);
    *stream_p = NULL;
}

void ddp_stream_unref(ddp_stream_t *stream)
{
    if (stream != NULL && --stream->refs == 0) {
        free(stream->name);
        free(stream);
    }
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
    DDP_TRY(ddp_queue_append(stream, &(ddp_item_t){.name = name, .fn = fn}, args, args_bytes));
out:
    return status;
}

ddp_status_t ddp_stream_synchronize(ddp_stream_t *stream, int timeout_ms)
{
    ddp_status_t status = ddp_stream_status(stream);

    return status != DDP_OK ? status : ddp_queue_wait(stream, stream->submitted, timeout_ms);
}

ddp_status_t ddp_event_create(ddp_device_t *device, ddp_event_t **event_p)
{
    ddp_status_t status = DDP_OK;
    ddp_event_t *event  = NULL;

    DDP_REQUIRE(device != NULL, DDP_ERR_INVALID_ARG, "event: no device");
    event = calloc(1, sizeof(*event));
    DDP_REQUIRE(event != NULL, DDP_ERR_NO_MEMORY, "no memory for an event");
    event->device = device;
    *event_p      = event;
out:
    return status;
}

void ddp_event_destroy(ddp_event_t **event_p)
{
    if (*event_p != NULL) {
        ddp_stream_unref((*event_p)->stream);
        free(*event_p);
        *event_p = NULL;
    }
}

ddp_status_t ddp_event_record(ddp_event_t *event, ddp_stream_t *stream)
{
    ddp_status_t status = DDP_OK;

    DDP_REQUIRE(event != NULL && stream != NULL && event->device == stream->device, DDP_ERR_INVALID_ARG,
                "event: no stream, or a stream of another device");
    DDP_TRY(ddp_stream_status(stream));
    stream->refs++;
    ddp_stream_unref(event->stream);
    event->stream = stream;
    event->point  = stream->submitted;
out:
    return status;
}

ddp_status_t ddp_stream_wait_event(ddp_stream_t *stream, ddp_event_t *event)
{
    ddp_status_t status = DDP_OK;

    DDP_REQUIRE(stream != NULL && event != NULL && event->device == stream->device, DDP_ERR_INVALID_ARG,
                "event: no stream, or a stream of another device");
    DDP_TRY(ddp_stream_status(stream));
    if (event->stream == NULL || event->stream == stream || event->stream->finished >= event->point) {
        return DDP_OK;
    }
    DDP_TRY(ddp_queue_append(
        stream, &(ddp_item_t){.name = "wait for an event", .other = event->stream, .point = event->point},
        NULL, 0));
out:
    return status;
}

ddp_status_t ddp_event_synchronize(ddp_event_t *event, int timeout_ms)
{
    return event->stream == NULL ? DDP_OK : ddp_queue_wait(event->stream, event->point, timeout_ms);
}

typedef struct copy_args {
    void       *to;
    const void *from;
    size_t      bytes;
} copy_args_t;

static ddp_status_t copy_run(void *args)
{
    const copy_args_t *copy = args;

    memcpy(copy->to, copy->from, copy->bytes);
    return DDP_OK;
}

ddp_status_t ddp_stream_copy(ddp_stream_t *stream, void *to, const void *from, size_t bytes)
{
    ddp_status_t status = DDP_OK;

    if (bytes == 0) {
        return DDP_OK;
    }
    DDP_REQUIRE(to != NULL && from != NULL, DDP_ERR_INVALID_ARG, "copy: no memory to copy from or to");
    DDP_TRY(
        ddp_stream_submit(stream, "copy", copy_run, &(copy_args_t){to, from, bytes}, sizeof(copy_args_t)));
out:
    return status;
}
