#include "io/file_internal.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"

ddp_status_t ddp_fail_path(const char *path, int error, const char *hint)
{
    char        buffer[128];
    char        lower[128];
    const char *text = strerror_r(error, buffer, sizeof(buffer)); /* GNU's: may be static text */

    snprintf(lower, sizeof(lower), "%s", text);
    lower[0] = (char)tolower((unsigned char)lower[0]);
    return ddp_fail(DDP_ERR_IO, "'%s': %s%s", path, lower, hint);
}
