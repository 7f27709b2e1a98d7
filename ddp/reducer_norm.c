/*
 * What is known of the whole gradient: its norm, and whether it is finite. The owner of a slice sees every
 * element of the sum, and every machine has an owner for every block, so each machine finds out alone, and
 * all find the same. With two_phase that is before any update. Else updates run while other gradients are not
 * there yet: then a sum that is not finite has been written by the time somebody sees it, and what is left is
 * to let nobody go on from there.
 */
#include <math.h>

#include "base/error.h"
#include "ddp/reducer_internal.h"

/* Of one tensor: block by block, so that it does not depend on who owns what. */
static double sum_blocks(const ddp_reducer_t *r, size_t tensor)
{
    const size_t first = r->tensors[tensor].offset / DDP_BLOCK;
    double       sum   = 0;

    for (size_t b = 0; b < ddp_block_round(r->tensors[tensor].count) / DDP_BLOCK; b++) {
        sum += r->host.block_sumsq[first + b];
    }
    return sum;
}

/* Of all gradients; running averages are no part of it. @param [out] broken_p  first tensor in registration
 * order that is not finite, averages too; else DDP_NO_TENSOR */
static double sum_squares(const ddp_reducer_t *r, size_t *broken_p)
{
    double sum    = 0;
    size_t broken = DDP_NO_TENSOR;

    for (size_t i = r->params.n_tensors; i-- > 0;) {
        const double squares = sum_blocks(r, i);

        broken = isfinite(squares) ? broken : i;
        sum += r->tensors[i].role == DDP_TENSOR_PARAMETER ? squares : 0.0;
    }
    *broken_p = broken;
    return sum;
}

void ddp_reducer_norm(ddp_reducer_t *r)
{
    ddp_sums_t  *sums = &r->sums;
    const double sum  = sum_squares(r, &sums->broken);

    sums->grad_norm = sqrt(sum) * (double)sums->grad_scale;
    if (sums->broken != DDP_NO_TENSOR) {
        sums->update = false;
    } else if (r->params.clip_norm > 0) { /* as torch.nn.utils.clip_grad_norm_ */
        const double factor = (double)r->params.clip_norm / (sums->grad_norm + 1e-6);

        sums->grad_scale = factor < 1 ? (float)((double)sums->grad_scale * factor) : sums->grad_scale;
    }
}

ddp_status_t ddp_reducer_fail_tensor(const ddp_reducer_t *r, size_t tensor, uint64_t step)
{
    const bool is_average = r->tensors[tensor].role == DDP_TENSOR_AVERAGE;

    return ddp_fail(DDP_ERR_NOT_FINITE,
                    "%s '%s' is not finite at step %llu; lower optimizer.lr, set optimizer.clip_norm, or "
                    "train.nonfinite skip",
                    is_average ? "running average" : "gradient of", r->tensors[tensor].name,
                    (unsigned long long)step);
}

/* The first micro-batch to blame. */
static ddp_status_t fail_loss(const ddp_reducer_t *r)
{
    size_t v = 0;

    while (v + 1 < r->present && isfinite(r->leaves[v].loss) && isfinite(r->leaves[v].weight)) {
        v++;
    }
    return ddp_fail(DDP_ERR_NOT_FINITE,
                    "loss is %g at step %llu, first in micro-batch %zu of %zu; lower optimizer.lr, or "
                    "train.nonfinite skip",
                    isnan(r->sums.loss) ? (double)NAN : r->sums.loss, /* its sign says nothing */
                    (unsigned long long)r->step, v, r->params.micro_batches);
}

const char *ddp_reducer_not_finite(const ddp_reducer_t *r)
{
    if (!r->sums.finite) {
        return "loss";
    }
    return r->sums.broken != DDP_NO_TENSOR ? r->tensors[r->sums.broken].name : NULL;
}

ddp_status_t ddp_reducer_check_sums(const ddp_reducer_t *r)
{
    if (r->params.nonfinite == DDP_NONFINITE_SKIP || ddp_reducer_not_finite(r) == NULL) {
        return DDP_OK;
    }
    if (r->sums.finite && ddp_reducer_may_halve(r)) {
        return DDP_OK;
    }
    return r->sums.finite ? ddp_reducer_fail_tensor(r, r->sums.broken, r->step) : fail_loss(r);
}

ddp_status_t ddp_reducer_check_updates(const ddp_reducer_t *r)
{
    size_t broken = DDP_NO_TENSOR;

    for (int local = 0; local < r->local_size && r->step > 0; local++) {
        broken = r->host.broken_of[local] < broken ? r->host.broken_of[local] : broken;
    }
    return broken == DDP_NO_TENSOR ? DDP_OK : ddp_reducer_fail_tensor(r, broken, r->step);
}

ddp_status_t ddp_reducer_host_norm(ddp_reducer_t *r, double *norm_p)
{
    size_t broken = DDP_NO_TENSOR;

    *norm_p = r->sums.grad_norm;
    if (!r->two_phase && r->wants_norm && r->sums.update) {
        *norm_p = sqrt(sum_squares(r, &broken)) * (double)r->sums.grad_scale;
    }
    return DDP_OK;
}
