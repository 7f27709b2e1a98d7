/* Barriers and warp operations: who waits for whom, and what is said when nobody can come any more. */
#include "tests/cusim/block.h"

#include "tests/cusim/block_state.h"
#include "tests/cusim/cusim_warp.h"
#include "tests/cusim/sanitizer.h"
#include <algorithm>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

cusim_block_t   cusim_block;
cusim_thread_t *cusim_thread;
cusim_fiber_t  *cusim_fiber;
char           *cusim_grid_start;
char           *cusim_grid_end;

void cusim_report(const char *format, ...)
{
    const cusim_block_t *b = &cusim_block;
    char                 text[512];
    va_list              list;

    va_start(list, format);
    vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    fprintf(stderr, "cusim: kernel %s block (%u,%u,%u): %s\n", b->kernel->name, b->index.x, b->index.y,
            b->index.z, text);
    cusim_block.failed = 1;
}

static void make_ready(cusim_thread_t *thread)
{
    cusim_block_t *b = &cusim_block;

    thread->state                          = CUSIM_READY;
    b->ready[b->end++ % CUSIM_MAX_THREADS] = thread->linear;
}

static bool is_one_barrier(const cusim_thread_t **first_p)
{
    const cusim_block_t  *b     = &cusim_block;
    const cusim_thread_t *first = NULL;

    for (int i = 0; i < b->threads; i++) {
        const cusim_thread_t *thread = &b->thread[i];
        if (thread->state != CUSIM_AT_BARRIER) {
            continue;
        }
        first = first != NULL ? first : thread;
        if (thread->file != first->file || thread->line != first->line) {
            cusim_report("barrier divergence: thread %d waits at %s:%d, thread %d at %s:%d", first->linear,
                         first->file, first->line, thread->linear, thread->file, thread->line);
            return false;
        }
    }
    *first_p = first;
    return true;
}

static uint64_t agreement(void)
{
    const cusim_block_t *b     = &cusim_block;
    int                  count = 0;
    int                  asked = 0;

    for (int i = 0; i < b->threads; i++) {
        if (b->thread[i].state == CUSIM_AT_BARRIER) {
            asked++;
            count += b->thread[i].predicate != 0;
        }
    }
    return (uint64_t)(b->agree_on == CUSIM_OR    ? count > 0
                      : b->agree_on == CUSIM_AND ? count == asked
                                                 : count);
}

/* The barrier opens once all threads that still live have arrived. */
static void try_barrier(void)
{
    cusim_block_t        *b     = &cusim_block;
    const cusim_thread_t *first = NULL;
    uint64_t              agreed;

    if (b->waiting == 0 || b->waiting + b->done < b->threads || !is_one_barrier(&first)) {
        return;
    }
    if (b->done > 0) {
        cusim_report("barrier divergence: %d threads wait at %s:%d, %d have exited", b->waiting, first->file,
                     first->line, b->done);
        return;
    }
    agreed     = agreement();
    b->waiting = 0;
    b->barriers++;
    for (int i = 0; i < b->threads; i++) {
        cusim_thread_t *thread = &b->thread[b->order[i]];
        if (thread->state == CUSIM_AT_BARRIER) {
            thread->result = agreed;
            make_ready(thread);
        }
    }
    for (unsigned i = b->end; cusim_order == CUSIM_RANDOM && i > b->first + 1; i--) {
        std::swap(b->ready[(i - 1) % CUSIM_MAX_THREADS],
                  b->ready[(b->first + cusim_random() % (i - b->first)) % CUSIM_MAX_THREADS]);
    }
}

/* What one lane gets; `votes` and `sum` are of all lanes. */
static uint64_t lane_result(const cusim_group_t *group, const cusim_thread_t *lanes, int lane, unsigned votes,
                            unsigned sum)
{
    int source = lanes[lane].source;

    switch (group->op) {
    case CUSIM_SHUFFLE:
        if (source >= 0 && source < CUSIM_LANES && ((group->arrived >> source) & 1) != 0) {
            return lanes[source].value;
        }
        cusim_report("%s:%d: lane %d shuffles from lane %d, which takes no part", group->file, group->line,
                     lane, source);
        return 0x7fc000007fc00000ULL;
    case CUSIM_BALLOT:
        return votes;
    case CUSIM_ANY:
        return votes != 0;
    case CUSIM_ALL:
        return votes == group->arrived;
    case CUSIM_REDUCE_ADD:
        return sum;
    default:
        return 0;
    }
}

/* Computes the results once every lane of the mask is there. */
static void try_group(cusim_warp_t *warp, cusim_group_t *group)
{
    cusim_thread_t *lanes = cusim_block.thread + (warp - cusim_block.warp) * CUSIM_LANES;
    unsigned        votes = 0;
    unsigned        sum   = 0;

    if ((group->mask & ~(group->arrived | warp->gone)) != 0) {
        return;
    }
    if ((group->mask & warp->gone) != 0) {
        cusim_report("%s:%d: warp operation names exited or absent lanes (mask %08x, gone %08x)", group->file,
                     group->line, group->mask, group->mask & warp->gone);
        return;
    }
    for (int i = 0; i < CUSIM_LANES; i++) {
        if (((group->arrived >> i) & 1) != 0) {
            votes |= (unsigned)(lanes[i].value & 1) << i;
            sum += (unsigned)lanes[i].value;
        }
    }
    for (int k = 0; k < CUSIM_LANES; k++) {
        int i = cusim_order == CUSIM_REVERSE ? CUSIM_LANES - 1 - k : k;
        if (((group->arrived >> i) & 1) != 0) {
            lanes[i].result = lane_result(group, lanes, i, votes, sum);
            group->pending++;
            make_ready(&lanes[i]);
        }
    }
    group->arrived = 0;
}

static void run_thread(cusim_thread_t *thread)
{
    cusim_block_t *b    = &cusim_block;
    cusim_warp_t  *warp = &b->warp[thread->linear / CUSIM_LANES];
    int            lane = thread->linear % CUSIM_LANES;

    cusim_thread = thread;
    threadIdx    = thread->index;
    CUSIM_ACQUIRE(cusim_grid_start);
    b->kernel->invoke(b->kernel->function, b->arguments);
    CUSIM_RELEASE(cusim_grid_end);
    thread->state = CUSIM_DONE;
    b->done++;
    warp->gone |= 1U << lane;
    for (int i = 0; i < warp->used; i++) {
        if (warp->groups[i].arrived != 0 && ((warp->groups[i].mask >> lane) & 1) != 0) {
            try_group(warp, &warp->groups[i]);
        }
    }
    try_barrier();
}

void cusim_fiber_main(void)
{
    cusim_block_t  *b      = &cusim_block;
    cusim_fiber_t  *fiber  = cusim_fiber;
    cusim_thread_t *thread = cusim_thread;

    cusim_fiber_began();
    run_thread(thread);
    /* A thread that waits for nobody needs no fiber of its own; the thread sanitizer wants one for each all
     * the same. */
    while (fiber->tsan == NULL && b->failed == 0 && b->first == b->end && b->next < b->threads) {
        thread->fiber = NULL;
        thread        = &b->thread[b->order[b->next++]];
        thread->fiber = fiber;
        run_thread(thread);
    }
    thread->fiber = NULL;
    cusim_fiber_put(fiber);
    cusim_fiber_leave(fiber, true);
    abort();
}

extern "C" void cusim_syncthreads(int of, int predicate, int *agreed, const char *file, int line)
{
    cusim_block_t  *b       = &cusim_block;
    cusim_thread_t *thread  = cusim_thread;
    unsigned long   barrier = b->barriers;

    CUSIM_RELEASE(b->sync + 8 * (barrier & 1));
    thread->state     = CUSIM_AT_BARRIER;
    thread->file      = file;
    thread->line      = line;
    thread->predicate = predicate;
    b->agree_on       = of;
    b->waiting++;
    try_barrier();
    cusim_fiber_leave(thread->fiber, false);
    CUSIM_ACQUIRE(b->sync + 8 * (barrier & 1));
    *agreed = (int)thread->result;
}

/* The open group with this mask, or a new one. */
static cusim_group_t *join_group(cusim_warp_t *warp, int op, unsigned mask, const char *file, int line)
{
    cusim_group_t *unused = NULL;
    cusim_group_t *group;

    for (int i = 0; i < warp->used; i++) {
        group = &warp->groups[i];
        if (group->arrived != 0 && group->mask == mask) {
            if (group->op != op || group->line != line || group->file != file) {
                cusim_report("divergent warp operation: %s:%d and %s:%d under mask %08x", file, line,
                             group->file, group->line, mask);
            }
            return group;
        }
        if (group->arrived != 0 && (group->mask & mask) != 0) {
            cusim_report("%s:%d: warp operation mask %08x overlaps the pending mask %08x of %s:%d", file,
                         line, mask, group->mask, group->file, group->line);
        }
        if (group->arrived == 0 && group->pending == 0 && unused == NULL) {
            unused = group;
        }
    }
    group       = unused != NULL ? unused : &warp->groups[warp->used++];
    group->mask = mask;
    group->op   = op;
    group->file = file;
    group->line = line;
    return group;
}

extern "C" uint64_t cusim_warp_op(int op, unsigned mask, uint64_t value, int source, const char *file,
                                  int line)
{
    cusim_block_t  *b      = &cusim_block;
    cusim_thread_t *thread = cusim_thread;
    int             number = thread->linear / CUSIM_LANES;
    int             lane   = thread->linear % CUSIM_LANES;
    cusim_warp_t   *warp   = &b->warp[number];
    cusim_group_t  *group;

    if (((mask >> lane) & 1) == 0) {
        cusim_report("%s:%d: lane %d calls a warp operation whose mask %08x leaves it out", file, line, lane,
                     mask);
    }
    group       = join_group(warp, op, mask, file, line);
    group->sync = b->sync + 8 * (2 + number * 40 + (group - warp->groups));
    if (op == CUSIM_SYNCWARP) { /* shuffles and votes order no memory */
        CUSIM_RELEASE(group->sync);
    }
    thread->value  = value;
    thread->source = source;
    thread->group  = group;
    thread->file   = file;
    thread->line   = line;
    thread->state  = CUSIM_IN_WARP;
    group->arrived |= 1U << lane;
    try_group(warp, group);
    cusim_fiber_leave(thread->fiber, false);
    if (op == CUSIM_SYNCWARP) {
        CUSIM_ACQUIRE(group->sync);
    }
    group->pending--;
    return thread->result;
}

extern "C" unsigned cusim_activemask(void)
{
    return ~cusim_block.warp[cusim_thread->linear / CUSIM_LANES].gone;
}

extern "C" void cusim_trap(const char *what, const char *file, int line)
{
    cusim_report("%s at %s:%d by thread %d", what, file, line, cusim_thread->linear);
    cusim_fiber_leave(cusim_thread->fiber, false);
}
