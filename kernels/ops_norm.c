#include "kernels/ops_norm.h"

#include "base/error.h"
#include "kernels/ops_dispatch_internal.h"
#include "kernels/ops_internal.h"

static ddp_status_t check_shape(const char *op, size_t rows, size_t c, ddp_act_t act)
{
    ddp_status_t status = DDP_OK;

    DDP_REQUIRE(act == DDP_ACT_NONE || act == DDP_ACT_RELU, DDP_ERR_INVALID_ARG,
                "%s: only no activation or relu can be fused", op);
    DDP_REQUIRE(rows == 0 || c > 0, DDP_ERR_INVALID_ARG, "%s: no channels", op);
    DDP_TRY(ddp_check_volume(op, rows, c, 1, 1));
out:
    return status;
}

/** Two vectors that are both wanted, or neither. */
static ddp_status_t check_pair(const char *op, const char *names, const float *a, const float *b)
{
    return (a == NULL) == (b == NULL)
               ? DDP_OK
               : ddp_fail(DDP_ERR_INVALID_ARG, "%s: %s are both given, or neither", op, names);
}

ddp_status_t ddp_op_batch_norm(ddp_stream_t *stream, const ddp_batch_norm_args_t *args)
{
    static const char op[]   = "batch norm";
    ddp_status_t      status = DDP_OK;

    DDP_TRY(ddp_check_call(op, stream, args));
    DDP_TRY(check_shape(op, args->rows, args->c, args->act));
    DDP_REQUIRE(args->eps >= 0.0F, DDP_ERR_INVALID_ARG, "%s: eps %g is below 0", op, (double)args->eps);
    DDP_TRY(check_pair(op, "running_mean and running_var", args->running_mean, args->running_var));
    DDP_TRY(check_pair(op, "mean and rstd", args->mean, args->rstd));
    DDP_TRY(check_pair(op, "mean_sum and var_sum", args->mean_sum, args->var_sum));
    DDP_REQUIRE(args->rows != 1 || args->running_mean != NULL, DDP_ERR_INVALID_ARG,
                "%s: a single value in each of %zu channels has no variance; training needs larger images or "
                "more samples in a micro-batch",
                op, args->c);
    DDP_TRY(ddp_check_operand(op, "x", args->x, args->rows));
    DDP_TRY(ddp_check_operand(op, "gamma", args->gamma, args->rows));
    DDP_TRY(ddp_check_operand(op, "beta", args->beta, args->rows));
    DDP_TRY(ddp_check_operand(op, "y", args->y, args->rows));
    DDP_TRY(DDP_CALL_OP(stream, batch_norm, args));
out:
    return status;
}

ddp_status_t ddp_op_batch_norm_backward(ddp_stream_t *stream, const ddp_batch_norm_backward_args_t *args)
{
    static const char op[]   = "batch norm backward";
    ddp_status_t      status = DDP_OK;

    DDP_TRY(ddp_check_call(op, stream, args));
    DDP_TRY(check_shape(op, args->rows, args->c, args->act));
    DDP_REQUIRE(args->dx == NULL || args->dx != args->dresidual, DDP_ERR_INVALID_ARG,
                "%s: dx can not be dresidual", op);
    DDP_REQUIRE(args->dx == NULL || args->dx != args->dy || !args->accumulate_dx, DDP_ERR_INVALID_ARG,
                "%s: dx can not be dy and accumulate", op);
    DDP_REQUIRE(args->dresidual == NULL || args->dresidual != args->dy || !args->accumulate_dresidual,
                DDP_ERR_INVALID_ARG, "%s: dresidual can not be dy and accumulate", op);
    DDP_TRY(ddp_check_operand(op, "x", args->x, args->rows));
    DDP_TRY(ddp_check_operand(op, "dy", args->dy, args->rows));
    DDP_TRY(ddp_check_operand(op, "gamma", args->gamma, args->rows));
    DDP_TRY(ddp_check_operand(op, "beta", args->beta, args->rows));
    DDP_TRY(ddp_check_operand(op, "mean", args->mean, args->rows));
    DDP_TRY(ddp_check_operand(op, "rstd", args->rstd, args->rows));
    DDP_TRY(DDP_CALL_OP(stream, batch_norm_backward, args));
out:
    return status;
}

static ddp_status_t check_pixels(const char *op, size_t n, size_t pixels, size_t c)
{
    ddp_status_t status = DDP_OK;

    DDP_REQUIRE(n * c == 0 || pixels > 0, DDP_ERR_INVALID_ARG, "%s: images have no pixels", op);
    DDP_TRY(ddp_check_volume(op, n, pixels, c, 1));
out:
    return status;
}

ddp_status_t ddp_op_global_avg_pool(ddp_stream_t *stream, const ddp_global_avg_pool_args_t *args)
{
    static const char op[]   = "global average pool";
    ddp_status_t      status = DDP_OK;

    DDP_TRY(ddp_check_call(op, stream, args));
    DDP_TRY(check_pixels(op, args->n, args->pixels, args->c));
    DDP_TRY(ddp_check_operand(op, "x", args->x, args->n * args->c));
    DDP_TRY(ddp_check_operand(op, "y", args->y, args->n * args->c));
    DDP_TRY(DDP_CALL_OP(stream, global_avg_pool, args));
out:
    return status;
}

ddp_status_t ddp_op_global_avg_pool_backward(ddp_stream_t                              *stream,
                                             const ddp_global_avg_pool_backward_args_t *args)
{
    static const char op[]   = "global average pool backward";
    ddp_status_t      status = DDP_OK;

    DDP_TRY(ddp_check_call(op, stream, args));
    DDP_TRY(check_pixels(op, args->n, args->pixels, args->c));
    DDP_TRY(ddp_check_operand(op, "dy", args->dy, args->n * args->c));
    DDP_TRY(ddp_check_operand(op, "dx", args->dx, args->n * args->c));
    DDP_TRY(DDP_CALL_OP(stream, global_avg_pool_backward, args));
out:
    return status;
}
