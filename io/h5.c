#include "io/h5_internal.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "io/checkpoint.h"

void ddp_h5_quiet(void)
{
    (void)H5Eset_auto2(H5E_DEFAULT, NULL, NULL); /* of this thread; cannot fail in a way that matters */
}

/* As global as the library that it guards. */
static pthread_mutex_t h5_mutex = PTHREAD_MUTEX_INITIALIZER;

void ddp_h5_lock(void)
{
    (void)pthread_mutex_lock(&h5_mutex); /* fails only for a mutex that is none */
    ddp_h5_quiet();
}

void ddp_h5_unlock(void)
{
    (void)pthread_mutex_unlock(&h5_mutex);
}

static herr_t take_first(unsigned n, const H5E_error2_t *error, void *text)
{
    if (n == 0 && error->desc != NULL) {
        const char *colon = strstr(error->desc, ": time = ");
        const char *cause = strstr(error->desc, "error message = '");

        if (colon != NULL && cause != NULL) { /* of a file's calls: names of call and cause will do */
            cause += strlen("error message = '");
            snprintf(text, DDP_ERROR_LINE_SIZE, "%.*s: %.*s", (int)(colon - error->desc), error->desc,
                     (int)strcspn(cause, "'"), cause);
        } else {
            snprintf(text, DDP_ERROR_LINE_SIZE, "%s", error->desc);
        }
    }
    return 0;
}

ddp_status_t ddp_fail_h5(ddp_status_t status, const char *fmt, ...)
{
    char    text[DDP_ERROR_LINE_SIZE]      = "";
    char    innermost[DDP_ERROR_LINE_SIZE] = "unknown HDF5 error";
    va_list args;

    (void)H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take_first, innermost);
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    return ddp_fail(status, "%s: %s", text, innermost);
}

ddp_status_t ddp_h5_open(const char *path, hid_t *file_p)
{
    ddp_status_t status = DDP_OK;
    hid_t        access = H5Pcreate(H5P_FILE_ACCESS);
    hid_t        file;

    if (access < 0 || H5Pset_file_locking(access, false, true) < 0) {
        DDP_TRY(ddp_fail_h5(DDP_ERR_IO, "'%s'", path));
    }
    file = H5Fopen(path, H5F_ACC_RDONLY, access);
    if (file < 0) {
        DDP_TRY(ddp_fail_h5(DDP_ERR_FORMAT, "'%s': not a readable HDF5 file", path));
    }
    *file_p = file;
out:
    if (access >= 0) {
        (void)H5Pclose(access);
    }
    return status;
}

const char *ddp_checkpoint_library(char text[DDP_CHECKPOINT_LIBRARY_SIZE])
{
    unsigned major = 0;
    unsigned minor = 0;
    unsigned patch = 0;

    (void)H5get_libversion(&major, &minor, &patch); /* cannot fail in a way that matters */
    (void)snprintf(text, DDP_CHECKPOINT_LIBRARY_SIZE, "%u.%u.%u, headers %d.%d.%d", major % 1000,
                   minor % 1000, patch % 1000, H5_VERS_MAJOR, H5_VERS_MINOR, H5_VERS_RELEASE);
    return text;
}
