#include "base/progressed.h"

#include <stddef.h>

/* Of the thread: what others do beside it does not count for it. */
static _Thread_local ddp_progressed_fn_t *told;
static _Thread_local void                *told_ctx;

void ddp_progressed_hook(ddp_progressed_fn_t *fn, void *ctx)
{
    told     = fn;
    told_ctx = ctx;
}

void ddp_progressed_unhook(const void *ctx)
{
    if (told_ctx == ctx) {
        ddp_progressed_hook(NULL, NULL);
    }
}

void ddp_progressed(void)
{
    if (told != NULL) {
        told(told_ctx);
    }
}
