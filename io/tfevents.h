/** @file Scalars for TensorBoard: its event file, which is TFRecords of protobuf messages. Formats:
 * tensorflow/core/lib/io/record_writer.h, tensorflow/core/util/event.proto,
 * tensorflow/core/framework/summary.proto. Not collective; blocking. Thread: one at a time. */
#ifndef DDP_TFEVENTS_H_
#define DDP_TFEVENTS_H_

#include <stddef.h>
#include <stdint.h>

#include "base/export.h"
#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ddp_tfevents ddp_tfevents_t;

typedef struct ddp_tfscalar {
    const char *tag;   /* "loss/train": what is before the slash is a group on TensorBoard's page; UTF-8 */
    double      value; /* stored as a float */
} ddp_tfscalar_t;

/**
 * Begin a file. It is written under another name, which TensorBoard does not look at; a file of its name is
 * replaced by ddp_tfevents_finish().
 * @param [in] folder  exists
 * @param [in] name    must contain "tfevents" for TensorBoard to find it
 * @param [in] time_s  seconds since 1970, of the file
 * @return DDP_ERR_IO with path and cause
 */
DDP_API ddp_status_t ddp_tfevents_create(const char *folder, const char *name, double time_s,
                                         ddp_tfevents_t **events_p) DDP_NODISCARD;

/** One event. @param [in] scalars  [n]; those that are NaN are left out. @return DDP_ERR_IO,
 * DDP_ERR_NO_MEMORY: close it */
DDP_API ddp_status_t ddp_tfevents_add(ddp_tfevents_t *events, double time_s, uint64_t step,
                                      const ddp_tfscalar_t *scalars, size_t n) DDP_NODISCARD;

/** Onto the disk, and give it its name; nothing is added after it. @return DDP_ERR_IO */
DDP_API ddp_status_t ddp_tfevents_finish(ddp_tfevents_t *events) DDP_NODISCARD;

/** Accepts NULL. Removes what was not finished. */
DDP_API void ddp_tfevents_close(ddp_tfevents_t **events_p);

#ifdef __cplusplus
}
#endif

#endif
