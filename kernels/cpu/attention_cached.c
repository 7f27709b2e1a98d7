/* Attention of a few new rows to many kept ones: products of vectors, bound by reading the kept rows. */
#include <string.h>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/scratch.h"

/* Vectors of an output row that stay in registers while the values go by. */
#define MIX_VECTORS 4

ddp_status_t DDP_ISA_NAME(attention_keep)(const ddp_attention_cached_args_t *args)
{
    const size_t c = args->channels;

    for (size_t s = 0; s < args->sequences; s++) {
        for (size_t t = 0; t < args->length; t++) {
            const float *row = args->qkv + (s * args->length + t) * 3 * c;
            const size_t to  = (s * args->capacity + args->past + t) * c;

            memcpy(args->keys + to, row + c, c * sizeof(float));
            memcpy(args->values + to, row + 2 * c, c * sizeof(float));
        }
    }
    return DDP_OK;
}

/* scores[j] = q k_j * scale; rows of keys lie `ld` apart */
static void scores(const float *q, const float *keys, size_t ld, size_t n, size_t width, float scale,
                   float *out)
{
    for (size_t j = 0; j < n; j++) {
        const float *key = keys + j * ld;
        vf_t         sum = vset1(0.0F);

        for (size_t d = 0; d < width; d += VL) {
            sum += vload_some(q + d, width - d) * vload_some(key + d, width - d);
        }
        out[j] = vsum(sum) * scale;
    }
}

/* y[0 .. MIX_VECTORS VL) = factor * sum over j of p[j] v_j, for the part of a row at which `values` points */
DDP_INLINE void mix_whole(const float *p, const float *values, size_t ld, size_t n, float factor, float *y)
{
    vf_t sum[MIX_VECTORS];

    DDP_UNROLL
    for (size_t i = 0; i < MIX_VECTORS; i++) {
        sum[i] = vset1(0.0F);
    }
    for (size_t j = 0; j < n; j++) {
        const vf_t weight = vset1(p[j]);

        DDP_UNROLL
        for (size_t i = 0; i < MIX_VECTORS; i++) {
            sum[i] += weight * vload(values + j * ld + i * VL);
        }
    }
    DDP_UNROLL
    for (size_t i = 0; i < MIX_VECTORS; i++) {
        vstore(y + i * VL, sum[i] * vset1(factor));
    }
}

static void mix(const float *p, const float *values, size_t ld, size_t n, size_t width, float factor,
                float *y)
{
    size_t d = 0;

    for (; d + MIX_VECTORS * VL <= width; d += MIX_VECTORS * VL) {
        mix_whole(p, values + d, ld, n, factor, y + d);
    }
    for (; d < width; d += VL) {
        vf_t sum = vset1(0.0F);

        for (size_t j = 0; j < n; j++) {
            sum += vset1(p[j]) * vload_some(values + j * ld + d, width - d);
        }
        vstore_some(y + d, sum * vset1(factor), width - d);
    }
}

/* One row of one head, which sees n keys. */
static void attend(const ddp_attention_cached_args_t *args, size_t s, size_t t, size_t h, float *p)
{
    const size_t c     = args->channels;
    const size_t width = c / args->heads;
    const size_t n     = args->past + t + 1;
    const float *q     = args->qkv + (s * args->length + t) * 3 * c + h * width;
    const float *keys  = args->keys + s * args->capacity * c + h * width;
    const float *v     = args->values + s * args->capacity * c + h * width;
    float       *y     = args->y + (s * args->length + t) * c + h * width;
    bool         has_nan;
    float        top;
    double       sum;

    scores(q, keys, c, n, width, (float)(1.0 / sqrt((double)width)), p);
    top = row_max(p, n, &has_nan);
    if (has_nan || top - top != 0.0F) { /* exp() would make it look harmless */
        DDP_ISA_NAME(fill)(y, width, NAN);
        return;
    }
    sum = row_exp(p, n, top, p);
    mix(p, v, c, n, width, (float)(1.0 / sum), y);
}

ddp_status_t DDP_ISA_NAME(attention_cached)(const ddp_attention_cached_args_t *args)
{
    void        *scratch = NULL;
    ddp_status_t status  = ddp_cpu_scratch_get((args->past + args->length) * sizeof(float), &scratch);

    if (status != DDP_OK) {
        return status;
    }
    status = DDP_ISA_NAME(attention_keep)(args);
    for (size_t i = 0; i < args->sequences * args->length; i++) {
        for (size_t h = 0; h < args->heads; h++) {
            attend(args, i / args->length, i % args->length, h, scratch);
        }
        ddp_cpu_progress_point();
    }
    ddp_cpu_scratch_put();
    return status;
}
