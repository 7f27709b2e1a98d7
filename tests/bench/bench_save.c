/*
 * What a checkpoint of GPT-2 124M costs (1.5 GB: weights and two moments): next to a plain write and fsync of
 * as many bytes into the same folder, and to the training loop while it is written; and what memory it takes.
 *
 *     mpirun -np 2 build/bin/bench_save FOLDER [rounds [width]]
 *
 * A round does both writes, in the other order than the round before, each on a disk that has nothing else to
 * do for this program. Rank 0 does the plain one, in pieces of 16 MB. Then, in each round, steps of a
 * training loop (matrix products, and AdamW of all weights as the reducer does it) without a save and with
 * one: how long the loop stood still for the copy, and how much longer its steps took until the file was
 * there. Ratios and times are medians of rounds. `width` (768) makes it smaller, to see that it works. Folder
 * and files must fit: 5 GB on the disk, 5 GB of memory.
 */
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/allocator.h"
#include "base/clock.h"
#include "base/convert.h"
#include "base/error.h"
#include "io/saver.h"
#include "kernels/ops.h"

#define LAYERS      12
#define OF_LAYER    12
#define TENSORS     (2 + LAYERS * OF_LAYER + 2)
#define WIDTH       768
#define PIECE_BYTES ((size_t)16 << 20)
#define MOST_ROUNDS 99
#define MOST_RANKS  64
#define SIDE        ((size_t)1024)
#define PRODUCTS    10 /* of a step; 21 GFLOP */
#define PLAIN_STEPS 10
#define MINUTE_S    60.0

typedef struct bench {
    ddp_comm_t       *comm;
    ddp_device_t     *device;
    ddp_stream_t     *stream;
    ddp_reducer_t    *reducer;
    ddp_saver_t      *saver;
    ddp_tensor_desc_t tensors[TENSORS];
    char              names[TENSORS][32];
    size_t            floats; /* of an arena */
    char              folder[3072];
    ddp_gemm_args_t   gemm;
    uint64_t          step;
    double            pss_mb; /* most of this rank so far */
} bench_t;

/* Medians are taken of these. */
typedef struct rounds {
    size_t n;
    double plain[MOST_ROUNDS], save[MOST_ROUNDS], ratio[MOST_ROUNDS];
    double step[MOST_ROUNDS], still[MOST_ROUNDS], more[MOST_ROUNDS];
} rounds_t;

static void add(bench_t *bench, size_t *n, size_t rows, size_t columns)
{
    ddp_tensor_desc_t *tensor = &bench->tensors[*n];

    snprintf(bench->names[*n], sizeof(bench->names[*n]), "tensor.%zu", *n);
    tensor->name     = bench->names[*n];
    tensor->ndim     = columns > 0 ? 2 : 1;
    tensor->shape[0] = rows;
    tensor->shape[1] = columns;
    tensor->count    = rows * (columns > 0 ? columns : 1);
    (*n)++;
}

/* The shapes of GPT-2 124M, at its width. */
static void make_tensors(bench_t *bench, size_t width)
{
    const size_t shapes[OF_LAYER][2] = {
        {width, 0}, {width, 0}, {width, 3 * width}, {3 * width, 0}, {width, width},     {width, 0},
        {width, 0}, {width, 0}, {width, 4 * width}, {4 * width, 0}, {4 * width, width}, {width, 0}};
    size_t n = 0;

    add(bench, &n, 50257, width);
    add(bench, &n, 1024, width);
    for (size_t i = 0; i < (size_t)LAYERS * OF_LAYER; i++) {
        add(bench, &n, shapes[i % OF_LAYER][0], shapes[i % OF_LAYER][1]);
    }
    add(bench, &n, width, 0);
    add(bench, &n, width, 0);
}

/* Proportional set size: each page divided by the number of processes that map it. */
static double own_pss_mb(void)
{
    FILE  *file = fopen("/proc/self/smaps_rollup", "r");
    char   line[128];
    double kb = 0;

    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, "Pss:", 4) == 0) {
            kb = strtod(line + 4, NULL);
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return kb * 1024 / 1e6;
}

static ddp_status_t sum_pss(bench_t *bench, double mine, double *sum_p)
{
    ddp_status_t status = DDP_OK;
    double       all[MOST_RANKS];

    *sum_p = 0;
    DDP_TRY(ddp_comm_allgather(bench->comm, &mine, sizeof(mine), all));
    for (int r = 0; r < ddp_comm_size(bench->comm); r++) {
        *sum_p += all[r];
    }
out:
    return status;
}

static ddp_status_t create_work(bench_t *bench)
{
    ddp_status_t           status = DDP_OK;
    const ddp_allocator_t *memory = ddp_allocator_private();
    void                  *block  = NULL;

    DDP_TRY(memory->acquire(memory->ctx, "a matrix product", 3 * SIDE * SIDE * sizeof(float), &block));
    bench->gemm =
        (ddp_gemm_args_t){.m = SIDE, .n = SIDE, .k = SIDE, .alpha = 1, .lda = SIDE, .ldb = SIDE, .ldc = SIDE};
    bench->gemm.a = block;
    bench->gemm.b = bench->gemm.a + SIDE * SIDE;
    bench->gemm.c = (float *)block + 2 * SIDE * SIDE;
    for (size_t i = 0; i < 2 * SIDE * SIDE; i++) {
        ((float *)block)[i] = (float)(i % 7) / 7.0F;
    }
out:
    return status;
}

static ddp_status_t create(bench_t *bench, size_t width)
{
    ddp_status_t         status  = DDP_OK;
    ddp_comm_params_t    comm    = DDP_COMM_PARAMS_INIT;
    ddp_device_params_t  device  = DDP_DEVICE_PARAMS_INIT;
    ddp_reducer_params_t reducer = DDP_REDUCER_PARAMS_INIT;

    make_tensors(bench, width);
    comm.parent     = MPI_COMM_WORLD;
    comm.timeout_ms = 600000;
    DDP_TRY(ddp_layout_make(bench->tensors, TENSORS, &bench->floats));
    DDP_TRY(ddp_comm_create(&comm, &bench->comm));
    DDP_REQUIRE(ddp_comm_size(bench->comm) <= MOST_RANKS, DDP_ERR_INVALID_ARG, "more than %d ranks",
                MOST_RANKS);
    device.isa = ddp_isa_detect();
    DDP_TRY(ddp_device_create(&device, &bench->device));
    ddp_comm_attach(bench->comm, bench->device);
    DDP_TRY(ddp_stream_create(bench->device, "compute", &bench->stream));
    reducer.comm          = bench->comm;
    reducer.compute       = bench->stream;
    reducer.tensors       = bench->tensors;
    reducer.n_tensors     = TENSORS;
    reducer.micro_batches = (size_t)ddp_comm_size(bench->comm);
    DDP_TRY(ddp_reducer_create(&reducer, &bench->reducer));
    for (size_t i = 0; i < bench->floats && ddp_comm_local_rank(bench->comm) == 0; i++) {
        ddp_reducer_values(bench->reducer)[i]  = (float)(i % 1000);
        ddp_reducer_slot(bench->reducer, 0)[i] = (float)(i % 999);
        ddp_reducer_slot(bench->reducer, 1)[i] = (float)(i % 998);
    }
    DDP_TRY(create_work(bench));
out:
    return status;
}

static ddp_status_t create_saver(bench_t *bench)
{
    ddp_saver_params_t saver = DDP_SAVER_PARAMS_INIT;

    saver.comm      = bench->comm;
    saver.reducer   = bench->reducer;
    saver.tensors   = bench->tensors;
    saver.n_tensors = TENSORS;
    saver.folder    = bench->folder;
    saver.keep      = 2;
    return ddp_saver_create(&saver, &bench->saver);
}

static void destroy(bench_t *bench)
{
    const ddp_allocator_t *memory = ddp_allocator_private();

    ddp_saver_destroy(&bench->saver);
    ddp_reducer_destroy(&bench->reducer);
    ddp_stream_destroy(&bench->stream);
    ddp_device_destroy(&bench->device);
    ddp_comm_destroy(&bench->comm);
    memory->release(memory->ctx, (float *)bench->gemm.c - 2 * SIDE * SIDE);
}

/* One step: products for the time of forward and backward, then all gradients (0) at once. */
static ddp_status_t train_step(bench_t *bench)
{
    ddp_status_t           status = DDP_OK;
    const ddp_step_t       step   = {.lr = 0.001F, .samples = (size_t)ddp_comm_size(bench->comm)};
    const ddp_loss_stats_t stats  = {.weight = 1, .counted = 1};
    uint8_t                used[TENSORS];
    float                 *grads      = NULL;
    bool                   accumulate = false;
    ddp_step_result_t      result;

    memset(used, 1, sizeof(used));
    DDP_TRY(ddp_reducer_step_begin(bench->reducer, &step));
    DDP_TRY(ddp_reducer_micro_begin(bench->reducer, (size_t)ddp_comm_rank(bench->comm), &grads, &accumulate));
    DDP_TRY(ddp_reducer_forward_done(bench->reducer, &stats, used));
    for (size_t i = 0; i < PRODUCTS; i++) {
        DDP_TRY(ddp_op_gemm(bench->stream, &bench->gemm));
        DDP_TRY(ddp_stream_synchronize(bench->stream, -1));
    }
    for (size_t i = TENSORS; i-- > 0;) {
        memset(grads + bench->tensors[i].offset, 0, bench->tensors[i].count * sizeof(float));
        DDP_TRY(ddp_reducer_ready(bench->reducer, i));
    }
    DDP_TRY(ddp_reducer_micro_end(bench->reducer));
    DDP_TRY(ddp_reducer_step_end(bench->reducer, &result));
    DDP_TRY(ddp_reducer_finish(bench->reducer));
out:
    return status;
}

static ddp_status_t write_plain(const bench_t *bench, double *seconds_p)
{
    ddp_status_t  status = DDP_OK;
    char          path[sizeof(bench->folder) + 8];
    const int64_t start = ddp_clock_ns();
    int           fd;
    int           failed = 0;

    snprintf(path, sizeof(path), "%s/plain", bench->folder);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    DDP_REQUIRE(fd >= 0, DDP_ERR_IO, "'%s' cannot be written", path);
    for (int array = 0; array < 3; array++) {
        const float *arena = array == 0 ? ddp_reducer_values(bench->reducer)
                                        : ddp_reducer_slot(bench->reducer, (size_t)array - 1);
        const char  *bytes = (const char *)arena;

        for (size_t at = 0; at < bench->floats * sizeof(float) && failed == 0; at += PIECE_BYTES) {
            const size_t left = bench->floats * sizeof(float) - at;
            const size_t n    = left < PIECE_BYTES ? left : PIECE_BYTES;

            failed = write(fd, bytes + at, n) != (ssize_t)n ? 1 : 0;
        }
    }
    failed += fsync(fd) != 0 ? 1 : 0;
    failed += close(fd) != 0 ? 1 : 0;
    *seconds_p = (double)(ddp_clock_ns() - start) / 1e9;
    DDP_REQUIRE(failed == 0 && unlink(path) == 0, DDP_ERR_IO, "'%s' cannot be written", path);
out:
    return status;
}

static ddp_status_t begin_save(bench_t *bench)
{
    const ddp_training_state_t state = {.step          = ++bench->step,
                                        .micro_batches = 1,
                                        .isa           = "any",
                                        .optimizer     = "adamw",
                                        .n_slots       = 2,
                                        .slot          = {"exp_avg", "exp_avg_sq"},
                                        .data          = "",
                                        .config        = "",
                                        .producer      = "bench_save"};

    return ddp_saver_save(bench->saver, &state, false);
}

/* Rank 0: of the save that has ended. */
static ddp_status_t take_result(bench_t *bench, ddp_save_result_t *result)
{
    ddp_status_t status = DDP_OK;

    if (ddp_comm_rank(bench->comm) == 0) {
        DDP_REQUIRE(ddp_saver_poll(bench->saver, result), DDP_ERR_STATE, "the save has no result");
        DDP_REQUIRE(result->is_saved, DDP_ERR_IO, "%s", result->why);
    }
out:
    return ddp_comm_agree(bench->comm, status);
}

/* What lies in the page cache, and what was removed, is dealt with before the clock starts. */
static ddp_status_t settle_disk(bench_t *bench)
{
    if (ddp_comm_rank(bench->comm) == 0) {
        sync();
    }
    return ddp_comm_barrier(bench->comm);
}

static ddp_status_t write_one(bench_t *bench, bool is_save, double *seconds_p)
{
    ddp_status_t      status = DDP_OK;
    ddp_save_result_t result = {0};

    DDP_TRY(settle_disk(bench));
    if (is_save) {
        DDP_TRY(begin_save(bench));
        DDP_TRY(ddp_saver_finish(bench->saver));
        DDP_TRY(take_result(bench, &result));
        *seconds_p = (double)result.write_ns / 1e9;
    } else {
        if (ddp_comm_rank(bench->comm) == 0) {
            status = write_plain(bench, seconds_p);
        }
        status = ddp_comm_agree(bench->comm, status);
    }
out:
    return status;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(const double *values, size_t n)
{
    double sorted[MOST_ROUNDS];

    memcpy(sorted, values, n * sizeof(values[0]));
    qsort(sorted, n, sizeof(sorted[0]), compare);
    return n % 2 == 1 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

static ddp_status_t measure_writes(bench_t *bench, rounds_t *rounds, size_t i)
{
    ddp_status_t status     = DDP_OK;
    const bool   save_first = i % 2 == 1;
    double      *seconds[2] = {&rounds->plain[i], &rounds->save[i]};

    DDP_TRY(write_one(bench, save_first, seconds[save_first ? 1 : 0]));
    DDP_TRY(write_one(bench, !save_first, seconds[save_first ? 0 : 1]));
    if (ddp_comm_rank(bench->comm) == 0) {
        rounds->ratio[i] = rounds->save[i] / rounds->plain[i];
        printf("write, round %zu, %s first: plain %.2f s, save %.2f s, ratio %.2f\n", i + 1,
               save_first ? "save" : "plain", rounds->plain[i], rounds->save[i], rounds->ratio[i]);
    }
out:
    return status;
}

/* Steps until the file is there; the loop asks after each, as the program does. */
static ddp_status_t train_while_writing(bench_t *bench, size_t *steps_p, ddp_save_result_t *result)
{
    ddp_status_t status  = DDP_OK;
    uint8_t      is_done = 0;

    for (*steps_p = 0; is_done == 0; (*steps_p)++) {
        const double pss = own_pss_mb();

        bench->pss_mb = pss > bench->pss_mb ? pss : bench->pss_mb;
        DDP_TRY(train_step(bench));
        if (ddp_comm_rank(bench->comm) == 0 && ddp_saver_poll(bench->saver, result)) {
            is_done = 1;
            DDP_REQUIRE(result->is_saved, DDP_ERR_IO, "%s", result->why);
        }
        DDP_TRY(ddp_comm_broadcast(bench->comm, &is_done, sizeof(is_done), 0));
    }
out:
    return status;
}

static ddp_status_t measure_loop(bench_t *bench, rounds_t *rounds, size_t i)
{
    ddp_status_t      status = DDP_OK;
    size_t            steps  = 0;
    ddp_save_result_t result = {0};
    double            each[PLAIN_STEPS];
    int64_t           start;
    double            passed;

    DDP_TRY(settle_disk(bench));
    for (size_t s = 0; s < PLAIN_STEPS; s++) {
        start = ddp_clock_ns();
        DDP_TRY(train_step(bench));
        each[s] = (double)(ddp_clock_ns() - start) / 1e9;
    }
    rounds->step[i] = median(each, PLAIN_STEPS);
    start           = ddp_clock_ns();
    DDP_TRY(begin_save(bench));
    DDP_TRY(train_while_writing(bench, &steps, &result));
    passed           = (double)(ddp_clock_ns() - start) / 1e9;
    rounds->still[i] = (double)result.stall_ns / 1e9;
    rounds->more[i]  = passed - rounds->still[i] - (double)steps * rounds->step[i];
    if (ddp_comm_rank(bench->comm) == 0) {
        printf("loop, round %zu: a step %.0f ms; stood still %.0f ms; %zu steps until the file was there, "
               "%.0f ms "
               "more than without\n",
               i + 1, 1e3 * rounds->step[i], 1e3 * rounds->still[i], steps, 1e3 * rounds->more[i]);
    }
out:
    return status;
}

static void say_medians(const rounds_t *rounds)
{
    const double still = median(rounds->still, rounds->n);
    const double more  = median(rounds->more, rounds->n);

    printf("medians of %zu rounds: plain %.2f s, save %.2f s, ratio %.2f\n", rounds->n,
           median(rounds->plain, rounds->n), median(rounds->save, rounds->n),
           median(rounds->ratio, rounds->n));
    printf("of a minute between two saves: stands still %.2f %%, with what steps take longer %.2f %%\n",
           100 * still / MINUTE_S, 100 * (still + more) / MINUTE_S);
}

static ddp_status_t run(bench_t *bench, size_t rounds_wanted)
{
    static rounds_t rounds;
    ddp_status_t    status = DDP_OK;
    const bool      speaks = ddp_comm_rank(bench->comm) == 0;
    double          before = 0;
    double          with   = 0;
    double          most   = 0;

    DDP_TRY(train_step(bench)); /* takes what it takes */
    DDP_TRY(sum_pss(bench, own_pss_mb(), &before));
    DDP_TRY(create_saver(bench));
    DDP_TRY(sum_pss(bench, own_pss_mb(), &with));
    for (; rounds.n < rounds_wanted; rounds.n++) {
        DDP_TRY(measure_writes(bench, &rounds, rounds.n));
        DDP_TRY(measure_loop(bench, &rounds, rounds.n));
    }
    DDP_TRY(sum_pss(bench, bench->pss_mb, &most));
    if (speaks) {
        say_medians(&rounds);
        printf("memory of all ranks, PSS: %.0f MB, with the snapshot %.0f MB more (%.0f MB stated), while "
               "writing "
               "%.0f MB more\n",
               before, with - before, (double)ddp_saver_bytes(bench->tensors, TENSORS, 2) / 1e6,
               most - before);
    }
out:
    return status;
}

int main(int argc, char **argv)
{
    static bench_t bench;
    ddp_status_t   status;
    int            provided;
    const long     rounds = argc > 2 ? strtol(argv[2], NULL, 10) : 5;
    const long     width  = argc > 3 ? strtol(argv[3], NULL, 10) : WIDTH;

    if (argc < 2 || strlen(argv[1]) >= sizeof(bench.folder) || rounds < 1 || rounds > MOST_ROUNDS ||
        width < 1 || width > WIDTH) {
        fprintf(stderr, "usage: bench_save FOLDER [rounds [width]]\n");
        return 2;
    }
    memcpy(bench.folder, argv[1], strlen(argv[1]) + 1);
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    setvbuf(stdout, NULL, _IOLBF, 0);
    status = create(&bench, (size_t)width);
    if (status == DDP_OK) {
        status = run(&bench, (size_t)rounds);
    }
    if (status != DDP_OK) {
        fprintf(stderr, "bench_save: %s\n", ddp_error_line());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    destroy(&bench);
    MPI_Finalize();
    return 0;
}
