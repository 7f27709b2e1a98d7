#include "kernels/cpu/kernels.h"
#include "kernels/cpu/sumsq.h"
#include "kernels/cpu/table.h"
#include "kernels/layout.h"

/* Floats between two looks at the clock. */
#define CHUNK 65536

void DDP_ISA_NAME(fill)(float *y, size_t count, float value)
{
    const vf_t v = vset1(value);
    size_t     i = 0;

    for (; i + VL <= count; i += VL) {
        vstore(y + i, v);
    }
    for (; i < count; i++) {
        y[i] = value;
    }
}

void DDP_ISA_NAME(axpy)(float alpha, const float *x, float *y, size_t count)
{
    const vf_t a = vset1(alpha);
    size_t     i = 0;

    for (; i + VL <= count; i += VL) {
        vstore(y + i, vload(y + i) + a * vload(x + i));
        if (i % CHUNK == 0) {
            ddp_cpu_progress_point();
        }
    }
    if (i < count) {
        const vmask_t tail = vmask_first(count - i);

        vstore_masked(y + i, vload_masked(y + i, tail) + a * vload_masked(x + i, tail), tail);
    }
}

void DDP_ISA_NAME(scale)(float alpha, float *y, size_t count)
{
    const vf_t a = vset1(alpha);
    size_t     i = 0;

    for (; i + VL <= count; i += VL) {
        vstore(y + i, vload(y + i) * a);
    }
    for (; i < count; i++) {
        y[i] *= alpha;
    }
}

void DDP_ISA_NAME(sumsq)(const float *x, size_t count, double *sum_p)
{
    const size_t whole = count / DDP_BLOCK * DDP_BLOCK;
    float        last[DDP_BLOCK];
    double       sum = 0.0;

    for (size_t i = 0; i < whole; i += DDP_BLOCK) {
        sum += block_sumsq(x + i);
        if (i % CHUNK == 0) {
            ddp_cpu_progress_point();
        }
    }
    if (whole < count) {
        for (size_t i = 0; i < DDP_BLOCK; i++) {
            last[i] = whole + i < count ? x[whole + i] : 0.0F;
        }
        sum += block_sumsq(last);
    }
    *sum_p = sum;
}

void DDP_ISA_NAME(block_add)(float *dst, const float *src, size_t blocks)
{
    for (size_t i = 0; i < blocks * DDP_BLOCK; i += VL) {
        vstore(dst + i, vload(dst + i) + vload(src + i));
    }
}
