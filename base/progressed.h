/** @file Work that may take longer than others wait for it says that it gets on. */
#ifndef DDP_PROGRESSED_H_
#define DDP_PROGRESSED_H_

#include "base/export.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef void ddp_progressed_fn_t(void *ctx);

/** Tell `fn` of work that this thread gets done from now on; NULL: nobody. */
DDP_API void ddp_progressed_hook(ddp_progressed_fn_t *fn, void *ctx);
/** Nobody is told any more, if it was `ctx`. */
DDP_API void ddp_progressed_unhook(const void *ctx);

/** A piece is done: for the inside of long loops, every few milliseconds at most. A call of `fn`, or nothing.
 */
DDP_API void ddp_progressed(void);

#ifdef __cplusplus
}
#endif

#endif
