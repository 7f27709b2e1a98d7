/* The table of operations. On a stream that makes graphs of its work they are kept back, all others run at
 * once. */
#include "kernels/cuda/ops.h"

#include <string.h>

#include "kernels/cuda/cudnn.h"
#include "kernels/cuda/graphs.h"

/* What lies between members is compared too. Where the compiler cannot clear it, operations may look new that
 * are not: that costs speed only. */
#if defined(__has_builtin)
#if __has_builtin(__builtin_clear_padding)
#define CLEAR_PADDING(args) __builtin_clear_padding(args)
#endif
#endif
#ifndef CLEAR_PADDING
#define CLEAR_PADDING(args) ((void)(args))
#endif

/* run_gemm(): with arguments that were kept; put_gemm(): now or later. */
#define DDP_CUDA_PUT(op, args_t)                                                                             \
    _Static_assert(sizeof(args_t) <= DDP_WORK_ARGS_BYTES, "arguments are copied");                           \
    static ddp_status_t run_##op(ddp_stream_t *stream, const void *args)                                     \
    {                                                                                                        \
        return ddp_cuda_##op(stream, args);                                                                  \
    }                                                                                                        \
    static ddp_status_t put_##op(ddp_stream_t *stream, const args_t *args)                                   \
    {                                                                                                        \
        args_t own = *args;                                                                                  \
                                                                                                             \
        if (!ddp_cuda_graphs_keeps(stream)) {                                                                \
            return ddp_cuda_##op(stream, args);                                                              \
        }                                                                                                    \
        CLEAR_PADDING(&own);                                                                                 \
        return ddp_cuda_graphs_keep(stream, run_##op, &own, sizeof(own));                                    \
    }
DDP_OP_LIST(DDP_CUDA_PUT)
#undef DDP_CUDA_PUT

/* Of those that take no struct. */
typedef struct vector_args {
    const float *x;
    float       *y;
    size_t       count;
    float        value;
} vector_args_t;

static ddp_status_t put_vector(ddp_stream_t *stream, ddp_cuda_run_fn_t *run, vector_args_t args)
{
    if (!ddp_cuda_graphs_keeps(stream)) {
        return run(stream, &args);
    }
    CLEAR_PADDING(&args);
    return ddp_cuda_graphs_keep(stream, run, &args, sizeof(args));
}

static ddp_status_t run_fill(ddp_stream_t *stream, const void *args)
{
    const vector_args_t *a = args;

    return ddp_cuda_fill(stream, a->y, a->count, a->value);
}

static ddp_status_t put_fill(ddp_stream_t *stream, float *y, size_t count, float value)
{
    return put_vector(stream, run_fill, (vector_args_t){.y = y, .count = count, .value = value});
}

static ddp_status_t run_axpy(ddp_stream_t *stream, const void *args)
{
    const vector_args_t *a = args;

    return ddp_cuda_axpy(stream, a->value, a->x, a->y, a->count);
}

static ddp_status_t put_axpy(ddp_stream_t *stream, float alpha, const float *x, float *y, size_t count)
{
    return put_vector(stream, run_axpy, (vector_args_t){.x = x, .y = y, .count = count, .value = alpha});
}

static ddp_status_t run_scale(ddp_stream_t *stream, const void *args)
{
    const vector_args_t *a = args;

    return ddp_cuda_scale(stream, a->value, a->y, a->count);
}

static ddp_status_t put_scale(ddp_stream_t *stream, float alpha, float *y, size_t count)
{
    return put_vector(stream, run_scale, (vector_args_t){.y = y, .count = count, .value = alpha});
}

const ddp_op_table_t ddp_cuda_ops = {
#define DDP_CUDA_ENTRY(op, args_t) .op = put_##op,
    DDP_OP_LIST(DDP_CUDA_ENTRY)
#undef DDP_CUDA_ENTRY
        .fill             = put_fill,
    .axpy                 = put_axpy,
    .scale                = put_scale,
    .sumsq                = ddp_cuda_sumsq,
    .conv2d_scratch_bytes = ddp_cuda_conv2d_scratch_bytes,
    .op_scratch           = ddp_cuda_op_scratch,
    .kernel_scratch_bytes = ddp_cuda_kernel_scratch_bytes,
};
