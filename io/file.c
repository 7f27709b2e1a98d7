#include "io/file_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/progressed.h"

ddp_status_t ddp_fail_path(const char *path, int error, const char *hint)
{
    return ddp_fail(DDP_ERR_IO, "'%s': %s%s", path, ddp_errno_text(error), hint);
}

const char *ddp_no_file_text(mode_t mode)
{
    return S_ISDIR(mode)
               ? "a folder, not a regular file; a run has its newest checkpoint under checkpoints/latest.h5"
               : "a device or pipe, not a regular file";
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

ddp_status_t ddp_read_at(const char *path, int fd, void *to, size_t bytes, uint64_t at)
{
    char *place = to;

    while (bytes > 0) {
        const ssize_t n = pread(fd, place, bytes < DDP_READ_PIECE ? bytes : DDP_READ_PIECE, (off_t)at);

        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return ddp_fail_path(path, errno, "");
        }
        if (n == 0) {
            return ddp_fail(DDP_ERR_FORMAT, "'%s': cut short: it ends at byte %" PRIu64, path, at);
        }
        place += n;
        at += (uint64_t)n;
        bytes -= (size_t)n;
        ddp_progressed();
    }
    return DDP_OK;
}

ddp_status_t ddp_write_at(const char *path, int fd, const void *from, size_t bytes, uint64_t at)
{
    const char *place = from;

    while (bytes > 0) {
        const ssize_t n = pwrite(fd, place, bytes, (off_t)at);

        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) { /* 0: nothing was written and nothing said why */
            return ddp_fail_path(path, n < 0 ? errno : EIO, "");
        }
        place += n;
        at += (uint64_t)n;
        bytes -= (size_t)n;
    }
    return DDP_OK;
}

ddp_status_t ddp_folder_sync(const char *folder)
{
    ddp_status_t status = DDP_OK;
    const int    fd     = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0 || (fsync(fd) != 0 && errno != EINVAL)) { /* EINVAL: a file system without it */
        DDP_TRY(ddp_fail_path(folder, errno, ""));
    }
out:
    if (fd >= 0) {
        (void)close(fd);
    }
    return status;
}
