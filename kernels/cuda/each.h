/**
 * @file Element-wise operations of the CUDA device: y[i] = f(x0[i], x1[i], ...). CUDA C; private.
 *
 * One thread takes four elements at a time where all addresses allow loads of 16 bytes, else one. Bound by
 * memory: 4 bytes for each input and 4 for the result.
 */
#ifndef DDP_CUDA_EACH_H_
#define DDP_CUDA_EACH_H_

#include "kernels/cuda/launch.h"

/** F has `enum { inputs = n }` and `__device__ float operator()(const float *x) const`, x[n]. */
template <class F> struct ddp_cuda_each_t {
    F            f;
    const float *x[F::inputs > 0 ? F::inputs : 1];
    float       *y; /* may be one of them */
    size_t       count;
};

template <class F> static __device__ inline void each_four(const ddp_cuda_each_t<F> &a, size_t i)
{
    float4 x[F::inputs > 0 ? F::inputs : 1];
    float  one[4][F::inputs > 0 ? F::inputs : 1];
    float4 y;

    for (int k = 0; k < F::inputs; k++) {
        x[k]      = reinterpret_cast<const float4 *>(a.x[k])[i];
        one[0][k] = x[k].x;
        one[1][k] = x[k].y;
        one[2][k] = x[k].z;
        one[3][k] = x[k].w;
    }
    y.x                                = a.f(one[0]);
    y.y                                = a.f(one[1]);
    y.z                                = a.f(one[2]);
    y.w                                = a.f(one[3]);
    reinterpret_cast<float4 *>(a.y)[i] = y;
}

template <class F> static __device__ inline void each_one(const ddp_cuda_each_t<F> &a, size_t i)
{
    float x[F::inputs > 0 ? F::inputs : 1];

    for (int k = 0; k < F::inputs; k++) {
        x[k] = a.x[k][i];
    }
    a.y[i] = a.f(x);
}

/* `fours` times four elements, then the rest one by one. */
template <class F> static __global__ void each_kernel(ddp_cuda_each_t<F> a, size_t fours)
{
    const size_t steps = fours + (a.count - 4 * fours);

    DDP_CUDA_EACH(i, steps)
    {
        if (i < fours) {
            each_four(a, i);
        } else {
            each_one(a, 4 * fours + (i - fours));
        }
    }
}

static inline bool ddp_cuda_is_aligned(const void *address, size_t bytes)
{
    return reinterpret_cast<uintptr_t>(address) % bytes == 0;
}

/** Launch it. @param [in] op  for the line of an error */
template <class F>
static inline ddp_status_t ddp_cuda_each(ddp_stream_t *stream, const char *op, const ddp_cuda_each_t<F> &a)
{
    bool   is_wide = ddp_cuda_is_aligned(a.y, sizeof(float4));
    size_t fours;

    for (int k = 0; k < F::inputs; k++) {
        is_wide = is_wide && ddp_cuda_is_aligned(a.x[k], sizeof(float4));
    }
    fours = is_wide ? a.count / 4 : 0;
    if (a.count > 0) {
        LAUNCH(each_kernel<F>, ddp_cuda_blocks(stream, fours + (a.count - 4 * fours)), DDP_CUDA_THREADS, 0,
               ddp_cuda_stream(stream), a, fours);
    }
    return ddp_cuda_launched(stream, op);
}

#endif
