/* Operations: check the arguments, then call what the backend of the device has. */
#include "kernels/ops.h"

#include "base/error.h"
#include "kernels/ops_dispatch_internal.h"
#include "kernels/ops_internal.h"

ddp_status_t ddp_op_gemm(ddp_stream_t *stream, const ddp_gemm_args_t *args)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(ddp_check_call("gemm", stream, args));
    DDP_TRY(ddp_check_gemm(args));
    DDP_TRY(DDP_CALL_OP(stream, gemm, args));
out:
    return status;
}

ddp_status_t ddp_op_bias_grad(ddp_stream_t *stream, const ddp_bias_grad_args_t *args)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(ddp_check_call("bias_grad", stream, args));
    DDP_TRY(ddp_check_operand("bias_grad", "dy", args->dy, args->m * args->n));
    DDP_TRY(ddp_check_operand("bias_grad", "db", args->db, args->n));
    DDP_TRY(DDP_CALL_OP(stream, bias_grad, args));
out:
    return status;
}

ddp_status_t ddp_op_act(ddp_stream_t *stream, const ddp_act_args_t *args)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(ddp_check_call("act", stream, args));
    DDP_TRY(ddp_check_act("act", args->act));
    DDP_TRY(ddp_check_operand("act", "x", args->x, args->count));
    DDP_TRY(ddp_check_operand("act", "y", args->y, args->count));
    DDP_TRY(DDP_CALL_OP(stream, act, args));
out:
    return status;
}

ddp_status_t ddp_op_act_backward(ddp_stream_t *stream, const ddp_act_backward_args_t *args)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(ddp_check_call("act_backward", stream, args));
    DDP_TRY(ddp_check_act("act_backward", args->act));
    DDP_TRY(
        ddp_check_operand("act_backward", "saved", args->saved, args->act == DDP_ACT_NONE ? 0 : args->count));
    DDP_TRY(ddp_check_operand("act_backward", "dy", args->dy, args->count));
    DDP_TRY(ddp_check_operand("act_backward", "dx", args->dx, args->count));
    DDP_REQUIRE(!args->accumulate || args->dx != args->dy || args->count == 0, DDP_ERR_INVALID_ARG,
                "act_backward: dx can not be dy when it accumulates");
    DDP_TRY(DDP_CALL_OP(stream, act_backward, args));
out:
    return status;
}

size_t ddp_conv2d_scratch_bytes(const ddp_device_t *device, const ddp_conv2d_shape_t *shape)
{
    return device->backend->ops->conv2d_scratch_bytes(device, shape);
}

ddp_status_t ddp_op_conv2d(ddp_stream_t *stream, const ddp_conv2d_args_t *args)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(ddp_check_call("conv2d", stream, args));
    DDP_TRY(ddp_check_conv2d(args));
    DDP_TRY(DDP_CALL_OP(stream, conv2d, args));
out:
    return status;
}

ddp_status_t ddp_op_conv2d_backward(ddp_stream_t *stream, const ddp_conv2d_backward_args_t *args)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(ddp_check_call("conv2d backward", stream, args));
    DDP_TRY(ddp_check_conv2d_backward(args));
    DDP_TRY(DDP_CALL_OP(stream, conv2d_backward, args));
out:
    return status;
}

ddp_status_t ddp_op_pool2d(ddp_stream_t *stream, const ddp_pool2d_args_t *args)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(ddp_check_call("pool2d", stream, args));
    DDP_TRY(ddp_check_pool2d(args));
    DDP_TRY(DDP_CALL_OP(stream, pool2d, args));
out:
    return status;
}

ddp_status_t ddp_op_pool2d_backward(ddp_stream_t *stream, const ddp_pool2d_backward_args_t *args)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(ddp_check_call("pool2d backward", stream, args));
    DDP_TRY(ddp_check_pool2d_backward(args));
    DDP_TRY(DDP_CALL_OP(stream, pool2d_backward, args));
out:
    return status;
}

ddp_status_t ddp_op_nhwc_to_nchw(ddp_stream_t *stream, const ddp_permute_args_t *args)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(ddp_check_call("nhwc_to_nchw", stream, args));
    DDP_TRY(ddp_check_operand("nhwc_to_nchw", "x", args->x, args->n * args->h * args->w * args->c));
    DDP_TRY(ddp_check_operand("nhwc_to_nchw", "y", args->y, args->n * args->h * args->w * args->c));
    DDP_TRY(DDP_CALL_OP(stream, nhwc_to_nchw, args));
out:
    return status;
}

ddp_status_t ddp_op_cross_entropy(ddp_stream_t *stream, const ddp_cross_entropy_args_t *args)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(ddp_check_call("cross entropy", stream, args));
    DDP_TRY(ddp_check_cross_entropy(args));
    DDP_TRY(DDP_CALL_OP(stream, cross_entropy, args));
out:
    return status;
}

ddp_status_t ddp_op_mse(ddp_stream_t *stream, const ddp_mse_args_t *args)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(ddp_check_call("mse", stream, args));
    DDP_TRY(ddp_check_mse(args));
    DDP_TRY(DDP_CALL_OP(stream, mse, args));
out:
    return status;
}

ddp_status_t ddp_op_dropout(ddp_stream_t *stream, const ddp_dropout_args_t *args)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(ddp_check_call("dropout", stream, args));
    DDP_TRY(ddp_check_dropout(args));
    DDP_TRY(ddp_check_place("dropout", stream, &args->key));
    DDP_TRY(DDP_CALL_OP(stream, dropout, args));
out:
    return status;
}

ddp_status_t ddp_op_uniform(ddp_stream_t *stream, const ddp_uniform_args_t *args)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(ddp_check_call("uniform", stream, args));
    DDP_TRY(ddp_check_uniform(args));
    DDP_TRY(DDP_CALL_OP(stream, uniform, args));
out:
    return status;
}

/* Whether the four vector operations have what they need; `x` is read only by those that have one. */
static ddp_status_t check_vector(const char *op, ddp_stream_t *stream, const float *x, const void *y,
                                 size_t count)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(ddp_check_call(op, stream, stream));
    DDP_TRY(ddp_check_operand(op, "x", x, count));
    DDP_TRY(ddp_check_operand(op, "y", y, count));
out:
    return status;
}

ddp_status_t ddp_op_fill(ddp_stream_t *stream, float *y, size_t count, float value)
{
    const ddp_status_t status = check_vector("fill", stream, y, y, count);

    return status != DDP_OK ? status : DDP_CALL_VECTOR(stream, fill, y, count, value);
}

ddp_status_t ddp_op_axpy(ddp_stream_t *stream, float alpha, const float *x, float *y, size_t count)
{
    const ddp_status_t status = check_vector("axpy", stream, x, y, count);

    return status != DDP_OK ? status : DDP_CALL_VECTOR(stream, axpy, alpha, x, y, count);
}

ddp_status_t ddp_op_scale(ddp_stream_t *stream, float alpha, float *y, size_t count)
{
    const ddp_status_t status = check_vector("scale", stream, y, y, count);

    return status != DDP_OK ? status : DDP_CALL_VECTOR(stream, scale, alpha, y, count);
}

ddp_status_t ddp_op_sumsq(ddp_stream_t *stream, const float *x, size_t count, double *sum_p)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(check_vector("sumsq", stream, x, x, count));
    DDP_TRY(ddp_check_operand("sumsq", "the sum", sum_p, 1));
    DDP_TRY(DDP_CALL_VECTOR(stream, sumsq, x, count, sum_p));
out:
    return status;
}
