/* Who is reported to. Machine m reports to machine (m - 1) / 32; where that is lost, to the lowest machine
 * that is reached; where none below is left, it judges itself. All lose it at about the same time, and try
 * the same machines in the same order, so that the lowest which is left judges and the others come to it. */
#include "base/clock.h"
#include "base/log.h"
#include "ddp/monitor_internal.h"

#define PAUSE_NS (200 * DDP_NS_PER_MS)   /* between two rounds of calls */
#define WARN_NS  (20000 * DDP_NS_PER_MS) /* nobody was ever reached */
#define AT_ONCE  16                      /* messages, or calls, before others are heard */
/* Of a machine that is tried after the limit, as others are lost: for a call, and for all ranks. */
#define HASTE_CALL_NS (250 * DDP_NS_PER_MS)
#define HASTE_NS      (500 * DDP_NS_PER_MS)

static int parent_of(int machine)
{
    return (machine - 1) / DDP_MONITOR_FAN;
}

static bool all_done(const ddp_monitor_t *monitor, int machine)
{
    const ddp_comm_t *comm = monitor->comm;

    for (int r = comm->machine_first[machine]; r < comm->machine_first[machine + 1]; r++) {
        if (monitor->view[r].life != DDP_LIFE_DONE) {
            return false;
        }
    }
    return true;
}

/* mpirun has begun to end the ranks of this machine. */
static bool is_sent_away(const ddp_monitor_t *monitor)
{
    for (int r = monitor->first; r < monitor->first + monitor->count; r++) {
        if (monitor->view[r].is_sent_away) {
            return true;
        }
    }
    return false;
}

/* How long who is reported to may be silent: as the judge has it. */
static int64_t patience_ns(const ddp_monitor_t *monitor)
{
    const int64_t limit = monitor->comm->timeout_ms * DDP_NS_PER_MS;
    const int64_t deaf  = ddp_monitor_deaf_ns(monitor->size);

    return is_sent_away(monitor) || limit < deaf ? deaf : limit;
}

/* By then another rank of a machine speaks, if it has one that runs. */
static int64_t ask_ns(const ddp_monitor_t *monitor)
{
    return ddp_monitor_take_over_ns(monitor->comm->timeout_ms * DDP_NS_PER_MS) * 3 / 2;
}

/* When any other machine was last heard of, here or by who judged before. */
static int64_t last_heard(const ddp_monitor_t *monitor)
{
    int64_t last = 0;

    for (int r = 0; r < monitor->size; r++) {
        const bool is_other = monitor->comm->machine_of[r] != monitor->comm->machine;

        last = is_other && monitor->view[r].heard_ns > last ? monitor->view[r].heard_ns : last;
    }
    return last;
}

/* All below are lost: this machine judges now. Those that are not have the whole limit to be heard of here,
 * but for the time in which they were already silent while others were not. */
static void become_root(ddp_monitor_t *monitor)
{
    ddp_monitor_net_t *net  = &monitor->net;
    const int64_t      late = monitor->now_ns - patience_ns(monitor) - 1;
    const int64_t      last = last_heard(monitor);

    net->is_root = true;
    for (int r = 0; r < monitor->size; r++) {
        const int   machine = monitor->comm->machine_of[r];
        ddp_view_t *view    = &monitor->view[r];

        if (machine == monitor->comm->machine) {
            continue;
        }
        view->heard_ns += monitor->now_ns - last;
        if (net->reach[machine] == DDP_REACH_OPEN) {
            continue;
        }
        view->life = view->life == DDP_LIFE_UNKNOWN ? DDP_LIFE_RUNS : view->life;
        if (net->reach[machine] == DDP_REACH_SILENT) {
            view->heard_ns = net->alone_ns < late ? net->alone_ns : late;
        } else if (view->life == DDP_LIFE_RUNS) {
            view->life        = DDP_LIFE_ENDED;
            view->life_ns     = monitor->now_ns;
            view->is_inferred = true;
        }
    }
}

static void choose_target(ddp_monitor_t *monitor)
{
    ddp_monitor_net_t *net  = &monitor->net;
    const int          mine = monitor->comm->machine;

    net->turn_rank  = 0;
    net->turn       = 0;
    net->is_refused = true;
    net->target     = parent_of(mine);
    net->target_ns  = monitor->now_ns;
    for (int m = 0; net->reach[net->target] != DDP_REACH_OPEN && m < mine; m++) {
        net->target = m;
    }
    if (net->reach[net->target] != DDP_REACH_OPEN) {
        become_root(monitor);
    }
}

static void give_up_target(ddp_monitor_t *monitor, ddp_reach_t reach)
{
    monitor->net.reach[monitor->net.target] = (int)reach;
    monitor->net.pause_ns                   = 0;
    choose_target(monitor);
}

/* All addresses of all ranks of the target have been tried. */
static void end_round(ddp_monitor_t *monitor)
{
    ddp_monitor_net_t *net     = &monitor->net;
    const int64_t      limit   = patience_ns(monitor);
    const int64_t      lasting = monitor->now_ns - net->alone_ns;

    net->pause_ns  = monitor->now_ns + PAUSE_NS;
    net->turn_rank = 0;
    net->turn      = 0;
    if (!net->had_parent) { /* a network that lets MPI through and nothing else is no fault of a rank */
        if (lasting > WARN_NS && !net->is_warned) {
            net->is_warned = true;
            ddp_log(
                DDP_LOG_WARN,
                "the monitor does not reach %s: ranks of other machines are not watched from here; name a "
                "network in ddp.interfaces that lets TCP through",
                ddp_comm_host(monitor->comm, monitor->comm->machine_first[net->target]));
        }
        net->is_refused = true;
    } else if (net->is_refused) {
        give_up_target(monitor, DDP_REACH_ENDED);
    } else if (lasting > limit) {
        give_up_target(monitor, DDP_REACH_SILENT);
    } else {
        net->is_refused = true;
    }
}

/* The next address of the next rank of the target. */
static ddp_news_t call_next(ddp_monitor_t *monitor)
{
    ddp_monitor_net_t *net   = &monitor->net;
    const int          first = monitor->comm->machine_first[net->target];
    const ddp_place_t *here  = &net->places[monitor->comm->rank];

    while (first + net->turn_rank < monitor->comm->machine_first[net->target + 1]) {
        const ddp_place_t *there   = &net->places[first + net->turn_rank];
        const uint32_t     address = ddp_place_address(here, there, net->turn);

        if (address != 0) {
            net->turn++;
            return ddp_call_begin(&net->call, address, there->port, monitor->now_ns);
        }
        net->turn = 0;
        net->turn_rank++;
    }
    end_round(monitor);
    return DDP_NEWS_NONE;
}

/* The limit is over, and the call takes too long. @return true: it is given up, or its machine */
static bool is_call_over(ddp_monitor_t *monitor)
{
    ddp_monitor_net_t *net      = &monitor->net;
    const int64_t      limit    = net->alone_ns + patience_ns(monitor);
    const bool         is_first = net->target_ns < limit;

    if (net->call.fd < 0 || !net->had_parent || monitor->now_ns <= limit) {
        return false;
    }
    if (is_first || monitor->now_ns - net->target_ns > HASTE_NS) {
        ddp_call_drop(&net->call);
        give_up_target(monitor, DDP_REACH_SILENT);
        return true;
    }
    if (monitor->now_ns - net->call.since_ns > HASTE_CALL_NS) {
        ddp_call_drop(&net->call);
        net->is_refused = false;
        return true;
    }
    return false;
}

/* @return true: the next call can be made at once */
static bool call_once(ddp_monitor_t *monitor)
{
    ddp_monitor_net_t *net  = &monitor->net;
    ddp_news_t         news = DDP_NEWS_NONE;

    if (is_call_over(monitor)) {
        return !net->is_root;
    }
    if (net->call.fd >= 0) {
        news = ddp_call_look(&net->call, net->token, monitor->comm->machine, monitor->comm->rank,
                             monitor->now_ns, &net->parent);
    } else if (monitor->now_ns >= net->pause_ns) {
        news = call_next(monitor);
    }
    if (news == DDP_NEWS_OPEN) {
        net->parent.machine = net->target;
        net->parent.rank    = monitor->comm->machine_first[net->target] + net->turn_rank;
        net->had_parent     = true;
        net->told_ns        = 0;
    } else if (news == DDP_NEWS_FAILED) {
        net->is_refused = false;
    }
    return net->call.fd < 0 && net->parent.fd < 0 && !net->is_root && monitor->now_ns >= net->pause_ns;
}

static void call_up(ddp_monitor_t *monitor)
{
    for (int n = 0; n < AT_ONCE && call_once(monitor); n++) {
    }
}

void ddp_monitor_is_left(ddp_monitor_t *monitor)
{
    const ddp_verdict_t verdict = {
        .kind = DDP_FAULT_STOPPED, .rank = monitor->comm->rank, .other = -1, .bucket = DDP_NO_BUCKET};

    if (monitor->now_ns < monitor->left_ns) {
        ddp_monitor_tell_machine(monitor, &verdict);
    }
}

void ddp_monitor_up_lose(ddp_monitor_t *monitor)
{
    ddp_monitor_net_t *net = &monitor->net;

    ddp_peer_close(&net->parent);
    net->is_released = all_done(monitor, net->target);
    if (!net->is_released) { /* else it has ended as it should */
        ddp_monitor_is_left(monitor);
    }
    net->alone_ns   = net->parent.is_silent ? net->parent.heard_ns : monitor->now_ns;
    net->pause_ns   = monitor->now_ns;
    net->turn_rank  = 0;
    net->turn       = 0;
    net->is_refused = true;
}

/* Who spoke for the machine that is reported to has not done so for long: another rank does, if it was
 * stopped. */
static void ask_others(ddp_monitor_t *monitor)
{
    ddp_monitor_net_t *net   = &monitor->net;
    const int          first = monitor->comm->machine_first[net->target];
    const int          next  = net->parent.rank + 1 - first;

    ddp_peer_hand_over(&net->parent);
    net->parent.is_silent = true;
    ddp_monitor_up_lose(monitor);
    net->turn_rank  = next < ddp_comm_machine_size(monitor->comm, net->target) ? next : 0;
    net->is_refused = false; /* not all are asked */
}

static bool hear_parent(ddp_monitor_t *monitor)
{
    ddp_peer_t   *peer    = &monitor->net.parent;
    bool          is_new  = false;
    bool          is_bad  = false;
    const bool    is_open = ddp_peer_read(peer);
    int           n       = 0;
    ddp_verdict_t verdict;
    ddp_message_t message;

    for (; n < AT_ONCE && ddp_peer_next(peer, &message, &is_bad); n++) {
        peer->heard_ns = monitor->now_ns;
        if (ddp_verdict_read(&message, monitor->size, &verdict)) {
            ddp_monitor_tell_machine(monitor, &verdict);
        } else if (message.type != DDP_MESSAGE_TABLE ||
                   !ddp_monitor_take_entries(monitor, &message, -1, &is_new)) {
            is_bad = true;
            break;
        }
    }
    if (is_bad || (!is_open && n < AT_ONCE)) { /* first all that it said */
        ddp_monitor_up_lose(monitor);
    } else if (monitor->now_ns - peer->heard_ns > patience_ns(monitor)) {
        ddp_monitor_up_lose(monitor);
        monitor->net.alone_ns = peer->heard_ns;
        give_up_target(monitor, DDP_REACH_SILENT);
    } else if (monitor->now_ns - peer->heard_ns > ask_ns(monitor) && monitor->now_ns >= monitor->left_ns &&
               ddp_comm_machine_size(monitor->comm, peer->machine) > 1) {
        ask_others(monitor);
    }
    return is_new;
}

void ddp_monitor_up_begin(ddp_monitor_t *monitor)
{
    ddp_monitor_net_t *net = &monitor->net;

    for (int m = 0; m < monitor->comm->machines; m++) {
        net->reach[m] = DDP_REACH_OPEN;
    }
    net->is_root     = monitor->comm->machine == 0;
    net->is_released = false;
    net->pause_ns    = 0;
    net->alone_ns    = monitor->now_ns;
    if (!net->is_root) {
        choose_target(monitor);
    }
}

bool ddp_monitor_up_hear(ddp_monitor_t *monitor)
{
    ddp_monitor_net_t *net    = &monitor->net;
    bool               is_new = false;

    if (net->parent.fd >= 0) {
        is_new = hear_parent(monitor);
    }
    if (net->parent.fd < 0 && !net->is_root && !net->is_released) {
        call_up(monitor);
    }
    return is_new;
}
