/*
 * A head: logits = x w^T of a vocabulary. The rows are cut into even parts of at most HEAD_ROWS, and
 * every product is one of a part and all words: with the loss in the same pass logits of one part exist at a
 * time, with the loss elsewhere all of them do.
 */
#include "base/error.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/entropy.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/scratch.h"

/* Rows whose logits exist at a time: products of so many rows and a vocabulary fill a device. */
#define HEAD_ROWS ((size_t)1024)

/* Some rows of the batch. */
typedef struct part {
    const ddp_head_args_t *head;
    size_t                 first, rows;
} part_t;

static size_t parts_of(const ddp_head_args_t *head)
{
    return (head->rows + HEAD_ROWS - 1) / HEAD_ROWS;
}

static part_t part_at(const ddp_head_args_t *head, size_t i)
{
    const size_t parts = parts_of(head);
    const size_t first = head->rows * i / parts;

    return (part_t){head, first, head->rows * (i + 1) / parts - first};
}

/* Rows of the largest part, whatever the number of rows below these. */
static size_t most_rows(const ddp_head_args_t *head)
{
    return head->rows < HEAD_ROWS ? head->rows : HEAD_ROWS;
}

/* Logits of a part, rows `pitch` floats apart. */
static ddp_gemm_args_t logits_product(const part_t *part, float *logits, size_t pitch)
{
    const ddp_head_args_t *head = part->head;

    return (ddp_gemm_args_t){.transpose_b = true,
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
}

static ddp_status_t make_logits(ddp_stream_t *stream, const part_t *part, float *logits, size_t pitch)
{
    const ddp_gemm_args_t gemm = logits_product(part, logits, pitch);

    return ddp_cuda_gemm(stream, &gemm);
}

/* What a part's gradients add to dx, */
static ddp_gemm_args_t dx_product(const part_t *part, const float *dlogits, size_t pitch)
{
    const ddp_head_args_t *head = part->head;

    return (ddp_gemm_args_t){.m         = part->rows,
                             .n         = head->width,
                             .k         = head->vocab,
                             .alpha     = 1.0F,
                             .beta      = head->accumulate_dx ? 1.0F : 0.0F,
                             .a         = dlogits,
                             .lda       = pitch,
                             .b         = head->w,
                             .ldb       = head->width,
                             .c         = head->dx != NULL ? head->dx + part->first * head->width : NULL,
                             .ldc       = head->width,
                             .precision = head->precision};
}

/* and to dw. */
static ddp_gemm_args_t dw_product(const part_t *part, const float *dlogits, size_t pitch)
{
    const ddp_head_args_t *head = part->head;

    return (ddp_gemm_args_t){.transpose_a = true,
                             .m           = head->vocab,
                             .n           = head->width,
                             .k           = part->rows,
                             .alpha       = 1.0F,
                             .beta        = part->first > 0 || head->accumulate_dw ? 1.0F : 0.0F,
                             .a           = dlogits,
                             .lda         = pitch,
                             .b           = head->x + part->first * head->width,
                             .ldb         = head->width,
                             .c           = head->dw,
                             .ldc         = head->width,
                             .precision   = head->precision};
}

static ddp_status_t use_dlogits(ddp_stream_t *stream, const part_t *part, const float *dlogits, size_t pitch)
{
    ddp_status_t          status = DDP_OK;
    const ddp_gemm_args_t dx     = dx_product(part, dlogits, pitch);
    const ddp_gemm_args_t dw     = dw_product(part, dlogits, pitch);

    if (part->head->dx != NULL) {
        DDP_TRY(ddp_cuda_gemm(stream, &dx));
    }
    if (part->head->dw != NULL) {
        DDP_TRY(ddp_cuda_gemm(stream, &dw));
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

static size_t logits_bytes(const ddp_head_args_t *head)
{
    return most_rows(head) * pitch_of(head->vocab) * sizeof(float);
}

/* Logits of a part, losses of all rows. */
static size_t own_scratch(const ddp_head_args_t *head)
{
    return logits_bytes(head) + head->rows * sizeof(ddp_cuda_row_loss_t);
}

size_t ddp_cuda_head_product_scratch(const ddp_head_args_t *head)
{
    const size_t          pitch  = pitch_of(head->vocab);
    const part_t          part   = {head, 0, most_rows(head)};
    const ddp_gemm_args_t all[3] = {logits_product(&part, NULL, pitch), dx_product(&part, NULL, pitch),
                                    dw_product(&part, NULL, pitch)};
    size_t                most   = 0;

    for (int i = 0; i < 3; i++) {
        const size_t bytes = ddp_cuda_gemm_scratch(&all[i]);

        most = bytes > most ? bytes : most;
    }
    return most;
}

ddp_scratch_t ddp_cuda_head_cross_entropy_scratch(const ddp_head_cross_entropy_args_t *args)
{
    return (ddp_scratch_t){.op      = own_scratch(&args->head),
                           .product = ddp_cuda_head_product_scratch(&args->head)};
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
    const size_t                bytes  = logits_bytes(head);
    const ddp_cuda_check_args_t check  = {.index   = args->labels,
                                          .count   = head->rows,
                                          .limit   = head->vocab,
                                          .wrong   = DDP_CUDA_WRONG_LABEL,
                                          .ignored = args->ignore_index};
    ddp_cuda_row_loss_t        *row    = NULL;
    void                       *memory = NULL;
    ddp_status_t                status = DDP_OK;

    DDP_TRY(ddp_cuda_check_indices(stream, &check));
    DDP_TRY(ddp_cuda_scratch(stream, DDP_CUDA_SCRATCH_OP, own_scratch(head), &memory));
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
