#include "kernels/ops_seq.h"

#include "base/error.h"
#include "kernels/ops_dispatch_internal.h"
#include "kernels/ops_internal.h"

/* Extents of an embedding; *count_p is the number of tokens. */
static ddp_status_t check_embedding(const char *op, size_t sequences, size_t length, size_t vocab,
                                    size_t width, size_t *count_p)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(ddp_check_volume(op, sequences, length, width, 1));
    DDP_TRY(ddp_check_volume(op, vocab, width, 1, 1));
    *count_p = sequences * length;
    DDP_REQUIRE(*count_p == 0 || (vocab > 0 && vocab <= INT32_MAX), DDP_ERR_INVALID_ARG,
                "%s: a vocabulary of %zu", op, vocab);
out:
    return status;
}

ddp_status_t ddp_op_embedding(ddp_stream_t *stream, const ddp_embedding_args_t *args)
{
    ddp_status_t status = DDP_OK;
    size_t       count  = 0;

    DDP_TRY(ddp_check_call("embedding", stream, args));
    DDP_TRY(check_embedding("embedding", args->sequences, args->length, args->vocab, args->width, &count));
    DDP_TRY(ddp_check_operand("embedding", "tokens", args->tokens, count));
    DDP_TRY(ddp_check_operand("embedding", "the table", args->table, count));
    DDP_TRY(ddp_check_operand("embedding", "y", args->y, count));
    DDP_TRY(DDP_CALL_OP(stream, embedding, args));
out:
    return status;
}

ddp_status_t ddp_op_embedding_backward(ddp_stream_t *stream, const ddp_embedding_backward_args_t *args)
{
    static const char op[]   = "embedding backward";
    ddp_status_t      status = DDP_OK;
    size_t            count  = 0;

    DDP_TRY(ddp_check_call(op, stream, args));
    DDP_TRY(check_embedding(op, args->sequences, args->length, args->vocab, args->width, &count));
    DDP_REQUIRE(args->dpositions == NULL || args->n_positions >= args->length, DDP_ERR_INVALID_ARG,
                "%s: sequences of %zu tokens, but %zu positions", op, args->length, args->n_positions);
    DDP_TRY(ddp_check_operand(op, "tokens", args->tokens, count));
    DDP_TRY(ddp_check_operand(op, "dy", args->dy, count));
    DDP_TRY(DDP_CALL_OP(stream, embedding_backward, args));
out:
    return status;
}

static ddp_status_t check_norm(const char *op, size_t rows, size_t width)
{
    ddp_status_t status = DDP_OK;

    DDP_REQUIRE(rows == 0 || width > 0, DDP_ERR_INVALID_ARG, "%s: rows have no elements", op);
    DDP_TRY(ddp_check_volume(op, rows, width, 1, 1));
out:
    return status;
}

ddp_status_t ddp_op_layer_norm(ddp_stream_t *stream, const ddp_layer_norm_args_t *args)
{
    static const char op[]   = "layer norm";
    ddp_status_t      status = DDP_OK;

    DDP_TRY(ddp_check_call(op, stream, args));
    DDP_TRY(check_norm(op, args->rows, args->width));
    DDP_REQUIRE(args->eps >= 0.0F, DDP_ERR_INVALID_ARG, "%s: eps %g is below 0", op, (double)args->eps);
    DDP_TRY(ddp_check_operand(op, "x", args->x, args->rows));
    DDP_TRY(ddp_check_operand(op, "gamma", args->gamma, args->rows));
    DDP_TRY(ddp_check_operand(op, "beta", args->beta, args->rows));
    DDP_TRY(ddp_check_operand(op, "y", args->y, args->rows));
    DDP_REQUIRE((args->mean == NULL) == (args->rstd == NULL), DDP_ERR_INVALID_ARG,
                "%s: mean and rstd are both wanted, or neither", op);
    DDP_TRY(DDP_CALL_OP(stream, layer_norm, args));
out:
    return status;
}

ddp_status_t ddp_op_layer_norm_backward(ddp_stream_t *stream, const ddp_layer_norm_backward_args_t *args)
{
    static const char op[]   = "layer norm backward";
    ddp_status_t      status = DDP_OK;

    DDP_TRY(ddp_check_call(op, stream, args));
    DDP_TRY(check_norm(op, args->rows, args->width));
    DDP_TRY(ddp_check_operand(op, "x", args->x, args->rows));
    DDP_TRY(ddp_check_operand(op, "dy", args->dy, args->rows));
    DDP_TRY(ddp_check_operand(op, "mean", args->mean, args->rows));
    DDP_TRY(ddp_check_operand(op, "rstd", args->rstd, args->rows));
    DDP_TRY(ddp_check_operand(op, "gamma", args->gamma, args->dx != NULL ? args->rows : 0));
    DDP_REQUIRE(args->dx == NULL || args->dx != args->dy, DDP_ERR_INVALID_ARG, "%s: dx can not be dy", op);
    DDP_TRY(DDP_CALL_OP(stream, layer_norm_backward, args));
out:
    return status;
}

static ddp_status_t check_attention(const char *op, const ddp_attention_args_t *args)
{
    ddp_status_t status = DDP_OK;
    size_t       count  = 0;

    DDP_REQUIRE(args->heads > 0 && args->channels > 0 && args->channels % args->heads == 0,
                DDP_ERR_INVALID_ARG, "%s: %zu channels do not divide into %zu heads", op, args->channels,
                args->heads);
    DDP_TRY(ddp_check_precision(op, args->precision));
    DDP_REQUIRE(args->dropout >= 0.0F && args->dropout < 1.0F, DDP_ERR_INVALID_ARG,
                "%s: dropout %g is not in [0, 1)", op, (double)args->dropout);
    DDP_REQUIRE(args->dropout == 0.0F || (args->heads <= UINT16_MAX && args->length <= UINT32_MAX),
                DDP_ERR_INVALID_ARG, "%s: %zu heads of %zu rows are too many for dropout", op, args->heads,
                args->length);
    DDP_TRY(ddp_check_volume(op, args->sequences, args->length, args->channels, 3));
    count = args->sequences * args->length;
    DDP_TRY(ddp_check_operand(op, "qkv", args->qkv, count));
    DDP_TRY(ddp_check_operand(op, "y", args->y, count));
out:
    return status;
}

/* Without dropout it is not read. */
static ddp_status_t check_key(const char *op, ddp_stream_t *stream, const ddp_attention_args_t *args)
{
    return args->dropout > 0.0F ? ddp_check_place(op, stream, &args->key) : DDP_OK;
}

ddp_status_t ddp_op_attention(ddp_stream_t *stream, const ddp_attention_args_t *args)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(ddp_check_call("attention", stream, args));
    DDP_TRY(check_attention("attention", args));
    DDP_TRY(check_key("attention", stream, args));
    DDP_TRY(DDP_CALL_OP(stream, attention, args));
out:
    return status;
}

ddp_status_t ddp_op_attention_backward(ddp_stream_t *stream, const ddp_attention_backward_args_t *args)
{
    static const char op[]   = "attention backward";
    ddp_status_t      status = DDP_OK;
    size_t            count  = 0;

    DDP_TRY(ddp_check_call(op, stream, args));
    DDP_TRY(check_attention(op, &args->forward));
    DDP_TRY(check_key(op, stream, &args->forward));
    count = args->forward.sequences * args->forward.length;
    DDP_TRY(ddp_check_operand(op, "log_sum", args->forward.log_sum, count));
    DDP_TRY(ddp_check_operand(op, "dy", args->dy, count));
    DDP_TRY(ddp_check_operand(op, "dqkv", args->dqkv, count));
    DDP_TRY(DDP_CALL_OP(stream, attention_backward, args));
out:
    return status;
}

static ddp_status_t check_cached(const char *op, const ddp_attention_cached_args_t *args)
{
    ddp_status_t status = DDP_OK;
    size_t       count  = 0;

    DDP_REQUIRE(args->past <= args->capacity && args->length <= args->capacity - args->past,
                DDP_ERR_INVALID_ARG, "%s: %zu new rows behind %zu, but room for %zu", op, args->length,
                args->past, args->capacity);
    DDP_TRY(ddp_check_volume(op, args->sequences, args->length, args->channels, 3));
    DDP_TRY(ddp_check_volume(op, args->sequences, args->capacity, args->channels, 1));
    count = args->sequences * args->length;
    DDP_TRY(ddp_check_operand(op, "qkv", args->qkv, count));
    DDP_TRY(ddp_check_operand(op, "keys", args->keys, count));
    DDP_TRY(ddp_check_operand(op, "values", args->values, count));
out:
    return status;
}

ddp_status_t ddp_op_attention_cached(ddp_stream_t *stream, const ddp_attention_cached_args_t *args)
{
    static const char op[]   = "cached attention";
    ddp_status_t      status = DDP_OK;

    DDP_TRY(ddp_check_call(op, stream, args));
    DDP_TRY(check_cached(op, args));
    DDP_REQUIRE(args->heads > 0 && args->channels > 0 && args->channels % args->heads == 0,
                DDP_ERR_INVALID_ARG, "%s: %zu channels do not divide into %zu heads", op, args->channels,
                args->heads);
    DDP_TRY(ddp_check_operand(op, "y", args->y, args->sequences * args->length));
    DDP_TRY(DDP_CALL_OP(stream, attention_cached, args));
out:
    return status;
}

ddp_status_t ddp_op_attention_keep(ddp_stream_t *stream, const ddp_attention_cached_args_t *args)
{
    static const char op[]   = "cached attention";
    ddp_status_t      status = DDP_OK;

    DDP_TRY(ddp_check_call(op, stream, args));
    DDP_TRY(check_cached(op, args));
    DDP_TRY(DDP_CALL_OP(stream, attention_keep, args));
out:
    return status;
}

static ddp_status_t check_head(const char *op, const ddp_head_args_t *head)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(ddp_check_precision(op, head->precision));
    DDP_REQUIRE(head->rows == 0 || head->vocab > 0, DDP_ERR_INVALID_ARG, "%s: no words", op);
    DDP_REQUIRE(head->vocab <= INT32_MAX, DDP_ERR_INVALID_ARG, "%s: %zu words are too many", op, head->vocab);
    DDP_TRY(ddp_check_volume(op, head->rows, head->width, 1, 1));
    DDP_TRY(ddp_check_volume(op, head->vocab, head->width, 1, 1));
    DDP_TRY(ddp_check_operand(op, "x", head->x, head->rows));
    DDP_TRY(ddp_check_operand(op, "w", head->w, head->rows));
out:
    return status;
}

ddp_status_t ddp_op_head_cross_entropy(ddp_stream_t *stream, const ddp_head_cross_entropy_args_t *args)
{
    static const char op[]   = "head cross entropy";
    ddp_status_t      status = DDP_OK;

    DDP_TRY(ddp_check_call(op, stream, args));
    DDP_TRY(check_head(op, &args->head));
    DDP_TRY(ddp_check_operand(op, "labels", args->labels, args->head.rows));
    DDP_TRY(ddp_check_operand(op, "stats", args->stats, 1));
    DDP_TRY(DDP_CALL_OP(stream, head_cross_entropy, args));
out:
    return status;
}

ddp_status_t ddp_op_head_logits(ddp_stream_t *stream, const ddp_head_logits_args_t *args)
{
    static const char op[]   = "head logits";
    ddp_status_t      status = DDP_OK;

    DDP_TRY(ddp_check_call(op, stream, args));
    DDP_TRY(check_head(op, &args->head));
    DDP_TRY(ddp_check_volume(op, args->head.rows, args->head.vocab, 1, 1));
    DDP_TRY(ddp_check_operand(op, "logits", args->logits, args->head.rows));
    DDP_TRY(DDP_CALL_OP(stream, head_logits, args));
out:
    return status;
}

ddp_status_t ddp_op_head_backward(ddp_stream_t *stream, const ddp_head_backward_args_t *args)
{
    static const char op[]   = "head backward";
    ddp_status_t      status = DDP_OK;

    DDP_TRY(ddp_check_call(op, stream, args));
    DDP_TRY(check_head(op, &args->head));
    DDP_TRY(ddp_check_volume(op, args->head.rows, args->head.vocab, 1, 1));
    DDP_TRY(ddp_check_operand(op, "dlogits", args->dlogits, args->head.rows));
    DDP_TRY(DDP_CALL_OP(stream, head_backward, args));
out:
    return status;
}

size_t ddp_kernel_scratch_bytes(const ddp_device_t *device, size_t vocab)
{
    return device->backend->ops->kernel_scratch_bytes(device, vocab);
}

ddp_status_t ddp_op_normal(ddp_stream_t *stream, const ddp_normal_args_t *args)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(ddp_check_call("normal", stream, args));
    DDP_REQUIRE(args->std >= 0.0F, DDP_ERR_INVALID_ARG, "normal: standard deviation %g is below 0",
                (double)args->std);
    DDP_TRY(ddp_check_operand("normal", "y", args->y, args->count));
    DDP_TRY(DDP_CALL_OP(stream, normal, args));
out:
    return status;
}
