/* The writing threads: one on each rank of rank 0's machine. Rank 0's makes the file, all write their pieces,
 * rank 0's commits. They meet in shared memory and call no MPI. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "io/crc32c_internal.h"
#include "io/file_internal.h"
#include "io/saver_internal.h"

#define CHUNK_BYTES ((size_t)4 << 20)
#define POLL_NS     1000000
/* Metadata of a file whose arrays are small. */
#define SPARE_BYTES ((uint64_t)1 << 20)

static bool is_stopped(ddp_saver_t *saver)
{
    bool stop;

    pthread_mutex_lock(&saver->lock);
    stop = saver->stop;
    pthread_mutex_unlock(&saver->lock);
    return stop;
}

static ddp_status_t check_stop(ddp_saver_t *saver)
{
    return is_stopped(saver) ? ddp_fail(DDP_ERR_STATE, "given up: the run ended before it was written")
                             : DDP_OK;
}

static void rest(void)
{
    const struct timespec time = {0, POLL_NS};

    (void)nanosleep(&time, NULL);
}

static ddp_save_writer_t *my(ddp_saver_t *saver)
{
    return &saver->writers[saver->local_rank];
}

/* Until *flag has reached the number of the job; as long as somebody moves. What the thread does after it has
 * given up looks like progress, so that whoever waits for the save must have seen its deadline pass before.
 */
static ddp_status_t wait_for(ddp_saver_t *saver, const _Atomic uint64_t *flag, const ddp_save_job_t *job)
{
    ddp_status_t status = DDP_OK;
    char         line[DDP_ERROR_LINE_SIZE];

    ddp_saver_stage(my(saver), DDP_SAVE_RESTS);
    while (atomic_load(flag) < job->number) {
        const int64_t silence = ddp_saver_silence_ns(saver);

        DDP_TRY(check_stop(saver));
        if (silence >= 2 * ddp_saver_timeout_ns(saver)) {
            ddp_saver_describe(saver, job->number, silence, line);
            DDP_TRY(ddp_fail(DDP_ERR_TIMEOUT, "%s", line));
        }
        rest();
    }
out:
    return status;
}

/* Checksum and write one piece, in parts that stay in the cache between the two. */
static ddp_status_t write_piece(ddp_saver_t *saver, int fd, ddp_save_piece_t *piece, const uint8_t *bytes)
{
    ddp_status_t status = DDP_OK;
    uint32_t     crc    = 0;

    for (uint64_t done = 0; done < piece->bytes;) {
        const uint64_t left = piece->bytes - done;
        const size_t   n    = left < CHUNK_BYTES ? (size_t)left : CHUNK_BYTES;

        DDP_TRY(check_stop(saver));
        crc = ddp_crc32c(crc, bytes + done, n);
        DDP_TRY(ddp_write_at(saver->shared->path, fd, bytes + done, n, piece->at + done));
        done += n;
        ddp_saver_moved(my(saver), n);
    }
    piece->crc = crc;
out:
    return status;
}

/* This rank's pieces. */
static ddp_status_t write_pieces(ddp_saver_t *saver, const ddp_save_job_t *job, int fd)
{
    ddp_status_t status   = DDP_OK;
    size_t       metadata = 0;

    for (size_t i = 0; i < saver->shared->n_pieces; i++) {
        ddp_save_piece_t *piece = &saver->pieces[i];

        if (piece->rank != saver->rank) {
            continue;
        }
        if (piece->array == DDP_CHECKPOINT_METADATA) {
            DDP_TRY(write_piece(saver, fd, piece, job->plan.metadata + metadata));
            metadata += (size_t)piece->bytes;
        } else {
            DDP_TRY(write_piece(saver, fd, piece, (const uint8_t *)(saver->snapshot + piece->at_snapshot)));
        }
    }
out:
    return status;
}

static ddp_status_t write_part(ddp_saver_t *saver, const ddp_save_job_t *job)
{
    ddp_status_t status = DDP_OK;
    int          fd     = -1;

    DDP_TRY(wait_for(saver, &saver->shared->opened, job));
    DDP_REQUIRE(atomic_load(&saver->shared->broken) == 0, DDP_ERR_REMOTE, "the file could not be made");
    ddp_saver_stage(my(saver), DDP_SAVE_OPEN);
    fd = open(saver->shared->path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) {
        DDP_TRY(ddp_fail_path(saver->shared->path, errno, ""));
    }
    DDP_TRY(ddp_fault("save_write", saver->rank));
    ddp_saver_stage(my(saver), DDP_SAVE_PWRITE);
    DDP_TRY(write_pieces(saver, job, fd));
    ddp_saver_stage(my(saver), DDP_SAVE_CLOSE);
    if (close(fd) != 0) {
        fd = -1;
        DDP_TRY(ddp_fail_path(saver->shared->path, errno, ""));
    }
    fd = -1;
out:
    if (fd >= 0) {
        (void)close(fd);
    }
    return status;
}

static void end_part(ddp_saver_t *saver, const ddp_save_job_t *job, ddp_status_t status)
{
    ddp_save_writer_t *me = my(saver);

    ddp_saver_stage(me, DDP_SAVE_RESTS);
    if (status != DDP_OK) {
        snprintf(me->why, sizeof(me->why), "%s", ddp_error_line());
    }
    atomic_store(&me->failed, status != DDP_OK);
    atomic_store(&me->ended, job->number);
}

/* All have ended before any failure counts: nobody may still write when the next save begins. */
static ddp_status_t wait_for_parts(ddp_saver_t *saver, const ddp_save_job_t *job)
{
    ddp_status_t status = DDP_OK;

    for (int r = 0; r < saver->n_writers; r++) {
        DDP_TRY(wait_for(saver, &saver->writers[r].ended, job));
    }
    for (int r = 0; r < saver->n_writers; r++) {
        DDP_REQUIRE(atomic_load(&saver->writers[r].failed) == 0, DDP_ERR_REMOTE, "%s", saver->writers[r].why);
    }
out:
    return status;
}

static uint32_t sum_pieces(const ddp_saver_t *saver)
{
    uint32_t crc = 0;

    for (size_t i = 0; i < saver->shared->n_pieces; i++) {
        crc = ddp_crc32c_combine(crc, saver->pieces[i].crc, saver->pieces[i].bytes);
    }
    return crc;
}

/* Rank 0: file, own part, the others' parts, header, commit. */
static ddp_status_t write_file(ddp_saver_t *saver, const ddp_save_job_t *job, char *name)
{
    ddp_status_t            status = DDP_OK;
    ddp_save_shared_t      *shared = saver->shared;
    ddp_checkpoint_header_t header = {DDP_CHECKPOINT_VERSION, job->step, job->plan.bytes, 0};
    char                    block[DDP_CHECKPOINT_HEADER_BYTES];
    int                     fd     = -1;
    bool                    exists = false;

    status = ddp_saver_file_create(saver->folder, job->step, job->plan.bytes, my(saver), shared->path, &fd);
    exists = status == DDP_OK;
    atomic_store(&shared->broken, !exists);
    atomic_store(&shared->opened, job->number);
    if (exists) {
        status = write_part(saver, job);
    }
    end_part(saver, job, status);
    DDP_TRY(wait_for_parts(saver, job));
    header.crc = sum_pieces(saver);
    ddp_checkpoint_header_write(&header, block);
    ddp_saver_stage(my(saver), DDP_SAVE_PWRITE);
    DDP_TRY(ddp_write_at(shared->path, fd, block, sizeof(block), 0));
    ddp_saver_moved(my(saver), sizeof(block));
    status = ddp_saver_file_commit(saver->folder, job->step, shared->path, fd, my(saver), name);
    fd     = -1;
    DDP_TRY(status);
    exists = false;
    ddp_saver_stage(my(saver), DDP_SAVE_TIDY);
    ddp_saver_folder_tidy(saver->folder, job->step, job->is_best, saver->params.keep);
out:
    if (fd >= 0) {
        (void)close(fd);
    }
    if (exists) {
        ddp_saver_stage(my(saver), DDP_SAVE_UNLINK);
        (void)unlink(shared->path);
    }
    ddp_saver_stage(my(saver), DDP_SAVE_RESTS);
    return status;
}

static void note_result(ddp_saver_t *saver, const ddp_save_job_t *job, ddp_status_t status, const char *name)
{
    ddp_save_result_t *result;

    pthread_mutex_lock(&saver->lock);
    if (saver->n_results == DDP_SAVER_RESULTS) { /* nobody asks: the oldest goes */
        memmove(saver->result, saver->result + 1, (DDP_SAVER_RESULTS - 1) * sizeof(saver->result[0]));
        saver->n_results--;
    }
    result = &saver->result[saver->n_results++];
    memset(result, 0, sizeof(*result));
    result->step      = job->step;
    result->is_saved  = status == DDP_OK;
    result->is_best   = job->is_best;
    result->best_loss = job->best_loss;
    result->bytes     = job->plan.bytes;
    result->stall_ns  = job->stall_ns;
    result->write_ns  = ddp_clock_ns() - job->start_ns;
    snprintf(result->path, sizeof(result->path), "%s", status == DDP_OK ? name : "");
    snprintf(result->why, sizeof(result->why), "%s", status == DDP_OK ? "" : ddp_error_line());
    pthread_mutex_unlock(&saver->lock);
}

/* Rank 0, before the first save. */
static ddp_status_t prepare_folder(ddp_saver_t *saver)
{
    const uint64_t bytes = (uint64_t)saver->floats * sizeof(float) + SPARE_BYTES;

    return ddp_saver_folder_prepare(saver->folder, bytes, my(saver));
}

static void do_job(ddp_saver_t *saver, ddp_save_job_t *job)
{
    char         name[DDP_SAVER_PATH_SIZE] = "";
    ddp_status_t status;

    if (saver->rank != 0) {
        status = job->is_folder ? DDP_OK : write_part(saver, job);
        end_part(saver, job, status);
        return;
    }
    if (job->is_folder) {
        end_part(saver, job, prepare_folder(saver));
    } else {
        status = write_file(saver, job, name);
        note_result(saver, job, status, name);
        ddp_checkpoint_plan_free(&job->plan);
    }
    atomic_store(&saver->shared->closed, job->number);
}

void ddp_saver_hand_over(ddp_saver_t *saver, const ddp_save_job_t *job)
{
    atomic_store(&my(saver)->written, 0);
    ddp_saver_stage(my(saver), DDP_SAVE_RESTS);
    pthread_mutex_lock(&saver->lock);
    saver->job     = *job;
    saver->has_job = true;
    pthread_cond_signal(&saver->wake);
    pthread_mutex_unlock(&saver->lock);
}

void *ddp_saver_thread(void *ctx)
{
    ddp_saver_t   *saver = ctx;
    ddp_save_job_t job;

    for (;;) {
        pthread_mutex_lock(&saver->lock);
        while (!saver->has_job && !saver->stop) {
            pthread_cond_wait(&saver->wake, &saver->lock);
        }
        if (!saver->has_job) {
            saver->has_ended = true;
            pthread_mutex_unlock(&saver->lock);
            return NULL;
        }
        job            = saver->job;
        saver->has_job = false;
        pthread_mutex_unlock(&saver->lock);
        do_job(saver, &job);
    }
}
