/** @file Learning-rate schedules: pure functions of the step. */
#ifndef DDP_SCHEDULE_H_
#define DDP_SCHEDULE_H_

#include <stdint.h>

#include "base/export.h"
#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ddp_schedule_kind {
    DDP_SCHEDULE_CONSTANT = 0,
    DDP_SCHEDULE_LINEAR   = 1, /* from lr to min_ratio * lr at total_steps */
    DDP_SCHEDULE_COSINE =
        2, /* half a cosine from lr to min_ratio * lr; Loshchilov and Hutter 2017, arXiv 1608.03983, eq. 5 */
    DDP_SCHEDULE_STEP = 3, /* times gamma after every step_size steps */
    DDP_SCHEDULE_WSD  = 4, /* warm-up, stable, then linear decay over the last decay_steps; Hu et al. 2024,
                              arXiv 2404.06395 */
} ddp_schedule_kind_t;

typedef struct ddp_schedule {
    ddp_schedule_kind_t kind;
    double              lr;
    uint64_t            warmup_steps; /* lr * (step + 1) / warmup_steps before; 0: none */
    uint64_t            total_steps;
    double              min_ratio;
    uint64_t            step_size;
    double              gamma;
    uint64_t            decay_steps;
} ddp_schedule_t;

/** @return DDP_ERR_CONFIG with the value that is out of range. */
DDP_API ddp_status_t ddp_schedule_check(const ddp_schedule_t *schedule) DDP_NODISCARD;
/** @param [in] step  from 0. @return the learning rate of that step; at or beyond total_steps: the final one.
 */
DDP_API double ddp_schedule_lr(const ddp_schedule_t *schedule, uint64_t step);

#ifdef __cplusplus
}
#endif

#endif
