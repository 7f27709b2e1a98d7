/** @file How an operation goes into a stream of the cpu device: its kernel and its arguments, copied.
 * Private. */
#ifndef DDP_OPS_SUBMIT_INTERNAL_H_
#define DDP_OPS_SUBMIT_INTERNAL_H_

#include "base/error.h"
#include "kernels/cpu/table.h"
#include "kernels/device.h"

static inline const ddp_cpu_kernels_t *ddp_kernels_of(ddp_stream_t *stream)
{
    return ddp_cpu_kernels(ddp_device_isa(ddp_stream_device(stream)));
}

/* What lies in a stream for an operation whose kernel takes its argument struct. */
#define DDP_OP_WORK(op, args_t)                                                                              \
    typedef struct op##_work {                                                                               \
        ddp_status_t (*kernel)(const args_t *args);                                                          \
        args_t args;                                                                                         \
    } op##_work_t;

/* DDP_SUBMIT_OP(gemm, ddp_gemm_args_t) defines submit_gemm(stream, args). */
#define DDP_SUBMIT_OP(op, args_t)                                                                            \
    DDP_OP_WORK(op, args_t)                                                                                  \
    _Static_assert(sizeof(op##_work_t) <= DDP_WORK_ARGS_BYTES, "work of a stream is copied");                \
    static ddp_status_t op##_run(void *work)                                                                 \
    {                                                                                                        \
        const op##_work_t *w = work;                                                                         \
        return w->kernel(&w->args);                                                                          \
    }                                                                                                        \
    static ddp_status_t submit_##op(ddp_stream_t *stream, const args_t *args)                                \
    {                                                                                                        \
        const op##_work_t work = {ddp_kernels_of(stream)->op, *args};                                        \
        return ddp_stream_submit(stream, #op, op##_run, &work, sizeof(work));                                \
    }

/* The same for a kernel with products, whose precision is in args.field. */
#define DDP_SUBMIT_PRODUCT(op, args_t, field)                                                                \
    DDP_SUBMIT_OP(op, args_t)                                                                                \
    static ddp_status_t submit_##op##_product(ddp_stream_t *stream, const args_t *args)                      \
    {                                                                                                        \
        args_t own = *args;                                                                                  \
                                                                                                             \
        if (own.field == DDP_PRECISION_TF32 || own.field == DDP_PRECISION_FP16) {                            \
            return ddp_fail(DDP_ERR_UNSUPPORTED, #op ": the cpu multiplies in float32 or bf16 only");        \
        }                                                                                                    \
        if (own.field == DDP_PRECISION_BF16 && !ddp_device_has_bf16(ddp_stream_device(stream))) {            \
            own.field = DDP_PRECISION_BF16_EMULATED;                                                         \
        }                                                                                                    \
        return submit_##op(stream, &own);                                                                    \
    }

/* The four that take no struct share one. */
typedef struct ddp_vector_work {
    const ddp_cpu_kernels_t *kernels;
    const float             *x;
    float                   *y;
    double                  *sum_p;
    size_t                   count;
    float                    value;
} ddp_vector_work_t;

#endif
