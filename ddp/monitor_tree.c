/* What machines tell each other: reports up, tables and verdicts down; and who is let in. */
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "ddp/monitor_internal.h"

/* A connection that broke is made anew by then, or by another rank of the machine. */
#define RECONNECT_NS       (600 * DDP_NS_PER_MS)
#define RECONNECT_OTHER_NS (1500 * DDP_NS_PER_MS)
#define AT_ONCE            16 /* messages of a connection, before others are heard */

/* What is told of a rank of another machine. @return true: it has another life than before */
static bool take_entry(ddp_monitor_t *monitor, int rank, const ddp_view_t *told)
{
    ddp_far_t *far = &monitor->board->far[rank];
    const bool is_new =
        monitor->view[rank].life != told->life || monitor->view[rank].is_sent_away != told->is_sent_away;

    monitor->view[rank] = *told;
    atomic_store_explicit(&far->progress, told->progress, memory_order_relaxed);
    atomic_store_explicit(&far->waits_for, told->waits_for, memory_order_relaxed);
    atomic_store_explicit(&far->life, (int32_t)told->life, memory_order_relaxed);
    ddp_monitor_write_shares(&far->shares, &told->shares);
    return is_new;
}

/* @param [in] child  whose report it is; -1: the table from above. @return false: it says what cannot be */
bool ddp_monitor_take_entries(ddp_monitor_t *monitor, const ddp_message_t *message, int child, bool *is_new_p)
{
    ddp_monitor_net_t *net = &monitor->net;

    if (message->bytes % DDP_ENTRY_BYTES != 0) {
        return false;
    }
    for (size_t at = 0; at < message->bytes; at += DDP_ENTRY_BYTES) {
        ddp_view_t told;
        int        rank, machine;

        if (!ddp_entry_read(message->payload + at, monitor->size, monitor->now_ns, &told, &rank)) {
            return false;
        }
        machine = monitor->comm->machine_of[rank];
        if (machine == monitor->comm->machine) {
            continue; /* what is here is known best here */
        }
        if (child >= 0) {
            net->via[machine] = child;
        }
        if (child >= 0 || net->via[machine] < 0) {
            *is_new_p = take_entry(monitor, rank, &told) || *is_new_p;
        }
    }
    return true;
}

/* A connection that is closed is a sign of life of the host: its kernel did that, and says soon what ended.
 */
static void lose_child(ddp_monitor_t *monitor, int child)
{
    ddp_monitor_net_t *net       = &monitor->net;
    const bool         is_silent = net->child[child].is_silent;

    ddp_peer_close(&net->child[child]);
    if (!net->child[child].is_leaving) {
        ddp_monitor_is_left(monitor);
    }
    if (!net->child[child].is_leaving && !is_silent) {
        net->closed_ns[child] = monitor->now_ns;
    }
    for (int r = 0; r < monitor->size && !is_silent; r++) {
        if (net->via[monitor->comm->machine_of[r]] == child) {
            monitor->view[r].heard_ns = monitor->now_ns;
        }
    }
    for (int m = 0; m < monitor->comm->machines; m++) {
        net->via[m] = net->via[m] == child ? -1 : net->via[m];
    }
}

static bool hear_child(ddp_monitor_t *monitor, int child)
{
    ddp_peer_t   *peer    = &monitor->net.child[child];
    bool          is_new  = false;
    bool          is_bad  = false;
    const bool    is_open = ddp_peer_read(peer);
    int           n       = 0;
    ddp_message_t message;

    for (; n < AT_ONCE && ddp_peer_next(peer, &message, &is_bad); n++) {
        peer->heard_ns = monitor->now_ns;
        if (message.type == DDP_MESSAGE_HANDOVER) {
            peer->is_leaving = true;
        } else if (message.type != DDP_MESSAGE_REPORT ||
                   !ddp_monitor_take_entries(monitor, &message, child, &is_new)) {
            is_bad = true;
            break;
        }
    }
    if (is_bad || (!is_open && n < AT_ONCE)) { /* first all that it said */
        lose_child(monitor, child);
    }
    return is_new;
}

/* A connection that broke and was not made anew: the process at its other end is gone, and whoever might have
 * taken over. */
static bool give_up_child(ddp_monitor_t *monitor, int child)
{
    ddp_monitor_net_t *net    = &monitor->net;
    const ddp_comm_t  *comm   = monitor->comm;
    const int64_t      wait   = ddp_comm_machine_size(comm, child) > 1 ? RECONNECT_OTHER_NS : RECONNECT_NS;
    bool               is_new = false;

    if (net->closed_ns[child] == 0 || monitor->now_ns - net->closed_ns[child] < wait) {
        return false;
    }
    for (int r = comm->machine_first[child]; r < comm->machine_first[child + 1]; r++) {
        ddp_view_t *view = &monitor->view[r];

        if (view->life == DDP_LIFE_RUNS || view->life == DDP_LIFE_STOPPED || view->life == DDP_LIFE_UNKNOWN) {
            view->life    = DDP_LIFE_ENDED;
            view->life_ns = net->closed_ns[child];
            is_new        = true;
            atomic_store_explicit(&monitor->board->far[r].life, DDP_LIFE_ENDED, memory_order_relaxed);
        }
    }
    net->closed_ns[child] = 0;
    return is_new;
}

static void let_in(ddp_monitor_t *monitor)
{
    ddp_monitor_net_t *net = &monitor->net;

    ddp_door_look(net->door, true, monitor->now_ns, net->guest);
    for (size_t g = 0; g < DDP_MONITOR_GUESTS; g++) {
        if (net->guest[g].fd >= 0) {
            (void)ddp_guest_look(&net->guest[g], net->token, monitor->comm->machines, monitor->size,
                                 monitor->now_ns, net->child);
        }
    }
}

static bool hear_children(ddp_monitor_t *monitor)
{
    ddp_monitor_net_t *net    = &monitor->net;
    bool               is_new = false;

    let_in(monitor);
    for (int m = 0; m < monitor->comm->machines; m++) {
        if (net->child[m].fd >= 0) {
            net->closed_ns[m] = 0;
            is_new            = hear_child(monitor, m) || is_new;
        }
        is_new = give_up_child(monitor, m) || is_new;
    }
    return is_new;
}

bool ddp_monitor_net_hear(ddp_monitor_t *monitor)
{
    const bool is_new = hear_children(monitor);

    return ddp_monitor_up_hear(monitor) || is_new;
}

/* Entries of the ranks that `to` is to know of: all, or those of this machine and below. */
static void send_entries(ddp_monitor_t *monitor, ddp_peer_t *to, bool is_table)
{
    const ddp_comm_t *comm  = monitor->comm;
    size_t            bytes = 0;
    uint8_t          *payload;

    if (ddp_peer_has_more(to) || !ddp_peer_begin(to, (size_t)monitor->size * DDP_ENTRY_BYTES, &payload)) {
        return; /* it does not read: what is newer is sent when it does */
    }
    for (int r = 0; r < monitor->size; r++) {
        const int machine = comm->machine_of[r];

        if (is_table || machine == comm->machine || monitor->net.via[machine] >= 0) {
            ddp_entry_write(&monitor->view[r], r, monitor->now_ns, payload + bytes);
            bytes += DDP_ENTRY_BYTES;
        }
    }
    ddp_peer_seal(to, is_table ? DDP_MESSAGE_TABLE : DDP_MESSAGE_REPORT, bytes);
}

static void flush_all(ddp_monitor_t *monitor)
{
    ddp_monitor_net_t *net = &monitor->net;

    if (net->parent.fd >= 0 && !ddp_peer_flush(&net->parent)) {
        ddp_monitor_up_lose(monitor);
    }
    for (int m = 0; m < monitor->comm->machines; m++) {
        if (net->child[m].fd >= 0 && !ddp_peer_flush(&net->child[m])) {
            lose_child(monitor, m);
        }
    }
}

void ddp_monitor_net_tell(ddp_monitor_t *monitor, bool is_new)
{
    ddp_monitor_net_t *net   = &monitor->net;
    const int64_t      every = ddp_monitor_every_ns(monitor->size);

    if (is_new || monitor->now_ns - net->told_ns >= every) {
        net->told_ns = monitor->now_ns;
        if (net->parent.fd >= 0) {
            send_entries(monitor, &net->parent, false);
        }
        for (int m = 0; m < monitor->comm->machines; m++) {
            if (net->child[m].fd >= 0) {
                send_entries(monitor, &net->child[m], true);
            }
        }
    }
    flush_all(monitor);
}

void ddp_monitor_net_verdict(ddp_monitor_t *monitor)
{
    ddp_monitor_net_t *net = &monitor->net;
    uint8_t           *payload;

    monitor->now_ns = ddp_clock_ns();
    let_in(monitor);
    for (int m = 0; m < monitor->comm->machines; m++) {
        ddp_peer_t *peer = &net->child[m];

        if (peer->fd >= 0 && !peer->is_told && ddp_peer_begin(peer, DDP_VERDICT_BYTES, &payload)) {
            ddp_verdict_write(&monitor->board->verdict, payload);
            ddp_peer_seal(peer, DDP_MESSAGE_VERDICT, DDP_VERDICT_BYTES);
            peer->is_told = true;
        }
    }
    flush_all(monitor);
}

static void drop_all(ddp_monitor_t *monitor)
{
    ddp_monitor_net_t *net = &monitor->net;

    ddp_peer_close(&net->parent);
    ddp_call_drop(&net->call);
    for (int m = 0; m < monitor->comm->machines; m++) {
        ddp_peer_close(&net->child[m]);
    }
    for (size_t g = 0; g < DDP_MONITOR_GUESTS; g++) {
        ddp_guest_drop(&net->guest[g]);
    }
}

void ddp_monitor_net_begin(ddp_monitor_t *monitor)
{
    ddp_monitor_net_t *net = &monitor->net;

    for (int m = 0; m < monitor->comm->machines; m++) {
        net->via[m]       = -1;
        net->closed_ns[m] = 0;
    }
    net->told_ns = 0;
    ddp_monitor_up_begin(monitor);
}

void ddp_monitor_net_leave(ddp_monitor_t *monitor)
{
    ddp_monitor_net_tell(monitor, true);
    ddp_peer_hand_over(&monitor->net.parent);
    drop_all(monitor);
}

void ddp_monitor_net_refuse(ddp_monitor_t *monitor)
{
    ddp_door_look(monitor->net.door, false, monitor->now_ns, monitor->net.guest);
}

static size_t add_poll(struct pollfd *polls, size_t n, int fd, int events)
{
    if (fd < 0) {
        return n;
    }
    polls[n] = (struct pollfd){fd, (short)events, 0};
    return n + 1;
}

size_t ddp_monitor_net_poll(const ddp_monitor_t *monitor, struct pollfd *polls)
{
    const ddp_monitor_net_t *net = &monitor->net;
    size_t                   n   = add_poll(polls, 0, net->door, POLLIN);

    for (size_t g = 0; g < DDP_MONITOR_GUESTS; g++) {
        n = add_poll(polls, n, net->guest[g].fd, POLLIN);
    }
    for (int m = 0; m < monitor->comm->machines; m++) {
        n = add_poll(polls, n, net->child[m].fd, POLLIN | (ddp_peer_has_more(&net->child[m]) ? POLLOUT : 0));
    }
    n = add_poll(polls, n, net->parent.fd, POLLIN | (ddp_peer_has_more(&net->parent) ? POLLOUT : 0));
    return add_poll(polls, n, net->call.fd, net->call.is_connected ? POLLIN : POLLOUT);
}

static ddp_status_t make_net(ddp_monitor_t *monitor)
{
    ddp_status_t       status   = DDP_OK;
    ddp_monitor_net_t *net      = &monitor->net;
    const size_t       machines = (size_t)monitor->comm->machines;

    net->places    = calloc((size_t)monitor->size, sizeof(*net->places));
    net->child     = calloc(machines, sizeof(*net->child));
    net->closed_ns = calloc(machines, sizeof(*net->closed_ns));
    net->via       = calloc(machines, sizeof(*net->via));
    net->reach     = calloc(machines, sizeof(*net->reach));
    DDP_REQUIRE(net->places != NULL && net->child != NULL && net->closed_ns != NULL && net->via != NULL &&
                    net->reach != NULL,
                DDP_ERR_NO_MEMORY, "no memory for the monitor of %zu machines", machines);
    net->door    = -1;
    net->call.fd = -1;
    ddp_peer_init(&net->parent, monitor->size);
    for (size_t m = 0; m < machines; m++) {
        ddp_peer_init(&net->child[m], monitor->size);
    }
    for (size_t g = 0; g < DDP_MONITOR_GUESTS; g++) {
        net->guest[g].fd = -1;
    }
    net->is_used = true; /* from here on it can be closed */
out:
    return status;
}

/* All ranks are on one host, which only looks like several. */
static bool is_one_host(const ddp_comm_t *comm)
{
    for (int r = 1; r < comm->size; r++) {
        if (comm->members[r].place != comm->members[0].place) {
            return false;
        }
    }
    return true;
}

ddp_status_t ddp_monitor_net_open(ddp_monitor_t *monitor, const char *interfaces)
{
    ddp_status_t       status = DDP_OK;
    ddp_monitor_net_t *net    = &monitor->net;
    ddp_comm_t        *comm   = monitor->comm;
    ddp_place_t        mine   = {.port = 0};

    if (comm->machines == 1) {
        return DDP_OK;
    }
    status = make_net(monitor);
    if (status == DDP_OK) {
        status = ddp_door_open(&mine, interfaces, is_one_host(comm), &net->door);
    }
    if (status == DDP_OK && comm->rank == 0 &&
        getrandom(net->token, sizeof(net->token), 0) != (ssize_t)sizeof(net->token)) {
        status = ddp_fail(DDP_ERR_SYSTEM, "no random numbers for the monitor");
    }
    DDP_TRY(ddp_comm_agree(comm, status));
    DDP_TRY(ddp_comm_broadcast(comm, net->token, sizeof(net->token), 0));
    DDP_TRY(ddp_comm_allgather(comm, &mine, sizeof(mine), net->places));
    comm->far = monitor->board->far;
out:
    return status;
}

void ddp_monitor_net_close(ddp_monitor_t *monitor)
{
    ddp_monitor_net_t *net = &monitor->net;

    if (net->is_used) {
        monitor->comm->far = NULL;
        drop_all(monitor);
        if (net->door >= 0) {
            close(net->door);
        }
    }
    free(net->places);
    free(net->child);
    free(net->closed_ns);
    free(net->via);
    free(net->reach);
}
