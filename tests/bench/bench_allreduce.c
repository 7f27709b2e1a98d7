/*
 * Summing 25 MB over the ranks of one machine, and what an optimizer step costs with and without it.
 *
 *     mpirun -np 2 build/bin/bench_allreduce [rounds]
 *
 * Every round runs all variants one after the other, so that a busy machine hurts them alike; a variant's
 * time is that of the slowest rank. Ratios are medians of the rounds' ratios. The bound: an all-reduce over P
 * ranks in shared memory reads P n and writes P n bytes, at best at the rate at which all ranks together run
 * a[i] += b[i] (12 bytes counted per element) over their own memory. Shared memory has small pages unless the
 * system gives it huge ones
 * (/sys/kernel/mm/transparent_hugepage/shmem_enabled), so bound and MPI are measured with both kinds.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/convert.h"
#include "base/error.h"
#include "ddp/comm.h"
#include "ddp/comm_internal.h"
#include "kernels/layout.h"
#include "kernels/optim.h"

#define COUNT      ((size_t)25 * 1024 * 1024 / sizeof(float))
#define BYTES      (COUNT * sizeof(float))
#define MAX_ROUNDS 501
#define MAX_RANKS  64

typedef enum variant {
    OWN = 0,
    MPI_SMALL,
    MPI_HUGE,
    ADD_SMALL,
    ADD_HUGE,
    REPLICATED,
    FUSED,
    N_VARIANTS
} variant_t;

typedef struct bench {
    ddp_comm_t        *comm;
    ddp_flag_t        *flags; /* shared, [size] */
    uint64_t           meetings;
    ddp_isa_t          isa;
    ddp_optim_config_t config;
    uint64_t           step;
    float             *grads;      /* this rank's part of a window */
    float             *sum[2];     /* for MPI, and `a`: small pages, huge pages */
    float             *other[2];   /* `b` */
    float             *param[2];   /* [0] this rank's own copy, [1] the machine's */
    float             *slot[2][2]; /* the same of both moments */
} bench_t;

static ddp_status_t meet(bench_t *bench)
{
    ddp_status_t status = DDP_OK;

    bench->meetings++;
    ddp_comm_flag_set(bench->comm, &bench->flags[ddp_comm_rank(bench->comm)], bench->meetings);
    for (int r = 0; r < ddp_comm_size(bench->comm); r++) {
        const ddp_wait_t wait = {r, "round", bench->meetings, (size_t)-1};

        DDP_TRY(ddp_comm_wait_flag(bench->comm, &bench->flags[r], bench->meetings, wait));
    }
out:
    return status;
}

static void add(float *restrict a, const float *restrict b, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        a[i] += b[i];
    }
}

/* The parts of a window lie one after the other. */
static float *grads_of(const bench_t *bench, int rank)
{
    const size_t part = (BYTES + 4095) / 4096 * 4096 / sizeof(float);

    return bench->grads + (size_t)rank * part - (size_t)ddp_comm_rank(bench->comm) * part;
}

/* Update blocks [first, first + count) of copy `which` from the given gradients, in rank order. */
static void update(bench_t *bench, int which, const float *const *source, int sources, size_t first,
                   size_t count)
{
    const float       *at[MAX_RANKS];
    int32_t            op[2 * MAX_RANKS];
    size_t             length  = 0;
    ddp_tree_program_t program = {op, 0, at, NULL};
    ddp_update_t rule = {.config = &bench->config, .lr = 1e-3F, .grad_scale = 1.0F, .step = bench->step};

    for (int s = 0; s < sources; s++) {
        at[s]        = source[s] + first * DDP_BLOCK;
        op[length++] = s;
        if (s > 0) {
            op[length++] = DDP_TREE_ADD;
        }
    }
    program.length = length;
    rule.param     = bench->param[which] + first * DDP_BLOCK;
    rule.slot[0]   = bench->slot[which][0] + first * DDP_BLOCK;
    rule.slot[1]   = bench->slot[which][1] + first * DDP_BLOCK;
    ddp_tree_update(bench->isa, &program, &rule, count);
}

static ddp_status_t run_replicated(bench_t *bench)
{
    const float *source[1] = {bench->grads};
    ddp_status_t status    = DDP_OK;

    DDP_TRY(ddp_comm_allreduce_sum(bench->comm, bench->grads, COUNT));
    update(bench, 0, source, 1, 0, COUNT / DDP_BLOCK);
out:
    return status;
}

static ddp_status_t run_fused(bench_t *bench)
{
    const int    size = ddp_comm_size(bench->comm);
    const float *source[MAX_RANKS];
    size_t       first  = 0;
    size_t       count  = 0;
    ddp_status_t status = DDP_OK;

    DDP_TRY(meet(bench)); /* all gradients are there */
    for (int r = 0; r < size; r++) {
        source[r] = grads_of(bench, r);
    }
    ddp_partition(COUNT / DDP_BLOCK, (size_t)size, (size_t)ddp_comm_rank(bench->comm), &first, &count);
    update(bench, 1, source, size, first, count);
    DDP_TRY(meet(bench)); /* all parameters are there */
out:
    return status;
}

static ddp_status_t run(bench_t *bench, variant_t variant)
{
    bench->step++;
    switch (variant) {
    case OWN:
        return ddp_comm_allreduce_sum(bench->comm, bench->grads, COUNT);
    case MPI_SMALL:
    case MPI_HUGE:
        MPI_Allreduce(MPI_IN_PLACE, bench->sum[variant - MPI_SMALL], (int)COUNT, MPI_FLOAT, MPI_SUM,
                      MPI_COMM_WORLD);
        return DDP_OK;
    case ADD_SMALL:
    case ADD_HUGE:
        add(bench->sum[variant - ADD_SMALL], bench->other[variant - ADD_SMALL], COUNT);
        return DDP_OK;
    case REPLICATED:
        return run_replicated(bench);
    case FUSED:
        return run_fused(bench);
    default:
        return ddp_fail(DDP_ERR_INVALID_ARG, "no such variant");
    }
}

/* Numbers stay small: sums of sums of gradients would overflow. */
static void refill(bench_t *bench)
{
    for (size_t i = 0; i < COUNT; i++) {
        bench->grads[i] = 0.001F * (float)(i % 7);
    }
    for (int pages = 0; pages < 2; pages++) { /* pages never written would all be one page of zeros */
        for (size_t i = 0; i < COUNT; i++) {
            bench->sum[pages][i]   = 0.001F * (float)(i % 5);
            bench->other[pages][i] = 0.001F;
        }
    }
}

static ddp_status_t measure(bench_t *bench, variant_t variant, double *ms_p)
{
    double       ms     = 0.0;
    int64_t      start  = 0;
    ddp_status_t status = DDP_OK;

    refill(bench);
    DDP_TRY(meet(bench));
    start = ddp_clock_ns();
    DDP_TRY(run(bench, variant));
    ms = (double)(ddp_clock_ns() - start) / 1e6;
    MPI_Allreduce(&ms, ms_p, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
out:
    return status;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(const double *values, int n)
{
    double sorted[MAX_ROUNDS];

    memcpy(sorted, values, (size_t)n * sizeof(*sorted));
    qsort(sorted, (size_t)n, sizeof(*sorted), compare);
    return sorted[n / 2];
}

static double median_ratio(double ms[][MAX_ROUNDS], variant_t above, variant_t below, int n)
{
    double ratio[MAX_ROUNDS];

    for (int i = 0; i < n; i++) {
        ratio[i] = ms[above][i] / ms[below][i];
    }
    return median(ratio, n);
}

static void report(double ms[][MAX_ROUNDS], int n, int size)
{
    static const char *const names[] = {"own all-reduce",
                                        "MPI_Allreduce in place, small pages",
                                        "MPI_Allreduce in place, huge pages",
                                        "a += b on all ranks, small pages",
                                        "a += b on all ranks, huge pages",
                                        "all-reduce + AdamW on every rank",
                                        "sum fused with AdamW of the own slice"};
    const double             add_over_bound =
        12.0 * size / (2.0 * size * (double)sizeof(float)); /* bytes counted / moved */

    printf("%.1f MB of float32, %d ranks, %d rounds\n", (double)BYTES / 1e6, size, n);
    printf("%-40s %10s %10s\n", "what", "median ms", "GB/s");
    for (int v = 0; v < N_VARIANTS; v++) {
        const double time = median(ms[v], n);
        const double rate = (v == ADD_SMALL || v == ADD_HUGE ? 3.0 * size : 1.0) * (double)BYTES / time / 1e6;

        printf("%-40s %10.2f %10.2f\n", names[v], time, rate);
    }
    printf("%-40s %10.2f  wanted >= 0.85\n", "own all-reduce / bound, small pages",
           median_ratio(ms, ADD_SMALL, OWN, n) / add_over_bound);
    printf("%-40s %10.2f\n", "own all-reduce / bound, huge pages",
           median_ratio(ms, ADD_HUGE, OWN, n) / add_over_bound);
    printf("%-40s %10.2f  wanted >= 3\n", "own all-reduce / MPI, small pages",
           median_ratio(ms, MPI_SMALL, OWN, n));
    printf("%-40s %10.2f\n", "own all-reduce / MPI, huge pages", median_ratio(ms, MPI_HUGE, OWN, n));
    printf("%-40s %10.2f  wanted >= 1.7\n", "fused / all-reduce + AdamW",
           median_ratio(ms, REPLICATED, FUSED, n));
}

static ddp_status_t acquire(ddp_status_t (*share)(ddp_comm_t *, const char *, size_t, void **),
                            ddp_comm_t *comm, float **memory_p)
{
    void        *memory = NULL;
    ddp_status_t status = share != NULL
                              ? share(comm, "the benchmark", BYTES, &memory)
                              : ddp_allocator_private()->acquire(NULL, "the benchmark", BYTES, &memory);

    *memory_p = memory;
    return status;
}

static ddp_status_t set_up(bench_t *bench)
{
    ddp_comm_params_t params = DDP_COMM_PARAMS_INIT;
    void             *memory = NULL;
    ddp_status_t      status = DDP_OK;

    bench->isa    = ddp_isa_detect();
    bench->config = (ddp_optim_config_t)DDP_OPTIM_CONFIG_ADAMW;
    params.parent = MPI_COMM_WORLD;
    DDP_TRY(ddp_comm_create(&params, &bench->comm));
    DDP_REQUIRE(ddp_comm_machines(bench->comm) == 1 && ddp_comm_size(bench->comm) <= MAX_RANKS,
                DDP_ERR_CONFIG, "for up to %d ranks of one machine, with shared memory on", MAX_RANKS);
    DDP_TRY(ddp_comm_shared(bench->comm, "flags", (size_t)ddp_comm_size(bench->comm) * sizeof(ddp_flag_t),
                            &memory));
    bench->flags = memory;
    DDP_TRY(acquire(ddp_comm_shared_each, bench->comm, &bench->grads));
    bench->sum[0]   = malloc(BYTES); /* as any program has it */
    bench->other[0] = malloc(BYTES);
    DDP_REQUIRE(bench->sum[0] != NULL && bench->other[0] != NULL, DDP_ERR_NO_MEMORY, "no memory");
    DDP_TRY(acquire(NULL, NULL, &bench->sum[1]));
    DDP_TRY(acquire(NULL, NULL, &bench->other[1]));
    for (int which = 0; which < 2; which++) {
        ddp_status_t (*share)(ddp_comm_t *, const char *, size_t, void **) =
            which == 0 ? NULL : ddp_comm_shared;

        DDP_TRY(acquire(share, bench->comm, &bench->param[which]));
        DDP_TRY(acquire(share, bench->comm, &bench->slot[which][0]));
        DDP_TRY(acquire(share, bench->comm, &bench->slot[which][1]));
    }
out:
    return status;
}

static ddp_status_t run_all(int rounds)
{
    static double ms[N_VARIANTS][MAX_ROUNDS];
    bench_t       bench  = {0};
    ddp_status_t  status = DDP_OK;

    DDP_TRY(set_up(&bench));
    for (int i = -1; i < rounds; i++) { /* the first one only warms up */
        for (int v = 0; v < N_VARIANTS; v++) {
            DDP_TRY(measure(&bench, (variant_t)v, &ms[v][i < 0 ? 0 : i]));
        }
    }
    if (ddp_comm_rank(bench.comm) == 0) {
        report(ms, rounds, ddp_comm_size(bench.comm));
    }
out:
    ddp_comm_destroy(&bench.comm); /* the private memory goes with the process */
    return status;
}

int main(int argc, char **argv)
{
    const long   rounds   = argc > 1 ? strtol(argv[1], NULL, 10) : 25;
    int          provided = 0;
    ddp_status_t status   = DDP_OK;

    if (rounds < 1 || rounds > MAX_ROUNDS) {
        fprintf(stderr, "bench_allreduce: rounds are 1 .. %d\n", MAX_ROUNDS);
        return 2;
    }
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    status = run_all((int)rounds);
    if (status != DDP_OK) {
        fprintf(stderr, "bench_allreduce: %s\n", ddp_error_line());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_Finalize();
    return 0;
}
