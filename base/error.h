/** @file One-line error records: the function that finds a fault records one line, callers pass the status
 * up. */
#ifndef DDP_ERROR_H_
#define DDP_ERROR_H_

#include <stdarg.h>

#include "base/export.h"
#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Longest recorded line, with its final 0. Longer texts lose their middle. */
#define DDP_ERROR_LINE_SIZE 512

/**
 * Record one line for this thread, replacing an earlier one, and return `status`.
 *
 * Thread: any; the record belongs to the calling thread. Control characters in the text become spaces: a
 * record is one line.
 * @param [in] status  the error, < 0
 * @param [in] fmt     lower case; exact cause, then the option, path or command that mends it
 */
DDP_API ddp_status_t ddp_fail(ddp_status_t status, const char *fmt, ...) DDP_PRINTF(2, 3);

/** As ddp_fail(), with the argument list of a caller that takes `...` itself. */
DDP_API ddp_status_t ddp_fail_v(ddp_status_t status, const char *fmt, va_list args) DDP_PRINTF(2, 0);

/** Put "text: " in front of the recorded line: the caller adds the user's noun, e.g. "checkpoint 'a.h5'". */
DDP_API void ddp_error_prefix(const char *fmt, ...) DDP_PRINTF(1, 2);

/** @return the line recorded last on this thread, "" if none; valid until the next record on this thread. */
DDP_API const char *ddp_error_line(void);

/** Make `text` fit for one line of a terminal: control characters become spaces. */
DDP_API void ddp_error_one_line(char *text);

/** @return the system's text for `error` (of errno, or of pthreads), lower case; this thread's, until its
 * next one. */
DDP_API const char *ddp_errno_text(int error);

/** Forget the record of this thread. */
DDP_API void ddp_error_clear(void);

/** Say that a status is truly not needed, and why. The recorded line is kept as it was before the call's
 * failure. */
static inline void ddp_ignore(ddp_status_t status, const char *why)
{
    (void)status;
    (void)why;
}

/* These jump to `out` and need `ddp_status_t status` and the label in scope. For calls that finish. */
#define DDP_TRY(call)                                                                                        \
    do {                                                                                                     \
        status = (call);                                                                                     \
        if (status != DDP_OK) {                                                                              \
            goto out;                                                                                        \
        }                                                                                                    \
    } while (0)

#define DDP_REQUIRE(cond, code, ...)                                                                         \
    do {                                                                                                     \
        if (!(cond)) {                                                                                       \
            status = ddp_fail((code), __VA_ARGS__);                                                          \
            goto out;                                                                                        \
        }                                                                                                    \
    } while (0)

#ifdef __cplusplus
}
#endif

#endif
