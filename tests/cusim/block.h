/**
 * @file Runs kernels: block after block, each CUDA thread as a fiber. Used by the executor's thread alone.
 */
#ifndef DDP_BLOCK_H_
#define DDP_BLOCK_H_

#include "tests/cusim/cusim_launch.h"
#include "tests/cusim/fiber.h"

enum { CUSIM_MAX_SHARED = 232448 }; /* bytes of dynamic shared memory: 227 KiB, what sm_90 allows a block */

/** In what order the threads of a block run (CUSIM_ORDER): f, r, xSEED, g, h. Greedy is "the newest that is
 * ready first", from the front or the back of the block: one warp runs ahead of the others as far as barriers
 * let it. */
typedef enum cusim_order {
    CUSIM_FORWARD,
    CUSIM_REVERSE,
    CUSIM_RANDOM,
    CUSIM_GREEDY,
    CUSIM_GREEDY_REVERSE
} cusim_order_t;

void cusim_set_order(cusim_order_t order, unsigned seed);

/** Runs a whole grid; `arguments` as in cudaLaunchKernel(). @return 0, or 1: a fault was printed and the grid
 * given up. */
int cusim_run_grid(const cusim_kernel_t *kernel, dim3 grid, dim3 block, size_t shared, void **arguments,
                   cusim_lanes_t *lanes);

#endif /* DDP_BLOCK_H_ */
