/**
 * @file The parts of matrix product and convolution that differ for bfloat16. Private.
 *
 * They are compiled for each instruction set, and once more for AVX-512 with the instruction for such
 * products (kernels/cpu/bf16.h); everything else works with either through this table.
 */
#ifndef DDP_BF16_INTERNAL_H_
#define DDP_BF16_INTERNAL_H_

#include "kernels/cpu/conv_internal.h"
#include "kernels/cpu/gemm_internal.h"
#include "kernels/cpu/table.h"

typedef struct ddp_bf16_pieces {
    const ddp_gemm_form_t *gemm;
    void (*conv_product)(const ddp_conv_product_t *product); /* k, and distances in a and b, count lanes */
    /** count elements of `from` become (count + 1) / 2 lanes; nothing else is written. */
    void (*pair_along)(const float *from, size_t count, float *lanes);
    /** lanes[i] = (even[i], odd[i]), or (even[i], 0) if odd is NULL; lanes may be either. */
    void (*pair_across)(const float *even, const float *odd, size_t count, float *lanes);
} ddp_bf16_pieces_t;

/** As conv_frame_copy(), in pairs: of channels 2 i and 2 i + 1, where the frame's pitch is (c + 1) / 2; or of
 * the elements of two images, of which the second may be NULL. */
void DDP_ISA_NAME(conv_frame_pair_channels)(const ddp_bf16_pieces_t *pieces, const ddp_conv_frame_t *frame,
                                            const float *image, float *framed);
void DDP_ISA_NAME(conv_frame_pair_images)(const ddp_bf16_pieces_t *pieces, const ddp_conv_frame_t *frame,
                                          const float *image, const float *next, float *framed);
/** Packed weights [groups][rows][pitch] to pairs of rows, in their place. @return lanes of the result */
size_t DDP_ISA_NAME(conv_pair_rows)(const ddp_bf16_pieces_t *pieces, float *packed, size_t groups,
                                    size_t rows, size_t pitch);

extern const ddp_gemm_form_t   DDP_ISA_NAME(bf16_gemm);
extern const ddp_bf16_pieces_t DDP_ISA_NAME(bf16);
#if VL == 16
extern const ddp_bf16_pieces_t ddp_bf16_avx512_bf16;
#endif

DDP_INLINE const ddp_bf16_pieces_t *bf16_pieces(ddp_precision_t precision)
{
#if VL == 16
    return precision == DDP_PRECISION_BF16_EMULATED ? &DDP_ISA_NAME(bf16) : &ddp_bf16_avx512_bf16;
#else
    (void)precision;
    return &DDP_ISA_NAME(bf16);
#endif
}

#endif
