/*
 * What an optimizer step of 25 MB costs on the ranks of one machine: an all-reduce, then AdamW on every rank,
 * against the sum fused with AdamW of the own slice. `ddptrain bench comm` measures the all-reduce itself.
 *
 *     mpirun -np 2 build/bin/bench_update [rounds]
 *
 * Every round runs both one after the other, so that a busy machine hurts them alike; a time is that of the
 * slowest rank. The ratio is the median of the rounds' ratios.
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

typedef enum variant { REPLICATED = 0, FUSED, N_VARIANTS } variant_t;

typedef struct bench {
    ddp_comm_t        *comm;
    ddp_flag_t        *flags; /* shared, [size] */
    uint64_t           meetings;
    ddp_isa_t          isa;
    ddp_optim_config_t config;
    uint64_t           step;
    float             *grads;      /* this rank's part of a window */
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

/* Numbers stay small: sums of sums of gradients would overflow. */
static void refill(bench_t *bench)
{
    for (size_t i = 0; i < COUNT; i++) {
        bench->grads[i] = 0.001F * (float)(i % 7);
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
    bench->step++;
    DDP_TRY(variant == FUSED ? run_fused(bench) : run_replicated(bench));
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

static void report(double ms[][MAX_ROUNDS], int n, int size)
{
    double ratio[MAX_ROUNDS];

    for (int i = 0; i < n; i++) {
        ratio[i] = ms[REPLICATED][i] / ms[FUSED][i];
    }
    printf("%.1f MB of float32, %d ranks, %d rounds\n", (double)BYTES / 1e6, size, n);
    printf("all-reduce, then AdamW on every rank   %8.2f ms\n", median(ms[REPLICATED], n));
    printf("sum fused with AdamW of the own slice  %8.2f ms\n", median(ms[FUSED], n));
    printf("ratio                                  %8.2f  wanted >= 1.7\n", median(ratio, n));
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
        fprintf(stderr, "bench_update: rounds are 1 .. %d\n", MAX_ROUNDS);
        return 2;
    }
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    status = run_all((int)rounds);
    if (status != DDP_OK) {
        fprintf(stderr, "bench_update: %s\n", ddp_error_line());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_Finalize();
    return 0;
}
