#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/call.h"
#include "base/error.h"
#include "io/file_internal.h"
#include "io/metrics.h"

#define PATH_SIZE   4096
#define MOST_RUNS   100000 /* folders of one name; more is a loop gone wrong */
#define MOST_HOLES  100    /* removed folders in a row that are looked past */
#define FOLDER_MODE 0777   /* less the umask */
#define FILE_NAME   64     /* "/metrics.jsonl" and its like, and the number of a folder */

static ddp_status_t copy_path(const char *path, char *copy, size_t copy_size)
{
    ddp_status_t status = DDP_OK;
    size_t       length = strlen(path);

    DDP_REQUIRE(length > 0, DDP_ERR_IO, "'': a run's folder needs a name; give one with --out");
    DDP_REQUIRE(length < copy_size, DDP_ERR_IO, "'%s': path too long", path);
    memcpy(copy, path, length + 1);
    while (length > 1 && copy[length - 1] == '/') {
        copy[--length] = '\0';
    }
out:
    return status;
}

/* Make every folder above the last name of `path`. */
static ddp_status_t make_parents(const char *path)
{
    ddp_status_t status = DDP_OK;
    char         parent[PATH_SIZE];
    struct stat  st;

    DDP_TRY(copy_path(path, parent, sizeof(parent)));
    for (char *slash = strchr(parent + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(parent, FOLDER_MODE) != 0) {
            const int error = errno;

            /* some file systems answer EROFS or EACCES for what exists */
            if (stat(parent, &st) != 0) {
                DDP_TRY(ddp_fail_path(parent, error, "; choose another folder with --out"));
            }
            DDP_REQUIRE(S_ISDIR(st.st_mode), DDP_ERR_IO, "'%s': a file, where a folder is needed for '%s'",
                        parent, path);
        }
        *slash = '/';
    }
out:
    return status;
}

/* An existing folder that the user asked for: empty and writable, or an error. */
static ddp_status_t check_empty(const char *path)
{
    ddp_status_t   status = DDP_OK;
    DIR           *dir    = NULL;
    struct dirent *entry;
    struct stat    st;

    DDP_REQUIRE(stat(path, &st) != 0 || S_ISDIR(st.st_mode), DDP_ERR_IO,
                "'%s': a file, not a folder; choose another --out", path);
    dir = opendir(path);
    if (dir == NULL) {
        DDP_TRY(ddp_fail_path(path, errno, "; choose another --out"));
    }
    while ((entry = readdir(dir)) != NULL) {
        DDP_REQUIRE(strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0, DDP_ERR_IO,
                    "'%s': exists and is not empty; a run is never written over: choose another --out", path);
    }
    if (faccessat(AT_FDCWD, path, W_OK | X_OK, AT_EACCESS) != 0) {
        DDP_TRY(ddp_fail_path(path, errno, "; choose another --out"));
    }
out:
    if (dir != NULL) {
        (void)closedir(dir);
    }
    return status;
}

/* The first name of base, base-2, base-3 ... that is free; mkdir(2) decides, so that of two runs started at
 * once each gets its own. */
static ddp_status_t make_numbered(const char *base, char *folder, size_t folder_size)
{
    ddp_status_t status = DDP_OK;

    for (int number = 1; number <= MOST_RUNS; number++) {
        int length = number == 1 ? snprintf(folder, folder_size, "%s", base)
                                 : snprintf(folder, folder_size, "%s-%d", base, number);

        DDP_REQUIRE(length >= 0 && (size_t)length < folder_size, DDP_ERR_IO, "'%s': path too long", base);
        if (mkdir(folder, FOLDER_MODE) == 0) {
            goto out;
        }
        if (errno != EEXIST) {
            DDP_TRY(ddp_fail_path(folder, errno, "; choose another folder with --out"));
        }
    }
    status = ddp_fail(DDP_ERR_IO, "'%s' and its numbers up to %d are taken; choose another folder with --out",
                      base, MOST_RUNS);
out:
    return status;
}

ddp_status_t ddp_run_folder_create(const char *path, const char *base, char *folder, size_t folder_size)
{
    ddp_status_t status = DDP_OK;
    char         wanted[PATH_SIZE - FILE_NAME]; /* known before a folder is made */

    DDP_TRY(copy_path(path != NULL ? path : base, wanted, sizeof(wanted)));
    DDP_TRY(make_parents(wanted));
    if (path == NULL) {
        DDP_TRY(make_numbered(wanted, folder, folder_size));
        goto out;
    }
    DDP_REQUIRE(strlen(wanted) < folder_size, DDP_ERR_IO, "'%s': path too long", path);
    if (mkdir(wanted, FOLDER_MODE) != 0) {
        if (errno != EEXIST) {
            DDP_TRY(ddp_fail_path(wanted, errno, "; choose another --out"));
        }
        DDP_TRY(check_empty(wanted));
    }
    memcpy(folder, wanted, strlen(wanted) + 1);
out:
    return status;
}

bool ddp_run_folder_exists(const char *path)
{
    DIR *dir   = opendir(path);
    int  names = 0;

    while (dir != NULL && names <= 2 && readdir(dir) != NULL) { /* "." and ".." are always there */
        names++;
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
    return names > 2;
}

void ddp_run_folder_newest(const char *base, ddp_run_folder_fn_t *wanted, void *ctx, char *folder,
                           size_t folder_size)
{
    int number = 1;

    /* numbers are given in order, and a hole means that somebody removed one */
    for (int missing = 0, next = 1; missing < MOST_HOLES; next++) {
        struct stat st;
        int         length = next == 1 ? snprintf(folder, folder_size, "%s", base)
                                       : snprintf(folder, folder_size, "%s-%d", base, next);

        if (length < 0 || (size_t)length >= folder_size) {
            break;
        }
        missing = stat(folder, &st) == 0 ? 0 : missing + 1;
        number  = missing == 0 ? next : number;
    }
    for (; number >= 1; number--) {
        int length = number == 1 ? snprintf(folder, folder_size, "%s", base)
                                 : snprintf(folder, folder_size, "%s-%d", base, number);

        if (length > 0 && (size_t)length < folder_size && ddp_run_folder_exists(folder) &&
            wanted(ctx, folder)) {
            return;
        }
    }
    folder[0] = '\0';
}

ddp_status_t ddp_run_folder_lock(const char *folder, int *fd_p)
{
    ddp_status_t status = DDP_OK;
    char         path[PATH_SIZE];
    int          fd     = -1;
    const int    length = snprintf(path, sizeof(path), "%s/.lock", folder);

    DDP_REQUIRE(length > 0 && (size_t)length < sizeof(path), DDP_ERR_IO, "'%s': path too long", folder);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) {
        DDP_TRY(ddp_fail_path(path, errno, ""));
    }
    /* a file system without locks does not keep a single run from training */
    DDP_REQUIRE(flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK, DDP_ERR_STATE,
                "'%s': another run is training in this folder", folder);
    *fd_p = fd;
    fd    = -1;
out:
    if (fd >= 0) {
        (void)close(fd);
    }
    return status;
}

static ddp_status_t write_all(int fd, const char *path, const char *text)
{
    size_t left = strlen(text);

    while (left > 0) {
        const ssize_t written = write(fd, text, left);

        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written < 0) {
            return ddp_fail_path(path, errno, "");
        }
        text += written;
        left -= (size_t)written;
    }
    return DDP_OK;
}

ddp_status_t ddp_file_write(const char *folder, const char *name, const char *text)
{
    ddp_status_t status  = DDP_OK;
    int          fd      = -1;
    bool         is_made = false;
    char         path[PATH_SIZE];
    char         draft[PATH_SIZE];
    int          length = snprintf(draft, sizeof(draft), "%s/.%s.tmp", folder, name);

    DDP_REQUIRE(length >= 0 && (size_t)length < sizeof(draft), DDP_ERR_IO, "'%s': path too long", folder);
    snprintf(path, sizeof(path), "%s/%s", folder, name); /* shorter than the draft's */
    fd = open(draft, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) {
        DDP_TRY(ddp_fail_path(path, errno, ""));
    }
    is_made = true;
    DDP_TRY(write_all(fd, path, text));
    if (fsync(fd) != 0) {
        DDP_TRY(ddp_fail_path(path, errno, ""));
    }
    if (close(fd) != 0) {
        fd = -1;
        DDP_TRY(ddp_fail_path(path, errno, ""));
    }
    fd = -1;
    if (rename(draft, path) != 0) {
        DDP_TRY(ddp_fail_path(path, errno, ""));
    }
    is_made = false;
    DDP_TRY(ddp_folder_sync(folder));
out:
    if (fd >= 0) {
        (void)close(fd);
    }
    if (is_made) {
        (void)unlink(draft);
    }
    return status;
}

/* Into what is there: a device, a pipe, what a symbolic link leads to. A rename would put a file in its
 * place. */
static ddp_status_t write_into(const char *path, const char *text)
{
    ddp_status_t status = DDP_OK;
    int          fd     = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);

    if (fd < 0) {
        DDP_TRY(ddp_fail_path(path, errno, ""));
    }
    DDP_TRY(write_all(fd, path, text));
    if (fsync(fd) != 0 && errno != EINVAL && errno != EROFS) { /* those keep nothing */
        DDP_TRY(ddp_fail_path(path, errno, ""));
    }
out:
    if (fd >= 0) {
        (void)close(fd);
    }
    return status;
}

ddp_status_t ddp_file_write_path(const char *path, const char *text)
{
    ddp_status_t status = DDP_OK;
    const char  *slash  = strrchr(path, '/');
    char         folder[PATH_SIZE];
    struct stat  there;

    if (lstat(path, &there) == 0 && !S_ISREG(there.st_mode)) {
        return write_into(path, text);
    }
    DDP_REQUIRE(strlen(path) < sizeof(folder), DDP_ERR_IO, "'%.80s...': path too long", path);
    (void)snprintf(folder, sizeof(folder), "%.*s", slash != NULL ? (int)(slash - path) + 1 : 1,
                   slash != NULL ? path : ".");
    DDP_TRY(ddp_file_write(folder, slash != NULL ? slash + 1 : path, text));
out:
    return status;
}
