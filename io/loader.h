/** @file The loader: threads that fetch this rank's micro-batches ahead of training, in order, into a bounded
 * queue. */
#ifndef DDP_LOADER_H_
#define DDP_LOADER_H_

#include <stddef.h>
#include <stdint.h>

#include "base/export.h"
#include "base/status.h"
#include "io/dataset.h"
#include "io/tokens.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ddp_loader ddp_loader_t;

typedef struct ddp_loader_params {
    size_t               struct_size;
    const ddp_dataset_t *dataset; /* borrowed, loaded; NULL: tokens */
    const ddp_tokens_t  *tokens;  /* borrowed; NULL: a data set; a sample is a sequence */
    uint64_t             seed;
    ddp_augment_t        augment;                  /* of a data set; default none; drawn with `seed` */
    size_t               batch;                    /* global batch, samples */
    size_t               micro_batches;            /* V: the batch is cut with ddp_partition() */
    size_t               first_micro, micro_count; /* this rank's range */
    uint64_t             first_step;               /* where to begin */
    uint64_t             end_step;                 /* one past the last step */
    size_t               threads;                  /* 0: fetch in ddp_loader_next() itself; default 1 */
    size_t               depth;                    /* micro-batches fetched ahead; default 4 */
    int                  timeout_ms;               /* of ddp_loader_next() */
} ddp_loader_params_t;
#define DDP_LOADER_PARAMS_INIT                                                                               \
    {                                                                                                        \
        .struct_size = sizeof(ddp_loader_params_t), .threads = 1, .depth = 4, .timeout_ms = 60000            \
    }

/** A micro-batch; memory belongs to the loader until the slot is given back. Empty parts (n = 0) are not
 * delivered. */
typedef struct ddp_micro_batch {
    uint64_t step;
    size_t   micro_batch; /* 0 .. V - 1 */
    size_t   n;           /* samples */
    size_t   first_row;   /* position of its first sample in the global batch */
    /* of a data set; else NULL */
    const float   *images; /* [n, height, width, channels], DDP_ALIGNMENT-aligned */
    const int32_t *labels; /* [n] */
    /* of tokens; else NULL */
    const int32_t *inputs;  /* [n, context], DDP_ALIGNMENT-aligned */
    const int32_t *targets; /* [n, context]: the token behind each input */
} ddp_micro_batch_t;

/** Bytes that a loader made with these parameters takes; those of the data set need not be loaded yet. */
DDP_API size_t ddp_loader_bytes(const ddp_loader_params_t *params);
/** Starts the threads. All memory is taken here. */
DDP_API ddp_status_t ddp_loader_create(const ddp_loader_params_t *params,
                                       ddp_loader_t             **loader_p) DDP_NODISCARD;
/** Stops the threads; also in the middle of an epoch. Accepts NULL. */
DDP_API void ddp_loader_destroy(ddp_loader_t **loader_p);

/**
 * The next micro-batch of this rank, in order of (step, micro_batch). Blocking up to the timeout.
 * The last one given stays valid until ddp_loader_release() or destroy; up to `depth` may be held.
 * @return DDP_ERR_STATE after the last one; DDP_ERR_TIMEOUT; DDP_ERR_FORMAT: a token is not below the
 * vocabulary (with file and offset), now and in every later call
 */
DDP_API ddp_status_t ddp_loader_next(ddp_loader_t *loader, ddp_micro_batch_t *micro_p) DDP_NODISCARD;
/** Give back the oldest micro-batch held. */
DDP_API void ddp_loader_release(ddp_loader_t *loader);
/** Nanoseconds ddp_loader_next() has waited since create. */
DDP_API int64_t ddp_loader_wait_ns(const ddp_loader_t *loader);

#ifdef __cplusplus
}
#endif

#endif
