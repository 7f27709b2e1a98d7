/*
 * `bench comm`: collectives of ddp/comm.h, size by size, as nccl-tests reports them. Rates are those of its
 * doc/PERFORMANCE.md: algbw = bytes / time, busbw = algbw times a factor of the operation, so that busbw does
 * not depend on the number of ranks n: all-reduce 2 (n - 1) / n, all-gather (n - 1) / n, broadcast 1. Every
 * round's result is checked: the values are small whole numbers, so that sums are exact in any order.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/allocator.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fault.h"
#include "launcher/bench.h"

/* Set-up collectives go through one rank and are not for large data. */
#define CONTROL_MOST ((size_t)1 << 20)

#define MAX_OPS 8

typedef struct bench {
    ddp_run_t        *run;
    int               rank, size;
    float            *window;            /* this rank's part of shared memory, [most] */
    float            *own;               /* private, [most] */
    float            *mine;              /* private, [most]: what an all-gather sends */
    double           *ns;                /* [rounds] */
    uint64_t          wrong;             /* values, of all rounds of a size */
    double            best_gbs[MAX_OPS]; /* at the largest size */
    ddp_bench_table_t table;
} bench_t;

/* `count` floats of result in `x`. */
typedef struct op {
    const char *name;
    bool        is_shared;  /* x is the window */
    bool        is_control; /* only small sizes */
    void (*fill)(const bench_t *bench, float *x, size_t count);
    ddp_status_t (*run)(const bench_t *bench, float *x, size_t count);
    float (*expected)(const bench_t *bench, size_t i, size_t count);
    double (*bus_factor)(double n);
} op_t;

static float value_of(int rank, size_t i)
{
    return (float)(i % 13) + (float)(rank % 5);
}

static void fill_own(const bench_t *bench, float *x, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        x[i] = value_of(bench->rank, i);
    }
}

static void fill_part(const bench_t *bench, float *x, size_t count)
{
    fill_own(bench, bench->mine, count / (size_t)bench->size);
    memset(x, 0, count * sizeof(*x));
}

static ddp_status_t run_allreduce(const bench_t *bench, float *x, size_t count)
{
    return ddp_comm_allreduce_sum(bench->run->comm, x, count);
}

static ddp_status_t run_mpi(const bench_t *bench, float *x, size_t count)
{
    return ddp_comm_allreduce_sum_mpi(bench->run->comm, x, count);
}

static ddp_status_t run_broadcast(const bench_t *bench, float *x, size_t count)
{
    return ddp_comm_broadcast(bench->run->comm, x, count * sizeof(*x), 0);
}

static ddp_status_t run_allgather(const bench_t *bench, float *x, size_t count)
{
    return ddp_comm_allgather(bench->run->comm, bench->mine, count / (size_t)bench->size * sizeof(*x), x);
}

static float expect_sum(const bench_t *bench, size_t i, size_t count)
{
    float sum = 0;

    (void)count;
    for (int r = 0; r < bench->size; r++) {
        sum += value_of(r, i);
    }
    return sum;
}

static float expect_first(const bench_t *bench, size_t i, size_t count)
{
    (void)bench;
    (void)count;
    return value_of(0, i);
}

static float expect_parts(const bench_t *bench, size_t i, size_t count)
{
    const size_t part = count / (size_t)bench->size;

    return value_of((int)(i / part), i % part);
}

static double factor_allreduce(double n)
{
    return 2 * (n - 1) / n;
}

static double factor_allgather(double n)
{
    return (n - 1) / n;
}

static double factor_broadcast(double n)
{
    (void)n;
    return 1;
}

static const op_t ops[] = {
    {"all-reduce", true, false, fill_own, run_allreduce, expect_sum, factor_allreduce},
    {"all-reduce (unshared)", false, false, fill_own, run_allreduce, expect_sum, factor_allreduce},
    {"MPI_Allreduce", false, false, fill_own, run_mpi, expect_sum, factor_allreduce},
    {"broadcast (set-up)", false, true, fill_own, run_broadcast, expect_first, factor_broadcast},
    {"all-gather (set-up)", false, true, fill_part, run_allgather, expect_parts, factor_allgather},
};
#define N_OPS (sizeof(ops) / sizeof(ops[0]))
_Static_assert(sizeof(ops) / sizeof(ops[0]) <= MAX_OPS, "a rate of each is kept");
enum { OP_OWN = 0, OP_MPI = 2 }; /* positions in the table */

enum { OP, BYTES, COUNT, TYPE, TIME, ALGBW, BUSBW, BEST, WRONG, N_COLUMNS };
static const ddp_bench_column_t columns[N_COLUMNS] = {
    {"op", "operation", 22, DDP_BENCH_TEXT},
    {"bytes", "bytes", 12, 0},
    {"count", "count", 12, 0},
    {"type", "type", 8, DDP_BENCH_TEXT},
    {"time_us", "time us", 12, 2},
    {"algbw_gbs", "algbw GB/s", 11, 3},
    {"busbw_gbs", "busbw GB/s", 11, 3},
    {"best_us", "best us", 12, 2},
    {"wrong", "#wrong", 8, 0},
};

enum { PEAK_KIND, PEAK_RATE, N_PEAK_COLUMNS };
static const ddp_bench_column_t peak_columns[N_PEAK_COLUMNS] = {
    {"kind", "memory, all ranks at once", 42, DDP_BENCH_TEXT},
    {"gbs", "GB/s", 11, 3},
};

enum { RATIO_KIND, RATIO, N_RATIO_COLUMNS };
static const ddp_bench_column_t ratio_columns[N_RATIO_COLUMNS] = {
    {"kind", "rate, larger is better", 42, DDP_BENCH_TEXT},
    {"ratio", "ratio", 11, 2},
};

static uint64_t count_wrong(const bench_t *bench, const op_t *op, float *x, size_t count)
{
    uint64_t wrong = 0;

    if (count > 0 && ddp_fault("bench_comm_value", bench->rank) != DDP_OK) {
        x[count - 1] += 1;
    }
    for (size_t i = 0; i < count; i++) {
        wrong += x[i] != op->expected(bench, i, count);
    }
    return wrong;
}

/* One round of every rank; round < 0 is not kept. */
static ddp_status_t one_round(bench_t *bench, const op_t *op, float *x, size_t count, int64_t round)
{
    ddp_status_t status = DDP_OK;
    int64_t      start;

    op->fill(bench, x, count);
    DDP_TRY(ddp_comm_barrier(bench->run->comm));
    start = ddp_clock_ns();
    DDP_TRY(op->run(bench, x, count));
    if (round >= 0) {
        bench->ns[round] = (double)(ddp_clock_ns() - start);
    }
    bench->wrong += count_wrong(bench, op, x, count);
    DDP_TRY(ddp_comm_barrier(bench->run->comm)); /* nobody fills what another one still reads */
out:
    return status;
}

static ddp_status_t sum_wrong(bench_t *bench, uint64_t *sum_p)
{
    ddp_status_t status = DDP_OK;
    uint64_t    *all    = calloc((size_t)bench->size, sizeof(*all));

    status = all != NULL ? DDP_OK : ddp_fail(DDP_ERR_NO_MEMORY, "no memory for %d ranks", bench->size);
    DDP_TRY(ddp_comm_agree(bench->run->comm, status));
    DDP_TRY(ddp_comm_allgather(bench->run->comm, &bench->wrong, sizeof(bench->wrong), all));
    *sum_p = 0;
    for (int r = 0; r < bench->size; r++) {
        *sum_p += all[r];
    }
out:
    free(all);
    return status;
}

static ddp_status_t one_size(bench_t *bench, const op_t *op, size_t bytes, uint64_t *wrong_p)
{
    ddp_status_t     status = DDP_OK;
    const size_t     rounds = (size_t)bench->run->bench->rounds;
    const size_t     n      = (size_t)bench->size;
    const size_t     count  = op->fill == fill_part ? bytes / sizeof(float) / n * n : bytes / sizeof(float);
    float           *x      = op->is_shared ? bench->window : bench->own;
    ddp_bench_cell_t cell[N_COLUMNS] = {[OP] = {.text = op->name}, [TYPE] = {.text = "float32"}};
    uint64_t         wrong           = 0;

    bench->wrong = 0;
    for (int64_t r = -(int64_t)bench->run->bench->warmup; r < (int64_t)rounds; r++) {
        DDP_TRY(one_round(bench, op, x, count, r));
    }
    DDP_TRY(ddp_bench_slowest(bench->run, bench->ns, rounds, bench->ns));
    DDP_TRY(sum_wrong(bench, &wrong));
    cell[BYTES].number = (double)(count * sizeof(float));
    cell[COUNT].number = (double)count;
    cell[TIME].number  = ddp_bench_median(bench->ns, rounds) / 1e3;
    cell[ALGBW].number = cell[BYTES].number / cell[TIME].number / 1e3;
    cell[BUSBW].number = cell[ALGBW].number * op->bus_factor((double)bench->size);
    cell[BEST].number  = ddp_bench_least(bench->ns, rounds) / 1e3;
    cell[WRONG].number = (double)wrong;
    ddp_bench_row(&bench->table, cell);
    bench->best_gbs[op - ops] = cell[BYTES].number / cell[BEST].number / 1e3;
    *wrong_p += wrong;
out:
    return status;
}

static ddp_status_t all_sizes(bench_t *bench, const op_t *op, uint64_t *wrong_p)
{
    ddp_status_t               status  = DDP_OK;
    const ddp_bench_options_t *options = bench->run->bench;
    const size_t               most =
        op->is_control && options->to_bytes > CONTROL_MOST ? CONTROL_MOST : (size_t)options->to_bytes;

    for (size_t bytes = (size_t)options->from_bytes; bytes <= most; bytes *= (size_t)options->factor) {
        DDP_TRY(one_size(bench, op, bytes, wrong_p));
    }
out:
    return status;
}

static void say_peak(const ddp_bench_table_t *table, const char *kind, double gbs)
{
    const ddp_bench_cell_t cell[N_PEAK_COLUMNS] = {{.text = kind}, {.number = gbs}};

    ddp_bench_row(table, cell);
}

/* An all-reduce over n ranks in shared memory reads n times its size and writes as much, at best at the rate
 * of a += b, which moves 12 bytes an element. */
static void say_ratios(const bench_t *bench, double add_gbs)
{
    const double      bound = add_gbs / (2.0 * bench->size);
    ddp_bench_table_t table = bench->table;

    table.event   = "ratio";
    table.column  = ratio_columns;
    table.columns = N_RATIO_COLUMNS;
    ddp_bench_head(&table, "fastest all-reduce of the largest size");
    ddp_bench_row(&table, (ddp_bench_cell_t[]){{.text = "all-reduce / what a += b allows"},
                                               {.number = bench->best_gbs[OP_OWN] / bound}});
    ddp_bench_row(&table,
                  (ddp_bench_cell_t[]){{.text = "all-reduce / MPI_Allreduce"},
                                       {.number = bench->best_gbs[OP_OWN] / bench->best_gbs[OP_MPI]}});
}

static ddp_status_t say_peaks(const bench_t *bench)
{
    ddp_status_t      status = DDP_OK;
    ddp_bench_peak_t  mine;
    ddp_bench_peak_t  sum   = {0};
    ddp_bench_peak_t *all   = calloc((size_t)bench->size, sizeof(*all));
    ddp_bench_table_t table = bench->table;

    status = all != NULL ? DDP_OK : ddp_fail(DDP_ERR_NO_MEMORY, "no memory for %d ranks", bench->size);
    DDP_TRY(ddp_comm_agree(bench->run->comm, status));
    DDP_TRY(ddp_bench_memory(bench->run, &mine));
    DDP_TRY(ddp_comm_allgather(bench->run->comm, &mine, sizeof(mine), all));
    for (int r = 0; r < bench->size; r++) {
        sum.memcpy_gbs += all[r].memcpy_gbs;
        sum.triad_gbs += all[r].triad_gbs;
        sum.add_gbs += all[r].add_gbs;
    }
    table.event   = "memory";
    table.column  = peak_columns;
    table.columns = N_PEAK_COLUMNS;
    ddp_bench_head(&table, "what memory gives");
    say_peak(&table, "memcpy: read and written", sum.memcpy_gbs);
    say_peak(&table, "triad a = b + s c: 12 bytes an element", sum.triad_gbs);
    say_peak(&table, "add a += b: 12 bytes an element", sum.add_gbs);
    say_ratios(bench, sum.add_gbs);
out:
    free(all);
    return status;
}

static ddp_status_t take_memory(bench_t *bench)
{
    ddp_status_t           status = DDP_OK;
    const ddp_allocator_t *memory = ddp_allocator_private();
    const size_t           bytes  = (size_t)bench->run->bench->to_bytes;
    void                  *window = NULL;
    void *private                 = NULL;

    DDP_TRY(ddp_comm_shared_each(bench->run->comm, "the benchmark", bytes, &window));
    bench->window = window;
    status        = memory->acquire(memory->ctx, "the benchmark", 2 * bytes, &private);
    bench->own    = private;
    bench->mine   = private != NULL ? bench->own + bytes / sizeof(float) : NULL;
    bench->ns     = calloc((size_t)bench->run->bench->rounds, sizeof(*bench->ns));
    if (status == DDP_OK && bench->ns == NULL) {
        status = ddp_fail(DDP_ERR_NO_MEMORY, "no memory for %" PRIu64 " times", bench->run->bench->rounds);
    }
    DDP_TRY(ddp_comm_agree(bench->run->comm, status));
out:
    return status;
}

ddp_status_t ddp_bench_comm(ddp_run_t *run, ddp_status_t early)
{
    ddp_status_t           status = DDP_OK;
    const ddp_allocator_t *memory = ddp_allocator_private();
    bench_t                bench  = {.run = run};
    uint64_t               wrong  = 0;
    char                   title[160];

    DDP_TRY(ddp_run_join(run, early));
    bench.rank  = ddp_comm_rank(run->comm);
    bench.size  = ddp_comm_size(run->comm);
    bench.table = (ddp_bench_table_t){"comm", columns, N_COLUMNS, bench.rank == 0, run->bench->json};
    DDP_TRY(take_memory(&bench));
    snprintf(title, sizeof(title),
             "%d rank%s on %d machine%s, median of %" PRIu64 " rounds after %" PRIu64 ", slowest rank",
             bench.size, bench.size > 1 ? "s" : "", ddp_comm_machines(run->comm),
             ddp_comm_machines(run->comm) > 1 ? "s" : "", run->bench->rounds, run->bench->warmup);
    ddp_bench_head(&bench.table, title);
    for (size_t i = 0; i < N_OPS; i++) {
        DDP_TRY(all_sizes(&bench, &ops[i], &wrong));
    }
    DDP_TRY(say_peaks(&bench));
    DDP_TRY(ddp_bench_flush(run));
    DDP_REQUIRE(wrong == 0, DDP_ERR_STATE, "%" PRIu64 " values are wrong: see the column #wrong", wrong);
out:
    memory->release(memory->ctx, bench.own);
    free(bench.ns);
    return status;
}
