#include <stdbool.h>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/table.h"

/* Pixels summed before they are added to the total, as in bias.c. */
#define PIXELS 128

ddp_status_t DDP_ISA_NAME(global_avg_pool)(const ddp_global_avg_pool_args_t *args)
{
    const size_t c     = args->c;
    const vf_t   share = vset1((float)(1.0 / (double)(args->pixels > 0 ? args->pixels : 1)));

    for (size_t i = 0; i < args->n; i++) {
        for (size_t j = 0; j < c; j += VL) {
            const float *x     = args->x + i * args->pixels * c + j;
            vf_t         total = vset1(0.0F);

            for (size_t first = 0; first < args->pixels; first += PIXELS) {
                const size_t last = args->pixels - first < PIXELS ? args->pixels : first + PIXELS;
                vf_t         sum  = vset1(0.0F);

                for (size_t p = first; p < last; p++) {
                    sum += vload_some(x + p * c, c - j);
                }
                total += sum;
            }
            vstore_some(args->y + i * c + j, total * share, c - j);
        }
        ddp_cpu_progress_point();
    }
    return DDP_OK;
}

ddp_status_t DDP_ISA_NAME(global_avg_pool_backward)(const ddp_global_avg_pool_backward_args_t *args)
{
    const size_t c     = args->c;
    const vf_t   share = vset1((float)(1.0 / (double)(args->pixels > 0 ? args->pixels : 1)));

    for (size_t i = 0; i < args->n; i++) {
        for (size_t j = 0; j < c; j += VL) {
            const vf_t d  = vload_some(args->dy + i * c + j, c - j) * share;
            float     *dx = args->dx + i * args->pixels * c + j;

            for (size_t p = 0; p < args->pixels; p++, dx += c) {
                vstore_some(dx, args->accumulate ? vload_some(dx, c - j) + d : d, c - j);
            }
        }
        ddp_cpu_progress_point();
    }
    return DDP_OK;
}
