/*
 * A head: logits = x w^T of a vocabulary. The rows are cut into even parts of at most ROWS, the vocabulary
 * into blocks of ENTROPY_COLUMNS words, and every product is one of a part and a block. With the loss in the
 * same pass logits of one part exist at a time; with the loss elsewhere all of them do. The products are the
 * same, and so are the bits.
 */
#include "kernels/cpu/entropy.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/scratch.h"

#define ROWS  ((size_t)256)
#define PITCH (ENTROPY_COLUMNS + 16) /* not a power of two */

/* Some rows of the batch. */
typedef struct part {
    const ddp_head_args_t *head;
    size_t                 first, rows;
} part_t;

static size_t parts_of(const ddp_head_args_t *head)
{
    return (head->rows + ROWS - 1) / ROWS;
}

static part_t part_at(const ddp_head_args_t *head, size_t i)
{
    const size_t parts = parts_of(head);
    const size_t first = head->rows * i / parts;

    return (part_t){head, first, head->rows * (i + 1) / parts - first};
}

/* Logits of a part and a block, whose rows are `pitch` floats apart. */
static ddp_status_t make_logits(const part_t *part, size_t block, float *logits, size_t pitch)
{
    const ddp_head_args_t *head = part->head;
    const ddp_gemm_args_t  gemm = {.transpose_b = true,
                                   .m           = part->rows,
                                   .n           = entropy_columns(head->vocab, block),
                                   .k           = head->width,
                                   .alpha       = 1.0F,
                                   .a           = head->x + part->first * head->width,
                                   .lda         = head->width,
                                   .b           = head->w + block * ENTROPY_COLUMNS * head->width,
                                   .ldb         = head->width,
                                   .c           = logits,
                                   .ldc         = pitch,
                                   .precision   = head->precision};

    return DDP_ISA_NAME(gemm)(&gemm);
}

/* What their gradients add to dx and dw. */
static ddp_status_t use_dlogits(const part_t *part, size_t block, const float *dlogits, size_t pitch)
{
    const ddp_head_args_t *head    = part->head;
    const size_t           columns = entropy_columns(head->vocab, block);
    ddp_status_t           status  = DDP_OK;
    ddp_gemm_args_t        gemm    = {.alpha     = 1.0F,
                                      .a         = dlogits,
                                      .lda       = pitch,
                                      .n         = head->width,
                                      .ldb       = head->width,
                                      .ldc       = head->width,
                                      .precision = head->precision};

    if (head->dx != NULL) {
        gemm.m    = part->rows;
        gemm.k    = columns;
        gemm.b    = head->w + block * ENTROPY_COLUMNS * head->width;
        gemm.c    = head->dx + part->first * head->width;
        gemm.beta = block > 0 || head->accumulate_dx ? 1.0F : 0.0F;
        status    = DDP_ISA_NAME(gemm)(&gemm);
    }
    if (head->dw != NULL && status == DDP_OK) {
        gemm.transpose_a = true;
        gemm.m           = columns;
        gemm.k           = part->rows;
        gemm.b           = head->x + part->first * head->width;
        gemm.c           = head->dw + block * ENTROPY_COLUMNS * head->width;
        gemm.beta        = part->first > 0 || head->accumulate_dw ? 1.0F : 0.0F;
        status           = DDP_ISA_NAME(gemm)(&gemm);
    }
    return status;
}

/* Where no row gives a gradient. */
static void clear_dw(const ddp_head_args_t *head)
{
    if (head->rows == 0 && head->dw != NULL && !head->accumulate_dw) {
        DDP_ISA_NAME(fill)(head->dw, head->vocab * head->width, 0.0F);
    }
}

ddp_status_t DDP_ISA_NAME(head_logits)(const ddp_head_logits_args_t *args)
{
    const ddp_head_args_t *head   = &args->head;
    ddp_status_t           status = DDP_OK;

    for (size_t i = 0; i < parts_of(head); i++) {
        const part_t part = part_at(head, i);

        for (size_t c = 0; c < entropy_blocks(head->vocab) && status == DDP_OK; c++) {
            status = make_logits(&part, c, args->logits + part.first * head->vocab + c * ENTROPY_COLUMNS,
                                 head->vocab);
            ddp_cpu_progress_point();
        }
    }
    return status;
}

ddp_status_t DDP_ISA_NAME(head_backward)(const ddp_head_backward_args_t *args)
{
    const ddp_head_args_t *head   = &args->head;
    ddp_status_t           status = DDP_OK;

    for (size_t i = 0; i < parts_of(head); i++) {
        const part_t part = part_at(head, i);

        for (size_t c = 0; c < entropy_blocks(head->vocab) && status == DDP_OK; c++) {
            status = use_dlogits(&part, c, args->dlogits + part.first * head->vocab + c * ENTROPY_COLUMNS,
                                 head->vocab);
        }
    }
    clear_dw(head);
    return status;
}

/* Loss of a part: room for its logits and what is known of them. */
typedef struct loss {
    const ddp_head_cross_entropy_args_t *args;
    part_t                               part;
    size_t                               blocks; /* of the vocabulary */
    float                               *logits; /* [blocks][ROWS][PITCH] */
    entropy_block_t                     *known;  /* [blocks][ROWS] */
    entropy_label_t                      at[ROWS];
} loss_t;

static bool is_ignored(const loss_t *loss, size_t i)
{
    return loss->args->labels[loss->part.first + i] == loss->args->ignore_index;
}

static float weight_of(const loss_t *loss, size_t i)
{
    return loss->args->weights == NULL ? 1.0F : loss->args->weights[loss->part.first + i];
}

static float grad_scale_of(const loss_t *loss)
{
    return loss->args->grad_scale != 0.0F ? loss->args->grad_scale : 1.0F;
}

static ddp_status_t forward_block(loss_t *loss, size_t block)
{
    const size_t columns = entropy_columns(loss->args->head.vocab, block);
    float       *logits  = loss->logits + block * ROWS * PITCH;
    ddp_status_t status  = make_logits(&loss->part, block, logits, PITCH);

    for (size_t i = 0; i < loss->part.rows && status == DDP_OK; i++) {
        if (!is_ignored(loss, i)) {
            DDP_ISA_NAME(entropy_look)
            (logits + i * PITCH, columns, entropy_column(loss->args->labels[loss->part.first + i], block),
             &loss->known[block * ROWS + i], &loss->at[i], logits + i * PITCH);
        }
    }
    ddp_cpu_progress_point();
    return status;
}

static ddp_status_t backward_block(const loss_t *loss, size_t block)
{
    const size_t columns = entropy_columns(loss->args->head.vocab, block);
    float       *dlogits = loss->logits + block * ROWS * PITCH;
    const float  scale   = grad_scale_of(loss);

    for (size_t i = 0; i < loss->part.rows; i++) {
        if (is_ignored(loss, i)) {
            DDP_ISA_NAME(fill)(dlogits + i * PITCH, columns, 0.0F);
        } else {
            entropy_block_t known = loss->known[block * ROWS + i];

            known.top *= scale;
            DDP_ISA_NAME(entropy_gradient)
            (&known, entropy_column(loss->args->labels[loss->part.first + i], block),
             weight_of(loss, i) * scale, dlogits + i * PITCH, columns);
        }
    }
    return use_dlogits(&loss->part, block, dlogits, PITCH);
}

static ddp_status_t run_part(loss_t *loss, loss_sums_t *sums)
{
    const bool   backward = loss->args->head.dx != NULL || loss->args->head.dw != NULL;
    ddp_status_t status   = DDP_OK;

    for (size_t c = 0; c < loss->blocks && status == DDP_OK; c++) {
        status = forward_block(loss, c);
    }
    for (size_t i = 0; i < loss->part.rows && status == DDP_OK; i++) {
        if (!is_ignored(loss, i)) {
            DDP_ISA_NAME(entropy_finish)
            (loss->known + i, ROWS, loss->blocks, loss->args->labels[loss->part.first + i], &loss->at[i],
             weight_of(loss, i), sums);
        }
    }
    for (size_t c = 0; c < loss->blocks && backward && status == DDP_OK; c++) {
        status = backward_block(loss, c);
    }
    return status;
}

size_t DDP_ISA_NAME(head_scratch_bytes)(size_t vocab)
{
    return entropy_blocks(vocab) * ROWS * (PITCH * sizeof(float) + sizeof(entropy_block_t));
}

ddp_status_t DDP_ISA_NAME(head_cross_entropy)(const ddp_head_cross_entropy_args_t *args)
{
    const ddp_head_args_t *head    = &args->head;
    loss_sums_t            sums    = {0};
    void                  *scratch = NULL;
    loss_t                 loss    = {.args = args, .blocks = entropy_blocks(head->vocab)};
    ddp_status_t           status =
        DDP_ISA_NAME(labels_check)(args->labels, head->rows, head->vocab, args->ignore_index);

    if (status == DDP_OK) {
        status = ddp_cpu_scratch_get(DDP_ISA_NAME(head_scratch_bytes)(head->vocab), &scratch);
    }
    if (status != DDP_OK) {
        return status;
    }
    loss.known  = scratch;
    loss.logits = (float *)(loss.known + loss.blocks * ROWS);
    for (size_t i = 0; i < parts_of(head) && status == DDP_OK; i++) {
        loss.part = part_at(head, i);
        status    = run_part(&loss, &sums);
    }
    ddp_cpu_scratch_put();
    if (status == DDP_OK) {
        clear_dw(head);
        sums_store(&sums, args->stats);
    }
    return status;
}
