/**
 * @file What an operation has to do at least: multiplications and additions, and bytes of memory. For rates
 * in benchmarks, of work that a watch has seen (ddp_device_set_watch()).
 */
#ifndef DDP_OPS_COST_H_
#define DDP_OPS_COST_H_

#include <stdbool.h>

#include "kernels/device.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DDP_OP_SHAPE_SIZE 64

typedef struct ddp_op_cost {
    char   shape[DDP_OP_SHAPE_SIZE]; /* "2048 x 768 x 256 NT" */
    double flop;  /* of its matrix products, a multiplication and an addition each; a convolution counts as
                     direct whatever its algorithm; 0: it has none */
    double bytes; /* each operand once, read or written; one that is added to, twice */
} ddp_op_cost_t;

/**
 * @param [in] work, args  as in ddp_work_seen_t
 * @return false: no operation of kernels/ops*.h, and nothing is written
 */
DDP_API bool ddp_op_cost(const char *work, const void *args, ddp_op_cost_t *cost_p) DDP_NODISCARD;

#ifdef __cplusplus
}
#endif

#endif
