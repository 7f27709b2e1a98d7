/* Operations of the cpu device: the arguments are copied into the stream, for the kernel of its set. */
#include "kernels/cpu/ops.h"

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
DDP_SUBMIT_OP(embedding, ddp_embedding_args_t)
DDP_SUBMIT_OP(embedding_backward, ddp_embedding_backward_args_t)
DDP_SUBMIT_OP(layer_norm, ddp_layer_norm_args_t)
DDP_SUBMIT_OP(layer_norm_backward, ddp_layer_norm_backward_args_t)
DDP_SUBMIT_PRODUCT(attention, ddp_attention_args_t, precision)
DDP_SUBMIT_PRODUCT(attention_backward, ddp_attention_backward_args_t, forward.precision)
DDP_SUBMIT_OP(attention_cached, ddp_attention_cached_args_t)
DDP_SUBMIT_OP(attention_keep, ddp_attention_cached_args_t)
DDP_SUBMIT_PRODUCT(head_cross_entropy, ddp_head_cross_entropy_args_t, head.precision)
DDP_SUBMIT_PRODUCT(head_logits, ddp_head_logits_args_t, head.precision)
DDP_SUBMIT_PRODUCT(head_backward, ddp_head_backward_args_t, head.precision)
DDP_SUBMIT_OP(normal, ddp_normal_args_t)
DDP_SUBMIT_OP(batch_norm, ddp_batch_norm_args_t)
DDP_SUBMIT_OP(batch_norm_backward, ddp_batch_norm_backward_args_t)
DDP_SUBMIT_OP(global_avg_pool, ddp_global_avg_pool_args_t)
DDP_SUBMIT_OP(global_avg_pool_backward, ddp_global_avg_pool_backward_args_t)

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

static ddp_status_t submit_vector(ddp_stream_t *stream, const char *op, ddp_work_fn_t *run,
                                  ddp_vector_work_t work)
{
    work.kernels = ddp_kernels_of(stream);
    return ddp_stream_submit(stream, op, run, &work, sizeof(work));
}

static ddp_status_t submit_fill(ddp_stream_t *stream, float *y, size_t count, float value)
{
    return submit_vector(stream, "fill", fill_run,
                         (ddp_vector_work_t){.y = y, .count = count, .value = value});
}

static ddp_status_t submit_axpy(ddp_stream_t *stream, float alpha, const float *x, float *y, size_t count)
{
    return submit_vector(stream, "axpy", axpy_run,
                         (ddp_vector_work_t){.x = x, .y = y, .count = count, .value = alpha});
}

static ddp_status_t submit_scale(ddp_stream_t *stream, float alpha, float *y, size_t count)
{
    return submit_vector(stream, "scale", scale_run,
                         (ddp_vector_work_t){.y = y, .count = count, .value = alpha});
}

static ddp_status_t submit_sumsq(ddp_stream_t *stream, const float *x, size_t count, double *sum_p)
{
    return submit_vector(stream, "sumsq", sumsq_run,
                         (ddp_vector_work_t){.x = x, .count = count, .sum_p = sum_p});
}

static size_t conv2d_scratch_bytes(const ddp_device_t *device, const ddp_conv2d_shape_t *shape)
{
    return ddp_cpu_kernels(ddp_device_isa(device))->conv2d_scratch_bytes(shape);
}

static size_t kernel_scratch_bytes(const ddp_device_t *device, size_t vocab)
{
    const ddp_cpu_kernels_t *kernels = ddp_cpu_kernels(ddp_device_isa(device));
    const size_t             gemm    = kernels->gemm_scratch_bytes();
    const size_t             head    = vocab > 0 ? kernels->head_scratch_bytes(vocab) : 0;

    return head == 0 ? gemm : gemm + (head > gemm ? head : gemm); /* the head calls products */
}

const ddp_op_table_t ddp_cpu_ops = {
    .gemm                     = submit_gemm_product,
    .bias_grad                = submit_bias_grad,
    .act                      = submit_act,
    .act_backward             = submit_act_backward,
    .conv2d                   = submit_conv2d_product,
    .conv2d_backward          = submit_conv2d_backward_product,
    .pool2d                   = submit_pool2d,
    .pool2d_backward          = submit_pool2d_backward,
    .nhwc_to_nchw             = submit_nhwc_to_nchw,
    .cross_entropy            = submit_cross_entropy,
    .mse                      = submit_mse,
    .dropout                  = submit_dropout,
    .uniform                  = submit_uniform,
    .embedding                = submit_embedding,
    .embedding_backward       = submit_embedding_backward,
    .layer_norm               = submit_layer_norm,
    .layer_norm_backward      = submit_layer_norm_backward,
    .attention                = submit_attention_product,
    .attention_backward       = submit_attention_backward_product,
    .attention_cached         = submit_attention_cached,
    .attention_keep           = submit_attention_keep,
    .head_cross_entropy       = submit_head_cross_entropy_product,
    .head_logits              = submit_head_logits_product,
    .head_backward            = submit_head_backward_product,
    .normal                   = submit_normal,
    .batch_norm               = submit_batch_norm,
    .batch_norm_backward      = submit_batch_norm_backward,
    .global_avg_pool          = submit_global_avg_pool,
    .global_avg_pool_backward = submit_global_avg_pool_backward,
    .fill                     = submit_fill,
    .axpy                     = submit_axpy,
    .scale                    = submit_scale,
    .sumsq                    = submit_sumsq,
    .conv2d_scratch_bytes     = conv2d_scratch_bytes,
    .kernel_scratch_bytes     = kernel_scratch_bytes,
};
