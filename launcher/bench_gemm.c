/* What the arithmetic units give, for the tables of `bench`. */
#include "launcher/bench.h"

#define SIDE   ((size_t)1024)
#define ROUNDS 15

ddp_status_t ddp_bench_sgemm(const ddp_run_t *run, double *gflops_p)
{
    return ddp_peak_gemm(run, SIDE, ddp_bench_peak_rounds(run, ROUNDS), DDP_PRECISION_FLOAT32, gflops_p);
}
