/* Matrices of float32 as 16-bit numbers, for the library's products. */
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/launch.h"

/* Numbers that a thread converts at a time: 16 bytes of them are written. */
#define PACK 8

template <ddp_precision_t P> static __device__ inline uint16_t bits_of(float x)
{
    return P == DDP_PRECISION_BF16 ? __bfloat16_as_ushort(__float2bfloat16_rn(x))
                                   : __half_as_ushort(__float2half_rn(x));
}

/* Eight numbers that lie in `x` as two aligned vectors of four. */
static __device__ inline void read_pack(const float *x, float value[PACK])
{
    for (int h = 0; h < 2; h++) {
        const float4 four = ((const float4 *)x)[h];

        value[4 * h]     = four.x;
        value[4 * h + 1] = four.y;
        value[4 * h + 2] = four.z;
        value[4 * h + 3] = four.w;
    }
}

/* Aligned: rows begin at multiples of 16 bytes. */
template <ddp_precision_t P, bool Aligned>
static __global__ void cast_kernel(const float *x, size_t rows, size_t columns, size_t ld, uint4 *y,
                                   size_t packs)
{
    DDP_CUDA_EACH(at, rows * packs)
    {
        const size_t first       = at % packs * PACK;
        const float *from        = x + at / packs * ld + first;
        float        value[PACK] = {0.0F};
        unsigned     pair[PACK / 2];

        if (Aligned && first + PACK <= columns) {
            read_pack(from, value);
        } else {
            for (size_t i = 0; i < PACK && first + i < columns; i++) {
                value[i] = from[i];
            }
        }
        for (int i = 0; i < PACK / 2; i++) {
            pair[i] = bits_of<P>(value[2 * i]) | (unsigned)bits_of<P>(value[2 * i + 1]) << 16;
        }
        y[at] = make_uint4(pair[0], pair[1], pair[2], pair[3]);
    }
}

template <ddp_precision_t P> static void launch(ddp_stream_t *stream, const ddp_cuda_cast_args_t *cast)
{
    const size_t       packs   = cast->pitch / PACK;
    const unsigned     blocks  = ddp_cuda_blocks(stream, cast->rows * packs);
    const cudaStream_t native  = ddp_cuda_stream(stream);
    uint4             *y       = (uint4 *)(void *)cast->y;
    const bool         aligned = (uintptr_t)cast->x % sizeof(float4) == 0 && cast->ld % 4 == 0;

    if (aligned) {
        LAUNCH((cast_kernel<P, true>), blocks, DDP_CUDA_THREADS, 0, native, cast->x, cast->rows,
               cast->columns, cast->ld, y, packs);
    } else {
        LAUNCH((cast_kernel<P, false>), blocks, DDP_CUDA_THREADS, 0, native, cast->x, cast->rows,
               cast->columns, cast->ld, y, packs);
    }
}

ddp_status_t ddp_cuda_cast(ddp_stream_t *stream, const ddp_cuda_cast_args_t *cast)
{
    if (cast->rows > 0 && cast->columns > 0) {
        if (cast->precision == DDP_PRECISION_BF16) {
            launch<DDP_PRECISION_BF16>(stream, cast);
        } else {
            launch<DDP_PRECISION_FP16>(stream, cast);
        }
    }
    return ddp_cuda_launched(stream, "cast");
}
