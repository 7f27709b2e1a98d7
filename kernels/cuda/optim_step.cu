/*
 * What a step does to each tensor, from what the ranks told each other: small work of one block of threads,
 * microseconds beside the backward pass that it runs next to. float64 as on the host (ddp/reducer_sums.c and
 * _norm.c), with products and sums rounded one by one.
 */
#include "kernels/cuda/launch.h"
#include "kernels/cuda/optim.h"

typedef struct prepare {
    ddp_cuda_prepare_args_t args; /* `config` is the host's: not for kernels */
    ddp_optim_config_t      config;
} prepare_t;

/* base^n by squaring, as kernels/cpu/optim.c */
static __device__ inline double power(double base, uint64_t n)
{
    double result = 1.0;

    for (; n > 0; n >>= 1) {
        if ((n & 1) != 0) {
            result = __dmul_rn(result, base);
        }
        base = __dmul_rn(base, base);
    }
    return result;
}

static __device__ inline double loss_scale_of(const ddp_cuda_prepare_args_t &a)
{
    return a.loss_scale > 0.0F ? (double)a.loss_scale : 1.0;
}

static __device__ inline ddp_cuda_sums_t add_leaves(const ddp_cuda_prepare_args_t &a)
{
    ddp_cuda_sums_t sums = {};

    for (size_t v = 0; v < a.present; v++) {
        sums.loss += a.in.leaves[v].loss;
        sums.weight += a.in.leaves[v].weight;
        sums.correct += a.in.leaves[v].correct;
        sums.counted += a.in.leaves[v].counted;
    }
    sums.grad_norm = NAN;
    sums.lr        = *a.in.lr;
    sums.finite    = isfinite(sums.loss) && isfinite(sums.weight);
    sums.update    = sums.finite != 0 && sums.weight > 0.0;
    sums.broken    = DDP_CUDA_NO_TENSOR;
    sums.request   = a.in.words[0];
    if (a.average_ranks) {
        sums.grad_scale = 1.0F;
    } else {
        sums.grad_scale = sums.update != 0 ? (float)(1.0 / __dmul_rn(sums.weight, loss_scale_of(a))) : 0.0F;
    }
    return sums;
}

/* PyTorch DDP's mean of means: a rank's gradient counts 1 / (ranks * its own weight). Micro-batches are dealt
 * in contiguous parts, the larger ones first, as ddp_partition() does. */
static __device__ inline float scale_of_rank(const ddp_cuda_prepare_args_t &a, size_t rank)
{
    const size_t each   = a.micro_batches / a.ranks;
    const size_t larger = a.micro_batches % a.ranks;
    const size_t first  = rank * each + (rank < larger ? rank : larger);
    const size_t end    = first + each + (rank < larger ? 1 : 0);
    double       weight = 0.0;

    for (size_t v = first; v < end && v < a.present; v++) {
        weight += a.in.leaves[v].weight;
    }
    return weight > 0.0 ? (float)(1.0 / __dmul_rn(__dmul_rn((double)a.ranks, weight), loss_scale_of(a)))
                        : 0.0F;
}

static __device__ inline ddp_cuda_coef_t average_coef(const ddp_cuda_tensor_t &tensor, size_t parts)
{
    ddp_cuda_coef_t coef = {};

    coef.keep      = (float)(1.0 - (double)tensor.momentum);
    coef.step_size = tensor.momentum;
    coef.root      = (float)parts;
    return coef;
}

/* @param [in] step  of this tensor, from 1 */
static __device__ inline ddp_cuda_coef_t parameter_coef(const ddp_optim_config_t &c,
                                                        const ddp_cuda_tensor_t  &tensor,
                                                        const ddp_cuda_sums_t &sums, uint64_t step)
{
    const double    decay = tensor.no_decay != 0 ? 0.0 : c.weight_decay;
    const double    lr    = (double)sums.lr;
    ddp_cuda_coef_t coef  = {};

    coef.grad_scale = sums.grad_scale;
    coef.is_first   = step <= 1;
    if (c.kind == DDP_OPTIM_ADAMW) {
        coef.keep      = (float)__dsub_rn(1.0, __dmul_rn(lr, decay));
        coef.step_size = (float)(lr / __dsub_rn(1.0, power(c.beta1, step)));
        coef.root      = (float)sqrt(__dsub_rn(1.0, power(c.beta2, step)));
    } else {
        coef.keep      = (float)decay;
        coef.step_size = sums.lr;
    }
    return coef;
}

static __global__ void prepare_kernel(prepare_t p)
{
    const ddp_cuda_prepare_args_t &a = p.args;
    __shared__ ddp_cuda_sums_t     sums;

    if (threadIdx.x == 0) {
        sums      = add_leaves(a);
        *a.sums   = sums;
        *a.broken = DDP_CUDA_NO_TENSOR;
    }
    __syncthreads();
    for (size_t rank = threadIdx.x; a.average_ranks && rank < a.ranks; rank += blockDim.x) {
        a.rank_scale[rank] = scale_of_rank(a, rank);
    }
    for (size_t i = threadIdx.x; i < a.tensors.n; i += blockDim.x) {
        const ddp_cuda_tensor_t tensor = a.tensors.tensor[i];
        const uint64_t          step   = a.steps[i] + 1;
        ddp_cuda_coef_t         coef   = tensor.is_average != 0 ? average_coef(tensor, a.present)
                                                                : parameter_coef(p.config, tensor, sums, step);

        coef.update = sums.update != 0 && a.in.words[1 + i] != 0 && tensor.frozen == 0;
        a.coef[i]   = coef;
        if (coef.update != 0 && !a.two_phase) {
            a.steps[i] = step;
        }
    }
}

ddp_status_t ddp_cuda_optim_prepare(ddp_stream_t *stream, const ddp_cuda_prepare_args_t *args)
{
    const prepare_t prepare = {*args, *args->config};

    LAUNCH(prepare_kernel, 1, DDP_CUDA_THREADS, 0, ddp_cuda_stream(stream), prepare);
    return ddp_cuda_launched(stream, "prepare");
}

/* Sums of squares that are loaded at once; one thread adds them, so that their order is that of the blocks.
 */
#define PASS DDP_CUDA_THREADS

/* Beyond the tensor's end 0, which changes no sum of squares. */
static __device__ inline double squares_at(const ddp_cuda_norm_args_t &a, const ddp_cuda_tensor_t &tensor,
                                           size_t block)
{
    return block < tensor.blocks ? a.sumsq[tensor.first_block + block] : 0.0;
}

/* A block of threads a tensor. The additions follow each other: for the largest tensor of GPT-2 124M 150 000.
 * So nothing else may be waited for: the next pass is loaded meanwhile, and a pass has a known length, which
 * lets its reads be made ahead of the additions. */
static __global__ void tensor_sum_kernel(ddp_cuda_norm_args_t a)
{
    __shared__ double       part[2][PASS];
    const ddp_cuda_tensor_t tensor = a.tensors.tensor[blockIdx.x];
    double                  sum    = 0.0;

    part[0][threadIdx.x] = squares_at(a, tensor, threadIdx.x);
    for (size_t first = 0; first < tensor.blocks; first += PASS) {
        const size_t now  = first / PASS % 2;
        const double next = squares_at(a, tensor, first + PASS + threadIdx.x);

        __syncthreads();
        if (threadIdx.x == 0) {
#pragma unroll 32
            for (int b = 0; b < PASS; b++) {
                sum += part[now][b];
            }
        }
        part[1 - now][threadIdx.x] = next;
    }
    if (threadIdx.x == 0) {
        a.tensor_sum[blockIdx.x] = sum;
    }
}

/* Over the tensors; averages are no part of the norm. */
static __device__ inline void finish_sums(const ddp_cuda_norm_args_t &a, ddp_cuda_sums_t *sums)
{
    double   sum    = 0.0;
    uint32_t broken = DDP_CUDA_NO_TENSOR;

    for (size_t i = a.tensors.n; i-- > 0;) {
        const double squares = a.tensor_sum[i];

        broken = isfinite(squares) ? broken : (uint32_t)i;
        sum += a.tensors.tensor[i].is_average == 0 ? squares : 0.0;
    }
    sums->grad_norm = __dmul_rn(sqrt(sum), (double)sums->grad_scale);
    if (!a.two_phase) {
        sums->grad_norm = sums->update != 0 ? sums->grad_norm : NAN;
        return;
    }
    sums->broken = broken;
    if (broken != DDP_CUDA_NO_TENSOR) {
        sums->update = 0;
    } else if (a.clip_norm > 0.0F) { /* as torch.nn.utils.clip_grad_norm_ */
        const double factor = (double)a.clip_norm / __dadd_rn(sums->grad_norm, 1e-6);

        sums->grad_scale =
            factor < 1.0 ? (float)__dmul_rn((double)sums->grad_scale, factor) : sums->grad_scale;
    }
}

static __global__ void norm_kernel(ddp_cuda_norm_args_t a)
{
    __shared__ ddp_cuda_sums_t sums;

    if (threadIdx.x == 0) {
        sums = *a.sums;
        finish_sums(a, &sums);
        *a.sums = sums;
    }
    __syncthreads();
    for (size_t i = threadIdx.x; a.two_phase && i < a.tensors.n; i += blockDim.x) {
        ddp_cuda_coef_t coef = a.coef[i];

        coef.update = sums.update != 0 ? coef.update : 0;
        if (a.tensors.tensor[i].is_average == 0) {
            coef.grad_scale = sums.grad_scale;
        }
        a.coef[i] = coef;
        a.steps[i] += coef.update != 0 ? 1 : 0;
    }
}

ddp_status_t ddp_cuda_optim_norm(ddp_stream_t *stream, const ddp_cuda_norm_args_t *args)
{
    LAUNCH(tensor_sum_kernel, (unsigned)args->tensors.n, DDP_CUDA_THREADS, 0, ddp_cuda_stream(stream), *args);
    LAUNCH(norm_kernel, 1, DDP_CUDA_THREADS, 0, ddp_cuda_stream(stream), *args);
    return ddp_cuda_launched(stream, "norm");
}
