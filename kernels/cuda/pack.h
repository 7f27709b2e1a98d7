/**
 * @file N floats next to each other, read and written at once (N = 4: 16 bytes, the widest access of a
 * thread); for .cu files. Private.
 */
#ifndef DDP_CUDA_PACK_H_
#define DDP_CUDA_PACK_H_

#include "kernels/cuda/launch.h"

template <int N> struct alignas(4 * N) ddp_pack {
    float at[N];
};

/** `x` is aligned to the size of the pack. */
template <int N> static __device__ inline ddp_pack<N> ddp_load(const float *x)
{
    return *reinterpret_cast<const ddp_pack<N> *>(x);
}

template <int N> static __device__ inline void ddp_store(float *y, const ddp_pack<N> &value)
{
    *reinterpret_cast<ddp_pack<N> *>(y) = value;
}

/** y (+)= value */
template <int N> static __device__ inline void ddp_put(float *y, bool accumulate, ddp_pack<N> value)
{
    if (accumulate) {
        const ddp_pack<N> old = ddp_load<N>(y);

#pragma unroll
        for (int k = 0; k < N; k++) {
            value.at[k] = old.at[k] + value.at[k];
        }
    }
    ddp_store<N>(y, value);
}

/** Whether rows of `width` floats at all of these addresses (NULL: none) can be read in packs of 4. Host. */
template <class... T> static inline bool ddp_is_packed(size_t width, const T *...memory)
{
    const uintptr_t bits = (uintptr_t(0) | ... | reinterpret_cast<uintptr_t>(memory));

    return width % 4 == 0 && bits % 16 == 0;
}

#endif
