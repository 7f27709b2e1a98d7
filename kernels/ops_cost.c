#include "kernels/ops_cost.h"

#include <stdio.h>
#include <string.h>

#include "kernels/ops_norm.h"
#include "kernels/ops_submit_internal.h"

#define WORD ((double)sizeof(float))

DDP_OP_WORK(gemm, ddp_gemm_args_t)
DDP_OP_WORK(bias_grad, ddp_bias_grad_args_t)
DDP_OP_WORK(act, ddp_act_args_t)
DDP_OP_WORK(act_backward, ddp_act_backward_args_t)
DDP_OP_WORK(conv2d, ddp_conv2d_args_t)
DDP_OP_WORK(conv2d_backward, ddp_conv2d_backward_args_t)
DDP_OP_WORK(pool2d, ddp_pool2d_args_t)
DDP_OP_WORK(pool2d_backward, ddp_pool2d_backward_args_t)
DDP_OP_WORK(nhwc_to_nchw, ddp_permute_args_t)
DDP_OP_WORK(cross_entropy, ddp_cross_entropy_args_t)
DDP_OP_WORK(mse, ddp_mse_args_t)
DDP_OP_WORK(dropout, ddp_dropout_args_t)
DDP_OP_WORK(embedding, ddp_embedding_args_t)
DDP_OP_WORK(embedding_backward, ddp_embedding_backward_args_t)
DDP_OP_WORK(layer_norm, ddp_layer_norm_args_t)
DDP_OP_WORK(layer_norm_backward, ddp_layer_norm_backward_args_t)
DDP_OP_WORK(attention, ddp_attention_args_t)
DDP_OP_WORK(attention_backward, ddp_attention_backward_args_t)
DDP_OP_WORK(head_cross_entropy, ddp_head_cross_entropy_args_t)
DDP_OP_WORK(head_logits, ddp_head_logits_args_t)
DDP_OP_WORK(head_backward, ddp_head_backward_args_t)
DDP_OP_WORK(batch_norm, ddp_batch_norm_args_t)
DDP_OP_WORK(batch_norm_backward, ddp_batch_norm_backward_args_t)
DDP_OP_WORK(global_avg_pool, ddp_global_avg_pool_args_t)
DDP_OP_WORK(global_avg_pool_backward, ddp_global_avg_pool_backward_args_t)

/* DDP_COST(gemm, a) { ... } is the cost of the arguments `a`. */
#define DDP_COST(op, args_t, a)                                                                              \
    static void op##_of(const args_t *a, ddp_op_cost_t *cost);                                               \
    static void op##_cost(const void *work, ddp_op_cost_t *cost)                                             \
    {                                                                                                        \
        op##_of(&((const op##_work_t *)work)->args, cost);                                                   \
    }                                                                                                        \
    static void op##_of(const args_t *a, ddp_op_cost_t *cost)

/* 1 for an operand that is there, 2 for one that is added to. */
static double times(const void *operand, bool accumulate)
{
    return operand == NULL ? 0 : accumulate ? 2 : 1;
}

static const char *precision_text(ddp_precision_t precision)
{
    switch (precision) {
    case DDP_PRECISION_FLOAT32:
        return "";
    case DDP_PRECISION_TF32:
        return " tf32";
    case DDP_PRECISION_FP16:
        return " fp16";
    case DDP_PRECISION_BF16:
        break;
    }
    return " bf16"; /* emulated or not: the cpu has a value of its own for that */
}

static void set(ddp_op_cost_t *cost, double flop, double floats)
{
    cost->flop  = flop;
    cost->bytes = floats * WORD;
}

static void set_rows(ddp_op_cost_t *cost, size_t rows, size_t width, double operands)
{
    snprintf(cost->shape, sizeof(cost->shape), "%zu x %zu", rows, width);
    set(cost, 0, operands * (double)rows * (double)width);
}

DDP_COST(gemm, ddp_gemm_args_t, a)
{
    const double m = (double)a->m;
    const double n = (double)a->n;
    const double k = (double)a->k;

    snprintf(cost->shape, sizeof(cost->shape), "%zu x %zu x %zu %c%c%s", a->m, a->n, a->k,
             a->transpose_a ? 'T' : 'N', a->transpose_b ? 'T' : 'N', precision_text(a->precision));
    set(cost, 2 * m * n * k,
        m * k + k * n +
            m * n * (times(a->c, a->beta != 0.0F) + times(a->pre_activation, false) + times(a->add, false)));
}

DDP_COST(bias_grad, ddp_bias_grad_args_t, a)
{
    set_rows(cost, a->m, a->n, 1);
}

DDP_COST(act, ddp_act_args_t, a)
{
    set_rows(cost, a->count, 1, 2);
}

DDP_COST(act_backward, ddp_act_backward_args_t, a)
{
    set_rows(cost, a->count, 1, 2 + times(a->dx, a->accumulate));
}

static const char *algo_text(const ddp_conv2d_shape_t *s)
{
    static const char *const text[] = {"", "", " F(2x2)", " F(4x4)"};

    return text[ddp_conv2d_algo(s)];
}

/* Floating point operations of one pass, and the sizes of what it reads and writes. */
static double conv_flop(const ddp_conv2d_shape_t *s, ddp_op_cost_t *cost, double *x, double *w, double *y)
{
    snprintf(cost->shape, sizeof(cost->shape), "%zu x %zux%zu, %zu -> %zu, %zux%zu /%zu%s%s", s->n, s->in_h,
             s->in_w, s->in_c, s->out_c, s->kernel_h, s->kernel_w, s->stride, algo_text(s),
             precision_text(s->precision));
    *x = (double)(s->n * s->in_h * s->in_w * s->in_c);
    *w = (double)(s->out_c * s->kernel_h * s->kernel_w * s->in_c);
    *y = (double)(s->n * s->out_h * s->out_w * s->out_c);
    return 2 * *y * (double)(s->kernel_h * s->kernel_w * s->in_c);
}

DDP_COST(conv2d, ddp_conv2d_args_t, a)
{
    double       x, w, y;
    const double flop = conv_flop(&a->shape, cost, &x, &w, &y);

    set(cost, flop, x + w + y);
}

DDP_COST(conv2d_backward, ddp_conv2d_backward_args_t, a)
{
    double       x, w, y;
    const double flop = conv_flop(&a->shape, cost, &x, &w, &y);

    set(cost, flop * (times(a->dx, false) + times(a->dw, false)),
        x * (times(a->dw, false) + times(a->dx, a->accumulate_dx)) +
            w * (times(a->dx, false) + times(a->dw, a->accumulate_dw)) + y);
}

static void pool_cost(const ddp_pool2d_args_t *p, double more, ddp_op_cost_t *cost)
{
    const double x = (double)(p->n * p->in_h * p->in_w * p->c);
    const double y = (double)(p->n * p->out_h * p->out_w * p->c);

    snprintf(cost->shape, sizeof(cost->shape), "%zu x %zux%zu, %zu, %zux%zu /%zu", p->n, p->in_h, p->in_w,
             p->c, p->kernel, p->kernel, p->stride);
    set(cost, 0, x * more + y);
    cost->bytes += p->index != NULL ? y : 0;
}

DDP_COST(pool2d, ddp_pool2d_args_t, a)
{
    pool_cost(a, 1, cost);
}

DDP_COST(pool2d_backward, ddp_pool2d_backward_args_t, a)
{
    pool_cost(&a->forward, times(a->dx, a->accumulate), cost);
}

DDP_COST(nhwc_to_nchw, ddp_permute_args_t, a)
{
    set_rows(cost, a->n, a->h * a->w * a->c, 1 + times(a->y, a->accumulate));
}

DDP_COST(cross_entropy, ddp_cross_entropy_args_t, a)
{
    set_rows(cost, a->rows, a->classes, 1 + times(a->dlogits, false));
}

DDP_COST(mse, ddp_mse_args_t, a)
{
    set_rows(cost, a->rows, a->width, 2 + times(a->dy, false));
}

DDP_COST(dropout, ddp_dropout_args_t, a)
{
    set_rows(cost, a->rows, a->width, 1 + times(a->y, a->accumulate));
}

DDP_COST(embedding, ddp_embedding_args_t, a)
{
    set_rows(cost, a->sequences * a->length, a->width, 2);
    cost->bytes += WORD * (double)((a->positions != NULL ? a->length : 0) * a->width);
}

/* A table's gradient that replaces is written whole, one that is added to only where tokens point. */
DDP_COST(embedding_backward, ddp_embedding_backward_args_t, a)
{
    const double dy     = (double)(a->sequences * a->length * a->width);
    const double table  = a->accumulate_table ? 2 * dy : (double)(a->vocab * a->width);
    const double places = (double)((a->accumulate_positions ? 2 * a->length : a->n_positions) * a->width);

    set_rows(cost, a->sequences * a->length, a->width, 1);
    cost->bytes += WORD * (table * times(a->dtable, false) + places * times(a->dpositions, false));
}

DDP_COST(layer_norm, ddp_layer_norm_args_t, a)
{
    set_rows(cost, a->rows, a->width, 2);
}

DDP_COST(layer_norm_backward, ddp_layer_norm_backward_args_t, a)
{
    set_rows(cost, a->rows, a->width, 2 + times(a->dx, a->accumulate_dx));
}

/* Pairs (i, j) with j <= i, of one multiplication and addition for each channel and product. */
static void causal_cost(const ddp_attention_args_t *a, double products, double operands, ddp_op_cost_t *cost)
{
    const double rows  = (double)(a->sequences * a->length);
    const double pairs = rows * (double)(a->length + 1) / 2;

    snprintf(cost->shape, sizeof(cost->shape), "%zu x %zu, %zu heads of %zu%s", a->sequences, a->length,
             a->heads, a->channels / a->heads, precision_text(a->precision));
    set(cost, 2 * products * pairs * (double)a->channels, operands * rows * (double)a->channels);
}

DDP_COST(attention, ddp_attention_args_t, a)
{
    causal_cost(a, 2, 4, cost);
}

/* Scores again, and the gradients of scores, v, q and k. */
DDP_COST(attention_backward, ddp_attention_backward_args_t, a)
{
    causal_cost(&a->forward, 5, 4 + 3 * times(a->dqkv, a->accumulate), cost);
}

/* Products of x, w and logits; `logits` says how often those pass through memory. */
static void head_cost(const ddp_head_args_t *a, double products, double gradients, double logits,
                      ddp_op_cost_t *cost)
{
    const double x     = (double)(a->rows * a->width);
    const double w     = (double)(a->vocab * a->width);
    const double dx    = gradients * times(a->dx, a->accumulate_dx);
    const double dw    = gradients * times(a->dw, a->accumulate_dw);
    const double backs = gradients * (times(a->dx, false) + times(a->dw, false));

    snprintf(cost->shape, sizeof(cost->shape), "%zu x %zu, %zu words%s", a->rows, a->width, a->vocab,
             precision_text(a->precision));
    set(cost, 2 * x * (double)a->vocab * (products + backs),
        x * (1 + dx) + w * (1 + dw) + logits * (double)a->rows * (double)a->vocab);
}

DDP_COST(head_cross_entropy, ddp_head_cross_entropy_args_t, a)
{
    head_cost(&a->head, 1, 1, 0, cost);
}

DDP_COST(head_logits, ddp_head_logits_args_t, a)
{
    head_cost(&a->head, 1, 0, 1, cost);
}

DDP_COST(head_backward, ddp_head_backward_args_t, a)
{
    head_cost(&a->head, 0, 1, 1, cost);
}

DDP_COST(batch_norm, ddp_batch_norm_args_t, a)
{
    set_rows(cost, a->rows, a->c, 2 + times(a->residual, false));
}

DDP_COST(batch_norm_backward, ddp_batch_norm_backward_args_t, a)
{
    set_rows(cost, a->rows, a->c,
             2 + times(a->y, false) + times(a->dx, a->accumulate_dx) +
                 times(a->dresidual, a->accumulate_dresidual));
}

DDP_COST(global_avg_pool, ddp_global_avg_pool_args_t, a)
{
    set_rows(cost, a->n * a->pixels, a->c, 1);
}

DDP_COST(global_avg_pool_backward, ddp_global_avg_pool_backward_args_t, a)
{
    set_rows(cost, a->n * a->pixels, a->c, times(a->dx, a->accumulate));
}

static void fill_cost(const void *work, ddp_op_cost_t *cost)
{
    set_rows(cost, ((const ddp_vector_work_t *)work)->count, 1, 1);
}

static void axpy_cost(const void *work, ddp_op_cost_t *cost)
{
    set_rows(cost, ((const ddp_vector_work_t *)work)->count, 1, 3);
}

static void scale_cost(const void *work, ddp_op_cost_t *cost)
{
    set_rows(cost, ((const ddp_vector_work_t *)work)->count, 1, 2);
}

#define DDP_ENTRY(op)                                                                                        \
    {                                                                                                        \
#op, op##_cost                                                                                       \
    }

/* The name is the one that DDP_SUBMIT_OP gives the work. */
static const struct entry {
    const char *work;
    void (*cost)(const void *work, ddp_op_cost_t *cost);
} entries[] = {
    DDP_ENTRY(gemm),
    DDP_ENTRY(bias_grad),
    DDP_ENTRY(act),
    DDP_ENTRY(act_backward),
    DDP_ENTRY(conv2d),
    DDP_ENTRY(conv2d_backward),
    DDP_ENTRY(pool2d),
    DDP_ENTRY(pool2d_backward),
    DDP_ENTRY(nhwc_to_nchw),
    DDP_ENTRY(cross_entropy),
    DDP_ENTRY(mse),
    DDP_ENTRY(dropout),
    DDP_ENTRY(embedding),
    DDP_ENTRY(embedding_backward),
    DDP_ENTRY(layer_norm),
    DDP_ENTRY(layer_norm_backward),
    DDP_ENTRY(attention),
    DDP_ENTRY(attention_backward),
    DDP_ENTRY(head_cross_entropy),
    DDP_ENTRY(head_logits),
    DDP_ENTRY(head_backward),
    DDP_ENTRY(batch_norm),
    DDP_ENTRY(batch_norm_backward),
    DDP_ENTRY(global_avg_pool),
    DDP_ENTRY(global_avg_pool_backward),
    DDP_ENTRY(fill),
    DDP_ENTRY(axpy),
    DDP_ENTRY(scale),
};

bool ddp_op_cost(const char *work, const void *args, ddp_op_cost_t *cost_p)
{
    for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
        if (strcmp(entries[i].work, work) == 0) {
            entries[i].cost(args, cost_p);
            return true;
        }
    }
    return false;
}
