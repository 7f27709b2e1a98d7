/* Whole grids: blocks one after another, and which thread of a block runs next. */
#include "tests/cusim/block.h"

#include "tests/cusim/block_state.h"
#include "tests/cusim/sanitizer.h"
#include "tests/cusim/shared_memory.h"
#include <algorithm>
#include <stdlib.h>

__thread uint3 threadIdx, blockIdx, blockDim, gridDim;
cusim_order_t  cusim_order = CUSIM_FORWARD;

static unsigned order_seed;
static uint64_t random_state = 88172645463325252ULL;

uint64_t cusim_random(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

void cusim_set_order(cusim_order_t order, unsigned seed)
{
    cusim_order = order;
    order_seed  = seed;
}

static void start_threads(void)
{
    cusim_block_t *b     = &cusim_block;
    uint3          index = {0, 0, 0};

    for (int i = 0; i < b->threads; i++) {
        b->thread[i].index  = index;
        b->thread[i].linear = i;
        b->thread[i].state  = CUSIM_NEW;
        b->thread[i].fiber  = NULL;
        if (++index.x == blockDim.x) {
            index.x = 0;
            if (++index.y == blockDim.y) {
                index.y = 0;
                index.z++;
            }
        }
    }
    for (int i = 0; i < b->threads; i++) {
        bool is_backward = cusim_order == CUSIM_REVERSE || cusim_order == CUSIM_GREEDY_REVERSE;
        b->order[i]      = is_backward ? b->threads - 1 - i : i;
    }
    for (int i = b->threads; cusim_order == CUSIM_RANDOM && i > 1; i--) {
        std::swap(b->order[i - 1], b->order[cusim_random() % (uint64_t)i]);
    }
}

static void start_warps(void)
{
    cusim_block_t *b = &cusim_block;

    for (int i = 0; i * CUSIM_LANES < b->threads; i++) {
        int there       = b->threads - i * CUSIM_LANES;
        b->warp[i].gone = there >= CUSIM_LANES ? 0 : ~0U << there;
        for (int k = 0; k < b->warp[i].used; k++) {
            b->warp[i].groups[k].arrived = 0;
            b->warp[i].groups[k].pending = 0;
        }
        b->warp[i].used = 0;
    }
}

static void start_block(uint3 index)
{
    cusim_block_t *b = &cusim_block;

    b->index = blockIdx = index;
    b->done = b->waiting = b->failed = b->next = 0;
    b->first = b->end = 0;
    start_warps();
    start_threads();
    cusim_shared_start(b->shared);
#if defined CUSIM_TSAN
    b->sync = static_cast<char *>(malloc(CUSIM_SYNC_BYTES));
#else
    static char sync[CUSIM_SYNC_BYTES];
    b->sync = sync;
#endif
}

static void end_block(void)
{
    cusim_block_t *b = &cusim_block;

    for (int i = 0; i < b->threads; i++) { /* left behind by a fault */
        if (b->thread[i].fiber != NULL) {
            cusim_fiber_put(b->thread[i].fiber);
        }
    }
    cusim_shared_end(b->shared);
#if defined CUSIM_TSAN
    free(b->sync);
#endif
}

/* Who runs next, or NULL: all that are left wait for each other. */
static cusim_thread_t *next_thread(cusim_lanes_t *lanes)
{
    cusim_block_t  *b = &cusim_block;
    cusim_thread_t *thread;
    cusim_fiber_t **slot = NULL;

    if (b->first < b->end) {
        unsigned count = b->end - b->first;
        int     *last  = &b->ready[(b->end - 1) % CUSIM_MAX_THREADS];
        if (cusim_order == CUSIM_RANDOM && cusim_random() % 3 == 0) {
            std::swap(*last, b->ready[(b->first + cusim_random() % count) % CUSIM_MAX_THREADS]);
        }
        if (cusim_order == CUSIM_FORWARD || cusim_order == CUSIM_REVERSE) {
            return &b->thread[b->ready[b->first++ % CUSIM_MAX_THREADS]];
        }
        b->end--;
        return &b->thread[*last];
    }
    if (b->next >= b->threads) {
        return NULL;
    }
    thread        = &b->thread[b->order[b->next++]];
    thread->state = CUSIM_READY;
#if defined CUSIM_TSAN
    slot = &lanes->fiber[lanes->turn & 1][thread->linear];
#endif
    (void)lanes;
    thread->fiber = cusim_fiber_get(cusim_fiber_main, slot);
    return thread;
}

static void report_deadlock(void)
{
    const cusim_block_t  *b          = &cusim_block;
    const cusim_thread_t *example    = NULL;
    int                   in_warp    = 0;
    int                   at_barrier = 0;

    for (int i = 0; i < b->threads; i++) {
        if (b->thread[i].state == CUSIM_IN_WARP) {
            in_warp++;
            example = &b->thread[i];
        }
        at_barrier += b->thread[i].state == CUSIM_AT_BARRIER;
    }
    cusim_report(
        "deadlock: %d threads in a warp operation (one at %s:%d, mask %08x), %d in __syncthreads, %d exited",
        in_warp, example != NULL ? example->file : "?", example != NULL ? example->line : 0,
        example != NULL ? example->group->mask : 0, at_barrier, b->done);
}

static int run_block(uint3 index, cusim_lanes_t *lanes)
{
    cusim_block_t  *b = &cusim_block;
    cusim_thread_t *thread;

    lanes->turn++;
    start_block(index);
    while (b->done < b->threads && b->failed == 0) {
        thread = next_thread(lanes);
        if (thread == NULL) {
            report_deadlock();
            break;
        }
        cusim_thread = thread;
        cusim_fiber  = thread->fiber;
        threadIdx    = thread->index;
        cusim_fiber_enter(thread->fiber);
    }
    end_block();
    return b->failed;
}

int cusim_run_grid(const cusim_kernel_t *kernel, dim3 grid, dim3 block, size_t shared, void **arguments,
                   cusim_lanes_t *lanes)
{
    cusim_block_t *b      = &cusim_block;
    size_t         count  = (size_t)grid.x * grid.y * grid.z;
    int            failed = 0;

    if (cusim_order == CUSIM_RANDOM) {
        random_state = order_seed * 2654435761U + 88172645463325252ULL;
    }
    b->kernel    = kernel;
    b->arguments = arguments;
    b->shared    = shared;
    b->threads   = (int)(block.x * block.y * block.z);
    blockDim     = uint3{block.x, block.y, block.z};
    gridDim      = uint3{grid.x, grid.y, grid.z};
    /* New memory, or edges would lead from one grid to the next. */
    cusim_grid_start = static_cast<char *>(malloc(8));
    cusim_grid_end   = static_cast<char *>(malloc(8));
    CUSIM_RELEASE(cusim_grid_start);
    for (size_t k = 0; k < count && failed == 0; k++) {
        size_t i = cusim_order == CUSIM_REVERSE ? count - 1 - k : k;
        failed   = run_block(
              uint3{(unsigned)(i % grid.x), (unsigned)(i / grid.x % grid.y), (unsigned)(i / grid.x / grid.y)},
              lanes);
    }
    CUSIM_ACQUIRE(cusim_grid_end);
    free(cusim_grid_start);
    free(cusim_grid_end);
    return failed;
}
