/* What the loss is multiplied by, for gradients in half precision. */
#include <math.h>

#include "base/error.h"
#include "ddp/reducer_internal.h"

#define LEAST 1.0F
#define MOST  16777216.0F

ddp_loss_scale_t ddp_reducer_loss_scale(const ddp_reducer_t *r)
{
    return r->loss_scale;
}

ddp_status_t ddp_reducer_set_loss_scale(ddp_reducer_t *r, const ddp_loss_scale_t *scale)
{
    ddp_status_t status = DDP_OK;
    int          exponent;

    DDP_REQUIRE(r->state == DDP_REDUCER_IDLE, DDP_ERR_STATE, "the loss scale is set between steps");
    DDP_REQUIRE(scale->scale >= LEAST && scale->scale <= MOST && frexpf(scale->scale, &exponent) == 0.5F,
                DDP_ERR_INVALID_ARG, "loss scale %g is no power of two from 1 to 2^24", (double)scale->scale);
    if (r->params.loss_scale_every > 0) {
        r->loss_scale = *scale;
    }
out:
    return status;
}

bool ddp_reducer_may_halve(const ddp_reducer_t *r)
{
    return r->params.loss_scale_every > 0 && r->loss_scale.scale > LEAST;
}

void ddp_reducer_adapt_scale(ddp_reducer_t *r)
{
    ddp_loss_scale_t *scale = &r->loss_scale;

    if (r->params.loss_scale_every == 0) {
        return;
    }
    if (r->sums.broken != DDP_NO_TENSOR) {
        scale->scale = fmaxf(scale->scale / 2.0F, LEAST);
        scale->steps = 0;
    } else if (r->sums.update && ++scale->steps >= r->params.loss_scale_every) {
        scale->scale = fminf(scale->scale * 2.0F, MOST);
        scale->steps = 0;
    }
}
