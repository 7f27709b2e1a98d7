/* HDF5 files of others. libhdf5 1.10 can be made to crash, to hang or to write where it should not by a file
 * made for that; so another process parses it, this program started anew or one that is named, and tells
 * names, types, shapes and places, and the numbers that are packed. Nothing of it is believed. */
#include "io/foreign_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/progressed.h"
#include "io/npz_internal.h"

#define NS_PER_S    INT64_C(1000000000)
#define LOOK_NS     (NS_PER_S / 20) /* the longest wait at a time */
#define WAIT_PER_S  10000000        /* bytes */
#define CPU_PER_S   20000000        /* bytes */
#define NOT_RUNNING ((pid_t)-1)
#define NONSENSE    "'%s': damaged or hostile: the process that parsed it tells nonsense"

extern char **environ;

struct ddp_foreign {
    char     reader[DDP_SOURCE_PATH_SIZE];
    int      timeout_s;
    uint64_t packed; /* bytes of all packed tensors */

    pid_t    child; /* NOT_RUNNING, or to be waited for */
    int      fd;    /* owned; -1: none */
    int64_t  left_ns;
    bool     is_sending;          /* a tensor is on its way: */
    uint64_t index;               /* which */
    uint64_t bytes, taken, block; /* of it: all, given out, of the block that comes */
};

/* Whatever it does: nothing more is wanted of it. @return how it ended, as waitpid() says */
static int stop(ddp_foreign_t *f)
{
    int how = 0;

    if (f->fd >= 0) {
        (void)close(f->fd);
        f->fd = -1;
    }
    if (f->child != NOT_RUNNING) {
        (void)kill(f->child, SIGKILL);
        while (waitpid(f->child, &how, 0) < 0 && errno == EINTR) {
        }
        f->child = NOT_RUNNING;
    }
    f->is_sending = false;
    return how;
}

/* Of this process it has the pipe alone. */
static int spawn(const ddp_foreign_t *f, char *const *args, int to, pid_t *child_p)
{
    posix_spawn_file_actions_t actions;
    int                        error = posix_spawn_file_actions_init(&actions);

    if (error != 0) {
        return error;
    }
    error = posix_spawn_file_actions_adddup2(&actions, to, DDP_FOREIGN_FD);
    for (int fd = 0; fd < DDP_FOREIGN_FD && error == 0; fd++) {
        error = posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_RDWR, 0);
    }
    error = error != 0 ? error : posix_spawn_file_actions_addclosefrom_np(&actions, DDP_FOREIGN_FD + 1);
    error = error != 0 ? error : posix_spawn(child_p, f->reader, &actions, NULL, args, environ);
    (void)posix_spawn_file_actions_destroy(&actions);
    return error;
}

/* @param [in] from  DDP_FOREIGN_LIST, or the first tensor that is sent */
static ddp_status_t start(const ddp_weights_t *w, uint64_t from)
{
    ddp_status_t   status    = DDP_OK;
    ddp_foreign_t *f         = w->foreign;
    int            pipes[]   = {-1, -1};
    const bool     is_list   = from == DDP_FOREIGN_LIST;
    char           first[32] = "";
    char           cpu_s[32] = "";
    char           word[]    = DDP_FOREIGN_WORD;
    char           path[DDP_SOURCE_PATH_SIZE];
    char          *args[DDP_FOREIGN_ARGS + 1] = {f->reader, word, path, first, cpu_s, NULL};
    int            error;

    (void)stop(f);
    memcpy(path, w->path, sizeof(path));
    snprintf(first, sizeof(first), "%" PRIu64, from);
    snprintf(cpu_s, sizeof(cpu_s), "%" PRIu64,
             (uint64_t)(f->timeout_s + 3) / 4 + (is_list ? 0 : f->packed / CPU_PER_S));
    f->left_ns = ((int64_t)f->timeout_s + (is_list ? 0 : (int64_t)(f->packed / WAIT_PER_S))) * NS_PER_S;
    DDP_REQUIRE(pipe2(pipes, O_CLOEXEC) == 0, DDP_ERR_SYSTEM, "'%s': no pipe: %s", w->path,
                ddp_errno_text(errno));
    error = spawn(f, args, pipes[1], &f->child);
    if (error != 0) {
        f->child = NOT_RUNNING;
    }
    DDP_REQUIRE(error == 0, DDP_ERR_SYSTEM, "'%s': no process to parse it: '%s': %s", w->path, f->reader,
                ddp_errno_text(error));
    f->fd    = pipes[0];
    pipes[0] = -1;
out:
    for (int i = 0; i < 2; i++) {
        if (pipes[i] >= 0) {
            (void)close(pipes[i]);
        }
    }
    return status;
}

/* The pipe ended where more was due. */
static ddp_status_t tell_death(const ddp_weights_t *w)
{
    const int how = stop(w->foreign);

    if (WIFSIGNALED(how)) {
        return ddp_fail(DDP_ERR_FORMAT,
                        "'%s': damaged or hostile: the process that parsed it was ended by signal %d (%s)",
                        w->path, WTERMSIG(how), strsignal(WTERMSIG(how)));
    }
    return ddp_fail(DDP_ERR_FORMAT, "'%s': damaged or hostile: the process that parsed it broke off",
                    w->path);
}

/* The next bytes. The time it takes us to use them is not counted. */
static ddp_status_t get(const ddp_weights_t *w, void *to, size_t bytes)
{
    ddp_status_t   status = DDP_OK;
    ddp_foreign_t *f      = w->foreign;
    struct pollfd  ready  = {f->fd, POLLIN, 0};
    size_t         have   = 0;

    while (have < bytes) {
        const int64_t before = ddp_clock_ns();
        int           n_ready;
        ssize_t       n;

        DDP_REQUIRE(f->left_ns > 0, DDP_ERR_FORMAT,
                    "'%s': damaged or hostile: HDF5 is not through with it after %d s", w->path,
                    f->timeout_s);
        n_ready = poll(&ready, 1, (int)(f->left_ns < LOOK_NS ? f->left_ns / 1000000 : LOOK_NS / 1000000) + 1);
        f->left_ns -= ddp_clock_ns() - before;
        ddp_progressed(); /* this wait has a limit of its own */
        if (n_ready <= 0) {
            continue;
        }
        n = read(f->fd, (char *)to + have, bytes - have);
        DDP_REQUIRE(n >= 0 || errno == EINTR, DDP_ERR_SYSTEM, "'%s': reading a pipe: %s", w->path,
                    ddp_errno_text(errno));
        if (n == 0) {
            return tell_death(w);
        }
        have += n > 0 ? (size_t)n : 0;
    }
out:
    return status;
}

static ddp_status_t get_record(const ddp_weights_t *w, ddp_foreign_record_t *record)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(get(w, record, sizeof(*record)));
    record->text[sizeof(record->text) - 1] = '\0';
    DDP_REQUIRE(record->magic == DDP_FOREIGN_MAGIC && record->what >= DDP_FOREIGN_TENSOR &&
                    record->what <= DDP_FOREIGN_FAILED,
                DDP_ERR_FORMAT, NONSENSE, w->path);
    DDP_REQUIRE(record->what != DDP_FOREIGN_FAILED, DDP_ERR_FORMAT, "%s", record->text);
out:
    return status;
}

static ddp_status_t take_tensor(ddp_weights_t *w, const ddp_foreign_record_t *record)
{
    ddp_status_t   status    = DDP_OK;
    const bool     is_packed = record->is_packed != 0;
    ddp_foreign_t *f         = w->foreign;

    DDP_REQUIRE(record->type <= DDP_WEIGHTS_OTHER && record->ndim <= DDP_MAX_DIMS &&
                    w->n < DDP_FOREIGN_TENSORS && record->index == w->n,
                DDP_ERR_FORMAT, NONSENSE, w->path);
    DDP_REQUIRE(is_packed || (record->at <= w->bytes && record->bytes <= w->bytes - record->at),
                DDP_ERR_FORMAT, "'%s': '%s' reaches beyond the end of the file", w->path, record->text);
    DDP_TRY(ddp_weights_add(w, record->text, (ddp_weights_type_t)record->type, record->shape, record->ndim,
                            record->bytes, is_packed ? DDP_ZIP_RATIO : 1,
                            is_packed ? record->index : record->at));
    w->tensors[w->n - 1].is_packed = is_packed;
    f->packed += is_packed ? record->bytes : 0;
    DDP_REQUIRE(f->packed / DDP_ZIP_RATIO <= w->bytes, DDP_ERR_FORMAT,
                "'%s': damaged or hostile: its tensors have more bytes than can come of it", w->path);
out:
    return status;
}

static ddp_status_t take_records(ddp_weights_t *w)
{
    ddp_status_t         status = DDP_OK;
    ddp_foreign_record_t record;

    for (;;) {
        DDP_TRY(get_record(w, &record));
        if (record.what == DDP_FOREIGN_END) {
            goto out;
        }
        DDP_REQUIRE(record.what == DDP_FOREIGN_TENSOR, DDP_ERR_FORMAT, NONSENSE, w->path);
        DDP_TRY(take_tensor(w, &record));
    }
out:
    return status;
}

ddp_status_t ddp_foreign_read(ddp_weights_t *weights, const ddp_weights_params_t *params)
{
    ddp_status_t   status = DDP_OK;
    ddp_foreign_t *f      = NULL;

    DDP_REQUIRE(params->reader != NULL, DDP_ERR_UNSUPPORTED,
                "'%s': an HDF5 file of others, and no program is named to parse it", weights->path);
    DDP_REQUIRE(strlen(params->reader) < sizeof(f->reader) && params->timeout_s > 0, DDP_ERR_INVALID_ARG,
                "weights: a reader's path that is too long, or no time for it");
    f = calloc(1, sizeof(*f));
    DDP_REQUIRE(f != NULL, DDP_ERR_NO_MEMORY, "no memory for '%s'", weights->path);
    memcpy(f->reader, params->reader, strlen(params->reader) + 1);
    f->timeout_s     = params->timeout_s;
    f->child         = NOT_RUNNING;
    f->fd            = -1;
    weights->foreign = f;
    DDP_TRY(start(weights, DDP_FOREIGN_LIST));
    DDP_TRY(take_records(weights));
out:
    if (f != NULL) {
        (void)stop(f);
    }
    return status;
}

/* The next tensor that is sent must be this one, as it was told of. */
static ddp_status_t expect_tensor(const ddp_weights_t *w, const ddp_weights_tensor_t *tensor, bool *is_it_p)
{
    ddp_status_t         status = DDP_OK;
    ddp_foreign_t       *f      = w->foreign;
    const uint64_t       bytes  = tensor->desc.count * ddp_weights_type_bytes(tensor->type);
    ddp_foreign_record_t record;

    DDP_TRY(get_record(w, &record));
    *is_it_p = record.what == DDP_FOREIGN_TENSOR && record.index == tensor->at;
    DDP_REQUIRE(!*is_it_p || (record.bytes == bytes && record.type == tensor->type), DDP_ERR_FORMAT,
                "'%s': '%s' is another tensor than before: was the file changed?", w->path,
                tensor->desc.name);
    f->is_sending = *is_it_p;
    f->index      = tensor->at;
    f->bytes      = bytes;
    f->taken      = 0;
    f->block      = 0;
out:
    return status;
}

/* The next bytes of the tensor that is sent. */
static ddp_status_t get_numbers(const ddp_weights_t *w, void *to, size_t bytes)
{
    ddp_status_t         status = DDP_OK;
    ddp_foreign_t       *f      = w->foreign;
    char                *place  = to;
    ddp_foreign_record_t record;

    while (bytes > 0) {
        size_t n;

        if (f->block == 0) {
            DDP_TRY(get_record(w, &record));
            DDP_REQUIRE(record.what == DDP_FOREIGN_BLOCK && record.bytes > 0 &&
                            record.bytes <= f->bytes - f->taken,
                        DDP_ERR_FORMAT, NONSENSE, w->path);
            f->block = record.bytes;
        }
        n = bytes < f->block ? bytes : (size_t)f->block;
        DDP_TRY(get(w, place, n));
        place += n;
        bytes -= n;
        f->block -= n;
        f->taken += n;
    }
out:
    return status;
}

/* Until the byte `at` of the tensor is the next to come: on from where the reader is, or from a new one. */
static ddp_status_t seek(const ddp_weights_t *w, const ddp_weights_tensor_t *tensor, uint64_t at)
{
    ddp_status_t   status = DDP_OK;
    ddp_foreign_t *f      = w->foreign;
    bool           is_it  = f->is_sending && f->index == tensor->at && f->taken <= at;
    char           nothing[4096];

    if (!is_it && f->is_sending && f->taken == f->bytes) {
        DDP_TRY(expect_tensor(w, tensor, &is_it));
    }
    if (!is_it) {
        DDP_TRY(start(w, tensor->at));
        DDP_TRY(expect_tensor(w, tensor, &is_it));
        DDP_REQUIRE(is_it, DDP_ERR_FORMAT, "'%s': no '%s' any more: was the file changed?", w->path,
                    tensor->desc.name);
    }
    while (f->taken < at) {
        DDP_TRY(get_numbers(w, nothing,
                            at - f->taken < sizeof(nothing) ? (size_t)(at - f->taken) : sizeof(nothing)));
    }
out:
    return status;
}

ddp_status_t ddp_foreign_get(ddp_weights_t *weights, size_t tensor, size_t first, size_t count, void *to)
{
    ddp_status_t                status = DDP_OK;
    const ddp_weights_tensor_t *t      = &weights->tensors[tensor];
    const size_t                width  = ddp_weights_type_bytes(t->type);

    DDP_TRY(seek(weights, t, first * width));
    DDP_TRY(get_numbers(weights, to, count * width));
out:
    if (status != DDP_OK) {
        (void)stop(weights->foreign);
    }
    return status;
}

void ddp_foreign_close(ddp_foreign_t **foreign_p)
{
    if (*foreign_p != NULL) {
        (void)stop(*foreign_p);
        free(*foreign_p);
        *foreign_p = NULL;
    }
}
