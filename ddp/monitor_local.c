/* The ranks of this machine, as shared memory and the kernel show them. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "ddp/monitor_internal.h"

/* Who gets on, or whose thread runs, need not be looked for in /proc. */
#define DOUBT_NS (700 * DDP_NS_PER_MS)

/* linux/pidfd.h from Linux 6.15 on; an older kernel refuses the call. */
typedef struct pidfd_info {
    uint64_t mask, cgroup;
    uint32_t pid, tgid, ppid, ids[8];
    int32_t  exit_code;
} pidfd_info_t;
_Static_assert(sizeof(pidfd_info_t) == 64, "PIDFD_INFO_SIZE_VER0");
#define PIDFD_INFO_EXIT_MASK (UINT64_C(1) << 3)
#define PIDFD_ASK            _IOWR(0xFF, 11, pidfd_info_t)

/* Field `number` of /proc/PID/stat, counted as in proc(5); fields before the 3rd cannot be asked for. */
static bool read_stat(int pid, int number, char *text, size_t size)
{
    char   path[40], all[1024];
    char  *at = NULL;
    size_t bytes;
    FILE  *file;

    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    file = fopen(path, "re");
    if (file == NULL) {
        return false;
    }
    bytes      = fread(all, 1, sizeof(all) - 1, file);
    all[bytes] = '\0';
    at         = strrchr(all, ')'); /* a name may hold anything, also the end of a line */
    (void)fclose(file);             /* was only read */
    for (int field = 2; at != NULL && field < number; field++) {
        at = strchr(at + 1, ' ');
    }
    if (at != NULL) {
        snprintf(text, size, "%.*s", (int)strcspn(at + 1, " \n"), at + 1);
    }
    return at != NULL;
}

bool ddp_process_is_stopped(int pid)
{
    char state[8];

    return read_stat(pid, 3, state, sizeof(state)) && (state[0] == 'T' || state[0] == 't');
}

int32_t ddp_process_wait_status(int pidfd, int pid)
{
    pidfd_info_t info = {.mask = PIDFD_INFO_EXIT_MASK};
    char         text[24];

    if (pidfd >= 0 && ioctl(pidfd, PIDFD_ASK, &info) == 0 && (info.mask & PIDFD_INFO_EXIT_MASK) != 0) {
        return info.exit_code;
    }
    /* a zombie, which its parent has not asked for yet */
    if (read_stat(pid, 3, text, sizeof(text)) && text[0] == 'Z' && read_stat(pid, 52, text, sizeof(text))) {
        return (int32_t)strtol(text, NULL, 10);
    }
    return DDP_EXIT_UNKNOWN;
}

/* The number behind `name` in a file of such lines; 0: none. */
static uint64_t read_count(const char *path, const char *name)
{
    FILE        *file  = fopen(path, "re");
    const size_t used  = strlen(name);
    uint64_t     count = 0;
    char         line[256];

    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, name, used) == 0 && line[used] == ' ') {
            count = strtoull(line + used, NULL, 10);
            break;
        }
    }
    if (file != NULL) {
        (void)fclose(file); /* was only read */
    }
    return count;
}

/* The file that counts for the control group of a line of /proc/self/cgroup. @return false: of another
 * controller of version 1 */
static bool group_file(const char *root, char *line, char *path, size_t size)
{
    char *group = strrchr(line, ':');

    line[strcspn(line, "\n")] = '\0';
    if (group == NULL) {
        return false;
    }
    *group++ = '\0';
    if (strcmp(line, "0:") == 0) {
        snprintf(path, size, "%s/sys/fs/cgroup%s/memory.events", root, group);
        return true;
    }
    snprintf(path, size, "%s/sys/fs/cgroup/memory%s/memory.oom_control", root, group);
    return strstr(line, ":memory") != NULL;
}

/* What the kernel has ended for want of memory. Both are looked at: the group of a rank may be another one
 * than this process's, and the machine may be a container's host, whose count does not tell whose it was. */
static void count_kills(const char *root, uint64_t *group_p, uint64_t *machine_p)
{
    char  line[512], path[1024];
    FILE *file;

    *group_p = 0;
    snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
    file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        if (group_file(root, line, path, sizeof(path))) {
            *group_p += read_count(path, "oom_kill");
        }
    }
    if (file != NULL) {
        (void)fclose(file); /* was only read */
    }
    snprintf(path, sizeof(path), "%s/proc/vmstat", root);
    *machine_p = read_count(path, "oom_kill");
}

void ddp_oom_open(ddp_oom_t *oom, const char *root)
{
    char path[512];

    snprintf(path, sizeof(path), "%s/dev/kmsg", root);
    oom->root = root;
    oom->kmsg = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (oom->kmsg >= 0) {
        (void)lseek(oom->kmsg, 0, SEEK_END); /* else what came before is read too */
    }
    count_kills(root, &oom->group_kills, &oom->machine_kills);
}

void ddp_oom_close(ddp_oom_t *oom)
{
    if (oom->kmsg >= 0) {
        close(oom->kmsg);
    }
    oom->kmsg = -1;
}

bool ddp_oom_has_killed(ddp_oom_t *oom, int pid)
{
    char     line[2048], wanted[64];
    uint64_t group, machine;
    ssize_t  bytes;

    snprintf(wanted, sizeof(wanted), "Killed process %d ", pid);
    for (int i = 0; oom->kmsg >= 0 && i < 10000; i++) { /* one message a call */
        bytes = read(oom->kmsg, line, sizeof(line) - 1);
        if (bytes <= 0) {
            break;
        }
        line[bytes] = '\0';
        if (strstr(line, wanted) != NULL) {
            return true;
        }
    }
    count_kills(oom->root, &group, &machine);
    return group > oom->group_kills || machine > oom->machine_kills;
}

static void set_life(ddp_monitor_t *monitor, ddp_view_t *view, ddp_life_t life)
{
    if (view->life != life) {
        view->life    = life;
        view->life_ns = monitor->now_ns;
    }
}

void ddp_monitor_read_shares(const ddp_share_cell_t *cell, ddp_shares_t *shares)
{
    ddp_shares_t read;

    for (int i = 0; i < 3; i++) { /* they are written now and then, `steps` last */
        read.steps      = atomic_load_explicit(&cell->steps, memory_order_acquire);
        read.compute_us = atomic_load_explicit(&cell->compute_us, memory_order_relaxed);
        read.wait_us    = atomic_load_explicit(&cell->wait_us, memory_order_relaxed);
        read.comm_us    = atomic_load_explicit(&cell->comm_us, memory_order_acquire);
        if (atomic_load_explicit(&cell->steps, memory_order_relaxed) == read.steps) {
            *shares = read;
            return;
        }
    }
}

void ddp_monitor_write_shares(ddp_share_cell_t *cell, const ddp_shares_t *shares)
{
    atomic_store_explicit(&cell->compute_us, shares->compute_us, memory_order_relaxed);
    atomic_store_explicit(&cell->wait_us, shares->wait_us, memory_order_relaxed);
    atomic_store_explicit(&cell->comm_us, shares->comm_us, memory_order_relaxed);
    atomic_store_explicit(&cell->steps, shares->steps, memory_order_release);
}

static void read_seat(ddp_monitor_t *monitor, const ddp_seat_t *seat, ddp_view_t *view)
{
    const uint64_t progress = atomic_load_explicit(&seat->progress, memory_order_relaxed);
    const uint64_t beat     = atomic_load_explicit(&seat->beat, memory_order_relaxed);
    const uint64_t place    = atomic_load_explicit(&seat->place, memory_order_relaxed);

    if (view->progress != progress) {
        view->progress = progress;
        view->moved_ns = monitor->now_ns;
    }
    if (view->beat != beat) {
        view->beat    = beat;
        view->beat_ns = monitor->now_ns;
    }
    view->heard_ns  = monitor->now_ns;
    view->step      = atomic_load_explicit(&seat->step, memory_order_relaxed);
    view->phase     = (ddp_stage_t)(place >> 32);
    view->bucket    = (uint32_t)place;
    view->waits_for = atomic_load_explicit(&seat->waits_for, memory_order_relaxed);
    ddp_monitor_read_shares(&seat->shares, &view->shares);
}

static void look_at_end(ddp_monitor_t *monitor, int rank, ddp_view_t *view)
{
    const int pid = (int)monitor->comm->members[rank].pid;

    if (view->wait_status == DDP_EXIT_UNKNOWN) {
        view->wait_status = ddp_process_wait_status(monitor->comm->pidfd[rank], pid);
    }
    if (view->life != DDP_LIFE_ENDED) {
        view->is_out_of_memory = ddp_oom_has_killed(&monitor->oom, pid);
    }
    if (view->wait_status != DDP_EXIT_UNKNOWN && (view->wait_status & 0x7f) != SIGKILL) {
        view->is_out_of_memory = false;
    }
    set_life(monitor, view, DDP_LIFE_ENDED);
}

static void look_at(ddp_monitor_t *monitor, int rank, ddp_view_t *view)
{
    const ddp_seat_t *seat = ddp_comm_seat(monitor->comm, rank);
    int32_t           life;

    view->is_sent_away = atomic_load_explicit(&seat->is_sent_away, memory_order_relaxed) != 0;
    life               = atomic_load_explicit(&seat->life, memory_order_acquire);
    if (life != DDP_LIFE_RUNS) { /* its own word, also if it has ended since */
        set_life(monitor, view, (ddp_life_t)life);
    } else if (rank != monitor->comm->rank && ddp_comm_has_ended(monitor->comm, rank)) {
        life = atomic_load_explicit(&seat->life, memory_order_acquire); /* said meanwhile? */
        if (life == DDP_LIFE_RUNS) {
            look_at_end(monitor, rank, view);
        }
    } else if (monitor->now_ns - view->moved_ns > DOUBT_NS && monitor->now_ns - view->beat_ns > DOUBT_NS &&
               ddp_process_is_stopped((int)monitor->comm->members[rank].pid)) {
        set_life(monitor, view, DDP_LIFE_STOPPED);
    } else {
        set_life(monitor, view, DDP_LIFE_RUNS);
    }
}

void ddp_monitor_follow(ddp_monitor_t *monitor)
{
    for (int r = monitor->first; r < monitor->first + monitor->count; r++) {
        read_seat(monitor, ddp_comm_seat(monitor->comm, r), &monitor->view[r]);
    }
}

bool ddp_monitor_look_here(ddp_monitor_t *monitor)
{
    bool is_new = false;

    for (int r = monitor->first; r < monitor->first + monitor->count; r++) {
        ddp_view_t      *view   = &monitor->view[r];
        const ddp_life_t before = view->life;
        const bool       was    = view->is_sent_away;

        look_at(monitor, r, view);
        is_new = is_new || view->life != before || view->is_sent_away != was;
    }
    return is_new;
}
