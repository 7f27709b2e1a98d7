/* Elements of a tensor as float32, whatever they are stored as. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "io/file_internal.h"
#include "io/weights_internal.h"

/* IEEE 754 binary16: 1 sign, 5 exponent (bias 15), 10 fraction bits. */
static float from_f16(uint16_t bits)
{
    const int   exponent = (bits >> 10) & 31;
    const float fraction = (float)(bits & 1023);
    float       value    = exponent == 0    ? ldexpf(fraction, -24)
                           : exponent == 31 ? (fraction == 0.0F ? INFINITY : NAN)
                                            : ldexpf(1024.0F + fraction, exponent - 25);

    return (bits & 0x8000) != 0 ? -value : value;
}

/* bfloat16 is the upper half of a float32. */
static float from_bf16(uint16_t bits)
{
    const uint32_t wide = (uint32_t)bits << 16;
    float          value;

    memcpy(&value, &wide, sizeof(value));
    return value;
}

static ddp_status_t convert(const ddp_weights_t *w, const ddp_weights_tensor_t *tensor, const void *raw,
                            size_t count, float *to)
{
    ddp_status_t    status = DDP_OK;
    const uint16_t *half   = raw;
    const double   *wide   = raw;

    for (size_t i = 0; i < count; i++) {
        switch (tensor->type) {
        case DDP_WEIGHTS_F16:
            to[i] = from_f16(half[i]);
            break;
        case DDP_WEIGHTS_BF16:
            to[i] = from_bf16(half[i]);
            break;
        case DDP_WEIGHTS_F64:
            to[i] = (float)wide[i];
            DDP_REQUIRE(!isinf(to[i]) || isinf(wide[i]), DDP_ERR_FORMAT,
                        "'%s': '%s': %g is too large for float32", w->path, tensor->desc.name, wide[i]);
            break;
        case DDP_WEIGHTS_F32:
        case DDP_WEIGHTS_OTHER:
            break;
        }
    }
out:
    return status;
}

static ddp_status_t get(ddp_weights_t *w, size_t tensor, size_t first, size_t count, void *to)
{
    const ddp_weights_tensor_t *t     = &w->tensors[tensor];
    const size_t                width = ddp_weights_type_bytes(t->type);

    if (w->npz != NULL) {
        return ddp_npz_get(w, tensor, first, count, to);
    }
    if (t->is_packed) {
        return ddp_foreign_get(w, tensor, first, count, to);
    }
    return ddp_read_at(w->path, w->fd, to, count * width, t->at + first * width);
}

ddp_status_t ddp_weights_read(ddp_weights_t *weights, size_t tensor, size_t first, size_t count, float *to)
{
    ddp_status_t                status = DDP_OK;
    const ddp_weights_tensor_t *t      = NULL;
    double                      raw[512]; /* of any type, aligned */

    DDP_REQUIRE(tensor < weights->n, DDP_ERR_INVALID_ARG, "'%s': no tensor %zu", weights->path, tensor);
    t = &weights->tensors[tensor];
    DDP_REQUIRE(t->type != DDP_WEIGHTS_OTHER, DDP_ERR_INVALID_ARG, "'%s': '%s' holds no floats",
                weights->path, t->desc.name);
    DDP_REQUIRE(first <= t->desc.count && count <= t->desc.count - first, DDP_ERR_INVALID_ARG,
                "'%s': elements %zu .. of '%s' do not exist", weights->path, first, t->desc.name);
    if (t->type == DDP_WEIGHTS_F32) {
        return get(weights, tensor, first, count, to);
    }
    while (count > 0) {
        const size_t n = count < 512 ? count : 512;

        DDP_TRY(get(weights, tensor, first, n, raw));
        DDP_TRY(convert(weights, t, raw, n, to));
        first += n;
        to += n;
        count -= n;
    }
out:
    return status;
}
