/** @file A run's folder and its metrics.jsonl: one JSON object a line, "event" first. Rank 0 only; not
 * collective. */
#ifndef DDP_METRICS_H_
#define DDP_METRICS_H_

#include <cjson/cJSON.h>
#include <stddef.h>

#include "base/export.h"
#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ddp_metrics ddp_metrics_t;

/**
 * Make a run's folder.
 * @param [in]  path      the folder asked for (--out): an error if it exists and is not empty; or NULL
 * @param [in]  base      used if path is NULL: "runs/mlp-shapes"; where that is taken "runs/mlp-shapes-2" and
 * so on
 * @param [out] folder    path made; missing parents are made too
 * @return DDP_ERR_IO with path and cause ("permission denied")
 */
DDP_API ddp_status_t ddp_run_folder_create(const char *path, const char *base, char *folder,
                                           size_t folder_size) DDP_NODISCARD;

/** Create <folder>/metrics.jsonl. A write that fails later (disk full) is one warning, then metrics stop;
 * training goes on. */
DDP_API ddp_status_t ddp_metrics_open(const char *folder, ddp_metrics_t **metrics_p) DDP_NODISCARD;
DDP_API void         ddp_metrics_close(ddp_metrics_t **metrics_p);

/** A new object with "event": `event` first; add fields with cJSON's functions, then write it. NULL: no
 * memory. */
DDP_API cJSON *ddp_metrics_event(const char *event);
/** Write one line with one write(2) and free the object; takes ownership. Numbers that are not finite become
 * null. Accepts NULLs. */
DDP_API void ddp_metrics_write(ddp_metrics_t *metrics, cJSON *object);

/** Write a whole small file (config.yaml): temporary file, fsync, rename. */
DDP_API ddp_status_t ddp_file_write(const char *folder, const char *name, const char *text) DDP_NODISCARD;

#ifdef __cplusplus
}
#endif

#endif
