#include "kernels/cuda/cudnn_graphs.h"

enum {
    KIND,
    INPUTS,
    RESULT,
    FLAGS,
    N,
    IN_H,
    IN_W,
    IN_C,
    OUT_C,
    KERNEL_H,
    KERNEL_W,
    STRIDE,
    PAD,
    OUT_H,
    OUT_W
};

enum { NHWC_FILTER = 1, HAS_BIAS = 2, HAS_RELU = 4, ACCUMULATE = 8 };

ddp_cudnn_conv_t ddp_cudnn_conv_of(const ddp_conv2d_shape_t *s)
{
    return (ddp_cudnn_conv_t){
        .inputs   = CUDNN_DATA_FLOAT,
        .result   = CUDNN_DATA_FLOAT,
        .n        = (int64_t)s->n,
        .in_h     = (int64_t)s->in_h,
        .in_w     = (int64_t)s->in_w,
        .in_c     = (int64_t)s->in_c,
        .out_c    = (int64_t)s->out_c,
        .kernel_h = (int64_t)s->kernel_h,
        .kernel_w = (int64_t)s->kernel_w,
        .stride   = (int64_t)s->stride,
        .pad      = (int64_t)s->pad,
        .out_h    = (int64_t)s->out_h,
        .out_w    = (int64_t)s->out_w,
    };
}

/* Of the flags those that mean something for this kind: what does not matter makes no second plan. */
static int64_t flags_of(ddp_cudnn_kind_t kind, const ddp_cudnn_conv_t *conv)
{
    const int64_t filter = conv->is_nhwc_filter ? NHWC_FILTER : 0;

    if (kind != DDP_CUDNN_CONV) {
        return filter | (conv->accumulate ? ACCUMULATE : 0);
    }
    return filter | (conv->has_bias ? HAS_BIAS : 0) | (conv->has_relu ? HAS_RELU : 0);
}

ddp_cudnn_key_t ddp_cudnn_conv_key(ddp_cudnn_kind_t kind, const ddp_cudnn_conv_t *conv)
{
    return (ddp_cudnn_key_t){.words = {[KIND]     = kind,
                                       [INPUTS]   = conv->inputs,
                                       [RESULT]   = conv->result,
                                       [FLAGS]    = flags_of(kind, conv),
                                       [N]        = conv->n,
                                       [IN_H]     = conv->in_h,
                                       [IN_W]     = conv->in_w,
                                       [IN_C]     = conv->in_c,
                                       [OUT_C]    = conv->out_c,
                                       [KERNEL_H] = conv->kernel_h,
                                       [KERNEL_W] = conv->kernel_w,
                                       [STRIDE]   = conv->stride,
                                       [PAD]      = conv->pad,
                                       [OUT_H]    = conv->out_h,
                                       [OUT_W]    = conv->out_w}};
}

/* Dimensions in cuDNN's order N, C, H, W of what lies in memory as N, H, W, C. */
static ddp_cudnn_extents_t nhwc(int64_t n, int64_t c, int64_t h, int64_t w)
{
    return (ddp_cudnn_extents_t){{n, c, h, w}, {h * w * c, 1, w * c, c}};
}

static ddp_cudnn_extents_t nchw(int64_t n, int64_t c, int64_t h, int64_t w)
{
    return (ddp_cudnn_extents_t){{n, c, h, w}, {c * h * w, h * w, w, 1}};
}

static cudnnBackendDescriptor_t geometry(ddp_cudnn_graph_t *graph, const int64_t *words)
{
    const cudnnConvolutionMode_t mode      = CUDNN_CROSS_CORRELATION;
    const int64_t                axes      = 2;
    const int64_t                stride[2] = {words[STRIDE], words[STRIDE]};
    const int64_t                pad[2]    = {words[PAD], words[PAD]};
    const int64_t                one[2]    = {1, 1};
    cudnnBackendDescriptor_t     how       = ddp_cudnn_make(graph, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);

    ddp_cudnn_set_type(graph, how, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    ddp_cudnn_set(graph, how, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    ddp_cudnn_set(graph, how, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &axes);
    ddp_cudnn_set(graph, how, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, axes, pad);
    ddp_cudnn_set(graph, how, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, axes, pad);
    ddp_cudnn_set(graph, how, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, axes, one);
    ddp_cudnn_set(graph, how, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, axes, stride);
    ddp_cudnn_finalize(graph, how);
    return how;
}

/* Names of the attributes of one kind of convolution. */
typedef struct names {
    cudnnBackendDescriptorType_t op;
    cudnnBackendAttributeName_t  alpha, beta, how, x, w, y;
} names_t;

static const names_t forward_names = {
    CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
};
static const names_t data_names = {
    CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
};
static const names_t filter_names = {
    CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
};

static void convolve(ddp_cudnn_graph_t *graph, const names_t *names, const int64_t *words,
                     const ddp_cudnn_tensor_t *x, const ddp_cudnn_tensor_t *w, const ddp_cudnn_tensor_t *y)
{
    const float              alpha = 1.0F;
    const float              beta  = (words[FLAGS] & ACCUMULATE) != 0 ? 1.0F : 0.0F;
    cudnnBackendDescriptor_t how   = geometry(graph, words);
    cudnnBackendDescriptor_t op    = ddp_cudnn_make(graph, names->op);

    ddp_cudnn_set_descriptor(graph, op, names->how, how);
    ddp_cudnn_set_descriptor(graph, op, names->x, x->descriptor);
    ddp_cudnn_set_descriptor(graph, op, names->w, w->descriptor);
    ddp_cudnn_set_descriptor(graph, op, names->y, y->descriptor);
    ddp_cudnn_set(graph, op, names->alpha, CUDNN_TYPE_FLOAT, 1, &alpha);
    ddp_cudnn_set(graph, op, names->beta, CUDNN_TYPE_FLOAT, 1, &beta);
    ddp_cudnn_append(graph, op);
}

/* y = relu(conv + bias), of which the last two may be missing. */
static void forward(ddp_cudnn_graph_t *graph, const int64_t *words, const ddp_cudnn_tensor_t *x,
                    const ddp_cudnn_tensor_t *w, const ddp_cudnn_tensor_t *y)
{
    const bool         has_bias = (words[FLAGS] & HAS_BIAS) != 0;
    const bool         has_relu = (words[FLAGS] & HAS_RELU) != 0;
    ddp_cudnn_tensor_t product  = *y;
    ddp_cudnn_tensor_t sum      = *y;

    if (has_bias || has_relu) {
        product = ddp_cudnn_tensor(graph, CUDNN_DATA_FLOAT, DDP_CUDNN_INNER, 0, &y->extents);
    }
    convolve(graph, &forward_names, words, x, w, &product);
    if (has_bias) {
        const ddp_cudnn_extents_t per_channel = nhwc(1, words[OUT_C], 1, 1);
        const ddp_cudnn_tensor_t  bias =
            ddp_cudnn_tensor(graph, CUDNN_DATA_FLOAT, DDP_CUDNN_MEMORY, DDP_CUDNN_BIAS, &per_channel);

        if (has_relu) {
            sum = ddp_cudnn_tensor(graph, CUDNN_DATA_FLOAT, DDP_CUDNN_INNER, 0, &y->extents);
        }
        ddp_cudnn_pointwise(graph, CUDNN_POINTWISE_ADD, &product, &bias, &sum);
    } else {
        sum = product;
    }
    if (has_relu) {
        ddp_cudnn_pointwise(graph, CUDNN_POINTWISE_RELU_FWD, &sum, NULL, y);
    }
}

void ddp_cudnn_conv_graph(ddp_cudnn_graph_t *graph, const ddp_cudnn_key_t *key)
{
    const int64_t            *words  = key->words;
    const ddp_cudnn_kind_t    kind   = (ddp_cudnn_kind_t)words[KIND];
    const cudnnDataType_t     inputs = (cudnnDataType_t)words[INPUTS];
    const cudnnDataType_t     result = (cudnnDataType_t)words[RESULT];
    const ddp_cudnn_extents_t image  = nhwc(words[N], words[IN_C], words[IN_H], words[IN_W]);
    const ddp_cudnn_extents_t out    = nhwc(words[N], words[OUT_C], words[OUT_H], words[OUT_W]);
    const ddp_cudnn_extents_t filter =
        (words[FLAGS] & NHWC_FILTER) != 0 ? nhwc(words[OUT_C], words[IN_C], words[KERNEL_H], words[KERNEL_W])
                                          : nchw(words[OUT_C], words[IN_C], words[KERNEL_H], words[KERNEL_W]);
    const ddp_cudnn_tensor_t x = ddp_cudnn_tensor(graph, kind == DDP_CUDNN_CONV_DATA ? result : inputs,
                                                  DDP_CUDNN_MEMORY, DDP_CUDNN_X, &image);
    const ddp_cudnn_tensor_t w = ddp_cudnn_tensor(graph, kind == DDP_CUDNN_CONV_FILTER ? result : inputs,
                                                  DDP_CUDNN_MEMORY, DDP_CUDNN_W, &filter);
    const ddp_cudnn_tensor_t y = ddp_cudnn_tensor(graph, kind == DDP_CUDNN_CONV ? result : inputs,
                                                  DDP_CUDNN_MEMORY, DDP_CUDNN_OUT, &out);

    if (kind == DDP_CUDNN_CONV) {
        forward(graph, words, &x, &w, &y);
    } else {
        convolve(graph, kind == DDP_CUDNN_CONV_DATA ? &data_names : &filter_names, words, &x, &w, &y);
    }
}
