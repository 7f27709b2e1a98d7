#include <math.h>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/sumsq.h"
#include "kernels/cpu/table.h"
#include "kernels/layout.h"

/*
 * Everything here goes block by block: the program's value of one block is built in the first-level cache,
 * then used. The functions on one block are never inlined: a scaling and the addition after it, or the
 * division by the weight and the decay, must not be contracted to an FMA in one program and not in another,
 * or a sum would round differently when the same leaves come from other ranks.
 */
#define ON_BLOCK static __attribute__((noinline))

typedef struct tree_stack {
    float        buffer[DDP_TREE_MAX_DEPTH][DDP_BLOCK] __attribute__((aligned(DDP_ALIGNMENT)));
    const float *value[DDP_TREE_MAX_DEPTH]; /* buffer of the same depth, or a source */
} tree_stack_t;

ON_BLOCK void block_sum(float *dst, const float *a, const float *b)
{
    for (size_t i = 0; i < DDP_BLOCK; i += VL) {
        vstore(dst + i, vload(a + i) + vload(b + i));
    }
}

ON_BLOCK void block_scaled(float *dst, const float *a, float factor)
{
    for (size_t i = 0; i < DDP_BLOCK; i += VL) {
        vstore(dst + i, vload(a + i) * vset1(factor));
    }
}

/* Value of the program on the block at `first`. The last addition goes to `dst`, if there is one. @return
 * where the value is: `dst`, a source, or the stack */
static const float *block_value(const ddp_tree_program_t *program, size_t first, tree_stack_t *stack,
                                float *dst)
{
    size_t depth = 0;

    for (size_t k = 0; k < program->length; k++) {
        const int32_t op = program->op[k];

        if (op != DDP_TREE_ADD) {
            stack->value[depth] = program->source[op] + first;
            if (program->scale != NULL) {
                block_scaled(stack->buffer[depth], stack->value[depth], program->scale[op]);
                stack->value[depth] = stack->buffer[depth];
            }
            depth++;
        } else {
            float *to = k + 1 == program->length && dst != NULL ? dst : stack->buffer[depth - 2];

            block_sum(to, stack->value[depth - 2], stack->value[depth - 1]);
            depth--;
            stack->value[depth - 1] = to;
        }
    }
    if (depth == 0) {
        DDP_ISA_NAME(fill)(stack->buffer[0], DDP_BLOCK, 0.0F);
        return stack->buffer[0];
    }
    return stack->value[0];
}

void DDP_ISA_NAME(tree_sum)(const ddp_tree_program_t *program, float *dst, double *sumsq, size_t blocks)
{
    tree_stack_t stack;

    for (size_t b = 0; b < blocks; b++) {
        float       *to    = dst + b * DDP_BLOCK;
        const float *value = block_value(program, b * DDP_BLOCK, &stack, to);

        if (value != to) {
            for (size_t i = 0; i < DDP_BLOCK; i += VL) {
                vstore(to + i, vload(value + i));
            }
        }
        if (sumsq != NULL) {
            sumsq[b] = block_sumsq(to);
        }
    }
}

/* What is the same for all elements, as PyTorch computes it: in float64, rounded once. */
typedef struct adamw_factors {
    float grad_scale;
    float keep;         /* 1 - lr * weight_decay */
    float beta1, rest1; /* rest is 1 - beta */
    float beta2, rest2;
    float step_size; /* lr / (1 - beta1^step) */
    float root;      /* sqrt(1 - beta2^step) */
    float eps;
} adamw_factors_t;

/* base^n by squaring: the C library's pow() differs between its versions. */
static double power(double base, uint64_t n)
{
    double result = 1.0;

    for (; n > 0; n >>= 1) {
        if ((n & 1) != 0) {
            result *= base;
        }
        base *= base;
    }
    return result;
}

static adamw_factors_t adamw_factors(const ddp_update_t *u)
{
    const ddp_optim_config_t *c  = u->config;
    const double              lr = (double)u->lr;

    return (adamw_factors_t){
        .grad_scale = u->grad_scale,
        .keep       = (float)(1.0 - lr * c->weight_decay),
        .beta1      = (float)c->beta1,
        .rest1      = (float)(1.0 - c->beta1),
        .beta2      = (float)c->beta2,
        .rest2      = (float)(1.0 - c->beta2),
        .step_size  = (float)(lr / (1.0 - power(c->beta1, u->step))),
        .root       = (float)sqrt(1.0 - power(c->beta2, u->step)),
        .eps        = (float)c->eps,
    };
}

ON_BLOCK void block_adamw(const adamw_factors_t *f, const float *value, float *param, float *exp_avg,
                          float *exp_avg_sq)
{
    for (size_t i = 0; i < DDP_BLOCK; i += VL) {
        const vf_t g = vload(value + i) * vset1(f->grad_scale);
        const vf_t m = vload(exp_avg + i) * vset1(f->beta1) + g * vset1(f->rest1);
        const vf_t v = vload(exp_avg_sq + i) * vset1(f->beta2) + g * g * vset1(f->rest2);
        const vf_t d = vsqrt(v) / vset1(f->root) + vset1(f->eps);

        vstore(exp_avg + i, m);
        vstore(exp_avg_sq + i, v);
        vstore(param + i, vload(param + i) * vset1(f->keep) - vset1(f->step_size) * (m / d));
    }
}

typedef struct sgd_factors {
    float grad_scale, lr, weight_decay, momentum;
    bool  first; /* the buffer becomes the gradient, whatever it held */
    bool  nesterov;
} sgd_factors_t;

ON_BLOCK void block_sgd(const sgd_factors_t *f, const float *value, float *param)
{
    for (size_t i = 0; i < DDP_BLOCK; i += VL) {
        const vf_t p = vload(param + i);
        const vf_t g = vload(value + i) * vset1(f->grad_scale) + p * vset1(f->weight_decay);

        vstore(param + i, p - vset1(f->lr) * g);
    }
}

ON_BLOCK void block_sgd_momentum(const sgd_factors_t *f, const float *value, float *param, float *buffer)
{
    const vf_t momentum = vset1(f->momentum);

    for (size_t i = 0; i < DDP_BLOCK; i += VL) {
        const vf_t p = vload(param + i);
        vf_t       g = vload(value + i) * vset1(f->grad_scale) + p * vset1(f->weight_decay);
        vf_t       b = f->first ? g : vload(buffer + i) * momentum + g;

        vstore(buffer + i, b);
        b = f->nesterov ? g + momentum * b : b;
        vstore(param + i, p - vset1(f->lr) * b);
    }
}

/* Looks at the values of a range as they pass by. */
typedef struct watch {
    double *sumsq; /* of each block; NULL: not wanted */
    double  sum;   /* of sumsq */
    vf_t    zero;  /* 0 * value, summed: NaN once a value was not finite */
} watch_t;

static watch_t watch_start(double *sumsq)
{
    return (watch_t){.sumsq = sumsq, .sum = 0.0, .zero = vset1(0.0F)};
}

static void watch_block(watch_t *watch, const float *value)
{
    if (watch->sumsq != NULL) {
        *watch->sumsq = block_sumsq(value);
        watch->sum += *watch->sumsq++;
        return;
    }
    for (size_t i = 0; i < DDP_BLOCK; i += VL) {
        watch->zero += vload(value + i) * vset1(0.0F);
    }
}

static bool watch_is_finite(const watch_t *watch)
{
    float zero[VL];
    float sum = 0.0F;

    vstore(zero, watch->zero);
    for (size_t k = 0; k < VL; k++) {
        sum += zero[k];
    }
    return isfinite(sum) && isfinite(watch->sum);
}

static bool update_adamw(const ddp_tree_program_t *program, const ddp_update_t *u, size_t blocks)
{
    const adamw_factors_t factors = adamw_factors(u);
    watch_t               watch   = watch_start(u->sumsq);
    tree_stack_t          stack;

    for (size_t i = 0; i < blocks * DDP_BLOCK; i += DDP_BLOCK) {
        const float *value = block_value(program, i, &stack, NULL);

        watch_block(&watch, value);
        block_adamw(&factors, value, u->param + i, u->slot[0] + i, u->slot[1] + i);
    }
    return watch_is_finite(&watch);
}

static bool update_sgd(const ddp_tree_program_t *program, const ddp_update_t *u, size_t blocks)
{
    const sgd_factors_t factors = {
        .grad_scale   = u->grad_scale,
        .lr           = u->lr,
        .weight_decay = (float)u->config->weight_decay,
        .momentum     = (float)u->config->momentum,
        .first        = u->step <= 1,
        .nesterov     = u->config->nesterov,
    };
    watch_t      watch = watch_start(u->sumsq);
    tree_stack_t stack;

    for (size_t i = 0; i < blocks * DDP_BLOCK; i += DDP_BLOCK) {
        const float *value = block_value(program, i, &stack, NULL);

        watch_block(&watch, value);
        if (u->config->momentum > 0.0) {
            block_sgd_momentum(&factors, value, u->param + i, u->slot[0] + i);
        } else {
            block_sgd(&factors, value, u->param + i);
        }
    }
    return watch_is_finite(&watch);
}

bool DDP_ISA_NAME(tree_update)(const ddp_tree_program_t *program, const ddp_update_t *update, size_t blocks)
{
    return update->config->kind == DDP_OPTIM_ADAMW ? update_adamw(program, update, blocks)
                                                   : update_sgd(program, update, blocks);
}

ON_BLOCK void block_average(const float *sum, float *value, float keep, float momentum, float parts)
{
    for (size_t i = 0; i < DDP_BLOCK; i += VL) {
        const vf_t mean = vload(sum + i) / vset1(parts);

        vstore(value + i, vload(value + i) * vset1(keep) + mean * vset1(momentum));
    }
}

bool DDP_ISA_NAME(tree_average)(const ddp_tree_program_t *program, float *value, float momentum, float parts,
                                double *sumsq, size_t blocks)
{
    const float  keep  = (float)(1.0 - (double)momentum);
    watch_t      watch = watch_start(sumsq);
    tree_stack_t stack;

    for (size_t i = 0; i < blocks * DDP_BLOCK; i += DDP_BLOCK) {
        const float *sum = block_value(program, i, &stack, NULL);

        watch_block(&watch, sum);
        block_average(sum, value + i, keep, momentum, parts);
    }
    return watch_is_finite(&watch);
}
