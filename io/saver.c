#include "io/saver.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/allocator.h"
#include "base/call.h"
#include "base/clock.h"
#include "base/convert.h"
#include "io/saver_internal.h"

/* How long rank 0 waits for its thread before it tells the others that it still does. */
#define STEP_MS 200
#define POLL_US 500
/* Metadata of a file whose arrays are small. */
#define SPARE_BYTES ((uint64_t)1 << 20)

static size_t count_floats(const ddp_tensor_desc_t *tensors, size_t n, size_t n_slots)
{
    size_t floats = 0;

    for (size_t i = 0; i < n; i++) {
        floats += tensors[i].count * (1 + (tensors[i].role == DDP_TENSOR_AVERAGE ? 0 : n_slots));
    }
    return floats;
}

size_t ddp_saver_bytes(const ddp_tensor_desc_t *tensors, size_t n_tensors, size_t n_slots)
{
    return count_floats(tensors, n_tensors, n_slots) * sizeof(float);
}

/* Signals are for the training thread: here they would break off calls that write. */
static ddp_status_t start_thread(ddp_saver_t *saver)
{
    ddp_status_t status = DDP_OK;
    sigset_t     all;
    sigset_t     before;

    (void)sigfillset(&all);
    DDP_TRY_PTHREAD(pthread_sigmask(SIG_SETMASK, &all, &before));
    status =
        ddp_from_pthread(pthread_create(&saver->thread, NULL, ddp_saver_thread, saver), "pthread_create()");
    saver->has_thread = status == DDP_OK;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL); /* cannot fail where the first did not */
out:
    return status;
}

/* What of a rank of the writing machine can fail. */
static ddp_status_t prepare(ddp_saver_t *saver)
{
    ddp_status_t           status = DDP_OK;
    const ddp_allocator_t *memory = ddp_allocator_private();
    size_t                 first  = 0;
    size_t                 count  = 0;
    void                  *part   = NULL;

    if (!saver->is_writer) {
        return DDP_OK;
    }
    ddp_partition(saver->floats, (size_t)saver->local_size, (size_t)saver->local_rank, &first, &count);
    if (count > 0) {
        DDP_TRY(memory->acquire(memory->ctx, "snapshot for checkpoints", count * sizeof(float), &part));
        saver->snapshot = part;
        memset(part, 0, count * sizeof(float)); /* taken now, or the first save would stand still for it */
    }
    if (saver->rank == 0) {
        DDP_TRY(ddp_saver_folder_prepare(saver->folder, saver->floats * sizeof(float) + SPARE_BYTES));
    }
    DDP_TRY(start_thread(saver));
out:
    return status;
}

static ddp_status_t share(ddp_saver_t *saver)
{
    ddp_status_t status = DDP_OK;
    const size_t arrays = saver->params.n_tensors * (1 + saver->n_slots);
    void        *memory = NULL;
    char        *place  = NULL;
    const size_t ranks  = (size_t)saver->local_size;
    const size_t head   = sizeof(ddp_save_shared_t) + ranks * sizeof(ddp_save_writer_t);

    saver->max_pieces = 2 * arrays + 1 + ranks;
    DDP_TRY(ddp_comm_shared(saver->params.comm, "the list of a checkpoint's pieces",
                            head + saver->max_pieces * sizeof(ddp_save_piece_t), &memory));
    place          = memory;
    saver->shared  = memory;
    saver->writers = (ddp_save_writer_t *)(void *)(place + sizeof(ddp_save_shared_t));
    saver->pieces  = (ddp_save_piece_t *)(void *)(place + head);
out:
    return status;
}

static ddp_status_t take_params(ddp_saver_t *saver, const ddp_saver_params_t *params)
{
    ddp_status_t status = DDP_OK;

    DDP_REQUIRE(params->struct_size == sizeof(*params) && params->keep >= 2, DDP_ERR_INVALID_ARG,
                "ddp_saver_params_t was not made with DDP_SAVER_PARAMS_INIT, or keeps less than 2");
    saver->params     = *params;
    saver->rank       = ddp_comm_rank(params->comm);
    saver->local_rank = ddp_comm_local_rank(params->comm);
    saver->local_size = ddp_comm_local_size(params->comm);
    saver->is_writer  = ddp_comm_machine(params->comm) == 0;
    while (saver->n_slots < DDP_CHECKPOINT_MAX_SLOTS &&
           ddp_reducer_slot(params->reducer, saver->n_slots) != NULL) {
        saver->n_slots++;
    }
    saver->floats = count_floats(params->tensors, params->n_tensors, saver->n_slots);
    if (saver->rank == 0) {
        DDP_REQUIRE(params->folder != NULL && strlen(params->folder) < sizeof(saver->folder) - 64, DDP_ERR_IO,
                    "the folder for checkpoints has no name, or one that is too long");
        memcpy(saver->folder, params->folder, strlen(params->folder) + 1);
    }
out:
    return status;
}

ddp_status_t ddp_saver_create(const ddp_saver_params_t *params, ddp_saver_t **saver_p)
{
    ddp_status_t status = DDP_OK;
    ddp_saver_t *saver  = calloc(1, sizeof(*saver));

    if (saver != NULL) {
        (void)pthread_mutex_init(&saver->lock, NULL); /* cannot fail with default attributes on Linux */
        (void)pthread_cond_init(&saver->wake, NULL);
        status = take_params(saver, params);
    } else {
        status = ddp_fail(DDP_ERR_NO_MEMORY, "no memory for saving checkpoints");
    }
    DDP_TRY(ddp_comm_agree(params->comm, status));
    DDP_TRY(share(saver));
    DDP_TRY(ddp_comm_agree(params->comm, prepare(saver)));
    *saver_p = saver;
    saver    = NULL;
out:
    ddp_saver_destroy(&saver);
    return status;
}

void ddp_saver_destroy(ddp_saver_t **saver_p)
{
    ddp_saver_t           *saver  = *saver_p;
    const ddp_allocator_t *memory = ddp_allocator_private();

    if (saver == NULL) {
        return;
    }
    if (saver->has_thread) {
        pthread_mutex_lock(&saver->lock);
        saver->stop = true;
        pthread_cond_signal(&saver->wake);
        pthread_mutex_unlock(&saver->lock);
        (void)pthread_join(saver->thread, NULL);
    }
    memory->release(memory->ctx, saver->snapshot);
    (void)pthread_cond_destroy(&saver->wake);
    (void)pthread_mutex_destroy(&saver->lock);
    free(saver);
    *saver_p = NULL;
}

/* Where an array of a tensor begins in the arenas. */
static const float *find_source(const ddp_saver_t *saver, size_t tensor, int array)
{
    ddp_reducer_t *reducer = saver->params.reducer;
    const float   *arena   = array == DDP_CHECKPOINT_VALUES ? ddp_reducer_values(reducer)
                                                            : ddp_reducer_slot(reducer, (size_t)array);

    return arena + saver->params.tensors[tensor].offset;
}

/* One extent into pieces: metadata is rank 0's, arrays go on where the last one ended. */
static void cut_extent(ddp_saver_t *saver, const ddp_checkpoint_extent_t *extent, size_t *floats)
{
    ddp_save_shared_t *shared = saver->shared;
    ddp_save_piece_t   piece  = {extent->at, extent->bytes, extent->tensor, extent->array, 0, 0, 0};

    if (extent->array == DDP_CHECKPOINT_METADATA) {
        saver->pieces[shared->n_pieces++] = piece;
        return;
    }
    for (uint64_t left = extent->bytes / sizeof(float); left > 0;) {
        size_t first = 0;
        size_t count = 0;
        size_t n;

        for (piece.rank = 0; *floats >= first + count; piece.rank++) {
            ddp_partition(saver->floats, (size_t)saver->local_size, (size_t)piece.rank, &first, &count);
        }
        piece.rank--;
        n           = first + count - *floats < left ? first + count - *floats : (size_t)left;
        piece.bytes = n * sizeof(float);
        saver->pieces[shared->n_pieces++] = piece;
        piece.at += piece.bytes;
        piece.first += n;
        left -= n;
        *floats += n;
    }
}

static bool is_stuck(ddp_saver_t *saver)
{
    bool stuck;

    pthread_mutex_lock(&saver->lock);
    stuck = saver->is_stuck;
    pthread_mutex_unlock(&saver->lock);
    return stuck;
}

/* Rank 0, on the training thread: HDF5's part of the file, and who writes what. */
static ddp_status_t make_plan(ddp_saver_t *saver, const ddp_training_state_t *state, ddp_save_job_t *job)
{
    ddp_status_t status = DDP_OK;
    const size_t n      = saver->params.n_tensors;
    uint64_t    *steps  = calloc(n, sizeof(*steps));
    size_t       floats = 0;

    DDP_REQUIRE(steps != NULL, DDP_ERR_NO_MEMORY, "no memory for a checkpoint");
    DDP_REQUIRE(!is_stuck(saver), DDP_ERR_STATE, "a writing thread still hangs in an earlier save");
    for (size_t i = 0; i < n; i++) {
        steps[i] = ddp_reducer_tensor_steps(saver->params.reducer, i);
    }
    DDP_TRY(ddp_checkpoint_plan_make(saver->params.tensors, steps, n, state, &job->plan));
    saver->shared->n_pieces = 0;
    for (size_t i = 0; i < job->plan.n_extents; i++) {
        cut_extent(saver, &job->plan.extents[i], &floats);
    }
out:
    free(steps);
    return status;
}

/* This rank's part of all arrays, as they are now. */
static void copy_state(ddp_saver_t *saver)
{
    char *to = (char *)saver->snapshot;

    for (size_t i = 0; i < saver->shared->n_pieces; i++) {
        const ddp_save_piece_t *piece = &saver->pieces[i];

        if (piece->rank == saver->local_rank && piece->array != DDP_CHECKPOINT_METADATA) {
            memcpy(to, find_source(saver, piece->tensor, piece->array) + piece->first, (size_t)piece->bytes);
            to += piece->bytes;
        }
    }
}

static void hand_over(ddp_saver_t *saver, const ddp_save_job_t *job)
{
    pthread_mutex_lock(&saver->lock);
    saver->job     = *job;
    saver->has_job = true;
    pthread_cond_signal(&saver->wake);
    pthread_mutex_unlock(&saver->lock);
}

static bool is_busy(const ddp_saver_t *saver)
{
    return atomic_load(&saver->shared->closed) < saver->number;
}

/* Rank 0 says again and again that it still writes, so that nobody's wait is long. Its thread has a deadline.
 */
static ddp_status_t wait_until_idle(ddp_saver_t *saver)
{
    ddp_status_t status = DDP_OK;
    uint8_t      busy   = 1;

    while (busy != 0) {
        const int64_t end = ddp_clock_ns() + STEP_MS * (int64_t)1000000;

        while (saver->rank == 0 && is_busy(saver) && ddp_clock_ns() < end) {
            (void)usleep(POLL_US);
        }
        busy = saver->rank == 0 && is_busy(saver) ? 1 : 0;
        DDP_TRY(ddp_comm_broadcast(saver->params.comm, &busy, sizeof(busy), 0));
    }
out:
    return status;
}

static void note_failure(ddp_saver_t *saver, uint64_t step)
{
    pthread_mutex_lock(&saver->lock);
    if (saver->n_results < DDP_SAVER_RESULTS) {
        ddp_save_result_t *result = &saver->result[saver->n_results++];

        memset(result, 0, sizeof(*result));
        result->step = step;
        snprintf(result->why, sizeof(result->why), "%s", ddp_error_line());
    }
    pthread_mutex_unlock(&saver->lock);
}

ddp_status_t ddp_saver_save(ddp_saver_t *saver, const ddp_training_state_t *state, bool is_best)
{
    ddp_status_t   status  = DDP_OK;
    ddp_save_job_t job     = {.step = state->step, .is_best = is_best, .start_ns = ddp_clock_ns()};
    uint8_t        is_made = 0;

    DDP_TRY(wait_until_idle(saver));
    if (saver->rank == 0) {
        is_made = make_plan(saver, state, &job) == DDP_OK ? 1 : 0;
        if (is_made == 0) {
            note_failure(saver, state->step);
        }
    }
    DDP_TRY(ddp_comm_broadcast(saver->params.comm, &is_made, sizeof(is_made), 0));
    if (is_made == 0) {
        goto out; /* training goes on; who polls is told */
    }
    job.number = ++saver->number;
    if (saver->is_writer) {
        copy_state(saver);
        job.stall_ns = ddp_clock_ns() - job.start_ns;
        hand_over(saver, &job);
        memset(&job.plan, 0, sizeof(job.plan)); /* the thread's */
    }
out:
    ddp_checkpoint_plan_free(&job.plan);
    return status;
}

bool ddp_saver_poll(ddp_saver_t *saver, ddp_save_result_t *result_p)
{
    bool found = false;

    pthread_mutex_lock(&saver->lock);
    if (saver->n_results > 0) {
        *result_p = saver->result[0];
        saver->n_results--;
        memmove(saver->result, saver->result + 1, saver->n_results * sizeof(saver->result[0]));
        found = true;
    }
    pthread_mutex_unlock(&saver->lock);
    return found;
}

ddp_status_t ddp_saver_finish(ddp_saver_t *saver)
{
    return wait_until_idle(saver);
}

bool ddp_saver_drain(ddp_saver_t *saver, int timeout_ms)
{
    const int64_t end = ddp_clock_ns() + timeout_ms * (int64_t)1000000;

    while (saver->is_writer && is_busy(saver) && ddp_clock_ns() < end) {
        (void)usleep(POLL_US);
    }
    return !saver->is_writer || !is_busy(saver);
}
