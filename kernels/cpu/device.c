/* The cpu backend: one thread, whose streams are queues of work (queue.c). */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "kernels/cpu/ops.h"
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

static ddp_status_t cpu_device_open(ddp_device_t *device, const ddp_device_params_t *params)
{
    ddp_status_t status = DDP_OK;

    DDP_REQUIRE(params->isa >= DDP_ISA_PLAIN && params->isa <= ddp_isa_detect(), DDP_ERR_INVALID_ARG,
                "device: instruction set %d is not available; this processor (or DDP_ISA) has at most %s",
                (int)params->isa, ddp_isa_name(ddp_isa_detect()));
    device->isa      = params->isa;
    device->has_bf16 = ddp_isa_has_bf16(params->isa);
    DDP_TRY(read_schedule(device));
out:
    return status;
}

static void cpu_device_close(ddp_device_t *device)
{
    while (device->free_items != NULL) {
        ddp_item_t *item   = device->free_items;
        device->free_items = item->next;
        free(item);
    }
}

static ddp_status_t cpu_acquire(ddp_device_t *device, const char *label, size_t bytes, void **memory_p)
{
    const ddp_allocator_t *host = ddp_allocator_private();

    (void)device;
    return host->acquire(host->ctx, label, bytes, memory_p);
}

static void cpu_release(ddp_device_t *device, void *memory)
{
    const ddp_allocator_t *host = ddp_allocator_private();

    (void)device;
    host->release(host->ctx, memory);
}

static ddp_allocator_t cpu_host_allocator(ddp_device_t *device)
{
    (void)device;
    return *ddp_allocator_private();
}

static ddp_status_t cpu_stream_open(ddp_stream_t *stream, bool is_urgent)
{
    ddp_device_t *device = stream->device;

    (void)is_urgent; /* the order of streams is the schedule's */
    stream->refs  = 1;
    stream->older = device->youngest;
    if (device->youngest != NULL) {
        device->youngest->younger = stream;
    } else {
        device->oldest = stream;
    }
    device->youngest = stream;
    return DDP_OK;
}

static void cpu_stream_close(ddp_stream_t *stream)
{
    ddp_device_t *device = stream->device;

    assert(!stream->busy);
    if (stream->head !=
        NULL) { /* whoever waits for it must not wait for ever, nor go on as if it were done */
        stream->status = DDP_ERR_STATE;
        (void)snprintf(stream->line, sizeof(stream->line),
                       "stream '%.100s' was destroyed before '%.100s' ran", stream->name, stream->head->name);
        ddp_queue_clear(stream);
    }
    *(stream->older != NULL ? &stream->older->younger : &device->oldest)     = stream->younger;
    *(stream->younger != NULL ? &stream->younger->older : &device->youngest) = stream->older;
    ddp_stream_unref(stream);
}

void ddp_stream_unref(ddp_stream_t *stream)
{
    if (stream != NULL && --stream->refs == 0) {
        free(stream->name);
        free(stream);
    }
}

static ddp_status_t cpu_submit(ddp_stream_t *stream, const char *name, ddp_work_fn_t *fn, const void *args,
                               size_t args_bytes)
{
    return ddp_queue_append(stream, &(ddp_item_t){.name = name, .fn = fn}, args, args_bytes);
}

static ddp_status_t cpu_stream_synchronize(ddp_stream_t *stream, int timeout_ms)
{
    return ddp_queue_wait(stream, stream->submitted, timeout_ms);
}

static ddp_status_t cpu_event_open(ddp_event_t *event)
{
    (void)event;
    return DDP_OK;
}

static void cpu_event_close(ddp_event_t *event)
{
    ddp_stream_unref(event->stream);
}

static ddp_status_t cpu_event_record(ddp_event_t *event, ddp_stream_t *stream)
{
    stream->refs++;
    ddp_stream_unref(event->stream);
    event->stream = stream;
    event->point  = stream->submitted;
    if (event->is_timed) {
        event->recorded_ns = ddp_clock_ns();
    }
    return DDP_OK;
}

static ddp_status_t cpu_wait_event(ddp_stream_t *stream, ddp_event_t *event)
{
    if (event->stream == NULL || event->stream == stream || event->stream->finished >= event->point) {
        return DDP_OK;
    }
    return ddp_queue_append(
        stream, &(ddp_item_t){.name = "wait for an event", .other = event->stream, .point = event->point},
        NULL, 0);
}

static ddp_status_t cpu_event_elapsed(const ddp_event_t *from, const ddp_event_t *to, int64_t *ns_p)
{
    if (from->stream->finished < from->point || to->stream->finished < to->point) {
        return DDP_IN_PROGRESS;
    }
    *ns_p = to->recorded_ns - from->recorded_ns;
    return DDP_OK;
}

static ddp_status_t cpu_event_synchronize(ddp_event_t *event, int timeout_ms)
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

static ddp_status_t cpu_copy(ddp_stream_t *stream, void *to, const void *from, size_t bytes)
{
    return cpu_submit(stream, "copy", copy_run, &(copy_args_t){to, from, bytes}, sizeof(copy_args_t));
}

const ddp_backend_t *ddp_cpu_backend(void)
{
    static const ddp_backend_t backend = {
        .name               = "cpu",
        .ops                = &ddp_cpu_ops,
        .is_host_memory     = true,
        .device_open        = cpu_device_open,
        .device_close       = cpu_device_close,
        .acquire            = cpu_acquire,
        .release            = cpu_release,
        .host_allocator     = cpu_host_allocator,
        .progress           = ddp_queue_progress,
        .stream_open        = cpu_stream_open,
        .stream_close       = cpu_stream_close,
        .submit             = cpu_submit,
        .stream_synchronize = cpu_stream_synchronize,
        .copy               = cpu_copy,
        .event_open         = cpu_event_open,
        .event_close        = cpu_event_close,
        .event_record       = cpu_event_record,
        .wait_event         = cpu_wait_event,
        .event_synchronize  = cpu_event_synchronize,
        .event_elapsed      = cpu_event_elapsed,
    };

    return &backend;
}
