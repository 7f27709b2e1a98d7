/* The folder where a run would save: on a thread, since a disk that does not answer lets nobody go. */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "launcher/doctor.h"

#define PROBE_BYTES ((size_t)1 << 20)
#define PATH_SIZE   (DDP_RUN_FOLDER_SIZE + 128)
#define LOOK_NS     (100 * DDP_NS_PER_MS)
/* File systems of which the kernel's header has no number. */
#define MAGIC_LUSTRE 0x0BD00BD0
#define MAGIC_GPFS   0x47504653
#define MAGIC_BEEGFS 0x19830326
#define MAGIC_XFS    0x58465342
#define MAGIC_ZFS    0x2FC12FC1

static const struct kind {
    unsigned long magic;
    const char   *name;
    bool          is_memory, is_container;
} kinds[] = {
    {EXT4_SUPER_MAGIC, "ext4", false, false},   {MAGIC_XFS, "xfs", false, false},
    {BTRFS_SUPER_MAGIC, "btrfs", false, false}, {MAGIC_ZFS, "zfs", false, false},
    {NFS_SUPER_MAGIC, "nfs", false, false},     {MAGIC_LUSTRE, "lustre", false, false},
    {MAGIC_GPFS, "gpfs", false, false},         {MAGIC_BEEGFS, "beegfs", false, false},
    {CEPH_SUPER_MAGIC, "ceph", false, false},   {FUSE_SUPER_MAGIC, "fuse", false, false},
    {V9FS_MAGIC, "9p", false, false},           {OVERLAYFS_SUPER_MAGIC, "overlay", false, true},
    {TMPFS_MAGIC, "tmpfs", true, false},        {RAMFS_MAGIC, "ramfs", true, false},
};

typedef struct work {
    pthread_mutex_t lock;
    pthread_cond_t  ended;
    bool            is_ended, is_left; /* under the lock; who comes second frees */
    void (*body)(struct work *work);
    char               path[DDP_RUN_FOLDER_SIZE];
    char               token[DDP_FOLDER_TOKEN];
    int                limit_ms;
    ddp_folder_facts_t facts;
    bool               sees;
} work_t;

static void free_work(work_t *work)
{
    pthread_cond_destroy(&work->ended);
    pthread_mutex_destroy(&work->lock);
    free(work);
}

static void *run_work(void *work_p)
{
    work_t *work = work_p;
    bool    is_left;

    work->body(work);
    pthread_mutex_lock(&work->lock);
    work->is_ended = true;
    is_left        = work->is_left;
    pthread_cond_signal(&work->ended);
    pthread_mutex_unlock(&work->lock);
    if (is_left) {
        free_work(work);
    }
    return NULL;
}

/* Start `body`, and wait for it until the time is over. @return false: it still runs, and `work` is its own
 */
static bool do_work(work_t *work, int limit_ms)
{
    pthread_condattr_t clock;
    struct timespec    end;
    pthread_t          thread;
    bool               is_ended;
    int                code = 0;

    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&work->ended, &clock);
    pthread_condattr_destroy(&clock);
    pthread_mutex_init(&work->lock, NULL);
    if (pthread_create(&thread, NULL, run_work, work) != 0) {
        work->body(work); /* no thread: then without a deadline */
        return true;
    }
    (void)pthread_detach(thread);
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += limit_ms / 1000 + 1;
    pthread_mutex_lock(&work->lock);
    while (!work->is_ended && code != ETIMEDOUT) {
        code = pthread_cond_timedwait(&work->ended, &work->lock, &end);
    }
    is_ended      = work->is_ended;
    work->is_left = !is_ended;
    pthread_mutex_unlock(&work->lock);
    return is_ended;
}

static work_t *make_work(const char *path, const char *token, void (*body)(work_t *work))
{
    work_t *work = calloc(1, sizeof(*work));

    if (work != NULL) {
        work->body = body;
        (void)snprintf(work->path, sizeof(work->path), "%s", path);
        (void)snprintf(work->token, sizeof(work->token), "%s", token);
    }
    return work;
}

/* What is there of a path: "a/b" of "a/b/c" if there is no c; "." */
static void find_parent(char *path)
{
    struct stat info;

    while (stat(path, &info) != 0 && errno == ENOENT) {
        char *slash = strrchr(path, '/');

        if (slash == NULL) {
            (void)snprintf(path, 2, ".");
        } else {
            slash[slash == path ? 1 : 0] = '\0';
        }
    }
}

static bool describe(work_t *work)
{
    struct stat    info;
    struct statfs  type;
    struct statvfs space;

    if (stat(work->path, &info) != 0 || statfs(work->path, &type) != 0 || statvfs(work->path, &space) != 0) {
        (void)snprintf(work->facts.error, sizeof(work->facts.error), "%s", ddp_errno_text(errno));
        return false;
    }
    if (!S_ISDIR(info.st_mode)) {
        (void)snprintf(work->facts.error, sizeof(work->facts.error), "is no folder");
        return false;
    }
    (void)snprintf(work->facts.type, sizeof(work->facts.type), "type %lx", (unsigned long)type.f_type);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (kinds[i].magic == (unsigned long)type.f_type) {
            (void)snprintf(work->facts.type, sizeof(work->facts.type), "%s", kinds[i].name);
            work->facts.is_memory    = kinds[i].is_memory ? 1 : 0;
            work->facts.is_container = kinds[i].is_container ? 1 : 0;
        }
    }
    work->facts.free_bytes = (int64_t)space.f_bavail * (int64_t)space.f_frsize;
    work->facts.free_files = space.f_files > 0 ? (int64_t)space.f_favail : -1; /* some do not count them */
    return true;
}

/* As a checkpoint is written: data, sync, name, sync of the folder. @return false, errno set */
static bool write_file(work_t *work, int file, const char *path, const char *final_path)
{
    const int64_t start  = ddp_clock_ns();
    const int     folder = open(work->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    void         *block  = malloc(PROBE_BYTES);
    size_t        used   = 0;
    bool          is_ok  = folder >= 0 && block != NULL;
    int           error;

    if (block != NULL) {
        memset(block, 0x5a, PROBE_BYTES); /* no zeros, which some file systems do not store */
    }
    while (is_ok && used < PROBE_BYTES) {
        const ssize_t n = write(file, block, PROBE_BYTES - used);

        is_ok = n > 0 || (n < 0 && errno == EINTR);
        used += n > 0 ? (size_t)n : 0;
    }
    is_ok =
        is_ok && fsync(file) == 0 && rename(path, final_path) == 0 && (fsync(folder) == 0 || errno == EINVAL);
    error               = errno;
    work->facts.sync_ms = (double)(ddp_clock_ns() - start) / (double)DDP_NS_PER_MS;
    if (folder >= 0) {
        (void)close(folder);
    }
    free(block);
    errno = error;
    return is_ok;
}

static void try_folder(work_t *work)
{
    char path[PATH_SIZE];
    char final_path[PATH_SIZE];
    int  file;

    find_parent(work->path);
    if (!describe(work)) {
        return;
    }
    (void)snprintf(path, sizeof(path), "%s/.ddptrain-doctor-XXXXXX", work->path);
    file = mkostemp(path, O_CLOEXEC);
    if (file < 0) {
        (void)snprintf(work->facts.error, sizeof(work->facts.error), "cannot be written: %s",
                       ddp_errno_text(errno));
        return;
    }
    (void)snprintf(work->token, sizeof(work->token), "%.40s-named", strrchr(path, '/') + 1);
    (void)snprintf(final_path, sizeof(final_path), "%s/%s", work->path, work->token);
    if (!write_file(work, file, path, final_path)) {
        (void)snprintf(work->facts.error, sizeof(work->facts.error), "1 MiB could not be saved: %s",
                       ddp_errno_text(errno));
        (void)unlink(path);
        (void)unlink(final_path);
        work->token[0] = '\0';
    }
    (void)close(file);
}

bool ddp_folder_try(const char *path, int limit_ms, ddp_folder_facts_t *facts, char token[DDP_FOLDER_TOKEN])
{
    work_t *work = make_work(path, "", try_folder);

    *facts   = (ddp_folder_facts_t){.free_files = -1};
    token[0] = '\0';
    if (work == NULL) {
        (void)snprintf(facts->error, sizeof(facts->error), "no memory to try it");
        return true;
    }
    if (!do_work(work, limit_ms)) {
        (void)snprintf(facts->error, sizeof(facts->error), "does not answer for %g s", limit_ms / 1e3);
        return false;
    }
    *facts = work->facts;
    (void)snprintf(token, DDP_FOLDER_TOKEN, "%s", work->token);
    free_work(work);
    return true;
}

/* Caches of network file systems may not know of a new file for some time. */
static void look_for(work_t *work)
{
    const int64_t         end = ddp_clock_ns() + work->limit_ms * DDP_NS_PER_MS;
    const struct timespec nap = {0, LOOK_NS};
    char                  path[PATH_SIZE];

    find_parent(work->path);
    (void)snprintf(path, sizeof(path), "%s/%s", work->path, work->token);
    for (;;) {
        work->sees = access(path, F_OK) == 0;
        if (work->sees || ddp_clock_ns() > end) {
            return;
        }
        (void)nanosleep(&nap, NULL);
    }
}

bool ddp_folder_sees(const char *path, const char *token, int limit_ms, bool *sees_p)
{
    work_t *work = make_work(path, token, look_for);

    *sees_p = false;
    if (work == NULL) {
        return true;
    }
    work->limit_ms = limit_ms;
    if (!do_work(work, 2 * limit_ms)) {
        return false;
    }
    *sees_p = work->sees;
    free_work(work);
    return true;
}

void ddp_folder_forget(const char *path, const char *token)
{
    char parent[DDP_RUN_FOLDER_SIZE];
    char file[PATH_SIZE];

    (void)snprintf(parent, sizeof(parent), "%s", path);
    find_parent(parent);
    (void)snprintf(file, sizeof(file), "%s/%s", parent, token);
    if (token[0] != '\0') {
        (void)unlink(file);
    }
}
