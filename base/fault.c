#include "base/fault.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

ddp_status_t ddp_fault(const char *point, int rank)
{
    const char *asked  = getenv("DDP_FAULT");
    size_t      length = strlen(point);

    if (asked == NULL || strncmp(asked, point, length) != 0 || asked[length] != ':') {
        return DDP_OK;
    }
    if (strtol(asked + length + 1, NULL, 10) != rank) {
        return DDP_OK;
    }
    return ddp_fail(DDP_ERR_SYSTEM, "%s: planted fault (DDP_FAULT=%s)", point, asked);
}
