/** @file A step's timeline in the format of Chrome's traces, which Perfetto shows: a process for each device,
 * with a line for what it computes and lines for its buckets. */
#ifndef DDP_TRACE_JSON_H_
#define DDP_TRACE_JSON_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DDP_TRACE_NO_PART (-1)

/** A piece of it; times are microseconds on one clock. */
typedef struct ddp_trace_span {
    const char *phase; /* borrowed */
    int32_t     device;
    bool        is_comm; /* a bucket's */
    int32_t     part;    /* which bucket, or micro-batch; DDP_TRACE_NO_PART: not told */
    double      start_us, end_us;
    double      ready_us; /* of a bucket; NaN: not told */
} ddp_trace_span_t;

/**
 * @param [in] noun   what a device is called: "rank"
 * @param [in] spans  [n]; where there are buckets, those of one device lie together
 * @return the file's text, to be freed by cJSON_free(); NULL: no memory
 */
char *ddp_trace_json(const char *noun, uint64_t step, const ddp_trace_span_t *spans, size_t n);

#endif
