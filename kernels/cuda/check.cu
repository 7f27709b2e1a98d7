#include "kernels/cuda/check.h"

#include "kernels/cuda/reduce.h"

#define THREADS 512

/* One block: each thread looks at every 512th index, eight at a time, and the smallest place that was found
 * wins. */
static __global__ void check_kernel(const int32_t *index, size_t count, size_t limit, int wrong,
                                    int32_t ignored, ddp_cuda_fault_t *fault)
{
    __shared__ unsigned long long first;
    unsigned long long            found = count;

    if (threadIdx.x == 0) {
        first = count;
    }
    __syncthreads();
#pragma unroll 8
    for (size_t i = threadIdx.x; i < count; i += THREADS) {
        const int32_t value      = index[i];
        const bool    is_ignored = wrong == DDP_CUDA_WRONG_LABEL && value == ignored;

        if ((value < 0 || (size_t)value >= limit) && !is_ignored && i < found) {
            found = i;
        }
    }
    if (found < count) {
        atomicMin(&first, found);
    }
    __syncthreads();
    if (threadIdx.x == 0 && first < count && atomicCAS(&fault->taken, 0, 1) == 0) {
        fault->ignored = ignored;
        fault->row     = (int64_t)first;
        fault->value   = index[first];
        fault->limit   = (int64_t)limit;
        __threadfence_system(); /* whoever waits for another stream may look now */
        atomicExch(&fault->wrong, wrong);
    }
}

ddp_status_t ddp_cuda_check_indices(ddp_stream_t *stream, const ddp_cuda_check_args_t *args)
{
    if (args->count > 0) {
        LAUNCH(check_kernel, 1, THREADS, 0, ddp_cuda_stream(stream), args->index, args->count, args->limit,
               (int)args->wrong, args->ignored, ddp_cuda_fault(stream));
    }
    return ddp_cuda_launched(stream, "check");
}
