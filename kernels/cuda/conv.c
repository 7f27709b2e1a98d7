/* Convolutions: cuDNN where it takes the case, else plain kernels. */
#include "base/error.h"
#include "kernels/cuda/conv_plain.h"
#include "kernels/cuda/cudnn.h"
#include "kernels/cuda/ops.h"
#include "kernels/device_internal.h"

#define LEAST_SCRATCH 256 /* callers always give some */

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

size_t ddp_cuda_conv2d_scratch_bytes(const ddp_device_t *device, const ddp_conv2d_shape_t *shape)
{
    const size_t cudnn = ddp_cudnn_conv2d_scratch_bytes(device, shape);

    return larger(larger(cudnn, ddp_cuda_conv2d_plain_scratch_bytes(shape)), LEAST_SCRATCH);
}

ddp_status_t ddp_cuda_conv2d(ddp_stream_t *stream, const ddp_conv2d_args_t *args)
{
    ddp_status_t status;

    if (args->shape.n == 0) {
        return DDP_OK;
    }
    status = ddp_cudnn_conv2d(stream, args);
    return status == DDP_ERR_UNSUPPORTED ? ddp_cuda_conv2d_plain(stream, args) : status;
}

static ddp_bias_grad_args_t bias_of(const ddp_conv2d_backward_args_t *args)
{
    const ddp_conv2d_shape_t *s = &args->shape;

    return (ddp_bias_grad_args_t){.dy         = args->dy,
                                  .m          = s->n * s->out_h * s->out_w,
                                  .n          = s->out_c,
                                  .db         = args->db,
                                  .accumulate = args->accumulate_dw};
}

size_t ddp_cuda_conv2d_backward_scratch(const ddp_conv2d_backward_args_t *args)
{
    const ddp_bias_grad_args_t bias = bias_of(args);

    return args->db != NULL ? ddp_cuda_bias_grad_scratch(&bias) : 0;
}

ddp_status_t ddp_cuda_conv2d_backward(ddp_stream_t *stream, const ddp_conv2d_backward_args_t *args)
{
    ddp_status_t               status = DDP_OK;
    const ddp_bias_grad_args_t bias   = bias_of(args);

    status = args->shape.n > 0 ? ddp_cudnn_conv2d_backward(stream, args) : DDP_ERR_UNSUPPORTED;
    if (status == DDP_ERR_UNSUPPORTED) {
        status = ddp_cuda_conv2d_backward_plain(stream, args);
    }
    DDP_TRY(status);
    if (args->db != NULL) {
        DDP_TRY(ddp_cuda_bias_grad(stream, &bias));
    }
out:
    return status;
}
