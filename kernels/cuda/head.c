/*
 * A head: logits = x w^T of a vocabulary. The rows are cut into even parts of at most DDP_CUDA_HEAD_ROWS, and
 * every product is one of a part and all words: with the loss in the same pass logits of one part exist at a
 * time, with the loss elsewhere all of them do.
 */
#include "kernels/cuda/head.h"

#include "base/error.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/entropy.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/scratch.h"

/* Some rows of the batch. */
typedef struct part {
    const ddp_head_args_t *head;
    size_t                 first, rows;
} part_t;

static size_t parts_of(const ddp_head_args_t *head)
{
    return (head->rows + DDP_CUDA_HEAD_ROWS - 1) / DDP_CUDA_HEAD_ROWS;
}

static part_t part_at(const ddp_head_args_t *head, size_t i)
{
    const size_t parts = parts_of(head);
    const size_t first = head->rows * i / parts;

    return (part_t){head, first, head->rows * (i + 1) / parts - first};
}

/* Logits of a part, rows `pitch` floats apart. */
static ddp_status_t make_logits(ddp_stream_t *stream, const part_t *part, float *logits, size_t pitch)
{
    const ddp_head_args_t *head = part->head;
    const ddp_gemm_args_t  gemm = {.transpose_b = true,
                                   .m           = part->rows,
                                   .n           = head->vocab,
                                   .k           = head->width,
                                   .alpha       = 1.0F,
                                   .a           = head->x + part->first * head->width,
                                   .lda         = head->width,
                                   .b           = head->w,
                                   .ldb         = head->width,
                                   .c           = logits,
                                   .ldc         = pitch,
                                   .precision   = head->precision};

    return ddp_cuda_gemm(stream, &gemm);
}

/* What their gradients add to dx and dw. */
static ddp_status_t use_dlogits(ddp_stream_t *stream, const part_t *part, const float *dlogits, size_t pitch)
{
    const ddp_head_args_t *head   = part->head;
    ddp_status_t           status = DDP_OK;
    ddp_gemm_args_t        gemm   = {.alpha     = 1.0F,
                                     .a         = dlogits,
                                     .lda       = pitch,
                                     .n         = head->width,
                                     .ldb       = head->width,
                                     .ldc       = head->width,
                                     .precision = head->precision};

    if (head->dx != NULL) {
        gemm.m    = part->rows;
        gemm.k    = head->vocab;
        gemm.b    = head->w;
        gemm.c    = head->dx + part->first * head->width;
        gemm.beta = head->accumulate_dx ? 1.0F : 0.0F;
        DDP_TRY(ddp_cuda_gemm(stream, &gemm));
    }
    if (head->dw != NULL) {
        gemm.transpose_a = true;
        gemm.m           = head->vocab;
        gemm.k           = part->rows;
        gemm.b           = head->x + part->first * head->width;
        gemm.c           = head->dw;
        gemm.beta        = part->first > 0 || head->accumulate_dw ? 1.0F : 0.0F;
        DDP_TRY(ddp_cuda_gemm(stream, &gemm));
    }
out:
    return status;
}

/* Where no row gives a gradient. */
static ddp_status_t clear_dw(ddp_stream_t *stream, const ddp_head_args_t *head)
{
    return head->rows == 0 && head->dw != NULL && !head->accumulate_dw
               ? ddp_cuda_fill(stream, head->dw, head->vocab * head->width, 0.0F)
               : DDP_OK;
}

ddp_status_t ddp_cuda_head_logits(ddp_stream_t *stream, const ddp_head_logits_args_t *args)
{
    const ddp_head_args_t *head   = &args->head;
    ddp_status_t           status = DDP_OK;

    for (size_t i = 0; i < parts_of(head); i++) {
        const part_t part = part_at(head, i);

        DDP_TRY(make_logits(stream, &part, args->logits + part.first * head->vocab, head->vocab));
    }
out:
    return status;
}

ddp_status_t ddp_cuda_head_backward(ddp_stream_t *stream, const ddp_head_backward_args_t *args)
{
    const ddp_head_args_t *head   = &args->head;
    ddp_status_t           status = DDP_OK;

    for (size_t i = 0; i < parts_of(head); i++) {
        const part_t part = part_at(head, i);

        DDP_TRY(use_dlogits(stream, &part, args->dlogits + part.first * head->vocab, head->vocab));
    }
    DDP_TRY(clear_dw(stream, head));
out:
    return status;
}

/* Rows of logits begin at multiples of 32 bytes: wide accesses, and products without a slow edge. */
static size_t pitch_of(size_t vocab)
{
    return (vocab + 7) / 8 * 8;
}

size_t ddp_cuda_head_scratch_bytes(size_t vocab)
{
    return DDP_CUDA_HEAD_ROWS * pitch_of(vocab) * sizeof(float);
}

static ddp_status_t run_part(ddp_stream_t *stream, const ddp_head_cross_entropy_args_t *args,
                             const part_t *part, float *logits, ddp_cuda_row_loss_t *row)
{
    const size_t                  pitch   = pitch_of(args->head.vocab);
    const bool                    back    = args->head.dx != NULL || args->head.dw != NULL;
    const ddp_cuda_entropy_args_t entropy = {.logits  = logits,
                                             .dlogits = back ? logits : NULL,
                                             .rows    = part->rows,
                                             .classes = args->head.vocab,
                                             .pitch   = pitch,
                                             .labels  = args->labels + part->first,
                                             .weights =
                                                 args->weights == NULL ? NULL : args->weights + part->first,
                                             .ignore_index = args->ignore_index,
                                             .grad_scale = args->grad_scale != 0.0F ? args->grad_scale : 1.0F,
                                             .row        = row + part->first};
    ddp_status_t                  status  = DDP_OK;

    DDP_TRY(make_logits(stream, part, logits, pitch));
    DDP_TRY(ddp_cuda_entropy(stream, &entropy));
    if (back) {
        DDP_TRY(use_dlogits(stream, part, logits, pitch));
    }
out:
    return status;
}

ddp_status_t ddp_cuda_head_cross_entropy(ddp_stream_t *stream, const ddp_head_cross_entropy_args_t *args)
{
    const ddp_head_args_t      *head   = &args->head;
    const size_t                most   = head->rows < DDP_CUDA_HEAD_ROWS ? head->rows : DDP_CUDA_HEAD_ROWS;
    const size_t                bytes  = most * pitch_of(head->vocab) * sizeof(float);
    const ddp_cuda_check_args_t check  = {.index   = args->labels,
                                          .count   = head->rows,
                                          .limit   = head->vocab,
                                          .wrong   = DDP_CUDA_WRONG_LABEL,
                                          .ignored = args->ignore_index};
    ddp_cuda_row_loss_t        *row    = NULL;
    void                       *memory = NULL;
    ddp_status_t                status = DDP_OK;

    DDP_TRY(ddp_cuda_check_indices(stream, &check));
    DDP_TRY(ddp_cuda_scratch(stream, DDP_CUDA_SCRATCH_OP, bytes + head->rows * sizeof(*row), &memory));
    row = (ddp_cuda_row_loss_t *)((char *)memory + bytes); /* whole rows of 32 bytes lie before them */
    for (size_t i = 0; i < parts_of(head); i++) {
        const part_t part = part_at(head, i);

        DDP_TRY(run_part(stream, args, &part, memory, row));
    }
    DDP_TRY(clear_dw(stream, head));
    DDP_TRY(ddp_cuda_sum_losses(stream, row, head->rows, args->stats));
out:
    return status;
}
