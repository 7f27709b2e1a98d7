/* The links between machines: measured, and judged. */
#include <stdlib.h>
#include <string.h>

#include "base/convert.h"
#include "base/error.h"
#include "launcher/doctor_internal.h"

/* Of all pairs together; each has its share. */
#define PAIR_MS     300
#define MOST_MS     15000
#define MOST_PAIRED 32 /* machines; of more only the slowest is looked for */
#define PAIRS_TOLD  6
#define SLOW_SHARE  3 /* a link this many times slower than the median one */
#define LITTLE_USED 4 /* and one that gets so little of what the interface is made for */
#define BITS_PER_MB 8e-6

/* The first rank of a machine. */
static const ddp_facts_t *find_machine(const ddp_facts_t *facts, int n, int machine)
{
    for (int r = 0; r < n; r++) {
        if (facts[r].machine == machine) {
            return &facts[r];
        }
    }
    return &facts[0];
}

static int32_t fastest_mbit(const ddp_facts_t *facts)
{
    int32_t most = 0;

    for (int32_t i = 0; i < facts->n_nics; i++) {
        most = facts->nic[i].mbit > most ? facts->nic[i].mbit : most;
    }
    return most;
}

/* Of the rates of all pairs; 0 where there are too few to compare. */
static double median_rate(const ddp_link_t *pairs, int machines)
{
    double *rate   = calloc((size_t)machines * (size_t)machines, sizeof(*rate));
    size_t  n      = 0;
    double  median = 0;

    for (int a = 0; a < machines && rate != NULL; a++) {
        for (int b = a + 1; b < machines; b++) {
            rate[n++] = pairs[a * machines + b].bytes_per_s;
        }
    }
    if (n > 1) {
        qsort(rate, n, sizeof(*rate), ddp_ascending);
        median = rate[n / 2];
    }
    free(rate);
    return median;
}

/* Of the pairs that were not told yet. */
static int find_slowest(const ddp_link_t *pairs, int machines, const bool *is_told)
{
    int slowest = -1;

    for (int a = 0; a < machines; a++) {
        for (int b = a + 1; b < machines; b++) {
            const int at = a * machines + b;

            if (!is_told[at] && (slowest < 0 || pairs[at].bytes_per_s < pairs[slowest].bytes_per_s)) {
                slowest = at;
            }
        }
    }
    return slowest;
}

static void judge_pair(const ddp_facts_t *a, const ddp_facts_t *b, const ddp_link_t *link, double median,
                       ddp_findings_t *findings)
{
    const double   mbit    = link->bytes_per_s * BITS_PER_MB;
    const int32_t  made    = fastest_mbit(a) < fastest_mbit(b) ? fastest_mbit(a) : fastest_mbit(b);
    const bool     is_slow = link->bytes_per_s * SLOW_SHARE < median;
    const bool     is_poor = a->boot != b->boot && mbit * LITTLE_USED < made;
    const char    *fix     = NULL;
    char           why[64] = "";
    ddp_finding_t *finding;

    if (is_slow) {
        (void)snprintf(why, sizeof(why), "; others %.0f", median * BITS_PER_MB);
        fix = a->n_nics > 1 || b->n_nics > 1
                  ? "look at cable, switch and interface of these two, and at the network that is taken: "
                    "ddp.interfaces names another"
                  : "look at cable, switch and interface of these two";
    } else if (is_poor) {
        (void)snprintf(why, sizeof(why), "; an interface there is made for %d", made);
        fix =
            "name the network to use: ddp.interfaces, or mpirun --mca pml ob1 --mca btl_tcp_if_include NAME";
    }
    finding = ddp_findings_add(findings, fix != NULL ? DDP_FINDING_WARN : DDP_FINDING_OK, "network", "link",
                               fix, "%.64s and %.64s: %.1f us, %.0f Mbit/s each way%s", a->host, b->host,
                               link->latency_s * 1e6, mbit, why);
    ddp_finding_number(finding, "machine_a", a->machine);
    ddp_finding_number(finding, "machine_b", b->machine);
    ddp_finding_number(finding, "latency_us", link->latency_s * 1e6);
    ddp_finding_number(finding, "mbit_s", mbit);
}

void ddp_judge_links(const ddp_facts_t *facts, int n, const ddp_link_t *pairs, ddp_findings_t *findings)
{
    const int    machines = facts[n - 1].machine + 1;
    const int    all      = machines * (machines - 1) / 2;
    const double median   = median_rate(pairs, machines);
    bool        *is_told  = calloc((size_t)machines * (size_t)machines, sizeof(*is_told));

    for (int i = 0; is_told != NULL && i < all && i < PAIRS_TOLD; i++) {
        const int at = find_slowest(pairs, machines, is_told);

        is_told[at] = true;
        judge_pair(find_machine(facts, n, at / machines), find_machine(facts, n, at % machines), &pairs[at],
                   median, findings);
    }
    if (all > PAIRS_TOLD) {
        (void)ddp_findings_add(
            findings, DDP_FINDING_OK, "network", "links", NULL,
            "%d more pairs of machines are not slower than these; the median is %.0f Mbit/s",
            all - PAIRS_TOLD, median * BITS_PER_MB);
    }
    free(is_told);
}

static ddp_status_t measure_pairs(ddp_run_t *run, const ddp_link_params_t *params, const ddp_facts_t *all,
                                  ddp_findings_t *findings)
{
    const size_t machines = (size_t)ddp_comm_machines(run->comm);
    ddp_status_t status   = DDP_OK;
    ddp_link_t  *pairs    = calloc(machines * machines, sizeof(*pairs));

    status =
        pairs != NULL ? DDP_OK : ddp_fail(DDP_ERR_NO_MEMORY, "no memory for links of %zu machines", machines);
    DDP_TRY(ddp_comm_agree(run->comm, status));
    DDP_TRY(ddp_link_measure_pairs(run->comm, params, pairs));
    if (findings != NULL) {
        ddp_judge_links(all, ddp_comm_size(run->comm), pairs, findings);
    }
out:
    free(pairs);
    return status;
}

ddp_status_t ddp_doctor_measure_links(ddp_run_t *run, const ddp_facts_t *all, ddp_findings_t *findings)
{
    const int         machines = ddp_comm_machines(run->comm);
    ddp_status_t      status   = DDP_OK;
    ddp_link_params_t params   = DDP_LINK_PARAMS_INIT;
    ddp_link_t        link;
    ddp_finding_t    *finding;

    if (machines == 1) {
        return DDP_OK;
    }
    params.limit_ms = PAIR_MS * machines < MOST_MS ? PAIR_MS * machines : MOST_MS;
    if (machines <= MOST_PAIRED) {
        return measure_pairs(run, &params, all, findings);
    }
    DDP_TRY(ddp_link_measure(run->comm, &params, &link));
    if (findings != NULL) {
        finding = ddp_findings_add(findings, DDP_FINDING_OK, "network", "links", NULL,
                                   "the slowest of %d machines, all at once: %.1f us, %.0f Mbit/s", machines,
                                   link.latency_s * 1e6, link.bytes_per_s * BITS_PER_MB);
        ddp_finding_number(finding, "latency_us", link.latency_s * 1e6);
        ddp_finding_number(finding, "mbit_s", link.bytes_per_s * BITS_PER_MB);
    }
out:
    return status;
}
