/* Operations on the cpu device: check, copy the arguments into the stream, and call the kernel of its set. */
#include "kernels/ops.h"

#include "base/error.h"
#include "kernels/cpu/table.h"
#include "kernels/ops_internal.h"
#include "kernels/ops_submit_internal.h"

DDP_SUBMIT_PRODUCT(gemm, ddp_gemm_args_t, precision)
DDP_SUBMIT_OP(bias_grad, ddp_bias_grad_args_t)
DDP_SUBMIT_OP(act, ddp_act_args_t)
DDP_SUBMIT_OP(act_backward, ddp_act_backward_args_t)
DDP_SUBMIT_PRODUCT(conv2d, ddp_conv2d_args_t, shape.precision)
DDP_SUBMIT_PRODUCT(conv2d_backward, ddp_conv2d_backward_args_t, shape.precision)
DDP_SUBMIT_OP(pool2d, ddp_pool2d_args_t)
DDP_SUBMIT_OP(pool2d_backward, ddp_pool2d_backward_args_t)
DDP_SUBMIT_OP(nhwc_to_nchw, ddp_permute_args_t)
DDP_SUBMIT_OP(cross_entropy, ddp_cross_entropy_args_t)
DDP_SUBMIT_OP(mse, ddp_mse_args_t)
DDP_SUBMIT_OP(dropout, ddp_dropout_args_t)
DDP_SUBMIT_OP(uniform, ddp_uniform_args_t)

ddp_status_t ddp_op_gemm(ddp_stream_t *stream, const ddp_gemm_args_t *args)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(ddp_check_call("gemm", stream, args));
    DDP_TRY(ddp_check_gemm(args));
    DDP_TRY(submit_gemm_product(stream, args));
out:
    return status;
}

ddp_status_t ddp_op_bias_grad(ddp_stream_t *stream, const ddp_bias_grad_args_t *args)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(ddp_check_call("bias_grad", stream, args));
    DDP_TRY(ddp_check_operand("bias_grad", "dy", args->dy, args->m * args->n));
    DDP_TRY(ddp_check_operand("bias_grad", "db", args->db, args->n));
    DDP_TRY(submit_bias_grad(stream, args));
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
    DDP_TRY(submit_act(stream, args));
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
    DDP_TRY(submit_act_backward(stream, args));
out:
    return status;
}

size_t ddp_conv2d_scratch_bytes(const ddp_device_t *device, const ddp_conv2d_shape_t *shape)
{
    return ddp_cpu_kernels(ddp_device_isa(device))->conv2d_scratch_bytes(shape);
}

ddp_status_t ddp_op_conv2d(ddp_stream_t *stream, const ddp_conv2d_args_t *args)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(ddp_check_call("conv2d", stream, args));
    DDP_TRY(ddp_check_conv2d(args));
    DDP_TRY(submit_conv2d_product(stream, args));
out:
    return status;
}

ddp_status_t ddp_op_conv2d_backward(ddp_stream_t *stream, const ddp_conv2d_backward_args_t *args)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(ddp_check_call("conv2d backward", stream, args));
    DDP_TRY(ddp_check_conv2d_backward(args));
    DDP_TRY(submit_conv2d_backward_product(stream, args));
out:
    return status;
}

ddp_status_t ddp_op_pool2d(ddp_stream_t *stream, const ddp_pool2d_args_t *args)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(ddp_check_call("pool2d", stream, args));
    DDP_TRY(ddp_check_pool2d(args));
    DDP_TRY(submit_pool2d(stream, args));
out:
    return status;
}

ddp_status_t ddp_op_pool2d_backward(ddp_stream_t *stream, const ddp_pool2d_backward_args_t *args)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(ddp_check_call("pool2d backward", stream, args));
    DDP_TRY(ddp_check_pool2d_backward(args));
    DDP_TRY(submit_pool2d_backward(stream, args));
out:
    return status;
}

ddp_status_t ddp_op_nhwc_to_nchw(ddp_stream_t *stream, const ddp_permute_args_t *args)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(ddp_check_call("nhwc_to_nchw", stream, args));
    DDP_TRY(ddp_check_operand("nhwc_to_nchw", "x", args->x, args->n * args->h * args->w * args->c));
    DDP_TRY(ddp_check_operand("nhwc_to_nchw", "y", args->y, args->n * args->h * args->w * args->c));
    DDP_TRY(submit_nhwc_to_nchw(stream, args));
out:
    return status;
}

ddp_status_t ddp_op_cross_entropy(ddp_stream_t *stream, const ddp_cross_entropy_args_t *args)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(ddp_check_call("cross entropy", stream, args));
    DDP_TRY(ddp_check_cross_entropy(args));
    DDP_TRY(submit_cross_entropy(stream, args));
out:
    return status;
}

ddp_status_t ddp_op_mse(ddp_stream_t *stream, const ddp_mse_args_t *args)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(ddp_check_call("mse", stream, args));
    DDP_TRY(ddp_check_mse(args));
    DDP_TRY(submit_mse(stream, args));
out:
    return status;
}

ddp_status_t ddp_op_dropout(ddp_stream_t *stream, const ddp_dropout_args_t *args)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(ddp_check_call("dropout", stream, args));
    DDP_TRY(ddp_check_dropout(args));
    DDP_TRY(submit_dropout(stream, args));
out:
    return status;
}

ddp_status_t ddp_op_uniform(ddp_stream_t *stream, const ddp_uniform_args_t *args)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(ddp_check_call("uniform", stream, args));
    DDP_TRY(ddp_check_uniform(args));
    DDP_TRY(submit_uniform(stream, args));
out:
    return status;
}

static ddp_status_t fill_run(void *work)
{
    const ddp_vector_work_t *w = work;

    w->kernels->fill(w->y, w->count, w->value);
    return DDP_OK;
}

static ddp_status_t axpy_run(void *work)
{
    const ddp_vector_work_t *w = work;

    w->kernels->axpy(w->value, w->x, w->y, w->count);
    return DDP_OK;
}

static ddp_status_t scale_run(void *work)
{
    const ddp_vector_work_t *w = work;

    w->kernels->scale(w->value, w->y, w->count);
    return DDP_OK;
}

static ddp_status_t sumsq_run(void *work)
{
    const ddp_vector_work_t *w = work;

    w->kernels->sumsq(w->x, w->count, w->sum_p);
    return DDP_OK;
}

/* `work` has everything but the kernels; `y` or `sum_p` is where the result goes. */
static ddp_status_t submit_vector(ddp_stream_t *stream, const char *op, ddp_work_fn_t *run,
                                  ddp_vector_work_t work)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(ddp_check_call(op, stream, &work));
    DDP_TRY(ddp_check_operand(op, "x", work.x, run == axpy_run || run == sumsq_run ? work.count : 0));
    if (run == sumsq_run) {
        DDP_TRY(ddp_check_operand(op, "the sum", work.sum_p, 1));
    } else {
        DDP_TRY(ddp_check_operand(op, "y", work.y, work.count));
    }
    work.kernels = ddp_kernels_of(stream);
    DDP_TRY(ddp_stream_submit(stream, op, run, &work, sizeof(work)));
out:
    return status;
}

ddp_status_t ddp_op_fill(ddp_stream_t *stream, float *y, size_t count, float value)
{
    return submit_vector(stream, "fill", fill_run,
                         (ddp_vector_work_t){.y = y, .count = count, .value = value});
}

ddp_status_t ddp_op_axpy(ddp_stream_t *stream, float alpha, const float *x, float *y, size_t count)
{
    return submit_vector(stream, "axpy", axpy_run,
                         (ddp_vector_work_t){.x = x, .y = y, .count = count, .value = alpha});
}

ddp_status_t ddp_op_scale(ddp_stream_t *stream, float alpha, float *y, size_t count)
{
    return submit_vector(stream, "scale", scale_run,
                         (ddp_vector_work_t){.y = y, .count = count, .value = alpha});
}

ddp_status_t ddp_op_sumsq(ddp_stream_t *stream, const float *x, size_t count, double *sum_p)
{
    return submit_vector(stream, "sumsq", sumsq_run,
                         (ddp_vector_work_t){.x = x, .count = count, .sum_p = sum_p});
}
