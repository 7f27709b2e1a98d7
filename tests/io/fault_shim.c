/* LD_PRELOAD library: counts the calls of a process that change files below a folder, and lets one of them
 * fail. Its environment:
 * SHIM_UNDER - part of the path of those files;
 * SHIM_AT - the call, from 1; 0: only count;
 * SHIM_DO - a number: that errno; short: half is written; kill, torn, after: SIGKILL before it, after half of
 * it, after it; slow: it takes 3 s; hang: it never returns; limit: from now on no file gets longer than 100
 * kB; SHIM_RANK - of the process, under mpirun; not set: any; SHIM_LOG - gets a line for each call: number,
 * rank, what, path. Close is counted, and fails like the others, but always closes. */
#undef _FORTIFY_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define MOST_FILES  1024
#define LIMIT_BYTES 100000

typedef enum fault { GO_ON, FAIL, SHORT, TORN, AFTER } fault_t;

typedef int     open_fn_t(const char *, int, ...);
typedef int     close_fn_t(int);
typedef ssize_t pwrite_fn_t(int, const void *, size_t, off_t);
typedef int     fallocate_fn_t(int, int, off_t, off_t);
typedef int     pair_fn_t(const char *, const char *);
typedef int     path_fn_t(const char *);

static atomic_int count;
/* Path of each open file that is watched; written by the thread that opens it, before anybody uses it. */
static char *files[MOST_FILES];

/* The next library's function of this name. A pointer to an object is one to a function on POSIX. */
#define REAL(type, name)                                                                                     \
    type *real              = NULL;                                                                          \
    *(void **)(void *)&real = dlsym(RTLD_NEXT, name)

static bool is_watched(const char *path)
{
    const char *under = getenv("SHIM_UNDER");

    return under != NULL && path != NULL && strstr(path, under) != NULL;
}

static bool is_this_rank(void)
{
    const char *wanted = getenv("SHIM_RANK");
    const char *rank   = getenv("OMPI_COMM_WORLD_RANK");

    return wanted == NULL || (rank != NULL && strcmp(wanted, rank) == 0);
}

static void note(int number, const char *what, const char *path)
{
    const char *log  = getenv("SHIM_LOG");
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    const char *name = strrchr(path, '/');
    char        line[256];
    int         length;
    int         fd;
    REAL(open_fn_t, "open");

    if (log == NULL) {
        return;
    }
    length = snprintf(line, sizeof(line), "%d %s %s %s\n", number, rank != NULL ? rank : "0", what,
                      name != NULL ? name + 1 : path);
    fd     = real(log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (fd >= 0) {
        if (write(fd, line, (size_t)length) != length) {
            abort();
        }
        syscall(3 /* close */, fd);
    }
}

static void die(void)
{
    (void)raise(SIGKILL);
}

static void limit_files(void)
{
    const struct rlimit limit = {LIMIT_BYTES, LIMIT_BYTES};

    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) {
        abort();
    }
}

/* Count the call; what shall become of it? errno is set where it shall fail. */
static fault_t meet(const char *what, const char *path)
{
    const int   number = atomic_fetch_add(&count, 1) + 1;
    const char *at     = getenv("SHIM_AT");
    const char *how    = getenv("SHIM_DO");

    note(number, what, path);
    if (at == NULL || how == NULL || atoi(at) != number || !is_this_rank()) {
        return GO_ON;
    }
    if (strcmp(how, "kill") == 0) {
        die();
    }
    while (strcmp(how, "hang") == 0) {
        (void)pause();
    }
    if (strcmp(how, "limit") == 0) {
        limit_files();
        return GO_ON;
    }
    if (strcmp(how, "slow") == 0) {
        sleep(3);
        return GO_ON;
    }
    if (how[0] < '0' || how[0] > '9') {
        return strcmp(how, "short") == 0 ? SHORT : strcmp(how, "torn") == 0 ? TORN : AFTER;
    }
    errno = atoi(how);
    return FAIL;
}

static void end(fault_t fault)
{
    if (fault == TORN || fault == AFTER) {
        die();
    }
}

int open(const char *path, int flags, ...)
{
    va_list arguments;
    mode_t  mode = 0;
    fault_t fault;
    int     fd;
    REAL(open_fn_t, "open");

    if ((flags & O_CREAT) != 0) {
        va_start(arguments, flags);
        mode = va_arg(arguments, mode_t);
        va_end(arguments);
    }
    if (!is_watched(path)) {
        return real(path, flags, mode);
    }
    fault = meet("open", path);
    fd    = fault == FAIL ? -1 : real(path, flags, mode);
    if (fd >= 0 && fd < MOST_FILES) {
        files[fd] = strdup(path);
    }
    end(fault);
    return fd;
}

static const char *file_of(int fd)
{
    return fd >= 0 && fd < MOST_FILES ? files[fd] : NULL;
}

ssize_t pwrite(int fd, const void *bytes, size_t n, off_t at)
{
    fault_t fault;
    ssize_t done;
    REAL(pwrite_fn_t, "pwrite");

    if (file_of(fd) == NULL) {
        return real(fd, bytes, n, at);
    }
    fault = meet("pwrite", file_of(fd));
    done  = fault == FAIL ? -1 : real(fd, bytes, fault == SHORT || fault == TORN ? (n + 1) / 2 : n, at);
    end(fault);
    return done;
}

int fallocate(int fd, int mode, off_t at, off_t n)
{
    fault_t fault;
    int     failed;
    REAL(fallocate_fn_t, "fallocate");

    if (file_of(fd) == NULL) {
        return real(fd, mode, at, n);
    }
    fault  = meet("fallocate", file_of(fd));
    failed = fault == FAIL ? -1 : real(fd, mode, at, n);
    end(fault);
    return failed;
}

int fsync(int fd)
{
    fault_t fault;
    int     failed;
    REAL(close_fn_t, "fsync");

    if (file_of(fd) == NULL) {
        return real(fd);
    }
    fault  = meet("fsync", file_of(fd));
    failed = fault == FAIL ? -1 : real(fd);
    end(fault);
    return failed;
}

int close(int fd)
{
    char   *path = fd >= 0 && fd < MOST_FILES ? files[fd] : NULL;
    fault_t fault;
    int     error;
    int     failed;
    REAL(close_fn_t, "close");

    if (path == NULL) {
        return real(fd);
    }
    fault     = meet("close", path);
    error     = errno;
    files[fd] = NULL; /* before the number is free for another thread */
    free(path);
    failed = real(fd);
    end(fault);
    if (fault == FAIL) {
        errno = error;
        return -1;
    }
    return failed;
}

int rename(const char *from, const char *to)
{
    fault_t fault;
    int     failed;
    REAL(pair_fn_t, "rename");

    if (!is_watched(from) && !is_watched(to)) {
        return real(from, to);
    }
    fault  = meet("rename", from);
    failed = fault == FAIL ? -1 : real(from, to);
    end(fault);
    return failed;
}

int symlink(const char *target, const char *path)
{
    fault_t fault;
    int     failed;
    REAL(pair_fn_t, "symlink");

    if (!is_watched(path)) {
        return real(target, path);
    }
    fault  = meet("symlink", path);
    failed = fault == FAIL ? -1 : real(target, path);
    end(fault);
    return failed;
}

int unlink(const char *path)
{
    fault_t fault;
    int     failed;
    REAL(path_fn_t, "unlink");

    if (!is_watched(path)) {
        return real(path);
    }
    fault  = meet("unlink", path);
    failed = fault == FAIL ? -1 : real(path);
    end(fault);
    return failed;
}
