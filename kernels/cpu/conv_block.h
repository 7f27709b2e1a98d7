/**
 * @file Strided products of the direct convolution: one function per number of rows and vectors of a register
 * block. Private.
 *
 * Included once by conv_kernel.c, for float32, and once by bf16_conv.c, for pairs of bfloat16: there
 * BLOCK_PAIRS is true, a and b of a product hold pairs, and its k counts them.
 */
#ifndef DDP_CONV_BLOCK_H_
#define DDP_CONV_BLOCK_H_

#include "kernels/cpu/activation.h"
#include "kernels/cpu/bf16.h"
#include "kernels/cpu/conv_internal.h"

#define GROUP 3 /* rows that share a base register: base, base + row, base + 2 row */

/* Where a register block begins, and how much of its last vector is in use. */
typedef struct corner {
    const float *a, *b, *bias;
    float       *c;
    bool         whole;
    vmask_t      mask;
} corner_t;

/* Sums lie in sum[row * vectors + vector]: one flat array, which clang too keeps in registers for any count.
 */
DDP_INLINE void block_load(const int rows, const int vectors, const ddp_conv_product_t *p, const corner_t *at,
                           vf_t *sum)
{
    vf_t start[CONV_VECTORS] = {{0.0F}, {0.0F}};

    if (p->accumulate) {
        DDP_UNROLL
        for (int e = 0; e < rows * vectors; e++) {
            const float *c = at->c + (size_t)(e / vectors) * p->c_row + (e % vectors) * VL;

            sum[e] = e % vectors == vectors - 1 && !at->whole ? vload_masked(c, at->mask) : vload(c);
        }
        return;
    }
    if (at->bias != NULL) {
        DDP_UNROLL
        for (int j = 0; j < vectors; j++) {
            const float *bias = at->bias + j * VL;

            start[j] = j == vectors - 1 && !at->whole ? vload_masked(bias, at->mask) : vload(bias);
        }
    }
    DDP_UNROLL
    for (int e = 0; e < rows * vectors; e++) {
        sum[e] = start[e % vectors];
    }
}

DDP_INLINE void block_store(const int rows, const int vectors, const ddp_conv_product_t *p,
                            const corner_t *at, const vf_t *sum)
{
    DDP_UNROLL
    for (int e = 0; e < rows * vectors; e++) {
        const int  j      = e % vectors;
        const bool masked = j == vectors - 1 && !at->whole;
        float     *c      = at->c + (size_t)(e / vectors) * p->c_row + j * VL;
        const vf_t x      = p->relu ? vrelu(sum[e]) : sum[e];

        if (masked) {
            vstore_masked(c, x, at->mask);
        } else {
            vstore(c, x);
        }
    }
}

DDP_INLINE void block_run(const int rows, const int vectors, const ddp_conv_product_t *p, const corner_t *at)
{
    const size_t row    = p->a_row;
    const int    passes = BLOCK_PAIRS ? BF16_PASSES : 1;
    uint32_t     mode   = 0;
    vf_t         sum[CONV_ROWS * CONV_VECTORS];

    block_load(rows, vectors, p, at, sum);
    if (BLOCK_PAIRS) {
        mode = bf16_begin(sum, rows * vectors);
    }
    for (size_t s = 0; s < p->segments; s++) {
        const float *b = at->b + s * p->b_segment;
        const float *a[(CONV_ROWS + GROUP - 1) / GROUP];

        DDP_UNROLL
        for (int g = 0; g * GROUP < rows; g++) {
            a[g] = at->a + s * p->a_segment + (size_t)(g * GROUP) * row;
        }
        for (size_t k = p->k; k > 0; k--) {
            const vf_t first  = vload(b);
            const vf_t second = vectors > 1 ? vload(b + VL) : first;

            DDP_UNROLL
            for (int pass = 0; pass < passes; pass++) {
                const vf_t left  = BLOCK_PAIRS ? bf16_part(first, pass) : first;
                const vf_t right = BLOCK_PAIRS ? bf16_part(second, pass) : second;

                DDP_UNROLL
                for (int i = 0; i < rows; i++) {
                    vf_t  x  = vset1(a[i / GROUP][(size_t)(i % GROUP) * row]);
                    vf_t *to = &sum[i * vectors];

                    if (vectors > 1 || BLOCK_PAIRS) {
                        DDP_IN_REGISTER(x);
                    }
                    x = BLOCK_PAIRS ? bf16_part(x, pass) : x;
                    if (vectors > 1) {
                        to[1] = BLOCK_PAIRS ? bf16_add(to[1], x, right) : to[1] + x * right;
                    }
                    to[0] = BLOCK_PAIRS ? bf16_add(to[0], x, left) : to[0] + x * left;
                }
            }
            DDP_UNROLL
            for (int g = 0; g * GROUP < rows; g++) {
                a[g] += p->a_step;
            }
            b += p->b_step;
        }
    }
    if (BLOCK_PAIRS) {
        bf16_end(sum, rows * vectors, mode);
    }
    block_store(rows, vectors, p, at, sum);
}

typedef void block_fn_t(const ddp_conv_product_t *product, const corner_t *at);

#define BLOCK(rows, vectors)                                                                                 \
    static void block_##rows##_##vectors(const ddp_conv_product_t *p, const corner_t *at)                    \
    {                                                                                                        \
        block_run(rows, vectors, p, at);                                                                     \
    }
#define BLOCKS(rows) BLOCK(rows, 1) BLOCK(rows, 2)
#define NAMES(rows)                                                                                          \
    {                                                                                                        \
        block_##rows##_1, block_##rows##_2                                                                   \
    }

BLOCKS(1)
BLOCKS(2)
BLOCKS(3)
BLOCKS(4)
BLOCKS(5)
BLOCKS(6)
#if CONV_ROWS > 6
BLOCKS(7)
BLOCKS(8)
BLOCKS(9)
BLOCKS(10)
BLOCKS(11)
BLOCKS(12)
BLOCKS(13)
BLOCKS(14)
#endif

/* [rows - 1][vectors - 1] */
static block_fn_t *const blocks[CONV_ROWS][CONV_VECTORS] = {
    NAMES(1), NAMES(2), NAMES(3), NAMES(4),  NAMES(5),  NAMES(6),
#if CONV_ROWS > 6
    NAMES(7), NAMES(8), NAMES(9), NAMES(10), NAMES(11), NAMES(12), NAMES(13), NAMES(14),
#endif
};

/* Rows are split evenly, so that there is no thin last block: 32 = 11 + 11 + 10. */
static void run_rows(const ddp_conv_product_t *p, size_t j, size_t columns, size_t repeat)
{
    const size_t parts   = (p->m + CONV_ROWS - 1) / CONV_ROWS;
    const size_t vectors = (columns + VL - 1) / VL;
    const size_t last    = columns - (vectors - 1) * VL;

    for (size_t part = 0; part < parts; part++) {
        const size_t   i    = p->m * part / parts;
        const size_t   rows = p->m * (part + 1) / parts - i;
        const corner_t at   = {.a     = p->a + repeat * p->a_repeat + i * p->a_row,
                               .b     = p->b + j,
                               .bias  = p->bias != NULL ? p->bias + j : NULL,
                               .c     = p->c + repeat * p->c_repeat + i * p->c_row + j,
                               .whole = last == VL,
                               .mask  = vmask_first(last)};

        blocks[rows - 1][vectors - 1](p, &at);
    }
}

static void run_product(const ddp_conv_product_t *p)
{
    const size_t width = (size_t)CONV_VECTORS * VL;

    for (size_t j = 0; j < p->n; j += width) {
        const size_t columns = p->n - j < width ? p->n - j : width;

        for (size_t repeat = 0; repeat < p->repeats; repeat++) {
            run_rows(p, j, columns, repeat);
        }
    }
}

#endif
