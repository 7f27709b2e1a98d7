#include <string.h>

#include "kernels/cpu/batch_norm_internal.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/table.h"

/* Statistics of the rows so far; [c] each, in scratch. */
typedef struct moments {
    double *mean, *squares; /* squares: of the distances from the mean, summed */
    float  *shift;          /* a value near the mean */
    float  *sum, *sumsq;    /* of x - shift and its square, over one chunk */
} moments_t;

DDP_INLINE void sum_group(const int vectors, const bool whole, const ddp_batch_norm_args_t *a,
                          const moments_t *m, size_t first, size_t rows, size_t j)
{
    const size_t left           = a->c - j;
    const size_t side           = (size_t)(BN_WIDE / vectors); /* rows next to each other */
    const float *x              = a->x + first * a->c + j;
    vf_t         shift[BN_WIDE] = {{0.0F}};
    vf_t         sum[BN_WIDE]   = {{0.0F}};
    vf_t         sumsq[BN_WIDE] = {{0.0F}};
    size_t       i              = 0;

    DDP_UNROLL
    for (int v = 0; v < vectors; v++) {
        shift[v] = bn_load(whole, m->shift + j + v * VL, left);
    }
    for (; i + side <= rows; i += side) {
        DDP_UNROLL
        for (int e = 0; e < BN_WIDE; e++) {
            const float *p = x + (i + (size_t)(e / vectors)) * a->c + (e % vectors) * VL;
            const vf_t   d = bn_load(whole, p, left) - shift[e % vectors];

            sum[e] += d;
            sumsq[e] += d * d;
        }
    }
    for (; i < rows; i++) {
        DDP_UNROLL
        for (int v = 0; v < vectors; v++) {
            const vf_t d = bn_load(whole, x + i * a->c + v * VL, left) - shift[v];

            sum[v] += d;
            sumsq[v] += d * d;
        }
    }
    DDP_UNROLL
    for (int e = vectors; e < BN_WIDE; e++) {
        sum[e % vectors] += sum[e];
        sumsq[e % vectors] += sumsq[e];
    }
    DDP_UNROLL
    for (int v = 0; v < vectors; v++) {
        bn_store(whole, m->sum + j + v * VL, sum[v], left);
        bn_store(whole, m->sumsq + j + v * VL, sumsq[v], left);
    }
}

static void sum_chunk(const ddp_batch_norm_args_t *a, const moments_t *m, size_t first, size_t rows)
{
    for (size_t j = 0; j < a->c; j += bn_group(a->c - j) * VL) {
        BN_FOR_GROUP(a->c - j, sum_group, a, m, first, rows, j);
    }
}

/* Chan, Golub and LeVeque 1979: two sets of rows become one. */
static void merge_chunk(const moments_t *m, size_t c, size_t before, size_t rows)
{
    const double count = (double)rows;
    const double share = count / (double)(before + rows);

    for (size_t j = 0; j < c; j++) {
        const double sum     = (double)m->sum[j];
        const double squares = (double)m->sumsq[j] - sum * sum / count;
        const double delta   = (double)m->shift[j] + sum / count - m->mean[j];

        m->mean[j] += delta * share;
        m->squares[j] += (squares > 0.0 ? squares : 0.0) + delta * delta * (double)before * share;
        m->shift[j] = (float)m->mean[j];
    }
}

/* The sums of a chunk keep their bits if `shift` is near its mean: for the first chunk its own mean, by a
 * sweep before the one that counts; later the mean so far. What the latter is off adds to the variance too.
 */
static void take_moments(const ddp_batch_norm_args_t *a, const moments_t *m)
{
    const size_t step = bn_chunk_rows(a->c);
    size_t       done = 0;

    memset(m->mean, 0, a->c * sizeof(*m->mean));
    memset(m->squares, 0, a->c * sizeof(*m->squares));
    memcpy(m->shift, a->x, a->c * sizeof(*m->shift));
    for (size_t first = 0; first < a->rows; first += step) {
        const size_t rows = a->rows - first < step ? a->rows - first : step;

        sum_chunk(a, m, first, rows);
        if (first == 0) {
            for (size_t j = 0; j < a->c; j++) {
                m->shift[j] += m->sum[j] / (float)rows;
            }
            sum_chunk(a, m, first, rows);
        }
        merge_chunk(m, a->c, first, rows);
        done += rows * a->c;
        if (done >= BN_PROGRESS) {
            done = 0;
            ddp_cpu_progress_point();
        }
    }
}

static void put(float *to, bool accumulate, double value)
{
    *to = accumulate ? *to + (float)value : (float)value;
}

/* What y is made with, to mean[] and scale[]; what others want of it, to where they want it. */
static void finish_moments(const ddp_batch_norm_args_t *a, const moments_t *m, float *mean, float *scale)
{
    const double rows = (double)a->rows;

    for (size_t j = 0; j < a->c; j++) {
        const float rstd = (float)(1.0 / sqrt(m->squares[j] / rows + (double)a->eps));

        mean[j]  = (float)m->mean[j];
        scale[j] = rstd * a->gamma[j];
        if (a->mean != NULL) {
            a->mean[j] = mean[j];
            a->rstd[j] = rstd;
        }
        if (a->mean_sum != NULL) {
            put(&a->mean_sum[j], a->accumulate_mean, m->mean[j]);
            put(&a->var_sum[j], a->accumulate_var, m->squares[j] / (rows - 1.0));
        }
    }
}

static void given_moments(const ddp_batch_norm_args_t *a, float *mean, float *scale)
{
    for (size_t j = 0; j < a->c; j++) {
        const float rstd = (float)(1.0 / sqrt((double)a->running_var[j] + (double)a->eps));

        mean[j]  = a->running_mean[j];
        scale[j] = rstd * a->gamma[j];
        if (a->mean != NULL) {
            a->mean[j] = mean[j];
            a->rstd[j] = rstd;
        }
    }
}

DDP_INLINE void apply_group(const int vectors, const bool whole, const ddp_batch_norm_args_t *a,
                            const float *mean, const float *scale, size_t first, size_t rows, size_t j)
{
    const size_t left       = a->c - j;
    const bool   relu       = a->act == DDP_ACT_RELU;
    vf_t         m[BN_WIDE] = {{0.0F}};
    vf_t         s[BN_WIDE] = {{0.0F}};
    vf_t         b[BN_WIDE] = {{0.0F}};
    const size_t end        = (first + rows) * a->c + j;

    DDP_UNROLL
    for (int v = 0; v < vectors; v++) {
        m[v] = bn_load(whole, mean + j + v * VL, left);
        s[v] = bn_load(whole, scale + j + v * VL, left);
        b[v] = bn_load(whole, a->beta + j + v * VL, left);
    }
    for (size_t at = first * a->c + j; at < end; at += a->c) {
        DDP_UNROLL
        for (int v = 0; v < vectors; v++) {
            const size_t e = at + (size_t)v * VL;
            vf_t         y = bn_value(bn_load(whole, a->x + e, left), m[v], s[v], b[v]);

            if (a->residual != NULL) {
                y += bn_load(whole, a->residual + e, left);
            }
            bn_store(whole, a->y + e, relu ? vrelu(y) : y, left);
        }
    }
}

static void apply(const ddp_batch_norm_args_t *a, const float *mean, const float *scale)
{
    const size_t step = bn_chunk_rows(a->c);
    size_t       done = 0;

    for (size_t first = 0; first < a->rows; first += step) {
        const size_t rows = a->rows - first < step ? a->rows - first : step;

        for (size_t j = 0; j < a->c; j += bn_group(a->c - j) * VL) {
            BN_FOR_GROUP(a->c - j, apply_group, a, mean, scale, first, rows, j);
        }
        done += rows * a->c;
        if (done >= BN_PROGRESS) {
            done = 0;
            ddp_cpu_progress_point();
        }
    }
}

/* A batch without rows: nothing to normalise, nothing to learn from. */
static void run_empty(const ddp_batch_norm_args_t *a)
{
    const size_t bytes = a->c * sizeof(float);

    if (a->mean != NULL) {
        memset(a->mean, 0, bytes);
        memset(a->rstd, 0, bytes);
    }
    if (a->mean_sum != NULL && !a->accumulate_mean) {
        memset(a->mean_sum, 0, bytes);
    }
    if (a->var_sum != NULL && !a->accumulate_var) {
        memset(a->var_sum, 0, bytes);
    }
}

ddp_status_t DDP_ISA_NAME(batch_norm)(const ddp_batch_norm_args_t *args)
{
    ddp_status_t status = DDP_OK;
    const size_t c      = args->c;
    void        *memory = NULL;
    float       *mean   = NULL;
    moments_t    m;

    if (args->rows == 0) {
        run_empty(args);
        return DDP_OK;
    }
    status = ddp_cpu_scratch_get(c * (2 * sizeof(double) + 5 * sizeof(float)), &memory);
    if (status != DDP_OK) {
        return status;
    }
    m.mean    = memory;
    m.squares = m.mean + c;
    m.shift   = (float *)(m.squares + c);
    m.sum     = m.shift + c;
    m.sumsq   = m.sum + c;
    mean      = m.sumsq + c;
    if (args->running_mean == NULL) {
        take_moments(args, &m);
        finish_moments(args, &m, mean, mean + c);
    } else {
        given_moments(args, mean, mean + c);
    }
    apply(args, mean, mean + c);
    ddp_cpu_scratch_put();
    return DDP_OK;
}
