/* Forms of image and weights for the direct convolution; see conv_internal.h. */
#include <string.h>

#include "kernels/cpu/bf16_internal.h"

void DDP_ISA_NAME(conv_frame_clear)(const ddp_conv_frame_t *frame, float *framed)
{
    memset(framed, 0, conv_frame_floats(frame) * sizeof(float));
}

void DDP_ISA_NAME(conv_frame_copy)(const ddp_conv_frame_t *f, const float *image, float *framed)
{
    const size_t row = conv_frame_row(f);

    for (size_t y = 0; y < f->h; y++) {
        const float *from = image + y * f->w * f->c;
        float       *to   = framed + (f->top + y) * row + f->left * f->pitch;

        if (f->pitch == f->c) {
            memcpy(to, from, f->w * f->c * sizeof(float));
            continue;
        }
        for (size_t x = 0; x < f->w; x++) {
            memcpy(to + x * f->pitch, from + x * f->c, f->c * sizeof(float));
        }
    }
}

void DDP_ISA_NAME(conv_frame_pair_channels)(const ddp_bf16_pieces_t *pieces, const ddp_conv_frame_t *f,
                                            const float *image, float *framed)
{
    const bool   whole = f->c % 2 == 0; /* rows of pixels without gaps */
    const size_t parts = whole ? 1 : f->w;
    const size_t count = whole ? f->w * f->c : f->c;

    for (size_t y = 0; y < f->h; y++) {
        const float *from = image + y * f->w * f->c;
        float       *to   = framed + (f->top + y) * conv_frame_row(f) + f->left * f->pitch;

        for (size_t x = 0; x < parts; x++) {
            pieces->pair_along(from + x * f->c, count, to + x * f->pitch);
        }
    }
}

void DDP_ISA_NAME(conv_frame_pair_images)(const ddp_bf16_pieces_t *pieces, const ddp_conv_frame_t *f,
                                          const float *image, const float *next, float *framed)
{
    const bool   whole = f->c == f->pitch;
    const size_t parts = whole ? 1 : f->w;
    const size_t count = whole ? f->w * f->c : f->c;

    for (size_t y = 0; y < f->h; y++) {
        float *to = framed + (f->top + y) * conv_frame_row(f) + f->left * f->pitch;

        for (size_t x = 0; x < parts; x++) {
            const size_t at = (y * f->w + x) * f->c;

            pieces->pair_across(image + at, next != NULL ? next + at : NULL, count, to + x * f->pitch);
        }
    }
}

size_t DDP_ISA_NAME(conv_pair_rows)(const ddp_bf16_pieces_t *pieces, float *packed, size_t groups,
                                    size_t rows, size_t pitch)
{
    float *to = packed;

    for (size_t g = 0; g < groups; g++) {
        for (size_t r = 0; r < rows; r += 2, to += pitch) {
            const float *from = packed + (g * rows + r) * pitch;

            pieces->pair_across(from, r + 1 < rows ? from + pitch : NULL, pitch, to);
        }
    }
    return (size_t)(to - packed);
}

void DDP_ISA_NAME(conv_pack_forward)(const ddp_conv2d_shape_t *s, const float *w, float *packed)
{
    const size_t taps  = s->kernel_h * s->kernel_w;
    const size_t pitch = conv_round(s->out_c);

    memset(packed, 0, taps * s->in_c * pitch * sizeof(float));
    for (size_t o = 0; o < s->out_c; o++) {
        for (size_t i = 0; i < s->in_c; i++) {
            const float *from = w + (o * s->in_c + i) * taps;

            for (size_t t = 0; t < taps; t++) {
                packed[(t * s->in_c + i) * pitch + o] = from[t];
            }
        }
    }
}

void DDP_ISA_NAME(conv_unpack)(const ddp_conv2d_shape_t *s, const float *packed, float *dw, bool accumulate)
{
    const size_t taps  = s->kernel_h * s->kernel_w;
    const size_t pitch = conv_round(s->out_c);

    for (size_t o = 0; o < s->out_c; o++) {
        for (size_t i = 0; i < s->in_c; i++) {
            float *to = dw + (o * s->in_c + i) * taps;

            for (size_t t = 0; t < taps; t++) {
                const float x = packed[(t * s->in_c + i) * pitch + o];

                to[t] = accumulate ? to[t] + x : x;
            }
        }
    }
}

size_t DDP_ISA_NAME(conv_pack_class)(const ddp_conv2d_shape_t *s, size_t row, size_t column, const float *w,
                                     float *packed)
{
    const size_t rows    = conv_class(row, s->in_h, s->kernel_h, s->stride, s->pad, s->kernel_h).taps;
    const size_t columns = conv_class(column, s->in_w, s->kernel_w, s->stride, s->pad, s->kernel_w).taps;
    const size_t taps    = s->kernel_h * s->kernel_w;
    const size_t pitch   = conv_round(s->in_c);
    float       *to      = packed;

    for (size_t t = 0; t < rows; t++) {
        for (size_t u = 0; u < columns; u++) {
            const size_t tap =
                (row + s->stride * (rows - 1 - t)) * s->kernel_w + column + s->stride * (columns - 1 - u);

            for (size_t o = 0; o < s->out_c; o++, to += pitch) {
                for (size_t i = 0; i < s->in_c; i++) {
                    to[i] = w[(o * s->in_c + i) * taps + tap];
                }
                memset(to + s->in_c, 0, (pitch - s->in_c) * sizeof(float));
            }
        }
    }
    return (size_t)(to - packed);
}
