/* Forward and loss without gradient, chunks dealt to the devices in turn. */
#include "dp_compat/dp_internal.h"

static ddp_status_t evaluate(ddp_dp_t *dp, ddp_dp_fetch_fn_t *fetch, void *fetch_ctx, const size_t *samples,
                             size_t count, ddp_loss_stats_t *stats)
{
    ddp_status_t status = DDP_OK;
    size_t       row    = 0;

    for (size_t first = 0; first < count; first += dp->n) {
        dp->replicates = first == 0;
        dp->n_busy     = count - first < dp->n ? count - first : dp->n;
        for (size_t k = 0; k < dp->n_busy; k++) {
            ddp_replica_t *replica = &dp->replica[k];

            replica->micro = (ddp_micro_t){dp->step, first + k, row, samples[first + k]};
            row += samples[first + k];
            DDP_TRY(ddp_dp_fetch(replica, fetch, fetch_ctx));
        }
        DDP_TRY(ddp_dp_on_all(dp, ddp_dp_evaluate_job, ddp_dp_evaluate_job));
        for (size_t k = 0; k < dp->n_busy; k++) {
            stats[first + k] = dp->replica[k].sums;
        }
    }
out:
    return status;
}

ddp_status_t ddp_dp_evaluate(ddp_dp_t *dp, ddp_dp_fetch_fn_t *fetch, void *fetch_ctx, const size_t *samples,
                             size_t count, ddp_loss_stats_t *stats)
{
    ddp_status_t status = DDP_OK;

    DDP_REQUIRE(dp->failed == DDP_OK, DDP_ERR_STATE, "an earlier step has failed: nothing to evaluate");
    for (size_t i = 0; i < count; i++) {
        DDP_REQUIRE(samples[i] > 0, DDP_ERR_INVALID_ARG, "evaluation: chunk %zu has no samples", i);
    }
    dp->evaluates = true;
    atomic_store(&dp->step_now, dp->step);
    atomic_store(&dp->is_working, true);
    status = evaluate(dp, fetch, fetch_ctx, samples, count, stats);
    atomic_store(&dp->is_working, false);
    dp->evaluates = false;
    dp->failed    = status;
out:
    return status;
}
