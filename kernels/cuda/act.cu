/* Activations: 8 bytes an element forward, 12 backward (16 where it adds); exp() and erfc() are hidden behind
 * the loads. */
#include "kernels/cuda/activation.h"
#include "kernels/cuda/each.h"
#include "kernels/cuda/ops.h"

/* dy act'(.): where relu gave 0 it is 0, whatever dy is. */
static __device__ inline float gradient(ddp_act_t act, float saved, float dy)
{
    const float slope = ddp_act_slope(act, saved);

    return act == DDP_ACT_RELU && slope == 0.0F ? 0.0F : dy * slope;
}

struct act_forward_t {
    enum { inputs = 1 };
    ddp_act_t act;

    __device__ float operator()(const float *x) const
    {
        return ddp_act(act, x[0]);
    }
};

struct act_backward_t {
    enum { inputs = 2 };
    ddp_act_t act;

    __device__ float operator()(const float *x) const
    {
        return gradient(act, x[0], x[1]);
    }
};

struct act_backward_add_t {
    enum { inputs = 3 };
    ddp_act_t act;

    __device__ float operator()(const float *x) const
    {
        return __fadd_rn(x[2], gradient(act, x[0], x[1]));
    }
};

ddp_status_t ddp_cuda_act(ddp_stream_t *stream, const ddp_act_args_t *args)
{
    const ddp_cuda_each_t<act_forward_t> each = {{args->act}, {args->x}, args->y, args->count};

    return ddp_cuda_each(stream, "act", each);
}

ddp_status_t ddp_cuda_act_backward(ddp_stream_t *stream, const ddp_act_backward_args_t *args)
{
    /* DDP_ACT_NONE has nothing saved: what is loaded for it is not used */
    const float *saved = args->act == DDP_ACT_NONE ? args->dy : args->saved;

    if (args->accumulate) {
        const ddp_cuda_each_t<act_backward_add_t> each = {
            {args->act}, {saved, args->dy, args->dx}, args->dx, args->count};

        return ddp_cuda_each(stream, "act_backward", each);
    } else {
        const ddp_cuda_each_t<act_backward_t> each = {{args->act}, {saved, args->dy}, args->dx, args->count};

        return ddp_cuda_each(stream, "act_backward", each);
    }
}
