#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/nn/nn_program.h"
#include "tests/support/ddp_test.h"

/* A value of the float64 run. */
typedef struct value {
    size_t  ndim;
    size_t  shape[DDP_MAX_DIMS];
    size_t  count;
    double *data;
} value_t;

static void make(value_t *value, size_t ndim, const size_t *shape)
{
    value->ndim  = ndim;
    value->count = 1;
    for (size_t i = 0; i < ndim; i++) {
        value->shape[i] = shape[i];
        value->count *= shape[i];
    }
    value->data = calloc(value->count, sizeof(double));
}

static double activate(ddp_act_t act, double x, double *margin)
{
    const double pi = acos(-1.0);

    switch (act) {
    case DDP_ACT_NONE:
        return x;
    case DDP_ACT_RELU:
        *margin = fmin(*margin, fabs(x));
        return x > 0 ? x : 0;
    case DDP_ACT_GELU:
        return 0.5 * x * erfc(-x / sqrt(2.0));
    case DDP_ACT_GELU_TANH:
        return 0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x * x * x)));
    }
    return x;
}

static void linear(const nn_program_t *program, const nn_step_t *step, const double *const *params,
                   const value_t *x, value_t *y, double *margin)
{
    const size_t  in   = x->shape[x->ndim - 1];
    const size_t  out  = program->params[step->weight].shape[0];
    const size_t  rows = x->count / in;
    const double *w    = params[step->weight];
    size_t        shape[DDP_MAX_DIMS];

    memcpy(shape, x->shape, sizeof(shape));
    shape[x->ndim - 1] = out;
    make(y, x->ndim, shape);
    for (size_t r = 0; r < rows; r++) {
        for (size_t o = 0; o < out; o++) {
            double sum = step->bias == NN_NONE ? 0 : params[step->bias][o];

            for (size_t i = 0; i < in; i++) {
                sum += x->data[r * in + i] * w[o * in + i];
            }
            y->data[r * out + o] = activate(step->act, sum, margin);
        }
    }
}

static double conv_at(const nn_step_t *step, const value_t *x, const nn_param_t *weight, const double *w,
                      size_t n, size_t oy, size_t ox, size_t o)
{
    const size_t in  = weight->shape[1];
    double       sum = 0;

    for (size_t ky = 0; ky < weight->shape[2]; ky++) {
        for (size_t kx = 0; kx < weight->shape[3]; kx++) {
            const size_t iy = oy * step->stride + ky - step->pad; /* wraps below 0, and is then too large */
            const size_t ix = ox * step->stride + kx - step->pad;

            if (iy >= x->shape[1] || ix >= x->shape[2]) {
                continue;
            }
            for (size_t c = 0; c < in; c++) {
                sum += x->data[((n * x->shape[1] + iy) * x->shape[2] + ix) * in + c] *
                       w[((o * in + c) * weight->shape[2] + ky) * weight->shape[3] + kx];
            }
        }
    }
    return sum;
}

static void conv(const nn_program_t *program, const nn_step_t *step, const double *const *params,
                 const value_t *x, value_t *y, double *margin)
{
    const nn_param_t *weight = &program->params[step->weight];
    const size_t shape[4] = {x->shape[0], (x->shape[1] + 2 * step->pad - weight->shape[2]) / step->stride + 1,
                             (x->shape[2] + 2 * step->pad - weight->shape[3]) / step->stride + 1,
                             weight->shape[0]};

    make(y, 4, shape);
    for (size_t i = 0; i < y->count; i++) {
        const size_t o    = i % shape[3];
        const size_t ox   = i / shape[3] % shape[2];
        const size_t oy   = i / shape[3] / shape[2] % shape[1];
        const size_t n    = i / shape[3] / shape[2] / shape[1];
        const double bias = step->bias == NN_NONE ? 0 : params[step->bias][o];

        y->data[i] =
            activate(step->act, bias + conv_at(step, x, weight, params[step->weight], n, oy, ox, o), margin);
    }
}

static double pool_at(const nn_step_t *step, const value_t *x, size_t n, size_t oy, size_t ox, size_t c,
                      double *margin)
{
    double best = -INFINITY, second = -INFINITY, sum = 0;

    for (size_t k = 0; k < step->kernel * step->kernel; k++) {
        const size_t iy = oy * step->stride + k / step->kernel - step->pad;
        const size_t ix = ox * step->stride + k % step->kernel - step->pad;
        double       at;

        if (iy >= x->shape[1] || ix >= x->shape[2]) {
            continue;
        }
        at = x->data[((n * x->shape[1] + iy) * x->shape[2] + ix) * x->shape[3] + c];
        sum += at;
        second = at > best ? best : fmax(second, at);
        best   = fmax(best, at);
    }
    if (step->op == NN_AVG_POOL) {
        return sum / (double)(step->kernel * step->kernel);
    }
    if (best != 0 || second != 0) { /* equal zeros are what a ReLU left: no gradient passes either way */
        *margin = fmin(*margin, best - second);
    }
    return best;
}

static void pool(const nn_step_t *step, const value_t *x, value_t *y, double *margin)
{
    const size_t shape[4] = {x->shape[0], (x->shape[1] + 2 * step->pad - step->kernel) / step->stride + 1,
                             (x->shape[2] + 2 * step->pad - step->kernel) / step->stride + 1, x->shape[3]};

    make(y, 4, shape);
    for (size_t i = 0; i < y->count; i++) {
        y->data[i] = pool_at(step, x, i / shape[3] / shape[2] / shape[1], i / shape[3] / shape[2] % shape[1],
                             i / shape[3] % shape[2], i % shape[3], margin);
    }
}

static void flatten(const value_t *x, value_t *y)
{
    const size_t h = x->shape[1], w = x->shape[2], c = x->shape[3];
    const size_t shape[2] = {x->shape[0], h * w * c};

    make(y, 2, shape);
    for (size_t i = 0; i < x->count; i++) {
        const size_t channel = i % c, pixel = i / c % (h * w), n = i / c / (h * w);

        y->data[(n * c + channel) * h * w + pixel] = x->data[i];
    }
}

static void element_wise(const nn_step_t *step, const value_t *values, const double *mask, value_t *y,
                         double *margin)
{
    const value_t *x = &values[step->x];

    make(y, x->ndim, x->shape);
    for (size_t i = 0; i < x->count; i++) {
        switch (step->op) {
        case NN_ACT:
            y->data[i] = activate(step->act, x->data[i], margin);
            break;
        case NN_DROPOUT:
            y->data[i] = x->data[i] * mask[i];
            break;
        default:
            y->data[i] = x->data[i] + values[step->x2].data[i];
        }
    }
}

/* With the mean and variance of each column. */
static void norm(const nn_step_t *step, const double *const *params, const value_t *values, value_t *y,
                 double *margin)
{
    const value_t *x    = &values[step->x];
    const size_t   c    = x->shape[x->ndim - 1];
    const double   rows = (double)(x->count / c);

    make(y, x->ndim, x->shape);
    for (size_t j = 0; j < c; j++) {
        double mean     = 0;
        double variance = 0;

        for (size_t i = j; i < x->count; i += c) {
            mean += x->data[i] / rows;
        }
        for (size_t i = j; i < x->count; i += c) {
            variance += (x->data[i] - mean) * (x->data[i] - mean) / rows;
        }
        for (size_t i = j; i < x->count; i += c) {
            const double residual = step->x2 > 0 ? values[step->x2].data[i] : 0;
            const double scale    = params[step->weight][j] / sqrt(variance + NN_EPS);

            y->data[i] =
                activate(step->act, (x->data[i] - mean) * scale + params[step->bias][j] + residual, margin);
        }
    }
}

static void global_pool(const value_t *x, value_t *y)
{
    const size_t pixels   = x->shape[1] * x->shape[2];
    const size_t c        = x->shape[3];
    const size_t shape[2] = {x->shape[0], c};

    make(y, 2, shape);
    for (size_t i = 0; i < x->count; i++) {
        y->data[i / c / pixels * c + i % c] += x->data[i] / (double)pixels;
    }
}

static void cross_entropy(const nn_program_t *program, const value_t *logits, nn_reference_t *result)
{
    const size_t classes = logits->shape[logits->ndim - 1];

    for (size_t r = 0; r < logits->count / classes; r++) {
        const double *row    = &logits->data[r * classes];
        const double  weight = program->weights == NULL ? 1 : (double)program->weights[r];
        double        sum    = 0;

        if (program->labels[r] < 0) {
            continue;
        }
        for (size_t j = 0; j < classes; j++) {
            sum += exp(row[j] - row[program->labels[r]]);
        }
        result->loss += weight * log(sum);
        result->weight += weight;
    }
}

static void mse(const nn_program_t *program, const value_t *y, nn_reference_t *result)
{
    const size_t width = y->count / y->shape[0];

    for (size_t i = 0; i < y->count; i++) {
        const double weight = program->weights == NULL ? 1 : (double)program->weights[i / width];
        const double d      = y->data[i] - (double)program->target[i];

        result->loss += weight * d * d / (double)width;
        result->weight += i % width == 0 ? weight : 0;
    }
}

void nn_reference_run(const nn_program_t *program, const float *input, const double *const *params,
                      const double *const *masks, nn_reference_t *result)
{
    value_t  values[NN_MAX_STEPS + 1];
    value_t *last = &values[program->n_steps];

    result->loss   = 0;
    result->weight = 0;
    result->margin = INFINITY;
    make(&values[0], program->ndim, program->shape);
    for (size_t i = 0; i < values[0].count; i++) {
        values[0].data[i] = (double)input[i];
    }
    for (size_t i = 0; i < program->n_steps; i++) {
        const nn_step_t *step = &program->steps[i];
        const value_t   *x    = &values[step->x];
        value_t         *y    = &values[i + 1];

        if (step->op == NN_LINEAR) {
            linear(program, step, params, x, y, &result->margin);
        } else if (step->op == NN_CONV) {
            conv(program, step, params, x, y, &result->margin);
        } else if (step->op == NN_MAX_POOL || step->op == NN_AVG_POOL) {
            pool(step, x, y, &result->margin);
        } else if (step->op == NN_FLATTEN) {
            flatten(x, y);
        } else if (step->op == NN_NORM) {
            norm(step, params, values, y, &result->margin);
        } else if (step->op == NN_GLOBAL_POOL) {
            global_pool(x, y);
        } else {
            element_wise(step, values, masks == NULL ? NULL : masks[i], y, &result->margin);
        }
    }
    if (program->labels != NULL) {
        cross_entropy(program, last, result);
    } else {
        mse(program, last, result);
    }
    ck_assert_uint_le(last->count, sizeof(result->logits) / sizeof(double));
    memcpy(result->logits, last->data, last->count * sizeof(double));
    for (size_t i = 0; i <= program->n_steps; i++) {
        free(values[i].data);
    }
}
