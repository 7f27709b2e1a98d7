/**
 * @file Philox 4x32-10 of one counter, and how (seed, step, layer) becomes its key: for C, and for kernels of
 * CUDA. Private.
 *
 * Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3 (2011).
 */
#ifndef DDP_PHILOX_INTERNAL_H_
#define DDP_PHILOX_INTERNAL_H_

#include <math.h>

#include "kernels/ops.h"

#define DDP_PHILOX_M0     0xd2511f53U
#define DDP_PHILOX_M1     0xcd9e8d57U
#define DDP_PHILOX_W0     0x9e3779b9U
#define DDP_PHILOX_W1     0xbb67ae85U
#define DDP_PHILOX_ROUNDS 10

/* What the numbers are for: the same (seed, step, layer) gives unrelated ones. */
#define DDP_PHILOX_DROPOUT 1U
#define DDP_PHILOX_UNIFORM 2U
#define DDP_PHILOX_NORMAL  3U
#define DDP_PHILOX_WEIGHTS 4U /* dropout of attention */

/*
 * Numbers come in groups of 64 along a row: 16 counters of four words, in the order word, counter. Number j
 * is word j % 64 / 16 of counter j / 64 * 16 + j % 16, for every vector length and device.
 */
#define DDP_PHILOX_LANES ((size_t)16)
#define DDP_PHILOX_GROUP ((size_t)64)

#ifdef __CUDACC__
#define DDP_PHILOX_FUNCTION static __host__ __device__ inline
#else
#define DDP_PHILOX_FUNCTION static inline
#endif

/* As ddp_philox(), in registers. */
DDP_PHILOX_FUNCTION void ddp_philox_draw(uint64_t key, const uint32_t counter[4], uint32_t random[4])
{
    uint32_t k0 = (uint32_t)key;
    uint32_t k1 = (uint32_t)(key >> 32);
    uint32_t c0 = counter[0];
    uint32_t c1 = counter[1];
    uint32_t c2 = counter[2];
    uint32_t c3 = counter[3];

    for (int round = 0; round < DDP_PHILOX_ROUNDS; round++) {
        const uint64_t p0 = (uint64_t)c0 * DDP_PHILOX_M0;
        const uint64_t p1 = (uint64_t)c2 * DDP_PHILOX_M1;

        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += DDP_PHILOX_W0;
        k1 += DDP_PHILOX_W1;
    }
    random[0] = c0;
    random[1] = c1;
    random[2] = c2;
    random[3] = c3;
}

/* The key of one (seed, step, layer, use), without a place: itself drawn with the seed as the key. */
DDP_PHILOX_FUNCTION uint64_t ddp_philox_stream(const ddp_rng_key_t *key, uint32_t use)
{
    const uint32_t counter[4] = {(uint32_t)key->step, (uint32_t)(key->step >> 32), key->layer, use};
    uint32_t       random[4];

    ddp_philox_draw(key->seed, counter, random);
    return (uint64_t)random[1] << 32 | random[0];
}

/* Elements whose upper 24 bits are below this are dropped. */
static inline uint32_t ddp_philox_threshold(float p)
{
    return (uint32_t)ceilf(p * 16777216.0F);
}

#endif
