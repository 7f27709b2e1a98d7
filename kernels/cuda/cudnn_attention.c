/*
 * Attention by cuDNN. Activations are float32, its graphs take 16-bit numbers: qkv, y and dy are rounded into
 * scratch before, y and dqkv come back as floats. For each element of a row of `channels` that is, forward,
 * 12 bytes read and 6 written for qkv, 2 read and 4 written for y, beside the 8 that the graph itself moves;
 * backward 20 + 10 and 6 + 12 beside its 22 or so. Whoever has activations of 16 bits calls run_forward() and
 * run_backward() with them.
 */
#include <math.h>

#include "kernels/cuda/cudnn_cast.h"
#include "kernels/cuda/cudnn_internal.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/scratch.h"

static const float not_seen = -INFINITY;
static const float one      = 1.0F;

/* One attention, the plans for it, and how its sequences are dealt. */
typedef struct job {
    ddp_cudnn_t            *cudnn;
    ddp_cudnn_attention_t   shape; /* of all sequences */
    ddp_precision_t         precision;
    size_t                  length, heads, channels;
    size_t                  turn;        /* sequences of a turn of backward; the last may have fewer */
    const ddp_cudnn_plan_t *forward;     /* all sequences at once */
    const ddp_cudnn_plan_t *backward[2]; /* of a turn, and of the last one */
} job_t;

static ddp_status_t plan_backward(const job_t *job, size_t sequences, const ddp_cudnn_plan_t **plan_p)
{
    ddp_cudnn_attention_t shape = job->shape;
    ddp_cudnn_key_t       key;

    shape.sequences = (int64_t)sequences;
    key             = ddp_cudnn_attention_key(DDP_CUDNN_ATTENTION_BACKWARD, &shape);
    return ddp_cudnn_cache_get(job->cudnn->cache, &key, ddp_cudnn_attention_backward_graph,
                               shape.is_exact ? DDP_CUDNN_NOTE(NONDETERMINISTIC) : 0, plan_p);
}

/* Workspace is a float for each element of q (on some devices), or where the order of sums is fixed 16 bits
 * for each score. Turns are equal but for the last. */
static size_t turn_of(const job_t *job, size_t sequences)
{
    const size_t each  = job->shape.is_exact ? job->heads * job->length * job->length * sizeof(uint16_t)
                                             : job->channels * job->length * sizeof(float);
    const size_t most  = each < job->cudnn->turn_bytes ? job->cudnn->turn_bytes / each : 1;
    const size_t turns = (sequences + most - 1) / most;
    const size_t turn  = (sequences + turns - 1) / turns;

    return turns == 1 ? turn : (turn + 3) / 4 * 4; /* log_sum of each is aligned */
}

/* Find the plans. DDP_ERR_UNSUPPORTED: cuDNN does not take it. */
static ddp_status_t open_job(const ddp_device_t *device, const ddp_attention_args_t *args, job_t *job)
{
    ddp_status_t    status = DDP_OK;
    ddp_cudnn_key_t key;
    size_t          last;

    *job = (job_t){.precision = args->precision,
                   .length    = args->length,
                   .heads     = args->heads,
                   .channels  = args->channels,
                   .shape = {ddp_cudnn_type(args->precision), (int64_t)args->sequences, (int64_t)args->heads,
                             (int64_t)args->length, (int64_t)(args->channels / args->heads), false}};
    DDP_REQUIRE(job->shape.type != CUDNN_DATA_FLOAT && args->dropout == 0.0F &&
                    args->sequences * args->length > 0 && job->shape.width % 8 == 0,
                DDP_ERR_UNSUPPORTED, "attention: not a case of cuDNN's");
    DDP_REQUIRE(ddp_cudnn_is_aligned(args->log_sum), DDP_ERR_UNSUPPORTED,
                "attention: log_sum is not aligned");
    DDP_TRY(ddp_cudnn_of(device, &job->cudnn));
    job->shape.is_exact = job->cudnn->is_exact;
    /* There its deterministic engine has to be asked for by number, and the order of others is not promised.
     */
    DDP_REQUIRE(!job->shape.is_exact || job->cudnn->major < 10, DDP_ERR_UNSUPPORTED,
                "attention: no gradient in a fixed order on this device");
    key = ddp_cudnn_attention_key(DDP_CUDNN_ATTENTION, &job->shape);
    DDP_TRY(ddp_cudnn_cache_get(job->cudnn->cache, &key, ddp_cudnn_attention_graph, 0, &job->forward));
    job->turn = turn_of(job, args->sequences);
    last      = (args->sequences - 1) % job->turn + 1;
    DDP_TRY(plan_backward(job, job->turn, &job->backward[0]));
    DDP_TRY(plan_backward(job, last, &job->backward[1]));
out:
    return status;
}

bool ddp_cudnn_takes_attention(const ddp_device_t *device, const ddp_attention_args_t *args)
{
    job_t job;

    return open_job(device, args, &job) == DDP_OK;
}

/* Memory of one pass in 16-bit numbers, and what cuDNN needs beside it. */
typedef struct memory {
    uint16_t *qkv, *y, *dy, *dqkv;
    float    *log_sum;             /* only where the caller wants none */
    float    *row_sum, *dq_floats; /* of one turn */
    void     *workspace;
} memory_t;

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static void lay_out_forward(const job_t *job, bool has_log_sum, ddp_cudnn_pieces_t *pieces, memory_t *m)
{
    const size_t rows  = (size_t)job->shape.sequences * job->length;
    const size_t count = rows * job->channels;

    *m           = (memory_t){0};
    m->qkv       = ddp_cudnn_piece(pieces, 3 * count * sizeof(uint16_t));
    m->y         = ddp_cudnn_piece(pieces, count * sizeof(uint16_t));
    m->log_sum   = ddp_cudnn_piece(pieces, has_log_sum ? 0 : rows * job->heads * sizeof(float));
    m->workspace = ddp_cudnn_piece(pieces, job->forward->workspace_bytes);
}

static void lay_out_backward(const job_t *job, ddp_cudnn_pieces_t *pieces, memory_t *m)
{
    const size_t count = (size_t)job->shape.sequences * job->length * job->channels;
    const size_t rows  = job->turn * job->length;

    *m           = (memory_t){0};
    m->qkv       = ddp_cudnn_piece(pieces, 3 * count * sizeof(uint16_t));
    m->y         = ddp_cudnn_piece(pieces, count * sizeof(uint16_t));
    m->dy        = ddp_cudnn_piece(pieces, count * sizeof(uint16_t));
    m->dqkv      = ddp_cudnn_piece(pieces, 3 * count * sizeof(uint16_t));
    m->row_sum   = ddp_cudnn_piece(pieces, rows * job->heads * sizeof(float));
    m->dq_floats = ddp_cudnn_piece(pieces, job->shape.is_exact ? 0 : rows * job->channels * sizeof(float));
    m->workspace =
        ddp_cudnn_piece(pieces, larger(job->backward[0]->workspace_bytes, job->backward[1]->workspace_bytes));
}

size_t ddp_cudnn_attention_scratch_bytes(const ddp_device_t *device, const ddp_attention_args_t *args)
{
    ddp_cudnn_pieces_t forward  = {NULL, 0};
    ddp_cudnn_pieces_t backward = {NULL, 0};
    memory_t           memory;
    job_t              job;

    if (open_job(device, args, &job) != DDP_OK) {
        return 0;
    }
    lay_out_forward(&job, false, &forward, &memory);
    lay_out_backward(&job, &backward, &memory);
    return larger(forward.bytes, backward.bytes);
}

/* `count` floats as 16-bit numbers. */
static ddp_status_t narrow(ddp_stream_t *stream, const job_t *job, const float *x, size_t count, uint16_t *y)
{
    /* As one row: all counts are multiples of the size of a head, which is a multiple of 8. */
    const ddp_cuda_cast_args_t cast = {.precision = job->precision,
                                       .x         = x,
                                       .rows      = 1,
                                       .columns   = count,
                                       .ld        = count,
                                       .y         = y,
                                       .pitch     = count};

    return ddp_cuda_cast(stream, &cast);
}

/* q, k and v in qkv, or their gradients, from number `uid` on. */
static void point_packed(ddp_cudnn_pointers_t *pointers, const job_t *job, int64_t uid, const uint16_t *qkv)
{
    for (size_t i = 0; i < 3; i++) {
        ddp_cudnn_point(pointers, uid + (int64_t)i, qkv + i * job->channels);
    }
}

/* What both passes name. `scale` lives until the plan was executed. */
static ddp_cudnn_pointers_t point_forward(const job_t *job, const uint16_t *qkv, const uint16_t *y,
                                          const float *log_sum, const float *scale)
{
    ddp_cudnn_pointers_t pointers = {.count = 0};

    point_packed(&pointers, job, DDP_CUDNN_Q, qkv);
    ddp_cudnn_point(&pointers, DDP_CUDNN_Y, y);
    ddp_cudnn_point(&pointers, DDP_CUDNN_LOG_SUM, log_sum);
    ddp_cudnn_point(&pointers, DDP_CUDNN_SCALE, scale);
    ddp_cudnn_point(&pointers, DDP_CUDNN_NOT_SEEN, &not_seen);
    return pointers;
}

static float scale_of(const job_t *job)
{
    return 1.0F / sqrtf((float)job->shape.width);
}

static ddp_status_t run_forward(ddp_stream_t *stream, const job_t *job, const memory_t *m)
{
    const float                scale    = scale_of(job);
    const ddp_cudnn_pointers_t pointers = point_forward(job, m->qkv, m->y, m->log_sum, &scale);

    return ddp_cudnn_plan_execute(&job->cudnn->target, job->forward, &pointers, m->workspace,
                                  ddp_cuda_stream(stream));
}

/* Turn after turn of sequences. */
static ddp_status_t run_backward(ddp_stream_t *stream, const job_t *job, const memory_t *m)
{
    ddp_status_t status = DDP_OK;
    const size_t all    = (size_t)job->shape.sequences;
    const float  scale  = scale_of(job);

    for (size_t first = 0; first < all; first += job->turn) {
        const size_t            row  = first * job->length;
        const ddp_cudnn_plan_t *plan = job->backward[first + job->turn < all ? 0 : 1];
        ddp_cudnn_pointers_t    pointers =
            point_forward(job, m->qkv + row * 3 * job->channels, m->y + row * job->channels,
                          m->log_sum + row * job->heads, &scale);

        ddp_cudnn_point(&pointers, DDP_CUDNN_ONE, &one);
        ddp_cudnn_point(&pointers, DDP_CUDNN_DY, m->dy + row * job->channels);
        point_packed(&pointers, job, DDP_CUDNN_DQ, m->dqkv + row * 3 * job->channels);
        ddp_cudnn_point(&pointers, DDP_CUDNN_ROW_SUM, m->row_sum);
        if (m->dq_floats != NULL) {
            ddp_cudnn_point(&pointers, DDP_CUDNN_DQ_FLOATS, m->dq_floats);
        }
        DDP_TRY(ddp_cudnn_plan_execute(&job->cudnn->target, plan, &pointers, m->workspace,
                                       ddp_cuda_stream(stream)));
    }
out:
    return status;
}

ddp_status_t ddp_cudnn_attention(ddp_stream_t *stream, const ddp_attention_args_t *args)
{
    ddp_status_t       status  = DDP_OK;
    ddp_cudnn_pieces_t pieces  = {NULL, 0};
    const bool         has_sum = args->log_sum != NULL;
    const size_t       count   = args->sequences * args->length * args->channels;
    memory_t           memory;
    job_t              job;

    DDP_TRY(open_job(ddp_stream_device(stream), args, &job));
    lay_out_forward(&job, has_sum, &pieces, &memory);
    DDP_TRY(ddp_cuda_scratch(stream, DDP_CUDA_SCRATCH_OP, pieces.bytes, &pieces.memory));
    pieces.bytes = 0;
    lay_out_forward(&job, has_sum, &pieces, &memory);
    memory.log_sum = has_sum ? args->log_sum : memory.log_sum;
    DDP_TRY(narrow(stream, &job, args->qkv, 3 * count, memory.qkv));
    DDP_TRY(run_forward(stream, &job, &memory));
    DDP_TRY(ddp_cudnn_widen(stream, args->precision, memory.y, count, args->y, false));
out:
    return status;
}

ddp_status_t ddp_cudnn_attention_backward(ddp_stream_t *stream, const ddp_attention_backward_args_t *args)
{
    const ddp_attention_args_t *forward = &args->forward;
    ddp_status_t                status  = DDP_OK;
    ddp_cudnn_pieces_t          pieces  = {NULL, 0};
    const size_t                count   = forward->sequences * forward->length * forward->channels;
    memory_t                    memory;
    job_t                       job;

    DDP_TRY(open_job(ddp_stream_device(stream), forward, &job));
    lay_out_backward(&job, &pieces, &memory);
    DDP_TRY(ddp_cuda_scratch(stream, DDP_CUDA_SCRATCH_OP, pieces.bytes, &pieces.memory));
    pieces.bytes = 0;
    lay_out_backward(&job, &pieces, &memory);
    memory.log_sum = forward->log_sum;
    DDP_TRY(narrow(stream, &job, forward->qkv, 3 * count, memory.qkv));
    DDP_TRY(narrow(stream, &job, forward->y, count, memory.y));
    DDP_TRY(narrow(stream, &job, args->dy, count, memory.dy));
    DDP_TRY(run_backward(stream, &job, &memory));
    DDP_TRY(
        ddp_cudnn_widen(stream, forward->precision, memory.dqkv, 3 * count, args->dqkv, args->accumulate));
out:
    return status;
}
