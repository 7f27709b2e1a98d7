#include <string.h>

#include "kernels/cpu/batch_norm_internal.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/table.h"

/* How it is known where RELU gave 0. */
typedef enum mask { MASK_NONE, MASK_FROM_X, MASK_FROM_Y } mask_t;

/* [c] each, in scratch. */
typedef struct sums {
    double *g, *products;   /* of g and g * (x - mean), over all rows */
    float  *scale;          /* rstd * gamma */
    float  *g_mean, *slope; /* dx = scale * (g - g_mean - (x - mean) * slope) */
} sums_t;

static mask_t mask_of(const ddp_batch_norm_backward_args_t *a)
{
    return a->act == DDP_ACT_NONE ? MASK_NONE : a->y != NULL ? MASK_FROM_Y : MASK_FROM_X;
}

/* Constants of one vector of channels. */
typedef struct lane {
    vf_t mean, scale, beta;
} lane_t;

DDP_INLINE void load_lane(const bool whole, const ddp_batch_norm_backward_args_t *a, const sums_t *s,
                          size_t j, size_t left, lane_t *lane)
{
    lane->mean  = bn_load(whole, a->mean + j, left);
    lane->scale = bn_load(whole, s->scale + j, left);
    lane->beta  = bn_load(whole, a->beta + j, left);
}

DDP_INLINE vf_t gradient(const bool whole, const mask_t mask, const ddp_batch_norm_backward_args_t *a,
                         const lane_t *lane, vf_t x, size_t at, size_t left)
{
    const vf_t dy = bn_load(whole, a->dy + at, left);

    if (mask == MASK_NONE) {
        return dy;
    }
    return vact_backward(DDP_ACT_RELU,
                         mask == MASK_FROM_Y ? bn_load(whole, a->y + at, left)
                                             : bn_value(x, lane->mean, lane->scale, lane->beta),
                         dy);
}

/* g of one vector: to both sums, and to the residual. */
DDP_INLINE void sum_vector(const bool whole, const mask_t mask, const ddp_batch_norm_backward_args_t *a,
                           const lane_t *lane, size_t at, size_t left, vf_t *sum, vf_t *products)
{
    const vf_t x = bn_load(whole, a->x + at, left);
    const vf_t g = gradient(whole, mask, a, lane, x, at, left);

    *sum += g;
    *products += g * (x - lane->mean);
    if (a->dresidual != NULL) {
        bn_store(whole, a->dresidual + at,
                 a->accumulate_dresidual ? bn_load(whole, a->dresidual + at, left) + g : g, left);
    }
}

/* Adds a chunk's sums to the totals. */
DDP_INLINE void sum_group(const int vectors, const bool whole, const mask_t mask,
                          const ddp_batch_norm_backward_args_t *a, const sums_t *s, size_t first, size_t rows,
                          size_t j)
{
    const size_t left              = a->c - j;
    const size_t side              = (size_t)(BN_WIDE / vectors);
    const size_t start             = first * a->c + j;
    vf_t         sum[BN_WIDE]      = {{0.0F}};
    vf_t         products[BN_WIDE] = {{0.0F}};
    size_t       i                 = 0;
    lane_t       lane[BN_WIDE];

    DDP_UNROLL
    for (int v = 0; v < vectors; v++) {
        load_lane(whole, a, s, j + (size_t)v * VL, left, &lane[v]);
    }
    for (; i + side <= rows; i += side) {
        DDP_UNROLL
        for (int e = 0; e < BN_WIDE; e++) {
            sum_vector(whole, mask, a, &lane[e % vectors],
                       start + (i + (size_t)(e / vectors)) * a->c + (size_t)(e % vectors) * VL, left, &sum[e],
                       &products[e]);
        }
    }
    for (; i < rows; i++) {
        DDP_UNROLL
        for (int v = 0; v < vectors; v++) {
            sum_vector(whole, mask, a, &lane[v], start + i * a->c + (size_t)v * VL, left, &sum[v],
                       &products[v]);
        }
    }
    DDP_UNROLL
    for (int e = vectors; e < BN_WIDE; e++) {
        sum[e % vectors] += sum[e];
        products[e % vectors] += products[e];
    }
    DDP_UNROLL
    for (int v = 0; v < vectors; v++) {
        for (size_t l = 0; l < (whole ? VL : left); l++) {
            s->g[j + (size_t)v * VL + l] += (double)sum[v][l];
            s->products[j + (size_t)v * VL + l] += (double)products[v][l];
        }
    }
}

DDP_INLINE void dx_group(const int vectors, const bool whole, const mask_t mask,
                         const ddp_batch_norm_backward_args_t *a, const sums_t *s, size_t first, size_t rows,
                         size_t j)
{
    const size_t left            = a->c - j;
    const size_t end             = (first + rows) * a->c + j;
    vf_t         g_mean[BN_WIDE] = {{0.0F}};
    vf_t         slope[BN_WIDE]  = {{0.0F}};
    lane_t       lane[BN_WIDE];

    DDP_UNROLL
    for (int v = 0; v < vectors; v++) {
        load_lane(whole, a, s, j + (size_t)v * VL, left, &lane[v]);
        g_mean[v] = bn_load(whole, s->g_mean + j + v * VL, left);
        slope[v]  = bn_load(whole, s->slope + j + v * VL, left);
    }
    for (size_t at = first * a->c + j; at < end; at += a->c) {
        DDP_UNROLL
        for (int v = 0; v < vectors; v++) {
            const size_t e = at + (size_t)v * VL;
            const vf_t   x = bn_load(whole, a->x + e, left);
            const vf_t   g = gradient(whole, mask, a, &lane[v], x, e, left);
            const vf_t   d = (g - g_mean[v] - (x - lane[v].mean) * slope[v]) * lane[v].scale;

            bn_store(whole, a->dx + e, a->accumulate_dx ? bn_load(whole, a->dx + e, left) + d : d, left);
        }
    }
}

typedef void pass_fn_t(const ddp_batch_norm_backward_args_t *a, const sums_t *s, size_t first, size_t rows,
                       size_t j);

/* One function for each way to know the mask. */
#define PASS(name, group, mask)                                                                              \
    static void name(const ddp_batch_norm_backward_args_t *a, const sums_t *s, size_t first, size_t rows,    \
                     size_t j)                                                                               \
    {                                                                                                        \
        BN_FOR_GROUP(a->c - j, group, mask, a, s, first, rows, j);                                           \
    }

PASS(sum_plain, sum_group, MASK_NONE)
PASS(sum_from_x, sum_group, MASK_FROM_X)
PASS(sum_from_y, sum_group, MASK_FROM_Y)
PASS(dx_plain, dx_group, MASK_NONE)
PASS(dx_from_x, dx_group, MASK_FROM_X)
PASS(dx_from_y, dx_group, MASK_FROM_Y)

static pass_fn_t *const sum_pass[] = {sum_plain, sum_from_x, sum_from_y};
static pass_fn_t *const dx_pass[]  = {dx_plain, dx_from_x, dx_from_y};

static void run_pass(pass_fn_t *pass, const ddp_batch_norm_backward_args_t *a, const sums_t *s)
{
    const size_t step = bn_chunk_rows(a->c);
    size_t       done = 0;

    for (size_t first = 0; first < a->rows; first += step) {
        const size_t rows = a->rows - first < step ? a->rows - first : step;

        for (size_t j = 0; j < a->c; j += bn_group(a->c - j) * VL) {
            pass(a, s, first, rows, j);
        }
        done += rows * a->c;
        if (done >= BN_PROGRESS) {
            done = 0;
            ddp_cpu_progress_point();
        }
    }
}

/* Where g is in the residual's gradient, as it is, nobody needs the mask a second time. */
static void run_dx(const ddp_batch_norm_backward_args_t *a, const sums_t *s)
{
    ddp_batch_norm_backward_args_t b = *a;

    if (a->dresidual != NULL && !a->accumulate_dresidual) {
        b.dy = a->dresidual;
        run_pass(dx_pass[MASK_NONE], &b, s);
    } else {
        run_pass(dx_pass[mask_of(a)], a, s);
    }
}

static void put_parameters(const ddp_batch_norm_backward_args_t *a, const sums_t *s)
{
    for (size_t j = 0; j < a->c; j++) {
        const float gamma = (float)(s->products[j] * (double)a->rstd[j]);
        const float beta  = (float)s->g[j];

        if (a->dgamma != NULL) {
            a->dgamma[j] = a->accumulate_dgamma ? a->dgamma[j] + gamma : gamma;
        }
        if (a->dbeta != NULL) {
            a->dbeta[j] = a->accumulate_dbeta ? a->dbeta[j] + beta : beta;
        }
    }
}

/* A batch without rows: its gradients are 0. */
static void run_empty(const ddp_batch_norm_backward_args_t *a)
{
    if (a->dgamma != NULL && !a->accumulate_dgamma) {
        memset(a->dgamma, 0, a->c * sizeof(float));
    }
    if (a->dbeta != NULL && !a->accumulate_dbeta) {
        memset(a->dbeta, 0, a->c * sizeof(float));
    }
}

ddp_status_t DDP_ISA_NAME(batch_norm_backward)(const ddp_batch_norm_backward_args_t *args)
{
    ddp_status_t status = DDP_OK;
    const size_t c      = args->c;
    void        *memory = NULL;
    sums_t       s;

    if (args->rows == 0) {
        run_empty(args);
        return DDP_OK;
    }
    status = ddp_cpu_scratch_get(c * (2 * sizeof(double) + 3 * sizeof(float)), &memory);
    if (status != DDP_OK) {
        return status;
    }
    s.g        = memory;
    s.products = s.g + c;
    s.scale    = (float *)(s.products + c);
    s.g_mean   = s.scale + c;
    s.slope    = s.g_mean + c;
    memset(s.g, 0, 2 * c * sizeof(double));
    for (size_t j = 0; j < c; j++) {
        s.scale[j] = args->rstd[j] * args->gamma[j];
    }
    run_pass(sum_pass[mask_of(args)], args, &s);
    for (size_t j = 0; j < c; j++) {
        const double rstd = (double)args->rstd[j];

        s.g_mean[j] = (float)(s.g[j] / (double)args->rows);
        s.slope[j]  = (float)(s.products[j] * rstd * rstd / (double)args->rows);
    }
    if (args->dx != NULL) {
        run_dx(args, &s);
    }
    put_parameters(args, &s);
    ddp_cpu_scratch_put();
    return DDP_OK;
}
