#include "kernels/cpu/kernels.h"
#include "kernels/cpu/table.h"
#include "kernels/cpu/vec.h"

/* Rows summed before they are added to the total: with 50 000 rows the rounding error stays that of a few
 * hundred additions. */
#define ROWS 128
/* Vectors side by side. */
#define WIDE 4

/* Sum over rows of WIDE vectors of columns. */
DDP_INLINE void wide_columns(const float *dy, size_t m, size_t n, vf_t *total)
{
    for (int v = 0; v < WIDE; v++) {
        total[v] = vset1(0.0F);
    }
    for (size_t first = 0; first < m; first += ROWS) {
        const size_t last      = m - first < ROWS ? m : first + ROWS;
        vf_t         sum[WIDE] = {0};

        for (size_t i = first; i < last; i++) {
            for (int v = 0; v < WIDE; v++) {
                sum[v] += vload(dy + i * n + v * VL);
            }
        }
        for (int v = 0; v < WIDE; v++) {
            total[v] += sum[v];
        }
    }
}

/* The same for one vector of `columns` <= VL columns. */
DDP_INLINE vf_t columns_sum(const float *dy, size_t m, size_t n, size_t columns)
{
    const vmask_t mask  = vmask_first(columns);
    vf_t          total = vset1(0.0F);

    for (size_t first = 0; first < m; first += ROWS) {
        const size_t last = m - first < ROWS ? m : first + ROWS;
        vf_t         sum  = vset1(0.0F);

        for (size_t i = first; i < last; i++) {
            sum += vload_masked(dy + i * n, mask);
        }
        total += sum;
    }
    return total;
}

ddp_status_t DDP_ISA_NAME(bias_grad)(const ddp_bias_grad_args_t *args)
{
    const size_t n  = args->n;
    float       *db = args->db;
    size_t       j  = 0;
    vf_t         total[WIDE];

    for (; j + WIDE * VL <= n; j += WIDE * VL) {
        wide_columns(args->dy + j, args->m, n, total);
        for (size_t v = 0; v < WIDE; v++) {
            float *to = db + j + v * VL;

            vstore(to, args->accumulate ? vload(to) + total[v] : total[v]);
        }
        ddp_cpu_progress_point();
    }
    for (; j < n; j += VL) {
        const size_t  columns = n - j < VL ? n - j : VL;
        const vmask_t mask    = vmask_first(columns);
        const vf_t    sum     = columns_sum(args->dy + j, args->m, n, columns);

        vstore_masked(db + j, args->accumulate ? vload_masked(db + j, mask) + sum : sum, mask);
    }
    return DDP_OK;
}
