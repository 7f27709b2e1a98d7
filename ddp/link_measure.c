/*
 * Measured links. All machines do the same at the same time, as in training: each sends to the next one, or
 * to all others. Sizes grow until a message takes long enough to be more than its latency; what is decided on
 * the way is decided from times that all ranks know.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/call.h"
#include "base/clock.h"
#include "base/convert.h"
#include "base/error.h"
#include "ddp/comm_state_internal.h"
#include "ddp/link.h"
#include "kernels/layout.h"
#include "kernels/optim.h"

#define FIRST_BYTES ((size_t)64 << 10)
#define SMALL_BYTES 8
#define BURST       16                   /* small messages to see what each one more costs */
#define LONG_NS     (10 * DDP_NS_PER_MS) /* a message that takes so long says what the rate is */
#define ADD_BLOCKS  ((size_t)512)
#define ADD_ROUNDS  4
#define TAG         1 /* of a communicator without other messages under way */

typedef struct measure {
    ddp_comm_t              *comm;
    const ddp_link_params_t *params;
    int                      machines, machine;
    bool         is_leader; /* sends and receives; the machine's other ranks only hear of the times */
    char        *out, *in;  /* owned, [capacity] */
    size_t       capacity;
    MPI_Request *requests; /* owned, [2 * (machines > BURST ? machines : BURST)] */
    int         *peers;    /* owned */
    int          n;
    double      *seconds;    /* owned, [rounds] */
    double      *all;        /* owned, [ranks] */
    bool         is_pending; /* messages may be under way for ever */
    int64_t      start_ns;
} measure_t;

static ddp_status_t allocate(measure_t *m)
{
    ddp_status_t status = DDP_OK;
    const size_t most   = 2 * (size_t)(m->machines > BURST ? m->machines : BURST);
    int          bytes;

    DDP_REQUIRE(m->params->struct_size == sizeof(*m->params) && m->params->rounds > 0 &&
                    m->params->limit_ms > 0 && m->params->most_bytes >= SMALL_BYTES * BURST,
                DDP_ERR_INVALID_ARG,
                "a link is measured with rounds, a limit, and messages of 128 bytes or more");
    DDP_TRY(ddp_to_int(m->params->most_bytes, "bytes of a message", &bytes));
    m->capacity = (size_t)bytes;
    m->out      = calloc(1, m->capacity);
    m->in       = calloc(1, m->capacity);
    m->requests = calloc(most, sizeof(MPI_Request));
    m->peers    = calloc(most, sizeof(int));
    m->seconds  = calloc((size_t)m->params->rounds, sizeof(double));
    m->all      = calloc((size_t)ddp_comm_size(m->comm), sizeof(double));
    DDP_REQUIRE(m->out != NULL && m->in != NULL && m->requests != NULL && m->peers != NULL &&
                    m->seconds != NULL && m->all != NULL,
                DDP_ERR_NO_MEMORY, "no memory to measure the links between machines");
out:
    return status;
}

static ddp_status_t begin(measure_t *m, ddp_comm_t *comm, const ddp_link_params_t *params)
{
    *m = (measure_t){.comm      = comm,
                     .params    = params,
                     .machines  = ddp_comm_machines(comm),
                     .machine   = ddp_comm_machine(comm),
                     .is_leader = ddp_comm_local_rank(comm) == 0,
                     .start_ns  = ddp_clock_ns()};
    return ddp_comm_agree(comm, allocate(m));
}

static void end(measure_t *m)
{
    if (!m->is_pending) { /* else MPI may still write there */
        free(m->out);
        free(m->in);
        free(m->requests);
    }
    free(m->peers);
    free(m->seconds);
    free(m->all);
}

static ddp_status_t post(measure_t *m, bool is_send, char *data, size_t bytes, int machine)
{
    ddp_status_t status  = DDP_OK;
    const int    peer    = ddp_comm_machine_first(m->comm, machine);
    MPI_Comm     mpi     = ddp_comm_data_mpi(m->comm);
    MPI_Request *request = &m->requests[m->n];

    m->is_pending    = true;
    m->peers[m->n++] = peer;
    if (is_send) {
        DDP_TRY_MPI(MPI_Isend(data, (int)bytes, MPI_BYTE, peer, TAG, mpi, request));
    } else {
        DDP_TRY_MPI(MPI_Irecv(data, (int)bytes, MPI_BYTE, peer, TAG, mpi, request));
    }
out:
    return status;
}

static ddp_status_t await(measure_t *m)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(ddp_comm_wait_messages(m->comm, m->requests, m->peers, m->n,
                                   (ddp_wait_t){0, "part in measuring the links", 0, (size_t)-1}));
    m->is_pending = false;
out:
    return status;
}

/* `count` messages of `bytes` to the next machine, as many from the one before. */
static ddp_status_t to_next(measure_t *m, size_t bytes, int count)
{
    ddp_status_t status = DDP_OK;
    const int    next   = (m->machine + 1) % m->machines;
    const int    before = (m->machine + m->machines - 1) % m->machines;

    m->n = 0;
    for (int i = 0; i < count; i++) {
        DDP_TRY(post(m, false, m->in + (size_t)i * bytes, bytes, before));
    }
    for (int i = 0; i < count; i++) {
        DDP_TRY(post(m, true, m->out + (size_t)i * bytes, bytes, next));
    }
    DDP_TRY(await(m));
out:
    return status;
}

/* `bytes` in all, in equal parts, to all other machines and from them. */
static ddp_status_t to_all(measure_t *m, size_t bytes, int count)
{
    ddp_status_t status = DDP_OK;
    const size_t part   = bytes / (size_t)(m->machines - 1);

    (void)count;
    m->n = 0;
    for (int i = 0; i < m->machines - 1; i++) {
        const int from = (m->machine + m->machines - 1 - i) % m->machines;

        DDP_TRY(post(m, false, m->in + (size_t)i * part, part, from));
    }
    for (int i = 0; i < m->machines - 1; i++) {
        DDP_TRY(post(m, true, m->out + (size_t)i * part, part, (m->machine + 1 + i) % m->machines));
    }
    DDP_TRY(await(m));
out:
    return status;
}

/* The slowest machine's median, for all ranks. */
static ddp_status_t share(measure_t *m, double *seconds_p)
{
    ddp_status_t status = DDP_OK;
    double       mine   = 0;

    if (m->is_leader) {
        qsort(m->seconds, (size_t)m->params->rounds, sizeof(double), ddp_ascending);
        mine = m->seconds[m->params->rounds / 2];
    }
    DDP_TRY(ddp_comm_allgather(m->comm, &mine, sizeof(mine), m->all));
    for (int r = 0; r < ddp_comm_size(m->comm); r++) {
        mine = m->all[r] > mine ? m->all[r] : mine;
    }
    *seconds_p = mine;
out:
    return status;
}

typedef ddp_status_t (*pattern_t)(measure_t *m, size_t bytes, int count);

/* Rounds of a pattern, after one that does not count. */
static ddp_status_t time_pattern(measure_t *m, pattern_t pattern, size_t bytes, int count, double *seconds_p)
{
    ddp_status_t status = DDP_OK;

    for (int round = -1; m->is_leader && round < m->params->rounds; round++) {
        const int64_t start = ddp_clock_ns();

        DDP_TRY(pattern(m, bytes, count));
        if (round >= 0) {
            m->seconds[round] = (double)(ddp_clock_ns() - start) / 1e9;
        }
    }
    DDP_TRY(share(m, seconds_p));
out:
    return status;
}

/* From equal times on all ranks: is there time for twice the bytes? The limit is for the whole measurement,
 * of which this is one of `parts`. */
static bool may_double(const measure_t *m, size_t bytes, double last_s, double used_s, int parts)
{
    const double limit_s = m->params->limit_ms / 1e3 / parts;
    const double next_s  = 2 * last_s * (m->params->rounds + 1);

    return 2 * bytes <= m->capacity && last_s < LONG_NS / 1e9 && used_s + next_s < limit_s;
}

/* Bytes a second of a pattern, at a size that takes long enough. */
static ddp_status_t rate_of(measure_t *m, pattern_t pattern, double latency_s, double *rate_p)
{
    ddp_status_t status  = DDP_OK;
    size_t       bytes   = FIRST_BYTES < m->capacity ? FIRST_BYTES : m->capacity;
    double       seconds = 0;
    double       used    = 0;

    for (;;) {
        DDP_TRY(time_pattern(m, pattern, bytes, 1, &seconds));
        used += seconds * (m->params->rounds + 1);
        if (!may_double(m, bytes, seconds, used, 2)) {
            break;
        }
        bytes *= 2;
    }
    *rate_p = (double)bytes / (seconds > 2 * latency_s ? seconds - latency_s : seconds);
out:
    return status;
}

/* Local: what adding a summand costs one rank. */
static ddp_status_t measure_adding(double *rate_p)
{
    ddp_status_t status = DDP_OK;
    const size_t bytes  = ADD_BLOCKS * DDP_BLOCK * sizeof(float);
    float       *both   = aligned_alloc(DDP_ALIGNMENT, 2 * bytes);
    int64_t      best   = INT64_MAX;

    DDP_REQUIRE(both != NULL, DDP_ERR_NO_MEMORY, "no memory to measure additions");
    memset(both, 0, 2 * bytes);
    for (int round = 0; round < ADD_ROUNDS; round++) {
        const int64_t start = ddp_clock_ns();
        int64_t       took;

        ddp_block_add(ddp_isa_detect(), both, both + ADD_BLOCKS * DDP_BLOCK, ADD_BLOCKS);
        took = ddp_clock_ns() - start;
        best = took < best ? took : best;
    }
    *rate_p = (double)bytes / ((double)(best > 0 ? best : 1) / 1e9);
out:
    free(both);
    return status;
}

ddp_status_t ddp_link_measure(ddp_comm_t *comm, const ddp_link_params_t *params, ddp_link_t *link_p)
{
    ddp_status_t status = DDP_OK;
    ddp_link_t   link   = {0};
    double       burst  = 0;
    measure_t    m;

    DDP_TRY(begin(&m, comm, params));
    DDP_TRY(ddp_comm_agree(comm, measure_adding(&link.added_bytes_per_s)));
    DDP_TRY(ddp_comm_broadcast(comm, &link.added_bytes_per_s, sizeof(link.added_bytes_per_s), 0));
    if (m.machines > 1) {
        DDP_TRY(time_pattern(&m, to_next, SMALL_BYTES, 1, &link.latency_s));
        DDP_TRY(time_pattern(&m, to_next, SMALL_BYTES, BURST, &burst));
        link.overhead_s = burst > link.latency_s ? (burst - link.latency_s) / (BURST - 1) : 0;
        DDP_TRY(rate_of(&m, to_next, link.latency_s, &link.bytes_per_s));
        link.spread_per_s = link.bytes_per_s;
        if (m.machines > 2) {
            DDP_TRY(rate_of(&m, to_all, link.latency_s, &link.spread_per_s));
        }
    }
    *link_p = link;
out:
    end(&m);
    return status;
}

ddp_status_t ddp_comm_link(ddp_comm_t *comm, ddp_link_t *link_p)
{
    const ddp_link_params_t params = DDP_LINK_PARAMS_INIT;
    ddp_status_t            status = DDP_OK;

    if (!comm->has_link) {
        DDP_TRY(ddp_link_measure(comm, &params, &comm->link));
        comm->has_link = true;
    }
    *link_p = comm->link;
out:
    return status;
}

/* Who meets machine `a` in round t: one machine stays, the others move on by one (a round-robin tournament).
 * With an odd number the one that stays is nobody. @return `a` itself: it pauses */
static int opponent(int machines, int a, int t)
{
    const int n     = machines + machines % 2; /* n - 1 stays */
    const int turn  = n - 1;
    int       other = (2 * t - a) % turn;

    if (a == n - 1) {
        return t % turn;
    }
    other = other < 0 ? other + turn : other;
    if (other == a) {
        other = n - 1;
    }
    return other < machines ? other : a;
}

/* Both ways at once between this machine and `other`. */
static ddp_status_t meet(measure_t *m, int other, size_t bytes, double *seconds_p)
{
    ddp_status_t status = DDP_OK;

    for (int round = -1; round < m->params->rounds; round++) {
        const int64_t start = ddp_clock_ns();

        m->n = 0;
        DDP_TRY(post(m, false, m->in, bytes, other));
        DDP_TRY(post(m, true, m->out, bytes, other));
        DDP_TRY(await(m));
        m->seconds[round < 0 ? 0 : round] = (double)(ddp_clock_ns() - start) / 1e9;
    }
    qsort(m->seconds, (size_t)m->params->rounds, sizeof(double), ddp_ascending);
    *seconds_p = m->seconds[m->params->rounds / 2];
out:
    return status;
}

/* One pair's link. The two decide from one time, the lower machine's. */
static ddp_status_t measure_pair(measure_t *m, int other, int rounds, ddp_link_t *link)
{
    ddp_status_t status  = DDP_OK;
    const double limit_s = m->params->limit_ms / 1e3 / rounds;
    size_t       bytes   = FIRST_BYTES < m->capacity ? FIRST_BYTES : m->capacity;
    double       seconds = 0;
    double       used    = 0;
    double       agreed;

    DDP_TRY(meet(m, other, SMALL_BYTES, &link->latency_s));
    for (;;) {
        DDP_TRY(meet(m, other, bytes, &seconds));
        memcpy(m->out, &seconds, sizeof(seconds));
        m->n = 0;
        DDP_TRY(post(m, false, m->in, sizeof(agreed), other));
        DDP_TRY(post(m, true, m->out, sizeof(agreed), other));
        DDP_TRY(await(m));
        memcpy(&agreed, m->in, sizeof(agreed));
        seconds = agreed > seconds ? agreed : seconds;
        used += seconds * (m->params->rounds + 1);
        if (2 * bytes > m->capacity || seconds >= LONG_NS / 1e9 ||
            used + 2 * seconds * (m->params->rounds + 1) > limit_s) {
            break;
        }
        bytes *= 2;
    }
    link->bytes_per_s = (double)bytes / (seconds > 2 * link->latency_s ? seconds - link->latency_s : seconds);
out:
    return status;
}

/* The rows of all machines, from their first ranks. Both ends have measured; the slower one counts. */
static ddp_status_t collect(measure_t *m, const ddp_link_t *row, ddp_link_t *pairs)
{
    ddp_status_t status = DDP_OK;
    const size_t n      = (size_t)m->machines;
    ddp_link_t  *rows   = calloc((size_t)ddp_comm_size(m->comm) * n, sizeof(*rows));

    DDP_TRY(
        ddp_comm_agree(m->comm, rows != NULL ? DDP_OK : ddp_fail(DDP_ERR_NO_MEMORY, "no memory for links")));
    DDP_TRY(ddp_comm_allgather(m->comm, row, n * sizeof(*row), rows));
    for (size_t a = 0; a < n; a++) {
        for (size_t b = 0; b < n; b++) {
            const ddp_link_t *there = &rows[(size_t)ddp_comm_machine_first(m->comm, (int)a) * n + b];
            const ddp_link_t *back  = &rows[(size_t)ddp_comm_machine_first(m->comm, (int)b) * n + a];

            pairs[a * n + b] = (ddp_link_t){
                .latency_s = there->latency_s > back->latency_s ? there->latency_s : back->latency_s,
                .bytes_per_s =
                    there->bytes_per_s < back->bytes_per_s ? there->bytes_per_s : back->bytes_per_s,
            };
        }
    }
out:
    free(rows);
    return status;
}

ddp_status_t ddp_link_measure_pairs(ddp_comm_t *comm, const ddp_link_params_t *params, ddp_link_t *pairs)
{
    ddp_status_t status = DDP_OK;
    ddp_link_t  *row    = NULL;
    int          rounds;
    measure_t    m;

    DDP_TRY(begin(&m, comm, params));
    rounds = m.machines + m.machines % 2 - 1;
    row    = calloc((size_t)m.machines, sizeof(*row));
    DDP_TRY(ddp_comm_agree(comm, row != NULL ? DDP_OK : ddp_fail(DDP_ERR_NO_MEMORY, "no memory for links")));
    for (int t = 0; t < rounds; t++) {
        const int other = opponent(m.machines, m.machine, t);

        if (m.is_leader && other != m.machine) {
            DDP_TRY(measure_pair(&m, other, rounds, &row[other]));
        }
        DDP_TRY(ddp_comm_barrier(comm));
    }
    DDP_TRY(collect(&m, row, pairs));
out:
    end(&m);
    free(row);
    return status;
}
