/* The model: times of sums over machines as pure functions of a link, bytes and machines. */
#include "ddp/link.h"

const char *ddp_exchange_name(ddp_exchange_kind_t kind)
{
    static const char *const names[] = {"auto", "direct", "ring", "halving", "measured"};

    return (size_t)kind < sizeof(names) / sizeof(names[0]) ? names[kind] : "unknown";
}

/* Rates of 0 are not known, and what they are about is left out. */
static double seconds(double bytes, double bytes_per_s)
{
    return bytes_per_s > 0 ? bytes / bytes_per_s : 0;
}

/* Of all segments' messages in `rounds` that follow each other; `at_once` of them leave in each. */
static double start_up_s(const ddp_link_t *link, const ddp_link_work_t *work, double rounds, double at_once)
{
    return rounds * (link->latency_s + link->overhead_s * at_once * work->segments);
}

static double add_s(const ddp_link_t *link, const ddp_link_work_t *work, double bytes)
{
    return seconds(bytes / (work->ranks > 0 ? work->ranks : 1), link->added_bytes_per_s);
}

/* n (p - 1) / p to others, and as much back; with the tree a machine may have several partial sums. */
static double direct_s(const ddp_link_t *link, const ddp_link_work_t *work)
{
    const double p     = work->machines;
    const double share = work->bytes * (p - 1) / p;
    const double nodes = work->nodes > 1 ? work->nodes : 1;

    return start_up_s(link, work, 1, (p - 1) * nodes) + start_up_s(link, work, 1, p - 1) +
           seconds(share * (nodes + 1), link->spread_per_s > 0 ? link->spread_per_s : link->bytes_per_s) +
           add_s(link, work, share * nodes) / work->segments;
}

static double ring_s(const ddp_link_t *link, const ddp_link_work_t *work)
{
    const double p     = work->machines;
    const double share = work->bytes * (p - 1) / p;

    return start_up_s(link, work, 2 * (p - 1), 1) + seconds(2 * share, link->bytes_per_s) +
           add_s(link, work, share) / work->segments;
}

/* log2(q) halvings and as many doublings among the largest power of two q; who is beyond it sends all of it
 * to a partner before, and gets all of it after. */
static double halving_s(const ddp_link_t *link, const ddp_link_work_t *work)
{
    double q      = 1;
    double rounds = 0;
    double time;

    while (2 * q <= work->machines) {
        q *= 2;
        rounds += 1;
    }
    time = start_up_s(link, work, 2 * rounds, 1) + seconds(2 * work->bytes * (q - 1) / q, link->bytes_per_s) +
           add_s(link, work, work->bytes * (q - 1) / q) / work->segments;
    if (q < work->machines) {
        time += start_up_s(link, work, 2, 1) + seconds(2 * work->bytes, link->bytes_per_s) +
                add_s(link, work, work->bytes) / work->segments;
    }
    return time;
}

double ddp_link_between_s(const ddp_link_t *link, const ddp_link_work_t *work)
{
    if (work->machines <= 1) {
        return 0;
    }
    switch (work->kind) {
    case DDP_EXCHANGE_RING:
        return ring_s(link, work);
    case DDP_EXCHANGE_HALVING:
        return halving_s(link, work);
    case DDP_EXCHANGE_AUTO:
    case DDP_EXCHANGE_MEASURED:
    case DDP_EXCHANGE_DIRECT:
        break;
    }
    return direct_s(link, work);
}

double ddp_link_time_s(const ddp_link_t *link, const ddp_link_work_t *work)
{
    const double others = work->ranks > 1 ? work->ranks - 1 : 0;

    return ddp_link_between_s(link, work) + add_s(link, work, others * work->bytes);
}

ddp_exchange_kind_t ddp_link_choose(const ddp_link_t *link, const ddp_link_work_t *work)
{
    static const ddp_exchange_kind_t kinds[] = {DDP_EXCHANGE_RING, DDP_EXCHANGE_HALVING};
    ddp_link_work_t                  trial   = *work;
    ddp_exchange_kind_t              best    = DDP_EXCHANGE_DIRECT;
    double                           least;

    trial.kind = best;
    least      = ddp_link_between_s(link, &trial);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        double time;

        trial.kind = kinds[i];
        time       = ddp_link_between_s(link, &trial);
        if (time < least) {
            least = time;
            best  = kinds[i];
        }
    }
    return best;
}
