#include "kernels/cuda/gemm_lt.h"

#include "kernels/cuda/gemm.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/rounded.h"
#include "kernels/cuda/scratch.h"

#define ALIGNMENT 256 /* of what is in the scratch */
#define WIDEST    16  /* bytes that a kernel reads at a time: more alignment than this changes nothing */
#define PACK      8   /* 16-bit numbers of as many bytes */

/* An operand of ddp_op_gemm() as it is stored, and as the library gets it. */
typedef struct operand {
    const float *x;
    size_t       rows, columns, ld;
    bool         is_converted;
    size_t       offset; /* in the scratch, if it is converted */
    const void  *data;
    size_t       pitch; /* elements from row to row of `data` */
} operand_t;

typedef struct call {
    ddp_cuda_plan_key_t key;
    operand_t           a, b; /* ours: the library's are the other way round */
    size_t              scratch_bytes;
    float               beta;
    const float        *c, *bias;
    float              *aux;
} call_t;

static size_t up(size_t count, size_t to)
{
    return (count + to - 1) / to * to;
}

static uint64_t alignment_of(const void *memory)
{
    const uintptr_t address = (uintptr_t)memory;
    const uintptr_t lowest  = address & (~address + 1);

    return memory == NULL || lowest > WIDEST ? WIDEST : lowest;
}

static bool is_converted(const ddp_gemm_args_t *args)
{
    return args->precision == DDP_PRECISION_BF16 || args->precision == DDP_PRECISION_FP16;
}

static cudaDataType type_of(ddp_precision_t precision)
{
    return precision == DDP_PRECISION_BF16   ? CUDA_R_16BF
           : precision == DDP_PRECISION_FP16 ? CUDA_R_16F
                                             : CUDA_R_32F;
}

/* CUBLAS_COMPUTE_32F multiplies float32 as such, and 16-bit numbers exactly; it adds up in float32. */
static cublasComputeType_t compute_of(ddp_precision_t precision)
{
    return precision == DDP_PRECISION_TF32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

/* Where the operand will be: in its own memory, where it lies rounded, or in the scratch, whose address is
 * not known yet. `stream` NULL: nothing lies rounded. */
static void place(const ddp_stream_t *stream, const ddp_gemm_args_t *args, operand_t *operand, size_t *bytes)
{
    const uint16_t *rounded = NULL;

    operand->data  = operand->x;
    operand->pitch = operand->ld;
    if (!is_converted(args)) {
        return;
    }
    operand->pitch = up(operand->columns, PACK);
    if (stream != NULL) {
        rounded = ddp_cuda_rounded_find(stream, args->precision, operand->x, operand->rows, operand->columns,
                                        operand->ld);
    }
    if (rounded != NULL) {
        operand->data = rounded;
        return;
    }
    operand->is_converted = true;
    operand->offset       = *bytes;
    *bytes += up(operand->rows * operand->pitch * sizeof(uint16_t), ALIGNMENT);
}

static void place_operands(const ddp_stream_t *stream, const ddp_gemm_args_t *args, call_t *call)
{
    const bool ta = args->transpose_a;
    const bool tb = args->transpose_b;

    call->a = (operand_t){
        .x = args->a, .rows = ta ? args->k : args->m, .columns = ta ? args->m : args->k, .ld = args->lda};
    call->b = (operand_t){
        .x = args->b, .rows = tb ? args->n : args->k, .columns = tb ? args->k : args->n, .ld = args->ldb};
    call->scratch_bytes = 0;
    place(stream, args, &call->a, &call->scratch_bytes);
    place(stream, args, &call->b, &call->scratch_bytes);
}

size_t ddp_cuda_gemm_scratch(const ddp_gemm_args_t *args)
{
    call_t call = {.scratch_bytes = 0};

    place_operands(NULL, args, &call);
    return call.scratch_bytes + DDP_CUDA_GEMM_WORKSPACE;
}

/* Whether an epilogue of the library is the rest of the operation; if so, it goes to the call. */
static bool fuse(const ddp_gemm_args_t *args, call_t *call)
{
    const bool has_aux  = args->pre_activation != NULL;
    uint32_t   epilogue = args->bias != NULL ? CUBLASLT_EPILOGUE_BIAS : 0;

    if ((args->add != NULL && args->beta != 0.0F) || (has_aux && args->act != DDP_ACT_GELU_TANH)) {
        return false;
    }
    switch (args->act) {
    case DDP_ACT_NONE:
        break;
    case DDP_ACT_RELU:
        epilogue |= CUBLASLT_EPILOGUE_RELU;
        break;
    case DDP_ACT_GELU_TANH:
        if (args->precision == DDP_PRECISION_FLOAT32 || (has_aux && args->ldc % PACK != 0)) {
            return false;
        }
        epilogue |= has_aux ? CUBLASLT_EPILOGUE_GELU_AUX : CUBLASLT_EPILOGUE_GELU;
        break;
    case DDP_ACT_GELU:
        return false;
    }
    call->key.words[DDP_PLAN_EPILOGUE] = epilogue != 0 ? epilogue : CUBLASLT_EPILOGUE_DEFAULT;
    call->bias                         = args->bias;
    call->aux                          = args->pre_activation;
    call->beta                         = args->add != NULL ? 1.0F : args->beta;
    call->c                            = args->add != NULL ? args->add : args->c;
    return true;
}

/* alpha op(A) op(B) + beta C, and nothing else */
static void do_not_fuse(const ddp_gemm_args_t *args, call_t *call)
{
    call->key.words[DDP_PLAN_EPILOGUE] = CUBLASLT_EPILOGUE_DEFAULT;
    call->bias                         = NULL;
    call->aux                          = NULL;
    call->beta                         = args->beta;
    call->c                            = args->c;
}

static void fill_key(const ddp_gemm_args_t *args, call_t *call)
{
    uint64_t  *words     = call->key.words;
    const bool converted = is_converted(args);

    words[DDP_PLAN_ROWS]        = args->n;
    words[DDP_PLAN_COLUMNS]     = args->m;
    words[DDP_PLAN_DEPTH]       = args->k;
    words[DDP_PLAN_LDA]         = call->b.pitch;
    words[DDP_PLAN_LDB]         = call->a.pitch;
    words[DDP_PLAN_LDC]         = args->ldc;
    words[DDP_PLAN_TRANSPOSE_A] = args->transpose_b;
    words[DDP_PLAN_TRANSPOSE_B] = args->transpose_a;
    words[DDP_PLAN_TYPE]        = (uint64_t)type_of(args->precision);
    words[DDP_PLAN_COMPUTE]     = (uint64_t)compute_of(args->precision);
    words[DDP_PLAN_ALIGN_A]     = converted ? WIDEST : alignment_of(args->b);
    words[DDP_PLAN_ALIGN_B]     = converted ? WIDEST : alignment_of(args->a);
    words[DDP_PLAN_ALIGN_C]     = alignment_of(call->c);
    words[DDP_PLAN_ALIGN_D]     = alignment_of(args->c);
    words[DDP_PLAN_ALIGN_BIAS]  = alignment_of(call->bias);
    words[DDP_PLAN_ALIGN_AUX]   = alignment_of(call->aux);
}

/* A plan with the epilogue, else one without; *plan_p NULL: neither. */
static ddp_status_t choose(ddp_cuda_plans_t *plans, const ddp_gemm_args_t *args, call_t *call,
                           bool *is_fused_p, const ddp_cuda_plan_t **plan_p)
{
    ddp_status_t           status = DDP_OK;
    const ddp_cuda_plan_t *plan   = NULL;

    *plan_p     = NULL;
    *is_fused_p = fuse(args, call);
    if (*is_fused_p) {
        fill_key(args, call);
        DDP_TRY(ddp_cuda_plan_get(plans, &call->key, call->bias, call->aux, &plan));
        *is_fused_p = plan->is_usable;
    }
    if (!*is_fused_p) {
        do_not_fuse(args, call);
        fill_key(args, call);
        DDP_TRY(ddp_cuda_plan_get(plans, &call->key, NULL, NULL, &plan));
    }
    *plan_p = plan->is_usable ? plan : NULL;
out:
    return status;
}

static ddp_status_t convert(ddp_stream_t *stream, ddp_precision_t precision, unsigned char *scratch,
                            operand_t *operand)
{
    const ddp_cuda_cast_args_t cast = {.precision = precision,
                                       .x         = operand->x,
                                       .rows      = operand->rows,
                                       .columns   = operand->columns,
                                       .ld        = operand->ld,
                                       .y         = (uint16_t *)(void *)(scratch + operand->offset),
                                       .pitch     = operand->pitch};

    if (!operand->is_converted) {
        return DDP_OK;
    }
    operand->data = cast.y;
    return ddp_cuda_cast(stream, &cast);
}

static ddp_status_t multiply(const ddp_cuda_plans_t *plans, const ddp_cuda_plan_t *plan, ddp_stream_t *stream,
                             const ddp_gemm_args_t *args, call_t *call)
{
    ddp_status_t status    = DDP_OK;
    void        *scratch   = NULL;
    void        *workspace = NULL;

    DDP_TRY(ddp_cuda_scratch(stream, DDP_CUDA_SCRATCH_PRODUCT, call->scratch_bytes + plan->workspace_bytes,
                             &scratch));
    DDP_TRY(convert(stream, args->precision, scratch, &call->a));
    DDP_TRY(convert(stream, args->precision, scratch, &call->b));
    if (plan->workspace_bytes > 0) {
        workspace = (unsigned char *)scratch + call->scratch_bytes;
    }
    DDP_TRY(ddp_cuda_plan_set(plans, plan->product, call->bias, call->aux));
    DDP_TRY(
        ddp_cuda_lt_status(plans,
                           plans->table.matmul(plans->handle, plan->product, &args->alpha, call->b.data,
                                               plan->a_layout, call->a.data, plan->b_layout, &call->beta,
                                               call->c, plan->c_layout, args->c, plan->c_layout, &plan->algo,
                                               workspace, plan->workspace_bytes, ddp_cuda_stream(stream)),
                           "cublasLtMatmul"));
out:
    return status;
}

ddp_status_t ddp_cuda_gemm_lt(ddp_cuda_plans_t *plans, ddp_stream_t *stream, const ddp_gemm_args_t *args,
                              bool *is_done_p)
{
    ddp_status_t           status = DDP_OK;
    const ddp_cuda_plan_t *plan   = NULL;
    call_t                 call;
    ddp_gemm_args_t        rest     = *args;
    bool                   is_fused = false;
    const bool             has_rest =
        args->bias != NULL || args->add != NULL || args->act != DDP_ACT_NONE || args->pre_activation != NULL;

    place_operands(stream, args, &call);
    DDP_TRY(choose(plans, args, &call, &is_fused, &plan));
    *is_done_p = plan != NULL;
    if (plan == NULL) {
        return DDP_OK;
    }
    DDP_TRY(multiply(plans, plan, stream, args, &call));
    if (!is_fused && has_rest) {
        rest.beta = 1.0F;
        DDP_TRY(ddp_cuda_gemm_finish(stream, &rest));
    }
out:
    return status;
}
