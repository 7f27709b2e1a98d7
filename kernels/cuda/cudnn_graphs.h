/** @file The graphs that are asked of cuDNN: attention and convolution, forward and backward. Private. */
#ifndef DDP_CUDA_CUDNN_GRAPHS_H_
#define DDP_CUDA_CUDNN_GRAPHS_H_

#include "kernels/cuda/cudnn_plan.h"
#include "kernels/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/** What a key is for: its first word. */
typedef enum ddp_cudnn_kind {
    DDP_CUDNN_ATTENTION          = 1,
    DDP_CUDNN_ATTENTION_BACKWARD = 2,
    DDP_CUDNN_CONV               = 3,
    DDP_CUDNN_CONV_DATA          = 4,
    DDP_CUDNN_CONV_FILTER        = 5,
} ddp_cudnn_kind_t;

/**
 * Causal self-attention: y = softmax(scale q k^T, rows see no later column) v; Dao et al. 2022, arXiv
 * 2205.14135, as cuDNN knows it. Products of `type`, all between them in float32.
 */
typedef struct ddp_cudnn_attention {
    cudnnDataType_t type;                            /* of qkv, y and their gradients: bfloat16 or half */
    int64_t         sequences, heads, length, width; /* width: of a head */
    bool            is_exact; /* backward: the gradient of q is no sum in no order; the graph differs */
} ddp_cudnn_attention_t;

/** Numbers of the tensors of attention. One row of memory of q, k, v and their gradients is 3 heads width
 * long, of y and dy heads width: qkv as it lies in ddp_op_attention(). */
enum {
    DDP_CUDNN_Q = 1,
    DDP_CUDNN_K,
    DDP_CUDNN_V,
    DDP_CUDNN_Y,
    DDP_CUDNN_LOG_SUM,  /* [sequences, heads, length], float32 */
    DDP_CUDNN_SCALE,    /* a value: 1 / sqrt(width) */
    DDP_CUDNN_NOT_SEEN, /* a value: -infinity */
    DDP_CUDNN_ONE,      /* a value: 1 */
    DDP_CUDNN_DY,       /* backward only, as all that follows */
    DDP_CUDNN_DQ,
    DDP_CUDNN_DK,
    DDP_CUDNN_DV,
    DDP_CUDNN_ROW_SUM,   /* [sequences, heads, length], float32, scratch */
    DDP_CUDNN_DQ_FLOATS, /* [sequences, heads, length, width], float32, scratch; not if is_exact */
};

ddp_cudnn_key_t ddp_cudnn_attention_key(ddp_cudnn_kind_t kind, const ddp_cudnn_attention_t *attention);
/** Build functions for ddp_cudnn_cache_get(). */
void ddp_cudnn_attention_graph(ddp_cudnn_graph_t *graph, const ddp_cudnn_key_t *key);
void ddp_cudnn_attention_backward_graph(ddp_cudnn_graph_t *graph, const ddp_cudnn_key_t *key);

/** A convolution of images NHWC with weights of the order [out, in, h, w] or [out, h, w, in]. */
typedef struct ddp_cudnn_conv {
    cudnnDataType_t inputs, result; /* float, bfloat16 or half */
    int64_t         n, in_h, in_w, in_c, out_c, kernel_h, kernel_w, stride, pad, out_h, out_w;
    bool            is_nhwc_filter;     /* of the weights and of their gradient */
    bool            has_bias, has_relu; /* forward */
    bool            accumulate;         /* backward: the result is added to what is there */
} ddp_cudnn_conv_t;

/** Numbers of the tensors of a convolution. X and W are the gradients where those are the result. */
enum { DDP_CUDNN_X = 1, DDP_CUDNN_W, DDP_CUDNN_OUT, DDP_CUDNN_BIAS };

/** In float32, with nothing besides the product. */
ddp_cudnn_conv_t ddp_cudnn_conv_of(const ddp_conv2d_shape_t *shape);
ddp_cudnn_key_t  ddp_cudnn_conv_key(ddp_cudnn_kind_t kind, const ddp_cudnn_conv_t *conv);
/** A build function for all three kinds. */
void ddp_cudnn_conv_graph(ddp_cudnn_graph_t *graph, const ddp_cudnn_key_t *key);

#ifdef __cplusplus
}
#endif

#endif
