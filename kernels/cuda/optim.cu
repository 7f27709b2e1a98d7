/*
 * Sums over ranks and updates of blocks of the flat layout: a block of threads takes one of DDP_BLOCK floats,
 * a thread an element. Fewer than 2^31 blocks: 2 TB. All is bound by memory: tree sums move 4 bytes an
 * element for each source and 4 for the sum, AdamW 28 (32 with a sum of squares, of which one word is a
 * block's). Products and sums are rounded one by one, in the order of kernels/cpu/optim.c.
 */
#include "kernels/cuda/optim.h"

#include "kernels/cuda/each.h"
#include "kernels/cuda/sumsq.h"

static __device__ inline size_t element(void)
{
    return blockIdx.x * (size_t)DDP_BLOCK + threadIdx.x;
}

/* a x + b y */
static __device__ inline float mix(float a, float x, float b, float y)
{
    return __fadd_rn(__fmul_rn(a, x), __fmul_rn(b, y));
}

static __global__ void tree_kernel(ddp_cuda_tree_args_t a)
{
    __shared__ float stack[DDP_TREE_MAX_DEPTH][DDP_BLOCK]; /* below the top; each thread has its column */
    const bool       scales =
        a.rank_scale != NULL && !a.tensors.tensor[a.tensors.of_block[a.first_block + blockIdx.x]].is_average;
    size_t depth = 0;
    float  top   = 0.0F;

    for (size_t k = 0; k < a.length; k++) {
        if (a.op[k] == DDP_TREE_ADD) {
            top = __fadd_rn(stack[depth - 2][threadIdx.x], top);
            depth--;
        } else {
            const ddp_cuda_source_t source = a.source[a.op[k]];
            const float *base = source.is_received != 0 ? a.received + source.index * a.received_stride
                                                        : a.arenas + source.index * a.arena_stride;

            if (depth > 0) {
                stack[depth - 1][threadIdx.x] = top;
            }
            top = base[element()];
            top = scales ? __fmul_rn(top, a.rank_scale[source.rank]) : top;
            depth++;
        }
    }
    a.to[element()] = top;
}

ddp_status_t ddp_cuda_tree_sum(ddp_stream_t *stream, const ddp_cuda_tree_args_t *args)
{
    if (args->blocks > 0) {
        LAUNCH(tree_kernel, (unsigned)args->blocks, DDP_BLOCK, 0, ddp_cuda_stream(stream), *args);
    }
    return ddp_cuda_launched(stream, "tree sum");
}

/* The same for all tensors and steps. */
typedef struct rule {
    float beta1, rest1, beta2, rest2, eps, momentum; /* rest is 1 - beta */
    bool  is_adamw, has_momentum, nesterov;
} rule_t;

static rule_t rule_of(const ddp_optim_config_t *c)
{
    rule_t rule = {};

    rule.beta1        = (float)c->beta1;
    rule.rest1        = (float)(1.0 - c->beta1);
    rule.beta2        = (float)c->beta2;
    rule.rest2        = (float)(1.0 - c->beta2);
    rule.eps          = (float)c->eps;
    rule.momentum     = (float)c->momentum;
    rule.is_adamw     = c->kind == DDP_OPTIM_ADAMW;
    rule.has_momentum = c->momentum > 0.0;
    rule.nesterov     = c->nesterov;
    return rule;
}

static __device__ inline void adamw(const ddp_cuda_update_args_t &a, const rule_t &rule,
                                    const ddp_cuda_coef_t &c, float sum, size_t i)
{
    const float g = __fmul_rn(sum, c.grad_scale);
    const float m = mix(a.slot[0][i], rule.beta1, g, rule.rest1);
    const float v = mix(a.slot[1][i], rule.beta2, __fmul_rn(g, g), rule.rest2);
    const float d = __fadd_rn(__fdiv_rn(__fsqrt_rn(v), c.root), rule.eps);

    a.slot[0][i] = m;
    a.slot[1][i] = v;
    a.value[i]   = __fsub_rn(__fmul_rn(a.value[i], c.keep), __fmul_rn(c.step_size, __fdiv_rn(m, d)));
}

static __device__ inline void sgd(const ddp_cuda_update_args_t &a, const rule_t &rule,
                                  const ddp_cuda_coef_t &c, float sum, size_t i)
{
    const float p    = a.value[i];
    const float g    = mix(sum, c.grad_scale, p, c.keep);
    float       step = g;

    if (rule.has_momentum) {
        const float b = c.is_first != 0 ? g : __fadd_rn(__fmul_rn(a.slot[0][i], rule.momentum), g);

        a.slot[0][i] = b;
        step         = rule.nesterov ? __fadd_rn(g, __fmul_rn(rule.momentum, b)) : b;
    }
    a.value[i] = __fsub_rn(p, __fmul_rn(c.step_size, step));
}

static __device__ inline void update_element(const ddp_cuda_update_args_t &a, const rule_t &rule,
                                             const ddp_cuda_coef_t &c, bool is_average, float sum)
{
    const size_t i = element();

    if (is_average) {
        a.value[i] = mix(a.value[i], c.keep, __fdiv_rn(sum, c.root), c.step_size);
    } else if (rule.is_adamw) {
        adamw(a, rule, c, sum, i);
    } else {
        sgd(a, rule, c, sum, i);
    }
}

/* Sum of squares of the elements that the threads of a block have. */
static __device__ inline void write_sumsq(float value, double *to)
{
    __shared__ float  block[DDP_BLOCK];
    __shared__ double lane[DDP_SUMSQ_LANES];

    block[threadIdx.x] = value;
    __syncthreads();
    if (threadIdx.x < DDP_SUMSQ_LANES) {
        lane[threadIdx.x] = sumsq_lane(block, threadIdx.x, DDP_BLOCK);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        *to = sumsq_finish(lane);
    }
}

static __global__ void update_kernel(ddp_cuda_update_args_t a, rule_t rule)
{
    const uint32_t        tensor = a.tensors.of_block[a.first_block + blockIdx.x];
    const ddp_cuda_coef_t coef   = a.coef[tensor];
    float                 sum;

    if (coef.update == 0) {
        if (a.sumsq != NULL && threadIdx.x == 0) {
            a.sumsq[blockIdx.x] = 0.0;
        }
        return;
    }
    sum = a.grad[element()];
    update_element(a, rule, coef, a.tensors.tensor[tensor].is_average != 0, sum);
    if (a.broken != NULL && __syncthreads_or(!isfinite(sum)) && threadIdx.x == 0) {
        atomicMin(a.broken, tensor);
    }
    if (a.sumsq != NULL) {
        write_sumsq(sum, a.sumsq + blockIdx.x);
    }
}

ddp_status_t ddp_cuda_update(ddp_stream_t *stream, const ddp_cuda_update_args_t *args)
{
    if (args->blocks > 0) {
        LAUNCH(update_kernel, (unsigned)args->blocks, DDP_BLOCK, 0, ddp_cuda_stream(stream), *args,
               rule_of(args->config));
    }
    return ddp_cuda_launched(stream, "update");
}

/* Blocks of the layout that a block of threads takes: eight lanes read 32 bytes next to each other. */
#define SUMSQ_BLOCKS (DDP_CUDA_THREADS / DDP_SUMSQ_LANES)

static __global__ void block_sumsq_kernel(const float *x, double *sumsq, size_t blocks)
{
    __shared__ double lane[DDP_CUDA_THREADS];
    const size_t      first = blockIdx.x * (size_t)SUMSQ_BLOCKS;
    const size_t      mine  = first + threadIdx.x / DDP_SUMSQ_LANES;

    if (mine < blocks) {
        lane[threadIdx.x] = sumsq_lane(x + mine * DDP_BLOCK, threadIdx.x % DDP_SUMSQ_LANES, DDP_BLOCK);
    }
    __syncthreads();
    if (threadIdx.x < SUMSQ_BLOCKS && first + threadIdx.x < blocks) {
        sumsq[first + threadIdx.x] = sumsq_finish(lane + threadIdx.x * DDP_SUMSQ_LANES);
    }
}

ddp_status_t ddp_cuda_block_sumsq(ddp_stream_t *stream, const float *x, double *sumsq, size_t blocks)
{
    if (blocks > 0) {
        LAUNCH(block_sumsq_kernel, (unsigned)((blocks + SUMSQ_BLOCKS - 1) / SUMSQ_BLOCKS), DDP_CUDA_THREADS,
               0, ddp_cuda_stream(stream), x, sumsq, blocks);
    }
    return ddp_cuda_launched(stream, "sum of squares");
}

struct add_t {
    enum { inputs = 2 };

    __device__ float operator()(const float *x) const
    {
        return __fadd_rn(x[0], x[1]);
    }
};

ddp_status_t ddp_cuda_block_add(ddp_stream_t *stream, float *to, const float *from, size_t blocks)
{
    const ddp_cuda_each_t<add_t> each = {{}, {to, from}, to, blocks * DDP_BLOCK};

    return ddp_cuda_each(stream, "add", each);
}

static __global__ void scale_blocks_kernel(ddp_cuda_scale_args_t a)
{
    if (a.tensors.tensor[a.tensors.of_block[a.first_block + blockIdx.x]].is_average == 0) {
        a.x[element()] = __fmul_rn(a.x[element()], a.rank_scale[a.rank]);
    }
}

ddp_status_t ddp_cuda_scale_blocks(ddp_stream_t *stream, const ddp_cuda_scale_args_t *args)
{
    if (args->blocks > 0) {
        LAUNCH(scale_blocks_kernel, (unsigned)args->blocks, DDP_BLOCK, 0, ddp_cuda_stream(stream), *args);
    }
    return ddp_cuda_launched(stream, "scale");
}
