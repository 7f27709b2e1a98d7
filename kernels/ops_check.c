#include "kernels/ops_internal.h"

#include "base/convert.h"
#include "base/error.h"

#define MAX_POOL_KERNEL 15 /* position in the window is one byte */

ddp_status_t ddp_check_operand(const char *op, const char *what, const void *memory, size_t count)
{
    return memory != NULL || count == 0 ? DDP_OK
                                        : ddp_fail(DDP_ERR_INVALID_ARG, "%s: no memory for %s", op, what);
}

ddp_status_t ddp_check_act(const char *op, ddp_act_t act)
{
    return act >= DDP_ACT_NONE && act <= DDP_ACT_GELU_TANH
               ? DDP_OK
               : ddp_fail(DDP_ERR_INVALID_ARG, "%s: no activation has number %d", op, (int)act);
}

ddp_status_t ddp_check_precision(const char *op, ddp_precision_t precision)
{
    ddp_status_t status = DDP_OK;

    DDP_REQUIRE((unsigned)precision <= DDP_PRECISION_FP16, DDP_ERR_INVALID_ARG,
                "%s: no precision has number %d", op, (int)precision);
out:
    return status;
}

ddp_status_t ddp_check_call(const char *op, const ddp_stream_t *stream, const void *args)
{
    return stream != NULL && args != NULL
               ? DDP_OK
               : ddp_fail(DDP_ERR_INVALID_ARG, "%s: no stream or no arguments", op);
}

/* rows x columns floats with rows `ld` apart fit where `memory` is */
static ddp_status_t check_matrix(const char *what, const void *memory, size_t rows, size_t columns, size_t ld)
{
    ddp_status_t status = DDP_OK;
    size_t       bytes;

    if (rows == 0 || columns == 0) {
        return DDP_OK;
    }
    DDP_TRY(ddp_check_operand("gemm", what, memory, 1));
    DDP_REQUIRE(ld >= columns, DDP_ERR_INVALID_ARG, "gemm: rows of %s are %zu floats apart but %zu long",
                what, ld, columns);
    DDP_TRY(ddp_mul_size(ld, sizeof(float), "gemm", &bytes));
    DDP_TRY(ddp_mul_size(bytes, rows, "gemm", &bytes));
out:
    return status;
}

ddp_status_t ddp_check_gemm(const ddp_gemm_args_t *args)
{
    ddp_status_t status = DDP_OK;
    const bool   ta     = args->transpose_a;
    const bool   tb     = args->transpose_b;

    DDP_REQUIRE(!(ta && tb), DDP_ERR_INVALID_ARG, "gemm: at most one of A and B can be transposed");
    DDP_TRY(ddp_check_act("gemm", args->act));
    DDP_TRY(ddp_check_precision("gemm", args->precision));
    if (args->m == 0 || args->n == 0) {
        return DDP_OK;
    }
    DDP_TRY(check_matrix("A", args->a, ta ? args->k : args->m, ta ? args->m : args->k, args->lda));
    DDP_TRY(check_matrix("B", args->b, tb ? args->n : args->k, tb ? args->k : args->n, args->ldb));
    DDP_TRY(check_matrix("C", args->c, args->m, args->n, args->ldc));
out:
    return status;
}

ddp_status_t ddp_check_volume(const char *op, size_t a, size_t b, size_t c, size_t d)
{
    ddp_status_t status = DDP_OK;
    size_t       bytes  = sizeof(float);

    DDP_TRY(ddp_mul_size(bytes, a, op, &bytes));
    DDP_TRY(ddp_mul_size(bytes, b, op, &bytes));
    DDP_TRY(ddp_mul_size(bytes, c, op, &bytes));
    DDP_TRY(ddp_mul_size(bytes, d, op, &bytes));
out:
    return status;
}

ddp_status_t ddp_conv2d_shape_fill(ddp_conv2d_shape_t *shape)
{
    ddp_status_t       status = DDP_OK;
    ddp_conv2d_shape_t s      = *shape;

    DDP_REQUIRE(s.in_h > 0 && s.in_w > 0 && s.in_c > 0 && s.out_c > 0 && s.kernel_h > 0 && s.kernel_w > 0 &&
                    s.stride > 0,
                DDP_ERR_INVALID_ARG, "conv2d: image, channels, kernel and stride must not be 0");
    DDP_REQUIRE(s.pad <= (SIZE_MAX - s.in_h) / 2 && s.pad <= (SIZE_MAX - s.in_w) / 2, DDP_ERR_INVALID_ARG,
                "conv2d: padding %zu is out of range", s.pad);
    DDP_REQUIRE(s.kernel_h <= s.in_h + 2 * s.pad && s.kernel_w <= s.in_w + 2 * s.pad, DDP_ERR_INVALID_ARG,
                "conv2d: a kernel of %zux%zu does not fit in an image of %zux%zu with padding %zu",
                s.kernel_h, s.kernel_w, s.in_h, s.in_w, s.pad);
    shape->out_h = (s.in_h + 2 * s.pad - s.kernel_h) / s.stride + 1;
    shape->out_w = (s.in_w + 2 * s.pad - s.kernel_w) / s.stride + 1;
out:
    return status;
}

/* Multiplications of one pair of channels for an image: F(m x m) has (m + 2)^2 for each tile. */
static double winograd_cost(const ddp_conv2d_shape_t *s, size_t m)
{
    const size_t down   = (s->out_h + m - 1) / m;
    const size_t across = (s->out_w + m - 1) / m;

    return (double)down * (double)across * (double)((m + 2) * (m + 2));
}

ddp_conv_algo_t ddp_conv2d_algo(const ddp_conv2d_shape_t *s)
{
    const double direct = 9.0 * (double)s->out_h * (double)s->out_w;

    if (s->kernel_h != 3 || s->kernel_w != 3 || s->stride != 1 || s->in_c < 16 || s->out_c < 16 ||
        s->precision != DDP_PRECISION_FLOAT32) { /* Winograd's transforms lose the bits that bfloat16 has */
        return DDP_CONV_DIRECT;
    }
    if (s->algo != DDP_CONV_AUTO) {
        return s->algo;
    }
    return 2.0 * winograd_cost(s, 4) <= direct ? DDP_CONV_WINOGRAD4 : DDP_CONV_DIRECT;
}

ddp_status_t ddp_check_conv2d_shape(const ddp_conv2d_shape_t *shape)
{
    ddp_status_t       status = DDP_OK;
    ddp_conv2d_shape_t s      = *shape;

    DDP_TRY(ddp_conv2d_shape_fill(&s));
    DDP_REQUIRE((unsigned)s.algo <= DDP_CONV_WINOGRAD4, DDP_ERR_INVALID_ARG,
                "conv2d: algorithm %d is not known", (int)s.algo);
    DDP_TRY(ddp_check_precision("conv2d", s.precision));
    DDP_REQUIRE(s.out_h == shape->out_h && s.out_w == shape->out_w, DDP_ERR_INVALID_ARG,
                "conv2d: output is %zux%zu, not %zux%zu; call ddp_conv2d_shape_fill()", s.out_h, s.out_w,
                shape->out_h, shape->out_w);
    DDP_TRY(ddp_check_volume("conv2d", s.n, s.in_h + 2 * s.pad, s.in_w + 2 * s.pad, s.in_c));
    DDP_TRY(ddp_check_volume("conv2d", s.n, s.out_h, s.out_w, s.out_c));
    DDP_TRY(ddp_check_volume("conv2d", s.out_c, s.in_c, s.kernel_h, s.kernel_w));
out:
    return status;
}

ddp_status_t ddp_check_conv2d(const ddp_conv2d_args_t *args)
{
    ddp_status_t status = DDP_OK;
    const size_t n      = args->shape.n;

    DDP_TRY(ddp_check_conv2d_shape(&args->shape));
    DDP_REQUIRE(args->act == DDP_ACT_NONE || args->act == DDP_ACT_RELU, DDP_ERR_INVALID_ARG,
                "conv2d: only no activation or relu can be fused");
    DDP_TRY(ddp_check_operand("conv2d", "x", args->x, n));
    DDP_TRY(ddp_check_operand("conv2d", "w", args->w, n));
    DDP_TRY(ddp_check_operand("conv2d", "y", args->y, n));
    DDP_TRY(ddp_check_operand("conv2d", "scratch", args->scratch, n));
out:
    return status;
}

ddp_status_t ddp_check_conv2d_backward(const ddp_conv2d_backward_args_t *args)
{
    ddp_status_t status = DDP_OK;
    const size_t n      = args->shape.n;

    DDP_TRY(ddp_check_conv2d_shape(&args->shape));
    DDP_TRY(ddp_check_operand("conv2d backward", "x", args->x, args->dw != NULL ? n : 0));
    DDP_TRY(ddp_check_operand("conv2d backward", "w", args->w, args->dx != NULL ? n : 0));
    DDP_TRY(ddp_check_operand("conv2d backward", "dy", args->dy, n));
    DDP_TRY(ddp_check_operand("conv2d backward", "scratch", args->scratch, n));
out:
    return status;
}

static ddp_status_t check_pool_shape(const ddp_pool2d_args_t *args)
{
    ddp_status_t status = DDP_OK;
    const size_t k      = args->kernel;
    const size_t p      = args->pad;

    DDP_REQUIRE(k > 0 && args->stride > 0, DDP_ERR_INVALID_ARG, "pool2d: kernel and stride must not be 0");
    DDP_REQUIRE(!args->is_max || k <= MAX_POOL_KERNEL, DDP_ERR_INVALID_ARG,
                "max pool: a kernel of %zu is too large, at most %d", k, MAX_POOL_KERNEL);
    DDP_REQUIRE(p <= k / 2, DDP_ERR_INVALID_ARG, "pool2d: padding %zu is more than half of kernel %zu", p, k);
    DDP_REQUIRE(args->in_h + 2 * p >= k && args->in_w + 2 * p >= k, DDP_ERR_INVALID_ARG,
                "pool2d: a kernel of %zu does not fit in an image of %zux%zu with padding %zu", k, args->in_h,
                args->in_w, p);
    DDP_REQUIRE(args->out_h == (args->in_h + 2 * p - k) / args->stride + 1 &&
                    args->out_w == (args->in_w + 2 * p - k) / args->stride + 1,
                DDP_ERR_INVALID_ARG, "pool2d: output is %zux%zu, not %zux%zu",
                (args->in_h + 2 * p - k) / args->stride + 1, (args->in_w + 2 * p - k) / args->stride + 1,
                args->out_h, args->out_w);
    DDP_TRY(ddp_check_volume("pool2d", args->n, args->in_h, args->in_w, args->c));
out:
    return status;
}

ddp_status_t ddp_check_pool2d(const ddp_pool2d_args_t *args)
{
    ddp_status_t status = DDP_OK;
    const size_t count  = args->n * args->c;

    DDP_TRY(check_pool_shape(args));
    DDP_TRY(ddp_check_operand("pool2d", "x", args->x, count));
    DDP_TRY(ddp_check_operand("pool2d", "y", args->y, count));
    DDP_TRY(ddp_check_operand("max pool", "index", args->index, args->is_max ? count : 0));
out:
    return status;
}

ddp_status_t ddp_check_pool2d_backward(const ddp_pool2d_backward_args_t *args)
{
    const ddp_pool2d_args_t *forward = &args->forward;
    ddp_status_t             status  = DDP_OK;
    const size_t             count   = forward->n * forward->c;

    DDP_TRY(check_pool_shape(forward));
    DDP_TRY(ddp_check_operand("pool2d backward", "dy", args->dy, count));
    DDP_TRY(ddp_check_operand("pool2d backward", "dx", args->dx, count));
    DDP_TRY(ddp_check_operand("max pool backward", "index", forward->index, forward->is_max ? count : 0));
out:
    return status;
}

ddp_status_t ddp_check_cross_entropy(const ddp_cross_entropy_args_t *args)
{
    ddp_status_t status = DDP_OK;

    DDP_REQUIRE(args->rows == 0 || args->classes > 0, DDP_ERR_INVALID_ARG, "cross entropy: no classes");
    DDP_REQUIRE(args->classes <= INT32_MAX, DDP_ERR_INVALID_ARG, "cross entropy: %zu classes are too many",
                args->classes);
    DDP_TRY(ddp_check_volume("cross entropy", args->rows, args->classes, 1, 1));
    DDP_TRY(ddp_check_operand("cross entropy", "logits", args->logits, args->rows));
    DDP_TRY(ddp_check_operand("cross entropy", "labels", args->labels, args->rows));
    DDP_TRY(ddp_check_operand("cross entropy", "stats", args->stats, 1));
out:
    return status;
}

ddp_status_t ddp_check_mse(const ddp_mse_args_t *args)
{
    ddp_status_t status = DDP_OK;

    DDP_REQUIRE(args->rows == 0 || args->width > 0, DDP_ERR_INVALID_ARG, "mse: rows have no elements");
    DDP_TRY(ddp_check_volume("mse", args->rows, args->width, 1, 1));
    DDP_TRY(ddp_check_operand("mse", "y", args->y, args->rows));
    DDP_TRY(ddp_check_operand("mse", "target", args->target, args->rows));
    DDP_TRY(ddp_check_operand("mse", "stats", args->stats, 1));
out:
    return status;
}

ddp_status_t ddp_check_place(const char *op, ddp_stream_t *stream, const ddp_rng_key_t *key)
{
    ddp_status_t status = DDP_OK;

    DDP_REQUIRE(key->place == NULL || ddp_device_kind(ddp_stream_device(stream)) == DDP_DEVICE_CUDA,
                DDP_ERR_UNSUPPORTED, "%s: a place in device memory is for cuda devices", op);
out:
    return status;
}

ddp_status_t ddp_check_dropout(const ddp_dropout_args_t *args)
{
    ddp_status_t status = DDP_OK;
    size_t       count;

    DDP_REQUIRE(args->p >= 0.0F && args->p < 1.0F, DDP_ERR_INVALID_ARG, "dropout: p %g is not in [0, 1)",
                (double)args->p);
    DDP_TRY(ddp_check_volume("dropout", args->rows, args->width, 1, 1));
    count = args->rows * args->width;
    DDP_TRY(ddp_check_operand("dropout", "x", args->x, count));
    DDP_TRY(ddp_check_operand("dropout", "y", args->y, count));
out:
    return status;
}

ddp_status_t ddp_check_uniform(const ddp_uniform_args_t *args)
{
    ddp_status_t status = DDP_OK;

    DDP_REQUIRE(args->low <= args->high, DDP_ERR_INVALID_ARG, "uniform: low %g is above high %g",
                (double)args->low, (double)args->high);
    DDP_TRY(ddp_check_operand("uniform", "y", args->y, args->count));
out:
    return status;
}
