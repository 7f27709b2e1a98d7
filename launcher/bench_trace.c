#include "launcher/bench_trace.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"

/* Calls that only ask whether they can go on come by the thousand: within so long they become one record. */
#define MERGE_NS    (DDP_NS_PER_MS / 10)
#define FIRST_ROOM  ((size_t)1024)
#define FIRST_LINES ((size_t)64)

typedef struct record {
    const char *stream, *work; /* static, but for the stream's: compared by content */
    int64_t     start_ns, self_ns;
    bool        is_compute, is_forward, is_done;
    _Alignas(DDP_ALIGNMENT) unsigned char args[DDP_WORK_ARGS_BYTES];
} record_t;

struct ddp_trace {
    ddp_run_t        *run; /* borrowed */
    size_t            rounds;
    bool              with_shapes;
    record_t         *record; /* owned, [room] */
    size_t            n, room;
    bool              is_full; /* no memory for more */
    ddp_trace_line_t *line;    /* owned, [line_room] */
    size_t            lines, line_room;
    double           *phase[DDP_PHASES];          /* owned, [rounds] */
    int64_t           start_ns, first_ns, end_ns; /* of the step; when its first forward began */
    int64_t           forward_ns, forward_start_ns;
    bool              is_forward;
};

static bool make_room(ddp_trace_t *trace)
{
    const size_t room   = trace->room == 0 ? FIRST_ROOM : 2 * trace->room;
    record_t    *record = aligned_alloc(DDP_ALIGNMENT, room * sizeof(*record));

    if (record == NULL) {
        trace->is_full = true;
        return false;
    }
    if (trace->n > 0) {
        memcpy(record, trace->record, trace->n * sizeof(*record));
    }
    free(trace->record);
    trace->record = record;
    trace->room   = room;
    return true;
}

static void take_down(void *ctx, const ddp_work_seen_t *seen)
{
    ddp_trace_t  *trace   = ctx;
    record_t     *last    = trace->n > 0 ? &trace->record[trace->n - 1] : NULL;
    const int64_t self_ns = seen->end_ns - seen->start_ns - seen->inner_ns;

    if (!seen->is_done && last != NULL && !last->is_done && last->work == seen->work &&
        seen->start_ns - last->start_ns < MERGE_NS) {
        last->self_ns += self_ns;
        return;
    }
    if (trace->n == trace->room && !make_room(trace)) {
        return;
    }
    last             = &trace->record[trace->n++];
    last->stream     = seen->stream;
    last->work       = seen->work;
    last->start_ns   = seen->start_ns;
    last->self_ns    = self_ns;
    last->is_compute = strcmp(seen->stream, "compute") == 0;
    last->is_forward = trace->is_forward;
    last->is_done    = seen->is_done;
    memcpy(last->args, seen->args, sizeof(last->args));
}

ddp_status_t ddp_trace_create(ddp_run_t *run, size_t rounds, bool with_shapes, ddp_trace_t **trace_p)
{
    ddp_status_t status = DDP_OK;
    ddp_trace_t *trace  = calloc(1, sizeof(*trace));

    DDP_REQUIRE(trace != NULL, DDP_ERR_NO_MEMORY, "no memory for a trace");
    trace->run         = run;
    trace->rounds      = rounds;
    trace->with_shapes = with_shapes;
    for (size_t i = 0; i < DDP_PHASES; i++) {
        trace->phase[i] = calloc(rounds, sizeof(double));
        DDP_REQUIRE(trace->phase[i] != NULL, DDP_ERR_NO_MEMORY, "no memory for %zu rounds", rounds);
    }
    run->trace = trace;
    ddp_device_set_watch(run->device, take_down, trace);
    *trace_p = trace;
    trace    = NULL;
out:
    ddp_trace_destroy(&trace);
    return status;
}

void ddp_trace_destroy(ddp_trace_t **trace_p)
{
    ddp_trace_t *trace = *trace_p;

    if (trace == NULL) {
        return;
    }
    if (trace->run != NULL && trace->run->device != NULL) {
        ddp_device_set_watch(trace->run->device, NULL, NULL);
    }
    for (size_t i = 0; i < DDP_PHASES; i++) {
        free(trace->phase[i]);
    }
    for (size_t i = 0; i < trace->lines; i++) {
        free(trace->line[i].ns);
    }
    free(trace->line);
    free(trace->record);
    free(trace);
    *trace_p = NULL;
}

ddp_status_t ddp_trace_forward(void *ctx, ddp_tape_t *tape, const ddp_micro_t *micro,
                               ddp_loss_stats_t **stats_p)
{
    ddp_run_t   *run   = ctx;
    ddp_trace_t *trace = run->trace;
    ddp_status_t status;

    if (trace == NULL) {
        return ddp_run_forward(run, tape, micro, stats_p);
    }
    trace->forward_start_ns = ddp_clock_ns();
    trace->first_ns         = trace->first_ns == 0 ? trace->forward_start_ns : trace->first_ns;
    trace->is_forward       = true;
    status                  = ddp_run_forward(run, tape, micro, stats_p);
    trace->is_forward       = false;
    trace->forward_ns += ddp_clock_ns() - trace->forward_start_ns;
    return status;
}

static bool is_update(const record_t *record)
{
    return !record->is_compute || strcmp(record->work, "merge subtrees") == 0;
}

/* @return the line of this kind of work, a new one if it is the first; NULL: no memory */
static ddp_trace_line_t *line_of(ddp_trace_t *trace, const record_t *record, const ddp_op_cost_t *cost,
                                 bool has_cost)
{
    ddp_trace_line_t *line;

    for (size_t i = 0; i < trace->lines; i++) {
        line = &trace->line[i];
        if (strcmp(line->work, record->work) == 0 && strcmp(line->stream, record->stream) == 0 &&
            (!trace->with_shapes || !has_cost || strcmp(line->cost.shape, cost->shape) == 0)) {
            return line;
        }
    }
    if (trace->lines == trace->line_room) {
        const size_t room = trace->line_room == 0 ? FIRST_LINES : 2 * trace->line_room;

        line = realloc(trace->line, room * sizeof(*line));
        if (line == NULL) {
            return NULL;
        }
        trace->line      = line;
        trace->line_room = room;
    }
    line  = &trace->line[trace->lines];
    *line = (ddp_trace_line_t){.stream = record->stream, .work = record->work, .has_cost = has_cost};
    if (has_cost) {
        memcpy(line->cost.shape, cost->shape, sizeof(cost->shape));
    }
    line->ns = calloc(trace->rounds, sizeof(*line->ns));
    if (line->ns == NULL) {
        return NULL;
    }
    trace->lines++;
    return line;
}

/* Add one call to its line; costs and calls are those of all rounds until ddp_trace_lines(). */
static ddp_status_t add_call(ddp_trace_t *trace, const record_t *record, size_t round)
{
    ddp_status_t      status   = DDP_OK;
    ddp_op_cost_t     cost     = {.flop = 0};
    const bool        has_cost = ddp_op_cost(record->work, record->args, &cost);
    ddp_trace_line_t *line     = line_of(trace, record, &cost, has_cost);

    DDP_REQUIRE(line != NULL, DDP_ERR_NO_MEMORY, "no memory for the times of the operations");
    line->cost.flop += cost.flop;
    line->cost.bytes += cost.bytes;
    line->ns[round] += (double)record->self_ns;
    line->total_ns += (double)record->self_ns;
    if (line->calls == 0 || (double)record->self_ns < line->best_ns) {
        line->best_ns = (double)record->self_ns;
    }
    line->calls++;
out:
    return status;
}

/* @param [in] tail_ns  when backward was over */
static ddp_status_t add_up(ddp_trace_t *trace, size_t round, int64_t tail_ns, int64_t wait_ns)
{
    ddp_status_t  status             = DDP_OK;
    int64_t       phase[DDP_PHASES]  = {0};
    const int64_t total              = trace->end_ns - trace->start_ns;
    const int64_t tail               = trace->end_ns - tail_ns;
    const int64_t other              = trace->first_ns != 0 ? trace->first_ns - trace->start_ns : 0;
    int64_t       update_in_forward  = 0;
    int64_t       update_in_backward = 0;
    int64_t       update_in_tail     = 0;

    for (size_t i = 0; i < trace->n; i++) {
        const record_t *record  = &trace->record[i];
        const bool      in_tail = record->start_ns >= tail_ns;

        if (is_update(record)) {
            update_in_forward += record->is_forward ? record->self_ns : 0;
            update_in_tail += in_tail && record->is_done ? record->self_ns : 0;
            update_in_backward += !in_tail && !record->is_forward ? record->self_ns : 0;
        }
        if (record->is_done) {
            DDP_TRY(add_call(trace, record, round));
        }
    }
    phase[DDP_PHASE_DATA]     = wait_ns;
    phase[DDP_PHASE_FORWARD]  = trace->forward_ns - wait_ns - update_in_forward;
    phase[DDP_PHASE_BACKWARD] = total - tail - other - trace->forward_ns - update_in_backward;
    phase[DDP_PHASE_UPDATE]   = update_in_forward + update_in_backward + update_in_tail;
    phase[DDP_PHASE_EXPOSED]  = tail - update_in_tail;
    phase[DDP_PHASE_OTHER]    = other;
    phase[DDP_PHASE_TOTAL]    = total;
    phase[DDP_PHASE_TAIL]     = tail;
    for (size_t i = 0; i < DDP_PHASES; i++) {
        trace->phase[i][round] = (double)phase[i];
    }
out:
    return status;
}

ddp_status_t ddp_trace_step(ddp_trace_t *trace, uint64_t step, int64_t round)
{
    ddp_status_t      status = DDP_OK;
    ddp_run_t        *run    = trace->run;
    ddp_step_result_t result = {0};
    int64_t           wait_ns;
    int64_t           tail_ns;

    DDP_TRY(ddp_comm_barrier(run->comm));
    trace->n          = 0;
    trace->first_ns   = 0;
    trace->forward_ns = 0;
    wait_ns           = ddp_loader_wait_ns(run->loader);
    trace->start_ns   = ddp_clock_ns();
    DDP_TRY(ddp_run_step(run, step, &result));
    tail_ns = ddp_clock_ns() - result.exposed_comm_ns;
    DDP_TRY(ddp_reducer_finish(run->reducer));
    trace->end_ns = ddp_clock_ns();
    if (round >= 0) {
        DDP_TRY(add_up(trace, (size_t)round, tail_ns, ddp_loader_wait_ns(run->loader) - wait_ns));
    }
    DDP_REQUIRE(!trace->is_full, DDP_ERR_NO_MEMORY, "no memory to take down a step's calls");
out:
    return status;
}

double *ddp_trace_phase(ddp_trace_t *trace, ddp_phase_t phase)
{
    return trace->phase[phase];
}

static int longer_first(const void *a, const void *b)
{
    const double x = ((const ddp_trace_line_t *)a)->total_ns;
    const double y = ((const ddp_trace_line_t *)b)->total_ns;

    return (x < y) - (x > y);
}

ddp_trace_line_t *ddp_trace_lines(ddp_trace_t *trace, size_t *n_p)
{
    const double rounds = (double)trace->rounds;

    for (size_t i = 0; i < trace->lines; i++) {
        ddp_trace_line_t *line = &trace->line[i];
        const double      per  = trace->with_shapes ? line->calls : rounds;

        line->cost.flop /= per;
        line->cost.bytes /= per;
        line->calls /= rounds;
    }
    if (trace->lines > 0) {
        qsort(trace->line, trace->lines, sizeof(*trace->line), longer_first);
    }
    *n_p = trace->lines;
    return trace->line;
}
