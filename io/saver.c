#include "io/saver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/allocator.h"
#include "base/clock.h"
#include "base/convert.h"
#include "base/log.h"
#include "base/progressed.h"
#include "base/thread.h"
#include "io/saver_internal.h"

#define POLL_US       500
#define TOUCHED_BYTES ((size_t)64 << 20) /* at a time */

size_t ddp_saver_bytes(const ddp_tensor_desc_t *tensors, size_t n_tensors, size_t n_slots)
{
    return ddp_saver_count_floats(tensors, n_tensors, n_slots) * sizeof(float);
}

static ddp_status_t start_thread(ddp_saver_t *saver)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(ddp_thread_start(ddp_saver_thread, saver, &saver->thread));
    saver->has_thread = true;
out:
    return status;
}

static const ddp_allocator_t *snapshot_memory(const ddp_saver_t *saver)
{
    return saver->params.memory != NULL ? saver->params.memory : ddp_allocator_private();
}

/* Take all pages now, or the first save would stand still for it. */
static void touch(char *memory, size_t bytes)
{
    while (bytes > 0) {
        const size_t n = bytes < TOUCHED_BYTES ? bytes : TOUCHED_BYTES;

        memset(memory, 0, n);
        memory += n;
        bytes -= n;
        ddp_progressed();
    }
}

/* What of a rank of the writing machine can fail. */
static ddp_status_t prepare(ddp_saver_t *saver)
{
    ddp_status_t           status = DDP_OK;
    const ddp_allocator_t *memory = snapshot_memory(saver);
    void                  *part   = NULL;

    if (!saver->is_writer) {
        return DDP_OK;
    }
    if (saver->own_floats > 0) {
        const size_t bytes = saver->own_floats * sizeof(float);

        status = memory->acquire(memory->ctx, "snapshot for checkpoints", bytes, &part);
        if (status == DDP_ERR_NO_MEMORY && saver->params.memory != NULL) { /* only speed is lost */
            ddp_log(DDP_LOG_DEBUG, "%s; it is taken from the process", ddp_error_line());
            saver->params.memory = NULL;
            memory               = ddp_allocator_private();
            status               = memory->acquire(memory->ctx, "snapshot for checkpoints", bytes, &part);
        }
        DDP_TRY(status);
        saver->snapshot = part;
        touch(part, bytes);
    }
    DDP_TRY(start_thread(saver));
out:
    return status;
}

/* The first job. */
static ddp_status_t prepare_folder(ddp_saver_t *saver)
{
    ddp_status_t   status = DDP_OK;
    ddp_save_job_t job    = {.is_folder = true, .number = ++saver->number};

    if (saver->rank == 0) {
        snprintf(saver->shared->what, sizeof(saver->shared->what),
                 "getting folder '%.256s' ready for checkpoints", saver->folder);
    }
    if (saver->is_writer) {
        ddp_saver_hand_over(saver, &job);
    }
    DDP_TRY(ddp_saver_finish(saver));
    if (saver->rank == 0 && atomic_load(&saver->writers[0].failed) != 0) {
        status = ddp_fail(DDP_ERR_IO, "%s", saver->writers[0].why);
    }
    status = ddp_comm_agree(saver->params.comm, status);
out:
    return status;
}

static ddp_status_t share(ddp_saver_t *saver)
{
    ddp_status_t status = DDP_OK;
    const size_t arrays = saver->params.n_tensors * (1 + saver->n_slots);
    void        *memory = NULL;
    char        *place  = NULL;
    const size_t ranks  = (size_t)ddp_comm_local_size(saver->params.comm);
    const size_t head   = sizeof(ddp_save_shared_t) + ranks * sizeof(ddp_save_writer_t);

    saver->max_pieces = saver->n_parts + arrays + 1; /* metadata between arrays */
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

    DDP_REQUIRE(params->struct_size == sizeof(*params) && params->keep >= 2 && params->timeout_ms > 0,
                DDP_ERR_INVALID_ARG,
                "ddp_saver_params_t was not made with DDP_SAVER_PARAMS_INIT, keeps less than 2, or has no "
                "time");
    saver->params     = *params;
    saver->rank       = ddp_comm_rank(params->comm);
    saver->local_rank = ddp_comm_local_rank(params->comm);
    saver->is_writer  = ddp_comm_machine(params->comm) == 0;
    saver->warn_ns    = ddp_saver_hang_ns(saver);
    snprintf(saver->host, sizeof(saver->host), "%s", ddp_comm_host(params->comm, saver->rank));
    saver->n_slots = ddp_reducer_slots(params->reducer);
    saver->floats  = ddp_saver_count_floats(params->tensors, params->n_tensors, saver->n_slots);
    if (saver->rank == 0) {
        DDP_REQUIRE(params->folder != NULL && strlen(params->folder) < sizeof(saver->folder) - 64, DDP_ERR_IO,
                    "the folder for checkpoints has no name, or one that is too long");
        memcpy(saver->folder, params->folder, strlen(params->folder) + 1);
    }
out:
    return status;
}

/* Ranks are numbered machine by machine: those of rank 0's machine are the first. */
static ddp_status_t agree_on_parts(ddp_saver_t *saver)
{
    ddp_status_t status = DDP_OK;

    saver->n_writers = ddp_comm_local_size(saver->params.comm);
    DDP_TRY(ddp_comm_broadcast(saver->params.comm, &saver->n_writers, sizeof(saver->n_writers), 0));
    DDP_TRY(ddp_comm_agree(saver->params.comm, ddp_saver_cut(saver)));
out:
    return status;
}

ddp_status_t ddp_saver_create_with(const ddp_saver_params_t *params, ddp_holder_fn_t *holder,
                                   ddp_saver_t **saver_p)
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
    saver->holder = holder;
    DDP_TRY(agree_on_parts(saver));
    DDP_TRY(share(saver));
    DDP_TRY(ddp_comm_agree(params->comm, prepare(saver)));
    DDP_TRY(prepare_folder(saver));
    *saver_p = saver;
    saver    = NULL;
out:
    ddp_saver_destroy(&saver);
    return status;
}

ddp_status_t ddp_saver_create(const ddp_saver_params_t *params, ddp_saver_t **saver_p)
{
    return ddp_saver_create_with(params, ddp_reducer_holder, saver_p);
}

static bool has_ended(ddp_saver_t *saver)
{
    bool ended;

    pthread_mutex_lock(&saver->lock);
    ended = saver->has_ended;
    pthread_mutex_unlock(&saver->lock);
    return ended;
}

/* The thread ends when it next looks at `stop`. @return false: the disk holds it for too long */
static bool end_thread(ddp_saver_t *saver)
{
    const int64_t      begin = ddp_clock_ns();
    ddp_save_writer_t *me    = &saver->writers[saver->local_rank];

    pthread_mutex_lock(&saver->lock);
    saver->stop = true;
    pthread_cond_signal(&saver->wake);
    pthread_mutex_unlock(&saver->lock);
    while (!has_ended(saver)) {
        const int64_t since = atomic_load(&me->stage) == DDP_SAVE_RESTS ? begin : atomic_load(&me->moved_ns);

        if (ddp_clock_ns() - since >= ddp_saver_timeout_ns(saver)) {
            (void)pthread_detach(saver->thread);
            return false;
        }
        (void)usleep(POLL_US);
    }
    (void)pthread_join(saver->thread, NULL);
    return true;
}

void ddp_saver_destroy(ddp_saver_t **saver_p)
{
    ddp_saver_t           *saver  = saver_p != NULL ? *saver_p : NULL;
    const ddp_allocator_t *memory = NULL;

    if (saver == NULL) {
        return;
    }
    *saver_p = NULL;
    if (saver->has_thread &&
        !end_thread(saver)) { /* should the disk answer one day, it finds what it needs */
        ddp_comm_keep_memory(saver->params.comm);
        ddp_log(DDP_LOG_DEBUG, "the disk still holds the thread that writes checkpoints: its memory stays");
        return;
    }
    memory = snapshot_memory(saver);
    memory->release(memory->ctx, saver->snapshot);
    free(saver->passing);
    free(saver->first_part);
    free(saver->parts);
    (void)pthread_cond_destroy(&saver->wake);
    (void)pthread_mutex_destroy(&saver->lock);
    free(saver);
}

/* Rank 0: a save that was not begun. */
static void note_failure(ddp_saver_t *saver, uint64_t step, const char *why)
{
    pthread_mutex_lock(&saver->lock);
    if (saver->n_results < DDP_SAVER_RESULTS) {
        ddp_save_result_t *result = &saver->result[saver->n_results++];

        memset(result, 0, sizeof(*result));
        result->step = step;
        snprintf(result->why, sizeof(result->why), "%s", why);
    }
    pthread_mutex_unlock(&saver->lock);
}

/* Rank 0: "still writing checkpoint ..." */
static void note_hanging(ddp_saver_t *saver, uint64_t step)
{
    char line[DDP_ERROR_LINE_SIZE];
    char why[DDP_ERROR_LINE_SIZE + 8];

    ddp_saver_describe(saver, saver->number, ddp_saver_silence_ns(saver), line);
    snprintf(why, sizeof(why), "still %s", line);
    note_failure(saver, step, why);
}

ddp_status_t ddp_saver_settle(ddp_saver_t *saver)
{
    bool hangs = false;

    return ddp_saver_wait(saver, ddp_saver_hang_ns(saver), &hangs);
}

static void at_disk(const ddp_saver_t *saver, bool begins)
{
    if (saver->params.at_disk != NULL) {
        saver->params.at_disk(saver->params.at_disk_ctx, begins);
    }
}

ddp_status_t ddp_saver_save(ddp_saver_t *saver, const ddp_training_state_t *state, bool is_best)
{
    ddp_status_t   status = DDP_OK;
    ddp_save_job_t job    = {
           .step = state->step, .is_best = is_best, .best_loss = state->best_loss, .start_ns = ddp_clock_ns()};
    uint8_t is_made = 0;
    bool    hangs   = false;

    DDP_TRY(ddp_saver_wait(saver, ddp_saver_hang_ns(saver), &hangs));
    if (saver->rank == 0 && hangs) {
        note_hanging(saver, state->step);
    } else if (saver->rank == 0) {
        at_disk(saver, true);
        is_made = ddp_saver_plan(saver, state, &job) == DDP_OK ? 1 : 0;
        at_disk(saver, false);
        if (is_made == 0) {
            note_failure(saver, state->step, ddp_error_line());
        }
    }
    DDP_TRY(ddp_comm_broadcast(saver->params.comm, &is_made, sizeof(is_made), 0));
    if (is_made == 0) {
        goto out; /* training goes on; who polls is told */
    }
    job.number  = ++saver->number;
    saver->last = state->step;
    /* what one rank cannot read from its device, all leave out together */
    DDP_TRY(ddp_comm_agree(saver->params.comm, ddp_saver_copy(saver)));
    if (saver->is_writer) {
        job.stall_ns = ddp_clock_ns() - job.start_ns;
        ddp_saver_hand_over(saver, &job);
        memset(&job.plan, 0, sizeof(job.plan)); /* the thread's */
    }
out:
    ddp_checkpoint_plan_free(&job.plan);
    return status;
}

uint64_t ddp_saver_last(const ddp_saver_t *saver)
{
    return saver->last;
}

bool ddp_saver_poll(ddp_saver_t *saver, ddp_save_result_t *result_p)
{
    bool found = false;

    if (saver->rank == 0) {
        (void)ddp_saver_look(saver, INT64_MAX);
    }
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
    ddp_status_t status = DDP_OK;
    bool         hangs  = false;
    char         line[DDP_ERROR_LINE_SIZE];

    DDP_TRY(ddp_saver_wait(saver, ddp_saver_timeout_ns(saver), &hangs));
    if (!hangs) {
        goto out;
    }
    if (saver->rank == 0) {
        ddp_saver_describe(saver, saver->number, ddp_saver_silence_ns(saver), line);
        status = ddp_fail(DDP_ERR_TIMEOUT, "%s", line);
    }
    status = ddp_comm_agree(saver->params.comm, status);
out:
    return status;
}

bool ddp_saver_drain(ddp_saver_t *saver, int timeout_ms)
{
    const int64_t end = ddp_clock_ns() + timeout_ms * (int64_t)1000000;

    while (saver->is_writer && ddp_saver_is_busy(saver) && ddp_clock_ns() < end) {
        (void)usleep(POLL_US);
    }
    return !saver->is_writer || !ddp_saver_is_busy(saver);
}
