#include "io/new_file_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "io/file_internal.h"

#define BUFFER_BYTES ((size_t)256 << 10)
#define EXISTS_HINT  "; choose another name, nothing is written over"

struct ddp_new_file {
    char  *path, *part; /* owned */
    int    fd;
    bool   is_there; /* under the name `part` */
    size_t n;        /* bytes of the buffer */
    char  *buffer;   /* owned */
};

static void drop(ddp_new_file_t *file)
{
    if (file->fd >= 0) {
        (void)close(file->fd); /* fsync() has told of errors, if anyone cares */
        file->fd = -1;
    }
    free(file->buffer);
    file->buffer = NULL;
}

ddp_status_t ddp_new_file_create(const char *path, ddp_new_file_t **file_p)
{
    ddp_status_t    status = DDP_OK;
    ddp_new_file_t *file   = calloc(1, sizeof(*file));
    const size_t    length = strlen(path);

    DDP_REQUIRE(file != NULL, DDP_ERR_NO_MEMORY, "'%s': no memory to write it", path);
    file->fd     = -1;
    file->path   = strdup(path);
    file->part   = malloc(length + sizeof(".part"));
    file->buffer = malloc(BUFFER_BYTES);
    DDP_REQUIRE(file->path != NULL && file->part != NULL && file->buffer != NULL, DDP_ERR_NO_MEMORY,
                "'%s': no memory to write it", path);
    (void)snprintf(file->part, length + sizeof(".part"), "%s.part", path);
    if (access(path, F_OK) == 0) {
        DDP_TRY(ddp_fail_path(path, EEXIST, EXISTS_HINT));
    }
    file->fd = open(file->part, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file->fd < 0) {
        DDP_TRY(ddp_fail_path(file->part, errno,
                              errno == EEXIST ? "; remove what an earlier run left behind" : ""));
    }
    file->is_there = true;
    *file_p        = file;
    file           = NULL;
out:
    ddp_new_file_close(&file);
    return status;
}

static ddp_status_t write_at(ddp_new_file_t *file, int64_t offset, const void *data, size_t bytes)
{
    const char *from = data;

    while (bytes > 0) {
        const ssize_t n = offset < 0 ? write(file->fd, from, bytes) : pwrite(file->fd, from, bytes, offset);

        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return ddp_fail_path(file->part, n < 0 ? errno : ENOSPC, "");
        }
        from += n;
        bytes -= (size_t)n;
        offset += offset < 0 ? 0 : n;
    }
    return DDP_OK;
}

static ddp_status_t flush(ddp_new_file_t *file)
{
    const size_t n = file->n;

    file->n = 0;
    return write_at(file, -1, file->buffer, n);
}

ddp_status_t ddp_new_file_write(ddp_new_file_t *file, const void *data, size_t bytes)
{
    ddp_status_t status = DDP_OK;
    const char  *from   = data;

    while (bytes > 0) {
        const size_t room = BUFFER_BYTES - file->n;
        const size_t n    = bytes < room ? bytes : room;

        memcpy(file->buffer + file->n, from, n);
        file->n += n;
        from += n;
        bytes -= n;
        if (file->n == BUFFER_BYTES) {
            DDP_TRY(flush(file));
        }
    }
out:
    return status;
}

ddp_status_t ddp_new_file_patch(ddp_new_file_t *file, uint64_t offset, const void *data, size_t bytes)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(flush(file));
    DDP_TRY(write_at(file, (int64_t)offset, data, bytes));
out:
    return status;
}

ddp_status_t ddp_new_file_finish(ddp_new_file_t *file)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(flush(file));
    /* EINVAL: a special file system that keeps nothing anyway */
    if (fsync(file->fd) != 0 && errno != EINVAL) {
        DDP_TRY(ddp_fail_path(file->part, errno, ""));
    }
    drop(file); /* there may be many more */
out:
    return status;
}

ddp_status_t ddp_new_file_publish(ddp_new_file_t *file, const char *path)
{
    ddp_status_t status = DDP_OK;
    int          failed;

    path   = path != NULL ? path : file->path;
    failed = renameat2(AT_FDCWD, file->part, AT_FDCWD, path, RENAME_NOREPLACE);
    if (failed != 0 && (errno == EINVAL || errno == ENOSYS)) { /* a file system without it */
        failed = access(path, F_OK) == 0 ? (errno = EEXIST, -1) : rename(file->part, path);
    }
    if (failed != 0) {
        DDP_TRY(ddp_fail_path(path, errno, errno == EEXIST ? EXISTS_HINT : ""));
    }
    file->is_there = false;
out:
    return status;
}

void ddp_new_file_close(ddp_new_file_t **file_p)
{
    ddp_new_file_t *file = *file_p;

    if (file == NULL) {
        return;
    }
    drop(file);
    if (file->is_there) {
        (void)unlink(file->part);
    }
    free(file->part);
    free(file->path);
    free(file);
    *file_p = NULL;
}
