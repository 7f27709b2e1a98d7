/* Queues of the cpu device and the order in which they run: DDP_DEVICE_SCHEDULE. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "kernels/cpu/table.h"
#include "kernels/device_internal.h"

#define PROGRESS_INTERVAL_NS (DDP_NS_PER_MS / 2)

static _Thread_local ddp_device_t *running_device; /* whose work this thread runs; for kernels deep inside */

ddp_device_t *ddp_cpu_running_device(void)
{
    return running_device;
}

static ddp_item_t *item_get(ddp_device_t *device)
{
    ddp_item_t *item = device->free_items;

    if (item != NULL) {
        device->free_items = item->next;
        return item;
    }
    item = aligned_alloc(_Alignof(ddp_item_t), sizeof(*item));
    device->items += item != NULL;
    return item;
}

static void item_put(ddp_device_t *device, ddp_item_t *item)
{
    ddp_stream_unref(item->other);
    item->next         = device->free_items;
    device->free_items = item;
}

static void pop(ddp_stream_t *stream)
{
    ddp_item_t *item = stream->head;

    stream->head = item->next;
    if (stream->head == NULL) {
        stream->tail = NULL;
        stream->device->waiting--;
    }
    item_put(stream->device, item);
}

void ddp_queue_clear(ddp_stream_t *stream)
{
    while (stream->head != NULL) {
        pop(stream);
    }
}

static void stream_fail(ddp_stream_t *stream, ddp_status_t status, const char *line)
{
    stream->status = status;
    (void)snprintf(stream->line, sizeof(stream->line), "%s", line);
    ddp_queue_clear(stream);
}

/* Call the head and say how long it took, itself and what ran inside it. */
static ddp_status_t call_watched(ddp_stream_t *stream)
{
    ddp_device_t     *device = stream->device;
    const int64_t     before = device->watched_ns;
    const ddp_item_t *item   = stream->head;
    ddp_work_seen_t   seen   = {.stream = stream->name, .work = item->name, .args = item->args};
    ddp_status_t      status;

    device->watched_ns = 0;
    seen.start_ns      = ddp_clock_ns();
    status             = item->fn(stream->head->args);
    seen.end_ns        = ddp_clock_ns();
    seen.inner_ns      = device->watched_ns;
    seen.is_done       = status == DDP_OK;
    device->watched_ns = before + seen.end_ns - seen.start_ns;
    device->watch(device->watch_ctx, &seen);
    return status;
}

/* Call the head. The stream may have got new items meanwhile, never lost any. */
static ddp_status_t call_head(ddp_stream_t *stream)
{
    ddp_device_t *device = stream->device;
    ddp_device_t *outer  = running_device;
    ddp_status_t  status;

    running_device = device;
    stream->busy   = true;
    device->depth++;
    status = device->watch != NULL ? call_watched(stream) : stream->head->fn(stream->head->args);
    device->depth--;
    stream->busy   = false;
    running_device = outer;
    return status;
}

static void tell_moved(const ddp_device_t *device)
{
    if (device->moved != NULL) {
        device->moved(device->moved_ctx);
    }
}

/* Try the head of one stream. @return true if something has changed: it is finished, or the stream has
 * failed. */
static bool step(ddp_stream_t *stream)
{
    ddp_item_t  *item = stream->head;
    ddp_status_t status;

    if (item == NULL || stream->busy) {
        return false;
    }
    if (item->fn != NULL) {
        status = call_head(stream);
        if (status == DDP_IN_PROGRESS) {
            return false;
        }
        if (status < 0) {
            stream_fail(stream, status, ddp_error_line());
            return true;
        }
        tell_moved(stream->device);
    } else if (item->other->finished < item->point) {
        if (item->other->status < 0) {
            stream_fail(stream, item->other->status, item->other->line);
            return true;
        }
        return false;
    }
    stream->finished++;
    pop(stream);
    return true;
}

/* splitmix64, Steele et al. 2014: good enough to shuffle streams */
static uint64_t draw(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* defer: one item, of the youngest stream that can go on (or of a random one) */
static bool run_adversary(ddp_device_t *device)
{
    ddp_stream_t *stream = device->youngest;
    size_t        skip   = device->random ? draw(&device->random_state) % device->streams : 0;

    for (; skip > 0; skip--) {
        stream = stream->older;
    }
    for (size_t i = 0; i < device->streams; i++) {
        if (step(stream)) {
            return true;
        }
        stream = stream->older != NULL ? stream->older : device->youngest;
    }
    return false;
}

/* now: every stream as far as it goes */
static bool run_all(ddp_device_t *device)
{
    bool changed = false;

    for (ddp_stream_t *stream = device->oldest; stream != NULL; stream = stream->younger) {
        while (step(stream)) {
            changed = true;
        }
    }
    return changed;
}

static bool run_some(ddp_device_t *device)
{
    if (device->waiting == 0) {
        return false;
    }
    return device->defer ? run_adversary(device) : run_all(device);
}

void ddp_queue_progress(ddp_device_t *device)
{
    if (device->progressing || device->waiting == 0) {
        return;
    }
    /* Under defer only a caller that asks again and again, with nothing in between, is somebody who waits. */
    if (device->defer && (device->depth > 0 || device->idle_calls++ == 0)) {
        return;
    }
    device->progressing = true;
    while (run_some(device)) {
    }
    device->progressing = false;
}

void ddp_cpu_progress_point(void)
{
    ddp_device_t *device = running_device;
    int64_t       now;

    if (device == NULL) {
        return;
    }
    now = ddp_clock_ns();
    if (now - device->progress_ns < PROGRESS_INTERVAL_NS) {
        return;
    }
    device->progress_ns = now;
    tell_moved(device);
    /* The stream of the caller counts as waiting until its work is done. */
    if (device->waiting >= 2 && !device->progressing && !device->defer) {
        ddp_queue_progress(device);
    }
}

ddp_status_t ddp_queue_append(ddp_stream_t *stream, const ddp_item_t *what, const void *args,
                              size_t args_bytes)
{
    ddp_device_t *device = stream->device;
    ddp_status_t  status = ddp_stream_status(stream);
    ddp_item_t   *item   = NULL;

    if (status != DDP_OK) {
        return status;
    }
    if (device->dry) {
        return DDP_OK;
    }
    item = item_get(device);
    if (item == NULL) {
        return ddp_fail(DDP_ERR_NO_MEMORY, "stream '%s': no memory for '%s'", stream->name, what->name);
    }
    item->next  = NULL;
    item->name  = what->name;
    item->fn    = what->fn;
    item->other = what->other;
    item->point = what->point;
    if (item->other != NULL) {
        item->other->refs++;
    }
    if (args_bytes > 0) {
        memcpy(item->args, args, args_bytes);
    }
    if (stream->tail != NULL) {
        stream->tail->next = item;
    } else {
        stream->head = item;
        device->waiting++;
    }
    stream->tail = item;
    stream->submitted++;
    device->idle_calls = 0;
    if (device->defer || device->depth > 0) {
        return DDP_OK;
    }
    while (step(stream)) {
    }
    ddp_queue_progress(device);
    return ddp_stream_status(stream);
}

/* The point is reached, or never will be. */
static bool is_settled(const ddp_stream_t *stream, uint64_t point)
{
    return stream->finished >= point || stream->status < 0;
}

static ddp_status_t settle(const ddp_stream_t *stream, uint64_t point)
{
    return stream->finished >= point ? DDP_OK : ddp_stream_status(stream);
}

/* Nothing can go on: look at the deadline, then let the owner of the device wait. */
static ddp_status_t wait_a_little(ddp_stream_t *stream, int64_t start_ns, int64_t *stuck_ns, int timeout_ms)
{
    ddp_device_t *device = stream->device;
    int64_t       now    = ddp_clock_ns();

    *stuck_ns = *stuck_ns != 0 ? *stuck_ns : now;
    if (timeout_ms >= 0 && now - start_ns >= timeout_ms * DDP_NS_PER_MS) {
        return ddp_fail(DDP_ERR_TIMEOUT, "stream '%s': '%s' was not done within %d ms", stream->name,
                        stream->head != NULL ? stream->head->name : "nothing", timeout_ms);
    }
    if (device->idle != NULL) {
        return device->idle(device->idle_ctx, now - *stuck_ns);
    }
    (void)sched_yield();
    return DDP_OK;
}

ddp_status_t ddp_queue_wait(ddp_stream_t *stream, uint64_t point, int timeout_ms)
{
    ddp_device_t *device = stream->device;
    ddp_status_t  status = DDP_OK;
    int64_t       start;
    int64_t       stuck = 0; /* since when nothing moves; 0: it moved just now */

    if (is_settled(stream, point)) {
        return settle(stream, point);
    }
    DDP_REQUIRE(device->depth == 0, DDP_ERR_STATE,
                "stream '%s': work must not wait for work; return DDP_IN_PROGRESS instead", stream->name);
    device->idle_calls = 0;
    start              = ddp_clock_ns();
    for (;;) {
        bool moved = run_some(device);

        if (is_settled(stream, point)) {
            return settle(stream, point);
        }
        if (timeout_ms == 0 && !moved) {
            return DDP_IN_PROGRESS;
        }
        if (moved) {
            stuck = 0;
        } else {
            DDP_TRY(wait_a_little(stream, start, &stuck, timeout_ms));
        }
    }
out:
    return status;
}
