/**
 * @file A watchdog for calls that cannot be given a deadline (MPI_Init, MPI_Finalize): a thread with its own
 * clock.
 *
 * The thread starts at create, so it can be there before MPI is. It calls nothing but the function it was
 * given, blocks all signals, and sleeps while nothing is armed.
 */
#ifndef DDP_WATCHDOG_H_
#define DDP_WATCHDOG_H_

#include "base/export.h"
#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ddp_watchdog ddp_watchdog_t;

/**
 * Called on the watchdog's thread when `what` took longer than `limit_ms`; usually prints one line and
 * leaves the process. If it returns, the watchdog is disarmed.
 */
typedef void ddp_watchdog_fn_t(void *ctx, const char *what, int limit_ms);

/** @param [in] ctx  borrowed until destroy. @return DDP_ERR_NO_MEMORY, DDP_ERR_SYSTEM (no thread) */
DDP_API ddp_status_t ddp_watchdog_create(ddp_watchdog_fn_t *expired, void *ctx,
                                         ddp_watchdog_t **watchdog_p) DDP_NODISCARD;
/** Disarms, and waits for the thread to end. Not from `expired`. Accepts NULL. */
DDP_API void ddp_watchdog_destroy(ddp_watchdog_t **watchdog_p);

/**
 * From now on `limit_ms` are left, without time in which the process is suspended; replaces what was armed
 * before. Thread: any but the watchdog's.
 * @param [in] what  static text, e.g. "MPI_Init"
 */
DDP_API void ddp_watchdog_arm(ddp_watchdog_t *watchdog, const char *what, int limit_ms);
/** `expired` is not called after this returns; waits for it if it runs just now. */
DDP_API void ddp_watchdog_disarm(ddp_watchdog_t *watchdog);

#ifdef __cplusplus
}
#endif

#endif
