/* `bench step` and `bench ops`: whole steps of the configured model, by phase and by operation. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "launcher/bench_trace.h"

#define MS 1e6 /* ns */

static const char *const phase_name[DDP_PHASES] = {
    [DDP_PHASE_DATA] = "data wait",    [DDP_PHASE_FORWARD] = "forward",
    [DDP_PHASE_BACKWARD] = "backward", [DDP_PHASE_UPDATE] = "update",
    [DDP_PHASE_EXPOSED] = "exposed",   [DDP_PHASE_OTHER] = "other",
    [DDP_PHASE_TOTAL] = "whole step",  [DDP_PHASE_TAIL] = "of it after backward",
};

enum { PHASE, PHASE_MS, PHASE_LEAST, PHASE_MOST, PHASE_SHARE, N_PHASE_COLUMNS };
static const ddp_bench_column_t phase_columns[N_PHASE_COLUMNS] = {
    {"phase", "phase", 22, DDP_BENCH_TEXT}, {"ms", "ms", 12, 3},
    {"least_ms", "least rank", 12, 3},      {"most_ms", "most rank", 12, 3},
    {"percent", "% of step", 10, 1},
};

enum {
    RATE_SET,
    RATE_STEP,
    RATE_SAMPLES,
    RATE_TOKENS,
    RATE_GFLOPS,
    RATE_SGEMM,
    RATE_SHARE,
    RATE_MEMCPY,
    RATE_TRIAD,
    N_RATE_COLUMNS
};
static const ddp_bench_column_t rate_columns[N_RATE_COLUMNS] = {
    {"isa", "set", 7, DDP_BENCH_TEXT},     {"step_ms", "step ms", 12, 3},
    {"samples_per_s", "samples/s", 12, 1}, {"tokens_per_s", "tokens/s", 12, 0},
    {"gflops", "GFLOP/s", 10, 1},          {"sgemm_gflops", "sgemm", 10, 1},
    {"percent_of_sgemm", "% of it", 8, 1}, {"memcpy_gbs", "memcpy GB/s", 12, 1},
    {"triad_gbs", "triad GB/s", 12, 1},
};

enum {
    OP,
    OP_SHAPE,
    OP_CALLS,
    OP_US,
    OP_BEST,
    OP_GFLOPS,
    OP_OF_SGEMM,
    OP_GBS,
    OP_OF_TRIAD,
    OP_MS,
    OP_SHARE,
    OP_SET,
    N_OP_COLUMNS
};
static const ddp_bench_column_t op_columns[N_OP_COLUMNS] = {
    {"op", "operation", 22, DDP_BENCH_TEXT},
    {"shape", "shape", 34, DDP_BENCH_TEXT},
    {"calls", "calls", 7, 0},
    {"us", "us a call", 11, 2},
    {"best_us", "best us", 11, 2},
    {"gflops", "GFLOP/s", 9, 1},
    {"percent_of_sgemm", "% sgemm", 8, 0},
    {"gbs", "GB/s", 8, 1},
    {"percent_of_triad", "% triad", 8, 0},
    {"ms", "ms a step", 11, 3},
    {"percent", "% of step", 10, 1},
    {"isa", "set", 7, DDP_BENCH_TEXT},
};

typedef struct peaks {
    double             sgemm_gflops;
    ddp_bench_peak_t   memory;
    ddp_bench_update_t update;
} peaks_t;

static ddp_bench_table_t table_of(const ddp_run_t *run, const char *event, const ddp_bench_column_t *column,
                                  size_t columns)
{
    const ddp_bench_table_t table = {event, column, columns, ddp_comm_rank(run->comm) == 0, run->bench->json};

    return table;
}

/* Steps of the run, as many as were asked for. */
static ddp_status_t measure(ddp_run_t *run, bool with_shapes, ddp_trace_t **trace_p)
{
    ddp_status_t  status = DDP_OK;
    const int64_t warmup = (int64_t)run->bench->warmup;
    const int64_t rounds = (int64_t)run->bench->rounds;

    status = ddp_trace_create(run, (size_t)rounds, with_shapes, trace_p);
    DDP_TRY(ddp_comm_agree(run->comm, status));
    run->is_training = true;
    for (int64_t step = 0; step < warmup + rounds; step++) {
        DDP_TRY(ddp_trace_step(*trace_p, (uint64_t)step, step - warmup));
    }
    run->is_training = false;
out:
    return status;
}

/* @param [in] isa  at most this one */
static ddp_status_t build(ddp_run_t *run, ddp_status_t early, ddp_isa_t isa)
{
    ddp_status_t status = DDP_OK;

    run->forward = ddp_trace_forward;
    DDP_TRY(ddp_run_join(run, early));
    run->config.train.steps           = run->bench->warmup + run->bench->rounds;
    run->config.schedule.kind         = DDP_SCHEDULE_CONSTANT; /* others may need more steps than these */
    run->config.schedule.warmup_steps = 0;
    DDP_TRY(ddp_run_prepare(run));
    run->isa = run->isa < isa ? run->isa : isa;
    DDP_TRY(ddp_run_build(run));
out:
    return status;
}

static ddp_status_t measure_peaks(const ddp_run_t *run, peaks_t *peaks_p)
{
    ddp_status_t status = DDP_OK;

    ddp_device_set_watch(run->device, NULL, NULL);
    DDP_TRY(ddp_bench_sgemm(run, &peaks_p->sgemm_gflops));
    DDP_TRY(ddp_bench_memory(run, &peaks_p->memory));
    DDP_TRY(ddp_bench_update(run, &peaks_p->update));
out:
    return status;
}

/* Medians of this rank, then mean, least and most of all ranks. */
static ddp_status_t say_phases(const ddp_run_t *run, ddp_trace_t *trace, double *step_ns_p)
{
    ddp_status_t            status = DDP_OK;
    const ddp_bench_table_t table  = table_of(run, "phase", phase_columns, N_PHASE_COLUMNS);
    const size_t            size   = (size_t)ddp_comm_size(run->comm);
    double                  mine[DDP_PHASES];
    double                 *all   = calloc(size * DDP_PHASES, sizeof(*all));
    double                  total = 0;

    status = all != NULL ? DDP_OK : ddp_fail(DDP_ERR_NO_MEMORY, "no memory for %zu ranks", size);
    DDP_TRY(ddp_comm_agree(run->comm, status));
    for (size_t i = 0; i < DDP_PHASES; i++) {
        mine[i] = ddp_bench_median(ddp_trace_phase(trace, (ddp_phase_t)i), (size_t)run->bench->rounds);
    }
    DDP_TRY(ddp_comm_allgather(run->comm, mine, sizeof(mine), all));
    for (size_t r = 0; r < size; r++) {
        total += all[r * DDP_PHASES + DDP_PHASE_TOTAL] / (double)size;
    }
    ddp_bench_head(&table, "phases of a step: medians of each rank; mean over the ranks, least, most");
    for (size_t i = 0; i < DDP_PHASES; i++) {
        ddp_bench_cell_t cell[N_PHASE_COLUMNS] = {[PHASE] = {.text = phase_name[i]}};
        double           sum                   = 0;
        double           least                 = all[i];
        double           most                  = all[i];

        for (size_t r = 0; r < size; r++) {
            const double value = all[r * DDP_PHASES + i];

            sum += value;
            least = value < least ? value : least;
            most  = value > most ? value : most;
        }
        cell[PHASE_MS].number    = sum / (double)size / MS;
        cell[PHASE_LEAST].number = least / MS;
        cell[PHASE_MOST].number  = most / MS;
        cell[PHASE_SHARE].number = 100 * sum / (double)size / total;
        ddp_bench_row(&table, cell);
    }
    *step_ns_p = total;
out:
    free(all);
    return status;
}

static void say_rates(const ddp_run_t *run, const peaks_t *peaks, double step_ns, double flop)
{
    const ddp_bench_table_t table                = table_of(run, "rate", rate_columns, N_RATE_COLUMNS);
    ddp_bench_cell_t        cell[N_RATE_COLUMNS] = {{.text = NULL}};
    const double            samples              = (double)run->config.train.batch / step_ns * 1e9;
    char                    title[160];

    cell[RATE_SET].text       = ddp_isa_name(run->isa);
    cell[RATE_STEP].number    = step_ns / MS;
    cell[RATE_SAMPLES].number = samples;
    cell[RATE_TOKENS].number  = run->data.context > 0 ? samples * (double)run->data.context : NAN;
    cell[RATE_GFLOPS].number  = flop / step_ns;
    cell[RATE_SGEMM].number   = peaks->sgemm_gflops;
    cell[RATE_SHARE].number   = 100 * flop / step_ns / peaks->sgemm_gflops;
    cell[RATE_MEMCPY].number  = peaks->memory.memcpy_gbs;
    cell[RATE_TRIAD].number   = peaks->memory.triad_gbs;
    snprintf(title, sizeof(title),
             "batch %" PRIu64
             " on %d rank%s; GFLOP/s, sgemm and memory are rank 0's, peaks while all ranks work",
             run->config.train.batch, ddp_comm_size(run->comm), ddp_comm_size(run->comm) > 1 ? "s" : "");
    ddp_bench_head(&table, title);
    ddp_bench_row(&table, cell);
}

/* What a call of `flop` (0: none) and `bytes` (0: not known) reached in `ns`. */
static void set_rates(ddp_bench_cell_t *cell, double flop, double bytes, double ns, const peaks_t *peaks)
{
    cell[OP_GFLOPS].number   = flop > 0 ? flop / ns : NAN;
    cell[OP_OF_SGEMM].number = flop > 0 ? 100 * flop / ns / peaks->sgemm_gflops : NAN;
    cell[OP_GBS].number      = bytes > 0 ? bytes / ns : NAN;
    cell[OP_OF_TRIAD].number = bytes > 0 ? 100 * bytes / ns / peaks->memory.triad_gbs : NAN;
}

static void say_update(const ddp_run_t *run, const ddp_bench_table_t *table, const peaks_t *peaks)
{
    const ddp_bench_update_t *update = &peaks->update;
    char                      shape[32];
    ddp_bench_cell_t          cell[N_OP_COLUMNS] = {
                 [OP]       = {.text = "optimizer alone"},
                 [OP_SHAPE] = {.text = shape},
                 [OP_CALLS] = {.number = NAN},
                 [OP_US]    = {.number = update->ns / 1e3},
                 [OP_BEST]  = {.number = update->best_ns / 1e3},
                 [OP_MS]    = {.number = NAN},
                 [OP_SHARE] = {.number = NAN},
                 [OP_SET]   = {.text = ddp_isa_name(run->isa)},
    };

    snprintf(shape, sizeof(shape), "%zu parameters", update->count);
    set_rates(cell, 0, update->bytes, update->ns, peaks);
    ddp_bench_row(table, cell);
}

/* Without the column of shapes where lines have none. */
static void say_line(const ddp_bench_table_t *table, ddp_bench_cell_t *cell)
{
    if (table->column != op_columns) {
        memmove(&cell[OP_SHAPE], &cell[OP_SHAPE + 1], (N_OP_COLUMNS - OP_SHAPE - 1) * sizeof(*cell));
    }
    ddp_bench_row(table, cell);
}

/* Rank 0's calls. */
static void say_ops(const ddp_run_t *run, ddp_trace_line_t *line, size_t n, const peaks_t *peaks,
                    double step_ns, bool with_shapes)
{
    ddp_bench_column_t by_kind[N_OP_COLUMNS - 1];
    ddp_bench_table_t  table = table_of(run, "op", op_columns, N_OP_COLUMNS);

    if (!with_shapes) {
        memcpy(by_kind, op_columns, OP_SHAPE * sizeof(*by_kind));
        memcpy(&by_kind[OP_SHAPE], &op_columns[OP_SHAPE + 1],
               (N_OP_COLUMNS - OP_SHAPE - 1) * sizeof(*by_kind));
        table = table_of(run, "op", by_kind, N_OP_COLUMNS - 1);
    }
    ddp_bench_head(&table, "operations of rank 0; percentages of the peaks above");
    for (size_t i = 0; i < n; i++) {
        const double     ns                 = ddp_bench_median(line[i].ns, (size_t)run->bench->rounds);
        const double     calls              = with_shapes ? line[i].calls : 1; /* whose cost it is */
        ddp_bench_cell_t cell[N_OP_COLUMNS] = {
            [OP]       = {.text = line[i].work},
            [OP_SHAPE] = {.text = line[i].cost.shape},
            [OP_CALLS] = {.number = line[i].calls},
            [OP_US]    = {.number = ns / line[i].calls / 1e3},
            [OP_BEST]  = {.number = line[i].best_ns / 1e3},
            [OP_MS]    = {.number = ns / MS},
            [OP_SHARE] = {.number = 100 * ns / step_ns},
            [OP_SET]   = {.text = ddp_isa_name(run->isa)},
        };

        set_rates(cell, line[i].cost.flop * calls, line[i].cost.bytes * calls, ns, peaks);
        say_line(&table, cell);
    }
    if (with_shapes) {
        say_update(run, &table, peaks);
    }
}

static double flop_of(const ddp_trace_line_t *line, size_t n, bool with_shapes)
{
    double flop = 0;

    for (size_t i = 0; i < n; i++) {
        flop += line[i].cost.flop * (with_shapes ? line[i].calls : 1);
    }
    return flop;
}

static ddp_status_t report(ddp_run_t *run, ddp_trace_t *trace, bool with_shapes)
{
    ddp_status_t      status  = DDP_OK;
    size_t            n       = 0;
    ddp_trace_line_t *line    = ddp_trace_lines(trace, &n);
    double            step_ns = 0;
    peaks_t           peaks;

    DDP_TRY(measure_peaks(run, &peaks));
    DDP_TRY(say_phases(run, trace, &step_ns));
    say_rates(run, &peaks, step_ns, flop_of(line, n, with_shapes));
    say_ops(run, line, n, &peaks, step_ns, with_shapes);
    DDP_TRY(ddp_bench_flush(run));
out:
    return status;
}

static ddp_status_t bench(ddp_run_t *run, ddp_status_t early, ddp_isa_t isa, bool with_shapes)
{
    ddp_status_t status = DDP_OK;
    ddp_trace_t *trace  = NULL;

    DDP_TRY(build(run, early, isa));
    DDP_TRY(measure(run, with_shapes, &trace));
    DDP_TRY(report(run, trace, with_shapes));
out:
    run->trace = NULL;
    ddp_trace_destroy(&trace);
    return status;
}

ddp_status_t ddp_bench_step(ddp_run_t *run, ddp_status_t early)
{
    return bench(run, early, DDP_ISA_AVX512, false);
}

/* The set that was asked for: an error where a rank lacks it. */
static ddp_status_t bench_one_set(ddp_run_t *run, ddp_status_t early, const char *name)
{
    ddp_status_t status = DDP_OK;
    ddp_isa_t    isa    = DDP_ISA_AVX512;

    while (strcmp(ddp_isa_name(isa), name) != 0 && isa > DDP_ISA_PLAIN) {
        isa--;
    }
    if (early == DDP_OK && isa > ddp_isa_detect()) {
        early = ddp_fail(DDP_ERR_CONFIG, "--isa %s: the best set here is %s", name,
                         ddp_isa_name(ddp_isa_detect()));
    }
    DDP_TRY(bench(run, early, isa, true));
out:
    return status;
}

ddp_status_t ddp_bench_ops(ddp_run_t *run, ddp_status_t early)
{
    ddp_status_t status = DDP_OK;
    const char  *name   = run->bench->isa;
    ddp_isa_t    isa    = DDP_ISA_AVX512;

    if (name != NULL && strcmp(name, DDP_BENCH_ALL_ISAS) != 0) {
        return bench_one_set(run, early, name);
    }
    DDP_TRY(bench(run, early, isa, true));
    while (name != NULL && run->isa > DDP_ISA_PLAIN) {
        isa = run->isa - 1;
        ddp_run_teardown(run);
        ddp_run_part(run);
        DDP_TRY(bench(run, DDP_OK, isa, true));
    }
out:
    return status;
}
