/* HDF5 files of others. libhdf5 1.10 can be made to crash, to hang or to write where it should not by a file
 * made for that; so a child process with limits parses it and tells names, types, shapes and places. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fault.h"
#include "io/foreign_internal.h"

#define DEADLINE_S   20
#define CPU_S        10
#define MEMORY_BYTES ((rlim_t)512 << 20)

static void limit(enum __rlimit_resource what, rlim_t most)
{
    const struct rlimit both = {most, most};

    (void)setrlimit(what, &both); /* a limit that is lower already stays */
}

/* Bytes of address space that the process has now. */
static rlim_t address_space(void)
{
    FILE              *file  = fopen("/proc/self/statm", "re");
    unsigned long long pages = 0;

    if (file != NULL) {
        if (fscanf(file, "%20llu", &pages) != 1) {
            pages = 0;
        }
        (void)fclose(file);
    }
    return (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE);
}

/* The child: no file can be written, what it prints is not seen, and it ends with its parent. */
static void run_child(const char *path, int fd)
{
    const int nothing = open("/dev/null", O_RDWR);

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)dup2(nothing, STDOUT_FILENO);
    (void)dup2(nothing, STDERR_FILENO);
    limit(RLIMIT_CORE, 0);
    limit(RLIMIT_FSIZE, 0);
    limit(RLIMIT_CPU, CPU_S);
    limit(RLIMIT_AS, address_space() + MEMORY_BYTES);
    if (ddp_fault("foreign_dies", 0) != DDP_OK) {
        (void)raise(SIGSEGV);
    }
    if (ddp_fault("foreign_hangs", 0) != DDP_OK) {
        (void)pause();
    }
    ddp_foreign_list(path, fd);
    _exit(0);
}

/* One record whole. @param [out] is_end_p  the child closed the pipe, or died */
static ddp_status_t get_record(const ddp_weights_t *w, int fd, int64_t deadline_ns,
                               ddp_foreign_record_t *record, bool *is_end_p)
{
    ddp_status_t  status = DDP_OK;
    size_t        have   = 0;
    struct pollfd ready  = {fd, POLLIN, 0};

    *is_end_p = false;
    while (have < sizeof(*record) && !*is_end_p) {
        const int64_t left_ms = (deadline_ns - ddp_clock_ns()) / 1000000;
        ssize_t       n;

        DDP_REQUIRE(left_ms > 0, DDP_ERR_FORMAT,
                    "'%s': damaged or hostile: HDF5 is not through with it after %d s", w->path, DEADLINE_S);
        if (poll(&ready, 1, (int)left_ms) <= 0) {
            continue;
        }
        n = read(fd, (char *)record + have, sizeof(*record) - have);
        DDP_REQUIRE(n >= 0 || errno == EINTR, DDP_ERR_SYSTEM, "'%s': reading a pipe: %s", w->path,
                    strerror(errno));
        have += n > 0 ? (size_t)n : 0;
        *is_end_p = n == 0;
    }
out:
    return status;
}

static ddp_status_t take_tensor(ddp_weights_t *w, const ddp_foreign_record_t *record)
{
    ddp_status_t status = DDP_OK;

    DDP_REQUIRE(record->type <= DDP_WEIGHTS_OTHER && record->ndim <= DDP_MAX_DIMS &&
                    w->n < DDP_FOREIGN_TENSORS,
                DDP_ERR_FORMAT, "'%s': damaged or hostile", w->path);
    DDP_REQUIRE(record->at <= w->bytes && record->bytes <= w->bytes - record->at, DDP_ERR_FORMAT,
                "'%s': '%s' reaches beyond the end of the file", w->path, record->text);
    DDP_TRY(ddp_weights_add(w, record->text, (ddp_weights_type_t)record->type, record->shape, record->ndim,
                            record->bytes, 1, record->at));
out:
    return status;
}

/* @param [out] is_told_p  the child came to an end by itself */
static ddp_status_t take_records(ddp_weights_t *w, int fd, bool *is_told_p)
{
    ddp_status_t         status   = DDP_OK;
    const int64_t        deadline = ddp_clock_ns() + (int64_t)DEADLINE_S * 1000000000;
    ddp_foreign_record_t record;
    bool                 is_end = false;

    *is_told_p = false;
    for (;;) {
        DDP_TRY(get_record(w, fd, deadline, &record, &is_end));
        if (is_end || record.what == DDP_FOREIGN_END) {
            *is_told_p = !is_end;
            goto out;
        }
        record.text[sizeof(record.text) - 1] = '\0';
        DDP_REQUIRE(record.what == DDP_FOREIGN_TENSOR, DDP_ERR_FORMAT, "%s", record.text);
        DDP_TRY(take_tensor(w, &record));
    }
out:
    return status;
}

static ddp_status_t tell_death(const ddp_weights_t *w, int how)
{
    if (WIFSIGNALED(how)) {
        return ddp_fail(DDP_ERR_FORMAT,
                        "'%s': damaged or hostile: the process that parsed it was ended by signal %d (%s)",
                        w->path, WTERMSIG(how), strsignal(WTERMSIG(how)));
    }
    return ddp_fail(DDP_ERR_FORMAT, "'%s': damaged or hostile: the process that parsed it broke off",
                    w->path);
}

ddp_status_t ddp_foreign_read(ddp_weights_t *weights)
{
    ddp_status_t status  = DDP_OK;
    int          pipes[] = {-1, -1};
    bool         is_told = false;
    int          how     = 0;
    pid_t        child   = -1;

    DDP_REQUIRE(pipe2(pipes, O_CLOEXEC) == 0, DDP_ERR_SYSTEM, "'%s': no pipe: %s", weights->path,
                strerror(errno));
    child = fork();
    DDP_REQUIRE(child >= 0, DDP_ERR_SYSTEM, "'%s': no process to parse it: %s", weights->path,
                strerror(errno));
    if (child == 0) {
        (void)close(pipes[0]);
        run_child(weights->path, pipes[1]);
    }
    (void)close(pipes[1]);
    pipes[1] = -1;
    status   = take_records(weights, pipes[0], &is_told);
    if (status != DDP_OK || is_told) {
        (void)kill(child, SIGKILL); /* it may hang; nothing more is wanted of it */
    }
    while (waitpid(child, &how, 0) < 0 && errno == EINTR) {
    }
    if (status == DDP_OK && !is_told) {
        DDP_TRY(tell_death(weights, how));
    }
out:
    for (int i = 0; i < 2; i++) {
        if (pipes[i] >= 0) {
            (void)close(pipes[i]);
        }
    }
    return status;
}
