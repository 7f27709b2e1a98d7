#include "io/loader.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/allocator.h"
#include "base/call.h"
#include "base/clock.h"
#include "base/convert.h"
#include "base/error.h"
#include "base/thread.h"
#include "io/dataset_internal.h"
#include "io/sampler.h"

#define NS_PER_S INT64_C(1000000000)

/* Which micro-batch: the same numbers on every rank. */
typedef struct job {
    uint64_t step;
    size_t   micro_batch;
} job_t;

typedef struct slot {
    ddp_micro_batch_t micro; /* points to the two below */
    void             *x;     /* images or inputs */
    int32_t          *y;     /* labels or targets */
    size_t           *index;
    ddp_status_t      status; /* of the fetch, as is `line` */
    char              line[DDP_ERROR_LINE_SIZE];
    bool              is_ready;
} slot_t;

struct ddp_loader {
    ddp_loader_params_t params;
    size_t              samples;
    slot_t         *slots;   /* owned, [depth]; micro-batch number i (of this rank) lies in slot i % depth */
    void           *memory;  /* owned: x, y and index of all slots */
    pthread_t      *threads; /* owned, [params.threads] */
    size_t          started; /* threads */
    bool            has_lock;
    pthread_mutex_t lock;  /* guards next_job, claimed, released, is_stopping, and of each slot is_ready */
    pthread_cond_t  ready; /* the slot that ddp_loader_next() waits for may be ready */
    pthread_cond_t  space; /* a slot was released, or the threads have to stop */
    job_t           next_job;
    uint64_t        claimed;  /* micro-batches handed to threads */
    uint64_t        released; /* given back by the user */
    bool            is_stopping;
    uint64_t        delivered; /* of the user's thread, as is wait_ns */
    int64_t         wait_ns;
};

/* Samples of a job: position in its epoch and how many; 0 in the short last batch where parts are empty. */
static size_t job_samples(const ddp_loader_t *loader, const job_t *job, ddp_batch_range_t *range_p,
                          size_t *first_row_p)
{
    size_t count;

    *range_p = ddp_sampler_batch(loader->samples, loader->params.batch, job->step);
    ddp_partition(range_p->count, loader->params.micro_batches, job->micro_batch, first_row_p, &count);
    return count;
}

/* The next job that has samples; false: there is none. With threads the caller holds the lock. */
static bool take_job(ddp_loader_t *loader, job_t *job_p)
{
    const size_t first = loader->params.first_micro;
    const size_t end   = first + loader->params.micro_count;
    job_t       *next  = &loader->next_job;

    while (next->step < loader->params.end_step && first < end) {
        ddp_batch_range_t range;
        size_t            first_row;

        *job_p = *next;
        next->micro_batch++;
        if (next->micro_batch == end) {
            next->micro_batch = first;
            next->step++;
        }
        if (job_samples(loader, job_p, &range, &first_row) > 0) {
            return true;
        }
    }
    return false;
}

static ddp_status_t fetch(const ddp_loader_t *loader, const job_t *job, slot_t *slot)
{
    const ddp_loader_params_t *params = &loader->params;
    ddp_micro_batch_t         *micro  = &slot->micro;
    ddp_batch_range_t          range;

    micro->step        = job->step;
    micro->micro_batch = job->micro_batch;
    micro->n           = job_samples(loader, job, &range, &micro->first_row);
    for (size_t i = 0; i < micro->n; i++) {
        slot->index[i] =
            ddp_sampler_index(params->seed, range.epoch, loader->samples, range.first + micro->first_row + i);
    }
    if (params->tokens != NULL) {
        return ddp_tokens_fetch(params->tokens, slot->index, micro->n, slot->x, slot->y);
    }
    ddp_dataset_fetch_augmented(params->dataset, params->augment, params->seed, range.epoch, slot->index,
                                micro->n, slot->x, slot->y);
    return DDP_OK;
}

/* The line goes with the micro-batch: it was recorded for the thread that fetched. */
static void fill(const ddp_loader_t *loader, const job_t *job, slot_t *slot)
{
    slot->status = fetch(loader, job, slot);
    if (slot->status != DDP_OK) {
        memcpy(slot->line, ddp_error_line(), sizeof(slot->line));
    }
}

/* A thread: claim the next micro-batch once its slot is free, fetch it, say so. Its wait for a free slot has
 * no deadline: idle is right while the user computes, and destroy ends it. */
static void *work(void *argument)
{
    ddp_loader_t *loader = argument;
    job_t         job;

    pthread_mutex_lock(&loader->lock);
    for (;;) {
        slot_t *slot;

        while (!loader->is_stopping && loader->claimed - loader->released == loader->params.depth) {
            pthread_cond_wait(&loader->space, &loader->lock);
        }
        if (loader->is_stopping || !take_job(loader, &job)) {
            break;
        }
        slot = &loader->slots[loader->claimed % loader->params.depth];
        loader->claimed++;
        pthread_mutex_unlock(&loader->lock);
        fill(loader, &job, slot);
        pthread_mutex_lock(&loader->lock);
        slot->is_ready = true;
        pthread_cond_signal(&loader->ready); /* only one thread ever waits for it */
    }
    pthread_mutex_unlock(&loader->lock);
    return NULL;
}

static ddp_status_t check_params(const ddp_loader_params_t *params)
{
    ddp_status_t status = DDP_OK;

    DDP_REQUIRE(params->struct_size == sizeof(*params), DDP_ERR_INVALID_ARG,
                "loader parameters not made with DDP_LOADER_PARAMS_INIT");
    DDP_REQUIRE((params->dataset != NULL) != (params->tokens != NULL), DDP_ERR_INVALID_ARG,
                "loader needs a data set or tokens, and not both");
    DDP_REQUIRE(params->tokens != NULL || ddp_dataset_is_loaded(params->dataset), DDP_ERR_INVALID_ARG,
                "loader needs a data set that is loaded");
    DDP_REQUIRE(params->tokens == NULL || params->augment == DDP_AUGMENT_NONE, DDP_ERR_INVALID_ARG,
                "loader: tokens have no augmentation");
    DDP_REQUIRE(params->batch > 0 && params->micro_batches > 0, DDP_ERR_INVALID_ARG,
                "batch %zu and micro-batches %zu must be 1 or more", params->batch, params->micro_batches);
    DDP_REQUIRE(params->first_micro <= params->micro_batches &&
                    params->micro_count <= params->micro_batches - params->first_micro,
                DDP_ERR_INVALID_ARG, "micro-batches %zu .. %zu are not all below %zu", params->first_micro,
                params->first_micro + params->micro_count, params->micro_batches);
    DDP_REQUIRE(params->first_step <= params->end_step, DDP_ERR_INVALID_ARG,
                "first step %llu is behind the end %llu", (unsigned long long)params->first_step,
                (unsigned long long)params->end_step);
    DDP_REQUIRE(params->depth > 0 && params->timeout_ms > 0, DDP_ERR_INVALID_ARG,
                "loader depth %zu and timeout %d ms must be 1 or more", params->depth, params->timeout_ms);
out:
    return status;
}

static size_t aligned(size_t bytes)
{
    return (bytes + DDP_ALIGNMENT - 1) / DDP_ALIGNMENT * DDP_ALIGNMENT;
}

/* How the memory of a slot is cut, for the largest micro-batch. */
typedef struct layout {
    size_t samples;          /* of the data */
    size_t x_bytes, y_bytes; /* of a slot */
    size_t slot_bytes, total_bytes;
} layout_t;

static ddp_status_t make_layout(const ddp_loader_params_t *params, layout_t *layout)
{
    ddp_status_t              status = DDP_OK;
    const ddp_dataset_info_t *info   = params->tokens == NULL ? ddp_dataset_info(params->dataset) : NULL;
    size_t                    x_bytes, y_bytes; /* of a sample */
    size_t                    first, rows;

    if (params->tokens != NULL) {
        layout->samples = ddp_tokens_info(params->tokens)->sequences;
        x_bytes         = ddp_tokens_info(params->tokens)->context * sizeof(int32_t);
        y_bytes         = x_bytes;
    } else {
        layout->samples = info->samples;
        x_bytes         = info->height * info->width * info->channels * sizeof(float);
        y_bytes         = sizeof(int32_t);
    }
    ddp_partition(params->batch < layout->samples ? params->batch : layout->samples, params->micro_batches, 0,
                  &first, &rows); /* part 0 is the largest */
    DDP_TRY(ddp_mul_size(rows, x_bytes, "samples of a micro-batch", &layout->x_bytes));
    DDP_TRY(ddp_mul_size(rows, y_bytes, "samples of a micro-batch", &layout->y_bytes));
    layout->x_bytes    = aligned(layout->x_bytes);
    layout->y_bytes    = aligned(layout->y_bytes);
    layout->slot_bytes = layout->x_bytes + layout->y_bytes + aligned(rows * sizeof(size_t));
    DDP_TRY(
        ddp_mul_size(layout->slot_bytes, params->depth, "prefetched micro-batches", &layout->total_bytes));
out:
    return status;
}

size_t ddp_loader_bytes(const ddp_loader_params_t *params)
{
    layout_t layout;

    return make_layout(params, &layout) == DDP_OK ? layout.total_bytes : SIZE_MAX;
}

/* One piece of memory, cut into the slots' x, y and index. */
static ddp_status_t create_slots(ddp_loader_t *loader)
{
    const ddp_allocator_t *allocator = ddp_allocator_private();
    const bool             is_tokens = loader->params.tokens != NULL;
    ddp_status_t           status    = DDP_OK;
    const size_t           depth     = loader->params.depth;
    layout_t               layout;
    char                  *memory;

    DDP_TRY(make_layout(&loader->params, &layout));
    loader->samples = layout.samples;
    DDP_TRY(
        allocator->acquire(allocator->ctx, "prefetched micro-batches", layout.total_bytes, &loader->memory));
    loader->slots = calloc(depth, sizeof(*loader->slots));
    DDP_REQUIRE(loader->slots != NULL, DDP_ERR_NO_MEMORY, "no memory for %zu loader slots", depth);
    memory = loader->memory;
    for (size_t i = 0; i < depth; i++, memory += layout.slot_bytes) {
        slot_t *slot = &loader->slots[i];

        slot->x             = memory;
        slot->y             = (int32_t *)(void *)(memory + layout.x_bytes);
        slot->index         = (size_t *)(void *)(memory + layout.x_bytes + layout.y_bytes);
        slot->micro.images  = is_tokens ? NULL : slot->x;
        slot->micro.labels  = is_tokens ? NULL : slot->y;
        slot->micro.inputs  = is_tokens ? slot->x : NULL;
        slot->micro.targets = is_tokens ? slot->y : NULL;
    }
out:
    return status;
}

static ddp_status_t create_lock(ddp_loader_t *loader)
{
    ddp_status_t       status = DDP_OK;
    pthread_condattr_t monotonic;

    DDP_TRY_PTHREAD(pthread_condattr_init(&monotonic));
    DDP_TRY_PTHREAD(pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC));
    DDP_TRY_PTHREAD(pthread_mutex_init(&loader->lock, NULL));
    DDP_TRY_PTHREAD(pthread_cond_init(&loader->ready, &monotonic));
    DDP_TRY_PTHREAD(pthread_cond_init(&loader->space, &monotonic));
    loader->has_lock = true;
out:
    return status;
}

static ddp_status_t start_threads(ddp_loader_t *loader)
{
    ddp_status_t status = DDP_OK;

    loader->threads = calloc(loader->params.threads, sizeof(*loader->threads));
    DDP_REQUIRE(loader->threads != NULL, DDP_ERR_NO_MEMORY, "no memory for %zu loader threads",
                loader->params.threads);
    while (status == DDP_OK && loader->started < loader->params.threads) {
        status = ddp_thread_start(work, loader, &loader->threads[loader->started]);
        loader->started += status == DDP_OK ? 1 : 0;
    }
out:
    return status;
}

ddp_status_t ddp_loader_create(const ddp_loader_params_t *params, ddp_loader_t **loader_p)
{
    ddp_status_t  status = DDP_OK;
    ddp_loader_t *loader = NULL;

    DDP_TRY(check_params(params));
    loader = calloc(1, sizeof(*loader));
    DDP_REQUIRE(loader != NULL, DDP_ERR_NO_MEMORY, "no memory for a loader");
    loader->params               = *params;
    loader->next_job.step        = params->first_step;
    loader->next_job.micro_batch = params->first_micro;
    if (params->dataset != NULL) {
        DDP_TRY(ddp_augment_check(params->augment, ddp_dataset_info(params->dataset)));
    }
    DDP_TRY(create_slots(loader));
    DDP_TRY(create_lock(loader));
    if (params->threads > 0) {
        DDP_TRY(start_threads(loader));
    }
    *loader_p = loader;
    loader    = NULL;
out:
    ddp_loader_destroy(&loader);
    return status;
}

void ddp_loader_destroy(ddp_loader_t **loader_p)
{
    ddp_loader_t *loader = *loader_p;

    if (loader == NULL) {
        return;
    }
    if (loader->has_lock) {
        pthread_mutex_lock(&loader->lock);
        loader->is_stopping = true;
        pthread_cond_broadcast(&loader->space);
        pthread_mutex_unlock(&loader->lock);
        for (size_t i = 0; i < loader->started; i++) {
            pthread_join(loader->threads[i], NULL); /* at most one fetch away */
        }
        pthread_cond_destroy(&loader->space);
        pthread_cond_destroy(&loader->ready);
        pthread_mutex_destroy(&loader->lock);
    }
    free(loader->threads);
    free(loader->slots);
    ddp_allocator_private()->release(ddp_allocator_private()->ctx, loader->memory);
    free(loader);
    *loader_p = NULL;
}

static ddp_status_t fail_at_end(const ddp_loader_t *loader)
{
    return ddp_fail(DDP_ERR_STATE, "loader: no micro-batch after step %llu, the last",
                    (unsigned long long)loader->params.end_step);
}

/* Wait until the slot is ready; the caller holds the lock. */
static ddp_status_t wait_ready(ddp_loader_t *loader, const slot_t *slot)
{
    const int64_t         deadline_ns = ddp_clock_ns() + loader->params.timeout_ms * DDP_NS_PER_MS;
    const struct timespec deadline    = {.tv_sec  = (time_t)(deadline_ns / NS_PER_S),
                                         .tv_nsec = (long)(deadline_ns % NS_PER_S)};

    while (!slot->is_ready) {
        const int code = pthread_cond_timedwait(&loader->ready, &loader->lock, &deadline);

        if (code == ETIMEDOUT && !slot->is_ready) {
            return ddp_fail(DDP_ERR_TIMEOUT,
                            "loader: no micro-batch within %d ms; is the machine overloaded?",
                            loader->params.timeout_ms);
        }
    }
    return DDP_OK;
}

static ddp_status_t next_of_threads(ddp_loader_t *loader, slot_t *slot)
{
    ddp_status_t status = DDP_OK;
    job_t        probe;

    pthread_mutex_lock(&loader->lock);
    if (loader->claimed == loader->delivered) { /* not begun: is there one at all? */
        const job_t kept = loader->next_job;
        const bool  has  = take_job(loader, &probe);

        loader->next_job = kept;
        status           = has ? DDP_OK : fail_at_end(loader);
    }
    if (status == DDP_OK) {
        status = wait_ready(loader, slot);
    }
    if (status == DDP_OK && slot->status == DDP_OK) { /* one that failed stays for the next call */
        slot->is_ready = false;
    }
    pthread_mutex_unlock(&loader->lock);
    return status;
}

/* Without threads. */
static ddp_status_t next_of_this_thread(ddp_loader_t *loader, slot_t *slot)
{
    const job_t kept = loader->next_job;
    job_t       job;

    if (!take_job(loader, &job)) {
        return fail_at_end(loader);
    }
    fill(loader, &job, slot);
    if (slot->status != DDP_OK) {
        loader->next_job = kept;
    }
    return DDP_OK;
}

ddp_status_t ddp_loader_next(ddp_loader_t *loader, ddp_micro_batch_t *micro_p)
{
    ddp_status_t  status = DDP_OK;
    slot_t       *slot   = &loader->slots[loader->delivered % loader->params.depth];
    const int64_t start  = ddp_clock_ns();

    /* `released` is written by this thread alone, so it may be read without the lock */
    DDP_REQUIRE(loader->delivered - loader->released < loader->params.depth, DDP_ERR_STATE,
                "loader: all %zu micro-batches are held; release one first", loader->params.depth);
    DDP_TRY(loader->started > 0 ? next_of_threads(loader, slot) : next_of_this_thread(loader, slot));
    DDP_REQUIRE(slot->status == DDP_OK, slot->status, "%s", slot->line);
    loader->delivered++;
    *micro_p = slot->micro;
out:
    loader->wait_ns += ddp_clock_ns() - start;
    return status;
}

void ddp_loader_release(ddp_loader_t *loader)
{
    if (loader->released == loader->delivered) {
        return; /* nothing is held */
    }
    pthread_mutex_lock(&loader->lock);
    loader->released++;
    pthread_cond_signal(&loader->space);
    pthread_mutex_unlock(&loader->lock);
}

int64_t ddp_loader_wait_ns(const ddp_loader_t *loader)
{
    return loader->wait_ns;
}
