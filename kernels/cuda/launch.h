/**
 * @file What every .cu file includes: CUDA C, the launch of kernels, and what they share. Private.
 *
 * nvcc sees <<<>>>, g++ what the tests' stand-in makes of a launch. Kernels are launched
 * by LAUNCH(kernel, grid, block, smem, stream, args...) only, and their dynamic shared array is named `smem`.
 */
#ifndef DDP_CUDA_LAUNCH_H_
#define DDP_CUDA_LAUNCH_H_

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#define LAUNCH(kernel, grid, block, smem, stream, ...)                                                       \
    kernel<<<(grid), (block), (smem), (stream)>>>(__VA_ARGS__)
#elif !defined(LAUNCH)
#error "compiled by nvcc, or by g++ with the stand-in's header included before all others (tests/cusim)"
#endif

#include "kernels/cuda/device.h"

/** Threads of a block where nothing else asks for another number. */
#define DDP_CUDA_THREADS 256

/** Blocks for a loop over `count` elements in steps of the whole grid: enough to fill the device, no more. */
static inline unsigned ddp_cuda_blocks(const ddp_stream_t *stream, size_t count)
{
    const size_t most = (size_t)ddp_cuda_multiprocessors(stream) * 8;
    const size_t need = (count + DDP_CUDA_THREADS - 1) / DDP_CUDA_THREADS;

    return (unsigned)(need == 0 ? 1 : need < most ? need : most);
}

/* for (i of this thread; i < count; ...): a loop over all threads of the grid. */
#define DDP_CUDA_EACH(i, count)                                                                              \
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < (count);                              \
         i += gridDim.x * (size_t)blockDim.x)

#endif
