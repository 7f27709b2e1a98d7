#include "nn/schedule.h"

#include <math.h>
#include <stdbool.h>

#include "base/error.h"

static bool needs_total(ddp_schedule_kind_t kind)
{
    return kind == DDP_SCHEDULE_LINEAR || kind == DDP_SCHEDULE_COSINE || kind == DDP_SCHEDULE_WSD;
}

ddp_status_t ddp_schedule_check(const ddp_schedule_t *schedule)
{
    ddp_status_t status = DDP_OK;

    DDP_REQUIRE(schedule->kind >= DDP_SCHEDULE_CONSTANT && schedule->kind <= DDP_SCHEDULE_WSD, DDP_ERR_CONFIG,
                "schedule: kind %d is not known", (int)schedule->kind);
    DDP_REQUIRE(isfinite(schedule->lr) && schedule->lr >= 0, DDP_ERR_CONFIG,
                "learning rate %g is not a finite number >= 0", schedule->lr);
    DDP_REQUIRE(isfinite(schedule->min_ratio) && schedule->min_ratio >= 0 && schedule->min_ratio <= 1,
                DDP_ERR_CONFIG, "schedule: min_ratio %g is not in 0 .. 1", schedule->min_ratio);
    DDP_REQUIRE(!needs_total(schedule->kind) || schedule->total_steps > 0, DDP_ERR_CONFIG,
                "schedule: linear, cosine and wsd need the total number of steps");
    DDP_REQUIRE(schedule->total_steps == 0 || schedule->warmup_steps <= schedule->total_steps, DDP_ERR_CONFIG,
                "schedule: warmup_steps %llu is more than the %llu steps of the run",
                (unsigned long long)schedule->warmup_steps, (unsigned long long)schedule->total_steps);
    if (schedule->kind == DDP_SCHEDULE_STEP) {
        DDP_REQUIRE(schedule->step_size > 0, DDP_ERR_CONFIG, "schedule: step_size 0 is not > 0");
        DDP_REQUIRE(isfinite(schedule->gamma) && schedule->gamma > 0, DDP_ERR_CONFIG,
                    "schedule: gamma %g is not a finite number > 0", schedule->gamma);
    }
    if (schedule->kind == DDP_SCHEDULE_WSD) {
        DDP_REQUIRE(schedule->decay_steps <= schedule->total_steps - schedule->warmup_steps, DDP_ERR_CONFIG,
                    "schedule: decay_steps %llu is more than the %llu steps after warm-up",
                    (unsigned long long)schedule->decay_steps,
                    (unsigned long long)(schedule->total_steps - schedule->warmup_steps));
    }
out:
    return status;
}

/** How far `step` is from `from` to `to`, 0 .. 1; 1 where they are the same point. */
static double progress(uint64_t step, uint64_t from, uint64_t to)
{
    if (step >= to) {
        return 1;
    }
    return step <= from ? 0 : (double)(step - from) / (double)(to - from);
}

/** What the learning rate is multiplied by, after warm-up. */
static double factor(const ddp_schedule_t *schedule, uint64_t step)
{
    const double   pi    = acos(-1.0);
    const double   range = 1 - schedule->min_ratio;
    const uint64_t start = schedule->warmup_steps;
    const uint64_t end   = schedule->total_steps;

    switch (schedule->kind) {
    case DDP_SCHEDULE_CONSTANT:
        return 1;
    case DDP_SCHEDULE_LINEAR:
        return 1 - range * progress(step, start, end);
    case DDP_SCHEDULE_COSINE:
        return schedule->min_ratio + range * 0.5 * (1 + cos(pi * progress(step, start, end)));
    case DDP_SCHEDULE_STEP:
        return pow(schedule->gamma, (double)((step - start) / schedule->step_size));
    case DDP_SCHEDULE_WSD: /* without a decay the rate stays where it is, also at the end */
        return schedule->decay_steps == 0 ? 1 : 1 - range * progress(step, end - schedule->decay_steps, end);
    }
    return 1;
}

double ddp_schedule_lr(const ddp_schedule_t *schedule, uint64_t step)
{
    if (schedule->total_steps > 0 && step > schedule->total_steps) {
        step = schedule->total_steps;
    }
    if (step < schedule->warmup_steps) {
        return schedule->lr * (double)(step + 1) / (double)schedule->warmup_steps;
    }
    return schedule->lr * factor(schedule, step);
}
