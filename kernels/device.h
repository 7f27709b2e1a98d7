/**
 * @file Devices: memory, streams, events and copies behind one table; `cpu` is the reference, `cuda` a GPU.
 *
 * Callers treat every device as asynchronous: work is submitted to a stream and runs in the stream's order at
 * some time after that; two streams are ordered by events only; the host may read a result after
 * ddp_stream_synchronize() or ddp_event_synchronize(). One CPU device is one thread: work runs on the thread
 * that submits or waits. DDP_DEVICE_SCHEDULE=now (default) runs work as soon as its stream lets it; =defer
 * runs nothing before somebody waits, and then the youngest stream first, as far as its event waits let it,
 * so that a missing event wait gives wrong values; =defer:<seed> takes streams in random order. Thread: a
 * device and all that belongs to it are used by the thread that created it; devices share nothing, so several
 * threads may each have their own.
 */
#ifndef DDP_DEVICE_H_
#define DDP_DEVICE_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/allocator.h"
#include "base/export.h"
#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ddp_device ddp_device_t;
typedef struct ddp_stream ddp_stream_t;
typedef struct ddp_event  ddp_event_t;

/** Values cross MPI. */
typedef enum ddp_device_kind { DDP_DEVICE_CPU = 0, DDP_DEVICE_CUDA = 1 } ddp_device_kind_t;

/** Instruction sets of the cpu device, lowest first; values cross MPI. */
typedef enum ddp_isa {
    DDP_ISA_PLAIN  = 0, /* C without intrinsics, 4-lane vectors */
    DDP_ISA_AVX2   = 1, /* AVX2 and FMA */
    DDP_ISA_AVX512 = 2, /* AVX-512 F, BW, DQ, VL */
} ddp_isa_t;

/** @return the best set this processor has, or less if DDP_ISA=plain|avx2|avx512 asks for less. */
DDP_API ddp_isa_t ddp_isa_detect(void);
/** @return "plain", "avx2" or "avx512". */
DDP_API const char *ddp_isa_name(ddp_isa_t isa);
/** DDP_ISA names a set this processor lacks, or no set at all, or DDP_BF16 something other than `emulate`:
 * DDP_ERR_UNSUPPORTED with a line; else DDP_OK. */
DDP_API ddp_status_t ddp_isa_check(void) DDP_NODISCARD;

/** @return whether products of bfloat16 have an instruction with set `isa` on this processor (AVX-512-BF16),
 * and DDP_BF16=emulate does not ask to go without; else they are emulated: the same bits, slower than
 * float32. */
DDP_API bool ddp_isa_has_bf16(ddp_isa_t isa);

/** What a wait does while there is nothing to run: wait a little, watch peers and deadlines. `waited_ns` is 0
 * at the first call of a wait and after work was done, then counts from there. */
typedef ddp_status_t ddp_idle_fn_t(void *ctx, int64_t waited_ns);

typedef struct ddp_device_params {
    size_t            struct_size;
    ddp_device_kind_t kind;
    int               ordinal; /* cuda: which of the visible ones (kernels/cuda.h) */
    ddp_isa_t         isa;     /* cpu: set that all ranks agreed on; must be one this processor has */
    bool dry; /* work is checked and dropped, memory is addresses that nobody has: to learn what a run will
                 need */
    bool        is_exact; /* cuda: of the engines of libraries only those that give the same bits each time */
    const char *name;     /* for errors ("device 1"); static text, or NULL: "cpu", "cuda" */
    size_t      memory_bytes; /* it may hold: what does not fit fails as on a real device; 0: no cap */
} ddp_device_params_t;
#define DDP_DEVICE_PARAMS_INIT                                                                               \
    {                                                                                                        \
        .struct_size = sizeof(ddp_device_params_t), .isa = DDP_ISA_PLAIN                                     \
    }

/** @return DDP_ERR_INVALID_ARG, DDP_ERR_UNSUPPORTED (unknown DDP_DEVICE_SCHEDULE; a build, or a machine,
 * without CUDA), DDP_ERR_DEVICE, DDP_ERR_NO_MEMORY. */
DDP_API ddp_status_t ddp_device_create(const ddp_device_params_t *params,
                                       ddp_device_t             **device_p) DDP_NODISCARD;
/** Destroys a device whose streams, events and memory are gone. Accepts NULL. */
DDP_API void              ddp_device_destroy(ddp_device_t **device_p);
DDP_API ddp_device_kind_t ddp_device_kind(const ddp_device_t *device);
/** The instruction set of a cpu device; of others DDP_ISA_PLAIN. */
DDP_API ddp_isa_t ddp_device_isa(const ddp_device_t *device);
/** Whether products of bfloat16 are no slower than float32: on cpu what ddp_isa_has_bf16() said when the
 * device was created. */
DDP_API bool ddp_device_has_bf16(const ddp_device_t *device);
/** As the device was made. */
DDP_API bool ddp_device_is_exact(const ddp_device_t *device);
/** DDP_DEVICE_SCHEDULE=defer: who hands memory on spoils it first, so that a reader that comes too late is
 * seen. */
DDP_API bool ddp_device_is_deferred(const ddp_device_t *device);
/** true if host code may read device memory by pointer (after synchronising): on cpu, unless it is dry. */
DDP_API bool ddp_device_is_host_memory(const ddp_device_t *device);
/** Made with `dry`: nothing runs, and its memory is not there. */
DDP_API bool ddp_device_is_dry(const ddp_device_t *device);
/** Memory of the device; DDP_ALIGNMENT-aligned, zeroed. The allocator is borrowed from the device, and all
 * memory goes back before the device does. That of a dry device must not be read or written. What does not
 * fit below the cap is refused, as ddp_device_charge() does, before any is taken. */
DDP_API const ddp_allocator_t *ddp_device_allocator(ddp_device_t *device);
/** Host memory that copies of this device run to and from without a copy in between: page-locked on cuda, any
 * on cpu. Not counted as the device's. Taken and given back outside of steps only. */
DDP_API const ddp_allocator_t *ddp_device_host_allocator(ddp_device_t *device);
/** What the device does in one of several ways, which differ in the last bits. */
typedef struct ddp_choice {
    char name[192];  /* "product 24 x 60 x 16, ..." */
    char value[128]; /* "algorithm 21, tile 15, ..." */
} ddp_choice_t;
/**
 * What libraries have chosen so far, for what this device has computed: on cuda the algorithms of cuBLASLt.
 * Where two devices have the same names and values, they compute the same bits; with is_exact that is what is
 * wanted. The engines of cuDNN are not told.
 * @param [out] choices  [capacity], the first of them
 * @return how many there are
 */
DDP_API size_t ddp_device_choices(const ddp_device_t *device, ddp_choice_t *choices, size_t capacity);

/** Copies between `device` and `other`, which may belong to another thread, go directly from now on, where
 * the machine can do that (NVLink, PCIe); else CUDA takes them through the host by itself. */
DDP_API void ddp_device_meet(const ddp_device_t *device, const ddp_device_t *other);

/** Make host memory that came from elsewhere such memory (a machine's shared memory); on cpu it is. Outside
 * of steps only. @param [in] memory  page-aligned. @return DDP_ERR_NO_MEMORY, DDP_ERR_DEVICE */
DDP_API ddp_status_t ddp_device_pin(ddp_device_t *device, void *memory, size_t bytes) DDP_NODISCARD;
/** Take it back: no copy may be on its way. */
DDP_API void ddp_device_unpin(ddp_device_t *device, void *memory);

/** Bytes that a device holds: what its allocator gave (to tapes and kernels too) and what was charged. */
typedef struct ddp_device_memory {
    size_t held, peak; /* now, and the most at a time */
    size_t cap;        /* 0: none */
} ddp_device_memory_t;
DDP_API ddp_device_memory_t ddp_device_memory(const ddp_device_t *device);
/**
 * Count memory that came from elsewhere (arenas of the reducer, say) as held by this device.
 * @param [in] label  what for ("moments")
 * @return DDP_ERR_NO_MEMORY: "device 1: moments need 210.0 MB; 80.0 of 512.0 MB are left"
 */
DDP_API ddp_status_t ddp_device_charge(ddp_device_t *device, const char *label, size_t bytes) DDP_NODISCARD;
/** Take a charge back. */
DDP_API void ddp_device_discharge(ddp_device_t *device, size_t bytes);
/** What has not been given back when the device is destroyed stays for the rest of the process: a thread that
 * does not come back may still use it. */
DDP_API void ddp_device_keep_memory(ddp_device_t *device);

/**
 * What to call in a wait when no stream can go on (ddp's communicator: spin, yield, futex, deadline). NULL:
 * yield. A status other than DDP_OK ends the wait with it.
 */
DDP_API void ddp_device_set_idle(ddp_device_t *device, ddp_idle_fn_t *idle, void *ctx);

/** Somebody who wants to know that work gets on: called after each piece of work that is done and, at most
 * every 0.5 ms, from inside long ones; not for work that only asks whether it may begin. */
typedef void ddp_moved_fn_t(void *ctx);
/** NULL: nobody. `moved` must not use the device. */
DDP_API void ddp_device_set_moved(ddp_device_t *device, ddp_moved_fn_t *moved, void *ctx);

/**
 * Run what is ready on all streams, without waiting. Called between operations and, from inside long kernels,
 * at most every 0.5 ms, so that communication goes on during backward. Does nothing when called from work it
 * runs itself. Under defer the first of several calls in a row does nothing: only who asks again, with
 * nothing submitted in between, is somebody who waits.
 */
DDP_API void ddp_device_progress(ddp_device_t *device);

/** A call of a piece of work, as a watch is told of it. All pointers are valid during the call only. */
typedef struct ddp_work_seen {
    const char *stream, *work; /* names, as the stream and the work were made with */
    const void *args;          /* DDP_WORK_ARGS_BYTES may be read */
    int64_t     start_ns, end_ns;
    int64_t     inner_ns; /* of that, spent in other work that ran inside */
    bool        is_done;  /* false: it answered DDP_IN_PROGRESS, or failed */
} ddp_work_seen_t;
typedef void ddp_watch_fn_t(void *ctx, const ddp_work_seen_t *seen);
/** Tell `watch` of every call of work from now on, after it; NULL: nobody. Costs two looks at the clock a
 * call. `watch` must not use the device. */
DDP_API void ddp_device_set_watch(ddp_device_t *device, ddp_watch_fn_t *watch, void *ctx);

/** A stream: work in order. Streams created later are "younger". */
DDP_API ddp_status_t ddp_stream_create(ddp_device_t *device, const char *name,
                                       ddp_stream_t **stream_p) DDP_NODISCARD;
/** As ddp_stream_create(): its work goes before that of other streams where the device knows priorities. */
DDP_API ddp_status_t ddp_stream_create_urgent(ddp_device_t *device, const char *name,
                                              ddp_stream_t **stream_p) DDP_NODISCARD;
/** Accepts NULL. Work that has not run is dropped; who waits for it gets DDP_ERR_STATE. */
DDP_API void          ddp_stream_destroy(ddp_stream_t **stream_p);
DDP_API ddp_device_t *ddp_stream_device(ddp_stream_t *stream);

/** One piece of work: DDP_OK done; DDP_IN_PROGRESS call again later (the stream stays at it); < 0 the stream
 * has failed. */
typedef ddp_status_t ddp_work_fn_t(void *args);
/** Largest argument struct of a piece of work, bytes. */
#define DDP_WORK_ARGS_BYTES 256

/**
 * Append work of the host to a stream of a cpu device, which may run it before this returns. Blocking: no.
 * @param [in] name   static text, for errors and traces
 * @param [in] args   copied; at most DDP_WORK_ARGS_BYTES. What it points to must live until the work is done.
 * @return DDP_OK, the error of earlier work of this stream (with its line), or this work's own error;
 * DDP_ERR_UNSUPPORTED: no cpu device
 */
DDP_API ddp_status_t ddp_stream_submit(ddp_stream_t *stream, const char *name, ddp_work_fn_t *fn,
                                       const void *args, size_t args_bytes) DDP_NODISCARD;

/**
 * Wait until all work of the stream so far is done. Blocking.
 * @param [in] timeout_ms  < 0: no limit of its own, the idle function has one. 0: ask only (DDP_IN_PROGRESS
 * if not done)
 * @return DDP_OK, DDP_ERR_TIMEOUT, the error of the work, or the status of the idle function
 */
DDP_API ddp_status_t ddp_stream_synchronize(ddp_stream_t *stream, int timeout_ms) DDP_NODISCARD;

/** Memory that operations of a stream take for themselves, bytes: each for the time that it runs, so the most
 * that one of them needs. */
typedef struct ddp_scratch {
    size_t op;      /* by itself */
    size_t product; /* in its products */
} ddp_scratch_t;
/** What the operations submitted to this dry device so far would have taken; of a cpu device zeros: its
 * kernels share memory, see ddp_kernel_scratch_bytes(). */
DDP_API ddp_scratch_t ddp_device_dry_scratch(const ddp_device_t *device);
/**
 * Have it before the first step, so that no operation takes memory in one. What is not reserved, or too
 * little, is taken when it is needed, at least twice of what was there, and the old memory stays. With
 * DDP_CUDA_SCRATCH=fixed in the environment that is an error instead (for tests). Outside of steps; not of a
 * dry device.
 */
DDP_API ddp_status_t ddp_stream_reserve(ddp_stream_t *stream, const ddp_scratch_t *scratch) DDP_NODISCARD;

/**
 * From now on the stream of a cuda device keeps operations (kernels/ops*.h) back until something else is
 * asked of it: an event, a copy, a wait, work of its own by NCCL or the reducer. What has come together by
 * then and came before in the same way, with the same arguments to the last bit, goes to the device as one
 * CUDA graph, so that the host does not launch each kernel. Everything else runs as without. The results have
 * the same bits; errors of an operation may come later. Kept at most DDP_GRAPHS_MOST graphs, then no more are
 * made. On cpu devices, and where an operation cannot be captured, nothing changes; the latter is said in a
 * warning, once. Before the first operation, and before a tape is made for the stream.
 * @return DDP_ERR_NO_MEMORY
 */
DDP_API ddp_status_t ddp_stream_use_graphs(ddp_stream_t *stream) DDP_NODISCARD;
#define DDP_GRAPHS_MOST 1024
DDP_API bool ddp_stream_has_graphs(const ddp_stream_t *stream);
/** What came of it. */
typedef struct ddp_graphs_report {
    uint64_t graphs;   /* made */
    uint64_t launches; /* of graphs */
    uint64_t launched; /* operations that came in them */
    uint64_t single;   /* operations that were run one by one */
} ddp_graphs_report_t;
/** Without graphs zeros. */
DDP_API ddp_graphs_report_t ddp_stream_graphs(const ddp_stream_t *stream);

/** An event: a point in one stream; never recorded = already done. */
DDP_API ddp_status_t ddp_event_create(ddp_device_t *device, ddp_event_t **event_p) DDP_NODISCARD;
/** As ddp_event_create(): an event that knows when its point was reached. On cuda recording one costs a
 * little more; on cpu it takes the clock when it is recorded. */
DDP_API ddp_status_t ddp_event_create_timed(ddp_device_t *device, ddp_event_t **event_p) DDP_NODISCARD;
DDP_API void         ddp_event_destroy(ddp_event_t **event_p);
/** The event now means "all work of `stream` submitted so far". */
DDP_API ddp_status_t ddp_event_record(ddp_event_t *event, ddp_stream_t *stream) DDP_NODISCARD;
/** Later work of `stream` runs after the point that the event means now (recording again later changes
 * nothing). */
DDP_API ddp_status_t ddp_stream_wait_event(ddp_stream_t *stream, ddp_event_t *event) DDP_NODISCARD;
/** As ddp_stream_synchronize(), for the event's point. */
DDP_API ddp_status_t ddp_event_synchronize(ddp_event_t *event, int timeout_ms) DDP_NODISCARD;
/**
 * The time from the point of `from` to that of `to`, two timed events of one device; < 0 if `to` was first.
 * Not blocking. On cuda a float of milliseconds: no better than a millionth of it. On a dry device 0.
 * @return DDP_IN_PROGRESS: one of the points is not reached; DDP_ERR_INVALID_ARG: not timed, never recorded,
 * or of another device; DDP_ERR_DEVICE
 */
DDP_API ddp_status_t ddp_event_elapsed(const ddp_event_t *from, const ddp_event_t *to,
                                       int64_t *ns_p) DDP_NODISCARD;

/** Copy `bytes` in stream order; host and device memory in any combination; ranges do not overlap. */
DDP_API ddp_status_t ddp_stream_copy(ddp_stream_t *stream, void *to, const void *from,
                                     size_t bytes) DDP_NODISCARD;
/** What host code does with results of operations: copy them to host memory in stream order, and wait.
 * @return as ddp_stream_synchronize() */
DDP_API ddp_status_t ddp_stream_read(ddp_stream_t *stream, void *host, const void *from,
                                     size_t bytes) DDP_NODISCARD;

#ifdef __cplusplus
}
#endif

#endif
