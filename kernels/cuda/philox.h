/** @file The random numbers of the cpu on a CUDA device; for .cu files. Private. */
#ifndef DDP_CUDA_PHILOX_H_
#define DDP_CUDA_PHILOX_H_

#include "kernels/cuda/launch.h"
#include "kernels/philox_internal.h"

/** Four numbers of counter {low, high} under `key`. About 100 instructions. */
static __device__ inline uint4 ddp_philox_at(uint64_t key, uint64_t low, uint64_t high)
{
    const uint32_t counter[4] = {(uint32_t)low, (uint32_t)(low >> 32), (uint32_t)high,
                                 (uint32_t)(high >> 32)};
    uint32_t       random[4];

    ddp_philox_draw(key, counter, random);
    return make_uint4(random[0], random[1], random[2], random[3]);
}

/** As ddp_philox_stream(), with the key's place. About 100 instructions, once for a thread. */
static __device__ inline uint64_t ddp_philox_stream_at(ddp_rng_key_t key, uint32_t use)
{
    key.step += key.place != NULL ? key.place->step : 0;
    return ddp_philox_stream(&key, use);
}

/** The first row in the global batch. */
static __device__ inline uint64_t ddp_philox_row_at(const ddp_rng_key_t &key, uint64_t first_row)
{
    return first_row + (key.place != NULL ? key.place->first_row : 0);
}

/** Whether the element that drew `random` stays. */
static __device__ inline bool ddp_philox_keeps(uint32_t random, uint32_t threshold)
{
    return random >> 8 >= threshold;
}

#endif
