/**
 * @file The random numbers of the cpu (kernels/cpu/philox.h) on a CUDA device: Philox 4x32-10, Salmon et al.
 * 2011. For .cu files. Private.
 *
 * Numbers come in groups of 64 along a row: 16 counters of four words, in the order word, counter. Number j
 * is word j % 64 / 16 of counter j / 64 * 16 + j % 16.
 */
#ifndef DDP_CUDA_PHILOX_H_
#define DDP_CUDA_PHILOX_H_

#include <math.h>

#include "kernels/cuda/launch.h"
#include "kernels/ops.h"

/* What the numbers are for, as on the cpu. */
#define DDP_PHILOX_DROPOUT 1U
#define DDP_PHILOX_UNIFORM 2U
#define DDP_PHILOX_NORMAL  3U
#define DDP_PHILOX_WEIGHTS 4U /* dropout of attention */

/** Counters of a group; the four numbers of one are so far apart. */
#define DDP_PHILOX_LANES 16
/** Numbers of a group. */
#define DDP_PHILOX_GROUP 64

/** The key of one (seed, step, layer, use). Host. */
static inline uint64_t ddp_philox_stream(const ddp_rng_key_t *key, uint32_t use)
{
    const uint32_t counter[4] = {(uint32_t)key->step, (uint32_t)(key->step >> 32), key->layer, use};
    uint32_t       random[4];

    ddp_philox(key->seed, counter, random);
    return (uint64_t)random[1] << 32 | random[0];
}

/** Elements whose upper 24 bits are below this are dropped. Host. */
static inline uint32_t ddp_philox_threshold(float p)
{
    return (uint32_t)ceilf(p * 16777216.0F);
}

/** Four numbers of counter {low, high} under `key`. About 100 instructions. */
static __device__ inline uint4 ddp_philox_at(uint64_t key, uint64_t low, uint64_t high)
{
    uint32_t k0 = (uint32_t)key;
    uint32_t k1 = (uint32_t)(key >> 32);
    uint4    c  = make_uint4((uint32_t)low, (uint32_t)(low >> 32), (uint32_t)high, (uint32_t)(high >> 32));

#pragma unroll
    for (int round = 0; round < 10; round++) {
        const uint32_t low0  = c.x * 0xd2511f53U;
        const uint32_t high0 = __umulhi(c.x, 0xd2511f53U);
        const uint32_t low1  = c.z * 0xcd9e8d57U;
        const uint32_t high1 = __umulhi(c.z, 0xcd9e8d57U);

        c = make_uint4(high1 ^ c.y ^ k0, low1, high0 ^ c.w ^ k1, low0);
        k0 += 0x9e3779b9U;
        k1 += 0xbb67ae85U;
    }
    return c;
}

/** Whether the element that drew `random` stays. */
static __device__ inline bool ddp_philox_keeps(uint32_t random, uint32_t threshold)
{
    return random >> 8 >= threshold;
}

#endif
