/*
 * Cross-entropy of a head: logits of at most ROWS rows at a time, in blocks of COLUMNS words of the
 * vocabulary. exp() is taken while a block is in cache, with the largest logit of the block; when all blocks
 * are known, one factor per row and block makes probabilities of it.
 */
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/table.h"

#define ROWS    ((size_t)256)
#define COLUMNS ((size_t)1024)
#define PITCH   (COLUMNS + 16) /* not a power of two */

/* Some rows of the batch. */
typedef struct part {
    const ddp_head_cross_entropy_args_t *args;
    size_t                               first, rows;
    size_t                               blocks; /* of the vocabulary */
    float                               *logits; /* [blocks][ROWS][PITCH] */
    float                               *top;    /* [blocks][ROWS]: the largest logit; later the factor */
    double                              *sum;    /* [blocks][ROWS]: of exp(logit - top) */
    float                                at_label[ROWS];
    bool                                 first_largest[ROWS]; /* in its block the label is */
} part_t;

static size_t block_columns(const part_t *part, size_t block)
{
    const size_t left = part->args->vocab - block * COLUMNS;

    return left < COLUMNS ? left : COLUMNS;
}

/* Which column of the block is the label of the part's row i; COLUMNS: none. */
static size_t label_column(const part_t *part, size_t i, size_t block)
{
    const int32_t label = part->args->labels[part->first + i];

    if (label == part->args->ignore_index || (size_t)label / COLUMNS != block) {
        return COLUMNS;
    }
    return (size_t)label % COLUMNS;
}

static ddp_status_t forward_block(part_t *part, size_t block)
{
    const ddp_head_cross_entropy_args_t *args    = part->args;
    const size_t                         columns = block_columns(part, block);
    float                               *logits  = part->logits + block * ROWS * PITCH;
    const ddp_gemm_args_t                gemm    = {.transpose_b = true,
                                                    .m           = part->rows,
                                                    .n           = columns,
                                                    .k           = args->width,
                                                    .alpha       = 1.0F,
                                                    .a           = args->x + part->first * args->width,
                                                    .lda         = args->width,
                                                    .b           = args->w + block * COLUMNS * args->width,
                                                    .ldb         = args->width,
                                                    .c           = logits,
                                                    .ldc         = PITCH,
                                                    .precision   = args->precision};
    ddp_status_t                         status  = DDP_ISA_NAME(gemm)(&gemm);

    for (size_t i = 0; i < part->rows && status == DDP_OK; i++) {
        float       *row   = logits + i * PITCH;
        const size_t label = label_column(part, i, block);
        bool         has_nan;
        const float  top = row_max(row, columns, &has_nan);

        if (label < COLUMNS) {
            part->at_label[i]      = row[label];
            part->first_largest[i] = row[label] == top && first_equal(row, columns, top) == label;
        }
        /* of a row that is not finite everything is a NaN */
        part->top[block * ROWS + i] = has_nan || top - top != 0.0F ? NAN : top;
        part->sum[block * ROWS + i] = row_exp(row, columns, top, row);
    }
    ddp_cpu_progress_point();
    return status;
}

/* Loss of row i; part->top becomes the factors from exp(logit - top of its block) to dlogits. */
static void finish_row(part_t *part, size_t i, loss_sums_t *sums)
{
    const ddp_head_cross_entropy_args_t *args    = part->args;
    const size_t                         row     = part->first + i;
    const double                         weight  = args->weights == NULL ? 1.0 : (double)args->weights[row];
    const bool                           ignored = args->labels[row] == args->ignore_index;
    float                                largest = part->top[i];
    size_t                               where   = 0; /* the first block with the largest */
    double                               sum     = 0.0;

    for (size_t c = 1; c < part->blocks; c++) {
        const float top = part->top[c * ROWS + i];

        if (isnan(top) || top > largest) { /* a NaN stays */
            largest = top;
            where   = c;
        }
    }
    for (size_t c = 0; c < part->blocks; c++) {
        float *top = &part->top[c * ROWS + i];

        *top = isnan(largest) ? NAN : vexp(vset1(*top - largest))[0];
        sum += part->sum[c * ROWS + i] * (double)*top;
    }
    for (size_t c = 0; c < part->blocks; c++) {
        float *top = &part->top[c * ROWS + i];

        *top = ignored ? 0.0F : (float)(weight / sum * (double)*top);
    }
    if (ignored) {
        return;
    }
    if (isnan(largest)) {
        sums->loss = (double)NAN;
    } else {
        sums->loss += weight * (natural_log(sum) + ((double)largest - (double)part->at_label[i]));
        sums->correct += part->at_label[i] == largest && part->first_largest[i] &&
                                 where == (size_t)args->labels[row] / COLUMNS
                             ? 1.0
                             : 0.0;
    }
    sums->weight += weight;
    sums->counted += 1.0;
}

/* dlogits of one block, and what they add to dx and dw. */
static ddp_status_t backward_block(part_t *part, size_t block)
{
    const ddp_head_cross_entropy_args_t *args    = part->args;
    const size_t                         columns = block_columns(part, block);
    float                               *dlogits = part->logits + block * ROWS * PITCH;
    ddp_status_t                         status  = DDP_OK;
    ddp_gemm_args_t                      gemm    = {.alpha     = 1.0F,
                                                    .a         = dlogits,
                                                    .lda       = PITCH,
                                                    .n         = args->width,
                                                    .ldb       = args->width,
                                                    .ldc       = args->width,
                                                    .precision = args->precision};

    for (size_t i = 0; i < part->rows; i++) {
        const size_t label = label_column(part, i, block);

        DDP_ISA_NAME(scale)(part->top[block * ROWS + i], dlogits + i * PITCH, columns);
        if (label < COLUMNS) {
            dlogits[i * PITCH + label] -= args->weights == NULL ? 1.0F : args->weights[part->first + i];
        }
    }
    if (args->dx != NULL) {
        gemm.m    = part->rows;
        gemm.k    = columns;
        gemm.b    = args->w + block * COLUMNS * args->width;
        gemm.c    = args->dx + part->first * args->width;
        gemm.beta = block > 0 ? 1.0F : 0.0F;
        status    = DDP_ISA_NAME(gemm)(&gemm);
    }
    if (args->dw != NULL && status == DDP_OK) {
        gemm.transpose_a = true;
        gemm.m           = columns;
        gemm.k           = part->rows;
        gemm.b           = args->x + part->first * args->width;
        gemm.c           = args->dw + block * COLUMNS * args->width;
        gemm.beta        = part->first > 0 || args->accumulate_dw ? 1.0F : 0.0F;
        status           = DDP_ISA_NAME(gemm)(&gemm);
    }
    return status;
}

static ddp_status_t run_part(part_t *part, loss_sums_t *sums)
{
    const bool   backward = part->args->dx != NULL || part->args->dw != NULL;
    ddp_status_t status   = DDP_OK;

    for (size_t c = 0; c < part->blocks && status == DDP_OK; c++) {
        status = forward_block(part, c);
    }
    for (size_t i = 0; i < part->rows && status == DDP_OK; i++) {
        finish_row(part, i, sums);
    }
    for (size_t c = 0; c < part->blocks && backward && status == DDP_OK; c++) {
        status = backward_block(part, c);
    }
    return status;
}

size_t DDP_ISA_NAME(head_scratch_bytes)(size_t vocab)
{
    const size_t blocks = (vocab + COLUMNS - 1) / COLUMNS;

    return blocks * ROWS * ((PITCH + 1) * sizeof(float) + sizeof(double));
}

ddp_status_t DDP_ISA_NAME(head_cross_entropy)(const ddp_head_cross_entropy_args_t *args)
{
    const size_t blocks  = (args->vocab + COLUMNS - 1) / COLUMNS;
    const size_t parts   = (args->rows + ROWS - 1) / ROWS;
    loss_sums_t  sums    = {0};
    void        *scratch = NULL;
    part_t       part    = {.args = args, .blocks = blocks};
    ddp_status_t status =
        DDP_ISA_NAME(labels_check)(args->labels, args->rows, args->vocab, args->ignore_index);

    if (status == DDP_OK) {
        status = ddp_cpu_scratch_get(DDP_ISA_NAME(head_scratch_bytes)(args->vocab), &scratch);
    }
    if (status != DDP_OK) {
        return status;
    }
    part.sum    = scratch;
    part.top    = (float *)(part.sum + blocks * ROWS);
    part.logits = part.top + blocks * ROWS;
    for (size_t i = 0; i < parts && status == DDP_OK; i++) {
        part.first = args->rows * i / parts;
        part.rows  = args->rows * (i + 1) / parts - part.first;
        status     = run_part(&part, &sums);
    }
    ddp_cpu_scratch_put();
    if (status == DDP_OK) {
        if (args->rows == 0 && args->dw != NULL && !args->accumulate_dw) {
            DDP_ISA_NAME(fill)(args->dw, args->vocab * args->width, 0.0F);
        }
        sums_store(&sums, args->stats);
    }
    return status;
}
