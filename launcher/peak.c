/* What the arithmetic units give: the program's own matrix product at a size that suits it. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "kernels/ops.h"
#include "launcher/run.h"

#define START_SIDE   ((size_t)512)
#define START_ROUNDS 4

ddp_status_t ddp_peak_gemm(const ddp_run_t *run, size_t side, size_t rounds, ddp_precision_t precision,
                           double *gflops_p)
{
    const ddp_allocator_t *memory  = ddp_allocator_private(); /* not what the run holds */
    const double           flop    = 2.0 * (double)side * (double)side * (double)side;
    ddp_status_t           status  = DDP_OK;
    void                  *block   = NULL;
    int64_t                best_ns = INT64_MAX;
    ddp_gemm_args_t        gemm    = {.m         = side,
                                      .n         = side,
                                      .k         = side,
                                      .alpha     = 1.0F,
                                      .lda       = side,
                                      .ldb       = side,
                                      .ldc       = side,
                                      .precision = precision};

    status = memory->acquire(memory->ctx, "a matrix product", 3 * side * side * sizeof(float), &block);
    DDP_TRY(ddp_comm_agree(run->comm, status));
    gemm.a = block;
    gemm.b = gemm.a + side * side;
    gemm.c = (float *)block + 2 * side * side;
    for (size_t i = 0; i < 2 * side * side; i++) {
        ((float *)block)[i] = (float)(i % 7) / 7.0F;
    }
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
    DDP_TRY(
        ddp_peak_gemm(run, START_SIDE, START_ROUNDS, (ddp_precision_t)run->config.train.precision, &mine));
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
