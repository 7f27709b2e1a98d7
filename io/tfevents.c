#include "io/tfevents.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "io/crc32c_internal.h"
#include "io/file_internal.h"

#define PATH_SIZE 4096
#define VERSION   "brain.Event:2"

/* A record: its length, the sum of that, the data, the sum of that. */
#define LENGTH_BYTES 8
#define SUM_BYTES    4
#define MASK         0xa282ead8U

/* Types of protobuf's fields. */
#define VARINT  0
#define FIXED64 1
#define BYTES   2
#define FIXED32 5

/* Numbers of fields. */
#define EVENT_TIME    1
#define EVENT_STEP    2
#define EVENT_VERSION 3
#define EVENT_SUMMARY 5
#define SUMMARY_VALUE 1
#define VALUE_TAG     1
#define VALUE_SIMPLE  2

#define MOST_VARINT 10 /* bytes of 64 bits, seven in each */

typedef struct message {
    uint8_t *data; /* owned */
    size_t   n, room;
} message_t;

struct ddp_tfevents {
    FILE     *file;    /* owned; NULL when finished */
    message_t summary; /* memory that is used again */
    message_t event;
    bool      is_draft; /* the draft exists */
    char      path[PATH_SIZE], draft[PATH_SIZE], folder[PATH_SIZE];
};

/* @return false: no memory */
static bool put(message_t *message, const void *data, size_t bytes)
{
    if (message->n + bytes > message->room) {
        const size_t room = 2 * (message->n + bytes);
        uint8_t     *more = realloc(message->data, room);

        if (more == NULL) {
            return false;
        }
        message->data = more;
        message->room = room;
    }
    if (bytes > 0) {
        memcpy(message->data + message->n, data, bytes);
    }
    message->n += bytes;
    return true;
}

static size_t encode_varint(uint64_t value, uint8_t out[MOST_VARINT])
{
    size_t n = 0;

    while (value >= 0x80) {
        out[n++] = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    out[n++] = (uint8_t)value;
    return n;
}

static bool put_varint(message_t *message, uint64_t value)
{
    uint8_t bytes[MOST_VARINT];

    return put(message, bytes, encode_varint(value, bytes));
}

static bool put_key(message_t *message, unsigned field, unsigned type)
{
    return put_varint(message, field << 3 | type);
}

static bool put_bytes(message_t *message, unsigned field, const void *data, size_t bytes)
{
    return put_key(message, field, BYTES) && put_varint(message, bytes) && put(message, data, bytes);
}

/* As all numbers of fixed length: the least significant byte first. */
static void encode_fixed(uint64_t bits, size_t bytes, uint8_t *out)
{
    for (size_t i = 0; i < bytes; i++) {
        out[i] = (uint8_t)(bits >> (8 * i));
    }
}

static bool put_double(message_t *message, unsigned field, double value)
{
    uint64_t bits;
    uint8_t  bytes[sizeof(bits)];

    memcpy(&bits, &value, sizeof(bits));
    encode_fixed(bits, sizeof(bytes), bytes);
    return put_key(message, field, FIXED64) && put(message, bytes, sizeof(bytes));
}

static void encode_float(float value, uint8_t bytes[sizeof(float)])
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    encode_fixed(bits, sizeof(bits), bytes);
}

/* A value of a summary, whose length has to be known before it. */
static bool put_scalar(message_t *summary, const ddp_tfscalar_t *scalar)
{
    const size_t length = strlen(scalar->tag);
    uint8_t      varint[MOST_VARINT];
    uint8_t      bytes[sizeof(float)];
    const size_t tag = 1 + encode_varint(length, varint) + length;

    encode_float((float)scalar->value, bytes);
    return put_key(summary, SUMMARY_VALUE, BYTES) && put_varint(summary, tag + 1 + sizeof(bytes)) &&
           put_bytes(summary, VALUE_TAG, scalar->tag, length) && put_key(summary, VALUE_SIMPLE, FIXED32) &&
           put(summary, bytes, sizeof(bytes));
}

static uint32_t masked_sum(const void *data, size_t bytes)
{
    const uint32_t crc = ddp_crc32c(0, data, bytes);

    return ((crc >> 15) | (crc << 17)) + MASK;
}

static ddp_status_t write_record(ddp_tfevents_t *events)
{
    ddp_status_t     status = DDP_OK;
    const message_t *event  = &events->event;
    uint8_t          head[LENGTH_BYTES + SUM_BYTES];
    uint8_t          sum[SUM_BYTES];

    encode_fixed(event->n, LENGTH_BYTES, head);
    encode_fixed(masked_sum(head, LENGTH_BYTES), SUM_BYTES, head + LENGTH_BYTES);
    encode_fixed(masked_sum(event->data, event->n), SUM_BYTES, sum);
    if (fwrite(head, sizeof(head), 1, events->file) != 1 ||
        fwrite(event->data, event->n, 1, events->file) != 1 ||
        fwrite(sum, sizeof(sum), 1, events->file) != 1) {
        status = ddp_fail_path(events->path, errno, "");
    }
    return status;
}

ddp_status_t ddp_tfevents_create(const char *folder, const char *name, double time_s,
                                 ddp_tfevents_t **events_p)
{
    ddp_status_t    status = DDP_OK;
    ddp_tfevents_t *events = calloc(1, sizeof(*events));
    int             length;

    DDP_REQUIRE(events != NULL, DDP_ERR_NO_MEMORY, "no memory for an event file");
    length = snprintf(events->path, sizeof(events->path), "%s/%s", folder, name);
    DDP_REQUIRE(length > 0 && (size_t)length < sizeof(events->path), DDP_ERR_IO, "'%s': path too long",
                folder);
    length = snprintf(events->draft, sizeof(events->draft), "%s/.events.part", folder);
    DDP_REQUIRE(length > 0 && (size_t)length < sizeof(events->draft), DDP_ERR_IO, "'%s': path too long",
                folder);
    (void)snprintf(events->folder, sizeof(events->folder), "%s", folder);
    events->file = fopen(events->draft, "we");
    if (events->file == NULL) {
        DDP_TRY(ddp_fail_path(events->path, errno, ""));
    }
    events->is_draft = true;
    DDP_REQUIRE(put_double(&events->event, EVENT_TIME, time_s) &&
                    put_bytes(&events->event, EVENT_VERSION, VERSION, strlen(VERSION)),
                DDP_ERR_NO_MEMORY, "no memory for an event");
    DDP_TRY(write_record(events));
    *events_p = events;
    events    = NULL;
out:
    ddp_tfevents_close(&events);
    return status;
}

ddp_status_t ddp_tfevents_add(ddp_tfevents_t *events, double time_s, uint64_t step,
                              const ddp_tfscalar_t *scalars, size_t n)
{
    ddp_status_t status = DDP_OK;
    bool         is_ok  = true;

    events->summary.n = 0;
    events->event.n   = 0;
    for (size_t i = 0; i < n; i++) {
        is_ok = is_ok && (isnan(scalars[i].value) || put_scalar(&events->summary, &scalars[i]));
    }
    is_ok = is_ok && put_double(&events->event, EVENT_TIME, time_s) &&
            put_key(&events->event, EVENT_STEP, VARINT) && put_varint(&events->event, step) &&
            put_bytes(&events->event, EVENT_SUMMARY, events->summary.data, events->summary.n);
    DDP_REQUIRE(is_ok, DDP_ERR_NO_MEMORY, "no memory for an event");
    DDP_TRY(write_record(events));
out:
    return status;
}

ddp_status_t ddp_tfevents_finish(ddp_tfevents_t *events)
{
    ddp_status_t status = DDP_OK;
    FILE        *file   = events->file;
    bool         is_ok  = fflush(file) == 0 && fsync(fileno(file)) == 0;

    events->file = NULL;
    is_ok        = fclose(file) == 0 && is_ok;
    if (!is_ok || rename(events->draft, events->path) != 0) {
        DDP_TRY(ddp_fail_path(events->path, errno, ""));
    }
    events->is_draft = false;
    DDP_TRY(ddp_folder_sync(events->folder));
out:
    return status;
}

void ddp_tfevents_close(ddp_tfevents_t **events_p)
{
    ddp_tfevents_t *events = *events_p;

    if (events == NULL) {
        return;
    }
    if (events->file != NULL) {
        (void)fclose(events->file); /* a draft */
    }
    if (events->is_draft) {
        (void)unlink(events->draft);
    }
    free(events->summary.data);
    free(events->event.data);
    free(events);
    *events_p = NULL;
}
