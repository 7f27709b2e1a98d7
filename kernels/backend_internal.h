/**
 * @file What a kind of device does in its own way: memory, streams, events, copies and operations. The
 * functions of kernels/device.h and kernels/ops*.h check their arguments once and call these. Private.
 */
#ifndef DDP_BACKEND_INTERNAL_H_
#define DDP_BACKEND_INTERNAL_H_

#include "kernels/device.h"
#include "kernels/ops.h"
#include "kernels/ops_norm.h"
#include "kernels/ops_seq.h"

/* X(name, args_t): every operation that takes a struct of arguments. */
#define DDP_OP_LIST(X)                                                                                       \
    X(gemm, ddp_gemm_args_t)                                                                                 \
    X(bias_grad, ddp_bias_grad_args_t)                                                                       \
    X(act, ddp_act_args_t)                                                                                   \
    X(act_backward, ddp_act_backward_args_t)                                                                 \
    X(conv2d, ddp_conv2d_args_t)                                                                             \
    X(conv2d_backward, ddp_conv2d_backward_args_t)                                                           \
    X(pool2d, ddp_pool2d_args_t)                                                                             \
    X(pool2d_backward, ddp_pool2d_backward_args_t)                                                           \
    X(nhwc_to_nchw, ddp_permute_args_t)                                                                      \
    X(cross_entropy, ddp_cross_entropy_args_t)                                                               \
    X(mse, ddp_mse_args_t)                                                                                   \
    X(dropout, ddp_dropout_args_t)                                                                           \
    X(uniform, ddp_uniform_args_t)                                                                           \
    X(normal, ddp_normal_args_t)                                                                             \
    X(embedding, ddp_embedding_args_t)                                                                       \
    X(embedding_backward, ddp_embedding_backward_args_t)                                                     \
    X(layer_norm, ddp_layer_norm_args_t)                                                                     \
    X(layer_norm_backward, ddp_layer_norm_backward_args_t)                                                   \
    X(attention, ddp_attention_args_t)                                                                       \
    X(attention_backward, ddp_attention_backward_args_t)                                                     \
    X(attention_cached, ddp_attention_cached_args_t)                                                         \
    X(attention_keep, ddp_attention_cached_args_t)                                                           \
    X(head_cross_entropy, ddp_head_cross_entropy_args_t)                                                     \
    X(head_logits, ddp_head_logits_args_t)                                                                   \
    X(head_backward, ddp_head_backward_args_t)                                                               \
    X(batch_norm, ddp_batch_norm_args_t)                                                                     \
    X(batch_norm_backward, ddp_batch_norm_backward_args_t)                                                   \
    X(global_avg_pool, ddp_global_avg_pool_args_t)                                                           \
    X(global_avg_pool_backward, ddp_global_avg_pool_backward_args_t)

/** Numbers of the operations: DDP_OP_ID_gemm ... */
typedef enum ddp_op_id {
#define DDP_OP_NUMBER(op, args_t) DDP_OP_ID_##op,
    DDP_OP_LIST(DDP_OP_NUMBER)
#undef DDP_OP_NUMBER
        DDP_OP_IDS
} ddp_op_id_t;

/** Arguments are copied before a function returns; they were checked. */
typedef struct ddp_op_table {
#define DDP_OP_MEMBER(op, args_t) ddp_status_t (*op)(ddp_stream_t * stream, const args_t *args);
    DDP_OP_LIST(DDP_OP_MEMBER)
#undef DDP_OP_MEMBER
    ddp_status_t (*fill)(ddp_stream_t *stream, float *y, size_t count, float value);
    ddp_status_t (*axpy)(ddp_stream_t *stream, float alpha, const float *x, float *y, size_t count);
    ddp_status_t (*scale)(ddp_stream_t *stream, float alpha, float *y, size_t count);
    ddp_status_t (*sumsq)(ddp_stream_t *stream, const float *x, size_t count, double *sum_p);
    size_t (*conv2d_scratch_bytes)(const ddp_device_t *device, const ddp_conv2d_shape_t *shape);
    /** What operation `id` takes of its stream's scratch; `args` as the operation's. NULL: nothing that is
     * reserved. */
    ddp_scratch_t (*op_scratch)(const ddp_device_t *device, ddp_op_id_t id, const void *args);
    size_t (*kernel_scratch_bytes)(const ddp_device_t *device, size_t vocab);
} ddp_op_table_t;

/**
 * Structs were allocated and have their common members when an `open` is called; what it opened itself is
 * closed by `close`, which is called for whatever was opened in full. A dry device is opened too, and then
 * nothing else of it but its scratch sizes is asked for.
 */
typedef struct ddp_backend {
    const char           *name; /* "cpu", "cuda" */
    const ddp_op_table_t *ops;
    bool                  is_host_memory;

    ddp_status_t (*device_open)(ddp_device_t *device, const ddp_device_params_t *params);
    void (*device_close)(ddp_device_t *device);
    /** As the functions of ddp_allocator_t, `ctx` being the device. */
    ddp_status_t (*acquire)(ddp_device_t *device, const char *label, size_t bytes, void **memory_p);
    void (*release)(ddp_device_t *device, void *memory);
    ddp_allocator_t (*host_allocator)(ddp_device_t *device);
    /** NULL, both: all host memory is alike. */
    ddp_status_t (*pin)(ddp_device_t *device, void *memory, size_t bytes);
    void (*unpin)(ddp_device_t *device, void *memory);
    void (*progress)(ddp_device_t *device);
    /** See ddp_device_meet(). NULL: nothing to do. */
    void (*meet)(const ddp_device_t *device, const ddp_device_t *other);
    /** See ddp_device_choices(). NULL: none. */
    size_t (*choices)(const ddp_device_t *device, ddp_choice_t *choices, size_t capacity);
    /** Before each operation: DDP_OK, or why it cannot run; NULL: nothing to do. */
    ddp_status_t (*enter)(const ddp_stream_t *stream);

    /** As the functions of kernels/rounded.h, for 16-bit precisions. NULL, all: nothing is kept rounded. */
    ddp_status_t (*rounded_open)(ddp_device_t *device, const float *values, size_t count,
                                 ddp_precision_t precision);
    void (*rounded_close)(ddp_device_t *device);
    ddp_status_t (*rounded_take)(ddp_stream_t *stream);
    void (*rounded_drop)(ddp_device_t *device);

    ddp_status_t (*stream_open)(ddp_stream_t *stream, bool is_urgent);
    /** See ddp_stream_reserve(). NULL: nothing to do. */
    ddp_status_t (*stream_reserve)(ddp_stream_t *stream, const ddp_scratch_t *scratch);
    /** See ddp_stream_use_graphs(). NULL, both: operations run one by one. */
    ddp_status_t (*stream_use_graphs)(ddp_stream_t *stream);
    const ddp_graphs_report_t *(*stream_graphs)(const ddp_stream_t *stream); /* NULL: not in use */
    void (*stream_close)(ddp_stream_t *stream);
    ddp_status_t (*submit)(ddp_stream_t *stream, const char *name, ddp_work_fn_t *fn, const void *args,
                           size_t args_bytes);
    ddp_status_t (*stream_synchronize)(ddp_stream_t *stream, int timeout_ms);
    ddp_status_t (*copy)(ddp_stream_t *stream, void *to, const void *from, size_t bytes);

    ddp_status_t (*event_open)(ddp_event_t *event);
    void (*event_close)(ddp_event_t *event);
    ddp_status_t (*event_record)(ddp_event_t *event, ddp_stream_t *stream);
    ddp_status_t (*wait_event)(ddp_stream_t *stream, ddp_event_t *event);
    ddp_status_t (*event_synchronize)(ddp_event_t *event, int timeout_ms);
    ddp_status_t (*event_elapsed)(const ddp_event_t *from, const ddp_event_t *to, int64_t *ns_p);
} ddp_backend_t;

const ddp_backend_t *ddp_cpu_backend(void);
/** @return DDP_ERR_UNSUPPORTED: this build has no CUDA */
ddp_status_t ddp_cuda_backend(const ddp_backend_t **backend_p) DDP_NODISCARD;

#endif
