#include "base/error.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/table.h"

/* Rows between two looks at the clock are about this many floats. */
#define CHUNK 16384

/* What overflowed or is not a number must be seen in loss and gradient: a softmax of it would look harmless.
 */
static double bad_row(float *dlogits, size_t n)
{
    if (dlogits != NULL) {
        DDP_ISA_NAME(fill)(dlogits, n, NAN);
    }
    return (double)NAN;
}

/* Loss of one row that counts; sets *hit where the label has the largest logit. */
static double entropy_row(const float *x, size_t n, size_t label, float weight, float *dlogits, bool *hit)
{
    const float at_label = x[label]; /* dlogits may be x */
    bool        has_nan;
    const float largest = row_max(x, n, &has_nan);
    double      sum;

    *hit = false;
    if (has_nan || largest - largest != 0.0F) {
        return bad_row(dlogits, n);
    }
    *hit = at_label == largest && first_equal(x, n, largest) == label;
    sum  = row_exp(x, n, largest, dlogits);
    if (dlogits != NULL) {
        DDP_ISA_NAME(scale)((float)((double)weight / sum), dlogits, n);
        dlogits[label] -= weight;
    }
    return (double)weight * (natural_log(sum) + ((double)largest - (double)at_label));
}

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

ddp_status_t DDP_ISA_NAME(cross_entropy)(const ddp_cross_entropy_args_t *args)
{
    const size_t classes = args->classes;
    loss_sums_t  sums    = {0};
    size_t       done    = 0;
    ddp_status_t status  = DDP_ISA_NAME(labels_check)(args->labels, args->rows, classes, args->ignore_index);

    if (status != DDP_OK) {
        return status;
    }
    for (size_t i = 0; i < args->rows; i++) {
        const float weight  = args->weights == NULL ? 1.0F : args->weights[i];
        float      *dlogits = args->dlogits == NULL ? NULL : args->dlogits + i * classes;
        bool        hit;

        if (args->labels[i] == args->ignore_index) {
            if (dlogits != NULL) {
                DDP_ISA_NAME(fill)(dlogits, classes, 0.0F);
            }
            continue;
        }
        sums.loss +=
            entropy_row(args->logits + i * classes, classes, (size_t)args->labels[i], weight, dlogits, &hit);
        sums.weight += (double)weight;
        sums.correct += hit ? 1.0 : 0.0;
        sums.counted += 1.0;
        done += classes;
        if (done >= CHUNK) {
            done = 0;
            ddp_cpu_progress_point();
        }
    }
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
