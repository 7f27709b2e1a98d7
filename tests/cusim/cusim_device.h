/**
 * @file The device side of the stand-in for CUDA: what g++ needs to compile a .cu file for the CPU.
 *
 * ddp_add_standin_objects() puts this header in front of every .cu file (-include), so a kernel's source
 * names no header of the stand-in. The rules for a kernel are those of kernels/cuda/launch.h: LAUNCH(...)
 * starts it, and the dynamic shared array is called `smem`. NVIDIA's own headers supply the vector types and
 * the arithmetic of bfloat16 and half; this one supplies what nvcc has built in: thread indices, shared
 * memory, barriers, warp operations, atomics, intrinsics.
 *
 * Every CUDA thread is a fiber (fiber.h). Not here: tensor cores, clusters, cooperative groups, textures,
 * __constant__ memory written from the host, `__device__` variables (they would be ordinary globals that
 * survive nothing).
 */
#ifndef DDP_CUSIM_DEVICE_H_
#define DDP_CUSIM_DEVICE_H_

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <tuple>
#include <type_traits>
#include <utility>

/* At block scope thread_local implies static; with extern it is the array that block.cpp defines. */
#undef __shared__
#define __shared__ thread_local
#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __constant__
#define __constant__
#undef __grid_constant__
#define __grid_constant__

/* Variables, not macros: cudaLaunchConfig_t has members of these names. */
extern __thread uint3 threadIdx, blockIdx, blockDim, gridDim;
static const int      warpSize = 32;

#include "tests/cusim/cusim_warp.h"
/* after the warp operations: */
#include "tests/cusim/cusim_math.h"
/* what a kernel is to the runtime, and LAUNCH: */
#include "tests/cusim/cusim_launch.h"

#endif /* DDP_CUSIM_DEVICE_H_ */
