#include "base/error.h"
#include "kernels/cpu/entropy.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/table.h"

/* Rows between two looks at the clock are about this many floats. */
#define CHUNK 16384

ddp_status_t DDP_ISA_NAME(labels_check)(const int32_t *labels, size_t rows, size_t classes, int32_t ignored)
{
    for (size_t i = 0; i < rows; i++) {
        const int32_t label = labels[i];

        if (label != ignored && (label < 0 || (size_t)label >= classes)) {
            return ddp_fail(DDP_ERR_INVALID_ARG,
                            "label of row %zu is %d: not in 0 .. %zu and not ignore_index %d", i, (int)label,
                            classes - 1, (int)ignored);
        }
    }
    return DDP_OK;
}

/* One row that counts; `blocks` is room for what is known of each of its blocks. */
static void entropy_row(const ddp_cross_entropy_args_t *args, size_t i, entropy_block_t *blocks,
                        loss_sums_t *sums)
{
    const size_t    classes = args->classes;
    const size_t    n       = entropy_blocks(classes);
    const int32_t   label   = args->labels[i];
    const float     weight  = args->weights == NULL ? 1.0F : args->weights[i];
    const float    *x       = args->logits + i * classes;
    float          *dlogits = args->dlogits == NULL ? NULL : args->dlogits + i * classes;
    entropy_label_t at      = {0};

    for (size_t c = 0; c < n; c++) {
        DDP_ISA_NAME(entropy_look)
        (x + c * ENTROPY_COLUMNS, entropy_columns(classes, c), entropy_column(label, c), &blocks[c], &at,
         dlogits == NULL ? NULL : dlogits + c * ENTROPY_COLUMNS);
    }
    DDP_ISA_NAME(entropy_finish)(blocks, 1, n, label, &at, weight, sums);
    for (size_t c = 0; c < n && dlogits != NULL; c++) {
        DDP_ISA_NAME(entropy_gradient)
        (&blocks[c], entropy_column(label, c), weight, dlogits + c * ENTROPY_COLUMNS,
         entropy_columns(classes, c));
    }
}

ddp_status_t DDP_ISA_NAME(cross_entropy)(const ddp_cross_entropy_args_t *args)
{
    const size_t classes = args->classes;
    loss_sums_t  sums    = {0};
    size_t       done    = 0;
    void        *blocks  = NULL;
    ddp_status_t status  = DDP_ISA_NAME(labels_check)(args->labels, args->rows, classes, args->ignore_index);

    if (status == DDP_OK) {
        status = ddp_cpu_scratch_get((entropy_blocks(classes) + 1) * sizeof(entropy_block_t), &blocks);
    }
    if (status != DDP_OK) {
        return status;
    }
    for (size_t i = 0; i < args->rows; i++) {
        if (args->labels[i] != args->ignore_index) {
            entropy_row(args, i, blocks, &sums);
        } else if (args->dlogits != NULL) {
            DDP_ISA_NAME(fill)(args->dlogits + i * classes, classes, 0.0F);
        }
        done += classes;
        if (done >= CHUNK) {
            done = 0;
            ddp_cpu_progress_point();
        }
    }
    ddp_cpu_scratch_put();
    sums_store(&sums, args->stats);
    return DDP_OK;
}

/* Sum of squared differences of one row; the gradient, 2 * weight / width * difference, to dy if not NULL. */
static double squares_row(const float *y, const float *target, size_t n, float factor, float *dy)
{
    double total = 0.0;

    for (size_t first = 0; first < n; first += SUM_VECTORS * VL) {
        const size_t last = n - first < SUM_VECTORS * VL ? n : first + SUM_VECTORS * VL;
        vf_t         sum  = vset1(0.0F);
        size_t       j    = first;

        for (; j + VL <= last; j += VL) {
            const vf_t d = vload(y + j) - vload(target + j);

            sum += d * d;
            if (dy != NULL) {
                vstore(dy + j, vset1(factor) * d);
            }
        }
        if (j < last) {
            const vmask_t tail = vmask_first(last - j);
            const vf_t    d    = vload_masked(y + j, tail) - vload_masked(target + j, tail);

            sum += d * d;
            if (dy != NULL) {
                vstore_masked(dy + j, vset1(factor) * d, tail);
            }
        }
        total += (double)vsum(sum);
    }
    return total;
}

ddp_status_t DDP_ISA_NAME(mse)(const ddp_mse_args_t *args)
{
    const size_t width = args->width;
    loss_sums_t  sums  = {0};

    for (size_t i = 0; i < args->rows; i++) {
        const double weight = args->weights == NULL ? 1.0 : (double)args->weights[i];
        const double share  = width > 0 ? weight / (double)width : 0.0;

        sums.loss +=
            share * squares_row(args->y + i * width, args->target + i * width, width, (float)(2.0 * share),
                                args->dy == NULL ? NULL : args->dy + i * width);
        sums.weight += weight;
        sums.counted += 1.0;
    }
    sums_store(&sums, args->stats);
    return DDP_OK;
}
