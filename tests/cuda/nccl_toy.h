/** @file The toy of tests/ddp/toy.h over NCCL: what the tests of the reducer begin with. */
#ifndef DDP_TESTS_CUDA_NCCL_TOY_H_
#define DDP_TESTS_CUDA_NCCL_TOY_H_

#include "tests/ddp/toy.h"

static inline toy_params_t cuda_params(ddp_reduction_t reduction, bool shard)
{
    toy_params_t params = TOY_PARAMS_INIT;

    params.cuda              = 1;
    params.reducer.backend   = DDP_REDUCER_NCCL;
    params.reducer.reduction = reduction;
    params.reducer.shard     = shard;
    params.integers          = reduction == DDP_REDUCTION_FAST; /* NCCL's order does not matter */
    return params;
}

#endif
