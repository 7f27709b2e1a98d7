#include "tests/cudnn/interpreter_internal.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TENSORS 64

/* As ck_assert(), which is too slow here: it reports each success, too. */
#define NEED(cond)                                                                                           \
    do {                                                                                                     \
        if (!(cond)) {                                                                                       \
            ck_abort_msg("not so: %s", #cond);                                                               \
        }                                                                                                    \
    } while (0)

/* A tensor while a graph runs: values by their place in memory, so that strides mean what they mean there. */
typedef struct tensor {
    int64_t         uid;
    cudnnDataType_t type;
    int64_t         dims[4], strides[4];
    double         *values; /* owned, [span] */
    int64_t         span;
    void           *memory; /* NULL: an inner one */
    bool            is_written;
} tensor_t;

typedef struct run {
    tensor_t                tensors[TENSORS];
    int                     n_tensors;
    const ddp_descriptor_t *pack;
} run_t;

static int64_t number(const ddp_descriptor_t *d, cudnnBackendAttributeName_t name)
{
    return *(const int64_t *)ddp_attribute_find(d, name)->elements;
}

static int word(const ddp_descriptor_t *d, cudnnBackendAttributeName_t name)
{
    return *(const int *)ddp_attribute_find(d, name)->elements;
}

/* Rounding of the kinds of floats, nearest even. */
static double rounded(double x, cudnnDataType_t type)
{
    if (type == CUDNN_DATA_BFLOAT16 || type == CUDNN_DATA_HALF) {
        const int bits = type == CUDNN_DATA_BFLOAT16 ? 8 : 11;
        int       exponent;
        double    fraction = frexp(x, &exponent);

        return isfinite(x) ? ldexp(nearbyint(ldexp(fraction, bits)), exponent - bits) : x;
    }
    return type == CUDNN_DATA_FLOAT ? (double)(float)x : x;
}

static size_t bytes_of(cudnnDataType_t type)
{
    return type == CUDNN_DATA_BFLOAT16 || type == CUDNN_DATA_HALF ? 2 : 4;
}

static double load(const void *memory, int64_t at, cudnnDataType_t type)
{
    if (type == CUDNN_DATA_BFLOAT16) {
        const uint32_t bits = (uint32_t)((const uint16_t *)memory)[at] << 16;
        float          x;

        memcpy(&x, &bits, sizeof(x));
        return (double)x;
    }
    if (type == CUDNN_DATA_HALF) {
        const uint16_t bits = ((const uint16_t *)memory)[at];
        const int      e    = bits >> 10 & 31;
        const double   f    = (double)(bits & 1023);
        const double   x =
            e == 31 ? (f != 0 ? NAN : INFINITY) : ldexp(e == 0 ? f : f + 1024, (e | (e == 0)) - 25);

        return bits >> 15 != 0 ? -x : x;
    }
    return (double)((const float *)memory)[at];
}

static uint16_t half_bits(double x)
{
    const uint16_t sign = signbit(x) ? 0x8000 : 0;
    int            e;
    double         f = frexp(fabs(x), &e); /* in [0.5, 1) */

    if (isnan(x)) {
        return 0x7e00;
    }
    if (x == 0 || isinf(x) || e > 16) {
        return (uint16_t)(sign | (x == 0 ? 0 : 0x7c00));
    }
    if (e < -13) { /* a subnormal */
        return (uint16_t)(sign | (uint16_t)nearbyint(ldexp(f, e + 24)));
    }
    return (uint16_t)(sign + (uint16_t)((e + 13) << 10) + (uint16_t)nearbyint(ldexp(f, 11)));
}

static void store(void *memory, int64_t at, cudnnDataType_t type, double x)
{
    const float r = (float)rounded(x, type);
    uint32_t    bits;

    memcpy(&bits, &r, sizeof(bits));
    if (type == CUDNN_DATA_BFLOAT16) {
        ((uint16_t *)memory)[at] = (uint16_t)(bits >> 16);
    } else if (type == CUDNN_DATA_HALF) {
        ((uint16_t *)memory)[at] = half_bits(x);
    } else {
        ((float *)memory)[at] = (float)x;
    }
}

static void *address_of(const ddp_descriptor_t *pack, int64_t uid)
{
    const ddp_attribute_t *uids = ddp_attribute_find(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);

    for (int64_t i = 0; i < uids->count; i++) {
        if (((const int64_t *)uids->elements)[i] == uid) {
            return ((void **)ddp_attribute_find(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS)->elements)[i];
        }
    }
    return NULL;
}

static void copy(void (*by)(void *to, const void *from, size_t bytes), void *to, const void *from,
                 size_t bytes)
{
    if (by != NULL) {
        by(to, from, bytes);
    } else {
        memcpy(to, from, bytes);
    }
}

/* Read all that a tensor spans in memory. Values are of the host. */
static void fetch(tensor_t *t, bool is_value)
{
    const size_t bytes = (size_t)t->span * bytes_of(t->type);
    void        *raw   = malloc(bytes);

    copy(is_value ? NULL : ddp_interpreter.read, raw, t->memory, bytes);
    for (int64_t i = 0; i < t->span; i++) {
        t->values[i] = load(raw, i, t->type);
    }
    free(raw);
}

static tensor_t *tensor_of(run_t *run, const ddp_descriptor_t *d)
{
    const bool is_inner = *(const bool *)ddp_attribute_find(d, CUDNN_ATTR_TENSOR_IS_VIRTUAL)->elements;
    const bool is_value = *(const bool *)ddp_attribute_find(d, CUDNN_ATTR_TENSOR_IS_BY_VALUE)->elements;
    tensor_t  *t        = &run->tensors[run->n_tensors];

    for (int i = 0; i < run->n_tensors; i++) {
        if (run->tensors[i].uid == number(d, CUDNN_ATTR_TENSOR_UNIQUE_ID)) {
            return &run->tensors[i];
        }
    }
    NEED(run->n_tensors < TENSORS);
    run->n_tensors++;
    t->uid  = number(d, CUDNN_ATTR_TENSOR_UNIQUE_ID);
    t->type = (cudnnDataType_t)word(d, CUDNN_ATTR_TENSOR_DATA_TYPE);
    memcpy(t->dims, ddp_attribute_find(d, CUDNN_ATTR_TENSOR_DIMENSIONS)->elements, sizeof(t->dims));
    memcpy(t->strides, ddp_attribute_find(d, CUDNN_ATTR_TENSOR_STRIDES)->elements, sizeof(t->strides));
    t->span = 1;
    for (int i = 0; i < 4; i++) {
        t->span += (t->dims[i] - 1) * t->strides[i];
    }
    t->values = calloc((size_t)t->span, sizeof(double));
    if (!is_inner) {
        t->memory = address_of(run->pack, t->uid);
        NEED(t->memory != NULL);
        fetch(t, is_value);
    }
    return t;
}

static tensor_t *operand(run_t *run, const ddp_descriptor_t *op, cudnnBackendAttributeName_t name)
{
    const ddp_descriptor_t *d = ddp_attribute_part(op, name);

    return d == NULL ? NULL : tensor_of(run, d);
}

/* The element at coordinates; a dimension of 1 stands for any length. */
static double *at(const tensor_t *t, const int64_t c[4])
{
    int64_t offset = 0;

    for (int i = 0; i < 4; i++) {
        offset += t->dims[i] == 1 ? 0 : c[i] * t->strides[i];
    }
    NEED(offset < t->span);
    return &t->values[offset];
}

static void put(tensor_t *t, const int64_t c[4], double x)
{
    *at(t, c)     = rounded(x, t->type);
    t->is_written = true;
}

/* for (each coordinate `c` of `t`) */
#define EACH(c, t)                                                                                           \
    for (int64_t c[4] = {0}; c[0] < (t)->dims[0]; c[0]++)                                                    \
        for (c[1] = 0; c[1] < (t)->dims[1]; c[1]++)                                                          \
            for (c[2] = 0; c[2] < (t)->dims[2]; c[2]++)                                                      \
                for (c[3] = 0; c[3] < (t)->dims[3]; c[3]++)

static double point(cudnnPointwiseMode_t mode, double x, double b, double which)
{
    switch (mode) {
    case CUDNN_POINTWISE_ADD:
        return x + b;
    case CUDNN_POINTWISE_SUB:
        return x - b;
    case CUDNN_POINTWISE_MUL:
        return x * b;
    case CUDNN_POINTWISE_DIV:
        return x / b;
    case CUDNN_POINTWISE_EXP:
        return exp(x);
    case CUDNN_POINTWISE_LOG:
        return log(x);
    case CUDNN_POINTWISE_IDENTITY:
        return x;
    case CUDNN_POINTWISE_RELU_FWD:
        return x > 0 ? x : 0;
    case CUDNN_POINTWISE_CMP_GE:
        return x >= b ? 1 : 0;
    case CUDNN_POINTWISE_BINARY_SELECT:
        return which != 0 ? x : b;
    default:
        ck_abort_msg("the interpreter does not know mode %d", (int)mode);
        return NAN;
    }
}

static void run_pointwise(run_t *run, const ddp_descriptor_t *op)
{
    const ddp_descriptor_t    *how  = ddp_attribute_part(op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    const cudnnPointwiseMode_t mode = (cudnnPointwiseMode_t)word(how, CUDNN_ATTR_POINTWISE_MODE);
    const tensor_t            *x    = operand(run, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
    const tensor_t            *b    = operand(run, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
    const tensor_t            *t    = operand(run, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC);
    tensor_t                  *y    = operand(run, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);

    EACH(c, y)
    {
        if (mode == CUDNN_POINTWISE_GEN_INDEX) {
            put(y, c, (double)c[number(how, CUDNN_ATTR_POINTWISE_AXIS)]);
        } else {
            put(y, c, point(mode, *at(x, c), b != NULL ? *at(b, c) : 0, t != NULL ? *at(t, c) : 0));
        }
    }
}

static void run_matmul(run_t *run, const ddp_descriptor_t *op)
{
    const tensor_t *a = operand(run, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC);
    const tensor_t *b = operand(run, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC);
    tensor_t       *y = operand(run, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC);

    NEED(a->dims[3] == b->dims[2] && a->dims[2] == y->dims[2] && b->dims[3] == y->dims[3]);
    EACH(c, y)
    {
        double sum = 0;

        for (int64_t k = 0; k < a->dims[3]; k++) {
            sum += *at(a, (int64_t[4]){c[0], c[1], c[2], k}) * *at(b, (int64_t[4]){c[0], c[1], k, c[3]});
        }
        put(y, c, sum);
    }
}

static void run_reduction(run_t *run, const ddp_descriptor_t *op)
{
    const ddp_descriptor_t *how    = ddp_attribute_part(op, CUDNN_ATTR_OPERATION_REDUCTION_DESC);
    const bool              is_max = word(how, CUDNN_ATTR_REDUCTION_OPERATOR) == CUDNN_REDUCE_TENSOR_MAX;
    const tensor_t         *x      = operand(run, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC);
    tensor_t               *y      = operand(run, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC);

    EACH(c, y)
    {
        *at(y, c) = is_max ? -INFINITY : 0;
    }
    EACH(c, x)
    {
        const double old = *at(y, c);

        put(y, c, is_max ? fmax(old, *at(x, c)) : old + *at(x, c));
    }
}

/* The same memory with other dimensions and strides. */
static void run_reshape(run_t *run, const ddp_descriptor_t *op)
{
    const tensor_t *x = operand(run, op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC);
    tensor_t       *y = operand(run, op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC);

    NEED(x->span == y->span);
    for (int64_t i = 0; i < x->span; i++) {
        y->values[i] = rounded(x->values[i], y->type);
    }
}

/* What the three convolutions have in common: dimensions are N, C, H, W, of weights out, in, h, w. */
typedef struct conv {
    tensor_t *x, *w, *y;
    tensor_t *result; /* one of them */
    int64_t   stride, pad;
    double    beta;
} conv_t;

/* The result is cleared, or kept with beta 1; then each product is added where it belongs. */
static void run_conv(const conv_t *conv)
{
    EACH(c, conv->result)
    {
        put(conv->result, c, conv->beta == 0 ? 0 : conv->beta * *at(conv->result, c));
    }
    EACH(c, conv->y)
    {
        const int64_t n = c[0];

        EACH(k, conv->w)
        {
            const int64_t h = c[2] * conv->stride - conv->pad + k[2];
            const int64_t w = c[3] * conv->stride - conv->pad + k[3];
            double       *x, *f, *y;

            if (k[0] != c[1] || h < 0 || w < 0 || h >= conv->x->dims[2] || w >= conv->x->dims[3]) {
                continue;
            }
            x = at(conv->x, (int64_t[4]){n, k[1], h, w});
            f = at(conv->w, k);
            y = at(conv->y, c);
            if (conv->result == conv->x) {
                *x += *f * *y;
            } else if (conv->result == conv->w) {
                *f += *x * *y;
            } else {
                *y += *x * *f;
            }
        }
    }
}

static void run_convolution(run_t *run, const ddp_descriptor_t *op)
{
    const ddp_descriptor_t *how = NULL;
    conv_t                  conv;
    float                   alpha;

#define OPERANDS(kind, x_name, w_name, y_name, result_name)                                                  \
    conv.x = operand(run, op, CUDNN_ATTR_OPERATION_CONVOLUTION_##kind##_##x_name);                           \
    conv.w = operand(run, op, CUDNN_ATTR_OPERATION_CONVOLUTION_##kind##_##w_name);                           \
    conv.y = operand(run, op, CUDNN_ATTR_OPERATION_CONVOLUTION_##kind##_##y_name);                           \
    how    = ddp_attribute_part(op, CUDNN_ATTR_OPERATION_CONVOLUTION_##kind##_CONV_DESC);                    \
    alpha =                                                                                                  \
        *(const float *)ddp_attribute_find(op, CUDNN_ATTR_OPERATION_CONVOLUTION_##kind##_ALPHA)->elements;   \
    conv.beta =                                                                                              \
        (double)*(const float *)ddp_attribute_find(op, CUDNN_ATTR_OPERATION_CONVOLUTION_##kind##_BETA)       \
            ->elements;                                                                                      \
    conv.result = conv.result_name
    if (op->type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR) {
        OPERANDS(FORWARD, X, W, Y, y);
    } else if (op->type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR) {
        OPERANDS(BWD_DATA, DX, W, DY, x);
    } else {
        OPERANDS(BWD_FILTER, X, DW, DY, w);
    }
#undef OPERANDS
    NEED(alpha == 1.0F);
    conv.stride = number(how, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES);
    conv.pad    = number(how, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
    run_conv(&conv);
}

static void run_op(run_t *run, const ddp_descriptor_t *op)
{
    switch (op->type) {
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
        run_pointwise(run, op);
        break;
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
        run_matmul(run, op);
        break;
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
        run_reduction(run, op);
        break;
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
        run_reshape(run, op);
        break;
    default:
        run_convolution(run, op);
    }
}

/* What lies between the elements of a tensor with strides stays as it is. */
static void write_back(const tensor_t *t)
{
    const size_t bytes = (size_t)t->span * bytes_of(t->type);
    void        *raw   = malloc(bytes);

    copy(ddp_interpreter.read, raw, t->memory, bytes);
    EACH(c, t)
    {
        const int64_t offset = at(t, c) - t->values;

        store(raw, offset, t->type, t->values[offset]);
    }
    copy(ddp_interpreter.write, t->memory, raw, bytes);
    free(raw);
}

void ddp_interpreter_run(const ddp_descriptor_t *graph, const ddp_descriptor_t *pack)
{
    const ddp_attribute_t *ops = ddp_attribute_find(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS);
    run_t                  run = {.pack = pack};

    for (int64_t i = 0; i < ops->count; i++) {
        run_op(&run, ((ddp_descriptor_t *const *)ops->elements)[i]);
    }
    for (int i = 0; i < run.n_tensors; i++) {
        if (run.tensors[i].memory != NULL && run.tensors[i].is_written) {
            write_back(&run.tensors[i]);
        }
        free(run.tensors[i].values);
    }
}
