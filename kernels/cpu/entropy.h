/**
 * @file Softmax cross-entropy of one row, in blocks of ENTROPY_COLUMNS logits: exp() is taken while a block
 * is in cache, with the largest logit of the block; when all blocks are known, one factor for each makes
 * probabilities of it. A loss of given logits and a head that makes them itself give the same bits by that.
 * Private.
 */
#ifndef DDP_ENTROPY_H_
#define DDP_ENTROPY_H_

#include "kernels/cpu/rows.h"

#define ENTROPY_COLUMNS ((size_t)1024)

/* What is known of a block of a row. */
typedef struct entropy_block {
    double sum; /* of exp(logit - top) */
    float  top; /* the largest logit; later the factor from exp(logit - top) to dlogits */
} entropy_block_t;

/* What is known of the row's label. */
typedef struct entropy_label {
    float logit;
    bool  is_first; /* of the largest in its block */
} entropy_label_t;

DDP_INLINE size_t entropy_blocks(size_t classes)
{
    return (classes + ENTROPY_COLUMNS - 1) / ENTROPY_COLUMNS;
}

/* Columns of a block. */
DDP_INLINE size_t entropy_columns(size_t classes, size_t block)
{
    const size_t left = classes - block * ENTROPY_COLUMNS;

    return left < ENTROPY_COLUMNS ? left : ENTROPY_COLUMNS;
}

/* Which column of the block is the label; ENTROPY_COLUMNS: none. */
DDP_INLINE size_t entropy_column(int32_t label, size_t block)
{
    return (size_t)label / ENTROPY_COLUMNS == block ? (size_t)label % ENTROPY_COLUMNS : ENTROPY_COLUMNS;
}

/**
 * First: each block, in any order.
 * @param [in]  label  entropy_column(); `at` is written where the block has it
 * @param [out] e      exp(logit - top), may be x; or NULL
 */
void DDP_ISA_NAME(entropy_look)(const float *x, size_t columns, size_t label, entropy_block_t *block,
                                entropy_label_t *at, float *e);
/** Then: the row's loss is added to `sums`, and its blocks, `stride` apart, get their factors. */
void DDP_ISA_NAME(entropy_finish)(entropy_block_t *row, size_t stride, size_t blocks, int32_t label,
                                  const entropy_label_t *at, float weight, loss_sums_t *sums);
/** At last: dlogits of a block of exponentials, in their place. */
void DDP_ISA_NAME(entropy_gradient)(const entropy_block_t *block, size_t label, float weight, float *e,
                                    size_t columns);

#endif
