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

ddp_status_t ddp_path_insert(const char *path, const char *text, char *name, size_t size)
{
    ddp_status_t status = DDP_OK;
    const char  *slash  = strrchr(path, '/');
    const char  *base   = slash != NULL ? slash + 1 : path;
    const char  *dot    = strrchr(base, '.');
    const size_t stem   = dot != NULL && dot > base ? (size_t)(dot - path) : strlen(path);
    const int    length = snprintf(name, size, "%.*s%s%s", (int)stem, path, text, path + stem);

    DDP_REQUIRE(length > 0 && (size_t)length < size, DDP_ERR_IO, "'%s': path too long", path);
out:
    return status;
}
