#include "kernels/cpu/activation.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/table.h"

/* Floats between two looks at the clock. */
#define CHUNK 16384

DDP_INLINE void act_range(ddp_act_t act, const float *x, float *y, size_t count)
{
    size_t i = 0;

    for (; i + VL <= count; i += VL) {
        vstore(y + i, vact(act, vload(x + i)));
    }
    if (i < count) {
        const vmask_t tail = vmask_first(count - i);

        vstore_masked(y + i, vact(act, vload_masked(x + i, tail)), tail);
    }
}

DDP_INLINE void act_backward_range(const ddp_act_backward_args_t *a, ddp_act_t act, size_t first,
                                   size_t count)
{
    /* DDP_ACT_NONE has nothing saved: what is loaded for it is not used */
    const float *saved = (act == DDP_ACT_NONE ? a->dy : a->saved) + first;
    const float *dy    = a->dy + first;
    float       *dx    = a->dx + first;
    size_t       i     = 0;
    vf_t         d;

    for (; i + VL <= count; i += VL) {
        d = vact_backward(act, vload(saved + i), vload(dy + i));
        vstore(dx + i, a->accumulate ? vload(dx + i) + d : d);
    }
    if (i < count) {
        const vmask_t tail = vmask_first(count - i);

        d = vact_backward(act, vload_masked(saved + i, tail), vload_masked(dy + i, tail));
        vstore_masked(dx + i, a->accumulate ? vload_masked(dx + i, tail) + d : d, tail);
    }
}

ddp_status_t DDP_ISA_NAME(act)(const ddp_act_args_t *args)
{
    for (size_t first = 0; first < args->count; first += CHUNK) {
        const size_t count = args->count - first < CHUNK ? args->count - first : CHUNK;

        switch (args->act) {
        case DDP_ACT_RELU:
            act_range(DDP_ACT_RELU, args->x + first, args->y + first, count);
            break;
        case DDP_ACT_GELU:
            act_range(DDP_ACT_GELU, args->x + first, args->y + first, count);
            break;
        case DDP_ACT_GELU_TANH:
            act_range(DDP_ACT_GELU_TANH, args->x + first, args->y + first, count);
            break;
        case DDP_ACT_NONE:
            act_range(DDP_ACT_NONE, args->x + first, args->y + first, count);
            break;
        }
        ddp_cpu_progress_point();
    }
    return DDP_OK;
}

ddp_status_t DDP_ISA_NAME(act_backward)(const ddp_act_backward_args_t *args)
{
    for (size_t first = 0; first < args->count; first += CHUNK) {
        const size_t count = args->count - first < CHUNK ? args->count - first : CHUNK;

        switch (args->act) {
        case DDP_ACT_RELU:
            act_backward_range(args, DDP_ACT_RELU, first, count);
            break;
        case DDP_ACT_GELU:
            act_backward_range(args, DDP_ACT_GELU, first, count);
            break;
        case DDP_ACT_GELU_TANH:
            act_backward_range(args, DDP_ACT_GELU_TANH, first, count);
            break;
        case DDP_ACT_NONE:
            act_backward_range(args, DDP_ACT_NONE, first, count);
            break;
        }
        ddp_cpu_progress_point();
    }
    return DDP_OK;
}
