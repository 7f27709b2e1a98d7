/* What the arithmetic units give: the program's own matrix product at a size that suits it. */
#include "base/clock.h"
#include "base/error.h"
#include "kernels/ops.h"
#include "launcher/bench.h"

#define SIDE   ((size_t)1024)
#define ROUNDS 15

ddp_status_t ddp_bench_sgemm(const ddp_run_t *run, double *gflops_p)
{
    const ddp_allocator_t *memory = ddp_device_allocator(run->device);
    const double           flop   = 2.0 * (double)(SIDE * SIDE * SIDE);
    ddp_status_t           status = DDP_OK;
    void                  *block  = NULL;
    const size_t           rounds = ddp_bench_peak_rounds(run, ROUNDS);
    double                 ns[ROUNDS];
    ddp_gemm_args_t        gemm = {
               .m = SIDE, .n = SIDE, .k = SIDE, .alpha = 1.0F, .lda = SIDE, .ldb = SIDE, .ldc = SIDE};

    status = memory->acquire(memory->ctx, "the product benchmark", 3 * SIDE * SIDE * sizeof(float), &block);
    DDP_TRY(ddp_comm_agree(run->comm, status));
    gemm.a = block;
    gemm.b = gemm.a + SIDE * SIDE;
    gemm.c = (float *)block + 2 * SIDE * SIDE;
    for (size_t i = 0; i < 2 * SIDE * SIDE; i++) {
        ((float *)block)[i] = (float)(i % 7) / 7.0F;
    }
    for (size_t round = 0; round <= rounds; round++) {
        int64_t start;

        DDP_TRY(ddp_comm_barrier(run->comm));
        start = ddp_clock_ns();
        DDP_TRY(ddp_op_gemm(run->compute, &gemm));
        DDP_TRY(ddp_stream_synchronize(run->compute, -1));
        ns[round > 0 ? round - 1 : 0] = (double)(ddp_clock_ns() - start);
    }
    *gflops_p = flop / ddp_bench_least(ns, rounds);
out:
    memory->release(memory->ctx, block);
    return status;
}
