#include "launcher/measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/convert.h"
#include "base/error.h"
#include "launcher/data_parallel.h"

/* Phases of spans with train.mode ddp. */
enum { SPAN_FORWARD, SPAN_BACKWARD, SPAN_REDUCE, SPAN_EXPOSED, N_SPAN_PHASES };

static size_t micro_count(const ddp_run_t *run)
{
    size_t first = 0;
    size_t count = 0;

    ddp_reducer_range(run->reducer, &first, &count);
    return count;
}

/* The times of this rank's last step, [micro_count]; the caller frees them. NULL: no memory. */
static ddp_micro_times_t *micro_times(const ddp_run_t *run, int64_t *begin_ns_p, size_t *n_p)
{
    const size_t       most  = micro_count(run);
    ddp_micro_times_t *times = calloc(most > 0 ? most : 1, sizeof(*times));

    *n_p = times != NULL ? ddp_trainer_times(run->trainer, begin_ns_p, times, most) : 0;
    return times;
}

void ddp_measure_step(const ddp_run_t *run, const ddp_step_result_t *result, int64_t wait_ns,
                      ddp_measure_t *measure_p)
{
    ddp_measure_t measure = {.steps = 1, .comm_ns = result->comm_ns, .exposed_ns = result->exposed_comm_ns};
    ddp_phase_times_t phases = {.steps = 0};

    if (run->dp != NULL) {
        ddp_run_dp_measure(run, result, measure_p);
        return;
    }
    phases              = ddp_trainer_take_phases(run->trainer);
    measure.forward_ns  = phases.forward_ns;
    measure.backward_ns = phases.backward_ns;
    measure.busy_ns[0]  = measure.forward_ns + measure.backward_ns + result->exposed_work_ns - wait_ns;
    *measure_p          = measure;
}

void ddp_measure_add(ddp_measure_t *sum, const ddp_measure_t *step)
{
    sum->steps += step->steps;
    sum->forward_ns += step->forward_ns;
    sum->backward_ns += step->backward_ns;
    sum->comm_ns += step->comm_ns;
    sum->exposed_ns += step->exposed_ns;
    for (size_t p = 0; p < DDP_DP_PHASES; p++) {
        sum->phase_ns[p] += step->phase_ns[p];
        sum->moved[p] = step->moved[p];
    }
    for (size_t d = 0; d < DDP_DP_MAX_DEVICES; d++) {
        sum->busy_ns[d] += step->busy_ns[d];
    }
}

/* Proportional set size: each page divided by the number of processes that map it. */
uint64_t ddp_own_pss(void)
{
    FILE    *file  = fopen("/proc/self/smaps_rollup", "r");
    uint64_t bytes = 0;
    char     line[128];

    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, "Pss:", 4) == 0) {
            bytes = strtoull(line + 4, NULL, 10) * 1024;
            break;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return bytes;
}

uint64_t ddp_own_peak_rss(void)
{
    struct rusage usage;

    return getrusage(RUSAGE_SELF, &usage) == 0 ? (uint64_t)usage.ru_maxrss * 1024 : 0;
}

/* This rank's part of what the machine's ranks share, and what it has of its own; with NCCL all is its own.
 */
static void own_memory(const ddp_run_t *run, ddp_dp_memory_t *memory)
{
    const size_t            local = (size_t)ddp_comm_local_size(run->comm);
    const ddp_tape_memory_t tape  = ddp_tape_held(run->tape);
    const bool              whole = run->config.ddp.backend == (int)DDP_REDUCER_NCCL;
    const size_t            parts = run->config.optimizer.shard ? (size_t)ddp_comm_size(run->comm) : 1;

    memory->parameters  = run->memory.parameters / (whole ? 1 : local);
    memory->moments     = run->memory.moments / (whole ? parts : local);
    memory->gradients   = run->memory.arenas * run->memory.parameters;
    memory->activations = tape.activations;
    memory->scratch     = tape.scratch + run->memory.kernels;
    memory->inputs      = run->memory.loader;
    memory->total       = memory->parameters + memory->moments + memory->gradients + memory->activations +
                    memory->scratch + memory->inputs;
}

static void own_traffic(const ddp_run_t *run, uint64_t *from, ddp_device_use_t *mine)
{
    const int first = ddp_comm_rank(run->comm) - ddp_comm_local_rank(run->comm);

    ddp_reducer_traffic(run->reducer, from);
    for (int r = 0; r < ddp_comm_size(run->comm); r++) {
        if (r >= first && r < first + ddp_comm_local_size(run->comm)) {
            mine->read += from[r];
        } else {
            mine->received += from[r];
        }
    }
}

ddp_status_t ddp_use_gather(ddp_run_t *run, const ddp_measure_t *sum, ddp_use_t *use_p)
{
    ddp_status_t     status = DDP_OK;
    const size_t     n      = (size_t)ddp_comm_size(run->comm);
    ddp_device_use_t mine   = {
          .id = ddp_comm_rank(run->comm), .pss = ddp_own_pss(), .peak_rss = ddp_own_peak_rss()};
    ddp_use_t use  = {.n = n};
    uint64_t *from = NULL;

    if (run->dp != NULL) {
        return ddp_run_dp_use(run, sum, use_p);
    }
    from       = calloc(n, sizeof(*from));
    use.device = calloc(n, sizeof(*use.device));
    use.link   = calloc(n * n, sizeof(*use.link));
    if (from == NULL || use.device == NULL || use.link == NULL) {
        status = ddp_fail(DDP_ERR_NO_MEMORY, "no memory for %zu ranks", n);
    }
    DDP_TRY(ddp_comm_agree(run->comm, status));
    own_memory(run, &mine.memory);
    if (sum->steps > 0) {
        mine.busy_ms = (double)sum->busy_ns[0] / (double)sum->steps / 1e6;
        own_traffic(run, from, &mine);
    }
    DDP_TRY(ddp_comm_allgather(run->comm, &mine, sizeof(mine), use.device));
    DDP_TRY(ddp_comm_allgather(run->comm, from, n * sizeof(*from), use.link));
    for (size_t r = 0; r < n; r++) {
        use.pss += use.device[r].pss;
        use.peak_rss = use.device[r].peak_rss > use.peak_rss ? use.device[r].peak_rss : use.peak_rss;
    }
    *use_p = use;
    use    = (ddp_use_t){.n = 0};
out:
    free(from);
    ddp_use_free(&use);
    return status;
}

void ddp_use_free(ddp_use_t *use)
{
    free(use->device);
    free(use->link);
    memset(use, 0, sizeof(*use));
}

const char *ddp_span_phase_name(const ddp_run_t *run, int phase)
{
    static const char *const names[N_SPAN_PHASES] = {
        [SPAN_FORWARD]  = "forward",
        [SPAN_BACKWARD] = "backward",
        [SPAN_REDUCE]   = "reduce",
        [SPAN_EXPOSED]  = "exposed",
    };

    return run->dp != NULL ? ddp_dp_phase_name((ddp_dp_phase_t)phase) : names[phase];
}

bool ddp_span_is_comm(const ddp_run_t *run, int phase)
{
    return run->dp == NULL && phase == SPAN_REDUCE;
}

/* Spans of one rank; those that it does not need have no end. */
typedef struct rank_spans {
    ddp_span_t *span; /* [room] */
    size_t      n;
    int32_t     rank;
    int64_t     shift_ns; /* from the step's begin on this rank to where the timeline begins */
} rank_spans_t;

static void add_span(rank_spans_t *spans, int phase, int64_t start_ns, int64_t end_ns)
{
    spans->span[spans->n++] = (ddp_span_t){phase,
                                           spans->rank,
                                           (double)(spans->shift_ns + start_ns) / 1e3,
                                           (double)(spans->shift_ns + end_ns) / 1e3,
                                           0,
                                           0};
}

static void add_micros(rank_spans_t *spans, const ddp_micro_times_t *times, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        add_span(spans, SPAN_FORWARD, times[i].forward_ns, times[i].backward_ns);
        spans->span[spans->n - 1].part = (int32_t)i;
        add_span(spans, SPAN_BACKWARD, times[i].backward_ns, times[i].end_ns);
        spans->span[spans->n - 1].part = (int32_t)i;
    }
}

static void add_buckets(rank_spans_t *spans, const ddp_bucket_times_t *times, size_t n)
{
    for (size_t b = 0; b < n; b++) {
        add_span(spans, SPAN_REDUCE, times[b].launched_ns, times[b].done_ns);
        spans->span[spans->n - 1].part     = (int32_t)b;
        spans->span[spans->n - 1].ready_us = (double)(spans->shift_ns + times[b].ready_ns) / 1e3;
    }
}

/* How long the rank's part of the step went on after backward: of the step itself where its result tells
 * that, else (the device was not done yet) until the last bucket was. */
static int64_t exposed_ns(const ddp_run_t *run, const ddp_step_result_t *result, int64_t backward_end_ns,
                          const ddp_bucket_times_t *times, size_t n)
{
    int64_t end_ns = backward_end_ns;

    if (run->config.ddp.backend != (int)DDP_REDUCER_NCCL) {
        return result->exposed_comm_ns;
    }
    for (size_t b = 0; b < n; b++) {
        end_ns = times[b].done_ns > end_ns ? times[b].done_ns : end_ns;
    }
    return end_ns - backward_end_ns;
}

/* This rank's part of the timeline. */
static ddp_status_t fill_spans(ddp_run_t *run, const ddp_step_result_t *result, rank_spans_t *spans)
{
    ddp_status_t        status    = DDP_OK;
    int64_t             begin_ns  = 0;
    int64_t             origin_ns = 0;
    size_t              n_times   = 0;
    const size_t        n_buckets = ddp_reducer_bucket_times(run->reducer, NULL, 0);
    ddp_micro_times_t  *times     = micro_times(run, &begin_ns, &n_times);
    ddp_bucket_times_t *buckets   = calloc(n_buckets, sizeof(*buckets));
    const int64_t       end_ns    = n_times > 0 ? times[n_times - 1].end_ns : 0;

    status = times != NULL && buckets != NULL ? DDP_OK : ddp_fail(DDP_ERR_NO_MEMORY, "no memory for a trace");
    DDP_TRY(ddp_comm_agree(run->comm, status));
    origin_ns = begin_ns;
    DDP_TRY(ddp_comm_broadcast(run->comm, &origin_ns, sizeof(origin_ns), 0));
    if (ddp_comm_machine(run->comm) == 0) { /* another machine has another clock */
        spans->shift_ns = begin_ns - origin_ns;
    }
    ddp_reducer_bucket_times(run->reducer, buckets, n_buckets);
    add_micros(spans, times, n_times);
    add_buckets(spans, buckets, n_buckets);
    add_span(spans, SPAN_EXPOSED, end_ns, end_ns + exposed_ns(run, result, end_ns, buckets, n_buckets));
out:
    free(times);
    free(buckets);
    return status;
}

ddp_status_t ddp_spans_gather(ddp_run_t *run, const ddp_step_result_t *result, ddp_span_t **spans_p,
                              size_t *n_p)
{
    ddp_status_t status = DDP_OK;
    const size_t size   = (size_t)ddp_comm_size(run->comm);
    size_t       first  = 0;
    size_t       most   = 0; /* micro-batches of a rank */
    size_t       room   = 0;
    size_t       n      = 0;
    ddp_span_t  *all    = NULL;
    rank_spans_t mine   = {.rank = ddp_comm_rank(run->comm)};

    if (run->dp != NULL) {
        return ddp_run_dp_spans(run, spans_p, n_p);
    }
    ddp_partition(ddp_config_micro_batches(&run->config), size, 0, &first, &most);
    room      = 2 * most + ddp_reducer_bucket_times(run->reducer, NULL, 0) + 1;
    mine.span = calloc(room, sizeof(*mine.span));
    all       = calloc(size * room, sizeof(*all));
    if (mine.span == NULL || all == NULL) {
        status = ddp_fail(DDP_ERR_NO_MEMORY, "no memory for a trace of %zu ranks", size);
    }
    DDP_TRY(ddp_comm_agree(run->comm, status));
    DDP_TRY(fill_spans(run, result, &mine));
    DDP_TRY(ddp_comm_allgather(run->comm, mine.span, room * sizeof(*all), all));
    for (size_t i = 0; i < size * room; i++) {
        if (all[i].end_us > all[i].start_us) {
            all[n++] = all[i];
        }
    }
    *n_p     = n;
    *spans_p = all;
    all      = NULL;
out:
    free(mine.span);
    free(all);
    return status;
}
