#include "kernels/cpu/kernels.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/table.h"

/* Floats between two looks at the clock. */
#define CHUNK 16384
/* Rows summed before they are added to the total, as in bias.c. */
#define ROWS 128

/* Sums over one row, of three kinds, in the order that rows.h promises. */
typedef enum kind { SUM, SQUARES, PRODUCTS } kind_t;

typedef struct row {
    const float *x, *dy, *gamma;
    vf_t         mean, rstd;
} row_t;

/* One vector of what is summed; *second is the other sum of PRODUCTS. */
DDP_INLINE vf_t term(kind_t kind, const row_t *row, size_t j, size_t n, vf_t *second)
{
    const vf_t x = vload_some(row->x + j, n);
    vf_t       d;

    if (kind == SUM) {
        return x;
    }
    if (kind == SQUARES) {
        d = vkeep_some(x - row->mean, n);
        return d * d;
    }
    d       = vload_some(row->dy + j, n) * vload_some(row->gamma + j, n);
    *second = d * ((x - row->mean) * row->rstd);
    return d;
}

DDP_INLINE double sum_row(kind_t kind, const row_t *row, size_t n, double *second_p)
{
    double total = 0.0;
    double other = 0.0;

    for (size_t first = 0; first < n; first += SUM_VECTORS * VL) {
        const size_t last   = n - first < SUM_VECTORS * VL ? n : first + SUM_VECTORS * VL;
        vf_t         sum    = vset1(0.0F);
        vf_t         sum2   = vset1(0.0F);
        vf_t         second = vset1(0.0F);

        for (size_t j = first; j < last; j += VL) {
            sum += term(kind, row, j, last - j, &second);
            sum2 += second;
        }
        total += (double)vsum(sum);
        other += (double)vsum(sum2);
    }
    *second_p = other;
    return total;
}

ddp_status_t DDP_ISA_NAME(layer_norm)(const ddp_layer_norm_args_t *args)
{
    const size_t n    = args->width;
    size_t       done = 0;
    double       unused;

    for (size_t i = 0; i < args->rows; i++) {
        float      *y    = args->y + i * n;
        row_t       row  = {.x = args->x + i * n};
        const float mean = (float)(sum_row(SUM, &row, n, &unused) / (double)n);
        float       rstd;

        row.mean = vset1(mean);
        rstd     = (float)(1.0 / sqrt(sum_row(SQUARES, &row, n, &unused) / (double)n + (double)args->eps));
        row.rstd = vset1(rstd);
        for (size_t j = 0; j < n; j += VL) {
            const vf_t h = (vload_some(row.x + j, n - j) - row.mean) * row.rstd;

            vstore_some(y + j, h * vload_some(args->gamma + j, n - j) + vload_some(args->beta + j, n - j),
                        n - j);
        }
        if (args->mean != NULL) {
            args->mean[i] = mean;
            args->rstd[i] = rstd;
        }
        done += n;
        if (done >= CHUNK) {
            done = 0;
            ddp_cpu_progress_point();
        }
    }
    return DDP_OK;
}

/* dx = rstd * (g - mean(g) - h * mean(g h)), g = dy * gamma, h = (x - mean) * rstd */
static void input_row(const ddp_layer_norm_backward_args_t *args, size_t i)
{
    const size_t n   = args->width;
    const row_t  row = {.x     = args->x + i * n,
                        .dy    = args->dy + i * n,
                        .gamma = args->gamma,
                        .mean  = vset1(args->mean[i]),
                        .rstd  = vset1(args->rstd[i])};
    float       *dx  = args->dx + i * n;
    double       products;
    const double sum = sum_row(PRODUCTS, &row, n, &products);
    const vf_t   s   = vset1((float)(sum / (double)n));
    const vf_t   q   = vset1((float)(products / (double)n));

    for (size_t j = 0; j < n; j += VL) {
        const vf_t h = (vload_some(row.x + j, n - j) - row.mean) * row.rstd;
        const vf_t g = vload_some(row.dy + j, n - j) * vload_some(row.gamma + j, n - j);
        const vf_t d = (g - s - h * q) * row.rstd;

        vstore_some(dx + j, args->accumulate_dx ? vload_some(dx + j, n - j) + d : d, n - j);
    }
}

/* One vector of columns of dgamma and dbeta, rows in order. */
static void gradient_columns(const ddp_layer_norm_backward_args_t *args, size_t j)
{
    const size_t n     = args->width;
    vf_t         gamma = vset1(0.0F);
    vf_t         beta  = vset1(0.0F);

    for (size_t first = 0; first < args->rows; first += ROWS) {
        const size_t last = args->rows - first < ROWS ? args->rows : first + ROWS;
        vf_t         g    = vset1(0.0F);
        vf_t         b    = vset1(0.0F);

        for (size_t i = first; i < last; i++) {
            const vf_t dy = vload_some(args->dy + i * n + j, n - j);

            g +=
                dy * ((vload_some(args->x + i * n + j, n - j) - vset1(args->mean[i])) * vset1(args->rstd[i]));
            b += dy;
        }
        gamma += g;
        beta += b;
    }
    if (args->dgamma != NULL) {
        gamma = args->accumulate_dgamma ? vload_some(args->dgamma + j, n - j) + gamma : gamma;
        vstore_some(args->dgamma + j, gamma, n - j);
    }
    if (args->dbeta != NULL) {
        beta = args->accumulate_dbeta ? vload_some(args->dbeta + j, n - j) + beta : beta;
        vstore_some(args->dbeta + j, beta, n - j);
    }
}

ddp_status_t DDP_ISA_NAME(layer_norm_backward)(const ddp_layer_norm_backward_args_t *args)
{
    size_t done = 0;

    for (size_t i = 0; i < args->rows && args->dx != NULL; i++) {
        input_row(args, i);
        done += args->width;
        if (done >= CHUNK) {
            done = 0;
            ddp_cpu_progress_point();
        }
    }
    for (size_t j = 0; j < args->width && (args->dgamma != NULL || args->dbeta != NULL); j += VL) {
        gradient_columns(args, j);
        ddp_cpu_progress_point();
    }
    return DDP_OK;
}
