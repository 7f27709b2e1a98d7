/*
 * What a checkpoint of GPT-2 124M costs (1.5 GB: weights and two moments), next to a plain write and fsync of
 * as many bytes into the same folder, in turn; and how long the training loop stands still.
 *
 *     mpirun -np 2 build/bin/bench_save FOLDER [rounds]
 *
 * Rank 0 does the plain write, in pieces of 16 MB. Folder and files must fit: 3 GB on the disk, 4 GB of
 * memory.
 */
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "io/saver.h"

#define LAYERS      12
#define OF_LAYER    12
#define TENSORS     (2 + LAYERS * OF_LAYER + 2)
#define WIDTH       768
#define PIECE_BYTES ((size_t)16 << 20)
#define MOST_ROUNDS 99

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
} bench_t;

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

/* The shapes of GPT-2 124M. */
static void make_tensors(bench_t *bench)
{
    static const size_t shapes[OF_LAYER][2] = {
        {WIDTH, 0}, {WIDTH, 0}, {WIDTH, 3 * WIDTH}, {3 * WIDTH, 0}, {WIDTH, WIDTH},     {WIDTH, 0},
        {WIDTH, 0}, {WIDTH, 0}, {WIDTH, 4 * WIDTH}, {4 * WIDTH, 0}, {4 * WIDTH, WIDTH}, {WIDTH, 0}};
    size_t n = 0;

    add(bench, &n, 50257, WIDTH);
    add(bench, &n, 1024, WIDTH);
    for (size_t i = 0; i < (size_t)LAYERS * OF_LAYER; i++) {
        add(bench, &n, shapes[i % OF_LAYER][0], shapes[i % OF_LAYER][1]);
    }
    add(bench, &n, WIDTH, 0);
    add(bench, &n, WIDTH, 0);
}

static ddp_status_t create(bench_t *bench)
{
    ddp_status_t         status  = DDP_OK;
    ddp_comm_params_t    comm    = DDP_COMM_PARAMS_INIT;
    ddp_device_params_t  device  = DDP_DEVICE_PARAMS_INIT;
    ddp_reducer_params_t reducer = DDP_REDUCER_PARAMS_INIT;
    ddp_saver_params_t   saver   = DDP_SAVER_PARAMS_INIT;

    make_tensors(bench);
    comm.parent     = MPI_COMM_WORLD;
    comm.timeout_ms = 600000;
    DDP_TRY(ddp_layout_make(bench->tensors, TENSORS, &bench->floats));
    DDP_TRY(ddp_comm_create(&comm, &bench->comm));
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
        ddp_reducer_values(bench->reducer)[i]  = (float)i;
        ddp_reducer_slot(bench->reducer, 0)[i] = (float)i + 1;
        ddp_reducer_slot(bench->reducer, 1)[i] = (float)i + 2;
    }
    saver.comm      = bench->comm;
    saver.reducer   = bench->reducer;
    saver.tensors   = bench->tensors;
    saver.n_tensors = TENSORS;
    saver.folder    = bench->folder;
    saver.keep      = 2;
    DDP_TRY(ddp_saver_create(&saver, &bench->saver));
out:
    return status;
}

static void destroy(bench_t *bench)
{
    ddp_saver_destroy(&bench->saver);
    ddp_reducer_destroy(&bench->reducer);
    ddp_stream_destroy(&bench->stream);
    ddp_device_destroy(&bench->device);
    ddp_comm_destroy(&bench->comm);
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

static ddp_status_t save(bench_t *bench, uint64_t step, ddp_save_result_t *result)
{
    ddp_status_t               status = DDP_OK;
    const ddp_training_state_t state  = {.step          = step,
                                         .micro_batches = 1,
                                         .isa           = "any",
                                         .optimizer     = "adamw",
                                         .n_slots       = 2,
                                         .slot          = {"exp_avg", "exp_avg_sq"},
                                         .data          = "",
                                         .config        = "",
                                         .producer      = "bench_save"};

    DDP_TRY(ddp_saver_save(bench->saver, &state, false));
    DDP_TRY(ddp_saver_finish(bench->saver));
    if (ddp_comm_rank(bench->comm) == 0) {
        DDP_REQUIRE(ddp_saver_poll(bench->saver, result) && result->is_saved, DDP_ERR_IO, "%s", result->why);
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

static ddp_status_t measure(bench_t *bench, size_t rounds)
{
    ddp_status_t      status = DDP_OK;
    double            ratio[MOST_ROUNDS];
    ddp_save_result_t result = {0};
    double            plain  = 0;
    uint8_t           ready  = 0;
    const bool        speaks = ddp_comm_rank(bench->comm) == 0;

    for (size_t i = 0; i < rounds; i++) {
        if (speaks) {
            DDP_TRY(write_plain(bench, &plain));
        }
        DDP_TRY(ddp_comm_broadcast(bench->comm, &ready, sizeof(ready), 0));
        DDP_TRY(save(bench, i + 1, &result));
        ratio[i] = (double)result.write_ns / 1e9 / (plain > 0 ? plain : 1);
        if (speaks) {
            printf("plain %.2f s, save %.2f s (%.0f MB), ratio %.2f, stall %.0f ms\n", plain,
                   (double)result.write_ns / 1e9, (double)result.bytes / 1e6, ratio[i],
                   (double)result.stall_ns / 1e6);
        }
    }
    qsort(ratio, rounds, sizeof(ratio[0]), compare);
    if (speaks) {
        printf("median ratio %.2f\n", ratio[rounds / 2]);
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

    if (argc < 2 || strlen(argv[1]) >= sizeof(bench.folder) || rounds < 1 || rounds > MOST_ROUNDS) {
        fprintf(stderr, "usage: bench_save FOLDER [rounds]\n");
        return 2;
    }
    memcpy(bench.folder, argv[1], strlen(argv[1]) + 1);
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    status = create(&bench);
    if (status == DDP_OK) {
        status = measure(&bench, (size_t)rounds);
    }
    if (status != DDP_OK) {
        fprintf(stderr, "bench_save: %s\n", ddp_error_line());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    destroy(&bench);
    MPI_Finalize();
    return 0;
}
