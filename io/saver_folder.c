/* A folder of checkpoints: temporary files, the commit, the links, and which files stay. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "io/file_internal.h"
#include "io/saver_internal.h"

#define FOLDER_MODE 0777
#define FILE_MODE   0666
#define MEGABYTE    1e6

static bool is_temporary(const char *name)
{
    static const char *const begins[] = {".ckpt-", ".latest.", ".best."};
    bool                     is_ours  = false;

    for (size_t i = 0; i < sizeof(begins) / sizeof(begins[0]); i++) {
        is_ours = is_ours || strncmp(name, begins[i], strlen(begins[i])) == 0;
    }
    return is_ours && strstr(name, ".h5.tmp-") != NULL;
}

/* What a killed run left. That it stays if it cannot be removed is no reason not to train. */
static void remove_temporary(const char *folder)
{
    DIR                 *open = opendir(folder);
    const struct dirent *entry;

    while (open != NULL && (entry = readdir(open)) != NULL) {
        if (is_temporary(entry->d_name)) {
            (void)unlinkat(dirfd(open), entry->d_name, 0);
        }
    }
    if (open != NULL) {
        (void)closedir(open);
    }
}

/* Space for the whole file before its first byte, where the file system can do that. */
static ddp_status_t reserve(const char *folder, int fd, uint64_t bytes)
{
    int error;

    do {
        error = fallocate(fd, 0, 0, (off_t)bytes) == 0 ? 0 : errno;
    } while (error == EINTR);
    if (error == 0 || error == EOPNOTSUPP || error == ENOSYS) {
        return DDP_OK;
    }
    ddp_ignore(ddp_fail_path(folder, error, ""), "returned below");
    ddp_error_prefix("no room for a checkpoint of %.1f MB", (double)bytes / MEGABYTE);
    return DDP_ERR_IO;
}

ddp_status_t ddp_saver_file_create(const char *folder, uint64_t step, uint64_t bytes, ddp_save_writer_t *me,
                                   char *path, int *fd_p)
{
    ddp_status_t status = DDP_OK;
    int          fd     = -1;
    char         name[DDP_CHECKPOINT_NAME_SIZE];
    char         full[DDP_SAVER_PATH_SIZE];
    int          length;

    ddp_checkpoint_name(step, name);
    length = snprintf(full, sizeof(full), "%s/.%s.tmp-%ld", folder, name, (long)getpid());
    DDP_REQUIRE(length >= 0 && (size_t)length < sizeof(full), DDP_ERR_IO, "'%s': path too long", folder);
    ddp_saver_stage(me, DDP_SAVE_UNLINK);
    (void)unlink(full); /* of a save of this process that failed */
    ddp_saver_stage(me, DDP_SAVE_OPEN);
    fd = open(full, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, FILE_MODE);
    if (fd < 0) {
        DDP_TRY(ddp_fail_path(full, errno, ""));
    }
    ddp_saver_stage(me, DDP_SAVE_FALLOCATE);
    status = reserve(folder, fd, bytes);
    if (status != DDP_OK) {
        ddp_saver_stage(me, DDP_SAVE_UNLINK);
        (void)unlink(full);
        goto out;
    }
    memcpy(path, full, (size_t)length + 1);
    *fd_p = fd;
    fd    = -1;
out:
    if (fd >= 0) {
        (void)close(fd);
    }
    return status;
}

ddp_status_t ddp_saver_folder_prepare(const char *folder, uint64_t bytes, ddp_save_writer_t *me)
{
    ddp_status_t status = DDP_OK;
    char         path[DDP_SAVER_PATH_SIZE];
    int          fd = -1;

    ddp_saver_stage(me, DDP_SAVE_MKDIR);
    if (mkdir(folder, FOLDER_MODE) == 0) {
        ddp_saver_stage(me, DDP_SAVE_FSYNC_FOLDER);
        snprintf(path, sizeof(path), "%s/..", folder); /* its name there is worth what the files are */
        DDP_TRY(ddp_folder_sync(path));
    } else if (errno != EEXIST) {
        DDP_TRY(ddp_fail_path(folder, errno, ""));
    }
    ddp_saver_stage(me, DDP_SAVE_TIDY);
    remove_temporary(folder);
    DDP_TRY(ddp_saver_file_create(folder, 0, bytes, me, path, &fd));
    ddp_saver_stage(me, DDP_SAVE_CLOSE);
    (void)close(fd);
    ddp_saver_stage(me, DDP_SAVE_UNLINK);
    if (unlink(path) != 0) {
        DDP_TRY(ddp_fail_path(path, errno, ""));
    }
out:
    return status;
}

ddp_status_t ddp_saver_file_commit(const char *folder, uint64_t step, const char *path, int fd,
                                   ddp_save_writer_t *me, char *name)
{
    ddp_status_t status = DDP_OK;
    char         base[DDP_CHECKPOINT_NAME_SIZE];

    ddp_checkpoint_name(step, base);
    snprintf(name, DDP_SAVER_PATH_SIZE, "%s/%s", folder, base); /* shorter than the temporary one */
    ddp_saver_stage(me, DDP_SAVE_FSYNC);
    if (fsync(fd) != 0) { /* what was not written is lost now: a second fsync would find nothing to do */
        const int error = errno;

        (void)close(fd);
        DDP_TRY(ddp_fail_path(path, error, ""));
    }
    ddp_saver_stage(me, DDP_SAVE_CLOSE);
    if (close(fd) != 0) { /* where NFS tells of a quota */
        DDP_TRY(ddp_fail_path(path, errno, ""));
    }
    ddp_saver_stage(me, DDP_SAVE_RENAME);
    if (rename(path, name) != 0) {
        DDP_TRY(ddp_fail_path(name, errno, ""));
    }
    ddp_saver_stage(me, DDP_SAVE_FSYNC_FOLDER);
    DDP_TRY(ddp_folder_sync(folder));
out:
    return status;
}

/* Let `link` of the folder mean `target`, at once. */
static void point(const char *folder, const char *link, const char *target)
{
    char draft[DDP_SAVER_PATH_SIZE + 64];
    char path[DDP_SAVER_PATH_SIZE + 64];

    snprintf(draft, sizeof(draft), "%s/.%s.tmp-%ld", folder, link, (long)getpid());
    snprintf(path, sizeof(path), "%s/%s", folder, link);
    (void)unlink(draft);
    if (symlink(target, draft) != 0 || rename(draft, path) != 0) {
        ddp_log(DDP_LOG_WARN, "'%s' does not lead to %s: %s", path, target, ddp_errno_text(errno));
        (void)unlink(draft);
    }
}

/* Is this the file that best.h5 leads to? */
static bool is_best_name(const char *folder, const char *name)
{
    char          link[DDP_SAVER_PATH_SIZE + 64];
    char          target[DDP_CHECKPOINT_NAME_SIZE + 1];
    const ssize_t length =
        (snprintf(link, sizeof(link), "%s/best.h5", folder), readlink(link, target, sizeof(target) - 1));

    if (length < 0) {
        return false;
    }
    target[length] = '\0';
    return strcmp(target, name) == 0;
}

/* Only what is older than the one that was just committed goes. */
static void remove_old(const char *folder, uint64_t step, size_t keep)
{
    uint64_t *steps = NULL;
    size_t    n     = 0;
    size_t    kept  = 0;

    if (ddp_checkpoint_list(folder, &steps, &n) != DDP_OK) {
        ddp_log(DDP_LOG_WARN, "old checkpoints stay: %s", ddp_error_line());
        return;
    }
    for (size_t i = 0; i < n; i++) {
        char name[DDP_CHECKPOINT_NAME_SIZE];
        char path[DDP_SAVER_PATH_SIZE + 64];

        ddp_checkpoint_name(steps[i], name);
        if (steps[i] > step || ++kept <= keep || is_best_name(folder, name)) {
            continue;
        }
        snprintf(path, sizeof(path), "%s/%s", folder, name);
        if (unlink(path) != 0) {
            ddp_log(DDP_LOG_WARN, "'%s' stays: %s", path, ddp_errno_text(errno));
        }
    }
    free(steps);
}

void ddp_saver_folder_tidy(const char *folder, uint64_t step, bool is_best, size_t keep)
{
    char name[DDP_CHECKPOINT_NAME_SIZE];

    ddp_checkpoint_name(step, name);
    point(folder, "latest.h5", name);
    if (is_best) {
        point(folder, "best.h5", name);
    }
    remove_old(folder, step, keep);
}
