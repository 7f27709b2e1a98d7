/*
 * Convolution by cuDNN, with float32 images and weights. bfloat16 and float16: inputs are rounded to them and
 * stay in float32, and engines with tf32 multiply: its 10 bits of fraction hold both exactly, so products and
 * sums are as they would be from 16-bit inputs, and results are float32 (cuDNN has no engine for gradients of
 * 16-bit inputs in float32). A pass reads 4 bytes and writes 4 for each number that is rounded.
 */
#include "kernels/cuda/cudnn_cast.h"
#include "kernels/cuda/cudnn_internal.h"
#include "kernels/cuda/gemm.h"

/* Engines that transform: other last bits, and with rounded inputs or tf32 worse ones. */
#define TRANSFORMS                                                                                           \
    (DDP_CUDNN_NOTE(FFT) | DDP_CUDNN_NOTE(WINOGRAD) | DDP_CUDNN_NOTE(WINOGRAD_TILE_4x4) |                    \
     DDP_CUDNN_NOTE(WINOGRAD_TILE_6x6) | DDP_CUDNN_NOTE(WINOGRAD_TILE_13x13))

typedef enum part {
    FORWARD,
    FORWARD_BIAS,
    FORWARD_BIAS_RELU,
    DATA,
    DATA_ADD,
    FILTER,
    FILTER_ADD,
    PARTS
} part_t;

/* One convolution and the plans of all that can be asked of it. */
typedef struct job {
    ddp_cudnn_t            *cudnn;
    ddp_precision_t         precision;
    size_t                  x, w, y; /* elements */
    size_t                  rows;    /* of y, of out_c each */
    size_t                  out_c;
    const ddp_cudnn_plan_t *plans[PARTS]; /* NULL: bias and activation are not fused */
} job_t;

/* Notes of engines that do not compute what is asked for. */
static unsigned refused_by(const ddp_conv2d_shape_t *shape, bool is_exact)
{
    unsigned refused = DDP_CUDNN_NOTE(DOWN_CONVERT_INPUTS) | DDP_CUDNN_NOTE(REDUCED_PRECISION_REDUCTION);

    if (shape->precision == DDP_PRECISION_FLOAT32) {
        refused |= DDP_CUDNN_NOTE(TENSOR_CORE);
    }
    if (shape->precision != DDP_PRECISION_FLOAT32 || shape->algo == DDP_CONV_DIRECT) {
        refused |= TRANSFORMS;
    }
    return is_exact ? refused | DDP_CUDNN_NOTE(NONDETERMINISTIC) : refused;
}

/* Find the plans. DDP_ERR_UNSUPPORTED: cuDNN does not take it. */
static ddp_status_t open_job(const ddp_device_t *device, const ddp_conv2d_shape_t *s, job_t *job)
{
    static const ddp_cudnn_kind_t kinds[PARTS] = {
        [FORWARD] = DDP_CUDNN_CONV,           [FORWARD_BIAS] = DDP_CUDNN_CONV,
        [FORWARD_BIAS_RELU] = DDP_CUDNN_CONV, [DATA] = DDP_CUDNN_CONV_DATA,
        [DATA_ADD] = DDP_CUDNN_CONV_DATA,     [FILTER] = DDP_CUDNN_CONV_FILTER,
        [FILTER_ADD] = DDP_CUDNN_CONV_FILTER,
    };
    ddp_status_t     status = DDP_OK;
    ddp_cudnn_conv_t conv   = ddp_cudnn_conv_of(s);

    *job = (job_t){.precision = s->precision,
                   .x         = s->n * s->in_h * s->in_w * s->in_c,
                   .w         = s->out_c * s->in_c * s->kernel_h * s->kernel_w,
                   .y         = s->n * s->out_h * s->out_w * s->out_c,
                   .rows      = s->n * s->out_h * s->out_w,
                   .out_c     = s->out_c};
    DDP_REQUIRE(job->x > 0 && job->w > 0 && job->y > 0, DDP_ERR_UNSUPPORTED, "conv2d: nothing to compute");
    DDP_TRY(ddp_cudnn_of(device, &job->cudnn));
    for (part_t part = FORWARD; part < PARTS; part++) {
        ddp_cudnn_key_t key;

        conv.has_bias   = part == FORWARD_BIAS || part == FORWARD_BIAS_RELU;
        conv.has_relu   = part == FORWARD_BIAS_RELU;
        conv.accumulate = part == DATA_ADD || part == FILTER_ADD;
        key             = ddp_cudnn_conv_key(kinds[part], &conv);
        status          = ddp_cudnn_cache_get(job->cudnn->cache, &key, ddp_cudnn_conv_graph,
                                              refused_by(s, job->cudnn->is_exact), &job->plans[part]);
        if (status == DDP_ERR_UNSUPPORTED && conv.has_bias) {
            status = DDP_OK;
        }
        DDP_TRY(status);
    }
out:
    return status;
}

bool ddp_cudnn_takes_conv2d(const ddp_device_t *device, const ddp_conv2d_shape_t *shape)
{
    job_t job;

    return open_job(device, shape, &job) == DDP_OK;
}

static bool is_rounded(const job_t *job)
{
    return ddp_cudnn_type(job->precision) != CUDNN_DATA_FLOAT;
}

/* What lies in scratch: rounded inputs, and cuDNN's workspace. */
typedef struct memory {
    float *x, *w, *y;
    void  *workspace;
} memory_t;

/* Both passes have all of it: scratch is one size. */
static void lay_out(const job_t *job, ddp_cudnn_pieces_t *pieces, memory_t *m)
{
    size_t workspace = 0;

    for (int part = 0; part < PARTS; part++) {
        if (job->plans[part] != NULL && job->plans[part]->workspace_bytes > workspace) {
            workspace = job->plans[part]->workspace_bytes;
        }
    }
    m->x         = ddp_cudnn_piece(pieces, is_rounded(job) ? job->x * sizeof(float) : 0);
    m->w         = ddp_cudnn_piece(pieces, is_rounded(job) ? job->w * sizeof(float) : 0);
    m->y         = ddp_cudnn_piece(pieces, is_rounded(job) ? job->y * sizeof(float) : 0);
    m->workspace = ddp_cudnn_piece(pieces, workspace);
}

size_t ddp_cudnn_conv2d_scratch_bytes(const ddp_device_t *device, const ddp_conv2d_shape_t *shape)
{
    ddp_cudnn_pieces_t pieces = {NULL, 0};
    memory_t           memory;
    job_t              job;

    if (open_job(device, shape, &job) != DDP_OK) {
        return 0;
    }
    lay_out(&job, &pieces, &memory);
    return pieces.bytes;
}

/* An input as the plan reads it: itself, or rounded in scratch. */
static ddp_status_t input(ddp_stream_t *stream, const job_t *job, const float *x, size_t count,
                          float *rounded, const float **input_p)
{
    if (rounded == NULL) {
        *input_p = x;
        return DDP_OK;
    }
    *input_p = rounded;
    return ddp_cudnn_round(stream, job->precision, x, count, rounded);
}

static ddp_status_t run(ddp_stream_t *stream, const job_t *job, part_t part, const float *x, const float *w,
                        const float *y, const float *bias, const memory_t *m)
{
    ddp_cudnn_pointers_t pointers = {.count = 0};

    ddp_cudnn_point(&pointers, DDP_CUDNN_X, x);
    ddp_cudnn_point(&pointers, DDP_CUDNN_W, w);
    ddp_cudnn_point(&pointers, DDP_CUDNN_OUT, y);
    if (part == FORWARD_BIAS || part == FORWARD_BIAS_RELU) {
        ddp_cudnn_point(&pointers, DDP_CUDNN_BIAS, bias);
    }
    return ddp_cudnn_plan_execute(&job->cudnn->target, job->plans[part], &pointers, m->workspace,
                                  ddp_cuda_stream(stream));
}

/* y = act(y + bias), where no plan does it. */
static ddp_status_t finish(ddp_stream_t *stream, const job_t *job, const ddp_conv2d_args_t *args)
{
    const ddp_gemm_args_t rest = {.m    = job->rows,
                                  .n    = job->out_c,
                                  .beta = 1.0F,
                                  .c    = args->y,
                                  .ldc  = job->out_c,
                                  .bias = args->bias,
                                  .act  = args->act};

    return ddp_cuda_gemm_finish(stream, &rest);
}

ddp_status_t ddp_cudnn_conv2d(ddp_stream_t *stream, const ddp_conv2d_args_t *args)
{
    ddp_status_t       status   = DDP_OK;
    const bool         has_act  = args->act != DDP_ACT_NONE;
    const part_t       fused    = has_act ? FORWARD_BIAS_RELU : FORWARD_BIAS;
    ddp_cudnn_pieces_t pieces   = {args->scratch, 0};
    const float       *x        = NULL;
    const float       *w        = NULL;
    bool               is_fused = false;
    memory_t           memory;
    job_t              job;

    DDP_TRY(open_job(ddp_stream_device(stream), &args->shape, &job));
    DDP_REQUIRE(ddp_cudnn_is_aligned(args->x) && ddp_cudnn_is_aligned(args->w) &&
                    ddp_cudnn_is_aligned(args->y) && ddp_cudnn_is_aligned(args->bias) &&
                    ddp_cudnn_is_aligned(args->scratch),
                DDP_ERR_UNSUPPORTED, "conv2d: memory is not aligned for cuDNN");
    lay_out(&job, &pieces, &memory);
    is_fused = args->bias != NULL && job.plans[fused] != NULL;
    DDP_TRY(input(stream, &job, args->x, job.x, memory.x, &x));
    DDP_TRY(input(stream, &job, args->w, job.w, memory.w, &w));
    DDP_TRY(run(stream, &job, is_fused ? fused : FORWARD, x, w, args->y, args->bias, &memory));
    if (!is_fused && (args->bias != NULL || has_act)) {
        DDP_TRY(finish(stream, &job, args));
    }
out:
    return status;
}

ddp_status_t ddp_cudnn_conv2d_backward(ddp_stream_t *stream, const ddp_conv2d_backward_args_t *args)
{
    ddp_status_t       status = DDP_OK;
    ddp_cudnn_pieces_t pieces = {args->scratch, 0};
    const float       *x      = NULL;
    const float       *w      = NULL;
    const float       *dy     = NULL;
    memory_t           memory;
    job_t              job;

    DDP_TRY(open_job(ddp_stream_device(stream), &args->shape, &job));
    DDP_REQUIRE(ddp_cudnn_is_aligned(args->x) && ddp_cudnn_is_aligned(args->w) &&
                    ddp_cudnn_is_aligned(args->dy) && ddp_cudnn_is_aligned(args->dx) &&
                    ddp_cudnn_is_aligned(args->dw) && ddp_cudnn_is_aligned(args->scratch),
                DDP_ERR_UNSUPPORTED, "conv2d backward: memory is not aligned for cuDNN");
    lay_out(&job, &pieces, &memory);
    if (args->dx != NULL || args->dw != NULL) {
        DDP_TRY(input(stream, &job, args->dy, job.y, memory.y, &dy));
    }
    if (args->dx != NULL) {
        DDP_TRY(input(stream, &job, args->w, job.w, memory.w, &w));
        DDP_TRY(run(stream, &job, args->accumulate_dx ? DATA_ADD : DATA, args->dx, w, dy, NULL, &memory));
    }
    if (args->dw != NULL) {
        DDP_TRY(input(stream, &job, args->x, job.x, memory.x, &x));
        DDP_TRY(run(stream, &job, args->accumulate_dw ? FILTER_ADD : FILTER, x, args->dw, dy, NULL, &memory));
    }
out:
    return status;
}
