/* What the arithmetic units give: the program's own matrix product at a size that suits it. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "kernels/ops.h"
#include "launcher/bench.h"
#include "launcher/run.h"

#define START_SIDE   ((size_t)512)
#define START_ROUNDS 4
#define MOST_SIDE    ((size_t)8192)
#define ENOUGH_MS    1.0

/* Numbers for two matrices. */
static ddp_status_t fill_factors(ddp_stream_t *stream, void *block, size_t count)
{
    ddp_status_t status = DDP_OK;
    float       *host   = calloc(count, sizeof(*host));

    DDP_REQUIRE(host != NULL, DDP_ERR_NO_MEMORY, "no memory for a matrix product");
    for (size_t i = 0; i < count; i++) {
        host[i] = (float)(i % 7) / 7.0F;
    }
    DDP_TRY(ddp_stream_copy(stream, block, host, count * sizeof(*host)));
    DDP_TRY(ddp_stream_synchronize(stream, -1));
out:
    free(host);
    return status;
}

ddp_status_t ddp_peak_gemm(const ddp_run_t *run, size_t side, size_t rounds, ddp_precision_t precision,
                           double *gflops_p)
{
    /* not what the run holds */
    const ddp_allocator_t *memory =
        run->gpus != NULL ? ddp_device_allocator(run->device) : ddp_allocator_private();
    const double    flop    = 2.0 * (double)side * (double)side * (double)side;
    ddp_status_t    status  = DDP_OK;
    void           *block   = NULL;
    int64_t         best_ns = INT64_MAX;
    ddp_gemm_args_t gemm    = {.m         = side,
                               .n         = side,
                               .k         = side,
                               .alpha     = 1.0F,
                               .lda       = side,
                               .ldb       = side,
                               .ldc       = side,
                               .precision = precision};

    status = memory->acquire(memory->ctx, "a matrix product", 3 * side * side * sizeof(float), &block);
    if (status == DDP_OK) {
        status = fill_factors(run->compute, block, 2 * side * side);
    }
    DDP_TRY(ddp_comm_agree(run->comm, status));
    gemm.a = block;
    gemm.b = gemm.a + side * side;
    gemm.c = (float *)block + 2 * side * side;
    for (size_t round = 0; round <= rounds; round++) { /* the first one only warms up */
        int64_t start;
        int64_t passed;

        DDP_TRY(ddp_comm_barrier(run->comm));
        start = ddp_clock_ns();
        DDP_TRY(ddp_op_gemm(run->compute, &gemm));
        DDP_TRY(ddp_stream_synchronize(run->compute, -1));
        passed  = ddp_clock_ns() - start;
        best_ns = round > 0 && passed < best_ns ? passed : best_ns;
    }
    *gflops_p = flop / (double)best_ns;
out:
    memory->release(memory->ctx, block);
    return status;
}

/* Beside what the run will take. */
static bool has_room(const ddp_run_t *run, size_t side)
{
    return run->memory.gpu + 3 * side * side * sizeof(float) <= run->memory.gpu_free;
}

/* A GPU wants larger matrices: as long as a product takes less than a millisecond, or so, and all have room
 * for it. The slowest says when to end, so that all work at once. */
static ddp_status_t find_mine(const ddp_run_t *run, double *gflops_p)
{
    const ddp_precision_t precision = (ddp_precision_t)run->config.train.precision;
    ddp_status_t          status    = DDP_OK;
    size_t                side      = START_SIDE;
    double                ms        = 0;
    double                most_ms   = 0;

    DDP_TRY(ddp_peak_gemm(run, side, START_ROUNDS, precision, gflops_p));
    while (run->gpus != NULL && side < MOST_SIDE) {
        ms = has_room(run, 2 * side) ? 0 : ENOUGH_MS;
        ms += 2.0 * (double)side * (double)side * (double)side / *gflops_p / 1e6;
        DDP_TRY(ddp_bench_slowest(run, &ms, 1, &most_ms));
        if (most_ms >= ENOUGH_MS) {
            break;
        }
        side *= 2;
        DDP_TRY(ddp_peak_gemm(run, side, START_ROUNDS, precision, gflops_p));
    }
out:
    return status;
}

ddp_status_t ddp_peak_find(ddp_run_t *run)
{
    ddp_status_t status = DDP_OK;
    const int    size   = ddp_comm_size(run->comm);
    double      *all    = NULL;
    double       mine   = 0;
    double       sum    = 0;

    if (run->config.train.peak_gflops > 0) {
        run->peak_gflops = run->config.train.peak_gflops;
        return DDP_OK;
    }
    DDP_TRY(find_mine(run, &mine));
    all    = calloc((size_t)size, sizeof(*all));
    status = all != NULL ? DDP_OK : ddp_fail(DDP_ERR_NO_MEMORY, "no memory for %d ranks", size);
    DDP_TRY(ddp_comm_agree(run->comm, status));
    DDP_TRY(ddp_comm_allgather(run->comm, &mine, sizeof(mine), all));
    for (int r = 0; r < size; r++) {
        sum += all[r];
    }
    run->peak_gflops = sum / size;
out:
    free(all);
    return status;
}
