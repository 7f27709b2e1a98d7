/**
 * @file The block that runs now: state shared by block.cpp (barriers, warp operations) and grid.cpp (order of
 * threads and blocks).
 */
#ifndef DDP_BLOCK_STATE_H_
#define DDP_BLOCK_STATE_H_

#include "tests/cusim/block.h"
#include <stdint.h>

enum { CUSIM_LANES = 32, CUSIM_WARPS = CUSIM_MAX_THREADS / CUSIM_LANES };

/* Lanes that do one warp operation together. */
typedef struct cusim_group {
    unsigned    mask;
    unsigned    arrived;
    int         pending; /* lanes that have not taken their result */
    int         op;
    const char *file;
    int         line;
    char       *sync; /* an address for the thread sanitizer's edges */
} cusim_group_t;

typedef struct cusim_warp {
    unsigned      gone;                    /* lanes that have exited or never were */
    cusim_group_t groups[CUSIM_LANES + 1]; /* at most one open group a lane */
    int           used;                    /* groups */
} cusim_warp_t;

typedef enum cusim_state {
    CUSIM_NEW,
    CUSIM_READY,
    CUSIM_AT_BARRIER,
    CUSIM_IN_WARP,
    CUSIM_DONE
} cusim_state_t;

typedef struct cusim_thread {
    uint3          index;
    int            linear; /* its number in the block */
    cusim_state_t  state;
    cusim_fiber_t *fiber;
    uint64_t       value; /* what it brings to a warp operation */
    uint64_t       result;
    int            source; /* the lane it shuffles from */
    int            predicate;
    cusim_group_t *group;
    const char    *file; /* where it waits */
    int            line;
} cusim_thread_t;

typedef struct cusim_block {
    const cusim_kernel_t *kernel;
    void                **arguments;
    size_t                shared; /* bytes of dynamic shared memory */
    uint3                 index;
    int                   threads;
    int                   done;
    int                   waiting; /* at the barrier */
    int                   failed;
    int                   agree_on; /* CUSIM_OR ... of the barrier */
    unsigned long         barriers; /* passed */
    /* For the thread sanitizer: addresses that stand for barriers and warps, new ones in each block, or an
     * edge would lead from one block to the next. */
    char          *sync;
    cusim_thread_t thread[CUSIM_MAX_THREADS];
    cusim_warp_t   warp[CUSIM_WARPS];
    int            order[CUSIM_MAX_THREADS];
    int            next; /* in `order`: who has not begun */
    /* A ring. No memory may be allocated on a fiber: the thread sanitizer would see the allocator's. */
    int      ready[CUSIM_MAX_THREADS];
    unsigned first;
    unsigned end;
} cusim_block_t;

extern cusim_block_t   cusim_block;
extern cusim_thread_t *cusim_thread; /* that runs */
extern cusim_fiber_t  *cusim_fiber;  /* that it runs on */
extern cusim_order_t   cusim_order;
extern char *cusim_grid_start; /* for the thread sanitizer: the launch happens before its threads, */
extern char *cusim_grid_end;   /* and they before its end */

enum { CUSIM_SYNC_BYTES = 8 * (2 + CUSIM_WARPS * 40) };

uint64_t cusim_random(void);
/** Prints one line that names kernel and block; the launch fails. */
void cusim_report(const char *format, ...) __attribute__((format(printf, 1, 2)));
/** Where a new fiber starts: runs threads of the block. */
void cusim_fiber_main(void);

#endif /* DDP_BLOCK_STATE_H_ */
