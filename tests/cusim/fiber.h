/**
 * @file Fibers: one for each CUDA thread of the block that runs. x86-64 only.
 * All of it is used by the executor's thread alone.
 */
#ifndef DDP_FIBER_H_
#define DDP_FIBER_H_

enum { CUSIM_MAX_THREADS = 1024 }; /* of a block */

typedef struct cusim_fiber {
    void               *stack_pointer;
    char               *stack;
    void               *tsan; /* what the thread sanitizer knows it as */
    struct cusim_fiber *next; /* in the pool */
} cusim_fiber_t;

/** The fibers of one stream's blocks. The thread sanitizer follows a fiber's clock, and a fiber that another
 * stream or the next block used again would order what CUDA does not: so each stream has two sets, used in
 * turns. */
typedef struct cusim_lanes {
    cusim_fiber_t *fiber[2][CUSIM_MAX_THREADS];
    unsigned       turn;
} cusim_lanes_t;

/** A fiber that starts in `entry` when it is entered; `slot` is its place in the lanes, or NULL: from the
 * pool. */
cusim_fiber_t *cusim_fiber_get(void (*entry)(void), cusim_fiber_t **slot);
/** Its work is done. One that has a place in the lanes stays there. */
void cusim_fiber_put(cusim_fiber_t *fiber);
/** From the scheduler into the fiber; returns when the fiber leaves. */
void cusim_fiber_enter(cusim_fiber_t *fiber);
/** The first thing that a new fiber does. */
void cusim_fiber_began(void);
/** From the fiber back to the scheduler; returns when it is entered again, never with `is_last`. */
void cusim_fiber_leave(cusim_fiber_t *fiber, bool is_last);

#endif /* DDP_FIBER_H_ */
