/* The convolution's pieces for pairs of bfloat16, and the table of all pieces. */
#include "kernels/cpu/bf16_internal.h"

#define BLOCK_PAIRS true
#include "kernels/cpu/conv_block.h"

static void pair_along(const float *from, size_t count, float *lanes)
{
    for (size_t i = 0; i < count; i += 2 * (size_t)VL) {
        const size_t left = count - i;
        const vf_t   x    = bf16_pair_along(from + i, left < 2 * (size_t)VL ? left : 2 * (size_t)VL);

        if (left >= 2 * (size_t)VL) {
            vstore(lanes + i / 2, x);
        } else {
            vstore_masked(lanes + i / 2, x, vmask_first((left + 1) / 2));
        }
    }
}

static void pair_across(const float *even, const float *odd, size_t count, float *lanes)
{
    for (size_t i = 0; i < count; i += VL) {
        const vmask_t mask = vmask_first(count - i < VL ? count - i : VL);
        const vf_t    zero = vset1(0.0F);

        vstore_masked(
            lanes + i,
            bf16_pair_across(vload_masked(even + i, mask), odd != NULL ? vload_masked(odd + i, mask) : zero),
            mask);
    }
}

const ddp_bf16_pieces_t DDP_ISA_NAME(bf16) = {.gemm         = &DDP_ISA_NAME(bf16_gemm),
                                              .conv_product = run_product,
                                              .pair_along   = pair_along,
                                              .pair_across  = pair_across};
