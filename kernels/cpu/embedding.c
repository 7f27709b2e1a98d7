#include "base/error.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/table.h"

/* Floats between two looks at the clock. */
#define CHUNK 16384

static ddp_status_t tokens_check(const int32_t *tokens, size_t count, size_t vocab)
{
    for (size_t i = 0; i < count; i++) {
        if (tokens[i] < 0 || (size_t)tokens[i] >= vocab) {
            return ddp_fail(DDP_ERR_INVALID_ARG, "token %zu is %d: the vocabulary ends at %zu", i,
                            (int)tokens[i], vocab - 1);
        }
    }
    return DDP_OK;
}

/* y = a + b */
DDP_INLINE void row_add(const float *a, const float *b, float *y, size_t n)
{
    for (size_t j = 0; j < n; j += VL) {
        vstore_some(y + j, vload_some(a + j, n - j) + vload_some(b + j, n - j), n - j);
    }
}

DDP_INLINE void row_copy(const float *a, float *y, size_t n)
{
    for (size_t j = 0; j < n; j += VL) {
        vstore_some(y + j, vload_some(a + j, n - j), n - j);
    }
}

static void look_at_the_clock(size_t *done, size_t width)
{
    *done += width;
    if (*done >= CHUNK) {
        *done = 0;
        ddp_cpu_progress_point();
    }
}

ddp_status_t DDP_ISA_NAME(embedding)(const ddp_embedding_args_t *args)
{
    const size_t width  = args->width;
    const size_t rows   = args->sequences * args->length;
    size_t       done   = 0;
    ddp_status_t status = tokens_check(args->tokens, rows, args->vocab);

    if (status != DDP_OK) {
        return status;
    }
    for (size_t i = 0; i < rows; i++) {
        const float *row = args->table + (size_t)args->tokens[i] * width;

        if (args->positions == NULL) {
            row_copy(row, args->y + i * width, width);
        } else {
            row_add(row, args->positions + i % args->length * width, args->y + i * width, width);
        }
        look_at_the_clock(&done, width);
    }
    return DDP_OK;
}

ddp_status_t DDP_ISA_NAME(embedding_backward)(const ddp_embedding_backward_args_t *args)
{
    const size_t width  = args->width;
    const size_t rows   = args->sequences * args->length;
    size_t       done   = 0;
    ddp_status_t status = tokens_check(args->tokens, rows, args->vocab);

    if (status != DDP_OK) {
        return status;
    }
    if (args->dtable != NULL && !args->accumulate_table) {
        DDP_ISA_NAME(fill)(args->dtable, args->vocab * width, 0.0F);
    }
    if (args->dpositions != NULL && !args->accumulate_positions) {
        DDP_ISA_NAME(fill)(args->dpositions, args->n_positions * width, 0.0F);
    }
    for (size_t i = 0; i < rows; i++) {
        const float *dy = args->dy + i * width;

        if (args->dtable != NULL) {
            float *to = args->dtable + (size_t)args->tokens[i] * width;

            row_add(to, dy, to, width);
        }
        if (args->dpositions != NULL) {
            float *to = args->dpositions + i % args->length * width;

            row_add(to, dy, to, width);
        }
        look_at_the_clock(&done, width);
    }
    return DDP_OK;
}
