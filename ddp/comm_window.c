/* Memory that the ranks of a machine share. Local rank 0 makes it and hands it out: a memfd over a UNIX
 * socket, so that no file system limits it and nothing is left when processes are killed; or, where memfd is
 * refused, an object in /dev/shm whose name is taken away once all have mapped it. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/call.h"
#include "base/convert.h"
#include "base/fault.h"
#include "base/memory.h"
#include "ddp/comm_state_internal.h"

#define NAME_SIZE      64
#define ALLOCATE_BYTES ((size_t)64 << 20)

/** Where the machine's ranks find the memory. Crosses MPI as bytes. */
typedef struct ticket {
    int32_t shm; /* DDP_SHM_MEMFD: `name` is an abstract socket; DDP_SHM_POSIX: an object of shm_open */
    char    name[NAME_SIZE];
} ticket_t;

/** A window that is being made. */
typedef struct making {
    const char *label;
    size_t      bytes;
    int         fd;       /* -1: none */
    int         listener; /* -1: none */
    bool        is_named; /* `ticket.name` is in /dev/shm and ours to take away */
    void       *memory;   /* MAP_FAILED: none */
    ticket_t    ticket;
} making_t;

static double in_mb(uint64_t bytes)
{
    return (double)bytes / 1e6;
}

static ddp_status_t fail_memory(const char *label, uint64_t bytes, uint64_t there)
{
    return ddp_fail(DDP_ERR_NO_MEMORY,
                    "shared memory for %s: %.1f MB needed, %.1f MB of memory free; use a smaller model or "
                    "raise the memory limit",
                    label, in_mb(bytes), in_mb(there));
}

static ddp_status_t fail_dev_shm(const char *label, uint64_t bytes, uint64_t there)
{
    return ddp_fail(DDP_ERR_NO_MEMORY,
                    "shared memory for %s: %.1f MB needed, %.1f MB free in /dev/shm; enlarge it (docker run "
                    "--shm-size) or unset DDP_HOST_SHM",
                    label, in_mb(bytes), in_mb(there));
}

static uint64_t free_in_dev_shm(void)
{
    struct statvfs info;

    return statvfs("/dev/shm", &info) == 0 ? (uint64_t)info.f_bavail * info.f_frsize : 0;
}

static ddp_status_t check_room(const making_t *making)
{
    const uint64_t there = ddp_memory_available("");

    if (making->ticket.shm == DDP_SHM_POSIX && free_in_dev_shm() < making->bytes) {
        return fail_dev_shm(making->label, making->bytes, free_in_dev_shm());
    }
    return there < making->bytes ? fail_memory(making->label, making->bytes, there) : DDP_OK;
}

/* Take all pages now. In pieces, so that peers see progress and a signal costs little. */
static ddp_status_t allocate(ddp_comm_t *comm, const making_t *making)
{
    size_t done = 0;

    while (done < making->bytes) {
        const size_t left  = making->bytes - done;
        const size_t piece = left < ALLOCATE_BYTES ? left : ALLOCATE_BYTES;
        const int    code  = posix_fallocate(making->fd, (off_t)done, (off_t)piece);

        if (code == EINTR) {
            continue;
        }
        if (code == ENOSPC && making->ticket.shm == DDP_SHM_POSIX) {
            return fail_dev_shm(making->label, left, free_in_dev_shm());
        }
        if (code == ENOSPC || code == ENOMEM) {
            return fail_memory(making->label, left, ddp_memory_available(""));
        }
        if (code != 0) {
            return ddp_fail(DDP_ERR_SYSTEM, "shared memory for %s: posix_fallocate failed: %s", making->label,
                            ddp_errno_text(code));
        }
        done += piece;
        ddp_comm_progressed(comm);
    }
    return DDP_OK;
}

static ddp_status_t make_name(const char *start, char name[NAME_SIZE])
{
    uint64_t     random = 0;
    ddp_status_t status = DDP_OK;

    DDP_TRY_SYS(getrandom(&random, sizeof(random), 0));
    snprintf(name, NAME_SIZE, "%sddptrain-%d-%016llx", start, (int)getpid(), (unsigned long long)random);
out:
    return status;
}

/* An abstract address: it has no file and goes away with its socket. */
static socklen_t make_address(const char *name, struct sockaddr_un *address)
{
    memset(address, 0, sizeof(*address));
    address->sun_family = AF_UNIX;
    memcpy(address->sun_path + 1, name, strlen(name));
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
}

static ddp_status_t open_memfd(ddp_comm_t *comm, making_t *making)
{
    struct sockaddr_un address;
    socklen_t          length;
    ddp_status_t       status = DDP_OK;

    making->fd = memfd_create("ddptrain", MFD_CLOEXEC);
    if (making->fd >= 0 && ddp_fault("memfd_create", comm->rank) != DDP_OK) {
        close(making->fd);
        making->fd = -1;
        errno      = EPERM;
    }
    if (making->fd < 0 && (errno == ENOSYS || errno == EPERM || errno == EACCES)) {
        making->ticket.shm = DDP_SHM_POSIX;
        return DDP_OK;
    }
    DDP_TRY(ddp_from_errno(making->fd, "memfd_create()"));
    DDP_TRY(make_name("", making->ticket.name));
    length           = make_address(making->ticket.name, &address);
    making->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    DDP_TRY(ddp_from_errno(making->listener, "socket()"));
    DDP_TRY_SYS(bind(making->listener, (struct sockaddr *)&address, length));
    DDP_TRY_SYS(listen(making->listener, comm->local_size));
out:
    return status;
}

static ddp_status_t open_posix(making_t *making)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(make_name("/", making->ticket.name));
    making->fd = shm_open(making->ticket.name, O_RDWR | O_CREAT | O_EXCL, 0600);
    DDP_TRY(ddp_from_errno(making->fd, "shm_open()"));
    making->is_named = true;
out:
    return status;
}

static ddp_status_t map_memory(const ddp_comm_t *comm, making_t *making)
{
    making->memory = mmap(NULL, making->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, making->fd, 0);
    if (making->memory == MAP_FAILED) {
        return ddp_fail(DDP_ERR_NO_MEMORY, "shared memory for %s: cannot map %.1f MB: %s", making->label,
                        in_mb(making->bytes), ddp_errno_text(errno));
    }
    (void)madvise(making->memory, making->bytes, MADV_HUGEPAGE); /* a wish: without it only speed is lost */
    return ddp_fault("window_map", comm->rank);
}

/* Local rank 0. All that can fail here fails before the others come to fetch it. */
static ddp_status_t make_memory(ddp_comm_t *comm, making_t *making)
{
    ddp_status_t status = DDP_OK;

    making->ticket.shm = (int32_t)comm->shm;
    if (comm->shm == DDP_SHM_MEMFD) {
        DDP_TRY(open_memfd(comm, making));
    }
    if (making->ticket.shm == DDP_SHM_POSIX) {
        DDP_TRY(open_posix(making));
    }
    DDP_TRY(check_room(making));
    DDP_TRY_SYS(ftruncate(making->fd, (off_t)making->bytes));
    DDP_TRY(allocate(comm, making));
    DDP_TRY(map_memory(comm, making));
out:
    return status;
}

static ddp_status_t wait_readable(int fd, int64_t deadline_ns)
{
    struct pollfd ask = {fd, POLLIN, 0};

    for (;;) {
        const int64_t left = (deadline_ns - ddp_clock_ns()) / DDP_NS_PER_MS;
        const int     n    = left > 0 ? poll(&ask, 1, left < 1000 ? (int)left + 1 : 1000) : 0;

        if (n > 0) {
            return DDP_OK;
        }
        if (n < 0 && errno != EINTR) {
            return ddp_from_errno(n, "poll()");
        }
        if (left <= 0) {
            return ddp_fail(DDP_ERR_TIMEOUT, "nothing came over the socket");
        }
    }
}

/* Only ranks of this machine, run by the same user, may have the memory. */
static bool is_one_of_us(const ddp_comm_t *comm, int fd, int *rank_p)
{
    const ddp_star_t star = ddp_comm_star_machine(comm);
    struct ucred     peer;
    socklen_t        length = sizeof(peer);

    *rank_p = -1;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 || peer.uid != geteuid()) {
        return false;
    }
    for (int r = star.first; r < star.first + star.count; r++) {
        if (comm->members[r].place != comm->members[comm->rank].place) {
            return true; /* process ids of another namespace say nothing */
        }
        if (comm->members[r].pid == peer.pid) {
            *rank_p = r;
        }
    }
    return *rank_p >= 0;
}

/* One byte of data carries the descriptor. */
typedef union fd_room {
    char           bytes[CMSG_SPACE(sizeof(int))];
    struct cmsghdr align;
} fd_room_t;

static ddp_status_t send_fd(int socket_fd, int fd)
{
    char          byte    = 'm';
    struct iovec  vector  = {&byte, 1};
    fd_room_t     room    = {{0}};
    struct msghdr message = {
        .msg_iov = &vector, .msg_iovlen = 1, .msg_control = room.bytes, .msg_controllen = sizeof(room.bytes)};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);

    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type  = SCM_RIGHTS;
    header->cmsg_len   = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &fd, sizeof(fd));
    return ddp_from_errno(sendmsg(socket_fd, &message, MSG_NOSIGNAL), "sendmsg()");
}

static ddp_status_t receive_fd(int socket_fd, int *fd_p)
{
    char          byte    = 0;
    struct iovec  vector  = {&byte, 1};
    fd_room_t     room    = {{0}};
    struct msghdr message = {
        .msg_iov = &vector, .msg_iovlen = 1, .msg_control = room.bytes, .msg_controllen = sizeof(room.bytes)};
    struct cmsghdr *header;
    ddp_status_t    status = DDP_OK;

    DDP_TRY(ddp_from_errno(recvmsg(socket_fd, &message, MSG_CMSG_CLOEXEC), "recvmsg()"));
    header = CMSG_FIRSTHDR(&message);
    DDP_REQUIRE(header != NULL && header->cmsg_type == SCM_RIGHTS, DDP_ERR_SYSTEM,
                "no descriptor came over the socket");
    memcpy(fd_p, CMSG_DATA(header), sizeof(*fd_p));
out:
    return status;
}

static ddp_status_t hand_out(ddp_comm_t *comm, const making_t *making)
{
    const int64_t deadline = ddp_clock_ns() + comm->timeout_ms * DDP_NS_PER_MS;
    ddp_status_t  status   = DDP_OK;
    int           peer     = -1;
    int           rank     = -1;

    for (int served = 0; served < comm->local_size - 1;) {
        status = wait_readable(making->listener, deadline);
        if (status == DDP_ERR_TIMEOUT) {
            status = ddp_fail(DDP_ERR_TIMEOUT, "shared memory for %s: %d of %d ranks of %s did not fetch it",
                              making->label, comm->local_size - 1 - served, comm->local_size - 1,
                              comm->members[comm->rank].host);
        }
        DDP_TRY(status);
        peer = accept4(making->listener, NULL, NULL, SOCK_CLOEXEC);
        if (peer < 0 && (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED)) {
            continue;
        }
        DDP_TRY(ddp_from_errno(peer, "accept()"));
        if (is_one_of_us(comm, peer, &rank)) {
            DDP_TRY(send_fd(peer, making->fd));
            served++;
        }
        close(peer);
        peer = -1;
    }
out:
    if (peer >= 0) {
        close(peer);
    }
    return status;
}

static ddp_status_t fetch_memfd(ddp_comm_t *comm, making_t *making)
{
    struct sockaddr_un address;
    const socklen_t    length   = make_address(making->ticket.name, &address);
    const int64_t      deadline = ddp_clock_ns() + comm->timeout_ms * DDP_NS_PER_MS;
    ddp_status_t       status   = DDP_OK;
    int                rank     = -1;
    int                peer     = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    DDP_TRY(ddp_from_errno(peer, "socket()"));
    if (connect(peer, (struct sockaddr *)&address, length) != 0) {
        status =
            ddp_fail(DDP_ERR_SYSTEM,
                     "connect failed: %s; in containers with networks of their own set DDP_HOST_SHM=posix "
                     "or 0",
                     ddp_errno_text(errno));
        goto out;
    }
    DDP_REQUIRE(is_one_of_us(comm, peer, &rank), DDP_ERR_SYSTEM, "a stranger answers on the socket");
    DDP_TRY(wait_readable(peer, deadline));
    DDP_TRY(receive_fd(peer, &making->fd));
out:
    if (status != DDP_OK) {
        ddp_error_prefix("shared memory for %s", making->label);
    }
    if (peer >= 0) {
        close(peer);
    }
    return status;
}

/* Local rank 0 gives, the others take. */
static ddp_status_t pass_memory(ddp_comm_t *comm, making_t *making)
{
    ddp_status_t status = DDP_OK;

    if (comm->local_rank == 0) {
        return making->ticket.shm == DDP_SHM_MEMFD ? hand_out(comm, making) : DDP_OK;
    }
    if (making->ticket.shm == DDP_SHM_MEMFD) {
        DDP_TRY(fetch_memfd(comm, making));
    } else {
        making->fd = shm_open(making->ticket.name, O_RDWR, 0);
        DDP_TRY(ddp_from_errno(making->fd, "shm_open()"));
    }
    DDP_TRY(map_memory(comm, making));
out:
    return status;
}

static ddp_status_t make_shared(ddp_comm_t *comm, const char *label, size_t bytes, void **memory_p)
{
    making_t     making = {.label = label, .bytes = bytes, .fd = -1, .listener = -1, .memory = MAP_FAILED};
    ddp_status_t status = DDP_OK;
    ddp_status_t local  = DDP_OK;

    if (comm->local_rank == 0) {
        local = make_memory(comm, &making);
    }
    if (local == DDP_OK) {
        local = ddp_fault("window_create", comm->rank);
    }
    DDP_TRY(ddp_comm_agree_machine(comm, local));
    DDP_TRY(ddp_comm_broadcast_machine(comm, &making.ticket, sizeof(making.ticket)));
    DDP_TRY(ddp_comm_agree_machine(comm, pass_memory(comm, &making)));
    *memory_p     = making.memory;
    making.memory = MAP_FAILED;
out:
    if (making.is_named) {
        shm_unlink(making.ticket.name);
    }
    if (making.memory != MAP_FAILED) {
        munmap(making.memory, making.bytes);
    }
    if (making.listener >= 0) {
        close(making.listener);
    }
    if (making.fd >= 0) {
        close(making.fd);
    }
    return status;
}

static ddp_status_t make_private(ddp_comm_t *comm, const char *label, size_t bytes, void **memory_p)
{
    const uint64_t there  = ddp_memory_available("");
    void          *memory = NULL;
    ddp_status_t   status = DDP_OK;

    if (there < bytes) {
        return fail_memory(label, bytes, there);
    }
    DDP_TRY(ddp_fault("window_create", comm->rank));
    DDP_TRY(ddp_allocator_private()->acquire(NULL, label, bytes, &memory));
    status = ddp_fault("window_map", comm->rank);
    if (status != DDP_OK) {
        ddp_allocator_private()->release(NULL, memory);
        goto out;
    }
    *memory_p = memory;
out:
    return status;
}

/* Room for one more entry, before memory is made that it would have to hold. */
static ddp_status_t reserve_entry(ddp_comm_t *comm)
{
    const size_t  capacity = comm->window_capacity == 0 ? 16 : 2 * comm->window_capacity;
    ddp_window_t *windows  = NULL;

    if (comm->n_windows < comm->window_capacity) {
        return DDP_OK;
    }
    windows = realloc(comm->windows, capacity * sizeof(*windows));
    if (windows == NULL) {
        return ddp_fail(DDP_ERR_NO_MEMORY, "no memory for the list of windows");
    }
    comm->windows         = windows;
    comm->window_capacity = capacity;
    return DDP_OK;
}

static ddp_status_t open_window(ddp_comm_t *comm, const char *label, size_t bytes, size_t part_bytes,
                                void **memory_p)
{
    const bool   is_private = comm->local_size == 1;
    void        *memory     = NULL;
    ddp_status_t status     = DDP_OK;

    DDP_REQUIRE(label != NULL && memory_p != NULL, DDP_ERR_INVALID_ARG, "shared memory without a label");
    DDP_REQUIRE(bytes > 0, DDP_ERR_INVALID_ARG, "shared memory for %s: no bytes asked for", label);
    DDP_TRY(ddp_comm_meet_machine(comm, DDP_OP_WINDOW, bytes));
    DDP_TRY(ddp_comm_agree_machine(comm, reserve_entry(comm)));
    DDP_TRY(is_private ? make_private(comm, label, bytes, &memory)
                       : make_shared(comm, label, bytes, &memory));
    comm->windows[comm->n_windows++] = (ddp_window_t){memory, bytes, part_bytes, is_private};
    *memory_p                        = memory;
out:
    return status;
}

ddp_status_t ddp_comm_shared(ddp_comm_t *comm, const char *label, size_t bytes, void **memory_p)
{
    return open_window(comm, label, bytes, 0, memory_p);
}

ddp_status_t ddp_comm_shared_each(ddp_comm_t *comm, const char *label, size_t bytes, void **mine_p)
{
    const size_t page   = (size_t)sysconf(_SC_PAGESIZE);
    size_t       part   = 0;
    size_t       total  = 0;
    void        *memory = NULL;
    ddp_status_t status = DDP_OK;

    DDP_REQUIRE(bytes <= SIZE_MAX - page, DDP_ERR_INVALID_ARG, "shared memory of %zu bytes", bytes);
    part = (bytes + page - 1) / page * page;
    DDP_TRY(ddp_mul_size(part, (size_t)comm->local_size, "shared memory", &total));
    DDP_TRY(open_window(comm, label, total, part, &memory));
    *mine_p = (char *)memory + (size_t)comm->local_rank * part;
out:
    return status;
}

const ddp_window_t *ddp_comm_window_find(const ddp_comm_t *comm, const void *memory, size_t bytes,
                                         size_t *index_p, size_t *offset_p)
{
    for (size_t i = 0; i < comm->n_windows; i++) {
        const ddp_window_t *window = &comm->windows[i];
        const uintptr_t     mine = (uintptr_t)window->memory + (size_t)comm->local_rank * window->part_bytes;
        const uintptr_t     at   = (uintptr_t)memory;

        if (window->part_bytes > 0 && at >= mine && at - mine <= window->part_bytes &&
            bytes <= window->part_bytes - (at - mine)) {
            *index_p  = i;
            *offset_p = at - mine;
            return window;
        }
    }
    return NULL;
}

void ddp_comm_keep_memory(ddp_comm_t *comm)
{
    comm->is_kept = true;
}

void ddp_comm_windows_destroy(ddp_comm_t *comm)
{
    comm->hall = NULL;
    for (size_t i = comm->is_kept ? 0 : comm->n_windows; i-- > 0;) {
        if (comm->windows[i].is_private) {
            ddp_allocator_private()->release(NULL, comm->windows[i].memory);
        } else {
            munmap(comm->windows[i].memory, comm->windows[i].bytes);
        }
    }
    free(comm->windows);
    comm->windows   = NULL;
    comm->n_windows = 0;
}
