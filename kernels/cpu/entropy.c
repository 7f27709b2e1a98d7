#include "kernels/cpu/entropy.h"

#include "kernels/cpu/kernels.h"

void DDP_ISA_NAME(entropy_look)(const float *x, size_t columns, size_t label, entropy_block_t *block,
                                entropy_label_t *at, float *e)
{
    bool        has_nan;
    const float top = row_max(x, columns, &has_nan);

    if (label < columns) { /* now: e may be x */
        at->logit    = x[label];
        at->is_first = x[label] == top && first_equal(x, columns, top) == label;
    }
    /* What overflowed or is not a number must be seen in loss and gradient: of such a row everything is a
     * NaN. */
    block->top = has_nan || top - top != 0.0F ? NAN : top;
    block->sum = row_exp(x, columns, top, e);
}

void DDP_ISA_NAME(entropy_finish)(entropy_block_t *row, size_t stride, size_t blocks, int32_t label,
                                  const entropy_label_t *at, float weight, loss_sums_t *sums)
{
    float  largest = row[0].top;
    size_t where   = 0; /* the first block with the largest */
    double sum     = 0.0;

    for (size_t c = 1; c < blocks; c++) {
        const float top = row[c * stride].top;

        if (isnan(top) || top > largest) { /* a NaN stays */
            largest = top;
            where   = c;
        }
    }
    for (size_t c = 0; c < blocks; c++) {
        entropy_block_t *block = &row[c * stride];

        block->top = isnan(largest) ? NAN : vexp(vset1(block->top - largest))[0];
        sum += block->sum * (double)block->top;
    }
    for (size_t c = 0; c < blocks; c++) {
        row[c * stride].top = (float)((double)weight / sum * (double)row[c * stride].top);
    }
    if (isnan(largest)) {
        sums->loss = (double)NAN;
    } else {
        sums->loss += (double)weight * (natural_log(sum) + ((double)largest - (double)at->logit));
        sums->correct +=
            at->logit == largest && at->is_first && where == (size_t)label / ENTROPY_COLUMNS ? 1.0 : 0.0;
    }
    sums->weight += (double)weight;
    sums->counted += 1.0;
}

void DDP_ISA_NAME(entropy_gradient)(const entropy_block_t *block, size_t label, float weight, float *e,
                                    size_t columns)
{
    DDP_ISA_NAME(scale)(block->top, e, columns);
    if (label < columns) {
        e[label] -= weight;
    }
}
