/** @file A run's folder and its metrics.jsonl: one JSON object a line, "event" first. Rank 0 only; not
 * collective. */
#ifndef DDP_METRICS_H_
#define DDP_METRICS_H_

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

/** Does a run's folder exist at `path` (a folder that is not empty)? */
DDP_API bool ddp_run_folder_exists(const char *path);

/**
 * The newest of the folders `base`, `base`-2, `base`-3 ... that `wanted` accepts.
 * @param [in]  wanted    told of each that exists, newest first: true ends the search
 * @param [out] folder    "" if there is none
 */
typedef bool ddp_run_folder_fn_t(void *ctx, const char *folder);
DDP_API void ddp_run_folder_newest(const char *base, ddp_run_folder_fn_t *wanted, void *ctx, char *folder,
                                   size_t folder_size);

/**
 * Keep other runs out of a folder until this process ends or closes *fd_p, however it ends (flock(2)).
 * @return DDP_ERR_STATE: another run has it
 */
DDP_API ddp_status_t ddp_run_folder_lock(const char *folder, int *fd_p) DDP_NODISCARD;

/** As ddp_metrics_open() for a run that goes on after `step`: what an earlier process wrote about later
 * steps, or of its end, is cut off. A file that does not exist is created. */
DDP_API ddp_status_t ddp_metrics_resume(const char *folder, uint64_t step,
                                        ddp_metrics_t **metrics_p) DDP_NODISCARD;

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

/**
 * Write one line at the end of a metrics.jsonl that exists, from any process and thread, on a line of its own
 * even if the process that has it open was killed within one. Frees the object, also after an error.
 * @return DDP_ERR_IO
 */
DDP_API ddp_status_t ddp_metrics_append(const char *folder, cJSON *object) DDP_NODISCARD;

/** Write a whole small file (config.yaml): temporary file, fsync, rename. */
DDP_API ddp_status_t ddp_file_write(const char *folder, const char *name, const char *text) DDP_NODISCARD;
/** The same with folder and name in one. A device, a pipe or a symbolic link that is there is written into.
 */
DDP_API ddp_status_t ddp_file_write_path(const char *path, const char *text) DDP_NODISCARD;

#ifdef __cplusplus
}
#endif

#endif
