#include "base/error.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/table.h"
#include "kernels/cpu/vec.h"

/* Rows between two looks at the clock are about this many floats. */
#define CHUNK 16384
/* Vectors of exponentials summed in float32 before the sum goes on in float64. */
#define SUM_VECTORS 16

typedef struct loss_sums {
    double loss, weight, correct, counted;
} loss_sums_t;

static void sums_store(const loss_sums_t *sums, ddp_loss_stats_t *stats)
{
    stats->loss    = (float)sums->loss;
    stats->weight  = (float)sums->weight;
    stats->correct = (float)sums->correct;
    stats->counted = (float)sums->counted;
}

/*
 * log(x) of a positive normal number. x = m * 2^e with m in [sqrt(1/2), sqrt(2)); log m = 2 atanh(s),
 * s = (m - 1) / (m + 1), |s| < 0.172, by its series to s^21. The C library's differs between its versions,
 * and ranks on unlike machines would.
 */
static double natural_log(double x)
{
    union {
        double   value;
        uint64_t bits;
    } u = {.value = x};
    /* 0x3fe6a09e667f3bcd is sqrt(1/2) */
    const int64_t e = (int64_t)(u.bits - 0x3fe6a09e667f3bcdULL) >> 52;
    double        s;
    double        s2;
    double        p = 1.0 / 21.0;

    u.bits -= (uint64_t)e << 52;
    s  = (u.value - 1.0) / (u.value + 1.0);
    s2 = s * s;
    for (int k = 19; k >= 1; k -= 2) {
        p = p * s2 + 1.0 / k;
    }
    return (double)e * 0.6931471805599453 + 2.0 * s * p;
}

/* Largest value and whether there is a NaN. */
static float row_max(const float *x, size_t n, bool *has_nan)
{
    vf_t   lanes = vset1(-INFINITY);
    vi_t   nan   = vset1i(0);
    size_t j     = 0;
    float  largest;

    for (; j + VL <= n; j += VL) {
        const vf_t v = vload(x + j);

        lanes = vmax(v, lanes);
        nan |= v != v;
    }
    largest  = vhmax(lanes);
    *has_nan = false;
    for (int i = 0; i < VL; i++) {
        *has_nan = *has_nan || nan[i] != 0;
    }
    for (; j < n; j++) {
        largest  = x[j] > largest ? x[j] : largest;
        *has_nan = *has_nan || isnan(x[j]);
    }
    return largest;
}

static size_t first_equal(const float *x, size_t n, float value)
{
    size_t j = 0;

    while (j < n && x[j] != value) {
        j++;
    }
    return j;
}

/* Sum of exp(x - largest), in a fixed order; the terms to `e` if it is not NULL. */
static double row_exp(const float *x, size_t n, float largest, float *e)
{
    const vf_t top   = vset1(largest);
    double     total = 0.0;

    for (size_t first = 0; first < n; first += SUM_VECTORS * VL) {
        const size_t last = n - first < SUM_VECTORS * VL ? n : first + SUM_VECTORS * VL;
        vf_t         sum  = vset1(0.0F);
        size_t       j    = first;

        for (; j + VL <= last; j += VL) {
            const vf_t term = vexp(vload(x + j) - top);

            sum += term;
            if (e != NULL) {
                vstore(e + j, term);
            }
        }
        if (j < last) {
            const vmask_t tail     = vmask_first(last - j);
            float         lane[VL] = {0};

            vstore_masked(lane, vexp(vload_masked(x + j, tail) - top), tail);
            sum += vload(lane);
            if (e != NULL) {
                vstore_masked(e + j, vload(lane), tail);
            }
        }
        total += (double)vsum(sum);
    }
    return total;
}

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

static ddp_status_t labels_check(const ddp_cross_entropy_args_t *a)
{
    for (size_t i = 0; i < a->rows; i++) {
        const int32_t label = a->labels[i];

        if (label != a->ignore_index && (label < 0 || (size_t)label >= a->classes)) {
            return ddp_fail(DDP_ERR_INVALID_ARG,
                            "label of row %zu is %d: not in 0 .. %zu and not ignore_index %d", i, (int)label,
                            a->classes - 1, (int)a->ignore_index);
        }
    }
    return DDP_OK;
}

ddp_status_t DDP_ISA_NAME(cross_entropy)(const ddp_cross_entropy_args_t *args)
{
    const size_t classes = args->classes;
    loss_sums_t  sums    = {0};
    size_t       done    = 0;
    ddp_status_t status  = labels_check(args);

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
