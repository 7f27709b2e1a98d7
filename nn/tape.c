#include "nn/tape.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/convert.h"
#include "base/error.h"
#include "base/progressed.h"
#include "nn/tape_internal.h"

ddp_status_t ddp_tape_create(const ddp_tape_params_t *params, ddp_tape_t **tape_p)
{
    ddp_status_t           status = DDP_OK;
    ddp_tape_t            *tape   = calloc(1, sizeof(*tape));
    const ddp_allocator_t *device = NULL;
    size_t                 n      = 0;

    DDP_REQUIRE(tape != NULL, DDP_ERR_NO_MEMORY, "no memory for a tape");
    DDP_REQUIRE(params->struct_size == sizeof(*params), DDP_ERR_INVALID_ARG,
                "ddp_tape_params_t was not made with DDP_TAPE_PARAMS_INIT");
    DDP_REQUIRE(params->stream != NULL && params->params != NULL, DDP_ERR_INVALID_ARG,
                "a tape needs a stream and a parameter list");
    DDP_REQUIRE(ddp_params_total(params->params) > 0, DDP_ERR_STATE,
                "finish the parameter list before creating a tape");
    n                = ddp_params_count(params->params);
    device           = ddp_device_allocator(ddp_stream_device(params->stream));
    tape->stream     = params->stream;
    tape->params     = params->params;
    tape->n_params   = n;
    tape->loss_scale = 1.0F;
    ddp_arena_init(&tape->activations, device, "activations");
    ddp_arena_init(&tape->scratch, device, "scratch buffers");
    ddp_arena_init(&tape->host, ddp_allocator_private(), "tape");
    tape->uses    = calloc(n, sizeof(*tape->uses));
    tape->left    = calloc(n, sizeof(*tape->left));
    tape->written = calloc(n, sizeof(*tape->written));
    DDP_REQUIRE(tape->uses != NULL && tape->left != NULL && tape->written != NULL, DDP_ERR_NO_MEMORY,
                "no memory for the use counts of %zu parameters", n);
    DDP_TRY(ddp_tape_make_place(tape));
    *tape_p = tape;
    tape    = NULL;
out:
    ddp_tape_destroy(&tape);
    return status;
}

void ddp_tape_destroy(ddp_tape_t **tape_p)
{
    ddp_tape_t *tape = *tape_p;

    if (tape == NULL) {
        return;
    }
    if (tape->activations.n_chunks > 0 || tape->stage_allocations > 0) {
        ddp_ignore(ddp_stream_synchronize(tape->stream, -1), "the memory goes back, however its work ended");
    }
    ddp_tape_free_stages(tape);
    free(tape->written);
    free(tape->left);
    free(tape->uses);
    ddp_arena_free(&tape->host);
    ddp_arena_free(&tape->scratch);
    ddp_arena_free(&tape->activations);
    free(tape);
    *tape_p = NULL;
}

void ddp_tape_set_ready(ddp_tape_t *tape, ddp_tape_ready_fn_t *ready, void *ctx)
{
    tape->ready     = ready;
    tape->ready_ctx = ctx;
}

void ddp_tape_set_recompute(ddp_tape_t *tape, bool recompute)
{
    tape->recompute = recompute;
}

void ddp_tape_set_conv(ddp_tape_t *tape, ddp_conv_algo_t algo)
{
    tape->conv = algo;
}

void ddp_tape_set_precision(ddp_tape_t *tape, ddp_precision_t precision)
{
    tape->precision = precision;
}

void ddp_tape_set_loss_scale(ddp_tape_t *tape, float scale)
{
    tape->loss_scale = scale;
}

ddp_status_t ddp_tape_begin(ddp_tape_t *tape, const ddp_tape_begin_t *begin)
{
    tape->begin          = *begin;
    tape->begun          = true;
    tape->silent         = false;
    tape->is_second_run  = false;
    tape->last           = NULL;
    tape->pieces         = NULL;
    tape->running        = NULL;
    tape->loss_input     = NULL;
    tape->loss_grad      = NULL;
    tape->went_back      = false;
    tape->dropout_layers = 0;
    memset(tape->uses, 0, tape->n_params * sizeof(*tape->uses));
    memset(tape->written, 0, tape->n_params * sizeof(*tape->written)); /* a head writes in forward */
    /* Work of the last micro-batch may still be to run; it is ordered before whatever writes here next. */
    ddp_arena_reset(&tape->activations);
    ddp_arena_reset(&tape->host);
    return ddp_tape_send_place(tape);
}

ddp_status_t ddp_tape_input(ddp_tape_t *tape, const float *data, size_t ndim, const size_t *shape,
                            ddp_tensor_t **tensor_p)
{
    ddp_status_t status = DDP_OK;

    DDP_REQUIRE(data != NULL, DDP_ERR_INVALID_ARG, "an input needs data");
    /* No layer writes to the data of its input, so the const is only given up in the type. */
    DDP_TRY(ddp_tape_new_view(tape, (float *)(uintptr_t)data, ndim, shape, false, tensor_p));
out:
    return status;
}

ddp_status_t ddp_tape_variable(ddp_tape_t *tape, const float *data, size_t ndim, const size_t *shape,
                               ddp_tensor_t **tensor_p)
{
    ddp_status_t  status = DDP_OK;
    ddp_tensor_t *x      = NULL;

    DDP_TRY(ddp_tape_input(tape, data, ndim, shape, &x));
    DDP_REQUIRE(tape->begin.training, DDP_ERR_STATE,
                "a variable needs a ddp_tape_begin() with training = true");
    x->needs_grad = true; /* no node has it as its result, so backward never gives the gradient back */
    *tensor_p     = x;
out:
    return status;
}

void ddp_tape_used(const ddp_tape_t *tape, uint8_t *used)
{
    for (size_t i = 0; i < tape->n_params; i++) {
        used[i] = tape->uses[i] > 0 ? 1 : 0;
    }
}

/* Forward: what layers use. */

ddp_status_t ddp_tape_param(const ddp_tape_t *tape, const char *layer, size_t index,
                            const ddp_tensor_desc_t **desc_p)
{
    ddp_status_t status = DDP_OK;

    DDP_REQUIRE(index < tape->n_params, DDP_ERR_INVALID_ARG, "%s: parameter %zu of %zu does not exist", layer,
                index, tape->n_params);
    DDP_REQUIRE(ddp_params_value(tape->params, index) != NULL, DDP_ERR_STATE,
                "%s: no memory is bound for the parameters' values", layer);
    *desc_p = &ddp_params_descs(tape->params)[index];
out:
    return status;
}

ddp_status_t ddp_tape_new_view(ddp_tape_t *tape, float *data, size_t ndim, const size_t *shape,
                               bool needs_grad, ddp_tensor_t **tensor_p)
{
    ddp_status_t  status = DDP_OK;
    ddp_tensor_t *tensor = NULL;
    size_t        count  = 1;
    void         *memory = NULL;

    ddp_progressed(); /* each layer comes here */
    DDP_REQUIRE(tape->begun, DDP_ERR_STATE, "ddp_tape_begin() comes before any layer");
    DDP_REQUIRE(ndim >= 1 && ndim <= DDP_MAX_DIMS, DDP_ERR_INVALID_ARG,
                "a tensor has %zu dimensions, not 1 .. %d", ndim, DDP_MAX_DIMS);
    for (size_t i = 0; i < ndim; i++) {
        DDP_TRY(ddp_mul_size(count, shape[i], "a tensor's number of elements", &count));
    }
    DDP_TRY(ddp_arena_take(&tape->host, sizeof(*tensor), &memory));
    tensor  = memory;
    *tensor = (ddp_tensor_t){.ndim = ndim, .count = count, .data = data};
    memcpy(tensor->shape, shape, ndim * sizeof(*shape));
    tensor->needs_grad = needs_grad && tape->begin.training && !tape->silent;
    *tensor_p          = tensor;
out:
    return status;
}

ddp_status_t ddp_tape_new_tensor(ddp_tape_t *tape, size_t ndim, const size_t *shape, bool needs_grad,
                                 ddp_tensor_t **tensor_p)
{
    ddp_status_t  status = DDP_OK;
    ddp_tensor_t *tensor = NULL;
    size_t        bytes  = 0;
    void         *memory = NULL;

    DDP_TRY(ddp_tape_new_view(tape, NULL, ndim, shape, needs_grad, &tensor));
    DDP_TRY(ddp_mul_size(tensor->count, sizeof(float), "a tensor's size", &bytes));
    DDP_TRY(ddp_tape_take(tape, bytes, &memory));
    tensor->data = memory;
    *tensor_p    = tensor;
out:
    return status;
}

bool ddp_tape_is_second_run(const ddp_tape_t *tape)
{
    return tape->is_second_run;
}

bool ddp_tape_is_trained(const ddp_tape_t *tape, size_t index)
{
    return index != DDP_NO_PARAM && ddp_params_is_trained(tape->params, index);
}

bool ddp_tape_needs_grad(const ddp_tape_t *tape, const ddp_tensor_t *x, size_t weight, size_t bias)
{
    return (x != NULL && x->needs_grad) || ddp_tape_is_trained(tape, weight) ||
           ddp_tape_is_trained(tape, bias);
}

static void count_use(ddp_tape_t *tape, size_t index)
{
    if (ddp_tape_is_trained(tape, index)) {
        tape->uses[index] += tape->is_second_run ? 0 : 1;
        tape->n_uses++;
    }
}

ddp_status_t ddp_tape_record(ddp_tape_t *tape, ddp_node_backward_fn_t *backward, size_t node_bytes,
                             ddp_tensor_t *y, size_t weight, size_t bias, ddp_node_t **node_p)
{
    ddp_status_t status = DDP_OK;
    ddp_node_t  *node   = NULL;
    void        *memory = NULL;

    if (y->needs_grad) {
        DDP_TRY(ddp_arena_take(&tape->host, node_bytes, &memory));
        memset(memory, 0, node_bytes);
        node         = memory;
        *node        = (ddp_node_t){tape->last, backward, y, weight, bias, tape->pieces, false};
        tape->last   = node;
        tape->pieces = NULL;
    }
    count_use(tape, weight);
    count_use(tape, bias);
    *node_p = node;
out:
    return status;
}

ddp_status_t ddp_tape_average(ddp_tape_t *tape, const char *layer, size_t index, float **statistic_p,
                              bool *accumulate_p)
{
    ddp_status_t             status = DDP_OK;
    const ddp_tensor_desc_t *desc   = NULL;

    DDP_TRY(ddp_tape_param(tape, layer, index, &desc));
    DDP_REQUIRE(desc->role == DDP_TENSOR_AVERAGE, DDP_ERR_INVALID_ARG, "%s: '%s' is not a running average",
                layer, desc->name);
    *statistic_p = NULL;
    if (!tape->begin.training || tape->is_second_run) {
        return DDP_OK;
    }
    DDP_REQUIRE(ddp_params_grad(tape->params, index) != NULL, DDP_ERR_STATE,
                "%s: no memory is bound for the statistic of '%s'", layer, desc->name);
    DDP_REQUIRE(tape->uses[index] == 0, DDP_ERR_STATE,
                "%s: running average '%s' has two statistics in one micro-batch", layer, desc->name);
    tape->uses[index] = 1;
    *accumulate_p     = tape->begin.accumulate_grads;
    *statistic_p      = ddp_params_grad(tape->params, index);
out:
    return status;
}

void ddp_tape_set_loss(ddp_tape_t *tape, ddp_tensor_t *input, float *grad)
{
    tape->loss_input     = input;
    tape->loss_grad      = grad;
    tape->is_loss_scaled = false;
}

const char *ddp_shape_text(size_t ndim, const size_t *shape, char *text)
{
    int used = snprintf(text, DDP_SHAPE_TEXT_SIZE, "[");

    for (size_t i = 0; i < ndim && i < DDP_MAX_DIMS; i++) {
        used +=
            snprintf(text + used, DDP_SHAPE_TEXT_SIZE - (size_t)used, "%s%zu", i > 0 ? ", " : "", shape[i]);
    }
    snprintf(text + used, DDP_SHAPE_TEXT_SIZE - (size_t)used, "]");
    return text;
}

size_t ddp_tensor_rows(const ddp_tensor_t *tensor)
{
    size_t rows = 1;

    for (size_t i = 0; i + 1 < tensor->ndim; i++) {
        rows *= tensor->shape[i];
    }
    return rows;
}

size_t ddp_tensor_width(const ddp_tensor_t *tensor)
{
    return tensor->shape[tensor->ndim - 1];
}
