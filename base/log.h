/** @file Log lines on stderr: `info` is for rank 0, `warn` and `error` come from the rank concerned. */
#ifndef DDP_LOG_H_
#define DDP_LOG_H_

#include <stdbool.h>

#include "base/export.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ddp_log_level {
    DDP_LOG_ERROR = 0,
    DDP_LOG_WARN  = 1,
    DDP_LOG_INFO  = 2,
    DDP_LOG_DEBUG = 3,
} ddp_log_level_t;

/** Set the process's level. The only mutable global of the library, with the identity below. */
DDP_API void ddp_log_set_level(ddp_log_level_t level);

/** @return false if `text` is none of error, warn, info, debug; `*level_p` is then untouched. */
DDP_API bool ddp_log_parse_level(const char *text, ddp_log_level_t *level_p);

/** Who speaks: "ddptrain[3@node07]: ". `rank` < 0 (before MPI is up): "ddptrain: ". `host` is copied. */
DDP_API void ddp_log_set_identity(int rank, const char *host);

/** Write one whole line with one write(2), so that lines of several ranks do not mix. Thread: any. */
DDP_API void ddp_log(ddp_log_level_t level, const char *fmt, ...) DDP_PRINTF(2, 3);

#ifdef __cplusplus
}
#endif

#endif
