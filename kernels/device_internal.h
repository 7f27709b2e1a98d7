/**
 * @file Inside of devices: what all have, and what those of the cpu have besides, whose streams are queues of
 * items, run by cpu/queue.c. Private.
 */
#ifndef DDP_DEVICE_INTERNAL_H_
#define DDP_DEVICE_INTERNAL_H_

#include "base/allocator.h"
#include "base/error.h"
#include "kernels/backend_internal.h"
#include "kernels/device.h"

/** One entry of a stream: work, or (fn == NULL) a wait for a point of another stream. */
typedef struct ddp_item {
    struct ddp_item *next;
    const char      *name; /* borrowed, static */
    ddp_work_fn_t   *fn;
    ddp_stream_t    *other; /* wait: a reference, until the item is recycled */
    uint64_t         point; /* wait: number of finished items of `other` that ends it */
    _Alignas(DDP_ALIGNMENT) unsigned char args[DDP_WORK_ARGS_BYTES];
} ddp_item_t;

/** Memory that the device's allocator gave. */
typedef struct ddp_device_block {
    void  *memory; /* owned */
    size_t bytes;
} ddp_device_block_t;

struct ddp_stream {
    ddp_device_t *device; /* borrowed */
    char         *name;   /* owned */
    void         *native; /* owned by the backend */
    ddp_status_t  status; /* < 0: failed for good, nothing is queued */
    char          line[DDP_ERROR_LINE_SIZE];

    /* cpu */
    ddp_stream_t *older, *younger;
    size_t      refs; /* the owner, events and queued waits: the counters below outlive a destroyed stream */
    ddp_item_t *head, *tail;
    uint64_t    submitted, finished; /* items, ever */
    bool        busy;                /* its head runs now */
};

struct ddp_event {
    ddp_device_t *device; /* borrowed */
    void         *native; /* owned by the backend */
    bool          is_timed;
    bool          is_recorded;

    /* cpu */
    ddp_stream_t *stream; /* a reference; NULL: never recorded */
    uint64_t      point;
    int64_t       recorded_ns; /* timed: the clock then */
};

/** How deep kernels nest: a kernel, what it calls, one that runs at its progress point, and room. */
#define DDP_SCRATCH_DEPTH 4

struct ddp_device {
    const ddp_backend_t *backend;
    ddp_device_kind_t    kind;
    int                  ordinal;
    const char          *name;   /* static */
    void                *native; /* owned by the backend */
    bool                 dry;
    bool                 is_exact; /* cuda */

    ddp_allocator_t     allocator, host_allocator;
    ddp_device_memory_t memory;
    ddp_device_block_t *blocks; /* owned, [blocks_room] */
    size_t              n_blocks, blocks_room;
    bool                is_kept;     /* blocks may be left at the end, and stay */
    size_t              dry_bytes;   /* addresses handed out, if dry */
    ddp_scratch_t       dry_scratch; /* what operations would have taken for themselves, if dry */

    ddp_idle_fn_t  *idle;
    void           *idle_ctx;
    ddp_moved_fn_t *moved;
    void           *moved_ctx;
    ddp_watch_fn_t *watch; /* NULL: nobody watches */
    void           *watch_ctx;

    /* cpu */
    ddp_isa_t          isa;
    bool               has_bf16;
    ddp_device_block_t scratch[DDP_SCRATCH_DEPTH]; /* of kernels (kernels/cpu/scratch.h) */
    int                scratch_depth;              /* how many are borrowed */
    bool               defer;
    bool               random; /* defer: streams in random order instead of youngest first */
    uint64_t           random_state;
    ddp_stream_t      *oldest, *youngest;
    size_t             streams;
    size_t             waiting; /* streams with items */
    ddp_item_t        *free_items;
    size_t             items;       /* allocated so far: steady after warm-up */
    int                depth;       /* pieces of work that run now, one inside the other */
    bool               progressing; /* inside ddp_device_progress() */
    unsigned idle_calls;  /* ddp_device_progress() calls since anything else was asked of the device */
    int64_t  progress_ns; /* when a kernel's progress point last told and let others run */
    int64_t  watched_ns;  /* in work called by the work that runs now */
};

/** Allocator and account. */
void ddp_device_memory_open(ddp_device_t *device, size_t cap);
/** All memory but that of kernels has been given back, or is kept. */
void ddp_device_memory_close(ddp_device_t *device);

/** Whose work this thread runs; NULL: none. */
ddp_device_t *ddp_cpu_running_device(void);

/** Append; runs it if the schedule says so. `fn` NULL: a wait. @return DDP_ERR_NO_MEMORY, or the stream's
 * error */
ddp_status_t ddp_queue_append(ddp_stream_t *stream, const ddp_item_t *what, const void *args,
                              size_t args_bytes);
/** Wait until `stream` has finished `point` items. */
ddp_status_t ddp_queue_wait(ddp_stream_t *stream, uint64_t point, int timeout_ms);
/** As ddp_device_progress(). */
void ddp_queue_progress(ddp_device_t *device);
/** Forget what is queued. */
void ddp_queue_clear(ddp_stream_t *stream);
/** Give back one reference; the last one frees. Accepts NULL. */
void ddp_stream_unref(ddp_stream_t *stream);
/** @return the stream's error, with its line recorded on this thread; DDP_OK if it has none. */
ddp_status_t ddp_stream_status(const ddp_stream_t *stream);

#endif
