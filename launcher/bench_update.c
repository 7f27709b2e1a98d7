/* The optimizer's update alone, on memory as large as the model's, at most. */
#include "base/clock.h"
#include "base/error.h"
#include "kernels/layout.h"
#include "kernels/optim.h"
#include "launcher/bench.h"

#define MOST_BLOCKS ((size_t)65536) /* 64 MiB an array: beyond most caches */
#define ARRAYS      4               /* gradient, parameter, two moments */
#define ROUNDS      7

ddp_status_t ddp_bench_update(const ddp_run_t *run, ddp_bench_update_t *update_p)
{
    const ddp_reducer_params_t params  = ddp_run_reducer_params(run);
    const ddp_allocator_t     *memory  = ddp_allocator_private();
    const size_t               slots   = ddp_optim_slots(&params.optim);
    const size_t               all     = ddp_params_total(run->params) / DDP_BLOCK;
    const size_t               blocks  = all < MOST_BLOCKS ? all : MOST_BLOCKS;
    const size_t               count   = blocks * DDP_BLOCK;
    const int32_t              op[1]   = {0};
    ddp_update_t               rule    = {.config = &params.optim, .lr = 1e-3F, .grad_scale = 1.0F};
    ddp_status_t               status  = DDP_OK;
    void                      *block   = NULL;
    const float               *grad[1] = {NULL};
    const ddp_tree_program_t   program = {op, 1, grad, NULL};
    const size_t               rounds  = ddp_bench_peak_rounds(run, ROUNDS);
    double                     ns[ROUNDS];

    status = memory->acquire(memory->ctx, "the update benchmark", ARRAYS * count * sizeof(float), &block);
    DDP_TRY(ddp_comm_agree(run->comm, status));
    for (size_t i = 0; i < ARRAYS * count; i++) {
        ((float *)block)[i] = 1e-3F; /* pages never written would all be one page of zeros */
    }
    grad[0]      = block;
    rule.param   = (float *)block + count;
    rule.slot[0] = slots > 0 ? rule.param + count : NULL;
    rule.slot[1] = slots > 1 ? rule.param + 2 * count : NULL;
    for (size_t round = 0; round <= rounds; round++) {
        int64_t start;

        DDP_TRY(ddp_comm_barrier(run->comm));
        start = ddp_clock_ns();
        rule.step++;
        ddp_tree_update(run->isa, &program, &rule, blocks);
        ns[round > 0 ? round - 1 : 0] = (double)(ddp_clock_ns() - start);
    }
    update_p->count   = count;
    update_p->bytes   = (double)(1 + 2 * (1 + slots)) * (double)count * (double)sizeof(float);
    update_p->best_ns = ddp_bench_least(ns, rounds);
    update_p->ns      = ddp_bench_median(ns, rounds);
out:
    memory->release(memory->ctx, block);
    return status;
}
